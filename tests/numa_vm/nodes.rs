//! Facts that only a kernel with several NUMA nodes can show: threads on the CPUs of their node,
//! pages on its memory, victims by the kernel's own distances.
//!
//! `make test-numa` runs these in a virtual machine of several nodes. Where there is one node
//! they say that they test nothing.
#![allow(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::util;
use crate::util::{build, child_case, child_passes, hang_guard, pin};
use windlass::metrics::{MemoryPages, Pages};
use windlass::net::{TcpListener, TcpOptions, TcpStream};
use windlass::numa::NodeLocal;
use windlass::topology::{LevelKind, Topology};
use windlass::{Builder, NumaPolicy, Runtime, scope, sleep, spawn, task, yield_now};

/// The machine, if it has several nodes with CPUs; else says so.
fn machine() -> Option<Topology> {
    let machine = Topology::detect().unwrap();
    let with_cpus = machine.nodes().iter().filter(|node| !node.cpus.is_empty());
    if with_cpus.count() > 1 {
        return Some(machine);
    }
    eprintln!("one NUMA node here: not tested (make test-numa makes a machine of several)");
    None
}

/// A P on every CPU.
fn whole_machine() -> Runtime {
    build(Builder::new()).unwrap()
}

/// CPU and node of the calling thread, by the kernel.
fn here() -> (usize, u32) {
    let (mut cpu, mut node) = (0_u32, 0_u32);
    let nothing = std::ptr::null_mut::<u8>();
    // SAFETY: both places are valid.
    let r = unsafe { libc::syscall(libc::SYS_getcpu, &raw mut cpu, &raw mut node, nothing) };
    assert_eq!(r, 0);
    (cpu as usize, node)
}

/// The node of the page that `at` lies on, by the kernel.
fn node_of_page<T>(at: &T) -> u32 {
    let page = std::ptr::from_ref(at).cast::<u8>();
    let mut status = 0;
    // SAFETY: one page, one answer; without nodes to move to the call only looks.
    let r = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            1_usize,
            &raw const page,
            std::ptr::null::<i32>(),
            &raw mut status,
            0,
        )
    };
    assert_eq!(r, 0, "{}", std::io::Error::last_os_error());
    u32::try_from(status).expect("the page is there")
}

/// The kernel's distances from a node: to every node, by its number.
fn kernel_distances(machine: &Topology, node: u32) -> BTreeMap<u32, u32> {
    let path = format!("/sys/devices/system/node/node{node}/distance");
    let row = std::fs::read_to_string(path).unwrap();
    let distances = row.split_whitespace().map(|d| d.parse().unwrap());
    let os_ids = machine.nodes().iter().map(|node| node.os_id);
    os_ids.zip(distances).collect()
}

/// Goroutines of all kinds, on all Ps: short ones, ones that wait for timers, channels, sockets.
fn load(n_rounds: usize) {
    scope(|s| {
        for i in 0..64 {
            s.spawn(move || {
                for _ in 0..n_rounds {
                    let children: Vec<_> = (0..8).map(|_| spawn(yield_now)).collect();
                    sleep(Duration::from_micros(10 * i));
                    children.into_iter().for_each(|c| c.join().unwrap());
                }
            });
        }
        for _ in 0..8 {
            s.spawn(|| echo(n_rounds));
        }
    });
}

fn echo(n_rounds: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        while let Ok(data) = stream.recv_owned() {
            if data.is_empty() {
                break;
            }
            stream.write_all(&data).unwrap();
        }
    });
    let mut stream = TcpStream::connect(addr).unwrap();
    let mut buf = [0; 64];
    for _ in 0..n_rounds {
        stream.write_all(&buf).unwrap();
        stream.read_exact(&mut buf).unwrap();
    }
    drop(stream);
    server.join().unwrap();
}

#[track_caller]
fn assert_at_home(kind: &str, pages: Pages) {
    let share = pages.share_at_home();
    assert!(
        share.is_some_and(|share| share >= 0.99),
        "{kind}: {pages:?}"
    );
}

/// Almost every page of each kind lies where it belongs.
#[track_caller]
fn assert_all_at_home(rt: &Runtime) {
    let placement = rt.memory_placement();
    eprintln!("{placement:?}");
    let MemoryPages {
        processors,
        goroutines,
        stacks,
        rings,
        buffers,
        ..
    } = placement.total();
    assert_at_home("processors", processors);
    assert_at_home("goroutines", goroutines);
    assert_at_home("stacks", stacks);
    assert_eq!(processors.unknown + goroutines.unknown + stacks.unknown, 0);
    if rt.metrics().poller == windlass::metrics::Poller::IoUring {
        assert!(buffers.home > 0);
        assert_at_home("buffers", buffers);
        assert_at_home("rings", rings);
    }
    for node in placement.nodes {
        let all = node.pages.all();
        assert!(all.home > 0, "nothing on node {}: {all:?}", node.os_id);
    }
}

#[test]
fn threads_run_on_the_cpus_of_their_ps() {
    let Some(machine) = machine() else { return };
    let _guard = hang_guard();
    let rt = whole_machine();
    let plan = rt.plan();
    let all: BTreeSet<usize> = plan.ps.iter().map(|p| p.cpu).collect();
    assert_eq!(all.len(), machine.pus().len());
    rt.run(|| {
        let seen = Mutex::new(BTreeSet::new());
        while seen.lock().unwrap().len() < all.len() {
            scope(|s| {
                for _ in 0..4 * all.len() {
                    s.spawn(|| {
                        for _ in 0..20 {
                            (0..1_000).for_each(|_| std::hint::spin_loop());
                            // Without a look at the scheduler in between: on one thread.
                            let (cpus, (cpu, node)) = (util::affinity(), here());
                            assert_eq!(cpus, [cpu], "pinned to one CPU, and on it");
                            let pu = machine.pu(cpu).unwrap();
                            assert_eq!(machine.nodes()[pu.node].os_id, node);
                            seen.lock().unwrap().insert(cpu);
                            yield_now();
                        }
                    });
                }
            });
        }
        assert_eq!(seen.into_inner().unwrap(), all);
    });
}

#[test]
fn memory_lies_at_home_under_load() {
    if machine().is_none() {
        return;
    }
    let _guard = hang_guard();
    let rt = whole_machine();
    rt.run(|| {
        load(20);
        assert_all_at_home(&rt);
        // Also what comes into use later.
        let n = rt.processors();
        util::set_processors(&rt, 1);
        util::set_processors(&rt, n);
        load(20);
        assert_all_at_home(&rt);
    });
    assert_eq!(rt.metrics().placement_refusals, 0);
}

#[test]
fn a_node_uses_its_own_memory_or_the_nearest() {
    let Some(machine) = machine() else { return };
    let rt = whole_machine();
    for node in rt.memory_placement().nodes {
        let position = machine.nodes().iter().position(|n| n.os_id == node.os_id);
        let memory = node.memory_os_id.expect("there is a choice");
        if machine.nodes()[position.unwrap()].has_memory {
            assert_eq!(memory, node.os_id);
            continue;
        }
        eprintln!(
            "node {} has no memory and uses that of node {memory}",
            node.os_id
        );
        let distances = kernel_distances(&machine, node.os_id);
        let with_memory = machine.nodes().iter().filter(|n| n.has_memory);
        let nearest = with_memory.map(|n| distances[&n.os_id]).min();
        assert_eq!(Some(distances[&memory]), nearest);
    }
}

#[test]
fn victims_are_in_the_order_of_the_kernels_distances() {
    let Some(machine) = machine() else { return };
    let plan = whole_machine().plan();
    let os_node = |p: usize| plan.nodes[plan.ps[p].node].os_id;
    for p in &plan.ps {
        let distances = kernel_distances(&machine, os_node(p.index));
        let mut last = 0;
        let mut n_victims = 0;
        for level in &p.levels {
            for &victim in &level.victims {
                let distance = distances[&os_node(victim)];
                assert_eq!(distance, level.distance, "P {} and {victim}", p.index);
                let is_remote = os_node(victim) != os_node(p.index);
                assert_eq!(is_remote, level.kind == LevelKind::Remote);
            }
            assert!(level.distance >= last, "P {}: {:?}", p.index, p.levels);
            last = level.distance;
            n_victims += level.victims.len();
        }
        assert_eq!(n_victims, plan.ps.len() - 1);
    }
}

#[test]
fn values_of_nodes_lie_on_them_and_the_nearest_is_given() {
    let Some(machine) = machine() else { return };
    let _guard = hang_guard();
    let local = NodeLocal::new(|node| [node; 3000]);
    for (node, value) in local.iter() {
        let position = machine.nodes().iter().position(|n| n.os_id == node);
        if machine.nodes()[position.unwrap()].has_memory {
            assert_eq!(node_of_page(&value[0]), node);
            assert_eq!(node_of_page(&value[2999]), node);
        }
    }
    let n_nodes = local.len();
    whole_machine().run(|| {
        let seen = Mutex::new(BTreeSet::new());
        while seen.lock().unwrap().len() < n_nodes {
            scope(|s| {
                for _ in 0..32 {
                    s.spawn(|| {
                        (0..1_000).for_each(|_| std::hint::spin_loop());
                        let (nearest, (_, node)) = (local.get()[0], here());
                        assert_eq!(nearest, node);
                        seen.lock().unwrap().insert(node);
                    });
                }
            });
        }
    });
    // And on plain threads.
    for pu in machine.pus() {
        let value = &local;
        let nodes = machine.nodes();
        std::thread::scope(|s| {
            s.spawn(move || {
                pin(&[pu.cpu]);
                assert_eq!(value.get()[0], nodes[pu.node].os_id);
            });
        });
    }
}

/// The node of a CPU, by the machine.
fn node_of(machine: &Topology, cpu: usize) -> u32 {
    machine.nodes()[machine.pu(cpu).unwrap().node].os_id
}

#[test]
fn a_connection_comes_to_the_node_whose_cpu_handles_it() {
    let Some(machine) = machine() else { return };
    let _guard = hang_guard();
    let rt = whole_machine();
    rt.run(|| {
        let listeners = TcpOptions::new()
            .listen_on_each_node("127.0.0.1:0")
            .unwrap();
        assert_eq!(listeners.len(), rt.plan().nodes.len());
        assert!(listeners.is_steered(), "this kernel has the filter");
        let addr = listeners.local_addr().unwrap();
        let connect_from = move |cpu| {
            let connect = move || {
                pin(&[cpu]);
                std::net::TcpStream::connect(addr).unwrap()
            };
            let stream = task::offload(|| std::thread::spawn(connect).join()).unwrap();
            let here = stream.local_addr().unwrap();
            (stream, here)
        };
        for pu in machine.pus() {
            for _ in 0..5 {
                let (_client, from) = connect_from(pu.cpu);
                // It is in the queue of its listener, and nobody else has it.
                let listener = listeners.on(node_of(&machine, pu.cpu)).unwrap();
                let (_, peer) = listener.accept().unwrap();
                assert_eq!(peer, from, "of CPU {}", pu.cpu);
            }
        }
        // And who serves it is there.
        let seen = Arc::new(Mutex::new(Vec::new()));
        let listeners = Arc::new(listeners);
        let (served, notes) = (Arc::clone(&listeners), Arc::clone(&seen));
        let server = spawn(move || {
            served.serve(move |mut stream, peer| {
                notes.lock().unwrap().push((peer, task::current_node()));
                let _ = stream.write_all(&[1]);
            })
        });
        let mut nodes = BTreeMap::new();
        for pu in machine.pus() {
            let (mut client, from) = connect_from(pu.cpu);
            task::offload(|| client.read_exact(&mut [0])).unwrap();
            nodes.insert(from, node_of(&machine, pu.cpu));
        }
        listeners.shutdown().unwrap();
        server.join().unwrap().unwrap();
        // Nobody has so much to do that another node would help.
        let at_home = |(peer, node): &&(_, _)| *node == nodes.get(peer).copied();
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), machine.pus().len());
        let n_home = seen.iter().filter(at_home).count();
        assert!(2 * n_home > seen.len(), "{n_home} of {seen:?} of {nodes:?}");
    });
}

/// A runtime on these CPUs only: Ps on each, threads nowhere else, memory at home.
fn keeps_to(cpus: &[usize]) {
    let rt = whole_machine();
    let mut of_ps: Vec<usize> = rt.plan().ps.iter().map(|p| p.cpu).collect();
    of_ps.sort_unstable();
    assert_eq!(of_ps, cpus);
    rt.run(|| {
        scope(|s| {
            for _ in 0..100 {
                s.spawn(|| {
                    assert!(cpus.contains(&here().0));
                    yield_now();
                });
            }
        });
        load(5);
        assert_all_at_home(&rt);
    });
}

/// All CPUs but one, the last of the first node.
fn all_but_one(machine: &Topology) -> Vec<usize> {
    let cut = *machine.nodes()[0].cpus.last().unwrap();
    let cpus = machine.pus().iter().map(|pu| pu.cpu);
    cpus.filter(|&cpu| cpu != cut).collect()
}

#[test]
fn an_affinity_mask_may_cut_a_node() {
    let Some(machine) = machine() else { return };
    let _guard = hang_guard();
    let cpus = all_but_one(&machine);
    std::thread::scope(|s| {
        s.spawn(|| {
            pin(&cpus);
            keeps_to(&cpus);
        });
    });
    // And leave one node alone.
    let last = machine.nodes().iter().rfind(|node| !node.cpus.is_empty());
    let cpus = &last.unwrap().cpus;
    std::thread::scope(|s| {
        s.spawn(|| {
            pin(cpus);
            keeps_to(cpus);
        });
    });
}

#[test]
fn a_cpuset_may_cut_a_node() {
    let Some(machine) = machine() else { return };
    if child_case().is_none() {
        child_passes("a_cpuset_may_cut_a_node", "cgroup");
        return;
    }
    let cpus = all_but_one(&machine);
    let list: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    let group = Path::new("/sys/fs/cgroup/windlass-cut");
    if let Err(e) = move_into(group, "cpuset", &[("cpuset.cpus", &list.join(","))]) {
        eprintln!("no cpuset can be made here ({e}): not tested");
        return;
    }
    keeps_to(&cpus);
}

/// Moves this process into a control group, which is made with these settings.
fn move_into(group: &Path, controller: &str, settings: &[(&str, &str)]) -> std::io::Result<()> {
    let above = group.parent().unwrap().join("cgroup.subtree_control");
    std::fs::write(above, format!("+{controller}"))?;
    std::fs::create_dir_all(group)?;
    for (file, value) in settings {
        std::fs::write(group.join(file), value)?;
    }
    std::fs::write(group.join("cgroup.procs"), std::process::id().to_string())
}

/// Here, because fewer than three CPUs leave a quota nothing to decide.
#[test]
fn the_cpu_quota_is_followed() {
    if machine().is_none() {
        return;
    }
    if child_case().is_none() {
        child_passes("the_cpu_quota_is_followed", "cgroup");
        return;
    }
    let group = Path::new("/sys/fs/cgroup/windlass-quota");
    if let Err(e) = move_into(group, "cpu", &[("cpu.max", "250000 100000")]) {
        eprintln!("no quota can be set here ({e}): not tested");
        return;
    }
    let _guard = hang_guard();
    let rt = build(Builder::new()).unwrap();
    // Rounded up.
    assert_eq!(rt.processors(), 3);
    rt.run(|| {
        for (quota, n) in [
            ("500000 100000", 5),
            ("100000 100000", 2),
            ("max", usize::MAX),
        ] {
            std::fs::write(group.join("cpu.max"), quota).unwrap();
            let n = n.min(rt.topology().pus().len());
            while rt.processors() != n {
                sleep(Duration::from_millis(50));
            }
            let all: Vec<_> = (0..100).map(|i| spawn(move || i)).collect();
            let sum: u32 = all.into_iter().map(|g| g.join().unwrap()).sum();
            assert_eq!(sum, 4950);
        }
    });
}

/// Goroutines that start on one node and end on another leave nothing behind.
#[test]
fn slots_and_stacks_go_home() {
    if machine().is_none() {
        return;
    }
    let _guard = hang_guard();
    let rt = whole_machine();
    rt.run(|| {
        let mut ended_on = BTreeSet::new();
        while ended_on.len() < rt.metrics().nodes.len() {
            // All from one P: others steal.
            let work = || {
                (0..200).for_each(|_| std::hint::spin_loop());
                here().1
            };
            let all: Vec<_> = (0..5_000).map(|_| spawn(work)).collect();
            ended_on.extend(all.into_iter().map(|g| g.join().unwrap()));
        }
        assert_all_but_buffers_at_home(&rt);
        let parked: Vec<_> = (0..2_000).map(|_| spawn(task::park)).collect();
        parked.iter().for_each(|g| g.task().unpark());
        parked.into_iter().for_each(|g| g.join().unwrap());
        assert_all_but_buffers_at_home(&rt);
    });
    let metrics = rt.metrics();
    assert_eq!(metrics.live_goroutines, 0);
    for node in &metrics.nodes {
        assert_eq!(node.stacks_live(), 0, "node {}", node.os_id);
    }
}

#[track_caller]
fn assert_all_but_buffers_at_home(rt: &Runtime) {
    let pages = rt.memory_placement().total();
    assert_at_home("processors", pages.processors);
    assert_at_home("goroutines", pages.goroutines);
    assert_at_home("stacks", pages.stacks);
}

/// The steals during a part of a run.
#[derive(Clone, Copy, Debug)]
struct Stolen {
    all: u64,
    remote: u64,
}

impl Stolen {
    fn share(self) -> f64 {
        self.remote as f64 / self.all.max(1) as f64
    }
}

/// On each node as many bound goroutines spawn others, which any P may run, `n_children` at a
/// time: what is stolen once `n_first` have run, until as many more have run as `enough` asks for.
fn stolen_under(
    policy: NumaPolicy,
    n_feeders: impl Fn(usize) -> usize + Sync,
    n_children: impl Fn(u32) -> usize + Sync,
    enough: impl Fn(u64, Stolen) -> bool + Sync,
) -> Stolen {
    let rt = build(Builder::new().numa(policy)).unwrap();
    let stop = AtomicBool::new(false);
    rt.run(|| {
        let counts = || {
            let total = rt.metrics().total();
            let stolen = Stolen {
                all: total.stolen.total(),
                remote: total.stolen.remote,
            };
            (total.finished, stolen)
        };
        scope(|s| {
            for node in rt.plan().nodes {
                for _ in 0..n_feeders(node.ps.len()) {
                    let (n, stop) = (n_children(node.os_id), &stop);
                    let feed = move || {
                        while !stop.load(Ordering::Relaxed) {
                            let work = || (0..2_000).for_each(|_| std::hint::spin_loop());
                            let children: Vec<_> = (0..n).map(|_| spawn(work)).collect();
                            children.into_iter().for_each(|c| c.join().unwrap());
                        }
                    };
                    let bound = task::Builder::new().node(node.os_id).bound(true);
                    bound.spawn_scoped(s, feed).unwrap();
                }
            }
            while counts().0 < 1_000 {
                sleep(Duration::from_millis(1));
            }
            let (n_before, before) = counts();
            loop {
                sleep(Duration::from_millis(5));
                let (n, now) = counts();
                let stolen = Stolen {
                    all: now.all - before.all,
                    remote: now.remote - before.remote,
                };
                if enough(n - n_before, stolen) {
                    stop.store(true, Ordering::Relaxed);
                    return stolen;
                }
            }
        })
    })
}

/// As much work on each node as on the others, and on each P: next to nothing is stolen, and what
/// is, comes from near by.
#[test]
fn under_balanced_load_few_goroutines_leave_their_node() {
    if machine().is_none() {
        return;
    }
    let _guard = hang_guard();
    let enough = |n_run, _| n_run >= 8_000;
    let stolen = stolen_under(NumaPolicy::Levels, |n_ps| 4 * n_ps, |_| 8, enough);
    eprintln!("{stolen:?}: {:.1} %", stolen.share() * 100.0);
    // And where next to nothing is stolen, next to nothing is stolen from afar.
    assert!(20 * stolen.remote < stolen.all.max(20 * 20), "{stolen:?}");
}

/// Where one P of each node has all the work of its node, its neighbours must steal. Under `Flat`
/// they do so from everywhere; the default stays at home. The CPUs here are more than the host's:
/// a node whose Ps have no CPU for a while looks dry, and then a neighbour is let in, so how much
/// it is depends on the host.
#[test]
fn what_must_be_stolen_is_stolen_near_by() {
    if machine().is_none() {
        return;
    }
    let _guard = hang_guard();
    let enough = |_, stolen: Stolen| stolen.all >= 1_200;
    // By how much less than under Flat: where one node has three times another's work, it is right
    // to take some of it.
    for (load, n_children, less) in [("balanced", [64, 64], 5.0), ("skewed", [96, 32], 3.0)] {
        let n_children = |node: u32| n_children[usize::from(node != 0)];
        let of = |policy| stolen_under(policy, |_| 1, n_children, enough);
        let (flat, levels) = (of(NumaPolicy::Flat), of(NumaPolicy::Levels));
        eprintln!(
            "{load}: {:.1} % of {} from other nodes, under Flat {:.1} % of {}",
            levels.share() * 100.0,
            levels.all,
            flat.share() * 100.0,
            flat.all
        );
        assert!(flat.remote > 0, "{load}: {flat:?}");
        assert!(
            levels.share() <= f64::max(0.05, flat.share() / less),
            "{load}: {levels:?}, under Flat {flat:?}"
        );
    }
}

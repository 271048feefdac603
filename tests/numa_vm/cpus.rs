//! On a kernel with several NUMA nodes, the CPUs that the process may use change while it runs:
//! its cpuset shrinks, moves and grows, CPUs go offline and come back.
//!
//! `make test-numa` runs these in a virtual machine of several nodes, as root. Elsewhere they say
//! that they test nothing.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use crate::load::Load;
use crate::util::{affinity, build, child_case, child_passes, hang_guard};
use windlass::metrics::Poller;
use windlass::topology::{Topology, format_cpu_list};
use windlass::{Builder, Runtime, sleep, spawn, yield_now};

/// In the child: the machine, if it has several nodes with CPUs. In its parent: runs the child.
fn machine(name: &str) -> Option<Topology> {
    let machine = Topology::detect().unwrap();
    let with_cpus = machine.nodes().iter().filter(|node| !node.cpus.is_empty());
    if with_cpus.count() < 2 {
        eprintln!("one NUMA node here: not tested (make test-numa makes a machine of several)");
        return None;
    }
    if child_case().is_none() {
        child_passes(name, "cpus");
        return None;
    }
    Some(machine)
}

fn all_cpus(machine: &Topology) -> Vec<usize> {
    machine.pus().iter().map(|pu| pu.cpu).collect()
}

/// A control group with this process in it.
struct Group(PathBuf);

impl Group {
    /// `None` where none can be made, which it says.
    fn new(name: &str, cpus: &[usize]) -> Option<Group> {
        let root = PathBuf::from("/sys/fs/cgroup");
        let group = Group(root.join(name));
        let make = || {
            std::fs::write(root.join("cgroup.subtree_control"), "+cpuset")?;
            std::fs::create_dir_all(&group.0)?;
            std::fs::write(group.0.join("cpuset.cpus"), format_cpu_list(cpus))?;
            std::fs::write(group.0.join("cgroup.procs"), std::process::id().to_string())
        };
        if let Err(e) = make() {
            eprintln!("no cpuset can be made here ({e}): not tested");
            return None;
        }
        Some(group)
    }

    fn set(&self, cpus: &[usize]) {
        let list = format_cpu_list(cpus);
        eprintln!("cpuset {list}");
        std::fs::write(self.0.join("cpuset.cpus"), list).unwrap();
    }
}

/// Returns when there are `n` Ps on these CPUs, and goroutines run there, pinned, and nowhere
/// else.
fn follows(rt: &Runtime, cpus: &[usize], n: usize) {
    let planned = || rt.plan().ps.iter().map(|p| p.cpu).collect::<BTreeSet<_>>();
    let wanted: BTreeSet<usize> = cpus.iter().copied().collect();
    while rt.processors() != n || planned() != wanted {
        sleep(Duration::from_millis(20));
    }
    let mut n_good = 0;
    while n_good < 8 * n {
        let look = || {
            // Whoever computes without a P may be on a thread that was not pinned again.
            yield_now();
            affinity()
        };
        let all: Vec<_> = (0..2 * n).map(|_| spawn(look)).collect();
        for goroutine in all {
            match goroutine.join().unwrap()[..] {
                [cpu] if wanted.contains(&cpu) => n_good += 1,
                // Pinned again in a moment.
                _ => n_good = 0,
            }
        }
        sleep(Duration::from_millis(5));
    }
    assert_eq!((rt.processors(), planned()), (n, wanted));
}

/// Almost every page of what the Ps have lies on the node that it is for.
fn assert_at_home(rt: &Runtime) {
    let pages = rt.memory_placement().total();
    let mut kinds = vec![("processors", pages.processors)];
    if rt.metrics().poller == Poller::IoUring {
        kinds.push(("rings", pages.rings));
    }
    for (kind, pages) in kinds {
        let share = pages.share_at_home();
        assert!(share.is_some_and(|s| s >= 0.99), "{kind}: {pages:?}");
    }
}

#[test]
fn a_cpuset_that_changes_is_followed() {
    let Some(machine) = machine("a_cpuset_that_changes_is_followed") else {
        return;
    };
    let all = all_cpus(&machine);
    let Some(group) = Group::new("windlass-follow", &all) else {
        return;
    };
    let _guard = hang_guard();
    let rt = build(Builder::new()).unwrap();
    assert_eq!(rt.processors(), all.len());
    rt.run(|| {
        let load = Load::begin(3, None);
        follows(&rt, &all, all.len());
        let (low, high) = all.split_at(all.len() / 2);
        let first_and_high = [&all[..1], high].concat();
        let sets: [&[usize]; 8] = [
            high,
            &high[..1],
            // A P comes back on the other node.
            &first_and_high,
            low,
            // Nothing of what was.
            high,
            &all,
            &all[1..2],
            &all,
        ];
        for (i, cpus) in sets.into_iter().enumerate() {
            group.set(cpus);
            follows(&rt, cpus, cpus.len());
            load.keeps_all_busy(&rt);
            let metrics = rt.metrics();
            assert_eq!((metrics.replans, metrics.ps_away), (i as u64 + 1, 0));
        }
        assert_at_home(&rt);
        load.end();
    });
}

/// A CPU that was not allowed when the runtime was built has its place, too.
#[test]
fn a_cpuset_may_grow_beyond_what_it_was() {
    let Some(machine) = machine("a_cpuset_may_grow_beyond_what_it_was") else {
        return;
    };
    let all = all_cpus(&machine);
    let last = &all[all.len() - 1..];
    let Some(group) = Group::new("windlass-grow", last) else {
        return;
    };
    let _guard = hang_guard();
    let rt = build(Builder::new()).unwrap();
    assert_eq!(rt.processors(), 1);
    for _ in 0..2 {
        rt.run(|| {
            let load = Load::begin(2, None);
            for cpus in [&all[..1], &all, last, &all] {
                group.set(cpus);
                follows(&rt, cpus, cpus.len());
                load.keeps_all_busy(&rt);
                assert_eq!(rt.metrics().ps_away, 0);
            }
            assert_at_home(&rt);
            load.end();
        });
        // Between two runs.
        group.set(last);
    }
}

#[test]
fn a_number_that_was_chosen_is_kept_in_a_small_cpuset() {
    let Some(machine) = machine("a_number_that_was_chosen_is_kept_in_a_small_cpuset") else {
        return;
    };
    let all = all_cpus(&machine);
    let n = all.len();
    let Some(group) = Group::new("windlass-chosen", &all) else {
        return;
    };
    let _guard = hang_guard();
    let rt = build(Builder::new().processors(n)).unwrap();
    rt.run(|| {
        let load = Load::begin(3, None);
        let low = &machine.nodes()[0].cpus;
        for (cpus, n_away) in [(low, n - low.len()), (&all, 0)] {
            group.set(cpus);
            follows(&rt, cpus, n);
            load.keeps_all_busy(&rt);
            assert_eq!(rt.metrics().ps_away, n_away);
        }
        load.end();
    });
}

/// Whether a CPU is online; `false` if the machine cannot change that, which it says.
fn set_online(cpu: usize, yes: bool) -> bool {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    eprintln!("CPU {cpu} online: {yes}");
    match std::fs::write(path, if yes { "1" } else { "0" }) {
        Ok(()) => true,
        Err(e) => {
            eprintln!("CPU {cpu} cannot go offline here ({e}): not tested");
            false
        }
    }
}

#[test]
fn cpus_go_offline_and_come_back() {
    let Some(machine) = machine("cpus_go_offline_and_come_back") else {
        return;
    };
    let all = all_cpus(&machine);
    let n = all.len();
    let _guard = hang_guard();
    let rt = build(Builder::new()).unwrap();
    assert_eq!(rt.processors(), n);
    rt.run(|| {
        let load = Load::begin(3, None);
        // One of a node, then all of it, the last node and not the first: CPU 0 often has to stay.
        let gone: Vec<usize> = all[n - 2..].iter().rev().copied().collect();
        for i in 0..gone.len() {
            if !set_online(gone[i], false) {
                break;
            }
            follows(&rt, &all[..n - 1 - i], n - 1 - i);
            load.keeps_all_busy(&rt);
        }
        for &cpu in &gone {
            set_online(cpu, true);
        }
        follows(&rt, &all, n);
        load.keeps_all_busy(&rt);
        assert_eq!(rt.metrics().ps_away, 0);
        load.end();
    });
}

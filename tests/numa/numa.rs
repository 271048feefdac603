//! Several NUMA nodes: who runs where, who is woken where, and that no node starves.
//!
//! The machines are made up, so this proves what the scheduler decides, on any machine; not
//! what it is worth.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::util::{build, compute, hang_guard, set_processors, wait_until};
use windlass::channel::bounded;
use windlass::metrics::PMetrics;
use windlass::task::{self, JoinHandle};
use windlass::topology::Topology;
use windlass::{Builder, NumaPolicy, Runtime, blocking, sleep, spawn, yield_now};

const POLICIES: [NumaPolicy; 2] = [NumaPolicy::Levels, NumaPolicy::Flat];

fn machine(description: &str) -> Topology {
    Topology::synthetic(description).unwrap()
}

fn two_nodes() -> Topology {
    machine("pack:2 [numa] l3:1 core:2 pu:1")
}

fn four_nodes() -> Topology {
    machine("pack:4 [numa] l3:1 core:2 pu:1")
}

fn runtime_with(policy: NumaPolicy, machine: Topology, n_ps: usize) -> Runtime {
    build(
        Builder::new()
            .topology(machine)
            .processors(n_ps)
            .numa(policy),
    )
    .unwrap()
}

fn runtime_on(machine: Topology, n_ps: usize) -> Runtime {
    runtime_with(NumaPolicy::Levels, machine, n_ps)
}

fn here() -> u32 {
    task::current_node().expect("a goroutine that is not in a blocking section is on a node")
}

fn spawn_bound<T: Send + 'static>(
    node: u32,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let builder = task::Builder::new().node(node).bound(true);
    builder.spawn(f).unwrap()
}

/// A goroutine that keeps a P of `node` busy, from when this returns until `stop`.
fn keep_busy(node: u32, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let runs = Arc::new(AtomicBool::new(false));
    let (says_so, stop) = (Arc::clone(&runs), Arc::clone(stop));
    let keeper = spawn_bound(node, move || {
        wait_until(|| {
            says_so.store(true, Ordering::Relaxed);
            stop.load(Ordering::Relaxed)
        });
    });
    wait_until(|| runs.load(Ordering::Relaxed));
    keeper
}

/// Acts that elsewhere make goroutines change places; `is_home` is asked after each.
fn everything(i: usize, woken: impl Fn(), is_home: impl Fn(&str)) {
    is_home("spawn");
    yield_now();
    is_home("yield");
    sleep(Duration::from_micros(i as u64 % 300));
    is_home("sleep");
    woken();
    is_home("a wake from the other node");
    blocking(std::thread::yield_now);
    is_home("a blocking section");
    if i.is_multiple_of(50) {
        blocking(|| compute(Duration::from_millis(1)));
        is_home("a long blocking section");
        compute(Duration::from_millis(12));
        is_home("a hog's loss of its P");
        let _locked = task::lock_thread();
        yield_now();
        is_home("a yield with the thread locked");
        sleep(Duration::from_micros(100));
        is_home("a sleep with the thread locked");
    }
    let children: Vec<_> = (0..3).map(|_| spawn(yield_now)).collect();
    children.into_iter().for_each(|c| c.join().unwrap());
    is_home("a join");
}

/// `n` bound goroutines on each node, woken from the next one.
fn bound_ones(nodes: &[u32], n: usize) {
    let pairs = nodes.iter().zip(nodes.iter().cycle().skip(1));
    let all: Vec<_> = pairs
        .flat_map(|(&node, &other)| {
            (0..n).map(move |i| {
                let (send, recv) = bounded::<()>(0);
                let waker = spawn_bound(other, move || send.send(()).unwrap());
                let bound = spawn_bound(node, move || {
                    let is_home = |after: &str| assert_eq!(here(), node, "after {after}");
                    everything(i, || recv.recv().unwrap(), is_home);
                });
                [waker, bound]
            })
        })
        .flatten()
        .collect();
    all.into_iter().for_each(|j| j.join().unwrap());
}

#[test]
fn bound_goroutines_run_only_on_their_node() {
    let _guard = hang_guard();
    for policy in POLICIES {
        // Enough for the local queues to overflow; what is not bound is stolen meanwhile.
        runtime_with(policy, two_nodes(), 4).run(|| bound_ones(&[0, 1], 400));
        let nodes: Vec<u32> = (0..8).collect();
        let one_core_each = machine("pack:8 [numa] l3:1 core:1 pu:1");
        runtime_with(policy, one_core_each, 8).run(|| bound_ones(&nodes, 20));
    }
}

#[test]
fn bound_goroutines_wait_for_their_node_while_another_is_idle() {
    let _guard = hang_guard();
    let rt = runtime_on(two_nodes(), 2);
    rt.run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let keeper = keep_busy(0, &stop);
        // Node 1 is idle and may pass the gate: it finds nothing that it may take.
        let all: Vec<_> = (0..500).map(|_| spawn_bound(0, here)).collect();
        assert!(all.into_iter().all(|j| j.join().unwrap() == 0));
        stop.store(true, Ordering::Relaxed);
        keeper.join().unwrap();
    });
}

#[test]
fn a_bound_goroutine_is_taken_in_while_its_node_has_no_p() {
    let _guard = hang_guard();
    let rt = runtime_on(two_nodes(), 4);
    assert_eq!(rt.plan().nodes.len(), 2);
    rt.run(|| {
        let node = Arc::new(AtomicU32::new(u32::MAX));
        let stop = Arc::new(AtomicBool::new(false));
        let sleeps = Arc::new(AtomicU32::new(u32::MAX));
        let all: Vec<_> = [(false, &node), (true, &sleeps)]
            .into_iter()
            .map(|(is_sleeper, node)| {
                let (node, stop) = (Arc::clone(node), Arc::clone(&stop));
                spawn_bound(1, move || {
                    while !stop.load(Ordering::Relaxed) {
                        node.store(here(), Ordering::Relaxed);
                        match is_sleeper {
                            true => sleep(Duration::from_micros(200)),
                            false => yield_now(),
                        }
                    }
                })
            })
            .collect();
        let both_on = |at| {
            wait_until(|| {
                [&node, &sleeps]
                    .iter()
                    .all(|n| n.load(Ordering::Relaxed) == at)
            });
        };
        for _ in 0..10 {
            both_on(1);
            // One P is left, on node 0.
            set_processors(&rt, 1);
            both_on(0);
            set_processors(&rt, 4);
        }
        both_on(1);
        // Back for good: it does not come from home again.
        for _ in 0..1000 {
            assert_eq!(node.load(Ordering::Relaxed), 1);
            yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        all.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn a_node_that_is_not_there_is_an_error() {
    let _guard = hang_guard();
    let machine = four_nodes();
    let rt = build(
        Builder::new()
            .topology(machine)
            .nodes(&[1, 3])
            .processors(4),
    )
    .unwrap();
    rt.run(|| {
        for node in [0, 2, 7] {
            let error = task::Builder::new().node(node).spawn(|| ()).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
            let text = error.to_string();
            assert!(text.contains(&format!("node({node})")), "{text}");
            assert!(text.contains("choose one of 1, 3"), "{text}");
        }
        for node in [1, 3] {
            assert_eq!(spawn_bound(node, here).join().unwrap(), node);
        }
    });
}

#[test]
fn bound_alone_means_the_node_of_the_caller() {
    let _guard = hang_guard();
    runtime_on(two_nodes(), 4).run(|| {
        for node in [0, 1, 1, 0] {
            let inside = spawn_bound(node, || {
                let builder = task::Builder::new().bound(true);
                builder.spawn(here).unwrap().join().unwrap()
            });
            assert_eq!(inside.join().unwrap(), node);
        }
    });
}

#[test]
fn every_node_gets_one() {
    let _guard = hang_guard();
    let rt = runtime_on(four_nodes(), 8);
    rt.run(|| {
        let all = task::spawn_on_each_node(|node| {
            yield_now();
            (node, here())
        });
        let all: Vec<_> = all.into_iter().map(|j| j.join().unwrap()).collect();
        assert_eq!(all, [(0, 0), (1, 1), (2, 2), (3, 3)]);
        // Nodes without a P in use are left out.
        set_processors(&rt, 2);
        assert_eq!(rt.plan().nodes.len(), 2);
        assert_eq!(task::spawn_on_each_node(|_| ()).len(), 2);
    });
    assert_eq!(rt.handle().topology().nodes().len(), 4);
    assert_eq!(task::current_node(), None);
}

/// A goroutine of node 0 that parks again and again, and says where it woke up.
struct Sleeper {
    task: JoinHandle<()>,
    woken_on: Arc<Mutex<Vec<u32>>>,
    is_waiting: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl Sleeper {
    /// With both nodes at work nobody steals it before it has run at home, as a rule.
    fn new() -> Sleeper {
        loop {
            let sleeper = Sleeper::spawn();
            let first_on = sleeper.woken_on.lock().unwrap()[0];
            if first_on == 0 {
                return sleeper;
            }
            sleeper.end();
        }
    }

    fn spawn() -> Sleeper {
        let woken_on = Arc::new(Mutex::new(Vec::new()));
        let is_waiting = Arc::new(AtomicUsize::new(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let (on, n, over) = (
            Arc::clone(&woken_on),
            Arc::clone(&is_waiting),
            Arc::clone(&is_over),
        );
        let f = move || {
            while !over.load(Ordering::Relaxed) {
                on.lock().unwrap().push(here());
                n.fetch_add(1, Ordering::Relaxed);
                task::park();
            }
        };
        let sleeper = Sleeper {
            task: task::Builder::new()
                .node(0)
                .name("sleeper")
                .spawn(f)
                .unwrap(),
            woken_on,
            is_waiting,
            is_over,
        };
        sleeper.wait_for(1);
        sleeper
    }

    /// Until it has come to its park so often.
    fn wait_for(&self, n: usize) {
        wait_until(|| self.is_waiting.load(Ordering::Relaxed) >= n);
        // From saying so to having parked it takes a moment.
        sleep(Duration::from_millis(1));
    }

    /// Wakes it from the caller's node and gives where it woke up.
    fn wake(&self) -> u32 {
        let n = self.is_waiting.load(Ordering::Relaxed);
        self.task.task().unpark();
        self.wait_for(n + 1);
        *self.woken_on.lock().unwrap().last().unwrap()
    }

    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.task.task().unpark();
        self.task.join().unwrap();
    }
}

/// The main goroutine of these tests begins on node 0, and would be one more to run there.
fn run_from_node_1(rt: &Runtime, f: impl FnOnce() + Send + 'static) {
    rt.run(|| spawn_bound(1, f).join().unwrap());
}

// A machine that is busy with other things may take a P from the goroutine that keeps it busy,
// and let a node starve: so what is asked of every wake is what it was counted as, and where
// the goroutine ran only of the wakes together.

#[test]
fn a_goroutine_moves_to_where_it_is_woken_from() {
    let _guard = hang_guard();
    let rt = runtime_on(two_nodes(), 2);
    let handle = rt.handle();
    run_from_node_1(&rt, move || {
        let total = || handle.metrics().total();
        let stop = Arc::new(AtomicBool::new(false));
        let keepers = [0, 1].map(|node| keep_busy(node, &stop));
        let sleeper = Sleeper::new();
        // Home is busy: it runs where it is woken, and after eight times belongs there.
        let mut woken_on = Vec::new();
        let before = total();
        while total().rehomes == before.rehomes {
            woken_on.push(sleeper.wake());
        }
        assert!(woken_on.contains(&1), "{woken_on:?}");
        // Of those in a row, as home may have fallen idle in between.
        let n_away = woken_on.iter().rev().take_while(|node| **node == 1);
        assert!(n_away.count() <= 8, "{woken_on:?}");
        let before = total();
        assert!(before.pulled + before.home_wakes > 0);
        // Now it is at home here, though its old home falls idle.
        stop.store(true, Ordering::Relaxed);
        keepers.into_iter().for_each(|k| k.join().unwrap());
        let woken_on: Vec<_> = (0..20).map(|_| sleeper.wake()).collect();
        assert!(woken_on.contains(&1), "{woken_on:?}");
        let after = total();
        assert_eq!(after.home_wakes, before.home_wakes);
        assert_eq!(after.pulled, before.pulled);
        sleeper.end();
    });
}

#[test]
fn a_goroutine_goes_home_if_a_p_is_idle_there() {
    let _guard = hang_guard();
    let rt = runtime_on(two_nodes(), 2);
    let handle = rt.handle();
    run_from_node_1(&rt, move || {
        let total = || handle.metrics().total();
        let mut has_gone_home = false;
        // Each moves at last: its friend is here.
        while !has_gone_home {
            let stop = Arc::new(AtomicBool::new(false));
            let keepers = [0, 1].map(|node| keep_busy(node, &stop));
            let sleeper = Sleeper::new();
            stop.store(true, Ordering::Relaxed);
            keepers.into_iter().for_each(|k| k.join().unwrap());
            let before = total();
            while total().rehomes == before.rehomes {
                wait_until(|| handle.metrics().nodes[0].idle_ps == 1);
                has_gone_home |= sleeper.wake() == 0;
            }
            let after = total();
            let n_home = after.home_wakes - before.home_wakes;
            let n_away = n_home + after.pulled - before.pulled + after.runs_away - before.runs_away;
            assert!(n_away >= 7, "it moved after {n_away} times away");
            has_gone_home &= n_home > 0;
            sleeper.end();
        }
    });
}

#[test]
fn goroutines_run_where_they_are_woken_if_that_is_the_policy() {
    let _guard = hang_guard();
    for policy in POLICIES.into_iter().skip(1) {
        let rt = runtime_with(policy, two_nodes(), 2);
        let handle = rt.handle();
        run_from_node_1(&rt, move || {
            let stop = Arc::new(AtomicBool::new(false));
            let keepers = [0, 1].map(|node| keep_busy(node, &stop));
            let sleeper = Sleeper::new();
            let woken_on: Vec<_> = (0..20).map(|_| sleeper.wake()).collect();
            assert!(woken_on.contains(&1), "{policy:?}: {woken_on:?}");
            let total = handle.metrics().total();
            assert_eq!((total.home_wakes, total.pulled, total.rehomes), (0, 0, 0));
            stop.store(true, Ordering::Relaxed);
            keepers.into_iter().for_each(|k| k.join().unwrap());
            sleeper.end();
        });
    }
}

/// Goroutines that compute a little and yield, all spawned on node 0; runs until `done`.
fn skewed(rt: &Runtime, n: usize, done: impl Fn(&PMetrics) -> bool + Sync) {
    rt.run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let all: Vec<_> = (0..n)
            .map(|_| {
                let stop = Arc::clone(&stop);
                let f = move || {
                    wait_until(|| {
                        compute(Duration::from_micros(20));
                        stop.load(Ordering::Relaxed)
                    });
                };
                task::Builder::new().node(0).spawn(f).unwrap()
            })
            .collect();
        wait_until(|| {
            let metrics = rt.metrics();
            metrics.ps.iter().all(|p| p.dispatches > 0) && done(&metrics.total())
        });
        stop.store(true, Ordering::Relaxed);
        all.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn skewed_load_is_shared_with_the_other_nodes() {
    let _guard = hang_guard();
    for (machine, n_ps) in [(two_nodes(), 4), (four_nodes(), 8)] {
        for policy in POLICIES {
            let rt = runtime_with(policy, machine.clone(), n_ps);
            skewed(&rt, 200, |total| total.steals.remote > 0);
            let total = rt.metrics().total();
            assert!(total.stolen.remote >= total.steals.remote);
            assert!(total.remote_share() > 0.0);
            let has_gate = policy != NumaPolicy::Flat;
            assert_eq!(total.remote_searches > 0, has_gate, "{policy:?}");
            if !has_gate {
                assert_eq!((total.gate_denials.total(), total.remote_probes), (0, 0));
            }
        }
    }
}

/// Goroutines that are spawned on one node and begin on another: on which their stacks are.
#[test]
fn a_stack_is_made_where_the_goroutine_first_runs_or_where_it_is_spawned() {
    let _guard = hang_guard();
    for policy in POLICIES {
        let rt = runtime_with(policy, two_nodes(), 4);
        let (n_there, n_stacks_there) = rt.run(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let keepers = [keep_busy(0, &stop), keep_busy(0, &stop)];
            let n_there = Arc::new(AtomicUsize::new(0));
            let spawner = {
                let n_there = Arc::clone(&n_there);
                spawn_bound(0, move || {
                    let begin = || {
                        let n_there = Arc::clone(&n_there);
                        spawn(move || {
                            if here() == 1 {
                                n_there.fetch_add(1, Ordering::Relaxed);
                            }
                            task::park();
                        })
                    };
                    let mut all = Vec::new();
                    while n_there.load(Ordering::Relaxed) < 8 {
                        // The Ps here take some of them, too.
                        all.extend((0..64).map(|_| begin()));
                        // Without a call into windlass: this P runs none of them.
                        compute(Duration::from_millis(1));
                    }
                    all
                })
            };
            let all = spawner.join().unwrap();
            let metrics = rt.metrics();
            let node = metrics.nodes.iter().find(|node| node.os_id == 1).unwrap();
            let seen = (n_there.load(Ordering::Relaxed), node.stacks_live());
            stop.store(true, Ordering::Relaxed);
            all.iter().for_each(|g| g.task().unpark());
            all.into_iter().for_each(|g| g.join().unwrap());
            keepers.into_iter().for_each(|k| k.join().unwrap());
            seen
        });
        if policy == NumaPolicy::Levels {
            assert!(n_stacks_there >= 8, "{policy:?}: {n_stacks_there} stacks");
        } else {
            // The main goroutine's, which came from outside.
            assert!(
                n_stacks_there <= 1,
                "{policy:?}: {n_stacks_there} stacks, {n_there} goroutines began there"
            );
        }
        assert_eq!(rt.metrics().live_goroutines, 0);
        let live: usize = rt.metrics().nodes.iter().map(|n| n.stacks_live()).sum();
        assert_eq!(live, 0, "{policy:?}");
    }
}

#[test]
fn one_thief_brings_work_for_its_whole_node() {
    let _guard = hang_guard();
    let rt = runtime_on(machine("pack:2 [numa] l3:1 core:4 pu:1"), 8);
    // Whether Ps still sleep when the thief comes is a matter of moments: again, until they do.
    while rt.metrics().total().surplus_pushes == 0 {
        skewed(&rt, 400, |_| true);
    }
    let total = rt.metrics().total();
    assert!(total.stolen.remote > total.steals.remote);
}

/// A goroutine that computes has spawned another, which lies in its P's runnext: nobody
/// takes that from afar, but a node that has been idle for long does.
#[test]
fn a_starved_node_takes_what_nobody_else_would() {
    let _guard = hang_guard();
    let rt = runtime_on(two_nodes(), 2);
    rt.run(|| {
        let mut has_helped = false;
        // A busy machine may be slow to find out: then the P is taken from the hog first.
        while !has_helped {
            let ran_on = Arc::new(AtomicU32::new(u32::MAX));
            let says = Arc::clone(&ran_on);
            let helper = spawn(move || says.store(here(), Ordering::Release));
            let mine = here();
            while ran_on.load(Ordering::Acquire) == u32::MAX {
                std::hint::spin_loop();
            }
            helper.join().unwrap();
            has_helped = ran_on.load(Ordering::Relaxed) != mine;
        }
        let metrics = rt.metrics();
        assert!(metrics.nodes.iter().any(|n| n.starvations > 0));
        assert!(metrics.total().steals.remote > 0);
    });
}

#[test]
fn a_machine_with_one_node_counts_nothing_of_this() {
    let _guard = hang_guard();
    let rt = runtime_on(machine("pack:1 [numa] l3:2 core:2 pu:1"), 4);
    skewed(&rt, 100, |total| total.steals.total() > 0);
    let total = rt.metrics().total();
    assert_eq!((total.remote_searches, total.gate_denials.total()), (0, 0));
    assert_eq!((total.runs_home, total.runs_away, total.pulled), (0, 0, 0));
    assert_eq!(total.remote_share(), 0.0);
}

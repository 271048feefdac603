//! Runtimes planned for machines that are not this one: one, two, four and eight
//! NUMA nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::util;
use crate::util::{build, hang_guard, wait_until};
use windlass::topology::{LevelKind, Plan, Topology};
use windlass::{Builder, Runtime, blocking, sleep, spawn, task, yield_now};

fn machine(description: &str, distances: &[&[u32]]) -> Topology {
    let machine = Topology::synthetic(description).unwrap();
    if distances.is_empty() {
        return machine;
    }
    let rows: Vec<_> = distances.iter().map(|row| row.to_vec()).collect();
    machine.with_distances(&rows).unwrap()
}

fn one_node() -> Topology {
    machine("pack:1 [numa] l3:1 core:2 pu:2", &[])
}

fn two_nodes() -> Topology {
    machine("pack:2 [numa] l3:1 core:2 pu:1", &[&[10, 21], &[21, 10]])
}

fn four_nodes() -> Topology {
    // A ring: the neighbours are nearer than the one opposite.
    machine(
        "pack:4 [numa] l3:1 core:2 pu:1",
        &[
            &[10, 16, 32, 16],
            &[16, 10, 16, 32],
            &[32, 16, 10, 16],
            &[16, 32, 16, 10],
        ],
    )
}

fn eight_nodes() -> Topology {
    machine("pack:8 [numa] l3:1 core:1 pu:1", &[])
}

fn runtime_on(machine: Topology, n_ps: usize) -> Runtime {
    build(Builder::new().topology(machine).processors(n_ps)).unwrap()
}

/// The nodes of the Ps, and of one P the levels: kind, distance, victims.
fn levels(plan: &Plan, p: usize) -> Vec<(LevelKind, u32, Vec<usize>)> {
    plan.ps[p]
        .levels
        .iter()
        .map(|l| (l.kind, l.distance, l.victims.clone()))
        .collect()
}

fn ps_of_nodes(plan: &Plan) -> Vec<(u32, Vec<usize>)> {
    plan.nodes
        .iter()
        .map(|node| (node.os_id, node.ps.clone()))
        .collect()
}

#[test]
fn one_node_with_hyperthreads() {
    let rt = runtime_on(one_node(), 4);
    let plan = &rt.plan();
    assert_eq!(ps_of_nodes(plan), [(0, vec![0, 1, 2, 3])]);
    assert_eq!(
        levels(plan, 0),
        [
            (LevelKind::Smt, 10, vec![1]),
            (LevelKind::L3, 10, vec![2, 3])
        ]
    );
    assert_eq!(
        levels(plan, 2),
        [
            (LevelKind::Smt, 10, vec![3]),
            (LevelKind::L3, 10, vec![0, 1])
        ]
    );
    assert_eq!(
        levels(plan, 3),
        [
            (LevelKind::Smt, 10, vec![2]),
            (LevelKind::L3, 10, vec![0, 1])
        ]
    );
}

#[test]
fn two_nodes_steal_at_home_first() {
    let rt = runtime_on(two_nodes(), 4);
    let plan = &rt.plan();
    assert_eq!(ps_of_nodes(plan), [(0, vec![0, 1]), (1, vec![2, 3])]);
    assert_eq!(
        levels(plan, 0),
        [
            (LevelKind::L3, 10, vec![1]),
            (LevelKind::Remote, 21, vec![2, 3])
        ]
    );
    assert_eq!(
        levels(plan, 3),
        [
            (LevelKind::L3, 10, vec![2]),
            (LevelKind::Remote, 21, vec![0, 1])
        ]
    );
    assert_eq!(rt.topology().nodes().len(), 2);
}

#[test]
fn four_nodes_steal_by_distance() {
    let rt = runtime_on(four_nodes(), 8);
    let plan = &rt.plan();
    let nodes = [
        (0, vec![0, 1]),
        (1, vec![2, 3]),
        (2, vec![4, 5]),
        (3, vec![6, 7]),
    ];
    assert_eq!(ps_of_nodes(plan), nodes);
    assert_eq!(
        levels(plan, 0),
        [
            (LevelKind::L3, 10, vec![1]),
            (LevelKind::Remote, 16, vec![2, 3, 6, 7]),
            (LevelKind::Remote, 32, vec![4, 5]),
        ]
    );
    assert_eq!(
        levels(plan, 5),
        [
            (LevelKind::L3, 10, vec![4]),
            (LevelKind::Remote, 16, vec![6, 7, 2, 3]),
            (LevelKind::Remote, 32, vec![0, 1]),
        ]
    );
}

#[test]
fn eight_nodes_of_one_p() {
    let rt = runtime_on(eight_nodes(), 8);
    let plan = &rt.plan();
    assert_eq!(plan.nodes.len(), 8);
    assert!(
        plan.nodes
            .iter()
            .enumerate()
            .all(|(i, node)| node.ps == [i])
    );
    for p in 0..8 {
        let levels = levels(plan, p);
        assert_eq!(levels.len(), 1);
        let (kind, _, victims) = &levels[0];
        assert_eq!(*kind, LevelKind::Remote);
        let all_others: Vec<_> = (p + 1..8).chain(0..p).collect();
        assert_eq!(*victims, all_others);
    }
}

#[test]
fn fewer_ps_than_nodes_and_more_than_cpus() {
    let rt = runtime_on(four_nodes(), 3);
    assert_eq!(
        ps_of_nodes(&rt.plan()),
        [(0, vec![0]), (1, vec![1]), (2, vec![2])]
    );
    works(&rt);
    let rt = runtime_on(two_nodes(), 9);
    let plan = &rt.plan();
    assert_eq!(plan.nodes[0].ps.len() + plan.nodes[1].ps.len(), 9);
    works(&rt);
}

#[test]
fn some_nodes_only() {
    let rt = build(
        Builder::new()
            .topology(four_nodes())
            .nodes(&[1, 3])
            .processors(4),
    )
    .unwrap();
    assert_eq!(ps_of_nodes(&rt.plan()), [(1, vec![0, 1]), (3, vec![2, 3])]);
    works(&rt);
    let e = build(Builder::new().topology(two_nodes()).nodes(&[2])).unwrap_err();
    assert_eq!(e.kind(), std::io::ErrorKind::InvalidInput);
    assert!(e.to_string().contains("no node 2"), "{e}");
}

#[test]
fn threads_are_not_pinned_to_a_machine_that_is_not_there() {
    let _guard = hang_guard();
    let before = util::affinity();
    let rt = runtime_on(eight_nodes(), 8);
    let inside = rt.run(|| {
        let all: Vec<_> = (0..20).map(|_| spawn(util::affinity)).collect();
        all.into_iter()
            .map(|j| j.join().unwrap())
            .chain([util::affinity()])
            .collect::<Vec<_>>()
    });
    assert!(inside.iter().all(|set| *set == before));
}

/// Work of goroutines, on all Ps and over all nodes.
fn works(rt: &Runtime) {
    let _guard = hang_guard();
    let handle = rt.handle();
    let early: Vec<_> = (0..50).map(|i| handle.spawn(move || i)).collect();
    rt.run(|| {
        assert_eq!(
            early.into_iter().map(|j| j.join().unwrap()).sum::<i32>(),
            1225
        );
        // Yields, sleeps, parks and wakes from elsewhere.
        let parked: Vec<_> = (0..100).map(|_| spawn(task::park)).collect();
        let all: Vec<_> = parked
            .iter()
            .map(|parked| parked.task())
            .enumerate()
            .map(|(i, task)| {
                spawn(move || {
                    yield_now();
                    sleep(Duration::from_micros(i as u64));
                    task.unpark();
                    if i % 10 == 0 {
                        blocking(|| sleep(Duration::from_micros(200)));
                    }
                    i
                })
            })
            .collect();
        assert_eq!(
            all.into_iter().map(|j| j.join().unwrap()).sum::<usize>(),
            4950
        );
        parked.into_iter().for_each(|j| j.join().unwrap());
        // An overflow of the local queue, and a tree of joins.
        let many: Vec<_> = (0..2000).map(|_| spawn(yield_now)).collect();
        many.into_iter().for_each(|j| j.join().unwrap());
        fn tree(depth: u32) -> u32 {
            if depth == 0 {
                return 1;
            }
            let left = spawn(move || tree(depth - 1));
            tree(depth - 1) + left.join().unwrap()
        }
        assert_eq!(tree(9), 512);
        handle.spawn(|| ()).join().unwrap();
        // Something is left to cancel on every node.
        (0..50).for_each(|_| drop(spawn(task::park)));
    });
    assert_eq!(rt.metrics().live_goroutines, 0);
}

#[test]
fn runtimes_work_on_every_machine() {
    works(&runtime_on(one_node(), 4));
    works(&runtime_on(two_nodes(), 4));
    works(&runtime_on(four_nodes(), 8));
    works(&runtime_on(eight_nodes(), 8));
    works(&runtime_on(eight_nodes(), 16));
}

/// Work that begins on one P spreads over the nodes: no P stays without.
#[test]
fn work_reaches_every_node() {
    let _guard = hang_guard();
    for (machine, n_ps) in [(two_nodes(), 4), (four_nodes(), 4), (eight_nodes(), 8)] {
        let rt = runtime_on(machine, n_ps);
        rt.run(|| {
            // All others sleep before there is something to do.
            while rt.metrics().ps[1..].iter().any(|p| p.idles == 0) {
                sleep(Duration::from_millis(1));
            }
            let stop = Arc::new(AtomicBool::new(false));
            let n = Arc::new(AtomicUsize::new(0));
            let all: Vec<_> = (0..200)
                .map(|_| {
                    let (stop, n) = (Arc::clone(&stop), Arc::clone(&n));
                    spawn(move || {
                        wait_until(|| {
                            (0..1000).for_each(|_| std::hint::spin_loop());
                            n.fetch_add(1, Ordering::Relaxed);
                            stop.load(Ordering::Relaxed)
                        });
                    })
                })
                .collect();
            wait_until(|| {
                let metrics = rt.metrics();
                metrics.ps.iter().all(|p| p.dispatches > 0) && metrics.total().steals.remote > 0
            });
            stop.store(true, Ordering::Relaxed);
            all.into_iter().for_each(|j| j.join().unwrap());
        });
        let steals = rt.metrics().total().steals;
        assert_eq!(steals.smt, 0, "these machines have no hyperthreads");
    }
}

#[test]
fn outsiders_spawn_and_wake_on_every_machine() {
    let _guard = hang_guard();
    for (machine, n_ps) in [(two_nodes(), 4), (eight_nodes(), 8)] {
        let rt = runtime_on(machine, n_ps);
        let handle = rt.handle();
        rt.run(|| {
            let thread = std::thread::spawn(move || {
                for _ in 0..500 {
                    let parked = handle.spawn(|| {
                        task::park();
                        5
                    });
                    parked.task().unpark();
                    assert_eq!(parked.join().unwrap(), 5);
                }
            });
            blocking(|| thread.join()).unwrap();
        });
    }
}

//! `NodeLocal`: a value for each node, the nearest at hand. On machines that are not this one;
//! tests/numa_vm/nodes.rs asks a kernel with several nodes where the values lie.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::util::{Census, build, hang_guard, runtime};
use windlass::numa::NodeLocal;
use windlass::topology::Topology;
use windlass::{Builder, Runtime, spawn, yield_now};

fn four_nodes() -> Runtime {
    let machine = Topology::synthetic("pack:4 [numa] l3:1 core:2 pu:1").unwrap();
    build(Builder::new().topology(machine).processors(8)).unwrap()
}

fn nodes_of<T>(local: &NodeLocal<T>) -> Vec<u32> {
    local.iter().map(|(node, _)| node).collect()
}

#[test]
fn a_goroutine_makes_one_for_each_node_of_its_runtime() {
    let _guard = hang_guard();
    let made = four_nodes().run(|| NodeLocal::new(|node| 10 * node));
    assert_eq!(nodes_of(&made), [0, 1, 2, 3]);
    assert!(made.iter().all(|(node, value)| *value == 10 * node));
    assert_eq!(made.on(2), Some(&20));
    assert_eq!(made.on(4), None);
    assert_eq!(made.len(), 4);
    assert_eq!(format!("{made:?}"), "{0: 0, 1: 10, 2: 20, 3: 30}");
}

#[test]
fn goroutines_borrow_from_the_node_that_they_run_on() {
    let _guard = hang_guard();
    let rt = four_nodes();
    let seen: BTreeSet<u32> = rt.run(|| {
        let local = NodeLocal::new(|node| node);
        let seen = std::sync::Mutex::new(BTreeSet::new());
        // Until work has come to every node.
        while seen.lock().unwrap().len() < 4 {
            windlass::scope(|s| {
                for _ in 0..64 {
                    s.spawn(|| {
                        (0..2_000).for_each(|_| std::hint::spin_loop());
                        seen.lock().unwrap().insert(*local.get());
                        yield_now();
                    });
                }
            });
        }
        seen.into_inner().unwrap()
    });
    assert_eq!(seen, BTreeSet::from([0, 1, 2, 3]));
}

#[test]
fn a_plain_thread_makes_one_for_each_node_of_the_machine() {
    let machine = Topology::detect().unwrap();
    let with_cpus = machine.nodes().iter().filter(|node| !node.cpus.is_empty());
    let os_ids: Vec<u32> = with_cpus.map(|node| node.os_id).collect();
    let local = NodeLocal::new(|node| node);
    assert_eq!(nodes_of(&local), os_ids);
    assert!(os_ids.contains(local.get()));
    // And goroutines of other machines share what there is.
    four_nodes().run(|| assert!(os_ids.contains(local.get())));
}

#[test]
fn values_may_be_changed_and_are_all_dropped() {
    let _guard = hang_guard();
    let census = Census::default();
    four_nodes().run(|| {
        let mut local = NodeLocal::new(|_| (census.member(), 0));
        local.iter_mut().for_each(|(node, (_, n))| *n = node + 1);
        assert_eq!(local.iter().map(|(_, (_, n))| n).sum::<u32>(), 10);
        assert_eq!(census.dropped(), 0);
    });
    census.assert_all_dropped(4);
}

#[test]
fn a_maker_that_panics_leaves_nothing() {
    let _guard = hang_guard();
    let census = Census::default();
    four_nodes().run(|| {
        let made = catch_unwind(AssertUnwindSafe(|| {
            NodeLocal::new(|node| {
                assert!(node < 2, "no third");
                census.member()
            })
        }));
        assert!(made.is_err());
    });
    census.assert_all_dropped(2);
}

#[test]
fn it_is_shared_by_goroutines_and_threads() {
    let _guard = hang_guard();
    let hits = std::sync::Arc::new(NodeLocal::<AtomicUsize>::default());
    runtime(2).run(|| {
        let thread = {
            let hits = std::sync::Arc::clone(&hits);
            std::thread::spawn(move || hits.get().fetch_add(1, Ordering::Relaxed))
        };
        let all: Vec<_> = (0..100)
            .map(|_| {
                let hits = std::sync::Arc::clone(&hits);
                spawn(move || hits.get().fetch_add(1, Ordering::Relaxed))
            })
            .collect();
        all.into_iter().for_each(|g| _ = g.join().unwrap());
        windlass::blocking(|| thread.join()).unwrap();
    });
    let total: usize = hits.iter().map(|(_, n)| n.load(Ordering::Relaxed)).sum();
    assert_eq!(total, 101);
}

//! Ranks and wake lists, which turn the steal order over.

use windlass_topology::{LevelKind, Plan, Request, Topology, plan, steal};

use crate::util::{recorded, synthetic};

mod util;

fn planned(machine: &Topology) -> Plan {
    plan(machine, &Request::default()).unwrap()
}

fn machines() -> Vec<Topology> {
    let mut machines: Vec<Topology> = [
        "pu:1",
        "core:2 pu:4",
        "pack:2 [numa] l3:2 core:2 pu:2",
        "pack:1 [numa] l3:16 core:2 pu:1",
        "numa:8 core:4 pu:2",
    ]
    .map(synthetic)
    .into();
    machines.extend(["odd.json", "hybrid.json", "qemu-4-nodes.json"].map(recorded));
    machines
}

#[test]
fn wake_lists_have_every_other_p_once() {
    for machine in machines() {
        let plan = planned(&machine);
        for waker in 0..plan.ps.len() {
            let groups = steal::wake_order(&plan, waker);
            let mut all: Vec<usize> = groups.iter().flat_map(|group| group.ps.clone()).collect();
            all.push(waker);
            all.sort_unstable();
            assert_eq!(all, (0..plan.ps.len()).collect::<Vec<_>>());
            assert!(groups.is_sorted_by_key(|group| (group.kind, group.distance)));
        }
    }
}

#[test]
fn whoever_is_woken_earlier_looks_here_earlier() {
    for machine in machines() {
        let plan = planned(&machine);
        for waker in 0..plan.ps.len() {
            for group in steal::wake_order(&plan, waker) {
                for p in group.ps {
                    let rank = steal::ranks(&plan, p)[waker];
                    let level = &plan.ps[p].levels[rank - 1];
                    assert_eq!((level.kind, level.distance), (group.kind, group.distance));
                }
            }
        }
    }
}

#[test]
fn distances_are_those_of_the_one_who_is_woken() {
    // From 1 to 0 it is far, from 0 to 1 near.
    let rows = [vec![10, 12, 30], vec![40, 10, 20], vec![20, 20, 10]];
    let machine = synthetic("numa:3 core:1 pu:1")
        .with_distances(&rows)
        .unwrap();
    let groups = steal::wake_order(&planned(&machine), 0);
    let groups: Vec<_> = groups
        .into_iter()
        .map(|group| (group.distance, group.ps))
        .collect();
    assert_eq!(groups, [(20, vec![2]), (40, vec![1])]);
}

#[test]
fn halved_levels_keep_their_order_in_wake_lists() {
    let plan = planned(&synthetic("pack:1 [numa] l3:16 core:1 pu:1"));
    let groups = steal::wake_order(&plan, 6);
    assert!(groups.iter().all(|group| group.kind == LevelKind::Node));
    let groups: Vec<_> = groups.into_iter().map(|group| group.ps).collect();
    assert_eq!(
        groups,
        [
            vec![7],
            vec![4, 5],
            vec![0, 1, 2, 3],
            vec![8, 9, 10, 11, 12, 13, 14, 15]
        ]
    );
}

#[test]
fn the_farther_the_more_patience() {
    let waits: Vec<u128> = [10, 20, 21, 30, 31, 254]
        .map(|distance| steal::patience(distance).as_micros())
        .into();
    assert_eq!(waits, [20, 20, 50, 50, 200, 200]);
}

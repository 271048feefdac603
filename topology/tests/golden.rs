//! Recorded machines in, dumps out: the tree, the distances, the plan and the steal order of each
//! file in tests/machines are those in tests/expected.
//!
//! `qemu-*` were recorded in the project's NUMA virtual machine. `odd` is made up: sparse ids, an
//! offline CPU, CPUs that are not allowed, a node of one CPU without L3, a node without memory, one
//! without CPUs, level 2 caches shared by cores, asymmetric distances.

use windlass_topology::{Request, Topology, plan, render};

use crate::util::{check_plan, expect, recorded, synthetic};

mod util;

fn check(name: &str, machine: &Topology, request: &Request) {
    let plan = plan(machine, request).unwrap();
    check_plan(machine, &plan);
    let parts = [
        render::tree(machine),
        render::distances(machine),
        render::placement(machine, &plan),
        render::steal_order(&plan),
    ];
    expect(&format!("{name}.txt"), &parts.join("\n"));
}

#[test]
fn recorded_machines() {
    for name in [
        "qemu-2-nodes-smt",
        "qemu-4-nodes",
        "qemu-4-nodes-last-without-memory",
        "odd",
    ] {
        check(
            name,
            &recorded(&format!("{name}.json")),
            &Request::default(),
        );
    }
}

#[test]
fn recorded_machines_are_written_as_they_were_read() {
    for name in ["qemu-4-nodes", "odd"] {
        let file = format!("{}/tests/machines/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(file).unwrap();
        assert_eq!(Topology::from_json(&text).unwrap().to_json(), text);
    }
}

#[test]
fn eight_nodes_in_three_hops() {
    // Two rings of four, 21 to a neighbour, 31 to the opposite one and to the other ring.
    let machine = synthetic("pack:2 group:4 [numa(memory=16GiB)] l3:1 core:1 pu:2");
    let distance = |from: usize, to: usize| match (from / 4 == to / 4, (from + 8 - to) % 4) {
        (true, 0) => 10,
        (true, 1 | 3) => 21,
        _ => 31,
    };
    let rows: Vec<Vec<u32>> = (0..8)
        .map(|from| (0..8).map(|to| distance(from, to)).collect())
        .collect();
    check(
        "eight-nodes",
        &machine.with_distances(&rows).unwrap(),
        &Request::default(),
    );
}

#[test]
fn a_package_with_sixteen_l3s() {
    let machine = synthetic("pack:1 [numa] l3:16 core:4 pu:1");
    let request = Request {
        n_ps: Some(32),
        ..Request::default()
    };
    check("sixteen-l3s", &machine, &request);
}

#[test]
fn json_report() {
    let machine = synthetic("pack:2 [numa] core:1 pu:1");
    let plan = plan(&machine, &Request::default()).unwrap();
    expect("report.json", &render::json(&machine, &plan, Some(1.5)));
}

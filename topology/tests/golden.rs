//! Recorded machines in, dumps out: the tree, the distances, the plan and the steal order of each
//! file in tests/machines are those in tests/expected.
//!
//! `hybrid` and `container` are made up too: fast and slow cores; a cpuset that cuts a node, isolated
//! CPUs and a quota. `qemu-*` were recorded in the project's NUMA virtual machine. `odd` is made up: sparse ids, an
//! offline CPU, CPUs that are not allowed, a node of one CPU without L3, a node without memory, one
//! without CPUs, level 2 caches shared by cores, asymmetric distances.

use windlass_topology::{
    Request, Topology, export, plan,
    render::{self, Paint, json, svg},
};

use crate::util::{check_plan, expect, recorded, synthetic};

mod util;

fn check(name: &str, machine: &Topology, request: &Request) {
    let plan = plan(machine, request).unwrap();
    check_plan(machine, &plan);
    let parts = [
        render::tree(machine, Paint::Plain),
        render::art(machine, 100, false, Paint::Plain),
        render::distances(machine, Paint::Plain),
        render::placement(machine, &plan, Paint::Plain),
        render::steal_order(&plan, None, Paint::Plain),
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
        "hybrid",
        "container",
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
    for name in ["qemu-4-nodes", "odd", "hybrid", "container"] {
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
fn json_of_a_small_machine() {
    let machine = synthetic("pack:2 [numa] core:1 pu:1");
    let plan = plan(&machine, &Request::default()).unwrap();
    expect("tree.json", &json::tree(&machine));
    expect("ps.json", &json::placement(&plan));
    expect("steal.json", &json::steal(&plan, None));
    expect("distances.json", &json::distances(&machine, None));
}

#[test]
fn pictures_are_whole_and_hold_every_cpu() {
    for description in [
        "pu:1",
        "pack:2 [numa] l3:2 core:9 pu:2",
        "numa:8 l3:4 core:16 pu:2",
    ] {
        let machine = synthetic(description);
        let plan = plan(&machine, &Request::default()).unwrap();
        let n_cpus = machine.pus().len();
        let pictures = [
            svg::tree(&machine),
            svg::placement(&machine, &plan),
            svg::steal(&machine, &plan, n_cpus / 2),
            svg::steal_matrix(&plan),
            svg::distances(&machine, None),
        ];
        for (nth, picture) in pictures.iter().enumerate() {
            check_elements(picture);
            let cells = picture.matches("rx=\"3\"").count();
            assert_eq!(cells, if nth < 3 { n_cpus } else { 0 });
        }
        assert!(pictures[1].contains(&format!(">P{}<", n_cpus - 1)));
    }
}

/// Letters for each node on both axes, a P beside a whole number of them, and each colour explained.
#[test]
fn the_steal_order_of_512_ps_can_be_read() {
    let machine = synthetic("pack:8 [numa] l3:8 core:8 pu:1");
    let near = |a: usize, b: usize| match (a == b, a / 4 == b / 4) {
        (true, _) => 10,
        (_, true) => 16,
        _ => 32,
    };
    let row = |from| (0..8).map(|to| near(from, to)).collect();
    let rows: Vec<Vec<u32>> = (0..8).map(row).collect();
    let machine = machine.with_distances(&rows).unwrap();
    let picture = svg::steal_matrix(&plan(&machine, &Request::default()).unwrap());
    check_elements(&picture);
    let count = |text: &str| picture.matches(&format!(">{text}</text>")).count();
    for node in 0..8 {
        assert_eq!(count(&format!("node {node}")), 2);
        assert_eq!(count(&(node * 64).to_string()), 2);
    }
    for level in [
        "1. same L3",
        "2. same node",
        "3. another node at distance 16, past the gate",
        "4. another node at distance 32, past the gate",
    ] {
        assert_eq!(count(level), 1, "{level}");
    }
    // It fits a page, and no letters are smaller than can be read there.
    let numbers = |name: &str| -> Vec<usize> {
        let start = format!(" {name}=\"");
        let values = picture.split(&start).skip(1);
        let digits = values.map(|rest| rest.split('"').next().unwrap());
        digits.map(|digits| digits.parse().unwrap()).collect()
    };
    assert!(numbers("width")[0] <= 1800);
    assert!(numbers("font-size").into_iter().min() >= Some(10));
}

/// Every element is closed, on its own line, and inside the picture.
fn check_elements(picture: &str) {
    let lines: Vec<&str> = picture.lines().collect();
    let [first, inner @ .., last] = lines.as_slice() else {
        panic!("{picture}");
    };
    let attribute = |line: &str, name: &str| {
        let start = line.find(&format!(" {name}=\"")).unwrap() + name.len() + 3;
        let value = line[start..].split('"').next().unwrap();
        value.parse::<usize>().unwrap()
    };
    assert!(first.starts_with("<svg ") && first.ends_with('>'));
    assert_eq!(*last, "</svg>");
    let (width, height) = (attribute(first, "width"), attribute(first, "height"));
    for line in inner {
        let is_whole = line.ends_with("/>") && line.starts_with("<rect ")
            || line.ends_with("</text>") && line.starts_with("<text ")
            || line.ends_with("</title>") && line.starts_with("<title>");
        assert!(is_whole, "{line}");
        if line.starts_with("<rect ") {
            assert!(
                attribute(line, "x") + attribute(line, "width") <= width,
                "{line}"
            );
            assert!(
                attribute(line, "y") + attribute(line, "height") <= height,
                "{line}"
            );
        } else if line.starts_with("<text ") {
            assert!(
                attribute(line, "x") <= width && attribute(line, "y") <= height,
                "{line}"
            );
        }
    }
}

#[test]
fn machines_survive_hwlocs_xml() {
    let dir = util::Dir::new();
    let path = dir.path().join("machine.xml");
    let mut machines: Vec<Topology> = ["qemu-2-nodes-smt", "qemu-4-nodes", "odd", "container"]
        .map(|name| recorded(&format!("{name}.json")))
        .into();
    machines.extend(
        [
            "pu:1",
            "pack:2 [numa] l3:2(size=16MiB) l2:1 core:2 pu:2",
            "pack:2 group:2 [numa] l3:1 core:1 pu:2",
            "pack:1 l3:1 group:2 [numa] core:2 pu:1",
            "[numa] pack:2 core:20 pu:2",
        ]
        .map(synthetic),
    );
    for machine in machines {
        let xml = export::xml(&machine).unwrap();
        std::fs::write(&path, &xml).unwrap();
        let read = Topology::from_xml_file(&path).unwrap();
        assert_eq!(read.pus(), machine.pus(), "{xml}");
        assert_eq!(read.allowed_cpus(), machine.allowed_cpus());
        assert_eq!(read.distances().rows, machine.distances().rows, "{xml}");
        let memory = |machine: &Topology| -> Vec<_> {
            let nodes = machine.nodes().iter();
            nodes
                .map(|n| (n.os_id, n.cpus.clone(), n.memory_bytes))
                .collect()
        };
        assert_eq!(memory(&read), memory(&machine), "{xml}");
        let sizes = |machine: &Topology| -> Vec<_> {
            let caches = machine.l3s().iter().chain(machine.l2s());
            caches.map(|cache| cache.size_bytes).collect()
        };
        assert_eq!(sizes(&read), sizes(&machine));
    }
}

#[test]
fn regular_machines_survive_their_description() {
    for description in [
        "pack:1 [numa(memory=1073741824)] core:3 pu:1",
        "pack:2 [numa(memory=8589934592)] l3:2(size=16777216) l2:1(size=1048576) core:2 pu:2",
        "pack:2 group:2 [numa(memory=1073741824)] l3:1(size=33554432) core:1 pu:2",
        "[numa(memory=1073741824)] pack:2 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)",
    ] {
        let machine = synthetic(description);
        let written = export::synthetic(&machine).unwrap();
        let again = synthetic(&written);
        assert_eq!(again.pus(), machine.pus(), "{written}");
        assert_eq!(again.nodes(), machine.nodes(), "{written}");
        assert_eq!(again.l3s(), machine.l3s(), "{written}");
        assert_eq!(export::synthetic(&again).unwrap(), written);
    }
    let irregular = export::synthetic(&recorded("odd.json")).unwrap_err();
    assert!(irregular.contains("a node has no CPUs"), "{irregular}");
    let irregular = export::synthetic(&recorded("hybrid.json")).unwrap_err();
    assert!(irregular.contains("not regular"), "{irregular}");
}

//! Exact plans and steal orders. A plan is written as a line per P: `cpu@node: level distance
//! [victims] ..`.

use windlass_topology::{
    DistanceOrigin, DropReason, Error, PlanError, Policy, Request, Threads, Topology,
    default_processors, plan,
};

use crate::util::{cpus, n_ps, show, shown, synthetic};

mod util;

fn on_nodes(nodes: &[u32]) -> Request {
    Request {
        nodes: Some(nodes.to_vec()),
        ..Request::default()
    }
}

#[test]
fn one_node() {
    assert_eq!(
        shown(&synthetic("core:3 pu:1")),
        [
            "0@0: node 10 [1, 2]",
            "1@0: node 10 [2, 0]",
            "2@0: node 10 [0, 1]"
        ]
    );
}

#[test]
fn one_cpu_steals_from_nobody() {
    assert_eq!(shown(&synthetic("pu:1")), ["0@0:"]);
}

#[test]
fn two_nodes_with_every_level() {
    let machine = synthetic("pack:2 [numa] l3:2 l2:2 core:2 pu:2")
        .with_distances(&[vec![10, 21], vec![21, 10]])
        .unwrap();
    let lines = shown(&machine);
    assert_eq!(lines.len(), 32);
    let second_node: Vec<usize> = (16..32).collect();
    assert_eq!(
        lines[0],
        format!(
            "0@0: smt 10 [1] l2 10 [2, 3] l3 10 [4, 5, 6, 7] \
             node 10 [8, 9, 10, 11, 12, 13, 14, 15] remote 21 {second_node:?}"
        )
    );
    assert_eq!(
        lines[21],
        "21@1: smt 10 [20] l2 10 [22, 23] l3 10 [16, 17, 18, 19] \
         node 10 [24, 25, 26, 27, 28, 29, 30, 31] \
         remote 21 [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]"
    );
}

#[test]
fn four_nodes_in_two_sockets() {
    let rows = [
        [10, 12, 32, 32],
        [12, 10, 32, 32],
        [32, 32, 10, 12],
        [32, 32, 12, 10],
    ];
    let machine = synthetic("pack:2 group:2 [numa] l3:1 core:1 pu:2")
        .with_distances(&rows.map(Vec::from))
        .unwrap();
    assert_eq!(
        shown(&machine),
        [
            "0@0: smt 10 [1] remote 12 [2, 3] remote 32 [4, 5, 6, 7]",
            "1@0: smt 10 [0] remote 12 [2, 3] remote 32 [4, 5, 6, 7]",
            "2@1: smt 10 [3] remote 12 [0, 1] remote 32 [4, 5, 6, 7]",
            "3@1: smt 10 [2] remote 12 [0, 1] remote 32 [4, 5, 6, 7]",
            "4@2: smt 10 [5] remote 12 [6, 7] remote 32 [0, 1, 2, 3]",
            "5@2: smt 10 [4] remote 12 [6, 7] remote 32 [0, 1, 2, 3]",
            "6@3: smt 10 [7] remote 12 [4, 5] remote 32 [0, 1, 2, 3]",
            "7@3: smt 10 [6] remote 12 [4, 5] remote 32 [0, 1, 2, 3]",
        ]
    );
}

#[test]
fn eight_nodes_without_distances_are_equally_far() {
    let lines = shown(&synthetic("numa:8 core:1 pu:1"));
    assert_eq!(lines[0], "0@0: remote 20 [1, 2, 3, 4, 5, 6, 7]");
    assert_eq!(lines[5], "5@5: remote 20 [6, 7, 0, 1, 2, 3, 4]");
}

#[test]
fn described_packages_of_several_nodes_have_distances() {
    let machine = synthetic("pack:2 group:2 [numa] core:1 pu:1");
    let rows = [
        [10, 12, 20, 20],
        [12, 10, 20, 20],
        [20, 20, 10, 12],
        [20, 20, 12, 10],
    ];
    assert_eq!(machine.distances().rows, rows);
    assert_eq!(machine.distances().origin, DistanceOrigin::Assumed);
    let note = machine.distances().note.as_deref().unwrap();
    assert!(note.contains("12 inside, 20 between"), "{note}");
    assert_eq!(shown(&machine)[1], "1@1: remote 12 [0] remote 20 [2, 3]");
    // Packages of one node, and nodes of one package, are all equally far.
    for description in [
        "pack:3 [numa] pu:1",
        "pack:1 group:3 [numa] pu:1",
        "numa:3 pu:1",
    ] {
        let machine = synthetic(description);
        assert_eq!(shown(&machine)[0], "0@0: remote 20 [1, 2]", "{description}");
        assert_eq!(machine.distances().note, None);
    }
}

#[test]
fn three_hops() {
    let rows = [
        [10, 21, 31, 31],
        [21, 10, 21, 31],
        [31, 21, 10, 21],
        [31, 31, 21, 10],
    ];
    let machine = synthetic("numa:4 core:1 pu:1")
        .with_distances(&rows.map(Vec::from))
        .unwrap();
    assert_eq!(
        shown(&machine),
        [
            "0@0: remote 21 [1] remote 31 [2, 3]",
            "1@1: remote 21 [2, 0] remote 31 [3]",
            "2@2: remote 21 [3, 1] remote 31 [0]",
            "3@3: remote 21 [2] remote 31 [0, 1]",
        ]
    );
}

#[test]
fn distance_counts_from_the_thief() {
    let rows = [vec![10, 20, 30], vec![40, 10, 15], vec![12, 25, 10]];
    let machine = synthetic("numa:3 core:1 pu:1")
        .with_distances(&rows)
        .unwrap();
    assert_eq!(
        shown(&machine),
        [
            "0@0: remote 20 [1] remote 30 [2]",
            "1@1: remote 15 [2] remote 40 [0]",
            "2@2: remote 12 [0] remote 25 [1]",
        ]
    );
}

#[test]
fn a_node_with_one_cpu() {
    let machine = synthetic("numa:2 core:2 pu:1")
        .restrict_to_cpus(&[0, 1, 3])
        .unwrap();
    assert_eq!(
        shown(&machine),
        [
            "0@0: node 10 [1] remote 20 [2]",
            "1@0: node 10 [0] remote 20 [2]",
            "3@1: remote 20 [0, 1]",
        ]
    );
}

#[test]
fn a_cpuset_that_cuts_a_node_in_half() {
    // Node 0 keeps one thread of core 0 and all of core 1; node 1 is whole.
    let machine = synthetic("pack:2 [numa] l3:1 core:2 pu:2");
    let machine = machine.restrict_to_cpus(&[1, 2, 3, 4, 5, 6, 7]).unwrap();
    assert_eq!(
        shown(&machine),
        [
            "1@0: l3 10 [1, 2] remote 20 [3, 4, 5, 6]",
            "2@0: smt 10 [2] l3 10 [0] remote 20 [3, 4, 5, 6]",
            "3@0: smt 10 [1] l3 10 [0] remote 20 [3, 4, 5, 6]",
            "4@1: smt 10 [4] l3 10 [5, 6] remote 20 [0, 1, 2]",
            "5@1: smt 10 [3] l3 10 [5, 6] remote 20 [0, 1, 2]",
            "6@1: smt 10 [6] l3 10 [3, 4] remote 20 [0, 1, 2]",
            "7@1: smt 10 [5] l3 10 [3, 4] remote 20 [0, 1, 2]",
        ]
    );
    let half = machine.restrict_to_nodes(&[0]).unwrap();
    assert_eq!(half.allowed_cpus(), [1, 2, 3]);
    let plan = plan(&half, &Request::default()).unwrap();
    assert_eq!(plan.nodes.len(), 1);
}

#[test]
fn sparse_cpu_ids_and_siblings_numbered_apart() {
    // As Intel numbers: the second threads after all first ones.
    let machine = synthetic("pack:2 [numa] core:2 pu:2(indexes=10,50,20,60,30,70,40,80)");
    assert_eq!(
        cpus(&machine, &Request::default()),
        [10, 50, 20, 60, 30, 70, 40, 80]
    );
    assert_eq!(cpus(&machine, &n_ps(4)), [10, 20, 30, 40]);
    assert_eq!(cpus(&machine, &n_ps(5)), [10, 50, 20, 30, 40]);
    assert_eq!(
        shown(&machine)[1],
        "50@0: smt 10 [0] node 10 [2, 3] remote 20 [4, 5, 6, 7]"
    );
}

#[test]
fn fewer_ps_than_nodes() {
    let machine = synthetic("numa:4 core:4 pu:1");
    let plan = plan(&machine, &n_ps(3)).unwrap();
    assert_eq!(
        show(&plan),
        [
            "0@0: remote 20 [1, 2]",
            "4@1: remote 20 [2, 0]",
            "8@2: remote 20 [0, 1]"
        ]
    );
    assert_eq!(
        plan.nodes.iter().map(|node| node.os_id).collect::<Vec<_>>(),
        [0, 1, 2]
    );
}

#[test]
fn spread_takes_nodes_then_caches_then_cores_then_siblings() {
    let machine = synthetic("pack:2 [numa] l3:2 core:2 pu:2");
    assert_eq!(cpus(&machine, &n_ps(1)), [0]);
    assert_eq!(cpus(&machine, &n_ps(2)), [0, 8]);
    assert_eq!(cpus(&machine, &n_ps(3)), [0, 4, 8]);
    assert_eq!(cpus(&machine, &n_ps(4)), [0, 4, 8, 12]);
    assert_eq!(cpus(&machine, &n_ps(6)), [0, 2, 4, 8, 10, 12]);
    assert_eq!(cpus(&machine, &n_ps(8)), [0, 2, 4, 6, 8, 10, 12, 14]);
    assert_eq!(cpus(&machine, &n_ps(9)), [0, 1, 2, 4, 6, 8, 10, 12, 14]);
    assert_eq!(
        cpus(&machine, &n_ps(11)),
        [0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 14]
    );
}

#[test]
fn siblings_come_last_even_where_nodes_become_uneven() {
    // Node 0 has one core of two threads left, node 1 has three cores.
    let machine = synthetic("numa:2 core:3 pu:2")
        .restrict_to_cpus(&[0, 1, 6, 8, 10])
        .unwrap();
    assert_eq!(cpus(&machine, &n_ps(4)), [0, 6, 8, 10]);
    assert_eq!(cpus(&machine, &n_ps(5)), [0, 1, 6, 8, 10]);
}

#[test]
fn pack_fills_the_nearest_nodes() {
    // Node 2 is near to node 0, node 1 is not.
    let rows = [vec![10, 30, 12], vec![30, 10, 30], vec![12, 30, 10]];
    let machine = synthetic("numa:3 core:2 pu:2")
        .with_distances(&rows)
        .unwrap();
    let pack = |n| Request {
        policy: Policy::Pack,
        ..n_ps(n)
    };
    assert_eq!(cpus(&machine, &pack(2)), [0, 2]);
    assert_eq!(cpus(&machine, &pack(3)), [0, 1, 2]);
    assert_eq!(cpus(&machine, &pack(6)), [0, 1, 2, 3, 8, 10]);
    assert_eq!(cpus(&machine, &pack(9)), [0, 1, 2, 3, 4, 8, 9, 10, 11]);
    assert_eq!(cpus(&machine, &pack(13))[..3], [0, 0, 1]);
}

#[test]
fn more_ps_than_cpus_wrap_round() {
    let machine = synthetic("numa:2 core:1 pu:2");
    assert_eq!(cpus(&machine, &n_ps(6)), [0, 0, 1, 2, 2, 3]);
    let plan = plan(&machine, &n_ps(6)).unwrap();
    assert_eq!(show(&plan)[1], "0@0: smt 10 [2, 0] remote 20 [3, 4, 5]");
    assert_eq!(cpus(&synthetic("pu:1"), &n_ps(3)), [0, 0, 0]);
}

#[test]
fn chosen_nodes_only() {
    let machine = synthetic("numa:4 core:2 pu:1");
    assert_eq!(
        show(&plan(&machine, &on_nodes(&[3, 1, 3])).unwrap()),
        [
            "2@1: node 10 [1] remote 20 [2, 3]",
            "3@1: node 10 [0] remote 20 [2, 3]",
            "6@3: node 10 [3] remote 20 [0, 1]",
            "7@3: node 10 [2] remote 20 [0, 1]",
        ]
    );
}

#[test]
fn a_node_with_many_l3s_is_halved() {
    let lines = shown(&synthetic("pack:1 [numa] l3:16 core:1 pu:1"));
    assert_eq!(
        lines[0],
        "0@0: node 10 [1] node 10 [2, 3] node 10 [4, 5, 6, 7] \
         node 10 [8, 9, 10, 11, 12, 13, 14, 15]"
    );
    assert_eq!(
        lines[6],
        "6@0: node 10 [7] node 10 [4, 5] node 10 [0, 1, 2, 3] \
         node 10 [8, 9, 10, 11, 12, 13, 14, 15]"
    );
    // Up to eight others stay one level; an odd number is halved as well as can be.
    assert_eq!(
        shown(&synthetic("pack:1 [numa] l3:9 core:1 pu:1"))[8],
        "8@0: node 10 [0, 1, 2, 3, 4, 5, 6, 7]"
    );
    assert_eq!(
        shown(&synthetic("pack:1 [numa] l3:10 core:1 pu:1"))[4],
        "4@0: node 10 [3] node 10 [2] node 10 [0, 1] node 10 [5, 6, 7, 8, 9]"
    );
}

#[test]
fn a_cache_across_nodes_is_remote() {
    // Sub-NUMA clustering: one L3, two nodes below it.
    let lines = shown(&synthetic("pack:1 l3:1 group:2 [numa] core:2 pu:1"));
    assert_eq!(lines[0], "0@0: l3 10 [1] remote 20 [2, 3]");
}

#[test]
fn what_cannot_be_planned() {
    let machine = synthetic("numa:2 core:2 pu:1")
        .restrict_to_nodes(&[0])
        .unwrap();
    let error = |request: &Request| plan(&machine, request).unwrap_err();
    assert_eq!(error(&n_ps(0)), PlanError::NoPs);
    assert_eq!(error(&n_ps(1 << 20)), PlanError::TooManyPs(1 << 20));
    assert_eq!(error(&on_nodes(&[])), PlanError::NoNodes);
    assert_eq!(
        error(&on_nodes(&[0, 7])),
        PlanError::UnknownNode {
            os_id: 7,
            known: vec![0, 1]
        }
    );
    assert_eq!(error(&on_nodes(&[0, 1])), PlanError::NodeNotAllowed(1));

    let mut json: serde_json::Value = serde_json::from_str(&machine.to_json()).unwrap();
    for pu in json["pus"].as_array_mut().unwrap() {
        pu["allowed"] = false.into();
    }
    let none_allowed = Topology::from_json(&json.to_string()).unwrap();
    let error = plan(&none_allowed, &Request::default()).unwrap_err();
    assert_eq!(error, PlanError::NoAllowedCpu);
    assert_eq!(
        error.to_string(),
        "no CPU is allowed to this process; look at its affinity mask (taskset -p) and at \
         cpuset.cpus of its cgroup"
    );
}

#[test]
fn a_node_without_cpus_gets_no_p() {
    let machine = util::recorded("odd.json");
    let refused = plan(&machine, &on_nodes(&[4])).unwrap_err();
    assert_eq!(refused, PlanError::NodeWithoutCpus(4));
    let plan = plan(&machine, &Request::default()).unwrap();
    assert_eq!(
        plan.nodes.iter().map(|node| node.os_id).collect::<Vec<_>>(),
        [0, 2, 3]
    );
}

#[test]
fn distances_are_checked() {
    let machine = synthetic("numa:2 pu:1");
    let message = |rows: &[Vec<u32>]| match machine.with_distances(rows) {
        Err(error @ Error::Distances(_)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        message(&[vec![10, 20]]),
        "bad distances: 1 rows for 2 nodes; give one row per node"
    );
    assert_eq!(
        message(&[vec![10, 20], vec![20]]),
        "bad distances: row 1 has 1 values for 2 nodes; give one value per node"
    );
    assert_eq!(
        message(&[vec![10, 256], vec![20, 10]]),
        "bad distances: 256 in row 0 is not in 10..=255; 10 means local, 255 no path"
    );
    assert_eq!(
        message(&[vec![10, 20], vec![20, 30]]),
        "bad distances: row 1 has 30 to itself but 20 to node 0; no node is nearer than itself"
    );
    assert!(
        machine
            .with_distances(&[vec![11, 11], vec![255, 10]])
            .is_ok()
    );
}

#[test]
fn restrictions_are_checked() {
    let machine = synthetic("numa:2 core:2 pu:1")
        .restrict_to_cpus(&[0, 1])
        .unwrap();
    let message = |result: Result<Topology, Error>| result.unwrap_err().to_string();
    assert_eq!(
        message(machine.restrict_to_cpus(&[0, 9])),
        "cannot restrict the machine: no CPU 9; there are 0-3"
    );
    assert_eq!(
        message(machine.restrict_to_nodes(&[2])),
        "cannot restrict the machine: no node 2; there are 0-1"
    );
    assert_eq!(
        message(machine.restrict_to_nodes(&[1])),
        "cannot restrict the machine: no allowed CPU would remain; allowed are 0-1"
    );
}

#[test]
fn json_that_is_no_machine() {
    let good = synthetic("numa:2 core:2 pu:1").to_json();
    let spoilt = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        Topology::from_json(&good.replacen(from, to, 1))
            .unwrap_err()
            .to_string()
    };
    for (from, to, message) in [
        ("\"schema\": 1", "\"schema\": 9", "schema 9"),
        (
            "\"core\": 0",
            "\"core\": 77",
            "CPU 0 is in core 77, which is missing",
        ),
        ("\"core\": 0", "\"core\": 1", "core 0 lists other CPUs"),
        ("\"node\": 0", "\"node\": 1", "node 0 lists other CPUs"),
        ("\"cpu\": 1", "\"cpu\": 0", "the CPUs do not ascend"),
        ("\"os_id\": 0", "\"os_id\": 5", "the nodes do not ascend"),
        (
            "\"offline_cpus\": []",
            "\"offline_cpus\": [2]",
            "CPU 2 is both online and offline",
        ),
        ("[10, 20]", "[10, 9]", "9 in row 0 is not in 10..=255"),
    ] {
        let error = spoilt(from, to);
        assert!(error.contains(message), "{error}");
    }
    assert!(Topology::from_json("").is_err());
    assert!(Topology::from_json("{}").is_err());
}

/// Adds a field to every object of a JSON value.
fn add_fields(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(map) => {
            map.values_mut().for_each(add_fields);
            map.insert(
                "of_a_later_version".to_owned(),
                serde_json::json!({"x": [1]}),
            );
        }
        serde_json::Value::Array(list) => list.iter_mut().for_each(add_fields),
        _ => {}
    }
}

#[test]
fn fields_of_a_later_version_are_ignored() {
    for machine in [util::recorded("container.json"), synthetic("numa:2 pu:2")] {
        let mut json: serde_json::Value = serde_json::from_str(&machine.to_json()).unwrap();
        // The description of a synthetic machine is an enum's only field: the name is not a field.
        let source = json["source"].take();
        add_fields(&mut json);
        json["source"] = source;
        if let Some(synthetic) = json["source"].get_mut("synthetic") {
            add_fields(synthetic);
        }
        assert_eq!(Topology::from_json(&json.to_string()).unwrap(), machine);
    }
}

#[test]
fn nodes_without_memory_share_equally_near_ones() {
    let machine = |packages: &str| {
        edited(&synthetic(&format!("{packages} [numa] pu:1")), |json| {
            for node in [1, 2, 3, 5, 6, 7] {
                json["nodes"][node]["has_memory"] = false.into();
            }
        })
    };
    let memory = |machine: &Topology| -> Vec<u32> {
        let plan = plan(machine, &Request::default()).unwrap();
        plan.nodes
            .iter()
            .filter_map(|node| node.memory_node)
            .collect()
    };
    // Eight packages of one node, memory in nodes 0 and 4; then two packages of four nodes.
    assert_eq!(memory(&machine("pack:8")), [0, 0, 4, 0, 4, 4, 0, 4]);
    assert_eq!(memory(&machine("pack:2 group:4")), [0, 0, 0, 0, 4, 4, 4, 4]);
    // The package decides where the distances are equal.
    let even = vec![vec![10; 8]; 8];
    let machine = machine("pack:2 group:4").with_distances(&even).unwrap();
    assert_eq!(memory(&machine), [0, 0, 0, 0, 4, 4, 4, 4]);
}

#[test]
fn xml_tells_nodes_with_memory_from_those_without() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machines/two-nodes.xml");
    let text = std::fs::read_to_string(file).unwrap();
    let dir = util::Dir::new();
    let with_memory = |sizes: [&str; 2]| {
        let mut parts = text.split("8589934592");
        let parts = [parts.next(), parts.next(), parts.next()].map(Option::unwrap);
        let text = [parts[0], sizes[0], parts[1], sizes[1], parts[2]].concat();
        dir.write("machine.xml", &text);
        let machine = Topology::from_xml_file(dir.path().join("machine.xml")).unwrap();
        let nodes = machine.nodes().iter();
        nodes.map(|node| node.has_memory).collect::<Vec<_>>()
    };
    assert_eq!(with_memory(["1073741824", "0"]), [true, false]);
    // Without any size nothing is known.
    assert_eq!(with_memory(["0", "0"]), [true, true]);
}

fn threads(threads: Threads, n_ps: Option<usize>, policy: Policy) -> Request {
    Request {
        n_ps,
        policy,
        threads,
        ..Request::default()
    }
}

/// The CPUs without a P, by reason.
fn dropped(machine: &Topology, request: &Request) -> Vec<(DropReason, Vec<usize>)> {
    let mut reasons = std::collections::BTreeMap::<_, Vec<usize>>::new();
    for dropped in plan(machine, request).unwrap().dropped {
        reasons.entry(dropped.reason).or_default().push(dropped.cpu);
    }
    reasons.into_iter().collect()
}

/// A machine of which a JSON field is changed.
fn edited(machine: &Topology, edit: impl Fn(&mut serde_json::Value)) -> Topology {
    let mut json: serde_json::Value = serde_json::from_str(&machine.to_json()).unwrap();
    edit(&mut json);
    Topology::from_json(&json.to_string()).unwrap()
}

#[test]
fn one_p_for_each_core() {
    let machine = synthetic("pack:2 [numa] core:2 pu:2");
    for policy in [Policy::Spread, Policy::Pack] {
        let request = threads(Threads::Never, None, policy);
        assert_eq!(cpus(&machine, &request), [0, 2, 4, 6]);
        assert_eq!(
            dropped(&machine, &request),
            [(DropReason::Sibling, vec![1, 3, 5, 7])]
        );
        // More Ps than cores share first threads.
        let six = threads(Threads::Never, Some(6), policy);
        let expected = match policy {
            Policy::Spread => [0, 0, 2, 4, 4, 6],
            Policy::Pack => [0, 0, 2, 2, 4, 6],
        };
        assert_eq!(cpus(&machine, &six), expected);
    }
    // The first thread of a core may be forbidden.
    let cut = machine.restrict_to_cpus(&[1, 2, 3]).unwrap();
    let request = threads(Threads::Never, None, Policy::Spread);
    assert_eq!(cpus(&cut, &request), [1, 2]);
}

#[test]
fn cores_are_filled_where_threads_go_together() {
    let machine = synthetic("pack:2 [numa] l3:2 core:2 pu:2");
    let spread = |n| threads(Threads::Together, Some(n), Policy::Spread);
    assert_eq!(cpus(&machine, &spread(2)), [0, 8]);
    assert_eq!(cpus(&machine, &spread(4)), [0, 1, 8, 9]);
    assert_eq!(cpus(&machine, &spread(6)), [0, 1, 4, 8, 9, 12]);
    let pack = |n| threads(Threads::Together, Some(n), Policy::Pack);
    assert_eq!(cpus(&machine, &pack(3)), [0, 1, 2]);
    assert_eq!(cpus(&machine, &pack(9)), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn isolated_cpus_are_for_those_who_ask() {
    let machine = edited(&synthetic("core:4 pu:1"), |json| {
        json["isolated_cpus"] = [2, 3].into();
    });
    assert_eq!(machine.isolated_cpus(), [2, 3]);
    assert_eq!(cpus(&machine, &Request::default()), [0, 1]);
    assert_eq!(default_processors(&machine), 2);
    assert_eq!(
        dropped(&machine, &Request::default()),
        [(DropReason::Isolated, vec![2, 3])]
    );
    let with_isolated = Request {
        isolated: true,
        ..Request::default()
    };
    assert_eq!(cpus(&machine, &with_isolated), [0, 1, 2, 3]);
    // A process that may use isolated CPUs only does use them.
    let bound = machine.restrict_to_cpus(&[2, 3]).unwrap();
    assert_eq!(cpus(&bound, &Request::default()), [2, 3]);
    assert_eq!(default_processors(&bound), 2);
}

#[test]
fn fast_cores_come_first_then_slow_ones_then_siblings() {
    // Two fast cores of two threads, two slow ones.
    let machine = edited(&synthetic("core:4 pu:2"), |json| {
        json["cores"][0]["performance"] = 1.into();
        json["cores"][3]["performance"] = 1.into();
    });
    let machine = machine.restrict_to_cpus(&[0, 1, 2, 4, 6, 7]).unwrap();
    assert_eq!(cpus(&machine, &n_ps(2)), [0, 6]);
    assert_eq!(cpus(&machine, &n_ps(4)), [0, 2, 4, 6]);
    assert_eq!(cpus(&machine, &n_ps(5)), [0, 1, 2, 4, 6]);
    let pack = threads(Threads::Last, Some(3), Policy::Pack);
    assert_eq!(cpus(&machine, &pack), [0, 2, 6]);
}

#[test]
fn every_cpu_without_a_p_has_its_reason() {
    let machine = edited(&util::recorded("odd.json"), |json| {
        json["isolated_cpus"] = [17].into();
    });
    let request = Request {
        n_ps: Some(3),
        nodes: Some(vec![0, 3]),
        ..Request::default()
    };
    assert_eq!(cpus(&machine, &request), [0, 3, 18]);
    assert_eq!(
        dropped(&machine, &request),
        [
            (DropReason::Offline, vec![2]),
            (DropReason::NotAllowed, vec![22, 23]),
            (DropReason::OtherNode, vec![16]),
            (DropReason::Isolated, vec![17]),
            (DropReason::FewerPs, vec![1, 19, 20, 21]),
        ]
    );
}

#[test]
fn cpus_without_memory_use_the_nearest_that_has_some() {
    let machine = util::recorded("odd.json");
    let plan = plan(&machine, &Request::default()).unwrap();
    let memory: Vec<_> = plan
        .nodes
        .iter()
        .map(|node| (node.os_id, node.memory_node))
        .collect();
    // Node 4 is as near to node 3 as node 0, but has memory only.
    assert_eq!(memory, [(0, Some(0)), (2, Some(2)), (3, Some(0))]);
    let vm = util::recorded("qemu-4-nodes-last-without-memory.json");
    let vm_plan = windlass_topology::plan(&vm, &Request::default()).unwrap();
    assert_eq!(vm_plan.nodes[3].memory_node, Some(2));
}

#[test]
fn a_changed_mask_is_planned_anew() {
    let machine = synthetic("numa:2 core:4 pu:1");
    let small = machine.restrict_to_cpus(&[0]).unwrap();
    let grown = small.with_allowed_cpus(&[0, 1, 6, 99]).unwrap();
    assert_eq!(
        shown(&grown),
        [
            "0@0: node 10 [1] remote 20 [2]",
            "1@0: node 10 [0] remote 20 [2]",
            "6@1: remote 20 [0, 1]"
        ]
    );
    assert_eq!(
        machine.with_allowed_cpus(&[99]).unwrap_err().to_string(),
        "cannot restrict the machine: none of the CPUs 99 is online"
    );
}

#[test]
fn hwloc_kinds_of_cores_count_if_they_name_a_design() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machines/two-nodes.xml");
    let text = std::fs::read_to_string(file).unwrap();
    let dir = util::Dir::new();
    // CPUs 0-3 are fast; the others are slow, or only clocked lower.
    let performance = |name: &str, values: [&str; 2]| {
        let kind = |cpus: &str, rank: u32, value: &str| {
            format!(
                "<cpukind cpuset=\"{cpus}\" forced_efficiency=\"{rank}\">\
                 <info name=\"{name}\" value=\"{value}\"/></cpukind>"
            )
        };
        let kinds = kind("0x000000f0", 0, values[0]) + &kind("0x0000000f", 1, values[1]);
        let text = text.replace("</topology>", &format!("{kinds}</topology>"));
        dir.write("machine.xml", &text);
        let machine = Topology::from_xml_file(dir.path().join("machine.xml")).unwrap();
        let cores = machine.cores().iter();
        cores.map(|core| core.performance).collect::<Vec<_>>()
    };
    assert_eq!(
        performance("CoreType", ["IntelAtom", "IntelCore"]),
        [1, 1, 0, 0]
    );
    assert_eq!(performance("LinuxCapacity", ["446", "1024"]), [1, 1, 0, 0]);
    // Kinds of one type, or of nearly the same capacity, are one design.
    assert_eq!(performance("CoreType", ["IntelCore", "IntelCore"]), [0; 4]);
    assert_eq!(performance("LinuxCapacity", ["1017", "1024"]), [0; 4]);
    assert_eq!(performance("FrequencyMaxMHz", ["2000", "3000"]), [0; 4]);
}

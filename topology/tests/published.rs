//! Machines made from published facts, as trees of `/sys` that each test writes: what kernels and
//! firmware really say, which is not always what one would expect.

use windlass_topology::{DistanceOrigin, LevelKind, Request, Topology, plan};

use crate::util::Dir;

mod util;

/// A distance in a row of the kernel's file.
fn row(values: impl IntoIterator<Item = u32>) -> String {
    let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    values.join(" ")
}

/// NVIDIA GH200, four sockets: nodes 0 to 3 have CPUs (40 apart), and each GPU adds eight nodes of
/// memory, which are 255 ("no path") from those of the other GPUs.
#[test]
fn gh200_with_four_sockets_keeps_its_distances() {
    const CPUS_OF_NODE: usize = 2; // 72 in truth
    let dir = Dir::new();
    dir.write("sys/devices/system/cpu/online", "0-7\n");
    for cpu in 0..4 * CPUS_OF_NODE {
        let own = cpu.to_string();
        let first = cpu / CPUS_OF_NODE * CPUS_OF_NODE;
        let l3 = format!("{first}-{}", first + CPUS_OF_NODE - 1);
        dir.cpu(cpu, (cpu / CPUS_OF_NODE) as u32, &own, &own, &l3);
    }
    let socket = |node: u32| match node {
        0..4 => node,
        gpu => (gpu - 4) / 8,
    };
    let distance = |from: u32, to: u32| match (from, to) {
        _ if from == to => 10,
        (0..4, 0..4) => 40,
        (0..4, gpu) | (gpu, 0..4) if socket(gpu) == socket(from.min(to)) => 80,
        (0..4, _) | (_, 0..4) => 120,
        _ => 255,
    };
    for node in 0..36 {
        let cpus = match node {
            0..4 => format!("{}-{}", node * 2, node * 2 + 1),
            _ => String::new(),
        };
        let distances = row((0..36).map(|to| distance(node, to)));
        // Of a GPU's eight nodes one has its memory; the others are for parts of the GPU.
        let memory_kb = if node < 4 || node % 8 == 4 {
            1 << 20
        } else {
            0
        };
        dir.node(node, &cpus, memory_kb, &distances);
    }
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!(machine.distances().origin, DistanceOrigin::Firmware);
    assert_eq!(machine.distances().note, None);
    assert_eq!((machine.distance(0, 1), machine.distance(4, 12)), (40, 255));
    let plan = plan(&machine, &Request::default()).unwrap();
    let last = plan.ps[0].levels.last().unwrap();
    assert_eq!((last.kind, last.distance), (LevelKind::Remote, 40));
    // Each uses its own memory, not that of a GPU.
    let memory: Vec<_> = plan.nodes.iter().map(|node| node.memory_node).collect();
    assert_eq!(memory, [Some(0), Some(1), Some(2), Some(3)]);
    // The file that is written can be read.
    assert_eq!(Topology::from_json(&machine.to_json()).unwrap(), machine);
}

/// IBM POWER9 with GPUs: CPUs in nodes 0 and 8, GPU memory in nodes 250 to 255.
#[test]
fn power9_with_gpu_memory() {
    let dir = Dir::new();
    dir.write("sys/devices/system/cpu/online", "0-7\n");
    for cpu in 0..8 {
        let core = if cpu < 4 { "0-3" } else { "4-7" };
        dir.cpu(cpu, cpu as u32 / 4, core, core, core);
    }
    let ids = [0, 8, 250, 251, 252, 253, 254, 255];
    dir.write("sys/devices/system/node/online", "0,8,250-255\n");
    let distance = |from: u32, to: u32| match (from, to) {
        _ if from == to => 10,
        (0 | 8, 0 | 8) => 40,
        _ => 80,
    };
    for from in ids {
        let cpus = match from {
            0 => "0-3",
            8 => "4-7",
            _ => "",
        };
        let distances = row(ids.map(|to| distance(from, to)));
        dir.node(from, cpus, 1 << 20, &distances);
    }
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    let nodes: Vec<u32> = machine.nodes().iter().map(|node| node.os_id).collect();
    assert_eq!(nodes, ids);
    assert_eq!(machine.distances().origin, DistanceOrigin::Firmware);
    assert_eq!(
        util::shown(&machine)[5],
        "5@8: smt 10 [6, 7, 4] remote 40 [0, 1, 2, 3]"
    );
}

/// Intel with three sub-NUMA clusters per socket: the distances are not symmetric, and here one
/// value is missing besides.
#[test]
fn snc3_with_asymmetric_distances_and_a_missing_one() {
    let dir = Dir::new();
    dir.write("sys/devices/system/cpu/online", "0-5\n");
    for cpu in 0..6 {
        let own = cpu.to_string();
        let l3 = if cpu < 3 { "0-2" } else { "3-5" };
        dir.cpu(cpu, cpu as u32 / 3, &own, &own, l3);
    }
    let rows = [
        [10, 15, 17, 21, 28, 26],
        [15, 10, 15, 23, 26, 23],
        [17, 15, 10, 26, 23, 0],
        [21, 28, 26, 10, 15, 17],
        [23, 26, 23, 15, 10, 15],
        [26, 23, 21, 17, 15, 10],
    ];
    for (node, distances) in rows.into_iter().enumerate() {
        dir.node(node as u32, &node.to_string(), 1 << 20, &row(distances));
    }
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    let distances = machine.distances();
    assert_eq!(distances.origin, DistanceOrigin::Firmware);
    assert_eq!(
        distances.note.as_deref(),
        Some("1 of the firmware's 36 values replaced, 0 from node 2 to node 5")
    );
    assert_eq!((machine.distance(0, 4), machine.distance(4, 0)), (28, 23));
    assert_eq!(machine.distance(2, 5), 21);
    assert_eq!(
        util::shown(&machine)[2],
        "2@2: remote 15 [1] remote 17 [0] remote 21 [5] remote 23 [4] remote 26 [3]"
    );
}

/// Writes a file for each CPU.
fn of_cpus(dir: &Dir, name: &str, values: impl IntoIterator<Item = (usize, String)>) {
    for (cpu, value) in values {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/{name}");
        dir.write(&path, &format!("{value}\n"));
    }
}

/// How fast each core is among the kinds of the machine.
fn performance(machine: &Topology) -> Vec<u32> {
    machine
        .cores()
        .iter()
        .map(|core| core.performance)
        .collect()
}

/// NVIDIA GB10: two clusters, each five Cortex-A725 and five Cortex-X925 under one L3. The kernel
/// gives five different capacities.
fn gb10(dir: &Dir) {
    dir.write("sys/devices/system/cpu/online", "0-19\n");
    for cpu in 0..20 {
        let own = cpu.to_string();
        dir.cpu(cpu, 0, &own, &own, if cpu < 10 { "0-9" } else { "10-19" });
    }
    dir.node(0, "0-19", 1 << 20, "10");
    let capacity = |cpu: usize| match cpu {
        0..5 => 718,
        5..10 => 997,
        10..15 => 731,
        19 => 1024,
        _ => 1017,
    };
    let capacities = (0..20).map(|cpu| (cpu, capacity(cpu).to_string()));
    of_cpus(dir, "cpu_capacity", capacities);
}

fn is_big(cpu: usize) -> bool {
    cpu % 10 >= 5
}

#[test]
fn gb10_has_two_kinds_of_cores_and_uses_both_l3s() {
    let expected: Vec<u32> = (0..20).map(|cpu| is_big(cpu).into()).collect();
    let dir = Dir::new();
    gb10(&dir);
    let cpus_of_five = |machine: &Topology| util::cpus(machine, &util::n_ps(5));
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!(performance(&machine), expected, "by capacity");
    assert_eq!(cpus_of_five(&machine), [5, 6, 7, 15, 16]);
    // The register names the designs, whatever the capacities are: one revision differs.
    let midr = |cpu: usize| match (is_big(cpu), cpu) {
        (true, 5) => "0x00000000410fd851",
        (true, _) => "0x00000000410fd850",
        (false, _) => "0x00000000410fd870",
    };
    let midrs = (0..20).map(|cpu| (cpu, midr(cpu).to_owned()));
    of_cpus(&dir, "regs/identification/midr_el1", midrs);
    of_cpus(&dir, "cpu_capacity", [(6, "800".to_owned())]);
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!(performance(&machine), expected, "by design");
    assert_eq!(cpus_of_five(&machine), [5, 6, 7, 15, 16]);
}

/// Two sockets of one processor, of which one is a little slower.
#[test]
fn sockets_of_nearly_equal_capacity_are_of_one_kind() {
    let dir = Dir::new();
    dir.write("sys/devices/system/cpu/online", "0-7\n");
    for cpu in 0..8 {
        let own = cpu.to_string();
        dir.cpu(
            cpu,
            cpu as u32 / 4,
            &own,
            &own,
            if cpu < 4 { "0-3" } else { "4-7" },
        );
    }
    dir.node(0, "0-3", 1 << 20, "10 20");
    dir.node(1, "4-7", 1 << 20, "20 10");
    let capacity = |cpu: usize| if cpu < 4 { "1017" } else { "1024" };
    let capacities = (0..8).map(|cpu| (cpu, capacity(cpu).to_owned()));
    of_cpus(&dir, "cpu_capacity", capacities);
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!(performance(&machine), [0; 8]);
    assert_eq!(util::cpus(&machine, &util::n_ps(4)), [0, 1, 4, 5]);
}

/// Intel Core i9-12900K as a container or a dump shows it, without `cpu_core` and `cpu_atom`: eight
/// cores of two threads with L2s of their own, eight cores of one thread in clusters of four.
#[test]
fn alder_lake_without_its_counters_has_two_kinds() {
    for with_clocks in [false, true] {
        let dir = Dir::new();
        dir.write("sys/devices/system/cpu/online", "0-23\n");
        for cpu in 0..24 {
            let (core, l2) = match cpu {
                0..16 => (
                    format!("{}-{}", cpu & !1, cpu | 1),
                    format!("{}-{}", cpu & !1, cpu | 1),
                ),
                _ => (cpu.to_string(), format!("{}-{}", cpu & !3, cpu | 3)),
            };
            dir.cpu(cpu, 0, &core, &l2, "0-23");
        }
        let size = |name: &str, of_fast: &str, of_slow: &str| {
            let sizes =
                (0..24).map(|cpu| (cpu, if cpu < 16 { of_fast } else { of_slow }.to_owned()));
            of_cpus(&dir, &format!("cache/{name}/size"), sizes);
        };
        size("index0", "48K", "32K");
        size("index1", "32K", "64K");
        size("index2", "1280K", "2048K");
        if with_clocks {
            let clock = |cpu: usize| match cpu {
                8..12 => "5200000", // favoured cores
                0..16 => "5100000",
                _ => "3900000",
            };
            let clocks = (0..24).map(|cpu| (cpu, clock(cpu).to_owned()));
            of_cpus(&dir, "cpufreq/cpuinfo_max_freq", clocks);
        }
        let machine = Topology::from_sysfs(dir.path()).unwrap();
        let expected: Vec<u32> = (0..16).map(|core| u32::from(core < 8)).collect();
        assert_eq!(performance(&machine), expected, "{with_clocks}");
        let eight: Vec<usize> = (0..8).map(|core| core * 2).collect();
        assert_eq!(util::cpus(&machine, &util::n_ps(8)), eight);
    }
}

/// Two packages in one node (`numa=off`, or node interleaving in the firmware), and CPUs numbered
/// alternately, as many two-socket servers do.
#[test]
fn the_own_package_comes_first_where_a_node_has_two() {
    // 8 and 4 CPUs for each L3: 4 and 8 L3s, and 16 of them with 2 CPUs, which are halved.
    for cpus_of_l3 in [8, 4, 2] {
        let dir = Dir::new();
        dir.write("sys/devices/system/cpu/online", "0-31\n");
        for cpu in 0..32 {
            // Of the CPUs of its package, those that share its L3.
            let (package, nth) = (cpu % 2, cpu / 2);
            let first = nth / cpus_of_l3 * cpus_of_l3;
            let sharers = (first..first + cpus_of_l3).map(|nth| (nth * 2 + package) as u32);
            let own = cpu.to_string();
            dir.cpu(
                cpu,
                package as u32,
                &own,
                &own,
                &row(sharers).replace(' ', ","),
            );
        }
        dir.node(0, "0-31", 1 << 20, "10");
        let machine = Topology::from_sysfs(dir.path()).unwrap();
        assert_eq!((machine.packages().len(), machine.nodes().len()), (2, 1));
        let plan = plan(&machine, &Request::default()).unwrap();
        util::check_plan(&machine, &plan);
        for p in &plan.ps {
            let order: Vec<bool> = p
                .levels
                .iter()
                .flat_map(|level| &level.victims)
                .map(|&victim| plan.ps[victim].package != p.package)
                .collect();
            assert!(
                order.is_sorted(),
                "P {} of {cpus_of_l3}: {order:?}",
                p.index
            );
            // The other package is a level of its own.
            assert_eq!(p.levels.last().unwrap().victims.len(), 16);
        }
        // Few Ps stay in one package when they are packed.
        let request = Request {
            policy: windlass_topology::Policy::Pack,
            ..util::n_ps(16)
        };
        let packed = util::cpus(&machine, &request);
        assert!(packed.iter().all(|cpu| cpu % 2 == 0), "{packed:?}");
    }
}

/// AMD Threadripper 3960X: one package, one node, eight L3s of three cores, whose second threads are
/// numbered after all first ones.
#[test]
fn threadripper_3960x() {
    let dir = Dir::new();
    dir.write("sys/devices/system/cpu/online", "0-47\n");
    for cpu in 0..48 {
        let core = cpu % 24;
        let first = core / 3 * 3;
        let threads = format!("{core},{}", core + 24);
        let l3 = format!("{first}-{},{}-{}", first + 2, first + 24, first + 26);
        dir.cpu(cpu, 0, &threads, &threads, &l3);
    }
    dir.node(0, "0-47", 1 << 20, "10");
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!(machine.l3s().len(), 8);
    assert_eq!(machine.l3s()[1].cpus, [3, 4, 5, 27, 28, 29]);
    let one_each = util::cpus(&machine, &util::n_ps(8));
    assert_eq!(one_each, [0, 3, 6, 9, 12, 15, 18, 21]);
    let plan = plan(&machine, &Request::default()).unwrap();
    util::check_plan(&machine, &plan);
    // The Ps of an L3 are neighbours though its CPUs are not.
    let cpus: Vec<usize> = plan.ps[..6].iter().map(|p| p.cpu).collect();
    assert_eq!(cpus, [0, 24, 1, 25, 2, 26]);
    let sizes: Vec<usize> = plan.ps[0]
        .levels
        .iter()
        .map(|level| level.victims.len())
        .collect();
    assert_eq!(sizes, [1, 4, 42]);
}

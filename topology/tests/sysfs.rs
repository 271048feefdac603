//! Machines read from a made-up `/sys`, and this machine read twice.

use windlass_topology::{DistanceOrigin, Error, Source, Topology};

use crate::util::{Dir, shown};

mod util;

/// A CPU with its package, core siblings and L3 sharers.
fn add_cpu(dir: &Dir, cpu: usize, package: u32, core: &str, l3: &str) {
    let at = |name: &str| format!("sys/devices/system/cpu/cpu{cpu}/{name}");
    dir.write(&at("topology/physical_package_id"), &format!("{package}\n"));
    dir.write(&at("topology/core_id"), "0\n");
    dir.write(&at("topology/thread_siblings_list"), &format!("{core}\n"));
    let levels = [
        (0, 1, "Data", core, "48K"),
        (1, 1, "Instruction", core, "32K"),
        (2, 2, "Unified", core, "1024K"),
        (3, 3, "Unified", l3, "32768K"),
    ];
    for (index, level, kind, shared, size) in levels {
        let file = |name: &str| at(&format!("cache/index{index}/{name}"));
        dir.write(&file("level"), &format!("{level}\n"));
        dir.write(&file("type"), &format!("{kind}\n"));
        dir.write(&file("shared_cpu_list"), &format!("{shared}\n"));
        dir.write(&file("size"), &format!("{size}\n"));
    }
}

fn add_node(dir: &Dir, node: u32, cpus: &str, memory_kb: u64, distance: &str) {
    let at = |name: &str| format!("sys/devices/system/node/node{node}/{name}");
    dir.write(&at("cpulist"), &format!("{cpus}\n"));
    dir.write(
        &at("meminfo"),
        &format!(
            "Node {node} MemTotal:  {memory_kb} kB\nNode {node} MemFree:  {} kB\n",
            memory_kb / 2
        ),
    );
    dir.write(&at("distance"), &format!("{distance}\n"));
}

#[test]
fn sparse_ids_offline_cpus_and_odd_nodes() {
    let dir = Dir::new();
    // CPUs 1, 3 and 9 are offline; node 2 has CPUs and no memory, node 5 memory and no CPUs.
    dir.write("sys/devices/system/cpu/present", "0-3,8-11\n");
    dir.write("sys/devices/system/cpu/online", "0,2,8,10-11\n");
    add_cpu(&dir, 0, 0, "0-1", "0-3");
    add_cpu(&dir, 2, 0, "2-3", "0-3");
    add_cpu(&dir, 8, 1, "8-9", "8-11");
    add_cpu(&dir, 10, 1, "10-11", "8-11");
    add_cpu(&dir, 11, 1, "10-11", "8-11");
    dir.write("sys/devices/system/node/online", "0,2,5\n");
    add_node(&dir, 0, "0,2", 1024, "10 21 17");
    add_node(&dir, 2, "8,10-11", 0, "20 10 28");
    add_node(&dir, 5, "", 4096, "17 28 10");

    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!(*machine.source(), Source::Recorded);
    assert_eq!(machine.allowed_cpus(), [0, 2, 8, 10, 11]);
    assert_eq!(machine.offline_cpus(), [1, 3, 9]);
    let nodes: Vec<_> = machine
        .nodes()
        .iter()
        .map(|n| {
            (
                n.os_id,
                n.cpus.clone(),
                n.memory_bytes,
                n.free_bytes,
                n.has_memory,
            )
        })
        .collect();
    assert_eq!(
        nodes,
        [
            (0, vec![0, 2], 1 << 20, Some(1 << 19), true),
            (2, vec![8, 10, 11], 0, Some(0), false),
            (5, vec![], 4 << 20, Some(2 << 20), true),
        ]
    );
    assert_eq!(machine.distances().origin, DistanceOrigin::Firmware);
    assert_eq!((machine.distance(0, 1), machine.distance(1, 0)), (21, 20));
    assert_eq!(machine.cores().len(), 4);
    assert_eq!(machine.l2s().len(), 4);
    assert_eq!(machine.l3s().len(), 2);
    assert_eq!(machine.l3s()[1].cpus, [8, 10, 11]);
    assert_eq!(machine.l3s()[1].size_bytes, Some(32 << 20));
    assert_eq!(
        shown(&machine),
        [
            "0@0: l3 10 [1] remote 21 [2, 3, 4]",
            "2@0: l3 10 [0] remote 21 [2, 3, 4]",
            "8@2: l3 10 [3, 4] remote 20 [0, 1]",
            "10@2: smt 10 [4] l3 10 [2] remote 20 [0, 1]",
            "11@2: smt 10 [3] l3 10 [2] remote 20 [0, 1]",
        ]
    );
    assert_eq!(Topology::from_json(&machine.to_json()).unwrap(), machine);
}

#[test]
fn a_kernel_that_says_next_to_nothing() {
    let dir = Dir::new();
    // No lists, no topology, no caches, no nodes: CPUs are folders, CPU 1 is switched off.
    dir.write("sys/devices/system/cpu/cpu0/uevent", "");
    dir.write("sys/devices/system/cpu/cpu1/online", "0\n");
    dir.write("sys/devices/system/cpu/cpu2/online", "1\n");
    dir.write("sys/devices/system/cpu/cpufreq/policy", "");
    dir.write("proc/meminfo", "MemTotal: 8 kB\nMemFree: 4 kB\n");
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!(machine.allowed_cpus(), [0, 2]);
    assert_eq!(machine.nodes().len(), 1);
    assert_eq!(machine.nodes()[0].memory_bytes, 8192);
    assert_eq!((machine.packages().len(), machine.cores().len()), (1, 2));
    assert_eq!((machine.l2s().len(), machine.l3s().len()), (0, 0));
    assert_eq!(machine.distances().origin, DistanceOrigin::Assumed);
    assert_eq!(shown(&machine), ["0@0: node 10 [1]", "2@0: node 10 [0]"]);
}

#[test]
fn a_cpu_without_a_node_goes_where_its_package_is() {
    let dir = Dir::new();
    dir.write("sys/devices/system/cpu/online", "0-3\n");
    for cpu in 0..4 {
        add_cpu(
            &dir,
            cpu,
            cpu as u32 / 2,
            &cpu.to_string(),
            &cpu.to_string(),
        );
    }
    add_node(&dir, 0, "0-1", 64, "10 20");
    add_node(&dir, 1, "2", 64, "20 10");
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!(machine.nodes()[1].cpus, [2, 3]);
}

#[test]
fn a_core_in_two_packages_is_two_cores() {
    let dir = Dir::new();
    dir.write("sys/devices/system/cpu/online", "0-1\n");
    add_cpu(&dir, 0, 0, "0-1", "0-1");
    add_cpu(&dir, 1, 1, "0-1", "0-1");
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!((machine.packages().len(), machine.cores().len()), (2, 2));
    assert_eq!(shown(&machine), ["0@0: l2 10 [1]", "1@0: l2 10 [0]"]);
}

#[test]
fn several_nodes_with_the_same_cpus_are_one_for_ps() {
    let dir = Dir::new();
    // As with numa=fake=2: memory is split, CPUs are not.
    dir.write("sys/devices/system/cpu/online", "0-1\n");
    add_cpu(&dir, 0, 0, "0", "0-1");
    add_cpu(&dir, 1, 0, "1", "0-1");
    add_node(&dir, 0, "0-1", 64, "10 10");
    add_node(&dir, 1, "0-1", 64, "10 10");
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!(machine.nodes()[0].cpus, [0, 1]);
    assert!(machine.nodes()[1].cpus.is_empty());
    assert_eq!(shown(&machine), ["0@0: l3 10 [1]", "1@0: l3 10 [0]"]);
}

#[test]
fn nonsense_distances_are_replaced() {
    for distance in ["10", "0 0", "10 255", "20 10", "ten twenty"] {
        let dir = Dir::new();
        dir.write("sys/devices/system/cpu/online", "0\n");
        add_node(&dir, 0, "0", 64, distance);
        add_node(&dir, 1, "", 64, "20 10");
        let machine = Topology::from_sysfs(dir.path()).unwrap();
        assert_eq!(
            machine.distances().origin,
            DistanceOrigin::Assumed,
            "{distance}"
        );
        assert_eq!(machine.distances().rows, [[10, 20], [20, 10]]);
    }
}

#[test]
fn no_cpus_is_an_error() {
    let dir = Dir::new();
    assert!(matches!(
        Topology::from_sysfs(dir.path()),
        Err(Error::Io { .. })
    ));
    dir.write("sys/devices/system/cpu/online", "zero\n");
    let error = Topology::from_sysfs(dir.path()).unwrap_err().to_string();
    assert!(
        error.ends_with("sys/devices/system/cpu/online: not a list of CPUs"),
        "{error}"
    );
}

/// hwloc and the kernel's files agree on this machine, up to what moves or has no common number.
#[test]
fn two_readers_agree_on_this_machine() {
    let (ours, theirs) = (
        Topology::from_sysfs("/").unwrap(),
        Topology::detect().unwrap(),
    );
    assert_eq!(*theirs.source(), Source::ThisMachine);
    assert_eq!(ours.source(), theirs.source());
    assert_eq!(ours.pus(), theirs.pus());
    assert_eq!(ours.offline_cpus(), theirs.offline_cpus());
    assert_eq!(ours.distances(), theirs.distances());
    let nodes = |machine: &Topology| {
        let nodes = machine.nodes().iter();
        nodes
            .map(|n| (n.os_id, n.cpus.clone(), n.memory_bytes, n.has_memory))
            .collect::<Vec<_>>()
    };
    assert_eq!(nodes(&ours), nodes(&theirs));
}

#[test]
fn this_machine_survives_json() {
    let machine = Topology::detect().unwrap();
    assert!(!machine.allowed_cpus().is_empty());
    let read = Topology::from_json(&machine.to_json()).unwrap();
    assert_eq!(*read.source(), Source::Recorded);
    assert_eq!(read.pus(), machine.pus());
    assert_eq!(read, Topology::from_json(&read.to_json()).unwrap());
}

#[test]
fn kinds_of_cores_and_isolated_cpus() {
    let dir = Dir::new();
    dir.write("sys/devices/system/cpu/present", "0-3\n");
    dir.write("sys/devices/system/cpu/online", "0-3\n");
    dir.write("sys/devices/system/cpu/isolated", "3,7\n");
    add_cpu(&dir, 0, 0, "0-1", "0-3");
    add_cpu(&dir, 1, 0, "0-1", "0-3");
    add_cpu(&dir, 2, 0, "2", "0-3");
    add_cpu(&dir, 3, 0, "3", "0-3");
    let performance = || {
        let machine = Topology::from_sysfs(dir.path()).unwrap();
        let cores = machine.cores().iter();
        cores.map(|core| core.performance).collect::<Vec<_>>()
    };
    assert_eq!(performance(), [0, 0, 0]);
    // Arm says how much work a core does.
    for (cpu, capacity) in [(0, 1024), (1, 1024), (2, 446), (3, 750)] {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/cpu_capacity");
        dir.write(&path, &format!("{capacity}\n"));
    }
    assert_eq!(performance(), [2, 0, 1]);
    // Intel has performance counters of its own for each kind.
    dir.write("sys/devices/cpu_core/cpus", "0-1\n");
    dir.write("sys/devices/cpu_atom/cpus", "2-3\n");
    assert_eq!(performance(), [1, 0, 0]);

    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!(machine.isolated_cpus(), [3]);
    assert_eq!(machine.limits(), None);
}

#[test]
fn old_recordings_have_masks() {
    let dir = Dir::new();
    for cpu in [0, 1, 2, 3] {
        let at = |name: &str| format!("sys/devices/system/cpu/cpu{cpu}/{name}");
        let core = if cpu < 2 { "3\n" } else { "0000000c\n" };
        dir.write(&at("topology/thread_siblings"), core);
        dir.write(&at("topology/core_siblings"), "f\n");
        dir.write(&at("cache/index0/level"), "3\n");
        dir.write(&at("cache/index0/shared_cpu_map"), core);
    }
    dir.write("sys/devices/system/node/node0/cpumap", "00000003\n\0");
    // A list that is no list is as good as none.
    dir.write("sys/devices/system/node/node1/cpulist", "no list");
    dir.write("sys/devices/system/node/node1/cpumap", "0000000c\n");
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!(
        shown(&machine),
        [
            "0@0: smt 10 [1] remote 20 [2, 3]",
            "1@0: smt 10 [0] remote 20 [2, 3]",
            "2@1: smt 10 [3] remote 20 [0, 1]",
            "3@1: smt 10 [2] remote 20 [0, 1]",
        ]
    );
    assert_eq!((machine.packages().len(), machine.l3s().len()), (1, 2));
}

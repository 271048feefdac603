//! Machines read from a made-up `/sys`, and this machine read twice.

use windlass_topology::{
    DistanceOrigin, Error, Source, Topology,
    render::{self, Paint},
};

use crate::util::{Dir, shown};

mod util;

#[test]
fn sparse_ids_offline_cpus_and_odd_nodes() {
    let dir = Dir::new();
    // CPUs 1, 3 and 9 are offline; node 2 has CPUs and no memory, node 5 memory and no CPUs.
    dir.write("sys/devices/system/cpu/present", "0-3,8-11\n");
    dir.write("sys/devices/system/cpu/online", "0,2,8,10-11\n");
    dir.cpu(0, 0, "0-1", "0-1", "0-3");
    dir.cpu(2, 0, "2-3", "2-3", "0-3");
    dir.cpu(8, 1, "8-9", "8-9", "8-11");
    dir.cpu(10, 1, "10-11", "10-11", "8-11");
    dir.cpu(11, 1, "10-11", "10-11", "8-11");
    dir.write("sys/devices/system/node/online", "0,2,5\n");
    dir.node(0, "0,2", 1024, "10 21 17");
    dir.node(2, "8,10-11", 0, "20 10 28");
    dir.node(5, "", 4096, "17 28 10");

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
        let own = cpu.to_string();
        dir.cpu(cpu, cpu as u32 / 2, &own, &own, &own);
    }
    dir.node(0, "0-1", 64, "10 20");
    dir.node(1, "2", 64, "20 10");
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!(machine.nodes()[1].cpus, [2, 3]);
}

#[test]
fn a_core_in_two_packages_is_two_cores() {
    let dir = Dir::new();
    dir.write("sys/devices/system/cpu/online", "0-1\n");
    dir.cpu(0, 0, "0-1", "0-1", "0-1");
    dir.cpu(1, 1, "0-1", "0-1", "0-1");
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!((machine.packages().len(), machine.cores().len()), (2, 2));
    assert_eq!(shown(&machine), ["0@0: l2 10 [1]", "1@0: l2 10 [0]"]);
}

#[test]
fn a_cache_whose_list_lacks_its_cpu_is_its_own() {
    let dir = Dir::new();
    dir.write("sys/devices/system/cpu/online", "0-2\n");
    for cpu in 0..3 {
        let own = cpu.to_string();
        dir.cpu(cpu, 0, &own, &own, "0-1");
    }
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    let l3s: Vec<_> = machine.l3s().iter().map(|l3| l3.cpus.clone()).collect();
    assert_eq!(l3s, [vec![0, 1], vec![2]]);
}

#[test]
fn several_nodes_with_the_same_cpus_are_one_for_ps() {
    let dir = Dir::new();
    // As with numa=fake=2: memory is split, CPUs are not.
    dir.write("sys/devices/system/cpu/online", "0-1\n");
    dir.cpu(0, 0, "0", "0", "0-1");
    dir.cpu(1, 0, "1", "1", "0-1");
    dir.node(0, "0-1", 64, "10 10");
    dir.node(1, "0-1", 64, "10 10");
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!(machine.nodes()[0].cpus, [0, 1]);
    assert!(machine.nodes()[1].cpus.is_empty());
    assert_eq!(shown(&machine), ["0@0: l3 10 [1]", "1@0: l3 10 [0]"]);
}

/// Two nodes, the second without CPUs, and what the first says of distances.
fn two_nodes(distance: &str) -> Topology {
    let dir = Dir::new();
    dir.write("sys/devices/system/cpu/online", "0\n");
    dir.node(0, "0", 64, distance);
    dir.node(1, "", 64, "20 10");
    Topology::from_sysfs(dir.path()).unwrap()
}

#[test]
fn nonsense_distances_are_refused_aloud() {
    for (distance, reason) in [
        ("10", "row 0 has 1 values for 2 nodes"),
        (
            "0 0",
            "1 of 1 values between nodes with CPUs are wrong, 0 from node 0 to node 0",
        ),
        ("ten twenty", "1 of 1 values between nodes with CPUs"),
    ] {
        let machine = two_nodes(distance);
        let distances = machine.distances();
        assert_eq!(distances.origin, DistanceOrigin::Assumed, "{distance}");
        assert_eq!(distances.rows, [[10, 20], [20, 10]]);
        let note = distances.note.as_deref().unwrap();
        let text = format!("the firmware's distances were refused: {reason}");
        assert!(note.starts_with(&text), "{note}");
        let shown = render::distances(&machine, Paint::Plain);
        assert!(shown.ends_with(&format!("{note}\n")), "{shown}");
    }
    // No word about distances is not a wrong word.
    let dir = Dir::new();
    dir.write("sys/devices/system/cpu/online", "0\n");
    dir.write("sys/devices/system/node/node0/cpulist", "0\n");
    dir.write("sys/devices/system/node/node1/cpulist", "\n");
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!(machine.distances().origin, DistanceOrigin::Assumed);
    assert_eq!(machine.distances().note, None);
}

#[test]
fn single_wrong_distances_are_replaced() {
    for (distance, row, replaced) in [
        ("10 0", [10, 20], "0 from node 0 to node 1"),
        ("10 999", [10, 20], "999 from node 0 to node 1"),
        ("21 10", [21, 21], "10 from node 0 to node 1"),
    ] {
        let machine = two_nodes(distance);
        let distances = machine.distances();
        assert_eq!(distances.origin, DistanceOrigin::Firmware, "{distance}");
        assert_eq!(distances.rows, [row, [20, 10]], "{distance}");
        let note = format!("1 of the firmware's 4 values replaced, {replaced}");
        assert_eq!(distances.note, Some(note));
    }
    let machine = two_nodes("10 255");
    assert_eq!(machine.distances().rows, [[10, 255], [20, 10]]);
    assert_eq!(machine.distances().note, None);
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
    dir.cpu(0, 0, "0-1", "0-1", "0-3");
    dir.cpu(1, 0, "0-1", "0-1", "0-3");
    dir.cpu(2, 0, "2", "2", "0-3");
    dir.cpu(3, 0, "3", "3", "0-3");
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

/// Eight CPUs, as `hwloc-gather-topology` would copy them.
fn eight_cpus() -> Dir {
    let dir = Dir::new();
    dir.write("sys/devices/system/cpu/online", "0-7\n");
    for cpu in 0..8 {
        let own = cpu.to_string();
        dir.cpu(cpu, 0, &own, &own, "0-7");
    }
    dir
}

#[test]
fn the_cpuset_of_a_dump_holds() {
    // cgroup v1: the group's folder, mounts as in /proc/mounts.
    let dir = eight_cpus();
    dir.write(
        "proc/mounts",
        "proc /proc proc rw 0 0\ncgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n",
    );
    dir.write("proc/self/cgroup", "3:cpuset:/job\n2:memory:/\n");
    dir.write("sys/fs/cgroup/cpuset/cpuset.cpus", "0-7\n");
    dir.write("sys/fs/cgroup/cpuset/job/cpuset.cpus", "2-3,6\n");
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!(machine.allowed_cpus(), [2, 3, 6]);
    assert_eq!(machine.limits().unwrap().cpuset, Some(vec![2, 3, 6]));
    // The file that is written keeps it, without the name of the group.
    assert!(!machine.to_json().contains("job"));
    let read = Topology::from_json(&machine.to_json()).unwrap();
    assert_eq!(read.allowed_cpus(), [2, 3, 6]);

    // Before cgroups: a file system of its own, the group in /proc/self/cpuset.
    let dir = eight_cpus();
    dir.write("proc/mounts", "none /dev/cpuset cpuset rw 0 0\n");
    dir.write("proc/self/cpuset", "/job\n");
    dir.write("dev/cpuset/job/cpus", "1\n");
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!(machine.allowed_cpus(), [1]);

    // cgroup v2, with a quota.
    let dir = eight_cpus();
    dir.write("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
    dir.write("proc/self/cgroup", "0::/job\n");
    dir.write("sys/fs/cgroup/job/cpuset.cpus.effective", "0-4\n");
    dir.write("sys/fs/cgroup/job/cpu.max", "250000 100000\n");
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!(machine.allowed_cpus(), [0, 1, 2, 3, 4]);
    assert_eq!(windlass_topology::default_processors(&machine), 3);

    // A list without any of the CPUs belongs to another machine.
    dir.write("sys/fs/cgroup/job/cpuset.cpus.effective", "64-71\n");
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!(machine.allowed_cpus().len(), 8);
}

#[test]
fn the_tree_has_models_and_level_1_caches() {
    let dir = Dir::new();
    dir.write("sys/devices/system/cpu/online", "0-1\n");
    dir.cpu(0, 0, "0", "0", "0-1");
    dir.cpu(1, 0, "1", "1", "0-1");
    dir.write(
        "proc/cpuinfo",
        "processor\t: 0\nmodel name\t: AMD Ryzen  Threadripper 3960X\ncpu MHz\t: 1\n\n\
         processor\t: 1\nmodel name\t: AMD Ryzen  Threadripper 3960X\n",
    );
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    let tree = render::tree(&machine, Paint::Plain);
    assert!(
        tree.contains("package 0: AMD Ryzen Threadripper 3960X\n"),
        "{tree}"
    );
    assert!(
        tree.contains("core 0, L1d 48.0 KiB, L1i 32.0 KiB: CPU 0\n"),
        "{tree}"
    );
    assert_eq!(Topology::from_json(&machine.to_json()).unwrap(), machine);
    // POWER has another word for it.
    dir.write(
        "proc/cpuinfo",
        "processor\t: 1\ncpu\t\t: POWER9, altivec supported\n",
    );
    let machine = Topology::from_sysfs(dir.path()).unwrap();
    let model = machine.packages()[0].model.as_deref();
    assert_eq!(model, Some("POWER9, altivec supported"));
}

//! CPUs that are left by made-up cgroups, masks and boot options.

use windlass_topology::limits::{
    Cap, CpuLimits, cpu_limits, cpu_limits_below, cpu_quota_below, memory_pressure_file_below,
};

use crate::util::Dir;

mod util;

const V2_MOUNT: &str = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

#[test]
fn v2_takes_the_least_on_the_way_up() {
    let dir = Dir::new();
    dir.write("proc/self/cgroup", "0::/shop/till\n");
    dir.write("proc/self/mountinfo", V2_MOUNT);
    assert_eq!(cpu_quota_below(dir.path()), None);
    dir.write("sys/fs/cgroup/shop/till/cpu.max", "max 100000\n");
    assert_eq!(cpu_quota_below(dir.path()), None);
    dir.write("sys/fs/cgroup/shop/cpu.max", "250000 100000\n");
    assert_eq!(cpu_quota_below(dir.path()), Some(2.5));
    dir.write("sys/fs/cgroup/shop/till/cpu.max", "400000 100000\n");
    assert_eq!(cpu_quota_below(dir.path()), Some(2.5));
    dir.write("sys/fs/cgroup/shop/till/cpu.max", "50000\n");
    assert_eq!(cpu_quota_below(dir.path()), Some(0.5));
}

#[test]
fn pressure_is_that_of_the_nearest_group_and_else_of_the_system() {
    let dir = Dir::new();
    dir.write("proc/self/cgroup", "0::/shop/till\n");
    dir.write("proc/self/mountinfo", V2_MOUNT);
    let found = || memory_pressure_file_below(dir.path());
    assert_eq!(found(), None);
    for file in [
        "proc/pressure/memory",
        "sys/fs/cgroup/shop/memory.pressure",
        "sys/fs/cgroup/shop/till/memory.pressure",
    ] {
        dir.write(file, "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
        assert_eq!(found(), Some(dir.path().join(file)));
    }
}

#[test]
fn v1_where_the_cpu_controller_is() {
    let dir = Dir::new();
    dir.write(
        "proc/self/cgroup",
        "5:memory:/\n4:cpu,cpuacct:/a\\b\n0::/\n",
    );
    dir.write(
        "proc/self/mountinfo",
        "30 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
         31 23 0:28 / /sys/fs/cgroup/my\\040cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n",
    );
    let group = "sys/fs/cgroup/my cpu/a\\b";
    dir.write(&format!("{group}/cpu.cfs_quota_us"), "-1\n");
    dir.write(&format!("{group}/cpu.cfs_period_us"), "100000\n");
    assert_eq!(cpu_quota_below(dir.path()), None);
    dir.write(&format!("{group}/cpu.cfs_quota_us"), "150000\n");
    assert_eq!(cpu_quota_below(dir.path()), Some(1.5));
    dir.write("sys/fs/cgroup/my cpu/cpu.cfs_quota_us", "100000\n");
    dir.write("sys/fs/cgroup/my cpu/cpu.cfs_period_us", "100000\n");
    assert_eq!(cpu_quota_below(dir.path()), Some(1.0));
}

#[test]
fn a_container_sees_its_own_group_at_the_mount_point() {
    let dir = Dir::new();
    dir.write(
        "proc/self/mountinfo",
        "31 23 0:28 /docker/abc /sys/fs/cgroup ro - cgroup2 none rw\n",
    );
    dir.write("sys/fs/cgroup/cpu.max", "300000 100000\n");
    dir.write("sys/fs/cgroup/in/cpu.max", "200000 100000\n");
    for (group, quota) in [
        ("/docker/abc", 3.0),
        ("/docker/abc/in", 2.0),
        ("/elsewhere", 3.0),
        ("/../in", 3.0),
    ] {
        dir.write("proc/self/cgroup", &format!("0::{group}\n"));
        assert_eq!(cpu_quota_below(dir.path()), Some(quota), "{group}");
    }
}

#[test]
fn the_root_of_a_cgroup_namespace_hides_what_is_above() {
    let dir = Dir::new();
    dir.write("proc/self/cgroup", "0::/../../in\n");
    dir.write("proc/self/mountinfo", V2_MOUNT);
    dir.write("sys/fs/cgroup/cpu.max", "100000 100000\n");
    dir.write("in/cpu.max", "1 100000\n");
    assert_eq!(cpu_quota_below(dir.path()), Some(1.0));
}

#[test]
fn nonsense_is_no_quota() {
    for text in [
        "",
        "max",
        "0 100000",
        "-5 100000",
        "100000 0",
        "inf 100000",
        "NaN 1",
        "100000 inf",
        "a b",
    ] {
        let dir = Dir::new();
        dir.write("proc/self/cgroup", "garbage\n0::/\n");
        dir.write("proc/self/mountinfo", &format!("garbage\n{V2_MOUNT}"));
        dir.write("sys/fs/cgroup/cpu.max", text);
        assert_eq!(cpu_quota_below(dir.path()), None, "{text:?}");
    }
    assert_eq!(cpu_quota_below(Dir::new().path()), None);
}

#[test]
fn cpuset_and_mask_and_quota_each_take_their_share() {
    let dir = Dir::new();
    dir.write("sys/devices/system/cpu/online", "0-7\n");
    dir.write("proc/self/cgroup", "0::/shop/till\n");
    dir.write("proc/self/mountinfo", V2_MOUNT);
    let limits = || cpu_limits_below(dir.path(), Some((0..8).collect()));
    assert_eq!((limits().processors(), limits().cap()), (8, Cap::Online));

    dir.write("sys/fs/cgroup/shop/cpuset.cpus.effective", "0-5\n");
    assert_eq!((limits().processors(), limits().cap()), (6, Cap::Cpuset));
    assert_eq!(limits().cpuset_group.as_deref(), Some("/shop"));
    // The nearest group with a list has the say; an empty list is none.
    dir.write("sys/fs/cgroup/shop/till/cpuset.cpus.effective", "\n");
    assert_eq!(limits().processors(), 6);
    dir.write("sys/fs/cgroup/shop/till/cpuset.cpus.effective", "2-5\n");
    assert_eq!(limits().allowed(), [2, 3, 4, 5]);

    let masked = cpu_limits_below(dir.path(), Some(vec![0, 2, 3, 4]));
    assert_eq!(masked.allowed(), [2, 3, 4]);
    assert_eq!(masked.cap(), Cap::Affinity);

    dir.write("sys/devices/system/cpu/isolated", "4-5\n");
    assert_eq!((limits().processors(), limits().cap()), (2, Cap::Isolated));
    let on_isolated = cpu_limits_below(dir.path(), Some(vec![4, 5]));
    assert_eq!(on_isolated.processors(), 2);
    dir.write("sys/devices/system/cpu/isolated", "\n");

    dir.write("sys/fs/cgroup/shop/cpu.max", "250000 100000\n");
    assert_eq!((limits().processors(), limits().cap()), (3, Cap::Quota));
    assert_eq!(limits().quota_group.as_deref(), Some("/shop"));
    dir.write("sys/fs/cgroup/shop/cpu.max", "10000 100000\n");
    assert_eq!(limits().processors(), 2);
}

#[test]
fn v1_has_a_hierarchy_for_each() {
    let dir = Dir::new();
    dir.write("sys/devices/system/cpu/online", "0-3\n");
    dir.write(
        "proc/self/cgroup",
        "3:cpuset:/a/b\n2:memory:/m\n1:cpu,cpuacct:/c\n",
    );
    let mounts: String = [("cpuset", 1), ("memory", 2), ("cpu", 3)]
        .map(|(name, id)| {
            format!("{id} 9 0:{id} / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}\n")
        })
        .concat();
    dir.write("proc/self/mountinfo", &mounts);
    dir.write("sys/fs/cgroup/cpuset/a/b/cpuset.cpus", "1-2\n");
    dir.write("sys/fs/cgroup/cpuset/a/cpuset.cpus", "0-2\n");
    dir.write(
        "sys/fs/cgroup/memory/m/memory.limit_in_bytes",
        "9223372036854771712\n",
    );
    dir.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");
    dir.write("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "50000\n");
    dir.write("sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
    let limits = cpu_limits_below(dir.path(), None);
    assert_eq!(limits.allowed(), [1, 2]);
    assert_eq!(limits.cpuset_group.as_deref(), Some("/a/b"));
    assert_eq!(limits.memory_bytes, Some(1 << 20));
    assert_eq!(limits.quota, Some(0.5));
    assert_eq!(limits.quota_group.as_deref(), Some("/c"));
    // Half a CPU of two: two processors, so the cpuset is what caps.
    assert_eq!((limits.processors(), limits.cap()), (2, Cap::Cpuset));
}

#[test]
fn names_of_groups_are_left_out_of_recordings() {
    let limits = CpuLimits {
        cpuset_group: Some("/secret".into()),
        quota_group: Some("/project".into()),
        quota: Some(1.5),
        ..CpuLimits::default()
    };
    let json = serde_json::to_string(&limits.clone().anonymous()).unwrap();
    assert!(
        !json.contains("secret") && !json.contains("project"),
        "{json}"
    );
    let read: CpuLimits = serde_json::from_str(&json).unwrap();
    assert_eq!(read.quota, Some(1.5));
}

#[test]
fn this_process_has_a_processor() {
    let limits = cpu_limits();
    assert!(limits.processors() >= 1);
    assert!(!limits.allowed().is_empty());
    assert_eq!(limits.steps().last().unwrap().1, limits.processors());
}

//! CPU quotas of made-up cgroups.

use windlass_topology::quota::cpu_quota_below;

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

//! Findings of the doctor for made-up hosts.

use windlass_topology::{
    Topology,
    doctor::{Finding, Host, Operation, Rlimit, Status, Uring, examine, examine_elsewhere},
};

use crate::util::{Dir, recorded, synthetic};

mod util;

fn operation(name: &'static str, is_required: bool, is_supported: bool) -> Operation {
    Operation {
        name,
        since: "5.6",
        is_required,
        is_supported,
    }
}

type Spoil = Box<dyn Fn(&mut Host)>;

/// A host on which nothing is amiss.
fn healthy() -> Host {
    let many = Some(Rlimit {
        soft: Some(1 << 20),
        hard: Some(1 << 20),
    });
    Host {
        kernel: "6.13.1-generic".to_owned(),
        uring: Uring {
            error: None,
            operations: vec![
                operation("recv", true, true),
                operation("splice", false, true),
            ],
        },
        uring_disabled: Some(0),
        seccomp: false,
        cap_sys_nice: true,
        max_map_count: Some(65530),
        overcommit_memory: Some(0),
        numa_balancing: Some(0),
        thp: Some("madvise".to_owned()),
        swap_bytes: Some(1 << 30),
        swap_limit: None,
        memlock: Some(Rlimit {
            soft: None,
            hard: None,
        }),
        nofile: many,
        nproc: many,
        clocksource: Some("tsc".to_owned()),
        vulnerabilities: Vec::new(),
        guard_install: true,
        membarrier: true,
        mbind: true,
    }
}

/// The finding about one thing on this host and machine.
fn about(check: &str, host: &Host, machine: &Topology) -> Finding {
    let findings = examine(host, machine);
    findings
        .into_iter()
        .find(|finding| finding.check == check)
        .unwrap()
}

#[test]
fn a_healthy_host_has_nothing_to_improve() {
    let mut machine = recorded("container.json");
    machine = machine.restrict_to_cpus(&[0, 1]).unwrap();
    for finding in examine(&healthy(), &machine) {
        let allowed = match finding.check {
            "quota" => Status::Warning, // 3.5 CPUs are no whole number
            _ => Status::Good,
        };
        assert!(finding.status <= allowed, "{finding:?}");
    }
}

#[test]
fn each_fault_is_found_and_has_a_cure() {
    let two_nodes = synthetic("numa:2 pu:2");
    let cases: Vec<(&str, Status, &str, Spoil)> = vec![
        (
            "kernel",
            Status::Failure,
            "5.15.0 is too old",
            Box::new(|host| {
                host.kernel = "5.15.0".to_owned();
            }),
        ),
        (
            "kernel",
            Status::Warning,
            "older than what",
            Box::new(|host| {
                host.kernel = "6.0.0".to_owned();
            }),
        ),
        (
            "kernel",
            Status::Note,
            "eventfd",
            Box::new(|host| {
                host.kernel = "6.1.0-18-amd64".to_owned();
            }),
        ),
        (
            "io_uring",
            Status::Failure,
            "Operation not permitted",
            Box::new(|host| {
                host.uring.error = Some("Operation not permitted".to_owned());
                host.uring_disabled = Some(2);
            }),
        ),
        (
            "operations",
            Status::Failure,
            "lacks recv",
            Box::new(|host| {
                host.uring.operations[0].is_supported = false;
            }),
        ),
        (
            "more operations",
            Status::Note,
            "lacks splice",
            Box::new(|host| {
                host.uring.operations[1].is_supported = false;
            }),
        ),
        (
            "max_map_count",
            Status::Warning,
            "each stack costs two",
            Box::new(|host| {
                host.guard_install = false;
            }),
        ),
        (
            "overcommit",
            Status::Warning,
            "counts in full",
            Box::new(|host| {
                host.overcommit_memory = Some(2);
            }),
        ),
        (
            "mbind",
            Status::Warning,
            "first touch",
            Box::new(|host| host.mbind = false),
        ),
        (
            "numa_balancing",
            Status::Warning,
            "page faults",
            Box::new(|host| {
                host.numa_balancing = Some(1);
            }),
        ),
        (
            "thp",
            Status::Note,
            "always",
            Box::new(|host| {
                host.thp = Some("always".to_owned());
            }),
        ),
        (
            "swap",
            Status::Note,
            "none",
            Box::new(|host| host.swap_bytes = Some(0)),
        ),
        (
            "swap",
            Status::Note,
            "this cgroup may not use it",
            Box::new(|host| host.swap_limit = Some(0)),
        ),
        (
            "memlock",
            Status::Note,
            "64 KiB",
            Box::new(|host| {
                host.memlock = Some(Rlimit {
                    soft: Some(64 << 10),
                    hard: None,
                });
            }),
        ),
        (
            "nofile",
            Status::Warning,
            "1024 open files (unlimited at most)",
            Box::new(|host| {
                host.nofile = Some(Rlimit {
                    soft: Some(1024),
                    hard: None,
                });
            }),
        ),
        (
            "nproc",
            Status::Warning,
            "512 threads",
            Box::new(|host| {
                host.nproc = Some(Rlimit {
                    soft: Some(512),
                    hard: None,
                });
            }),
        ),
        (
            "cap_sys_nice",
            Status::Note,
            "missing",
            Box::new(|host| host.cap_sys_nice = false),
        ),
        (
            "clock",
            Status::Warning,
            "hpet",
            Box::new(|host| {
                host.clocksource = Some("hpet".to_owned());
            }),
        ),
    ];
    for (check, status, found, spoil) in cases {
        let mut host = healthy();
        spoil(&mut host);
        let finding = about(check, &host, &two_nodes);
        assert_eq!(finding.status, status, "{finding:?}");
        assert!(finding.found.contains(found), "{finding:?}");
        assert!(finding.cure.is_some(), "{finding:?}");
    }
}

#[test]
fn the_cure_fits_the_cause() {
    let machine = synthetic("pu:1");
    let mut host = healthy();
    host.uring.error = Some("Operation not permitted".to_owned());
    let cure = |host: &Host| about("io_uring", host, &machine).cure.unwrap();
    assert!(cure(&host).contains("Linux 5.19"));
    host.seccomp = true;
    assert!(cure(&host).contains("seccomp profile"));
    host.uring_disabled = Some(1);
    assert_eq!(cure(&host), "sysctl kernel.io_uring_disabled=0");
    // Without a ring nothing is known of operations.
    assert_eq!(about("operations", &host, &machine).status, Status::Note);
}

#[test]
fn one_node_needs_no_numa_settings() {
    let mut host = healthy();
    host.numa_balancing = Some(1);
    host.mbind = false;
    let machine = synthetic("core:4 pu:1");
    assert_eq!(
        about("numa_balancing", &host, &machine).status,
        Status::Good
    );
    assert_eq!(about("mbind", &host, &machine).status, Status::Note);
}

#[test]
fn isolated_cpus_are_told_from_lost_ones() {
    let machine = recorded("container.json");
    let finding = |cpus: &[usize]| {
        about(
            "isolcpus",
            &healthy(),
            &machine.restrict_to_cpus(cpus).unwrap(),
        )
    };
    assert!(
        finding(&[0, 6, 7])
            .found
            .contains("6-7: allowed, but left without Ps")
    );
    assert!(
        finding(&[6, 7])
            .found
            .contains("all allowed CPUs are isolated")
    );
    assert_eq!(finding(&[0, 1]).status, Status::Good);
}

#[test]
fn a_quota_of_a_fraction_is_worth_a_warning() {
    let finding = about("quota", &healthy(), &recorded("container.json"));
    assert_eq!(finding.status, Status::Warning);
    assert!(
        finding.found.contains("3.5 CPUs for 4 processors"),
        "{finding:?}"
    );
}

/// The same checks in the same order; those of the machine say the same as there.
#[test]
fn elsewhere_the_machine_is_judged_and_the_host_is_not() {
    let machine = recorded("container.json");
    let there = examine(&healthy(), &machine);
    let here = examine_elsewhere(&machine);
    assert_eq!(here.len(), there.len());
    let of_the_machine = ["memory", "distances", "devices", "isolcpus", "quota"];
    for (here, there) in here.iter().zip(&there) {
        assert_eq!(here.check, there.check);
        match of_the_machine.contains(&here.check) {
            true => assert_eq!(here, there),
            false => assert_eq!(here.status, Status::Unknown, "{here:?}"),
        }
    }
    // Of a machine that was described nobody knows a quota.
    let described = examine_elsewhere(&synthetic("numa:2 pu:1"));
    let quota = described.iter().find(|finding| finding.check == "quota");
    assert_eq!(quota.unwrap().status, Status::Unknown);
}

#[test]
fn nodes_without_memory_and_devices_without_a_node_are_told() {
    let dir = Dir::new();
    dir.write("sys/devices/system/cpu/online", "0-1\n");
    dir.node(0, "0", 64, "10 20");
    dir.node(1, "1", 0, "20 10");
    let machine = || Topology::from_sysfs(dir.path()).unwrap();
    let memory = about("memory", &healthy(), &machine());
    assert_eq!(memory.status, Status::Note);
    assert!(memory.found.contains("none on node 1:"), "{memory:?}");

    dir.pci("0000:01:00.0", "0x020000", "1", "1");
    let devices = about("devices", &healthy(), &machine());
    assert_eq!(
        (devices.status, devices.found.as_str()),
        (Status::Good, "1, each on a known node")
    );
    dir.pci("0000:02:00.0", "0x030000", "-1", "0-1");
    let devices = about("devices", &healthy(), &machine());
    assert_eq!(devices.status, Status::Note);
    assert!(
        devices.found.ends_with("no node for 0000:02:00.0"),
        "{devices:?}"
    );
}

#[test]
fn a_limit_on_swap_is_named_beside_its_size() {
    let mut host = healthy();
    host.swap_limit = Some(512 << 20);
    let swap = about("swap", &host, &synthetic("core:2 pu:1"));
    assert_eq!(swap.found, "1024 MiB, 512 MiB for this cgroup");
}

#[test]
fn facts_come_from_files() {
    let dir = Dir::new();
    dir.write("proc/sys/kernel/osrelease", "6.12.9-amd64\n");
    dir.write("proc/sys/kernel/io_uring_disabled", "1\n");
    dir.write("proc/sys/vm/max_map_count", "65530\n");
    dir.write(
        "proc/self/status",
        "Name:\tx\nCapEff:\t0000000000800000\nSeccomp:\t2\nSeccomp_filters:\t1\n",
    );
    dir.write(
        "proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n\
         Max open files            1024                 524288               files     \n\
         Max locked memory         unlimited            unlimited            bytes     \n",
    );
    dir.write(
        "sys/kernel/mm/transparent_hugepage/enabled",
        "always [madvise] never\n",
    );
    let weakness = "sys/devices/system/cpu/vulnerabilities";
    dir.write(&format!("{weakness}/meltdown"), "Not affected\n");
    dir.write(&format!("{weakness}/spectre_v1"), "Mitigation: usercopy\n");
    dir.write(
        "proc/meminfo",
        "MemTotal:       24737120 kB\nSwapTotal:       2097148 kB\n",
    );
    dir.write("proc/self/cgroup", "0::/shop\n");
    dir.write(
        "proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n",
    );
    dir.write("sys/fs/cgroup/shop/memory.swap.max", "1048576\n");
    let host = Host::read_files(dir.path());
    assert_eq!(host.swap_bytes, Some(2_097_148 << 10));
    assert_eq!(host.swap_limit, Some(1 << 20));
    assert_eq!(host.kernel, "6.12.9-amd64");
    assert_eq!(host.uring_disabled, Some(1));
    assert!(host.seccomp && host.cap_sys_nice);
    assert_eq!(host.max_map_count, Some(65530));
    assert_eq!(host.thp.as_deref(), Some("madvise"));
    let nofile = host.nofile.unwrap();
    assert_eq!((nofile.soft, nofile.hard), (Some(1024), Some(524_288)));
    assert_eq!(host.memlock.unwrap().soft, None);
    assert_eq!(host.nproc, None);
    assert_eq!(
        host.vulnerabilities,
        [("spectre_v1".to_owned(), "Mitigation: usercopy".to_owned())]
    );
    // A host that says nothing at all is no reason to fall over.
    let silent = Host::read_files(Dir::new().path());
    assert_eq!(silent, Host::default());
    assert!(!examine(&silent, &synthetic("pu:1")).is_empty());
}

#[test]
fn this_host_can_be_examined() {
    let findings = examine(&Host::read(), &Topology::detect().unwrap());
    for finding in findings {
        let has_cure = finding.cure.is_some();
        assert!(has_cure || finding.status < Status::Warning, "{finding:?}");
    }
}

#[test]
fn a_refused_matrix_of_distances_is_a_warning() {
    let dir = util::Dir::new();
    let machine = |first: &str, second: &str| {
        dir.write("sys/devices/system/cpu/online", "0-1\n");
        dir.node(0, "0", 64, first);
        dir.node(1, "1", 64, second);
        Topology::from_sysfs(dir.path()).unwrap()
    };
    let host = healthy();
    let good = about("distances", &host, &machine("10 40", "40 10"));
    assert_eq!(good.status, Status::Good);
    let repaired = about("distances", &host, &machine("10 40", "0 10"));
    assert_eq!(repaired.status, Status::Note);
    assert!(
        repaired.found.contains("0 from node 1 to node 0"),
        "{repaired:?}"
    );
    let refused = about("distances", &host, &machine("10 40 40", "40 10 40"));
    assert_eq!(refused.status, Status::Warning);
    assert!(refused.found.contains("were refused: row 0"), "{refused:?}");
    assert!(refused.cure.is_some());
    let silent = about("distances", &host, &synthetic("numa:2 pu:1"));
    assert_eq!(silent.status, Status::Note);
}

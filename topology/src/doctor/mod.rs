//! Whether a host is fit for windlass, and how to cure it where it is not.
//!
//! [`Host::read`] gathers facts, [`examine`] judges them: a pure function, so that tests can bring any
//! host.

mod host;
mod kernel;
mod uring;

use serde::Serialize;

pub use host::{Host, Rlimit};
pub use uring::{Operation, Uring};

use crate::{DistanceOrigin, Distances, Node, Topology, format_cpu_list};

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name, one word.
    pub check: &'static str,
    /// How it is.
    pub status: Status,
    /// The finding, and its consequences.
    pub found: String,
    /// The cure, if there is one.
    pub cure: Option<String>,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// As it should be.
    Good,
    /// The machine is elsewhere, and what is known of it does not say.
    Unknown,
    /// Worth knowing, nothing to do.
    Note,
    /// It costs speed, or will end large runs.
    Warning,
    /// windlass cannot work as it is meant to.
    Failure,
}

/// Runs all checks; the most important ones come first.
///
/// # Examples
///
/// ```
/// use windlass_topology::{Topology, doctor::{Host, Status, examine}};
///
/// let findings = examine(&Host::read(), &Topology::detect()?);
/// let failures = findings.iter().filter(|finding| finding.status == Status::Failure);
/// for failure in failures {
///     assert!(failure.cure.is_some());
/// }
/// # Ok::<(), windlass_topology::Error>(())
/// ```
#[must_use]
pub fn examine(host: &Host, topology: &Topology) -> Vec<Finding> {
    let run = |check: &Check| match check {
        Check::OfHost(check) => check(host, topology),
        Check::OfMachine(check) => check(topology),
    };
    CHECKS.iter().map(run).collect()
}

/// Runs the checks of a machine that is elsewhere, or that was described. Those that ask its kernel or a
/// process there end with [`Status::Unknown`].
///
/// # Examples
///
/// ```
/// use windlass_topology::{Topology, doctor::{Status, examine_elsewhere}};
///
/// let machine = Topology::synthetic("numa:2 core:2 pu:1")?;
/// let findings = examine_elsewhere(&machine);
/// let kernel = findings.iter().find(|finding| finding.check == "kernel").unwrap();
/// assert_eq!(kernel.status, Status::Unknown);
/// # Ok::<(), windlass_topology::Error>(())
/// ```
#[must_use]
pub fn examine_elsewhere(topology: &Topology) -> Vec<Finding> {
    let nobody = Host::default();
    let run = |check: &Check| match check {
        Check::OfHost(check) => unknown(check(&nobody, topology).check),
        Check::OfMachine(check) => check(topology),
    };
    CHECKS.iter().map(run).collect()
}

enum Check {
    OfHost(fn(&Host, &Topology) -> Finding),
    OfMachine(fn(&Topology) -> Finding),
}

const CHECKS: [Check; 23] = [
    Check::OfHost(|host, _| release(host)),
    Check::OfHost(|host, _| ring(host)),
    Check::OfHost(|host, _| required(host)),
    Check::OfHost(|host, _| optional(host)),
    Check::OfHost(|host, _| seccomp(host)),
    Check::OfHost(|host, _| guards(host)),
    Check::OfHost(|host, _| overcommit(host)),
    Check::OfHost(|host, _| membarrier(host)),
    Check::OfHost(mbind),
    Check::OfMachine(memory),
    Check::OfMachine(distances),
    Check::OfMachine(devices),
    Check::OfHost(numa_balancing),
    Check::OfHost(|host, _| thp(host)),
    Check::OfHost(|host, _| swap(host)),
    Check::OfHost(|host, _| memlock(host)),
    Check::OfHost(|host, _| nofile(host)),
    Check::OfHost(|host, _| nproc(host)),
    Check::OfMachine(isolation),
    Check::OfMachine(quota),
    Check::OfHost(|host, _| priorities(host)),
    Check::OfHost(|host, _| clock(host)),
    Check::OfHost(|host, _| mitigations(host)),
];

fn unknown(check: &'static str) -> Finding {
    finding(check, Status::Unknown, "only that host can say")
}

fn finding(check: &'static str, status: Status, found: impl Into<String>) -> Finding {
    Finding {
        check,
        status,
        found: found.into(),
        cure: None,
    }
}

impl Finding {
    fn cure(self, cure: impl Into<String>) -> Self {
        Self {
            cure: Some(cure.into()),
            ..self
        }
    }
}

fn release(host: &Host) -> Finding {
    let kernel = &host.kernel;
    match host.release() {
        (0, 0) => finding("kernel", Status::Note, "its release cannot be read"),
        version if version < (5, 19) => finding(
            "kernel",
            Status::Failure,
            format!("{kernel} is too old for the rings of a runtime"),
        )
        .cure("Linux 6.1 or later; everything is there from 6.13 on"),
        version if version < (6, 1) => finding(
            "kernel",
            Status::Warning,
            format!("{kernel} is older than what windlass is tested on"),
        )
        .cure("Linux 6.1 or later; everything is there from 6.13 on"),
        version if version < (6, 13) => finding(
            "kernel",
            Status::Note,
            format!("{kernel}: wakes go through an eventfd, guard pages cost mappings"),
        )
        .cure("Linux 6.13 or later"),
        _ => finding("kernel", Status::Good, kernel),
    }
}

fn ring(host: &Host) -> Finding {
    let Some(error) = &host.uring.error else {
        return finding("io_uring", Status::Good, "a ring can be made");
    };
    let found = format!("no ring can be made: {error}");
    let cure = match (host.uring_disabled, host.seccomp) {
        (Some(1 | 2), _) => "sysctl kernel.io_uring_disabled=0",
        (_, true) => {
            "let the container's seccomp profile allow io_uring_setup, io_uring_enter and \
             io_uring_register"
        }
        _ => "Linux 5.19 or later, built with CONFIG_IO_URING; a larger ulimit -l before 5.12",
    };
    finding("io_uring", Status::Failure, found).cure(cure)
}

fn required(host: &Host) -> Finding {
    let missing = host.uring.missing(true);
    if host.uring.error.is_some() {
        finding("operations", Status::Note, "unknown without a ring")
    } else if missing.is_empty() {
        let all = host.uring.operations.iter().filter(|op| op.is_required);
        let names: Vec<&str> = all.map(|op| op.name).collect();
        finding("operations", Status::Good, names.join(" "))
    } else {
        let found = format!("io_uring lacks {}", missing.join(" "));
        finding("operations", Status::Failure, found)
            .cure("Linux 5.19 or later, and no filter on single operations")
    }
}

fn optional(host: &Host) -> Finding {
    let missing = host.uring.missing(false);
    if host.uring.error.is_some() {
        finding("more operations", Status::Note, "unknown without a ring")
    } else if missing.is_empty() {
        let all = host.uring.operations.iter().filter(|op| !op.is_required);
        let names: Vec<&str> = all.map(|op| op.name).collect();
        finding("more operations", Status::Good, names.join(" "))
    } else {
        let found = format!(
            "io_uring lacks {}; helper threads stand in",
            missing.join(" ")
        );
        finding("more operations", Status::Note, found).cure("Linux 6.1 or later")
    }
}

fn seccomp(host: &Host) -> Finding {
    if host.seccomp {
        let found = "a filter is on this process; it may forbid single calls";
        finding("seccomp", Status::Note, found)
    } else {
        finding("seccomp", Status::Good, "no filter")
    }
}

fn guards(host: &Host) -> Finding {
    let count = host.max_map_count;
    let shown = count.map_or("unknown".to_owned(), |count| count.to_string());
    if host.guard_install {
        let found = format!("{shown} mappings; guard pages cost none");
        return finding("max_map_count", Status::Good, found);
    }
    let found = format!("{shown} mappings, and each stack costs two");
    match count {
        Some(count) if count >= 2_000_000 => finding("max_map_count", Status::Good, found),
        _ => finding("max_map_count", Status::Warning, found)
            .cure("Linux 6.13 or later, or sysctl vm.max_map_count=4000000"),
    }
}

fn overcommit(host: &Host) -> Finding {
    match host.overcommit_memory {
        Some(2) => finding(
            "overcommit",
            Status::Warning,
            "2: every stack counts in full, however little of it is used",
        )
        .cure("sysctl vm.overcommit_memory=0"),
        Some(value) => finding("overcommit", Status::Good, value.to_string()),
        None => finding("overcommit", Status::Note, "unknown"),
    }
}

fn membarrier(host: &Host) -> Finding {
    if host.membarrier {
        finding("membarrier", Status::Good, "private expedited")
    } else {
        finding(
            "membarrier",
            Status::Note,
            "none: each blocking section costs a fence",
        )
    }
}

fn mbind(host: &Host, topology: &Topology) -> Finding {
    match (host.mbind, topology.nodes().len()) {
        (true, _) => finding("mbind", Status::Good, "memory can be bound to nodes"),
        (false, 1) => finding("mbind", Status::Note, "refused; one node needs none"),
        (false, _) => finding(
            "mbind",
            Status::Warning,
            "refused: memory is on its node by first touch only",
        )
        .cure("let the container's seccomp profile allow mbind, or give it CAP_SYS_NICE"),
    }
}

fn distances(topology: &Topology) -> Finding {
    let Distances { origin, note, .. } = topology.distances();
    match (origin, note) {
        _ if topology.nodes().len() == 1 => {
            finding("distances", Status::Good, "one node needs none")
        }
        (DistanceOrigin::Assumed, Some(note)) => finding(
            "distances",
            Status::Warning,
            format!("{note}; all other nodes are taken to be equally far"),
        )
        .cure("newer firmware, or Topology::with_distances for Builder::topology"),
        (DistanceOrigin::Assumed, None) => finding(
            "distances",
            Status::Note,
            "the firmware has none: all other nodes are taken to be equally far",
        ),
        (_, Some(note)) => finding("distances", Status::Note, note),
        (_, None) => finding("distances", Status::Good, "from the firmware"),
    }
}

/// Nodes whose Ps live from the memory of others.
fn memory(topology: &Topology) -> Finding {
    let has_cpus_alone = |node: &&Node| !node.cpus.is_empty() && !node.has_memory;
    let poor = topology.nodes().iter().filter(has_cpus_alone);
    let poor: Vec<usize> = poor.map(|node| node.os_id as usize).collect();
    if poor.is_empty() {
        finding("memory", Status::Good, "every node with CPUs has some")
    } else {
        let found = format!(
            "none on node {}: Ps there use that of the nearest node",
            format_cpu_list(&poor)
        );
        finding("memory", Status::Note, found)
            .cure("a memory module in each socket; after that, the firmware's settings of memory")
    }
}

/// Devices that nothing can be near to.
fn devices(topology: &Topology) -> Finding {
    let devices = topology.devices();
    let lost = devices.iter().filter(|device| device.node.is_none());
    let lost: Vec<&str> = lost.map(|device| device.name.as_str()).collect();
    if !lost.is_empty() {
        let found = format!("the firmware names no node for {}", lost.join(" "));
        finding("devices", Status::Note, found)
            .cure("newer firmware; irqbalance and Topology::near cannot place what uses them")
    } else if devices.is_empty() {
        finding("devices", Status::Good, "none known")
    } else {
        let found = format!("{}, each on a known node", devices.len());
        finding("devices", Status::Good, found)
    }
}

fn numa_balancing(host: &Host, topology: &Topology) -> Finding {
    match (host.numa_balancing, topology.nodes().len()) {
        (Some(0), _) => finding("numa_balancing", Status::Good, "off"),
        (None, _) => finding("numa_balancing", Status::Good, "none in this kernel"),
        (Some(_), 1) => finding(
            "numa_balancing",
            Status::Good,
            "on, without effect on one node",
        ),
        (Some(_), _) => finding(
            "numa_balancing",
            Status::Warning,
            "on: it takes page faults to move memory that is where it should be",
        )
        .cure("sysctl kernel.numa_balancing=0"),
    }
}

fn thp(host: &Host) -> Finding {
    match host.thp.as_deref() {
        Some("always") => finding(
            "thp",
            Status::Note,
            "always: stacks are kept out of it, the heap of the program is not",
        )
        .cure("echo madvise >/sys/kernel/mm/transparent_hugepage/enabled, if memory is short"),
        Some(word) => finding("thp", Status::Good, word),
        None => finding("thp", Status::Good, "none in this kernel"),
    }
}

fn swap(host: &Host) -> Finding {
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    match (host.swap_bytes, host.swap_limit) {
        (None, _) => finding("swap", Status::Note, "unknown"),
        (Some(0), _) => finding(
            "swap",
            Status::Note,
            "none, so Builder::page_out_after does nothing",
        )
        .cure("swap in compressed memory (zram), if goroutines wait for long: zramctl --find --size 2G, mkswap, swapon"),
        (_, Some(0)) => finding(
            "swap",
            Status::Note,
            "this cgroup may not use it, so Builder::page_out_after does nothing",
        )
        .cure("a larger memory.swap.max, if goroutines wait for long"),
        (Some(bytes), None) => finding("swap", Status::Good, mib(bytes)),
        (Some(bytes), Some(limit)) => {
            let found = format!("{}, {} for this cgroup", mib(bytes), mib(limit.min(bytes)));
            finding("swap", Status::Good, found)
        }
    }
}

fn memlock(host: &Host) -> Finding {
    let Some(Rlimit { soft, .. }) = host.memlock else {
        return finding("memlock", Status::Note, "unknown");
    };
    let shown = soft.map_or("unlimited".to_owned(), |bytes| {
        format!("{} KiB", bytes >> 10)
    });
    if host.release() < (5, 12) && soft.is_some_and(|bytes| bytes < 8 << 20) {
        let found = format!("{shown}; before Linux 5.12 rings count against it");
        finding("memlock", Status::Warning, found).cure("ulimit -l unlimited")
    } else if soft.is_some_and(|bytes| bytes < 64 << 20) {
        let found = format!("{shown}; only registered buffers count against it");
        finding("memlock", Status::Note, found).cure("ulimit -l unlimited, to register many")
    } else {
        finding("memlock", Status::Good, shown)
    }
}

fn nofile(host: &Host) -> Finding {
    let Some(Rlimit { soft, hard }) = host.nofile else {
        return finding("nofile", Status::Note, "unknown");
    };
    let shown = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |n| n.to_string());
    let found = format!("{} open files ({} at most)", shown(soft), shown(hard));
    if soft.is_some_and(|soft| soft < 65_536) {
        finding("nofile", Status::Warning, found)
            .cure("ulimit -n 1048576, or LimitNOFILE= in the unit")
    } else {
        finding("nofile", Status::Good, found)
    }
}

fn nproc(host: &Host) -> Finding {
    match host.nproc.and_then(|limit| limit.soft) {
        Some(soft) if soft < 4096 => finding(
            "nproc",
            Status::Warning,
            format!("{soft} threads; blocking calls may want up to 10000"),
        )
        .cure("ulimit -u 16384, or TasksMax= in the unit"),
        Some(soft) => finding("nproc", Status::Good, format!("{soft} threads")),
        None => finding("nproc", Status::Good, "unlimited"),
    }
}

fn isolation(topology: &Topology) -> Finding {
    let isolated = topology.isolated_cpus();
    let allowed = topology.allowed_cpus();
    let both: Vec<usize> = isolated
        .iter()
        .copied()
        .filter(|cpu| allowed.contains(cpu))
        .collect();
    if isolated.is_empty() {
        finding("isolcpus", Status::Good, "none")
    } else if both.len() == allowed.len() {
        let found = format!("all allowed CPUs are isolated ({})", format_cpu_list(&both));
        finding("isolcpus", Status::Note, found)
    } else if both.is_empty() {
        let found = format!("{}, not allowed to this process", format_cpu_list(isolated));
        finding("isolcpus", Status::Good, found)
    } else {
        let found = format!("{}: allowed, but left without Ps", format_cpu_list(&both));
        finding("isolcpus", Status::Note, found)
            .cure("taskset -c with these CPUs alone, to have Ps on them")
    }
}

fn quota(topology: &Topology) -> Finding {
    let Some(limits) = topology.limits() else {
        return unknown("quota");
    };
    let processors = limits.processors();
    match limits.quota {
        Some(quota) if quota < processors as f64 => finding(
            "quota",
            Status::Warning,
            format!(
                "{} CPUs for {processors} processors: busy ones are frozen for the rest of each period",
                crate::render::two_digits(quota)
            ),
        )
        .cure("a whole number of CPUs (cpu.max), or a cpuset in place of the quota"),
        Some(quota) => {
            let found = format!("{} CPUs", crate::render::two_digits(quota));
            finding("quota", Status::Good, found)
        }
        None => finding("quota", Status::Good, "none"),
    }
}

fn priorities(host: &Host) -> Finding {
    if host.cap_sys_nice {
        finding(
            "cap_sys_nice",
            Status::Good,
            "there: hogs can be demoted, and promoted again",
        )
    } else {
        let found = "missing: a goroutine that computes for long shares its core half and half";
        finding("cap_sys_nice", Status::Note, found)
            .cure("CAP_SYS_NICE (AmbientCapabilities= in the unit, --cap-add SYS_NICE)")
    }
}

fn clock(host: &Host) -> Finding {
    match host.clocksource.as_deref() {
        Some(
            source @ ("tsc" | "arch_sys_counter" | "kvm-clock" | "hyperv_clocksource_tsc_page"),
        ) => finding("clock", Status::Good, source),
        Some(source) => finding(
            "clock",
            Status::Warning,
            format!("{source}: reading it is a system call"),
        )
        .cure("clocksource=tsc on the kernel's command line, if the machine's TSC can be trusted"),
        None => finding("clock", Status::Note, "unknown"),
    }
}

fn mitigations(host: &Host) -> Finding {
    let names = |wanted: &str| {
        let named = host.vulnerabilities.iter();
        let named = named.filter(|(_, state)| state.starts_with(wanted));
        named.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
    };
    let (mitigated, open) = (names("Mitigation"), names("Vulnerable"));
    if mitigated.is_empty() && open.is_empty() {
        return finding("mitigations", Status::Good, "none needed");
    }
    let mut parts = Vec::new();
    if !mitigated.is_empty() {
        parts.push(format!("system calls pay for {}", mitigated.join(" ")));
    }
    if !open.is_empty() {
        parts.push(format!("open: {}", open.join(" ")));
    }
    finding("mitigations", Status::Note, parts.join("; "))
}

//! Facts about the kernel and this process, read from files below a root.

use std::{fs, path::Path};

use serde::Serialize;

use super::{kernel, uring, uring::Uring};
use crate::{files::meminfo_bytes, limits};

/// The facts that [`examine`](super::examine) judges. `None` means that the kernel does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Host {
    /// The kernel's release, such as `6.12.9-amd64`.
    pub kernel: String,
    /// The features of io_uring.
    pub uring: Uring,
    /// The sysctl `kernel.io_uring_disabled`.
    pub uring_disabled: Option<u64>,
    /// A seccomp filter is on this process.
    pub seccomp: bool,
    /// This process may raise priorities (CAP_SYS_NICE).
    pub cap_sys_nice: bool,
    /// The sysctl `vm.max_map_count`.
    pub max_map_count: Option<u64>,
    /// The sysctl `vm.overcommit_memory`.
    pub overcommit_memory: Option<u64>,
    /// The sysctl `kernel.numa_balancing`.
    pub numa_balancing: Option<u64>,
    /// `transparent_hugepage/enabled`: the word in brackets.
    pub thp: Option<String>,
    /// The system's swap, in bytes.
    pub swap_bytes: Option<u64>,
    /// How much of it the process's cgroups may use; `None` for no limit.
    pub swap_limit: Option<u64>,
    /// Soft and hard limit of locked memory in bytes; `None` for unlimited.
    pub memlock: Option<Rlimit>,
    /// Soft and hard limit of open files.
    pub nofile: Option<Rlimit>,
    /// Soft and hard limit of this user's processes and threads.
    pub nproc: Option<Rlimit>,
    /// The current clock source.
    pub clocksource: Option<String>,
    /// Mitigations that slow this CPU down: name and state of each weakness it has.
    pub vulnerabilities: Vec<(String, String)>,
    /// Guard pages cost no mappings (Linux 6.13).
    pub guard_install: bool,
    /// One thread can have all others pass a memory barrier.
    pub membarrier: bool,
    /// Memory may be bound to nodes.
    pub mbind: bool,
}

/// A limit of resources; `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rlimit {
    /// The limit in force.
    pub soft: Option<u64>,
    /// How far the process may raise it.
    pub hard: Option<u64>,
}

impl Host {
    /// Reads and asks this host.
    #[must_use]
    pub fn read() -> Self {
        Self {
            uring: uring::probe(),
            guard_install: kernel::has_guard_install(),
            membarrier: kernel::has_membarrier(),
            mbind: kernel::can_bind_memory(),
            ..Self::read_files(Path::new("/"))
        }
    }

    /// The part of it that is in files, from a copy of `/proc` and `/sys` below `root`.
    #[must_use]
    pub fn read_files(root: &Path) -> Self {
        let text = |path: &str| {
            let text = fs::read_to_string(root.join(path)).ok()?;
            Some(text.trim().to_owned())
        };
        let number = |path: &str| text(path)?.parse::<u64>().ok();
        let status = text("proc/self/status").unwrap_or_default();
        let limits = text("proc/self/limits").unwrap_or_default();
        Self {
            kernel: text("proc/sys/kernel/osrelease").unwrap_or_default(),
            uring: Uring::default(),
            uring_disabled: number("proc/sys/kernel/io_uring_disabled"),
            seccomp: field(&status, "Seccomp:").is_some_and(|mode| mode == "2"),
            cap_sys_nice: field(&status, "CapEff:")
                .and_then(|mask| u64::from_str_radix(mask, 16).ok())
                .is_some_and(|mask| mask >> 23 & 1 == 1),
            max_map_count: number("proc/sys/vm/max_map_count"),
            overcommit_memory: number("proc/sys/vm/overcommit_memory"),
            numa_balancing: number("proc/sys/kernel/numa_balancing"),
            thp: text("sys/kernel/mm/transparent_hugepage/enabled").and_then(|words| {
                let word = words.split_whitespace().find(|word| word.starts_with('['));
                word.map(|word| word.trim_matches(['[', ']']).to_owned())
            }),
            swap_bytes: text("proc/meminfo").and_then(|text| meminfo_bytes(&text, "SwapTotal:")),
            swap_limit: limits::swap_limit(root),
            memlock: rlimit(&limits, "Max locked memory"),
            nofile: rlimit(&limits, "Max open files"),
            nproc: rlimit(&limits, "Max processes"),
            clocksource: text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            vulnerabilities: vulnerabilities(&root.join("sys/devices/system/cpu/vulnerabilities")),
            guard_install: false,
            membarrier: false,
            mbind: false,
        }
    }

    /// Major and minor number of the kernel's release; 0.0 where it is unknown.
    pub(super) fn release(&self) -> (u32, u32) {
        let mut numbers = self.kernel.split(['.', '-', '+']).map(|n| n.parse().ok());
        let mut next = || numbers.next().flatten().unwrap_or(0);
        (next(), next())
    }
}

/// The value after a name, in a line of `/proc/self/status`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines();
    lines.find_map(|line| Some(line.strip_prefix(name)?.trim()))
}

/// A line of `/proc/self/limits`: `Max open files  1024  524288  files`.
fn rlimit(text: &str, name: &str) -> Option<Rlimit> {
    let mut values = field(text, name)?.split_whitespace();
    let mut value = || match values.next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    };
    Some(Rlimit {
        soft: value()?,
        hard: value()?,
    })
}

fn vulnerabilities(dir: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let state = fs::read_to_string(entry.path()).unwrap_or_default();
        let state = state.trim();
        if !state.is_empty() && state != "Not affected" {
            found.push((
                entry.file_name().to_string_lossy().into_owned(),
                state.to_owned(),
            ));
        }
    }
    found.sort();
    found
}

//! How many CPUs this process may use, and which limit sets that number.
//!
//! Four limits apply, one after another: the cgroup's cpuset, the affinity mask, isolation
//! at boot (`isolcpus`), and the cgroup's CPU quota. The quota is of another kind: a container
//! with `--cpus 1.5` may use every CPU, but only 150 ms of CPU time in each 100 ms. With a P for
//! every CPU it would use up its share in a few ms and be frozen for the rest.
//!
//! Every reader takes a root folder, so that tests can write the files of a machine. A file that cannot
//! be read sets no limit.

use std::{
    fs,
    path::{Path, PathBuf},
};

#[cfg(feature = "json")]
use serde::{Deserialize, Serialize};

use crate::{
    Request, Source, Topology, affinity,
    cgroup::{Cgroups, Group},
    parse_cpu_list,
    placement::{MAX_PS, without_isolated},
};

/// The limits of a process, as [`cpu_limits`] reads them.
///
/// # Examples
///
/// ```
/// use windlass_topology::limits::{Cap, CpuLimits};
///
/// let limits = CpuLimits {
///     online: vec![0, 1, 2, 3],
///     affinity: Some(vec![0, 1, 2]),
///     quota: Some(1.5),
///     ..CpuLimits::default()
/// };
/// assert_eq!(limits.allowed(), [0, 1, 2]);
/// assert_eq!(limits.processors(), 2);
/// assert_eq!(limits.cap(), Cap::Quota);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub struct CpuLimits {
    /// OS ids of the CPUs that are online.
    pub online: Vec<usize>,
    /// OS ids of the CPUs in the cgroup's cpuset; `None` where there is no such controller.
    pub cpuset: Option<Vec<usize>>,
    /// The group that sets the cpuset; never in a recording.
    #[cfg_attr(
        feature = "json",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub cpuset_group: Option<String>,
    /// OS ids of the CPUs in the affinity mask of the thread that asked; `None` where the kernel
    /// does not say.
    pub affinity: Option<Vec<usize>>,
    /// OS ids of the CPUs that the kernel keeps its load balancer away from (`isolcpus`).
    pub isolated: Vec<usize>,
    /// How many CPUs' worth of time the cgroup grants; `None` where there is no limit.
    pub quota: Option<f64>,
    /// The group that sets the quota; never in a recording.
    #[cfg_attr(
        feature = "json",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub quota_group: Option<String>,
    /// How much memory the cgroup grants; `None` where there is no limit.
    pub memory_bytes: Option<u64>,
}

/// The limit that sets the number of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "kebab-case"))]
pub enum Cap {
    /// None: there is a processor for each online CPU.
    Online,
    /// The cgroup's cpuset.
    Cpuset,
    /// The affinity mask.
    Affinity,
    /// Isolation at boot (`isolcpus`).
    Isolated,
    /// The cgroup's CPU quota.
    Quota,
    /// [`MAX_PS`].
    MaxPs,
}

/// Reads what limits this process and the calling thread.
///
/// # Examples
///
/// ```
/// let limits = windlass_topology::limits::cpu_limits();
/// assert!(limits.processors() >= 1);
/// ```
#[must_use]
pub fn cpu_limits() -> CpuLimits {
    cpu_limits_below(Path::new("/"), affinity::allowed_cpus().ok())
}

/// [`cpu_limits`] with a copy of `/proc/self`, `/sys/fs/cgroup` and `/sys/devices/system/cpu` below
/// `root`, and this affinity mask.
#[must_use]
pub fn cpu_limits_below(root: &Path, affinity: Option<Vec<usize>>) -> CpuLimits {
    let cgroups = Cgroups::read(root);
    let list = |name: &str| {
        let path = root.join("sys/devices/system/cpu").join(name);
        parse_cpu_list(&fs::read_to_string(path).ok()?)
    };
    let (cpuset, cpuset_group) = cpuset(&cgroups).unzip();
    let (quota, quota_group) = quota(&cgroups).unzip();
    CpuLimits {
        online: list("online")
            .or_else(|| affinity.clone())
            .unwrap_or_default(),
        cpuset,
        cpuset_group,
        affinity,
        isolated: list("isolated").unwrap_or_default(),
        quota,
        quota_group,
        memory_bytes: memory(&cgroups),
    }
}

impl CpuLimits {
    /// OS ids of the online CPUs that cpuset and affinity mask leave, isolated ones included.
    #[must_use]
    pub fn allowed(&self) -> Vec<usize> {
        let lists = [&self.cpuset, &self.affinity];
        let is_allowed = |cpu: &usize| {
            let mut limits = lists.iter().filter_map(|list| list.as_ref());
            limits.all(|list| list.contains(cpu))
        };
        let online = self.online.iter().copied();
        online.filter(is_allowed).collect()
    }

    /// How many processors a runtime should have by default; the rule of [`capped_processors`].
    #[must_use]
    pub fn processors(&self) -> usize {
        let usable = without_isolated(&self.allowed(), &self.isolated);
        capped_processors(usable.len(), self.quota)
    }

    /// The limit that keeps [`processors`](Self::processors) from being the number of online CPUs: of several
    /// limits the one that took the last CPU away.
    #[must_use]
    pub fn cap(&self) -> Cap {
        let steps = self.steps();
        let least = steps.last().map_or(0, |&(_, n)| n);
        let binding = steps.iter().find(|&&(_, n)| n == least);
        binding.map_or(Cap::Online, |&(cap, _)| cap)
    }

    /// How many processors remain after each limit, in the order in which they apply.
    #[must_use]
    pub fn steps(&self) -> Vec<(Cap, usize)> {
        let no_affinity = Self {
            affinity: None,
            ..self.clone()
        };
        let allowed = self.allowed();
        let usable = without_isolated(&allowed, &self.isolated).len();
        let uncapped = match self.quota {
            Some(quota) => usable.min(quota_processors(quota)),
            None => usable,
        };
        vec![
            (Cap::Online, self.online.len()),
            (Cap::Cpuset, no_affinity.allowed().len()),
            (Cap::Affinity, allowed.len()),
            (Cap::Isolated, usable),
            (Cap::Quota, uncapped),
            (Cap::MaxPs, self.processors()),
        ]
    }

    /// These limits without the names of control groups, which are private.
    #[must_use]
    pub fn anonymous(self) -> Self {
        Self {
            cpuset_group: None,
            quota_group: None,
            ..self
        }
    }
}

/// How many CPUs' worth of time this process gets, or `None` where there is no limit.
///
/// Reads cgroup v2 (`cpu.max`) and v1 (`cpu.cfs_quota_us`), parent groups too; with both in use the
/// lesser counts. A file that cannot be read sets no limit. Cheaper than [`cpu_limits`], for callers
/// that poll.
///
/// # Examples
///
/// ```
/// if let Some(cpus) = windlass_topology::cpu_quota() {
///     assert!(cpus > 0.0);
/// }
/// ```
#[must_use]
pub fn cpu_quota() -> Option<f64> {
    cpu_quota_below(Path::new("/"))
}

/// [`cpu_quota`] with a copy of `/proc/self` and `/sys/fs/cgroup` below `root`.
#[must_use]
pub fn cpu_quota_below(root: &Path) -> Option<f64> {
    quota(&Cgroups::read(root)).map(|(quota, _)| quota)
}

/// The file in which the kernel says for how long tasks have waited for memory (pressure stall information): that of
/// this process's cgroup, or of the whole system where that has none (cgroup v1). `None` where there is neither.
///
/// # Examples
///
/// ```
/// if let Some(path) = windlass_topology::memory_pressure_file() {
///     assert!(path.is_absolute());
/// }
/// ```
#[must_use]
pub fn memory_pressure_file() -> Option<PathBuf> {
    memory_pressure_file_below(Path::new("/"))
}

/// [`memory_pressure_file`] with a copy of `/proc` and `/sys/fs/cgroup` below `root`.
#[must_use]
pub fn memory_pressure_file_below(root: &Path) -> Option<PathBuf> {
    let cgroups = Cgroups::read(root);
    let mut groups = cgroups.of("memory").flatten();
    let of_system = || Some(root.join("proc/pressure/memory")).filter(|path| path.exists());
    groups
        .find_map(|group| group.file("memory.pressure"))
        .or_else(of_system)
}

/// How many Ps a runtime should have on this machine: its allowed CPUs without isolated ones, capped
/// by the quota.
///
/// On [`Source::ThisMachine`] the quota is read at each call, because it may change; of a recorded
/// machine it is that of the recorder. The result is at least 1 and at most
/// [`MAX_PS`].
///
/// # Examples
///
/// ```
/// use windlass_topology::{Topology, default_processors};
///
/// let machine = Topology::synthetic("core:8 pu:2")?;
/// assert_eq!(default_processors(&machine), 16);
/// # Ok::<(), windlass_topology::Error>(())
/// ```
#[must_use]
pub fn default_processors(topology: &Topology) -> usize {
    let n_usable =
        crate::placement::usable_cpus(topology, &Request::default()).map_or(1, |cpus| cpus.len());
    let quota = match topology.source() {
        Source::ThisMachine => cpu_quota(),
        _ => topology.limits().and_then(|limits| limits.quota),
    };
    capped_processors(n_usable, quota)
}

/// The number of processors for so many usable CPUs and this quota.
///
/// The quota is rounded up, and leaves at least 2 where 2 CPUs are usable: with one P, one
/// goroutine that does not let go stops all others.
///
/// # Examples
///
/// ```
/// use windlass_topology::limits::capped_processors;
///
/// assert_eq!(capped_processors(8, None), 8);
/// assert_eq!(capped_processors(8, Some(2.5)), 3);
/// assert_eq!(capped_processors(8, Some(0.5)), 2);
/// assert_eq!(capped_processors(1, Some(0.5)), 1);
/// ```
#[must_use]
pub fn capped_processors(n_usable: usize, quota: Option<f64>) -> usize {
    let usable = n_usable.clamp(1, MAX_PS);
    quota.map_or(usable, |quota| usable.min(quota_processors(quota)))
}

fn quota_processors(quota: f64) -> usize {
    // A float becomes an integer by saturating, so a silly quota is no danger.
    (quota.ceil() as usize).max(2)
}

/// The least quota of any group, and which group sets it.
fn quota(cgroups: &Cgroups) -> Option<(f64, String)> {
    least(cgroups, "cpu", |group| {
        if group.is_v2 {
            quota_v2(&group.read("cpu.max")?)
        } else {
            let number = |file| group.read(file)?.parse::<f64>().ok();
            ratio(number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
        }
    })
}

/// `cpu.max`: `150000 100000`, or `max 100000`.
fn quota_v2(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let quota = words.next()?.parse().ok()?;
    let period = words.next().map_or(Ok(100_000.0), str::parse).ok()?;
    ratio(quota, period)
}

fn ratio(quota: f64, period: f64) -> Option<f64> {
    let is_amount = |value: f64| value > 0.0 && value.is_finite();
    (is_amount(quota) && is_amount(period)).then(|| quota / period)
}

/// The least memory of any group; v1 says "no limit" as a number near 2^63.
fn memory(cgroups: &Cgroups) -> Option<u64> {
    let limit = |group: &Group| {
        let file = if group.is_v2 {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        let bytes = group.read(file)?.parse::<u64>().ok()?;
        (bytes < 1 << 60).then_some(bytes)
    };
    least(cgroups, "memory", limit).map(|(bytes, _)| bytes)
}

/// The least that the process's groups may have in swap, in bytes; `None` where there is no limit. Of v2 only.
#[cfg(feature = "cli")]
pub(crate) fn swap_limit(root: &Path) -> Option<u64> {
    let cgroups = Cgroups::read(root);
    let limit = |group: &Group| group.read("memory.swap.max")?.parse().ok();
    least(&cgroups, "memory", limit).map(|(bytes, _)| bytes)
}

/// The least of what the groups of a controller say, and which of them says it.
fn least<T: PartialOrd>(
    cgroups: &Cgroups,
    controller: &str,
    limit: impl Fn(&Group) -> Option<T>,
) -> Option<(T, String)> {
    let groups = cgroups.of(controller).flatten();
    let limits = groups.filter_map(|group| Some((limit(group)?, group.name.clone())));
    limits.reduce(|least, next| if next.0 < least.0 { next } else { least })
}

/// The CPUs of the nearest group that has a list, and that group. The list of a group is within its
/// parent's, so the nearest is the least; two hierarchies are cut with one another.
fn cpuset(cgroups: &Cgroups) -> Option<(Vec<usize>, String)> {
    let nearest = |groups: &[Group]| {
        let mut lists = groups.iter().filter_map(|group| {
            let files: &[&str] = if group.is_v2 {
                &["cpuset.cpus.effective"]
            } else {
                &["cpuset.effective_cpus", "cpuset.cpus", "cpus"] // the last: Linux before cgroups
            };
            let text = files.iter().find_map(|file| group.read(file))?;
            let cpus = parse_cpu_list(&text).filter(|cpus| !cpus.is_empty())?;
            Some((cpus, group.name.clone()))
        });
        lists.next()
    };
    let found = cgroups.of("cpuset").filter_map(nearest);
    found.reduce(|(cpus, name), (others, other_name)| {
        let both: Vec<usize> = cpus
            .iter()
            .copied()
            .filter(|cpu| others.contains(cpu))
            .collect();
        if both.len() < cpus.len() {
            (both, other_name)
        } else {
            (cpus, name)
        }
    })
}

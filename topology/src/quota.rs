//! How much CPU time the cgroup grants, which hwloc and the affinity mask do not show.
//!
//! A container with `--cpus 1.5` may use every CPU of the machine, but only 150 ms of CPU time in each 100 ms.
//! With a P for every CPU it would use up its share in a few ms and be frozen for the rest. A quota
//! of any parent group counts too, so the least on the way to the root is the answer.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Component, Path, PathBuf},
};

use crate::{Source, Topology, placement::MAX_PS};

/// How many CPUs' worth of time this process gets, or `None` where there is no limit.
///
/// Reads cgroup v2 (`cpu.max`) and v1 (`cpu.cfs_quota_us`), parent groups too; with both in use the
/// lesser counts. What cannot be read is taken for unlimited.
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
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let quotas = groups.lines().filter_map(|line| {
        let (controllers, group) = split_group(line)?;
        let is_v2 = controllers.is_empty();
        if !is_v2 && !controllers.split(',').any(|name| name == "cpu") {
            return None;
        }
        let mount = mounts
            .lines()
            .filter_map(parse_mount)
            .find(|mount| mount.serves(is_v2))?;
        let read = if is_v2 { read_v2 } else { read_v1 };
        least_quota(root, &mount, group, read)
    });
    quotas.min_by(f64::total_cmp)
}

/// How many Ps a runtime should have on this machine: its allowed CPUs, capped by the quota.
///
/// The quota is rounded up, and leaves at least 2 where 2 CPUs are allowed: with one P, one
/// goroutine that does not let go stops all others. It only counts on
/// [`Source::ThisMachine`]. The result is at least 1 and at most
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
    let is_here = *topology.source() == Source::ThisMachine;
    capped_processors(
        topology.allowed_cpus().len(),
        if is_here { cpu_quota() } else { None },
    )
}

/// The rule of [`default_processors`], as a pure function.
///
/// # Examples
///
/// ```
/// use windlass_topology::quota::capped_processors;
///
/// assert_eq!(capped_processors(8, None), 8);
/// assert_eq!(capped_processors(8, Some(2.5)), 3);
/// assert_eq!(capped_processors(8, Some(0.5)), 2);
/// assert_eq!(capped_processors(1, Some(0.5)), 1);
/// ```
#[must_use]
pub fn capped_processors(n_allowed: usize, quota: Option<f64>) -> usize {
    let allowed = n_allowed.clamp(1, MAX_PS);
    match quota {
        // A float becomes an integer by saturating, so a silly quota is no danger.
        Some(quota) => allowed.min((quota.ceil() as usize).max(2)),
        None => allowed,
    }
}

/// A line of `/proc/self/cgroup`, `4:cpu,cpuacct:/group`: controllers (none for v2) and group.
fn split_group(line: &str) -> Option<(&str, &str)> {
    let (_hierarchy, rest) = line.split_once(':')?;
    rest.split_once(':')
}

/// A mounted cgroup file system.
struct Mount {
    /// The group that is seen at the mount point; not `/` in a container without cgroup namespace.
    group: PathBuf,
    point: PathBuf,
    is_v2: bool,
    /// Whether it is a v1 mount with the CPU controller.
    has_cpu: bool,
}

impl Mount {
    fn serves(&self, is_v2: bool) -> bool {
        if is_v2 { self.is_v2 } else { self.has_cpu }
    }
}

/// A line of `/proc/self/mountinfo`, if it is a cgroup's:
/// `31 23 0:28 /group /sys/fs/cgroup/cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct`.
fn parse_mount(line: &str) -> Option<Mount> {
    let (place, system) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let (group, point) = (unescape(place.next()?), unescape(place.next()?));
    let mut system = system.split(' ');
    let kind = system.next()?;
    let options = system.nth(1).unwrap_or_default();
    let is_v1 = kind == "cgroup";
    let is_v2 = kind == "cgroup2";
    let has_cpu = is_v1 && options.split(',').any(|option| option == "cpu");
    (is_v1 || is_v2).then_some(Mount {
        group,
        point,
        is_v2,
        has_cpu,
    })
}

/// Spaces and the like are written as `\040`.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(escaped) if byte == b'\\' => {
                bytes.push(escaped);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// The least quota from a group up to the mount point.
fn least_quota(
    root: &Path,
    mount: &Mount,
    group: &str,
    read: fn(&Path) -> Option<f64>,
) -> Option<f64> {
    let top = below(root, &mount.point);
    // A group outside of what is mounted cannot be seen; what is mounted still holds for it.
    let inner = Path::new(group)
        .strip_prefix(&mount.group)
        .unwrap_or(Path::new(""));
    let is_plain = inner
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    let inner = if is_plain { inner } else { Path::new("") };
    let groups = inner.ancestors().map(|group| top.join(group));
    groups
        .filter_map(|group| read(&group))
        .min_by(f64::total_cmp)
}

/// An absolute path, below another root.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// `cpu.max`: `150000 100000`, or `max 100000`.
fn read_v2(group: &Path) -> Option<f64> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let mut words = text.split_whitespace();
    let quota = words.next()?.parse().ok()?;
    ratio(
        quota,
        words
            .next()
            .map_or(Some(100_000.0), |period| period.parse().ok())?,
    )
}

/// `cpu.cfs_quota_us`: `150000`, or `-1` for no limit.
fn read_v1(group: &Path) -> Option<f64> {
    let number = |name| {
        fs::read_to_string(group.join(name))
            .ok()?
            .trim()
            .parse::<f64>()
            .ok()
    };
    ratio(number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
}

fn ratio(quota: f64, period: f64) -> Option<f64> {
    (quota > 0.0 && period > 0.0 && quota.is_finite()).then(|| quota / period)
}

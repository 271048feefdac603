//! Which control groups this process is in, and where their files are.
//!
//! Both versions may be mounted at once. `/proc/self/cgroup` says the group in each hierarchy,
//! `/proc/self/mountinfo` where a hierarchy is mounted and which of its groups is seen there. A
//! limit of a parent group holds for its children, so a reader asks every group from the own one
//! up to the mount point.
//!
//! Copies of `/proc` made by `hwloc-gather-topology` have `/proc/mounts` instead of `mountinfo`, and
//! old ones the group in `/proc/self/cpuset` alone.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Component, Path, PathBuf},
};

/// The hierarchies this process is in.
#[derive(Debug)]
pub(crate) struct Cgroups(Vec<Hierarchy>);

#[derive(Debug)]
struct Hierarchy {
    /// Of v1; v2 has all of them.
    controllers: Vec<String>,
    is_v2: bool,
    /// The own group first, the mount point last.
    groups: Vec<Group>,
}

/// A group of this process, or a parent of one.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) is_v2: bool,
    /// As it is seen from the mount point, beginning with `/`.
    pub(crate) name: String,
    path: PathBuf,
}

impl Cgroups {
    /// Reads `proc/self` below a root. A file that cannot be read counts as absent.
    pub(crate) fn read(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let mount_info = text("proc/self/mountinfo");
        let mut mounts: Vec<Mount> = mount_info.lines().filter_map(parse_mount).collect();
        if mount_info.is_empty() {
            let table = text("proc/mounts");
            mounts = table.lines().filter_map(parse_plain_mount).collect();
        }
        let mut groups = text("proc/self/cgroup");
        let cpuset = text("proc/self/cpuset");
        if groups.is_empty() && !cpuset.is_empty() {
            groups = format!("0:cpuset:{}", cpuset.trim());
        }
        let hierarchy = |line: &str| {
            let (controllers, group) = split_group(line)?;
            let controllers: Vec<String> = controllers.split(',').map(str::to_owned).collect();
            let is_v2 = controllers == [""];
            let mount = mounts
                .iter()
                .find(|mount| mount.is_v2 == is_v2 && (is_v2 || mount.has_any(&controllers)))?;
            Some(Hierarchy {
                controllers,
                is_v2,
                groups: ancestors(root, mount, group),
            })
        };
        Self(groups.lines().filter_map(hierarchy).collect())
    }

    /// The groups in which a controller may limit this process, by hierarchy, each from the own
    /// group upwards.
    pub(crate) fn of<'a>(&'a self, controller: &'a str) -> impl Iterator<Item = &'a [Group]> {
        let serves = move |hierarchy: &&Hierarchy| {
            hierarchy.is_v2 || hierarchy.controllers.iter().any(|name| name == controller)
        };
        let groups = |hierarchy: &'a Hierarchy| hierarchy.groups.as_slice();
        self.0.iter().filter(serves).map(groups)
    }
}

impl Group {
    /// The content of a file of this group.
    pub(crate) fn read(&self, file: &str) -> Option<String> {
        let text = fs::read_to_string(self.path.join(file)).ok()?;
        Some(text.trim().to_owned())
    }

    /// The path of a file of this group, if it is there.
    pub(crate) fn file(&self, file: &str) -> Option<PathBuf> {
        Some(self.path.join(file)).filter(|path| path.exists())
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
    /// The controllers of a v1 mount are among its options.
    options: Vec<String>,
}

impl Mount {
    fn has_any(&self, controllers: &[String]) -> bool {
        controllers.iter().any(|name| self.options.contains(name))
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
    let is_v2 = kind == "cgroup2";
    (is_v2 || kind == "cgroup").then(|| Mount {
        group,
        point,
        is_v2,
        options: options.split(',').map(str::to_owned).collect(),
    })
}

/// A line of `/proc/mounts`, if it is a cgroup's: `cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0`. It
/// does not say which group is seen at the mount point.
fn parse_plain_mount(line: &str) -> Option<Mount> {
    let mut words = line.split(' ').skip(1);
    let point = unescape(words.next()?);
    let kind = words.next()?;
    let mut options: Vec<String> = words.next()?.split(',').map(str::to_owned).collect();
    match kind {
        "cgroup" | "cgroup2" => {}
        "cpuset" => options.push("cpuset".to_owned()), // the only controller before there were cgroups
        _ => return None,
    }
    Some(Mount {
        group: PathBuf::from("/"),
        point,
        is_v2: kind == "cgroup2",
        options,
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

/// A group and its parents, up to the mount point.
fn ancestors(root: &Path, mount: &Mount, group: &str) -> Vec<Group> {
    let top = root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
    // A group outside of what is mounted cannot be seen; what is mounted still holds for it.
    let inner = Path::new(group)
        .strip_prefix(&mount.group)
        .unwrap_or(Path::new(""));
    let is_plain = inner
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    let inner = if is_plain { inner } else { Path::new("") };
    let group = |inner: &Path| Group {
        is_v2: mount.is_v2,
        name: format!("/{}", inner.display()),
        path: top.join(inner),
    };
    inner.ancestors().map(group).collect()
}

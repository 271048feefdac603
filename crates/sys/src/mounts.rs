//! Detects files that are served by another machine or by another process ("remote" files).
//!
//! A call on a file of NFS or FUSE may wait for a dead server, in an uninterruptible sleep. A
//! thread in such a sleep completes none of the operations that it has submitted to a ring, not
//! even cancelled ones, because the kernel runs completion work on the submitting thread
//! (docs/SAFETY.md). So calls on these files are made on spare threads, which submit nothing.
//!
//! The mount table lists the mounts with the types of their file systems. It is read at most once
//! in `FRESH_NS`; if it has no remote mount, no further look-up is made. An open file is looked
//! up by its device. A path is looked up by the mount point above it, without resolving symbolic
//! links, because a call that resolves them may itself wait for a server.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{clock, file};

/// How long a copy of the mount table is used before it is read again.
const FRESH_NS: u64 = 5_000_000_000;

/// File systems whose calls wait for another machine or for a user process. A file system served
/// by the hypervisor (virtiofs) is not listed: it is as reliable as a disk.
const REMOTE: &[&str] = &[
    "9p",
    "afs",
    "autofs",
    "beegfs",
    "ceph",
    "cifs",
    "coda",
    "davfs",
    "fuse",
    "fuseblk",
    "gfs2",
    "glusterfs",
    "gpfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "ocfs2",
    "orangefs",
    "pvfs2",
    "smb3",
    "smbfs",
];

/// A line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    point: PathBuf,
    /// The `st_dev` of the mount's files.
    device: u64,
    is_remote: bool,
}

/// The mounts, in the order of the mount table. Empty if none of them is remote.
static TABLE: Mutex<Vec<Mount>> = Mutex::new(Vec::new());
/// Whether any mount is remote. Ordering: relaxed; a late reader uses the previous answer, which
/// was right a moment ago.
static ANY_REMOTE: AtomicBool = AtomicBool::new(false);
/// When the table must be read again. Ordering: relaxed; the CAS chooses one reader.
static NEXT_LOOK_NS: AtomicU64 = AtomicU64::new(0);

/// Whether calls on this path may wait for a server.
#[inline]
pub fn is_remote(path: &Path) -> bool {
    any_remote() && is_remote_in(&table(), path)
}

/// Whether calls on open files of this device may wait for a server.
#[inline]
pub fn is_remote_device(device: u64) -> bool {
    any_remote() && table().iter().any(|m| m.is_remote && m.device == device)
}

fn table() -> MutexGuard<'static, Vec<Mount>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether any mount is remote. Reads the mount table again if the copy is too old.
#[inline]
fn any_remote() -> bool {
    let now_ns = clock::now_ns();
    let next_ns = NEXT_LOOK_NS.load(Ordering::Relaxed);
    if now_ns >= next_ns {
        read_again(next_ns, now_ns + FRESH_NS);
    }
    ANY_REMOTE.load(Ordering::Relaxed)
}

#[cold]
fn read_again(expected_ns: u64, next_ns: u64) {
    let chosen =
        NEXT_LOOK_NS.compare_exchange(expected_ns, next_ns, Ordering::Relaxed, Ordering::Relaxed);
    if chosen.is_err() {
        return;
    }
    renew(std::fs::read("/proc/thread-self/mountinfo"));
}

/// Takes a new table. If it could not be read, because no descriptor is left, say, the table before
/// stays valid. Without /proc, every file counts as local.
fn renew(text: io::Result<Vec<u8>>) {
    let Ok(text) = text else {
        return;
    };
    let mut mounts = parse(&text);
    let any_remote = mounts.iter().any(|m| m.is_remote);
    if !any_remote {
        mounts.clear();
    }
    *table() = mounts;
    ANY_REMOTE.store(any_remote, Ordering::Relaxed);
}

/// Whether the mount above a path is remote. Lexical: symbolic links are not resolved, and
/// `..` removes a name. A path whose `..` leaves or crosses a remote mount counts as remote:
/// the kernel asks the server for each name on the way.
fn is_remote_in(mounts: &[Mount], path: &Path) -> bool {
    let Ok(path) = std::path::absolute(path) else {
        return false;
    };
    if !path.components().any(|part| part == Component::ParentDir) {
        return lies_on_remote(mounts, &path);
    }
    let mut at = PathBuf::new();
    path.components().any(|part| match part {
        Component::ParentDir => {
            let leaves_remote = lies_on_remote(mounts, &at);
            at.pop();
            leaves_remote
        }
        part => {
            at.push(part);
            false
        }
    }) || lies_on_remote(mounts, &at)
}

/// The answer for a path without `..`.
fn lies_on_remote(mounts: &[Mount], path: &Path) -> bool {
    let below = mounts.iter().filter(|m| path.starts_with(&m.point));
    // Of two mounts on one point, the later one is on top; `max_by_key` returns the last maximum.
    let nearest = below.max_by_key(|m| m.point.as_os_str().len());
    nearest.is_some_and(|m| m.is_remote)
}

/// Parses a mount table (`/proc/PID/mountinfo`, proc(5)). The fields of a line are: id, parent,
/// device, root, mount point, options, optional fields, "-", file system type, source, options.
fn parse(text: &[u8]) -> Vec<Mount> {
    let lines = text.split(|&b| b == b'\n');
    lines.filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&b| b == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let point = fields.nth(1)?;
    let fs_type = fields.skip_while(|field| *field != b"-").nth(1)?;
    let fs_type = std::str::from_utf8(fs_type).ok()?;
    // Subtypes follow a dot: "fuse.sshfs" is of type "fuse".
    let family = fs_type.split('.').next()?;
    Some(Mount {
        point: PathBuf::from(OsString::from_vec(unescape(point))),
        device: file::device(major.parse().ok()?, minor.parse().ok()?),
        is_remote: REMOTE.contains(&family),
    })
}

/// Decodes the escapes of the mount table: a backslash and three octal digits for blanks and the
/// like.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, more)) = rest.split_first() {
        let code = more
            .get(..3)
            .filter(|_| first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = &more[if code.is_some() { 3 } else { 0 }..];
    }
    bytes
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MOUNTS: &[u8] = b"\
25 1 254:0 / / rw,relatime - ext4 /dev/vda rw
26 25 0:5 / /proc rw,nosuid - proc proc rw
40 25 0:44 / /mnt/data rw,relatime shared:7 master:2 - nfs4 server:/data rw,vers=4.2
41 40 254:1 / /mnt/data/local rw - xfs /dev/vdb rw
42 25 0:45 / /mnt/with\\040blank rw - fuse.sshfs host: rw
43 25 0:46 / /mnt/auto rw - autofs systemd-1 rw
44 43 254:2 / /mnt/auto rw - ext4 /dev/vdc rw
not a line of this table
";

    #[test]
    fn paths_are_judged_by_the_nearest_mount() {
        let mounts = parse(MOUNTS);
        assert_eq!(mounts.len(), 7);
        let is_remote = |path: &str| is_remote_in(&mounts, Path::new(path));
        for path in [
            "/mnt/data",
            "/mnt/data/x/y",
            "/mnt/with blank/x",
            "/mnt/data/./x",
            "/mnt/data/local/../x",
            "/etc/../mnt/data",
            "/../mnt/data",
            "/mnt/data/../../etc",
        ] {
            assert!(is_remote(path), "{path}");
        }
        for path in [
            "/",
            "/mnt/database",
            "/mnt/data/local/x",
            "/proc/self",
            "/mnt/auto/x",
            "/mnt/data/local/x/../y",
            "/mnt/x/../database",
            "/..",
            "relative",
            "",
        ] {
            assert!(!is_remote(path), "{path}");
        }
    }

    #[test]
    fn open_files_are_judged_by_their_device() {
        let mounts = parse(MOUNTS);
        let remote: Vec<_> = mounts.iter().filter(|m| m.is_remote).collect();
        let devices: Vec<_> = remote.iter().map(|m| m.device).collect();
        assert_eq!(devices, [44, 45, 46].map(|n| file::device(0, n)));
    }

    #[test]
    fn the_table_of_this_machine_is_read() {
        let text = std::fs::read("/proc/self/mountinfo").unwrap();
        let mounts = parse(&text);
        assert_eq!(mounts.len(), text.split(|&b| b == b'\n').count() - 1);
        assert!(mounts.iter().any(|m| m.point == Path::new("/")));
    }

    #[test]
    fn a_table_that_cannot_be_read_leaves_the_one_before() {
        // The table is the process's: nobody reads it again meanwhile.
        NEXT_LOOK_NS.store(u64::MAX, Ordering::Relaxed);
        let path = Path::new("/mnt/data/x");
        let look = || {
            renew(Ok(MOUNTS.to_vec()));
            let before = is_remote(path);
            renew(Err(io::ErrorKind::Other.into()));
            let after = is_remote(path);
            renew(Ok(Vec::new()));
            (before, after, is_remote(path))
        };
        // Another test may have begun to read it before.
        let is_so = (0..10).any(|_| look() == (true, true, false));
        NEXT_LOOK_NS.store(0, Ordering::Relaxed);
        assert!(is_so);
    }

    #[test]
    fn escapes() {
        assert_eq!(unescape(b"a\\040b\\134\\"), b"a b\\\\");
        assert_eq!(unescape(b"\\09\\1"), b"\\09\\1");
    }
}

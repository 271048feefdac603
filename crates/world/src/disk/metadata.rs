//! The metadata of a file of a simulated disk, with the names of `std`'s.
#![allow(
    missing_docs,
    clippy::len_without_is_empty,
    reason = "the names, and what they mean, are std's"
)]

use std::fmt;
use std::fs::{self, FileType, Permissions};
use std::io;
#[allow(deprecated, reason = "std's trait names it")]
use std::os::linux::raw;
use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

use super::inode::{FileKind, Stat};

#[derive(Clone)]
pub struct InMemory {
    stat: Stat,
    file_type: FileType,
    #[allow(deprecated, reason = "std's trait gives a reference to it")]
    raw: raw::stat,
}

impl InMemory {
    pub fn new(stat: Stat) -> io::Result<InMemory> {
        let mut memory = InMemory {
            file_type: file_type(stat.kind)?,
            raw: raw_stat()?,
            stat,
        };
        memory.fill_raw();
        Ok(memory)
    }

    pub fn file_type(&self) -> FileType {
        self.file_type
    }

    pub fn len(&self) -> u64 {
        self.stat.size
    }

    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.mode())
    }

    pub fn modified(&self) -> io::Result<SystemTime> {
        Ok(self.stat.attributes.modified)
    }

    pub fn accessed(&self) -> io::Result<SystemTime> {
        Ok(self.stat.attributes.accessed)
    }

    pub fn created(&self) -> io::Result<SystemTime> {
        Ok(self.stat.attributes.created)
    }

    #[allow(deprecated, reason = "std's trait has it")]
    pub fn as_raw_stat(&self) -> &raw::stat {
        &self.raw
    }

    #[allow(
        deprecated,
        clippy::cast_possible_truncation,
        clippy::unnecessary_cast,
        reason = "the types of the fields differ between machines"
    )]
    fn fill_raw(&mut self) {
        let raw = raw::stat {
            st_dev: self.dev() as _,
            st_ino: self.ino() as _,
            st_mode: self.mode() as _,
            st_nlink: self.nlink() as _,
            st_uid: self.uid() as _,
            st_gid: self.gid() as _,
            st_rdev: self.rdev() as _,
            st_size: self.size() as _,
            st_atime: self.atime() as _,
            st_atime_nsec: self.atime_nsec() as _,
            st_mtime: self.mtime() as _,
            st_mtime_nsec: self.mtime_nsec() as _,
            st_ctime: self.ctime() as _,
            st_ctime_nsec: self.ctime_nsec() as _,
            st_blksize: self.blksize() as _,
            st_blocks: self.blocks() as _,
            ..self.raw.clone()
        };
        self.raw = raw;
    }
}

impl fmt::Debug for InMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metadata")
            .field("file_type", &self.file_type)
            .field("permissions", &self.permissions())
            .field("len", &self.len())
            .field("modified", &self.stat.attributes.modified)
            .field("accessed", &self.stat.attributes.accessed)
            .field("created", &self.stat.attributes.created)
            .finish_non_exhaustive()
    }
}

/// The fields of `stat(2)`: as methods of the name that they have in `std`'s trait.
macro_rules! fields {
    ($($name:ident: $type:ty = $value:expr;)*) => {
        impl InMemory {
            $(pub fn $name(&self) -> $type {
                ($value)(&self.stat)
            })*
        }
    };
}

fields! {
    dev: u64 = |stat: &Stat| stat.device;
    ino: u64 = |stat: &Stat| stat.ino;
    mode: u32 = |stat: &Stat| stat.kind.bits() | stat.attributes.mode;
    nlink: u64 = |stat: &Stat| stat.n_links;
    uid: u32 = |stat: &Stat| stat.attributes.uid;
    gid: u32 = |stat: &Stat| stat.attributes.gid;
    rdev: u64 = |_: &Stat| 0;
    size: u64 = |stat: &Stat| stat.size;
    atime: i64 = |stat: &Stat| since_1970(stat.attributes.accessed).0;
    atime_nsec: i64 = |stat: &Stat| since_1970(stat.attributes.accessed).1;
    mtime: i64 = |stat: &Stat| since_1970(stat.attributes.modified).0;
    mtime_nsec: i64 = |stat: &Stat| since_1970(stat.attributes.modified).1;
    ctime: i64 = |stat: &Stat| since_1970(stat.attributes.changed).0;
    ctime_nsec: i64 = |stat: &Stat| since_1970(stat.attributes.changed).1;
    blksize: u64 = |_: &Stat| 4096;
    blocks: u64 = |stat: &Stat| stat.allocated / 512;
}

/// Seconds and nanoseconds, which are never negative.
fn since_1970(time: std::time::SystemTime) -> (i64, i64) {
    match time.duration_since(std::time::SystemTime::UNIX_EPOCH) {
        Ok(after) => (after.as_secs() as i64, i64::from(after.subsec_nanos())),
        Err(e) => {
            let before = e.duration();
            match before.subsec_nanos() {
                0 => (-(before.as_secs() as i64), 0),
                n => (-(before.as_secs() as i64) - 1, 1_000_000_000 - i64::from(n)),
            }
        }
    }
}

/// A structure to be filled in. `std` makes one without unsafe code only for a file that exists.
#[allow(deprecated, reason = "std's trait names it")]
fn raw_stat() -> io::Result<raw::stat> {
    let root = fs::metadata("/")?;
    Ok(std::os::linux::fs::MetadataExt::as_raw_stat(&root).clone())
}

/// `std`'s type of a file, which only files of the kernel have.
pub fn file_type(kind: FileKind) -> io::Result<FileType> {
    let metadata = match kind {
        FileKind::Regular => fs::metadata("/proc/version")?,
        FileKind::Directory => fs::metadata("/")?,
        FileKind::Symlink => fs::symlink_metadata("/proc/self")?,
    };
    Ok(metadata.file_type())
}

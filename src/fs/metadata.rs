//! `Metadata`: the kernel's, or that of a simulated disk.

use std::fmt;
use std::fs::{self, FileType, Permissions};
use std::io;
#[allow(deprecated, reason = "std's trait names it")]
use std::os::linux::raw;
#[cfg(feature = "sim")]
use std::os::unix::fs::PermissionsExt;

#[cfg(feature = "sim")]
use super::memory::{FileKind, Stat};
use crate::time::SystemTime;

/// Metadata of a file. It has the interface of [`std::fs::Metadata`], with the extension traits of
/// `std::os::unix::fs` and `std::os::linux::fs`.
///
/// The difference: inside a simulation (feature `sim`) it describes a file of the simulated disk.
/// `std`'s metadata converts into it, and outside of simulations it converts back
/// (`TryFrom`).
///
/// # Examples
///
/// ```
/// use std::os::unix::fs::MetadataExt;
/// use windlass::fs;
///
/// let metadata = fs::metadata("/proc")?;
/// assert!(metadata.is_dir());
/// assert_eq!(metadata.mode() & 0o777, 0o555);
///
/// let of_std: std::fs::Metadata = metadata.try_into()?;
/// assert!(of_std.is_dir());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Metadata(Source);

#[derive(Clone)]
enum Source {
    Kernel(fs::Metadata),
    #[cfg(feature = "sim")]
    Memory(Box<InMemory>),
}

/// Metadata of a file of a simulated disk.
#[cfg(feature = "sim")]
#[derive(Clone)]
struct InMemory {
    stat: Stat,
    file_type: FileType,
    #[allow(deprecated, reason = "std's trait gives a reference to it")]
    raw: raw::stat,
}

impl Metadata {
    /// The type of the file.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        match &self.0 {
            Source::Kernel(metadata) => metadata.file_type(),
            #[cfg(feature = "sim")]
            Source::Memory(memory) => memory.file_type,
        }
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// The size of the file in bytes.
    #[must_use]
    #[allow(
        clippy::len_without_is_empty,
        reason = "the interface is that of std's metadata"
    )]
    pub fn len(&self) -> u64 {
        match &self.0 {
            Source::Kernel(metadata) => metadata.len(),
            #[cfg(feature = "sim")]
            Source::Memory(memory) => memory.stat.size,
        }
    }

    /// The permissions of the file.
    #[must_use]
    pub fn permissions(&self) -> Permissions {
        match &self.0 {
            Source::Kernel(metadata) => metadata.permissions(),
            #[cfg(feature = "sim")]
            Source::Memory(_) => Permissions::from_mode(std::os::unix::fs::MetadataExt::mode(self)),
        }
    }

    /// The time of the last change of the file's bytes.
    ///
    /// # Errors
    ///
    /// As `std::fs::Metadata::modified`.
    pub fn modified(&self) -> io::Result<SystemTime> {
        match &self.0 {
            Source::Kernel(metadata) => Ok(metadata.modified()?.into()),
            #[cfg(feature = "sim")]
            Source::Memory(memory) => Ok(memory.stat.attributes.modified.into()),
        }
    }

    /// The time of the last access to the file's bytes.
    ///
    /// # Errors
    ///
    /// As `std::fs::Metadata::accessed`.
    pub fn accessed(&self) -> io::Result<SystemTime> {
        match &self.0 {
            Source::Kernel(metadata) => Ok(metadata.accessed()?.into()),
            #[cfg(feature = "sim")]
            Source::Memory(memory) => Ok(memory.stat.attributes.accessed.into()),
        }
    }

    /// The time at which the file was created.
    ///
    /// # Errors
    ///
    /// As `std::fs::Metadata::created`.
    pub fn created(&self) -> io::Result<SystemTime> {
        match &self.0 {
            Source::Kernel(metadata) => Ok(metadata.created()?.into()),
            #[cfg(feature = "sim")]
            Source::Memory(memory) => Ok(memory.stat.attributes.created.into()),
        }
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Kernel(metadata) => metadata.fmt(f),
            #[cfg(feature = "sim")]
            Source::Memory(memory) => f
                .debug_struct("Metadata")
                .field("file_type", &memory.file_type)
                .field("permissions", &self.permissions())
                .field("len", &self.len())
                .field("modified", &memory.stat.attributes.modified)
                .field("accessed", &memory.stat.attributes.accessed)
                .field("created", &memory.stat.attributes.created)
                .finish_non_exhaustive(),
        }
    }
}

impl From<fs::Metadata> for Metadata {
    fn from(metadata: fs::Metadata) -> Metadata {
        Metadata(Source::Kernel(metadata))
    }
}

impl TryFrom<Metadata> for fs::Metadata {
    type Error = io::Error;

    /// # Errors
    ///
    /// `Unsupported` for a file of a simulated disk.
    fn try_from(metadata: Metadata) -> io::Result<fs::Metadata> {
        match metadata.0 {
            Source::Kernel(metadata) => Ok(metadata),
            #[cfg(feature = "sim")]
            Source::Memory(_) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the file is on a simulated disk: std has no metadata of it",
            )),
        }
    }
}

/// Implements `std`'s two traits with the fields of `stat(2)`. Each line has the methods of the two
/// traits, their type, and the value for a file of a simulated disk.
macro_rules! fields {
    ($($unix:ident $linux:ident: $type:ty = $value:expr;)*) => {
        impl std::os::unix::fs::MetadataExt for Metadata {
            $(fn $unix(&self) -> $type {
                match &self.0 {
                    Source::Kernel(metadata) => std::os::unix::fs::MetadataExt::$unix(metadata),
                    #[cfg(feature = "sim")]
                    Source::Memory(memory) => ($value)(&memory.stat),
                }
            })*
        }

        impl std::os::linux::fs::MetadataExt for Metadata {
            #[allow(deprecated, reason = "std's trait has it")]
            fn as_raw_stat(&self) -> &raw::stat {
                match &self.0 {
                    Source::Kernel(metadata) => {
                        std::os::linux::fs::MetadataExt::as_raw_stat(metadata)
                    }
                    #[cfg(feature = "sim")]
                    Source::Memory(memory) => &memory.raw,
                }
            }

            $(fn $linux(&self) -> $type {
                std::os::unix::fs::MetadataExt::$unix(self)
            })*
        }
    };
}

fields! {
    dev st_dev: u64 = |stat: &Stat| stat.device;
    ino st_ino: u64 = |stat: &Stat| stat.ino;
    mode st_mode: u32 = |stat: &Stat| stat.kind.bits() | stat.attributes.mode;
    nlink st_nlink: u64 = |stat: &Stat| stat.n_links;
    uid st_uid: u32 = |stat: &Stat| stat.attributes.uid;
    gid st_gid: u32 = |stat: &Stat| stat.attributes.gid;
    rdev st_rdev: u64 = |_: &Stat| 0;
    size st_size: u64 = |stat: &Stat| stat.size;
    atime st_atime: i64 = |stat: &Stat| since_1970(stat.attributes.accessed).0;
    atime_nsec st_atime_nsec: i64 = |stat: &Stat| since_1970(stat.attributes.accessed).1;
    mtime st_mtime: i64 = |stat: &Stat| since_1970(stat.attributes.modified).0;
    mtime_nsec st_mtime_nsec: i64 = |stat: &Stat| since_1970(stat.attributes.modified).1;
    ctime st_ctime: i64 = |stat: &Stat| since_1970(stat.attributes.changed).0;
    ctime_nsec st_ctime_nsec: i64 = |stat: &Stat| since_1970(stat.attributes.changed).1;
    blksize st_blksize: u64 = |_: &Stat| 4096;
    blocks st_blocks: u64 = |stat: &Stat| stat.allocated / 512;
}

/// Seconds and nanoseconds, which are never negative.
#[cfg(feature = "sim")]
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

#[cfg(feature = "sim")]
impl Metadata {
    /// The metadata of a file of a simulated disk.
    pub(super) fn in_memory(stat: Stat) -> io::Result<Metadata> {
        let memory = InMemory {
            file_type: file_type(stat.kind)?,
            raw: raw_stat()?,
            stat,
        };
        let mut metadata = Metadata(Source::Memory(Box::new(memory)));
        metadata.fill_raw();
        Ok(metadata)
    }

    #[allow(
        deprecated,
        clippy::cast_possible_truncation,
        clippy::unnecessary_cast,
        reason = "the types of the fields differ between machines"
    )]
    fn fill_raw(&mut self) {
        use std::os::unix::fs::MetadataExt;
        let all = self.clone();
        if let Source::Memory(memory) = &mut self.0 {
            let raw = &mut memory.raw;
            raw.st_dev = all.dev() as _;
            raw.st_ino = all.ino() as _;
            raw.st_mode = all.mode() as _;
            raw.st_nlink = all.nlink() as _;
            raw.st_uid = all.uid() as _;
            raw.st_gid = all.gid() as _;
            raw.st_rdev = all.rdev() as _;
            raw.st_size = all.size() as _;
            raw.st_blksize = all.blksize() as _;
            raw.st_blocks = all.blocks() as _;
            raw.st_atime = all.atime() as _;
            raw.st_atime_nsec = all.atime_nsec() as _;
            raw.st_mtime = all.mtime() as _;
            raw.st_mtime_nsec = all.mtime_nsec() as _;
            raw.st_ctime = all.ctime() as _;
            raw.st_ctime_nsec = all.ctime_nsec() as _;
        }
    }
}

/// A structure to be filled in: there is no other way to one without unsafe code.
#[cfg(feature = "sim")]
#[allow(deprecated, reason = "std's trait names it")]
fn raw_stat() -> io::Result<raw::stat> {
    let root = fs::metadata("/")?;
    Ok(std::os::linux::fs::MetadataExt::as_raw_stat(&root).clone())
}

/// `std`'s type of a file, which only files of the kernel have.
#[cfg(feature = "sim")]
pub(super) fn file_type(kind: FileKind) -> io::Result<FileType> {
    let metadata = match kind {
        FileKind::Regular => fs::metadata("/proc/version")?,
        FileKind::Directory => fs::metadata("/")?,
        FileKind::Symlink => fs::symlink_metadata("/proc/self")?,
    };
    Ok(metadata.file_type())
}

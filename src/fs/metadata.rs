//! `Metadata`: the kernel's, or that of a simulated disk.

use std::fmt;
use std::fs::{self, FileType, Permissions};
use std::io;
#[allow(deprecated, reason = "std's trait names it")]
use std::os::linux::raw;

use super::memory::InMemory;
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
    Memory(Box<InMemory>),
}

impl Metadata {
    /// The type of the file.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        match &self.0 {
            Source::Kernel(metadata) => metadata.file_type(),
            Source::Memory(memory) => memory.file_type(),
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
            Source::Memory(memory) => memory.len(),
        }
    }

    /// The permissions of the file.
    #[must_use]
    pub fn permissions(&self) -> Permissions {
        match &self.0 {
            Source::Kernel(metadata) => metadata.permissions(),
            Source::Memory(memory) => memory.permissions(),
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
            Source::Memory(memory) => Ok(memory.modified()?.into()),
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
            Source::Memory(memory) => Ok(memory.accessed()?.into()),
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
            Source::Memory(memory) => Ok(memory.created()?.into()),
        }
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Kernel(metadata) => metadata.fmt(f),
            Source::Memory(memory) => memory.fmt(f),
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
            Source::Memory(_) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the file is on a simulated disk: std has no metadata of it",
            )),
        }
    }
}

/// Implements `std`'s two traits with the fields of `stat(2)`. Each line has the methods of the two
/// traits, and their type.
macro_rules! fields {
    ($($unix:ident $linux:ident: $type:ty;)*) => {
        impl std::os::unix::fs::MetadataExt for Metadata {
            $(fn $unix(&self) -> $type {
                match &self.0 {
                    Source::Kernel(metadata) => std::os::unix::fs::MetadataExt::$unix(metadata),
                    Source::Memory(memory) => memory.$unix(),
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
                    Source::Memory(memory) => memory.as_raw_stat(),
                }
            }

            $(fn $linux(&self) -> $type {
                std::os::unix::fs::MetadataExt::$unix(self)
            })*
        }
    };
}

fields! {
    dev st_dev: u64;
    ino st_ino: u64;
    mode st_mode: u32;
    nlink st_nlink: u64;
    uid st_uid: u32;
    gid st_gid: u32;
    rdev st_rdev: u64;
    size st_size: u64;
    atime st_atime: i64;
    atime_nsec st_atime_nsec: i64;
    mtime st_mtime: i64;
    mtime_nsec st_mtime_nsec: i64;
    ctime st_ctime: i64;
    ctime_nsec st_ctime_nsec: i64;
    blksize st_blksize: u64;
    blocks st_blocks: u64;
}

impl Metadata {
    /// The metadata of a simulated file. An impl of `From` would be public, with the type that it names.
    pub(super) fn of_simulation(memory: InMemory) -> Metadata {
        Metadata(Source::Memory(Box::new(memory)))
    }
}

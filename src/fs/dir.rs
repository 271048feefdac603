//! Directories.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt};
use std::path::{Path, PathBuf};

use super::mounts;
use super::section::{at_path, choose};
use crate::sched::offload::offload;

/// The entries of a directory, without `.` and `..`. Made by [`read_dir`].
///
/// # Blocking
///
/// Most steps make no system call; the others block the thread in a
/// [`blocking`](crate::blocking) section.
#[derive(Debug)]
pub struct ReadDir {
    entries: fs::ReadDir,
    is_remote: bool,
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        let is_remote = self.is_remote;
        choose(is_remote, || self.entries.next().transpose())
            .transpose()
            .map(|entry| entry.map(|entry| DirEntry { entry, is_remote }))
    }
}

/// An entry of a directory.
#[derive(Debug)]
pub struct DirEntry {
    entry: fs::DirEntry,
    is_remote: bool,
}

impl DirEntry {
    /// The directory's path with the entry's name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.entry.path()
    }

    /// The entry's name.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        self.entry.file_name()
    }

    /// What the file system knows about the entry, a symbolic link itself.
    ///
    /// # Errors
    ///
    /// As `std::fs::DirEntry::metadata`.
    pub fn metadata(&self) -> io::Result<fs::Metadata> {
        choose(self.is_remote, || self.entry.metadata())
    }

    /// What the entry is, a symbolic link itself. Most file systems told with the name.
    ///
    /// # Errors
    ///
    /// As `std::fs::DirEntry::file_type`.
    pub fn file_type(&self) -> io::Result<fs::FileType> {
        choose(self.is_remote, || self.entry.file_type())
    }

    /// The number of the entry's inode.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.entry.ino()
    }
}

/// The entries of a directory.
///
/// # Errors
///
/// As `std::fs::read_dir`.
pub fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    let path = path.as_ref();
    let is_remote = mounts::is_remote(path);
    let entries = choose(is_remote, || fs::read_dir(path))?;
    Ok(ReadDir { entries, is_remote })
}

/// Makes a directory.
///
/// # Errors
///
/// As `std::fs::create_dir`.
pub fn create_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    at_path(path, || fs::create_dir(path))
}

/// Makes a directory and those above it that are missing.
///
/// # Errors
///
/// As `std::fs::create_dir_all`.
pub fn create_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    at_path(path, || fs::create_dir_all(path))
}

/// Removes an empty directory.
///
/// # Errors
///
/// As `std::fs::remove_dir`.
pub fn remove_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    at_path(path, || fs::remove_dir(path))
}

/// Removes a directory with all that is in it, on a spare thread.
///
/// # Errors
///
/// As `std::fs::remove_dir_all`.
pub fn remove_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    offload(|| fs::remove_dir_all(path))
}

/// How to make a directory.
#[derive(Debug)]
pub struct DirBuilder(fs::DirBuilder);

impl Default for DirBuilder {
    fn default() -> DirBuilder {
        DirBuilder::new()
    }
}

impl DirBuilder {
    /// Mode 0777 before the umask, not recursive.
    #[must_use]
    pub fn new() -> DirBuilder {
        DirBuilder(fs::DirBuilder::new())
    }

    /// Also makes those above that are missing; one that is there is no error then.
    pub fn recursive(&mut self, recursive: bool) -> &mut DirBuilder {
        self.0.recursive(recursive);
        self
    }

    /// The mode, before the umask.
    pub fn mode(&mut self, mode: u32) -> &mut DirBuilder {
        self.0.mode(mode);
        self
    }

    /// Makes the directory.
    ///
    /// # Errors
    ///
    /// As `std::fs::DirBuilder::create`.
    pub fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let path = path.as_ref();
        at_path(path, || self.0.create(path))
    }
}

//! Directories.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt};
use std::path::{Path, PathBuf};

use super::section::in_place;
use crate::sched::offload::offload;

/// The entries of a directory, without `.` and `..`. Made by [`read_dir`].
///
/// # Blocking
///
/// Most steps make no system call; the others block the thread in a
/// [`blocking`](crate::blocking) section.
#[derive(Debug)]
pub struct ReadDir(fs::ReadDir);

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        in_place(|| self.0.next().transpose())
            .transpose()
            .map(|entry| entry.map(DirEntry))
    }
}

/// An entry of a directory.
#[derive(Debug)]
pub struct DirEntry(fs::DirEntry);

impl DirEntry {
    /// The directory's path with the entry's name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// The entry's name.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        self.0.file_name()
    }

    /// What the file system knows about the entry, a symbolic link itself.
    ///
    /// # Errors
    ///
    /// As `std::fs::DirEntry::metadata`.
    pub fn metadata(&self) -> io::Result<fs::Metadata> {
        in_place(|| self.0.metadata())
    }

    /// What the entry is, a symbolic link itself. Most file systems told with the name.
    ///
    /// # Errors
    ///
    /// As `std::fs::DirEntry::file_type`.
    pub fn file_type(&self) -> io::Result<fs::FileType> {
        in_place(|| self.0.file_type())
    }

    /// The number of the entry's inode.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.0.ino()
    }
}

/// The entries of a directory.
///
/// # Errors
///
/// As `std::fs::read_dir`.
pub fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    in_place(|| fs::read_dir(path.as_ref())).map(ReadDir)
}

/// Makes a directory.
///
/// # Errors
///
/// As `std::fs::create_dir`.
pub fn create_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    in_place(|| fs::create_dir(path.as_ref()))
}

/// Makes a directory and those above it that are missing.
///
/// # Errors
///
/// As `std::fs::create_dir_all`.
pub fn create_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    in_place(|| fs::create_dir_all(path.as_ref()))
}

/// Removes an empty directory.
///
/// # Errors
///
/// As `std::fs::remove_dir`.
pub fn remove_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    in_place(|| fs::remove_dir(path.as_ref()))
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
        in_place(|| self.0.create(path.as_ref()))
    }
}

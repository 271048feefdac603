//! Directories.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt};
use std::path::{Path, PathBuf};

use super::memory::{EntriesInMemory, EntryInMemory};
use super::metadata::Metadata;
use super::section::{at_path, choose};
use crate::sched::wait::offload::offload_unless_locked;
use crate::sys::errno::retry;
use crate::sys::mounts;

/// Iterator over the entries of a directory, without `.` and `..`. Created by [`read_dir`].
///
/// # Blocking
///
/// Most steps make no system call. The others block the thread in a
/// [`blocking`](crate::blocking) section.
#[derive(Debug)]
pub struct ReadDir(Entries);

#[derive(Debug)]
enum Entries {
    Kernel {
        entries: fs::ReadDir,
        is_remote: bool,
    },
    Memory(EntriesInMemory),
}

impl From<EntriesInMemory> for ReadDir {
    fn from(entries: EntriesInMemory) -> ReadDir {
        ReadDir(Entries::Memory(entries))
    }
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        match &mut self.0 {
            Entries::Kernel { entries, is_remote } => {
                let is_remote = *is_remote;
                choose(is_remote, || entries.next().transpose())
                    .transpose()
                    .map(|entry| entry.map(|entry| DirEntry(Entry::Kernel { entry, is_remote })))
            }
            Entries::Memory(entries) => entries
                .next()
                .map(|entry| Ok(DirEntry(Entry::Memory(entry)))),
        }
    }
}

/// An entry of a directory, yielded by [`ReadDir`].
///
/// # Examples
///
/// ```
/// use windlass::fs;
///
/// # let dir = std::env::temp_dir().join(format!("windlass-doc-entry-{}", std::process::id()));
/// # fs::create_dir_all(&dir)?;
/// fs::write(dir.join("a"), "12345")?;
/// for entry in fs::read_dir(&dir)? {
///     let entry = entry?;
///     assert_eq!(entry.file_name(), "a");
///     assert_eq!(entry.path(), dir.join("a"));
///     assert!(entry.file_type()?.is_file());
///     assert_eq!(entry.metadata()?.len(), 5);
///     assert_ne!(entry.ino(), 0);
/// }
/// # fs::remove_dir_all(&dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct DirEntry(Entry);

enum Entry {
    Kernel {
        entry: fs::DirEntry,
        is_remote: bool,
    },
    Memory(EntryInMemory),
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}

impl DirEntry {
    /// Returns the path of the entry: the directory's path joined with the entry's name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        match &self.0 {
            Entry::Kernel { entry, .. } => entry.path(),
            Entry::Memory(entry) => entry.path(),
        }
    }

    /// Returns the name of the entry.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        match &self.0 {
            Entry::Kernel { entry, .. } => entry.file_name(),
            Entry::Memory(entry) => entry.file_name(),
        }
    }

    /// Returns the metadata of the entry, without following symbolic links.
    ///
    /// # Blocking
    ///
    /// Blocks the thread, in a [`blocking`](crate::blocking) section.
    ///
    /// # Errors
    ///
    /// As `std::fs::DirEntry::metadata`.
    pub fn metadata(&self) -> io::Result<Metadata> {
        match &self.0 {
            Entry::Kernel { entry, is_remote } => {
                choose(*is_remote, || entry.metadata()).map(Metadata::from)
            }
            Entry::Memory(entry) => entry.metadata().map(Metadata::of_simulation),
        }
    }

    /// Returns the type of the entry, without following symbolic links.
    ///
    /// # Blocking
    ///
    /// Never on most file systems: they report the type with the name. Otherwise as
    /// [`metadata`](DirEntry::metadata).
    ///
    /// # Errors
    ///
    /// As `std::fs::DirEntry::file_type`.
    pub fn file_type(&self) -> io::Result<fs::FileType> {
        match &self.0 {
            Entry::Kernel { entry, is_remote } => choose(*is_remote, || entry.file_type()),
            Entry::Memory(entry) => entry.file_type(),
        }
    }

    /// Returns the inode number of the entry.
    #[must_use]
    pub fn ino(&self) -> u64 {
        match &self.0 {
            Entry::Kernel { entry, .. } => entry.ino(),
            Entry::Memory(entry) => entry.ino(),
        }
    }
}

/// Returns an iterator over the entries of a directory.
///
/// # Blocking
///
/// Blocks the thread, in a [`blocking`](crate::blocking) section.
///
/// # Errors
///
/// As `std::fs::read_dir`.
///
/// # Examples
///
/// See [`DirEntry`].
pub fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    let path = path.as_ref();
    on_simulated_disk!(disk => {
        Ok(EntriesInMemory::new(disk, path)?.into())
    });
    let is_remote = mounts::is_remote(path);
    let entries = choose(is_remote, || fs::read_dir(path))?;
    Ok(ReadDir(Entries::Kernel { entries, is_remote }))
}

/// Creates a directory.
///
/// # Blocking
///
/// Blocks the thread, in a [`blocking`](crate::blocking) section.
///
/// # Errors
///
/// As `std::fs::create_dir`.
///
/// # Examples
///
/// ```
/// use windlass::fs;
///
/// # let dir = std::env::temp_dir().join(format!("windlass-doc-mkdir-{}", std::process::id()));
/// fs::create_dir(&dir)?;
/// assert!(fs::metadata(&dir)?.is_dir());
/// fs::remove_dir(&dir)?;
/// assert!(!fs::exists(&dir)?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn create_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    on_simulated_disk!(disk => disk.create_dir(path, 0o777));
    at_path(path, || fs::create_dir(path))
}

/// Creates a directory and its missing parents. An existing directory is no error.
///
/// # Blocking
///
/// Blocks the thread, in a [`blocking`](crate::blocking) section.
///
/// # Errors
///
/// As `std::fs::create_dir_all`.
///
/// # Examples
///
/// ```
/// use windlass::fs;
///
/// # let dir = std::env::temp_dir().join(format!("windlass-doc-mkdirs-{}", std::process::id()));
/// fs::create_dir_all(dir.join("a/b"))?;
/// fs::create_dir_all(dir.join("a/b"))?;
/// fs::remove_dir_all(&dir)?;
/// assert!(!fs::exists(&dir)?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn create_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    on_simulated_disk!(disk => disk.create_dir_all(path, 0o777));
    at_path(path, || fs::create_dir_all(path))
}

/// Removes an empty directory.
///
/// # Blocking
///
/// Blocks the thread, in a [`blocking`](crate::blocking) section.
///
/// # Errors
///
/// As `std::fs::remove_dir`.
///
/// # Examples
///
/// See [`create_dir`].
pub fn remove_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    on_simulated_disk!(disk => disk.remove_dir(path));
    at_path(path, || fs::remove_dir(path))
}

/// Removes a directory and its contents. Symbolic links are removed, not followed.
///
/// # Blocking
///
/// Parks the goroutine while a spare thread ([`offload`](crate::offload)) does the work; blocks a
/// plain thread, and that of a goroutine that has locked it.
///
/// # Errors
///
/// As `std::fs::remove_dir_all`.
///
/// # Examples
///
/// See [`create_dir_all`].
pub fn remove_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    on_simulated_disk!(disk => disk.remove_dir_all(path));
    offload_unless_locked(|| retry(|| fs::remove_dir_all(path)))
}

/// Options for creating a directory: `std::fs::DirBuilder`.
///
/// # Examples
///
/// ```
/// use std::os::unix::fs::PermissionsExt;
/// use windlass::fs::{self, DirBuilder};
///
/// # let dir = std::env::temp_dir().join(format!("windlass-doc-builder-{}", std::process::id()));
/// let private = dir.join("cache/private");
/// DirBuilder::new().recursive(true).mode(0o700).create(&private)?;
/// assert_eq!(fs::metadata(&private)?.permissions().mode() & 0o777, 0o700);
/// # fs::remove_dir_all(&dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct DirBuilder {
    recursive: bool,
    mode: u32,
}

impl Default for DirBuilder {
    fn default() -> DirBuilder {
        DirBuilder::new()
    }
}

impl DirBuilder {
    /// Creates the default options: mode 0777 before the umask, not recursive.
    #[must_use]
    pub fn new() -> DirBuilder {
        DirBuilder {
            recursive: false,
            mode: 0o777,
        }
    }

    /// Creates missing parents, too. An existing directory is then no error.
    pub fn recursive(&mut self, recursive: bool) -> &mut DirBuilder {
        self.recursive = recursive;
        self
    }

    /// Sets the mode of new directories, before the umask.
    pub fn mode(&mut self, mode: u32) -> &mut DirBuilder {
        self.mode = mode;
        self
    }

    /// Creates the directory.
    ///
    /// # Blocking
    ///
    /// Blocks the thread, in a [`blocking`](crate::blocking) section.
    ///
    /// # Errors
    ///
    /// As `std::fs::DirBuilder::create`.
    pub fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let path = path.as_ref();
        on_simulated_disk!(disk => if self.recursive {
            disk.create_dir_all(path, self.mode)
        } else {
            disk.create_dir(path, self.mode)
        });
        let mut builder = fs::DirBuilder::new();
        builder.recursive(self.recursive).mode(self.mode);
        at_path(path, || builder.create(path))
    }
}

impl std::os::unix::fs::DirEntryExt for DirEntry {
    fn ino(&self) -> u64 {
        self.ino()
    }
}

impl std::os::unix::fs::DirBuilderExt for DirBuilder {
    fn mode(&mut self, mode: u32) -> &mut DirBuilder {
        self.mode(mode)
    }
}

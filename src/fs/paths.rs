//! The free functions of `std::fs` on the path of a file.

use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs as unix;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::file::File;
use super::kind::Kind;
use super::metadata::Metadata;
use super::open_options::OpenOptions;
use super::section::{at_path, at_paths};
use crate::sched::wait::offload::offload;

/// Reads a whole file into memory.
///
/// # Blocking
///
/// As [`File`].
///
/// # Errors
///
/// As `std::fs::read`.
///
/// # Examples
///
/// ```
/// use windlass::fs;
///
/// # let dir = std::env::temp_dir().join(format!("windlass-doc-read-{}", std::process::id()));
/// # fs::create_dir_all(&dir)?;
/// let path = dir.join("notes");
/// fs::write(&path, "one line")?;
/// assert_eq!(fs::read(&path)?, b"one line");
/// assert_eq!(fs::read_to_string(&path)?, "one line");
/// # fs::remove_dir_all(&dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read<P: AsRef<Path>>(path: P) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a whole UTF-8 file into a string.
///
/// # Blocking
///
/// As [`File`].
///
/// # Errors
///
/// As `std::fs::read_to_string`; `InvalidData` if the file is not UTF-8.
///
/// # Examples
///
/// See [`read`].
pub fn read_to_string<P: AsRef<Path>>(path: P) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Writes `contents` to a file. Creates the file, or replaces its contents.
///
/// # Blocking
///
/// As [`File`].
///
/// # Errors
///
/// As `std::fs::write`.
///
/// # Examples
///
/// See [`read`].
pub fn write<P: AsRef<Path>, C: AsRef<[u8]>>(path: P, contents: C) -> io::Result<()> {
    File::create(path)?.write_all(contents.as_ref())
}

/// Copies the contents and permissions of a file. Returns the number of bytes copied.
///
/// The kernel copies the bytes where it can (`copy_file_range(2)`).
///
/// # Blocking
///
/// Parks the goroutine while a spare thread ([`offload`](crate::offload)) copies; blocks a plain
/// thread.
///
/// # Errors
///
/// As `std::fs::copy`; `InvalidInput` if `from` is not a regular file.
///
/// # Examples
///
/// ```
/// use windlass::fs;
///
/// # let dir = std::env::temp_dir().join(format!("windlass-doc-copy-{}", std::process::id()));
/// # fs::create_dir_all(&dir)?;
/// let (from, to) = (dir.join("from"), dir.join("to"));
/// fs::write(&from, "12345")?;
/// assert_eq!(fs::copy(&from, &to)?, 5);
/// assert_eq!(fs::read(&to)?, b"12345");
/// # fs::remove_dir_all(&dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn copy<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<u64> {
    let source = File::open(from)?;
    let metadata = source.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the source path is neither a regular file nor a symlink to a regular file",
        ));
    }
    let target = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(metadata.permissions().mode())
        .open(to)?;
    if target.kind().is_stream() || target.kind() == Kind::Nonblocking {
        return io::copy(&mut &source, &mut &target);
    }
    if target.metadata()?.is_file() {
        // The permissions differ if the umask cleared some, or if the file existed.
        target.set_permissions(metadata.permissions())?;
    }
    on_simulated_disk!(_disk => io::copy(&mut &source, &mut &target));
    offload(|| io::copy(&mut source.std(), &mut target.std()))
}

/// Renames a file or directory. Replaces an existing file at `to`.
///
/// # Blocking
///
/// Blocks the thread, in a [`blocking`](crate::blocking) section.
///
/// # Errors
///
/// As `std::fs::rename`.
///
/// # Examples
///
/// ```
/// use windlass::fs;
///
/// # let dir = std::env::temp_dir().join(format!("windlass-doc-rename-{}", std::process::id()));
/// # fs::create_dir_all(&dir)?;
/// let (draft, page) = (dir.join("draft"), dir.join("page"));
/// fs::write(&draft, "text")?;
/// fs::rename(&draft, &page)?;
/// assert!(!fs::exists(&draft)?);
/// fs::remove_file(&page)?;
/// assert!(!fs::exists(&page)?);
/// # fs::remove_dir_all(&dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn rename<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    on_simulated_disk!(disk => disk.rename(from, to));
    at_paths([from, to], || fs::rename(from, to))
}

/// Removes a file from its directory. The file is deleted with its last name and handle.
///
/// # Blocking
///
/// Blocks the thread, in a [`blocking`](crate::blocking) section.
///
/// # Errors
///
/// As `std::fs::remove_file`.
///
/// # Examples
///
/// See [`rename`].
pub fn remove_file<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    if crate::poll::sim_socket::unlink(path) {
        // It was that of a simulated Unix socket.
        return Ok(());
    }
    on_simulated_disk!(disk => disk.remove_file(path));
    at_path(path, || fs::remove_file(path))
}

/// Returns the metadata of a file. Follows symbolic links.
///
/// # Blocking
///
/// Blocks the thread, in a [`blocking`](crate::blocking) section.
///
/// # Errors
///
/// As `std::fs::metadata`.
///
/// # Examples
///
/// ```
/// use windlass::fs;
///
/// assert!(fs::metadata("/proc")?.is_dir());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    let path = path.as_ref();
    on_simulated_disk!(disk => super::memory::InMemory::new(disk.metadata(path, true)?).map(Metadata::of_simulation));
    at_path(path, || fs::metadata(path)).map(Metadata::from)
}

/// Returns the metadata of a file. Does not follow symbolic links.
///
/// # Blocking
///
/// Blocks the thread, in a [`blocking`](crate::blocking) section.
///
/// # Errors
///
/// As `std::fs::symlink_metadata`.
///
/// # Examples
///
/// See [`symlink`].
pub fn symlink_metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    let path = path.as_ref();
    on_simulated_disk!(disk => super::memory::InMemory::new(disk.metadata(path, false)?).map(Metadata::of_simulation));
    at_path(path, || fs::symlink_metadata(path)).map(Metadata::from)
}

/// Returns whether the file exists. Follows symbolic links.
///
/// # Blocking
///
/// Blocks the thread, in a [`blocking`](crate::blocking) section.
///
/// # Errors
///
/// As `std::fs::exists`: if the answer is not known, for example without access to the directory.
///
/// # Examples
///
/// See [`rename`].
pub fn exists<P: AsRef<Path>>(path: P) -> io::Result<bool> {
    let path = path.as_ref();
    on_simulated_disk!(disk => match disk.metadata(path, true) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        found => Ok(found.is_ok()),
    });
    at_path(path, || fs::exists(path))
}

/// Returns the absolute path of a file, with all symbolic links resolved.
///
/// # Blocking
///
/// Blocks the thread, in a [`blocking`](crate::blocking) section.
///
/// # Errors
///
/// As `std::fs::canonicalize`.
///
/// # Examples
///
/// ```
/// use windlass::fs;
///
/// assert_eq!(fs::canonicalize("/proc/../proc/.")?, std::path::Path::new("/proc"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn canonicalize<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    let path = path.as_ref();
    on_simulated_disk!(disk => disk.canonicalize(path));
    at_path(path, || fs::canonicalize(path))
}

/// Creates a hard link: a second name for the file `original`.
///
/// # Blocking
///
/// Blocks the thread, in a [`blocking`](crate::blocking) section.
///
/// # Errors
///
/// As `std::fs::hard_link`.
///
/// # Examples
///
/// ```
/// use windlass::fs;
///
/// # let dir = std::env::temp_dir().join(format!("windlass-doc-link-{}", std::process::id()));
/// # fs::create_dir_all(&dir)?;
/// let (first, second) = (dir.join("first"), dir.join("second"));
/// fs::write(&first, "text")?;
/// fs::hard_link(&first, &second)?;
/// assert_eq!(fs::read(&second)?, b"text");
/// # fs::remove_dir_all(&dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn hard_link<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    let (original, link) = (original.as_ref(), link.as_ref());
    on_simulated_disk!(disk => disk.hard_link(original, link));
    at_paths([original, link], || fs::hard_link(original, link))
}

/// Creates a symbolic link at `link` that points to `original`.
///
/// # Blocking
///
/// Blocks the thread, in a [`blocking`](crate::blocking) section.
///
/// # Errors
///
/// As `std::os::unix::fs::symlink`.
///
/// # Examples
///
/// ```
/// use std::path::Path;
/// use windlass::fs;
///
/// # let dir = std::env::temp_dir().join(format!("windlass-doc-symlink-{}", std::process::id()));
/// # fs::create_dir_all(&dir)?;
/// let link = dir.join("link");
/// fs::symlink("target", &link)?;
/// assert_eq!(fs::read_link(&link)?, Path::new("target"));
/// assert!(fs::symlink_metadata(&link)?.is_symlink());
/// # fs::remove_dir_all(&dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn symlink<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    let (original, link) = (original.as_ref(), link.as_ref());
    on_simulated_disk!(disk => disk.symlink(original, link));
    at_paths([original, link], || unix::symlink(original, link))
}

/// Returns the target of a symbolic link.
///
/// # Blocking
///
/// Blocks the thread, in a [`blocking`](crate::blocking) section.
///
/// # Errors
///
/// As `std::fs::read_link`.
///
/// # Examples
///
/// See [`symlink`].
pub fn read_link<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    let path = path.as_ref();
    on_simulated_disk!(disk => disk.read_link(path));
    at_path(path, || fs::read_link(path))
}

/// Changes the permissions of a file.
///
/// # Blocking
///
/// Blocks the thread, in a [`blocking`](crate::blocking) section.
///
/// # Errors
///
/// As `std::fs::set_permissions`.
///
/// # Examples
///
/// ```
/// use windlass::fs;
///
/// # let dir = std::env::temp_dir().join(format!("windlass-doc-perm-{}", std::process::id()));
/// # fs::create_dir_all(&dir)?;
/// let path = dir.join("file");
/// fs::write(&path, "")?;
/// let mut permissions = fs::metadata(&path)?.permissions();
/// permissions.set_readonly(true);
/// fs::set_permissions(&path, permissions)?;
/// assert!(fs::metadata(&path)?.permissions().readonly());
/// # fs::remove_dir_all(&dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn set_permissions<P: AsRef<Path>>(path: P, perm: Permissions) -> io::Result<()> {
    let path = path.as_ref();
    on_simulated_disk!(disk => disk.set_mode(path, perm.mode()));
    at_path(path, || fs::set_permissions(path, perm.clone()))
}

/// Changes the owner and group of a file. Follows symbolic links. `None` leaves an id unchanged.
///
/// # Blocking
///
/// Blocks the thread, in a [`blocking`](crate::blocking) section.
///
/// # Errors
///
/// As `std::os::unix::fs::chown`.
///
/// # Examples
///
/// ```
/// use std::os::unix::fs::MetadataExt;
/// use windlass::fs;
///
/// # let dir = std::env::temp_dir().join(format!("windlass-doc-chown-{}", std::process::id()));
/// # fs::create_dir_all(&dir)?;
/// let path = dir.join("file");
/// fs::write(&path, "")?;
/// let gid = fs::metadata(&path)?.gid();
/// fs::chown(&path, None, Some(gid))?;
/// fs::lchown(&path, None, Some(gid))?;
/// # fs::remove_dir_all(&dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn chown<P: AsRef<Path>>(dir: P, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let dir = dir.as_ref();
    on_simulated_disk!(disk => disk.set_owner(dir, uid, gid, true));
    at_path(dir, || unix::chown(dir, uid, gid))
}

/// Changes the owner and group of a file or symbolic link. Does not follow symbolic links.
///
/// # Blocking
///
/// Blocks the thread, in a [`blocking`](crate::blocking) section.
///
/// # Errors
///
/// As `std::os::unix::fs::lchown`.
///
/// # Examples
///
/// See [`chown`].
pub fn lchown<P: AsRef<Path>>(dir: P, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let dir = dir.as_ref();
    on_simulated_disk!(disk => disk.set_owner(dir, uid, gid, false));
    at_path(dir, || unix::lchown(dir, uid, gid))
}

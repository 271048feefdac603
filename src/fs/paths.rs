//! The free functions of `std::fs` that take the path of a file.

use std::fs::{self, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs as unix;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::file::File;
use super::kind::Kind;
use super::open_options::OpenOptions;
use super::section::{at_path, at_paths};
use crate::sched::offload::offload;

/// Reads a whole file.
///
/// # Errors
///
/// As `std::fs::read`.
pub fn read<P: AsRef<Path>>(path: P) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a whole file of text.
///
/// # Errors
///
/// As `std::fs::read_to_string`; `InvalidData` if it is not UTF-8.
pub fn read_to_string<P: AsRef<Path>>(path: P) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Makes a file, or replaces what is in it.
///
/// # Errors
///
/// As `std::fs::write`.
pub fn write<P: AsRef<Path>, C: AsRef<[u8]>>(path: P, contents: C) -> io::Result<()> {
    File::create(path)?.write_all(contents.as_ref())
}

/// Copies a file with its permissions, in the kernel, on a spare thread; gives the
/// number of bytes.
///
/// # Errors
///
/// As `std::fs::copy`; `InvalidInput` if `from` is not a regular file.
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
    if matches!(target.kind(), Kind::Stream | Kind::Nonblocking) {
        return io::copy(&mut &source, &mut &target);
    }
    if target.metadata()?.is_file() {
        // The umask, or a file that was there, may have made them others.
        target.set_permissions(metadata.permissions())?;
    }
    offload(|| io::copy(&mut source.std(), &mut target.std()))
}

/// Gives a file another name, in place of what has that name.
///
/// # Errors
///
/// As `std::fs::rename`.
pub fn rename<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    at_paths([from, to], || fs::rename(from, to))
}

/// Removes a file's name.
///
/// # Errors
///
/// As `std::fs::remove_file`.
pub fn remove_file<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    at_path(path, || fs::remove_file(path))
}

/// What the file system knows about a file, behind symbolic links.
///
/// # Errors
///
/// As `std::fs::metadata`.
pub fn metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    let path = path.as_ref();
    at_path(path, || fs::metadata(path))
}

/// What the file system knows about a file, a symbolic link itself.
///
/// # Errors
///
/// As `std::fs::symlink_metadata`.
pub fn symlink_metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    let path = path.as_ref();
    at_path(path, || fs::symlink_metadata(path))
}

/// Whether there is such a file, behind symbolic links.
///
/// # Errors
///
/// As `std::fs::exists`: if that cannot be found out.
pub fn exists<P: AsRef<Path>>(path: P) -> io::Result<bool> {
    let path = path.as_ref();
    at_path(path, || fs::exists(path))
}

/// The absolute path without symbolic links.
///
/// # Errors
///
/// As `std::fs::canonicalize`.
pub fn canonicalize<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    let path = path.as_ref();
    at_path(path, || fs::canonicalize(path))
}

/// Gives a file a second name.
///
/// # Errors
///
/// As `std::fs::hard_link`.
pub fn hard_link<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    let (original, link) = (original.as_ref(), link.as_ref());
    at_paths([original, link], || fs::hard_link(original, link))
}

/// Makes a symbolic link, as `std::os::unix::fs::symlink`.
///
/// # Errors
///
/// The same.
pub fn symlink<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    let (original, link) = (original.as_ref(), link.as_ref());
    at_paths([original, link], || unix::symlink(original, link))
}

/// Where a symbolic link points.
///
/// # Errors
///
/// As `std::fs::read_link`.
pub fn read_link<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    let path = path.as_ref();
    at_path(path, || fs::read_link(path))
}

/// Changes who may read and write a file.
///
/// # Errors
///
/// As `std::fs::set_permissions`.
pub fn set_permissions<P: AsRef<Path>>(path: P, perm: Permissions) -> io::Result<()> {
    let path = path.as_ref();
    at_path(path, || fs::set_permissions(path, perm.clone()))
}

/// Changes the owner of a file, as `std::os::unix::fs::chown`.
///
/// # Errors
///
/// The same.
pub fn chown<P: AsRef<Path>>(dir: P, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let dir = dir.as_ref();
    at_path(dir, || unix::chown(dir, uid, gid))
}

/// Changes the owner of a symbolic link itself, as `std::os::unix::fs::lchown`.
///
/// # Errors
///
/// The same.
pub fn lchown<P: AsRef<Path>>(dir: P, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let dir = dir.as_ref();
    at_path(dir, || unix::lchown(dir, uid, gid))
}

//! What `std` makes of several calls: all directories of a path, and the end of a directory with all that is in it.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::errno::{ENOENT, fail};
use super::inode::{FileKind, Ino};

/// Makes the directories that are missing, one after the other. `create` makes one; `kind` says what a path leads to.
pub fn create_dir_all(
    path: &Path,
    create: impl Fn(&Path) -> io::Result<()>,
    kind: impl Fn(&Path) -> io::Result<FileKind>,
) -> io::Result<()> {
    let create_or_find = |path: &Path| {
        create(path).or_else(|e| {
            if e.kind() == io::ErrorKind::NotFound {
                return Err(e);
            }
            match kind(path) {
                Ok(FileKind::Directory) => Ok(()),
                _ => Err(e),
            }
        })
    };
    // The deepest one first.
    let mut missing = Vec::new();
    let mut next = Some(path);
    while let Some(path) = next.filter(|path| *path != Path::new("")) {
        match create_or_find(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => missing.push(path),
            done => {
                done?;
                break;
            }
        }
        next = path.parent();
        if next.is_none() {
            return fail(ENOENT);
        }
    }
    while let Some(path) = missing.pop() {
        create_or_find(path)?;
    }
    Ok(())
}

/// Removes a directory, and before that what is inside. Symbolic links are not followed.
pub fn remove_dir_all(
    path: &Path,
    list: impl Fn(&Path) -> io::Result<Vec<(OsString, Ino, FileKind)>>,
    remove_file: impl Fn(&Path) -> io::Result<()>,
    remove_dir: impl Fn(&Path) -> io::Result<()>,
) -> io::Result<()> {
    // An entry that another goroutine has removed meanwhile is gone, too.
    let ignore = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(e),
    };
    // The directories on the way down, with what is left to remove in each.
    let mut way = vec![(path.to_owned(), list(path)?.into_iter())];
    while let Some((directory, entries)) = way.last_mut() {
        match entries.next() {
            Some((name, _, FileKind::Directory)) => {
                let below = directory.join(name);
                match list(&below) {
                    Ok(entries) => way.push((below, entries.into_iter())),
                    Err(e) => ignore(e)?,
                }
            }
            Some((name, ..)) => remove_file(&directory.join(name)).or_else(ignore)?,
            None => {
                let removed = remove_dir(directory);
                way.pop();
                match removed {
                    Err(e) if !way.is_empty() => ignore(e)?,
                    removed => removed?,
                }
            }
        }
    }
    Ok(())
}

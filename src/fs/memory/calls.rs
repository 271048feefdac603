//! The kernel's calls on paths, for simulated disks. Each is a switch point, and then one step.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::handle::Handle;
use super::sim_disk::{OpenFile, Opened, SimDisk, State, now};
use crate::bubble;
use crate::loom::native::{Arc, MutexGuard};
use windlass_world::disk::errno::{
    EEXIST, EINVAL, EISDIR, ELOOP, ENOENT, ENOTDIR, O_ACCMODE, O_CREAT, O_DIRECTORY, O_EXCL,
    O_NOFOLLOW, O_PATH, O_RDONLY, O_TMPFILE, O_TRUNC, fail,
};
use windlass_world::disk::inode::{Body, FileKind, Ino, Stat};
use windlass_world::disk::tree::{Follow, Last};

/// A path that can be given to the kernel.
fn checked(path: &Path) -> io::Result<&Path> {
    if path.as_os_str().as_bytes().contains(&0) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "file name contained an unexpected NUL byte",
        ));
    }
    Ok(path)
}

fn follow(yes: bool) -> Follow {
    if yes {
        Follow::Always
    } else {
        Follow::WithSlash
    }
}

impl SimDisk {
    /// A call that changes a name or an attribute.
    fn change(&self, path: &Path) -> io::Result<MutexGuard<'_, State>> {
        checked(path)?;
        let state = self.enter()?;
        state.tree.write_fault()?;
        Ok(state)
    }

    /// As `open(2)`.
    pub(crate) fn open(
        self: &Arc<SimDisk>,
        path: &Path,
        flags: i32,
        mode: u32,
    ) -> io::Result<Handle> {
        checked(path)?;
        let mut state = self.enter()?;
        let flags = if flags & O_PATH != 0 {
            flags & (O_PATH | O_DIRECTORY | O_NOFOLLOW)
        } else {
            flags
        };
        let ino = state.find_to_open(path, flags, mode)?;
        let inode = state.tree.inode_mut(ino);
        inode.n_open += 1;
        let n_errors_seen = inode.n_errors;
        let id = state.next_open;
        state.next_open += 1;
        state.open.insert(
            id,
            OpenFile {
                ino,
                flags,
                position: 0,
                n_errors_seen,
                lock: None,
                is_dead: false,
                path: path.to_path_buf(),
                opened: bubble::current().map_or((0, 0), |b| (b.running(), b.step())),
            },
        );
        drop(state);
        Ok(Handle::new(Opened {
            disk: Arc::clone(self),
            id,
        }))
    }

    pub(crate) fn metadata(&self, path: &Path, follows: bool) -> io::Result<Stat> {
        let state = self.enter()?;
        let ino = state.tree.find(checked(path)?, follow(follows))?;
        Ok(state.tree.stat(ino))
    }

    pub(crate) fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.change(path)?.tree.create_dir(path, mode, now())
    }

    /// As `std`: makes what is missing, one directory after the other.
    pub(crate) fn create_dir_all(&self, path: &Path, mode: u32) -> io::Result<()> {
        // The deepest one first.
        let mut missing = Vec::new();
        let mut next = Some(path);
        while let Some(path) = next.filter(|path| *path != Path::new("")) {
            match self.create_or_find_dir(path, mode) {
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
            self.create_or_find_dir(path, mode)?;
        }
        Ok(())
    }

    fn create_or_find_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.create_dir(path, mode).or_else(|e| {
            if e.kind() == io::ErrorKind::NotFound {
                return Err(e);
            }
            match self.metadata(path, true) {
                Ok(stat) if stat.kind == FileKind::Directory => Ok(()),
                _ => Err(e),
            }
        })
    }

    pub(crate) fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.change(path)?.tree.remove_dir(path, now())
    }

    /// As `std`: removes what is inside first. Symbolic links are not followed.
    pub(crate) fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        match self.metadata(path, false)?.kind {
            FileKind::Symlink => self.remove_file(path),
            FileKind::Regular => fail(ENOTDIR),
            FileKind::Directory => self.remove_below(path),
        }
    }

    fn remove_below(&self, path: &Path) -> io::Result<()> {
        // An entry that another goroutine has removed meanwhile is gone, too.
        let ignore = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(e),
        };
        // The directories on the way down, with what is left to remove in each.
        let mut way = vec![(path.to_owned(), self.read_dir(path)?.into_iter())];
        while let Some((directory, entries)) = way.last_mut() {
            match entries.next() {
                Some((name, _, FileKind::Directory)) => {
                    let below = directory.join(name);
                    match self.read_dir(&below) {
                        Ok(entries) => way.push((below, entries.into_iter())),
                        Err(e) => ignore(e)?,
                    }
                }
                Some((name, ..)) => self.remove_file(&directory.join(name)).or_else(ignore)?,
                None => {
                    let removed = self.remove_dir(directory);
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

    pub(crate) fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change(path)?.tree.remove_file(path, now())
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        checked(to)?;
        self.change(from)?.tree.rename(from, to, now())
    }

    pub(crate) fn hard_link(&self, old: &Path, new: &Path) -> io::Result<()> {
        checked(new)?;
        self.change(old)?.tree.hard_link(old, new, now())
    }

    pub(crate) fn symlink(&self, target: &Path, path: &Path) -> io::Result<()> {
        checked(target)?;
        self.change(path)?.tree.symlink(target, path, now())
    }

    pub(crate) fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.enter()?.tree.read_link(checked(path)?)
    }

    pub(crate) fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        self.enter()?.tree.canonicalize(checked(path)?)
    }

    pub(crate) fn read_dir(&self, path: &Path) -> io::Result<Vec<(OsString, Ino, FileKind)>> {
        self.enter()?.tree.list(checked(path)?)
    }

    pub(crate) fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        let mut state = self.change(path)?;
        let ino = state.tree.find(path, Follow::Always)?;
        let attributes = &mut state.tree.inode_mut(ino).attributes;
        attributes.mode = mode & 0o7777;
        attributes.touch(now());
        Ok(())
    }

    /// As `chown(2)`, or `lchown(2)` if links are not followed.
    pub(crate) fn set_owner(
        &self,
        path: &Path,
        uid: Option<u32>,
        gid: Option<u32>,
        follows: bool,
    ) -> io::Result<()> {
        let mut state = self.change(path)?;
        let ino = state.tree.find(path, follow(follows))?;
        let attributes = &mut state.tree.inode_mut(ino).attributes;
        attributes.uid = uid.unwrap_or(attributes.uid);
        attributes.gid = gid.unwrap_or(attributes.gid);
        attributes.touch(now());
        Ok(())
    }
}

impl State {
    /// The file that `open(2)` opens, created or cut as the flags say.
    fn find_to_open(&mut self, path: &Path, flags: i32, mode: u32) -> io::Result<Ino> {
        let tree = &mut self.tree;
        let has = |flag: i32| flags & flag == flag;
        let writes = flags & O_ACCMODE != O_RDONLY;
        if has(O_TMPFILE) {
            let directory = tree.find(path, Follow::Always)?;
            tree.directory(directory)?;
            if !writes {
                return fail(EINVAL);
            }
            tree.write_fault()?;
            return tree.add_unnamed(mode, now());
        }
        let is_new = has(O_CREAT | O_EXCL);
        let follow = match is_new || has(O_NOFOLLOW) {
            true if has(O_CREAT) => Follow::Never,
            true => Follow::WithSlash,
            false if has(O_CREAT) => Follow::ToCreate,
            false => Follow::Always,
        };
        let found = tree.walk(path, follow)?;
        if has(O_CREAT) && found.has_slash && matches!(found.last, Last::Name(_)) {
            return fail(EISDIR);
        }
        let Some(ino) = found.ino else {
            if !has(O_CREAT) {
                return fail(ENOENT);
            }
            tree.write_fault()?;
            return tree.create(&found, mode, now());
        };
        if is_new {
            return fail(EEXIST);
        }
        let body = &tree.inode(ino).body;
        match body {
            Body::Symlink(_) if has(O_DIRECTORY) => return fail(ENOTDIR),
            Body::Symlink(_) if !has(O_PATH) => return fail(ELOOP),
            Body::Directory(_) if has(O_CREAT) || writes || has(O_TRUNC) => return fail(EISDIR),
            Body::Regular(_) if has(O_DIRECTORY) => return fail(ENOTDIR),
            _ => {}
        }
        if has(O_TRUNC) {
            tree.write_fault()?;
            let seq = tree.next_seq();
            let inode = tree.inode_mut(ino);
            if let Body::Regular(content) = &mut inode.body {
                content.set_size(seq, 0);
                inode.touch(now());
            }
        }
        Ok(ino)
    }
}

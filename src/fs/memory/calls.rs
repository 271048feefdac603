//! The kernel's calls on paths, for simulated disks. Each is a switch point, and then one step.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use windlass_world::disk::errno::{ENOTDIR, fail};
use windlass_world::disk::inode::{FileKind, Ino, Stat};
use windlass_world::disk::recursive;
use windlass_world::disk::tree::Follow;

use super::handle::Handle;
use super::sim_disk::{Opened, SimDisk, State, now};
use crate::bubble;
use crate::loom::native::{Arc, MutexGuard};

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
        state.files.tree.write_fault()?;
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
        let opened = bubble::current().map_or((0, 0), |b| (b.running(), b.step()));
        let id = state.files.open(path, flags, mode, opened, now())?;
        drop(state);
        Ok(Handle::new(Opened {
            disk: Arc::clone(self),
            id,
        }))
    }

    pub(crate) fn metadata(&self, path: &Path, follows: bool) -> io::Result<Stat> {
        let state = self.enter()?;
        let ino = state.files.tree.find(checked(path)?, follow(follows))?;
        Ok(state.files.tree.stat(ino))
    }

    pub(crate) fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.change(path)?.files.tree.create_dir(path, mode, now())
    }

    /// As `std`: makes what is missing, one directory after the other.
    pub(crate) fn create_dir_all(&self, path: &Path, mode: u32) -> io::Result<()> {
        let kind = |path: &Path| Ok(self.metadata(path, true)?.kind);
        recursive::create_dir_all(path, |path| self.create_dir(path, mode), kind)
    }

    pub(crate) fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.change(path)?.files.tree.remove_dir(path, now())
    }

    /// As `std`: removes what is inside first. Symbolic links are not followed.
    pub(crate) fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        match self.metadata(path, false)?.kind {
            FileKind::Symlink => self.remove_file(path),
            FileKind::Regular => fail(ENOTDIR),
            FileKind::Directory => recursive::remove_dir_all(
                path,
                |path| self.read_dir(path),
                |path| self.remove_file(path),
                |path| self.remove_dir(path),
            ),
        }
    }

    pub(crate) fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change(path)?.files.tree.remove_file(path, now())
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        checked(to)?;
        self.change(from)?.files.tree.rename(from, to, now())
    }

    pub(crate) fn hard_link(&self, old: &Path, new: &Path) -> io::Result<()> {
        checked(new)?;
        self.change(old)?.files.tree.hard_link(old, new, now())
    }

    pub(crate) fn symlink(&self, target: &Path, path: &Path) -> io::Result<()> {
        checked(target)?;
        self.change(path)?.files.tree.symlink(target, path, now())
    }

    pub(crate) fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.enter()?.files.tree.read_link(checked(path)?)
    }

    pub(crate) fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        self.enter()?.files.tree.canonicalize(checked(path)?)
    }

    pub(crate) fn read_dir(&self, path: &Path) -> io::Result<Vec<(OsString, Ino, FileKind)>> {
        self.enter()?.files.tree.list(checked(path)?)
    }

    pub(crate) fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.change(path)?.files.tree.set_mode(path, mode, now())
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
        let tree = &mut state.files.tree;
        tree.set_owner(path, (uid, gid), follow(follows), now())
    }
}

//! The files of a simulated disk, and what the kernel's calls on names do. Nothing here waits.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::chance::{PowerLoss, below, chance};
use super::errno::{
    EBUSY, EEXIST, EINVAL, EIO, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOSPC, ENOTDIR, ENOTEMPTY,
    EPERM, O_ACCMODE, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_PATH, O_RDONLY, O_TMPFILE,
    O_TRUNC, error, fail,
};
use super::inode::{Body, Directory, FileKind, Ino, Inode, Stat};
use super::names::{Change, NameChange, with_needed, without_lost};
use crate::draw::mix;

const ROOT: Ino = 2;

/// The space that each file takes besides its pages.
const INODE_BYTES: u64 = 256;

/// The kernel's limits.
const MOST_SYMLINKS: u32 = 40;
const LONGEST_NAME: usize = 255;
const LONGEST_PATH: usize = 4096;

/// Permissions that a new file does not get.
const UMASK: u32 = 0o022;

/// Of more changes of names than this, the older half is put on the disk.
const MOST_CHANGES: usize = 4096;

/// How many orders the names of a directory may be read in.
const ORDERS: usize = 8;

/// The last part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Last {
    /// A name.
    Name(OsString),
    /// The root itself.
    Root,
    /// The directory itself.
    Dot,
    /// The directory above.
    DotDot,
}

/// Where a path leads.
#[derive(Clone, Debug)]
pub struct Found {
    pub(super) directory: Ino,
    /// Its last part.
    pub last: Last,
    /// The file, if there is one.
    pub ino: Option<Ino>,
    /// The path ends with a slash.
    pub has_slash: bool,
}

impl Found {
    pub(super) fn existing(&self) -> io::Result<Ino> {
        self.ino.ok_or_else(|| error(ENOENT))
    }

    fn name(&self, if_none: i32) -> io::Result<&OsStr> {
        match &self.last {
            Last::Name(name) => Ok(name),
            _ => fail(if_none),
        }
    }
}

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// It is.
    Always,
    /// As `Always`, for a call that may create a file: a slash at the end is an error.
    ToCreate,
    /// If a slash comes after it.
    WithSlash,
    /// It is not.
    Never,
}

/// All files of a disk.
#[derive(Debug)]
pub struct Tree {
    /// How many bytes there is room for.
    pub capacity: u64,
    /// How often a call that changes something fails, in millionths.
    pub write_errors: u32,
    device: u64,
    inodes: BTreeMap<Ino, Inode>,
    next_ino: Ino,
    /// Counts writes and changes, in order.
    seq: u64,
    /// Changes of names that are not on the disk yet, in order.
    changes: Vec<Change>,
    /// Which order the names of directories are read in.
    order: Option<usize>,
}

impl Tree {
    /// A disk with the root and `/tmp`.
    pub fn new(device: u64, now: SystemTime) -> Tree {
        let mut tree = Tree {
            capacity: u64::MAX,
            write_errors: 0,
            device,
            inodes: BTreeMap::new(),
            next_ino: ROOT + 1,
            seq: 0,
            changes: Vec::new(),
            order: None,
        };
        let mut root = Inode::directory(ROOT, 0o755, now);
        (root.n_links, root.n_links_on_disk) = (1, 1);
        tree.inodes.insert(ROOT, root);
        tree.add(ROOT, OsStr::new("tmp"), Inode::directory(ROOT, 0o1777, now));
        let all = tree.changes.iter().map(|change| change.id).collect();
        tree.settle_names(&all);
        tree
    }

    /// The number of a new write or change.
    pub fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// A file, which exists.
    pub fn inode(&self, ino: Ino) -> &Inode {
        self.inodes.get(&ino).expect("a file that is used exists")
    }

    /// As above, to be changed.
    pub fn inode_mut(&mut self, ino: Ino) -> &mut Inode {
        self.inodes
            .get_mut(&ino)
            .expect("a file that is used exists")
    }

    /// The entries of a directory.
    pub fn directory(&self, ino: Ino) -> io::Result<&Directory> {
        match &self.inode(ino).body {
            Body::Directory(directory) => Ok(directory),
            _ => fail(ENOTDIR),
        }
    }

    fn directory_mut(&mut self, ino: Ino) -> &mut Directory {
        match &mut self.inode_mut(ino).body {
            Body::Directory(directory) => directory,
            _ => panic!("the path was walked, so it is a directory"),
        }
    }

    /// Draws whether a call that writes fails.
    pub fn write_fault(&self) -> io::Result<()> {
        if chance(self.write_errors) {
            return fail(EIO);
        }
        Ok(())
    }

    /// The bytes that are free.
    pub fn free(&self) -> u64 {
        if self.capacity == u64::MAX {
            return u64::MAX;
        }
        let in_use = self
            .inodes
            .values()
            .filter(|i| i.n_links > 0 || i.n_open > 0);
        let used: u64 = in_use.map(|i| INODE_BYTES + i.allocated()).sum();
        self.capacity.saturating_sub(used)
    }

    /// Follows a path. The current directory is the root.
    pub fn walk(&self, path: &Path, follow: Follow) -> io::Result<Found> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.is_empty() {
            return fail(ENOENT);
        }
        if bytes.len() >= LONGEST_PATH {
            return fail(ENAMETOOLONG);
        }
        let mut has_slash = bytes.ends_with(b"/");
        // The parts that are left, the next one last.
        let mut parts = parts_of(bytes);
        let mut n_symlinks = 0;
        let mut at = ROOT;
        let mut directory = ROOT;
        let mut last = Last::Root;
        while let Some(part) = parts.pop() {
            let here = self.directory(at)?;
            directory = at;
            match part.as_bytes() {
                b"." => last = Last::Dot,
                b".." => {
                    at = here.parent;
                    last = Last::DotDot;
                }
                name if name.len() > LONGEST_NAME => return fail(ENAMETOOLONG),
                _ => {
                    let is_last = parts.is_empty();
                    if is_last && has_slash && follow == Follow::ToCreate {
                        return fail(EISDIR);
                    }
                    let next = here.entries.get(&part).copied();
                    last = Last::Name(part);
                    let Some(next) = next else {
                        if !is_last {
                            return fail(ENOENT);
                        }
                        return Ok(Found {
                            directory,
                            last,
                            ino: None,
                            has_slash,
                        });
                    };
                    let follows = match follow {
                        _ if !is_last => true,
                        Follow::Always | Follow::ToCreate => true,
                        Follow::WithSlash => has_slash,
                        Follow::Never => false,
                    };
                    if let Body::Symlink(target) = &self.inode(next).body
                        && follows
                    {
                        n_symlinks += 1;
                        if n_symlinks > MOST_SYMLINKS {
                            return fail(ELOOP);
                        }
                        let target = target.as_os_str().as_bytes();
                        if target.starts_with(b"/") {
                            at = ROOT;
                            last = Last::Root;
                        }
                        has_slash |= is_last && target.ends_with(b"/");
                        parts.extend(parts_of(target));
                        continue;
                    }
                    at = next;
                }
            }
        }
        if has_slash && follow != Follow::Never {
            self.directory(at)?;
        }
        Ok(Found {
            directory,
            last,
            ino: Some(at),
            has_slash,
        })
    }

    /// Follows a path to a file that must exist.
    pub fn find(&self, path: &Path, follow: Follow) -> io::Result<Ino> {
        self.walk(path, follow)?.existing()
    }

    /// The place of a name that does not exist yet.
    fn vacant(&self, path: &Path, may_have_slash: bool) -> io::Result<(Ino, OsString)> {
        let found = self.walk(path, Follow::Never)?;
        let name = found.name(EEXIST)?.to_owned();
        if found.ino.is_some() {
            return fail(EEXIST);
        }
        if found.has_slash && !may_have_slash {
            return fail(ENOENT);
        }
        Ok((found.directory, name))
    }

    /// Adds a new file under a name that is free.
    fn add(&mut self, directory: Ino, name: &OsStr, inode: Inode) -> Ino {
        let ino = self.next_ino;
        self.next_ino += 1;
        self.inodes.insert(ino, inode);
        self.link(directory, name, ino);
        ino
    }

    /// Adds a file without a name.
    pub fn add_unnamed(&mut self, mode: u32, now: SystemTime) -> io::Result<Ino> {
        self.has_room()?;
        let ino = self.next_ino;
        self.next_ino += 1;
        let body = Body::Regular(super::content::Content::default());
        self.inodes
            .insert(ino, Inode::new(body, mode & 0o7777 & !UMASK, now));
        Ok(ino)
    }

    fn link(&mut self, directory: Ino, name: &OsStr, ino: Ino) {
        let at = (directory, name.to_owned());
        self.directory_mut(directory)
            .entries
            .insert(name.to_owned(), ino);
        self.inode_mut(ino).n_links += 1;
        self.note(NameChange::Add { at, ino });
    }

    fn note(&mut self, what: NameChange) {
        let change = Change {
            id: self.next_seq(),
            what,
        };
        for ino in concerned(&change) {
            self.inode_mut(ino).n_changes += 1;
        }
        self.changes.push(change);
        if self.changes.len() > MOST_CHANGES {
            let older = self.changes[..MOST_CHANGES / 2].iter();
            let older = older.map(|change| change.id).collect();
            self.settle_names(&older);
        }
    }

    fn has_room(&self) -> io::Result<()> {
        if self.free() < INODE_BYTES {
            return fail(ENOSPC);
        }
        Ok(())
    }

    fn touch(&mut self, ino: Ino, now: SystemTime) {
        self.inode_mut(ino).touch(now);
    }

    /// Creates the file that a path found missing.
    pub fn create(&mut self, found: &Found, mode: u32, now: SystemTime) -> io::Result<Ino> {
        let name = found.name(EISDIR)?.to_owned();
        self.has_room()?;
        let body = Body::Regular(super::content::Content::default());
        let inode = Inode::new(body, mode & 0o7777 & !UMASK, now);
        self.touch(found.directory, now);
        Ok(self.add(found.directory, &name, inode))
    }

    /// `mkdir`.
    pub fn create_dir(&mut self, path: &Path, mode: u32, now: SystemTime) -> io::Result<()> {
        let (directory, name) = self.vacant(path, true)?;
        self.has_room()?;
        let inode = Inode::directory(directory, mode & 0o1777 & !UMASK, now);
        self.touch(directory, now);
        self.add(directory, &name, inode);
        Ok(())
    }

    /// `symlink`.
    pub fn symlink(&mut self, target: &Path, path: &Path, now: SystemTime) -> io::Result<()> {
        match target.as_os_str().len() {
            0 => return fail(ENOENT),
            n if n >= LONGEST_PATH => return fail(ENAMETOOLONG),
            _ => {}
        }
        let (directory, name) = self.vacant(path, false)?;
        self.has_room()?;
        let inode = Inode::new(Body::Symlink(target.to_owned()), 0o777, now);
        self.touch(directory, now);
        self.add(directory, &name, inode);
        Ok(())
    }

    /// `link`.
    pub fn hard_link(&mut self, old: &Path, new: &Path, now: SystemTime) -> io::Result<()> {
        let ino = self.find(old, Follow::WithSlash)?;
        let (directory, name) = self.vacant(new, false)?;
        if self.inode(ino).is_directory() {
            return fail(EPERM);
        }
        self.inode_mut(ino).attributes.touch(now);
        self.touch(directory, now);
        self.link(directory, &name, ino);
        Ok(())
    }

    fn unlink(&mut self, directory: Ino, name: &OsStr, ino: Ino, now: SystemTime) {
        self.directory_mut(directory).entries.remove(name);
        self.touch(directory, now);
        let inode = self.inode_mut(ino);
        inode.n_links -= 1;
        inode.attributes.touch(now);
        let at = (directory, name.to_owned());
        self.note(NameChange::Remove { at, ino });
    }

    /// `unlink`.
    pub fn remove_file(&mut self, path: &Path, now: SystemTime) -> io::Result<()> {
        let found = self.walk(path, Follow::Never)?;
        let name = found.name(EISDIR)?.to_owned();
        let ino = found.existing()?;
        if self.inode(ino).is_directory() {
            return fail(EISDIR);
        }
        if found.has_slash {
            return fail(ENOTDIR);
        }
        self.unlink(found.directory, &name, ino, now);
        Ok(())
    }

    /// `rmdir`.
    pub fn remove_dir(&mut self, path: &Path, now: SystemTime) -> io::Result<()> {
        let found = self.walk(path, Follow::Never)?;
        let name = match &found.last {
            Last::Name(name) => name.clone(),
            Last::Root => return fail(EBUSY),
            Last::Dot => return fail(EINVAL),
            Last::DotDot => return fail(ENOTEMPTY),
        };
        let ino = found.existing()?;
        if !self.directory(ino)?.entries.is_empty() {
            return fail(ENOTEMPTY);
        }
        self.unlink(found.directory, &name, ino, now);
        Ok(())
    }

    /// Whether the directory `above` is `below`, or has it somewhere below itself.
    fn is_above(&self, above: Ino, mut below: Ino) -> bool {
        while below != above && below != ROOT {
            let Ok(directory) = self.directory(below) else {
                return false;
            };
            below = directory.parent;
        }
        below == above
    }

    /// `rename`.
    pub fn rename(&mut self, from: &Path, to: &Path, now: SystemTime) -> io::Result<()> {
        let old = self.walk(from, Follow::Never)?;
        let new = self.walk(to, Follow::Never)?;
        let old_name = old.name(EBUSY)?.to_owned();
        let new_name = new.name(EBUSY)?.to_owned();
        let ino = old.existing()?;
        let is_directory = self.inode(ino).is_directory();
        if !is_directory && (old.has_slash || new.has_slash) {
            return fail(ENOTDIR);
        }
        if self.is_above(ino, new.directory) {
            return fail(EINVAL);
        }
        if let Some(replaced) = new.ino {
            if self.inode(replaced).is_directory() && self.is_above(replaced, old.directory) {
                return fail(ENOTEMPTY);
            }
            // Two names of one file: the call does nothing.
            if replaced == ino {
                return Ok(());
            }
            match (is_directory, self.directory(replaced)) {
                (true, Err(e)) => return Err(e),
                (true, Ok(directory)) if !directory.entries.is_empty() => return fail(ENOTEMPTY),
                (false, Ok(_)) => return fail(EISDIR),
                _ => {}
            }
        }
        self.directory_mut(old.directory).entries.remove(&old_name);
        self.directory_mut(new.directory)
            .entries
            .insert(new_name.clone(), ino);
        self.touch(old.directory, now);
        self.touch(new.directory, now);
        self.inode_mut(ino).attributes.touch(now);
        if is_directory {
            self.directory_mut(ino).parent = new.directory;
        }
        if let Some(replaced) = new.ino {
            let inode = self.inode_mut(replaced);
            inode.n_links -= 1;
            inode.attributes.touch(now);
        }
        self.note(NameChange::Move {
            from: (old.directory, old_name),
            to: (new.directory, new_name),
            ino,
            replaced: new.ino,
            is_directory,
        });
        Ok(())
    }

    /// `readlink`.
    pub fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        match &self.inode(self.find(path, Follow::WithSlash)?).body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => fail(EINVAL),
        }
    }

    /// `realpath`.
    pub fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        let found = self.walk(path, Follow::Always)?;
        let ino = found.existing()?;
        match &found.last {
            Last::Name(name) if !self.inode(ino).is_directory() => {
                Ok(self.path_of(found.directory).join(name))
            }
            _ => Ok(self.path_of(ino)),
        }
    }

    /// The path of a directory.
    fn path_of(&self, mut ino: Ino) -> PathBuf {
        let mut names = Vec::new();
        while ino != ROOT {
            let Ok(here) = self.directory(ino) else {
                break;
            };
            let Ok(above) = self.directory(here.parent) else {
                break;
            };
            let name = above.entries.iter().find(|&(_, &other)| other == ino);
            names.extend(name.map(|(name, _)| name));
            ino = here.parent;
        }
        let mut path = PathBuf::from("/");
        path.extend(names.iter().rev());
        path
    }

    /// The file that `open(2)` opens, created or cut as the flags say.
    pub(super) fn open(
        &mut self,
        path: &Path,
        flags: i32,
        mode: u32,
        now: SystemTime,
    ) -> io::Result<Ino> {
        let has = |flag: i32| flags & flag == flag;
        let writes = flags & O_ACCMODE != O_RDONLY;
        if has(O_TMPFILE) {
            let directory = self.find(path, Follow::Always)?;
            self.directory(directory)?;
            if !writes {
                return fail(EINVAL);
            }
            self.write_fault()?;
            return self.add_unnamed(mode, now);
        }
        let is_new = has(O_CREAT | O_EXCL);
        let follow = match is_new || has(O_NOFOLLOW) {
            true if has(O_CREAT) => Follow::Never,
            true => Follow::WithSlash,
            false if has(O_CREAT) => Follow::ToCreate,
            false => Follow::Always,
        };
        let found = self.walk(path, follow)?;
        if has(O_CREAT) && found.has_slash && matches!(found.last, Last::Name(_)) {
            return fail(EISDIR);
        }
        let Some(ino) = found.ino else {
            if !has(O_CREAT) {
                return fail(ENOENT);
            }
            self.write_fault()?;
            return self.create(&found, mode, now);
        };
        if is_new {
            return fail(EEXIST);
        }
        let body = &self.inode(ino).body;
        match body {
            Body::Symlink(_) if has(O_DIRECTORY) => return fail(ENOTDIR),
            Body::Symlink(_) if !has(O_PATH) => return fail(ELOOP),
            Body::Directory(_) if has(O_CREAT) || writes || has(O_TRUNC) => return fail(EISDIR),
            Body::Regular(_) if has(O_DIRECTORY) => return fail(ENOTDIR),
            _ => {}
        }
        if has(O_TRUNC) {
            self.write_fault()?;
            let seq = self.next_seq();
            let inode = self.inode_mut(ino);
            if let Body::Regular(content) = &mut inode.body {
                content.set_size(seq, 0);
                inode.touch(now);
            }
        }
        Ok(ino)
    }

    /// As `chmod(2)`.
    pub fn set_mode(&mut self, path: &Path, mode: u32, now: SystemTime) -> io::Result<()> {
        let ino = self.find(path, Follow::Always)?;
        let attributes = &mut self.inode_mut(ino).attributes;
        attributes.mode = mode & 0o7777;
        attributes.touch(now);
        Ok(())
    }

    /// As `chown(2)`, or `lchown(2)` if links are not followed.
    pub fn set_owner(
        &mut self,
        path: &Path,
        (uid, gid): (Option<u32>, Option<u32>),
        follow: Follow,
        now: SystemTime,
    ) -> io::Result<()> {
        let ino = self.find(path, follow)?;
        let attributes = &mut self.inode_mut(ino).attributes;
        attributes.uid = uid.unwrap_or(attributes.uid);
        attributes.gid = gid.unwrap_or(attributes.gid);
        attributes.touch(now);
        Ok(())
    }

    /// `stat`.
    pub fn stat(&self, ino: Ino) -> Stat {
        let inode = self.inode(ino);
        let n_links = match &inode.body {
            Body::Directory(directory) if inode.n_links > 0 => {
                let below = directory.entries.values();
                let below = below.filter(|&&ino| self.inode(ino).is_directory());
                2 + below.count() as u64
            }
            _ => u64::from(inode.n_links),
        };
        Stat {
            kind: inode.kind(),
            device: self.device,
            ino,
            n_links,
            size: inode.size(),
            allocated: inode.allocated(),
            attributes: inode.attributes.clone(),
        }
    }

    /// The names of a directory, in an order that is drawn once for the disk.
    pub fn list(&mut self, path: &Path) -> io::Result<Vec<(OsString, Ino, FileKind)>> {
        let ino = self.find(path, Follow::Always)?;
        let directory = self.directory(ino)?;
        let entries = directory.entries.iter();
        let mut list: Vec<_> = entries
            .map(|(name, &ino)| (name.clone(), ino, self.inode(ino).kind()))
            .collect();
        if list.len() > 1 {
            let order = *self.order.get_or_insert_with(|| below(ORDERS));
            if order > 0 {
                list.sort_by_key(|(name, ..)| hash(order, name));
            }
        }
        Ok(list)
    }

    /// The changes of names in a directory that are not on the disk, with those that they need.
    pub fn changes_in(&self, directory: Ino) -> BTreeSet<u64> {
        let is_there = |change: &Change| change.places().any(|place| place.0 == directory);
        with_needed(&self.changes, is_there)
    }

    /// Puts some of the changes of names on the disk.
    pub fn settle_names(&mut self, ids: &BTreeSet<u64>) {
        let all = std::mem::take(&mut self.changes);
        let (settled, rest) = all.into_iter().partition(|change| ids.contains(&change.id));
        self.changes = rest;
        let settled: Vec<Change> = settled;
        for change in &settled {
            self.settle_change(&change.what);
        }
        for change in &settled {
            for ino in concerned(change) {
                self.inode_mut(ino).n_changes -= 1;
            }
        }
        let files = settled.iter().flat_map(concerned);
        for ino in files.collect::<BTreeSet<Ino>>() {
            self.collect(ino);
        }
    }

    fn settle_change(&mut self, what: &NameChange) {
        match what {
            NameChange::Add { at, ino } => {
                let before = self.directory_mut(at.0).on_disk.insert(at.1.clone(), *ino);
                self.count_on_disk(before, Some(*ino));
            }
            NameChange::Remove { at, .. } => {
                let before = self.directory_mut(at.0).on_disk.remove(&at.1);
                self.count_on_disk(before, None);
            }
            NameChange::Move { from, to, ino, .. } => {
                let before = self.directory_mut(from.0).on_disk.remove(&from.1);
                self.count_on_disk(before, None);
                let before = self.directory_mut(to.0).on_disk.insert(to.1.clone(), *ino);
                self.count_on_disk(before, Some(*ino));
            }
        }
    }

    fn count_on_disk(&mut self, less: Option<Ino>, more: Option<Ino>) {
        if let Some(ino) = more {
            self.inode_mut(ino).n_links_on_disk += 1;
        }
        if let Some(ino) = less {
            self.inode_mut(ino).n_links_on_disk -= 1;
        }
    }

    /// Forgets a file that nothing refers to any more.
    pub fn collect(&mut self, ino: Ino) {
        if !self.inodes.get(&ino).is_some_and(Inode::is_garbage) {
            return;
        }
        let Some(inode) = self.inodes.remove(&ino) else {
            return;
        };
        if let Body::Directory(directory) = inode.body {
            // It is empty in memory; on the disk its names may not have been removed.
            for below in directory.on_disk.into_values() {
                self.inode_mut(below).n_links_on_disk -= 1;
                self.collect(below);
            }
        }
    }

    /// The power goes, and comes back: the disk decides what there is.
    pub fn crash(&mut self) {
        let loss = PowerLoss::draw();
        let changes = std::mem::take(&mut self.changes);
        let kept = without_lost(&changes, || loss.state_of(2) == 0);
        for change in changes.iter().filter(|change| kept.contains(&change.id)) {
            self.settle_change(&change.what);
        }
        // The files that can be reached from the root, with the number of their names.
        let mut reached = BTreeMap::from([(ROOT, 1)]);
        let mut parents = BTreeMap::from([(ROOT, ROOT)]);
        let mut next = vec![ROOT];
        while let Some(above) = next.pop() {
            let Body::Directory(directory) = &self.inode(above).body else {
                continue;
            };
            for &ino in directory.on_disk.values() {
                let n_links = reached.entry(ino).or_insert(0);
                *n_links += 1;
                if *n_links == 1 {
                    parents.insert(ino, above);
                    next.push(ino);
                }
            }
        }
        self.inodes.retain(|ino, _| reached.contains_key(ino));
        for (ino, inode) in &mut self.inodes {
            inode.n_links = reached[ino];
            inode.n_links_on_disk = reached[ino];
            (inode.n_open, inode.n_changes) = (0, 0);
            match &mut inode.body {
                Body::Regular(content) => content.crash(loss),
                Body::Directory(directory) => {
                    directory.entries = directory.on_disk.clone();
                    directory.parent = parents[ino];
                }
                Body::Symlink(_) => {}
            }
            if inode.attributes_on_disk.version != inode.attributes.version {
                if loss.state_of(2) == 0 {
                    inode.attributes = inode.attributes_on_disk.clone();
                } else {
                    inode.attributes_on_disk = inode.attributes.clone();
                }
            }
        }
    }
}

/// All files and directories that a change concerns: they must be remembered until it is on the
/// disk.
fn concerned(change: &Change) -> Vec<Ino> {
    let directories = change.places().map(|place| place.0);
    directories.chain(change.files()).collect()
}

/// The parts of a path, the first one last.
fn parts_of(path: &[u8]) -> Vec<OsString> {
    let parts = path
        .split(|&byte| byte == b'/')
        .filter(|part| !part.is_empty());
    let parts = parts.map(|part| OsStr::from_bytes(part).to_owned());
    let mut parts: Vec<_> = parts.collect();
    parts.reverse();
    parts
}

fn hash(order: usize, name: &OsStr) -> u64 {
    let bytes = name.as_bytes().iter();
    bytes.fold(mix(order as u64), |hash, &byte| mix(hash ^ u64::from(byte)))
}

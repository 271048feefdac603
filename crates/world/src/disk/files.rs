//! A simulated disk with its open files, and what the kernel's calls on these do: each as one step. Nothing here waits.
//! A call that waits has a step before the wait and one after it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice, IoSliceMut, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::chance::{self, below, chance};
use super::content::{Content, MOST_BYTES, PAGE, Plan, SECTOR};
use super::errno::{
    EBADF, EFBIG, EINVAL, EIO, EISDIR, ENOSPC, O_ACCMODE, O_APPEND, O_DIRECT, O_DIRECTORY, O_DSYNC,
    O_NOATIME, O_NOFOLLOW, O_PATH, O_RDONLY, O_SYNC, O_WRONLY, error, fail,
};
use super::inode::{Attributes, Body, Ino, Stat};
use super::settings::{Quality, Settings};
use super::tree::Tree;
use crate::net::faults::DiskEvent;

/// The kernel's limit of bytes for one read or write.
const MOST_AT_ONCE: usize = 0x7fff_f000;

/// Its limit of buffers, of which `std` passes no more.
const MOST_BUFS: usize = 1024;

/// Without `O_NOATIME`, the time of the last read is renewed after so long at the latest.
const ACCESS_TIME_OLD: Duration = Duration::from_secs(24 * 60 * 60);

/// An open file, as the kernel has it: what all descriptors of one `open` share.
#[derive(Debug)]
struct OpenFile {
    ino: Ino,
    flags: i32,
    position: u64,
    /// How many failed syncs of the file it knows of.
    n_errors_seen: u64,
    /// Whether it has a lock, and whether that is exclusive.
    lock: Option<bool>,
    /// The power went while it was open.
    is_dead: bool,
    /// The path, as it was given, and the goroutine that opened it, with its step.
    path: PathBuf,
    opened: (u64, u64),
}

impl OpenFile {
    fn is_path(&self) -> bool {
        self.flags & O_PATH != 0
    }

    fn may_read(&self) -> bool {
        !self.is_path() && self.flags & O_ACCMODE != O_WRONLY
    }

    fn may_write(&self) -> bool {
        !self.is_path() && self.flags & O_ACCMODE != O_RDONLY
    }

    fn is_direct(&self) -> bool {
        self.flags & O_DIRECT != 0
    }

    fn place(&self, at: At) -> u64 {
        match at {
            At::Position => self.position,
            At::Offset(offset) => offset,
        }
    }
}

/// The number of an open file.
pub type FileId = u64;

/// Which bytes a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Transfers at the file's own position, which moves.
    Position,
    /// Transfers at this offset.
    Offset(u64),
}

impl At {
    /// The kernel looks at an offset before it looks at the file.
    pub fn check(self) -> io::Result<()> {
        match self {
            At::Offset(offset) if i64::try_from(offset).is_err() => fail(EINVAL),
            _ => Ok(()),
        }
    }
}

/// The wait of a read or write before its bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// There are no bytes.
    Nothing,
    /// They are moved to or from the page cache.
    InCache,
    /// They are moved to or from the disk, for which the call waits.
    OnDisk,
}

/// A write that was made.
#[derive(Debug)]
pub struct Written {
    /// How many bytes.
    pub n: usize,
    /// The call syncs the file as well: whether only its data.
    pub syncs: Option<bool>,
    at: At,
    /// The position before and after.
    before: u64,
    after: u64,
}

/// The bytes that the kernel moves in one call with these buffers: how many buffers it looks at, and
/// how many bytes.
fn transfer(lens: impl Iterator<Item = usize>) -> usize {
    let sum = lens.take(MOST_BUFS).fold(0, usize::saturating_add);
    sum.min(MOST_AT_ONCE)
}

/// # Errors
///
/// EINVAL if the bytes do not end where a file may end.
fn check_end(offset: u64, len: usize) -> io::Result<()> {
    match offset.checked_add(len as u64) {
        Some(end) if i64::try_from(end).is_ok() => Ok(()),
        _ => fail(EINVAL),
    }
}

/// With `O_DIRECT`, place, length and memory are whole sectors.
fn check_aligned<'a>(offset: u64, bufs: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
    let is_whole = |n: usize| n.is_multiple_of(SECTOR);
    let mut bufs = bufs.take(MOST_BUFS);
    let is_aligned = offset.is_multiple_of(SECTOR as u64)
        && bufs.all(|buf| is_whole(buf.len()) && is_whole(buf.as_ptr().addr()));
    if is_aligned { Ok(()) } else { fail(EINVAL) }
}

/// The part of `len` bytes that a call transfers which is cut short by chance.
fn shortened(len: usize, per_million: u32, is_direct: bool) -> usize {
    let unit = if is_direct { SECTOR } else { 1 };
    if len <= unit || !chance(per_million) {
        return len;
    }
    // At least one unit, and fewer bytes than all.
    let most = (len - 1) / unit;
    unit * (most - below(most))
}

/// A simulated disk with its open files.
#[derive(Debug)]
pub struct Files {
    /// The files.
    pub tree: Tree,
    settings: Settings,
    open: BTreeMap<FileId, OpenFile>,
    next_open: FileId,
}

/// The disk and its settings.
impl Files {
    /// The disk of a new machine.
    pub fn new(device: u64, quality: Quality, now: SystemTime) -> Files {
        let mut files = Files {
            tree: Tree::new(device, now),
            settings: Settings::new(Quality::default()),
            open: BTreeMap::new(),
            next_open: 0,
        };
        files.set_quality(quality);
        files
    }

    /// Its properties, without what faults change for a while.
    pub fn quality(&self) -> Quality {
        self.settings.chosen()
    }

    /// Changes its properties.
    pub fn set_quality(&mut self, quality: Quality) {
        self.settings.set(quality);
        self.tell_tree();
    }

    /// An event of the disk.
    pub fn on_event(&mut self, event: DiskEvent) {
        match event {
            DiskEvent::PowerLoss => return self.lose_power(),
            DiskEvent::Begins(trouble) => self.settings.note(trouble, true),
            DiskEvent::Ends(trouble) => self.settings.note(trouble, false),
        }
        self.tell_tree();
    }

    fn tell_tree(&mut self) {
        let now = self.settings.now();
        (self.tree.capacity, self.tree.write_errors) = (now.capacity, now.write_errors);
    }

    /// The power goes: what was not synced may be lost, and all open files are dead.
    fn lose_power(&mut self) {
        for file in self.open.values_mut() {
            file.is_dead = true;
            file.lock = None;
        }
        self.tree.crash();
    }

    /// How long a transfer takes now, which is drawn.
    pub fn transfer_time(&self) -> Duration {
        let between = &self.settings.now().transfer_time;
        chance::time(*between.start(), *between.end())
    }

    /// How long a sync takes now, which is drawn.
    pub fn sync_time(&self) -> Duration {
        let between = &self.settings.now().sync_time;
        chance::time(*between.start(), *between.end())
    }
}

/// Opening and closing.
impl Files {
    /// As `open(2)`, by a goroutine at a step.
    pub fn open(
        &mut self,
        path: &Path,
        flags: i32,
        mode: u32,
        opened: (u64, u64),
        now: SystemTime,
    ) -> io::Result<FileId> {
        let flags = if flags & O_PATH != 0 {
            flags & (O_PATH | O_DIRECTORY | O_NOFOLLOW)
        } else {
            flags
        };
        let ino = self.tree.open(path, flags, mode, now)?;
        let inode = self.tree.inode_mut(ino);
        inode.n_open += 1;
        let file = OpenFile {
            ino,
            flags,
            position: 0,
            n_errors_seen: inode.n_errors,
            lock: None,
            is_dead: false,
            path: path.to_path_buf(),
            opened,
        };
        let id = self.next_open;
        self.next_open += 1;
        self.open.insert(id, file);
        Ok(id)
    }

    /// Closes a file. `true` if it had a lock.
    pub fn close(&mut self, id: FileId) -> bool {
        let Some(file) = self.open.remove(&id) else {
            return false;
        };
        if !file.is_dead {
            self.tree.inode_mut(file.ino).n_open -= 1;
            self.tree.collect(file.ino);
        }
        file.lock.is_some()
    }

    /// The open files: their paths, as they were given, and the goroutines that opened them, with their steps.
    pub fn all_open(&self) -> impl Iterator<Item = (FileId, &Path, (u64, u64))> {
        let open = self.open.iter();
        open.map(|(&id, file)| (id, &*file.path, file.opened))
    }

    /// # Errors
    ///
    /// EIO if the power went while the file was open.
    pub fn check(&self, id: FileId) -> io::Result<()> {
        if self.file(id).is_dead {
            return fail(EIO);
        }
        Ok(())
    }

    /// Whether it was opened with `O_DIRECT`.
    pub fn is_direct(&self, id: FileId) -> bool {
        self.file(id).is_direct()
    }

    fn file(&self, id: FileId) -> &OpenFile {
        self.open.get(&id).expect("it is open")
    }

    fn file_mut(&mut self, id: FileId) -> &mut OpenFile {
        self.open.get_mut(&id).expect("it is open")
    }

    /// A file that is open for more than its path.
    fn not_path(&self, id: FileId) -> io::Result<&OpenFile> {
        let file = self.file(id);
        if file.is_path() {
            fail(EBADF)
        } else {
            Ok(file)
        }
    }

    fn content(&mut self, ino: Ino) -> io::Result<&mut Content> {
        match &mut self.tree.inode_mut(ino).body {
            Body::Regular(content) => Ok(content),
            Body::Directory(_) => fail(EISDIR),
            Body::Symlink(_) => fail(EBADF),
        }
    }
}

/// Reading and writing.
impl Files {
    /// The first step of a read.
    pub fn begin_read(
        &mut self,
        id: FileId,
        bufs: &[IoSliceMut<'_>],
        at: At,
    ) -> io::Result<Transfer> {
        let len = transfer(bufs.iter().map(|buf| buf.len()));
        let file = self.file(id);
        let (ino, is_direct) = (file.ino, file.is_direct());
        if !file.may_read() {
            return fail(EBADF);
        }
        let offset = file.place(at);
        check_end(offset, len)?;
        if len == 0 {
            return Ok(Transfer::Nothing);
        }
        let content = self.content(ino)?;
        if is_direct {
            check_aligned(offset, bufs.iter().map(|buf| &**buf))?;
        }
        let on_disk = is_direct && offset < content.size() || content.is_cold(offset, len);
        Ok(if on_disk {
            Transfer::OnDisk
        } else {
            Transfer::InCache
        })
    }

    /// The last step of a read.
    pub fn read(
        &mut self,
        id: FileId,
        bufs: &mut [IoSliceMut<'_>],
        at: At,
        now: SystemTime,
    ) -> io::Result<usize> {
        let len = transfer(bufs.iter().map(|buf| buf.len()));
        let settings = self.settings.now();
        let (errors, short) = (settings.read_errors, settings.short_reads);
        if chance(errors) {
            return fail(EIO);
        }
        // Another goroutine may have moved the position meanwhile.
        let file = self.file(id);
        let (ino, is_direct, offset) = (file.ino, file.is_direct(), file.place(at));
        let content = self.content(ino)?;
        let there = content.size().saturating_sub(offset).min(len as u64) as usize;
        let mut left = shortened(there, short, is_direct);
        let mut n = 0;
        for buf in bufs {
            let part = left.min(buf.len());
            content.read(offset + n as u64, &mut buf[..part], !is_direct);
            n += part;
            left -= part;
        }
        let file = self.file_mut(id);
        if at == At::Position {
            file.position += n as u64;
        }
        if file.flags & O_NOATIME == 0 {
            note_access(&mut self.tree.inode_mut(ino).attributes, now);
        }
        Ok(n)
    }

    /// The first step of a write.
    pub fn begin_write(
        &mut self,
        id: FileId,
        bufs: &[IoSlice<'_>],
        at: At,
    ) -> io::Result<Transfer> {
        let len = transfer(bufs.iter().map(|buf| buf.len()));
        let file = self.file(id);
        let is_direct = file.is_direct();
        if !file.may_write() {
            return fail(EBADF);
        }
        let place = file.place(at);
        check_end(place, len)?;
        if is_direct {
            let size = self.tree.inode(file.ino).size();
            let offset = if file.flags & O_APPEND != 0 {
                size
            } else {
                place
            };
            check_aligned(offset, bufs.iter().map(|buf| &**buf))?;
        }
        Ok(match (len, is_direct) {
            (0, _) => Transfer::Nothing,
            (_, true) => Transfer::OnDisk,
            (_, false) => Transfer::InCache,
        })
    }

    /// The last step of a write.
    pub fn write(
        &mut self,
        id: FileId,
        bufs: &[IoSlice<'_>],
        at: At,
        now: SystemTime,
    ) -> io::Result<Written> {
        let len = transfer(bufs.iter().map(|buf| buf.len()));
        self.tree.write_fault()?;
        let file = self.file(id);
        let (ino, flags, is_direct, place) =
            (file.ino, file.flags, file.is_direct(), file.place(at));
        let n_free = self.n_free_pages();
        let short = self.settings.now().short_writes;
        let seq = self.tree.next_seq();
        let content = self.content(ino)?;
        let offset = if flags & O_APPEND != 0 {
            content.size()
        } else {
            place
        };
        if offset >= MOST_BYTES {
            return fail(EFBIG);
        }
        let len = len.min((MOST_BYTES - offset) as usize);
        let len = shortened(len, short, is_direct);
        let mut room = content.room(offset, len, n_free);
        if is_direct {
            room -= room % SECTOR;
        }
        if room == 0 {
            return fail(ENOSPC);
        }
        content.write(seq, offset, &gathered(bufs, room), is_direct);
        self.tree.inode_mut(ino).touch(now);
        let after = offset + room as u64;
        if at == At::Position {
            self.file_mut(id).position = after;
        }
        let syncs = flags & (O_SYNC | O_DSYNC) != 0;
        Ok(Written {
            n: room,
            syncs: syncs.then_some(flags & O_SYNC != O_SYNC),
            at,
            before: place,
            after,
        })
    }

    /// The sync of a write has failed: the bytes are there, but the call has failed.
    pub fn has_failed(&mut self, id: FileId, written: &Written) {
        let file = self.file_mut(id);
        if written.at == At::Position && file.position == written.after {
            file.position = written.before;
        }
    }

    fn n_free_pages(&self) -> u64 {
        self.tree.free() / PAGE as u64
    }

    /// As `lseek(2)`.
    pub fn seek(&mut self, id: FileId, to: SeekFrom) -> io::Result<u64> {
        let file = self.not_path(id)?;
        let (from, by) = match to {
            SeekFrom::Start(offset) => (0, i64::try_from(offset).map_err(|_| error(EINVAL))?),
            SeekFrom::Current(by) => (file.position, by),
            SeekFrom::End(by) => (self.tree.inode(file.ino).size(), by),
        };
        let to = from.checked_add_signed(by).filter(|&to| to <= MOST_BYTES);
        let to = to.ok_or_else(|| error(EINVAL))?;
        self.file_mut(id).position = to;
        Ok(to)
    }

    /// How many bytes there are after the position, for a buffer of the right length.
    pub fn bytes_left(&self, id: FileId) -> usize {
        let file = self.file(id);
        if file.is_dead {
            return 0;
        }
        let size = self.tree.inode(file.ino).size();
        size.saturating_sub(file.position) as usize
    }

    /// As `ftruncate(2)`.
    pub fn set_len(&mut self, id: FileId, bytes: u64, now: SystemTime) -> io::Result<()> {
        let file = self.not_path(id)?;
        let ino = file.ino;
        if !file.may_write() {
            return fail(EINVAL);
        }
        self.tree.write_fault()?;
        if bytes > MOST_BYTES {
            return fail(EFBIG);
        }
        let seq = self.tree.next_seq();
        self.content(ino)?.set_size(seq, bytes);
        self.tree.inode_mut(ino).touch(now);
        Ok(())
    }

    /// As `fallocate(2)`.
    pub fn allocate(
        &mut self,
        id: FileId,
        (offset, len): (u64, u64),
        now: SystemTime,
    ) -> io::Result<()> {
        let file = self.not_path(id)?;
        let ino = file.ino;
        if len > 0 && !file.may_write() {
            return fail(EBADF);
        }
        if len == 0 {
            return fail(EINVAL);
        }
        self.tree.write_fault()?;
        if offset.checked_add(len).is_none_or(|end| end > MOST_BYTES) {
            return fail(EFBIG);
        }
        let n_free = self.n_free_pages();
        let seq = self.tree.next_seq();
        if !self.content(ino)?.allocate(seq, offset, len, n_free) {
            return fail(ENOSPC);
        }
        self.tree.inode_mut(ino).touch(now);
        Ok(())
    }

    /// As `fstat(2)`.
    pub fn metadata(&self, id: FileId) -> Stat {
        self.tree.stat(self.file(id).ino)
    }

    /// A call that changes attributes.
    pub fn change(
        &mut self,
        id: FileId,
        now: SystemTime,
        f: impl FnOnce(&mut Attributes),
    ) -> io::Result<()> {
        let ino = self.not_path(id)?.ino;
        self.tree.write_fault()?;
        let attributes = &mut self.tree.inode_mut(ino).attributes;
        f(attributes);
        attributes.touch(now);
        Ok(())
    }
}

/// Syncs and locks.
impl Files {
    /// # Errors
    ///
    /// EBADF if the file is open for its path only.
    pub fn check_not_path(&self, id: FileId) -> io::Result<()> {
        self.not_path(id).map(drop)
    }

    /// The first step of a sync: what there is to write, which others write meanwhile is not part of. `None` if there
    /// is nothing.
    pub fn begin_sync(&self, id: FileId) -> Option<Work> {
        let work = Work::of(&self.tree, self.file(id).ino);
        (!work.is_empty()).then_some(work)
    }

    /// The step after its wait.
    pub fn end_sync(&mut self, id: FileId, work: Work, data_only: bool) -> io::Result<()> {
        let ino = self.file(id).ino;
        let fails = chance(self.settings.now().sync_errors);
        let inode = self.tree.inode_mut(ino);
        match (&mut inode.body, &work.plan) {
            (Body::Regular(content), Some(plan)) if fails => {
                content.lose(plan);
                // Data that the disk had already cannot fail again: there is no error to report.
                if plan.writes_pages() {
                    inode.n_errors += 1;
                }
            }
            (Body::Regular(content), Some(plan)) => content.settle(plan),
            _ => {}
        }
        let n_errors = inode.n_errors;
        if fails {
            self.file_mut(id).n_errors_seen = n_errors;
            return fail(EIO);
        }
        // Another sync may have begun later and ended before.
        if !data_only && inode.attributes_on_disk.version < work.attributes.version {
            inode.attributes_on_disk = work.attributes;
        }
        self.tree.settle_names(&work.names);
        Ok(())
    }

    /// The last step of a sync.
    ///
    /// # Errors
    ///
    /// EIO, once for each open file, after a sync of the file has failed.
    pub fn report(&mut self, id: FileId) -> io::Result<()> {
        let n_errors = self.tree.inode(self.file(id).ino).n_errors;
        let file = self.file_mut(id);
        if std::mem::replace(&mut file.n_errors_seen, n_errors) < n_errors {
            return fail(EIO);
        }
        Ok(())
    }

    /// Takes the lock, if no other open file has one in its way. Returns whether it has the lock now, and whether it
    /// gave one up for which others may wait.
    pub fn lock(&mut self, id: FileId, exclusive: bool) -> (io::Result<bool>, bool) {
        let file = match self.not_path(id) {
            Ok(file) => file,
            Err(e) => return (Err(e), false),
        };
        let ino = file.ino;
        if file.lock == Some(exclusive) {
            return (Ok(true), false);
        }
        // As in Linux, a lock of the other kind is given up first.
        let had_lock = self.unlock(id);
        let mut others = self.open.iter().filter(|&(&other, _)| other != id);
        let in_the_way = |other: &OpenFile| match other.lock {
            Some(is_exclusive) => other.ino == ino && (is_exclusive || exclusive),
            None => false,
        };
        let is_free = !others.any(|(_, other)| in_the_way(other));
        if is_free {
            self.file_mut(id).lock = Some(exclusive);
        }
        (Ok(is_free), had_lock)
    }

    /// Gives up the lock. `true` if it had one: those that wait may have it.
    pub fn unlock(&mut self, id: FileId) -> bool {
        self.file_mut(id).lock.take().is_some()
    }
}

/// The first `len` bytes of some buffers that have them.
fn gathered<'a>(bufs: &'a [IoSlice<'_>], len: usize) -> Cow<'a, [u8]> {
    if let Some(first) = bufs.first().filter(|first| first.len() >= len) {
        return Cow::Borrowed(&first[..len]);
    }
    let mut all = Vec::with_capacity(len);
    for buf in bufs {
        all.extend_from_slice(&buf[..buf.len().min(len - all.len())]);
    }
    Cow::Owned(all)
}

/// The work of a sync.
#[derive(Debug)]
pub struct Work {
    plan: Option<Plan>,
    names: BTreeSet<u64>,
    attributes: Attributes,
    attributes_are_new: bool,
}

impl Work {
    fn of(tree: &Tree, ino: Ino) -> Work {
        let inode = tree.inode(ino);
        let (plan, names) = match &inode.body {
            Body::Regular(content) => (Some(content.plan()), Default::default()),
            Body::Directory(_) => (None, tree.changes_in(ino)),
            Body::Symlink(_) => (None, Default::default()),
        };
        Work {
            plan,
            names,
            attributes: inode.attributes.clone(),
            attributes_are_new: inode.attributes.version != inode.attributes_on_disk.version,
        }
    }

    fn is_empty(&self) -> bool {
        self.plan.as_ref().is_none_or(Plan::is_empty)
            && self.names.is_empty()
            && !self.attributes_are_new
    }
}

/// As with the mount option `relatime`.
fn note_access(attributes: &mut Attributes, now: SystemTime) {
    let last = attributes.accessed;
    let is_old = now
        .duration_since(last)
        .is_ok_and(|age| age >= ACCESS_TIME_OLD);
    if is_old || last <= attributes.modified || last <= attributes.changed {
        attributes.accessed = now;
    }
}

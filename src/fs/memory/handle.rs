//! What programs do with an open file of a simulated disk.

use std::fmt;
use std::fs::{FileTimes, TryLockError};
use std::io::{self, IoSlice, IoSliceMut, SeekFrom};
use std::time::SystemTime;

use super::content::{Content, MOST_BYTES, Plan, SECTOR};
use super::drive::{self, OpenFile, Opened, State, now};
use super::errno::{
    EAGAIN, EBADF, EFBIG, EINVAL, EIO, EISDIR, ENOSPC, O_ACCMODE, O_APPEND, O_DIRECT, O_DSYNC,
    O_NOATIME, O_PATH, O_RDONLY, O_SYNC, O_WRONLY, error, fail,
};
use super::fate::{self, below, chance};
use super::inode::{Attributes, Body, Ino, Stat};
use super::times;
use crate::loom::native::{Arc, MutexGuard};
use crate::sched::wait::park;
use crate::task;

/// The kernel's limit of bytes for one read or write.
const MOST_AT_ONCE: usize = 0x7fff_f000;

/// Without `O_NOATIME`, the time of the last read is renewed after so long at the latest.
const ACCESS_TIME_OLD: std::time::Duration = std::time::Duration::from_secs(24 * 60 * 60);

/// A handle to an open file of a simulated disk.
#[derive(Clone)]
pub(crate) struct Handle(Arc<Opened>);

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("simulated", &self.0.id)
            .finish_non_exhaustive()
    }
}

/// Which bytes a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Those at the file's own position, which moves.
    Position,
    Offset(u64),
}

impl OpenFile {
    fn may_read(&self) -> bool {
        self.flags & O_PATH == 0 && self.flags & O_ACCMODE != O_WRONLY
    }

    fn may_write(&self) -> bool {
        self.flags & O_PATH == 0 && self.flags & O_ACCMODE != O_RDONLY
    }

    fn is_direct(&self) -> bool {
        self.flags & O_DIRECT != 0
    }

    fn place(&self, at: At) -> io::Result<u64> {
        match at {
            At::Position => Ok(self.position),
            At::Offset(offset) if i64::try_from(offset).is_ok() => Ok(offset),
            At::Offset(_) => fail(EINVAL),
        }
    }
}

/// With `O_DIRECT`, place, length and memory are whole sectors.
fn check_aligned(offset: u64, len: usize, memory: usize) -> io::Result<()> {
    let is_aligned = offset.is_multiple_of(SECTOR as u64)
        && len.is_multiple_of(SECTOR)
        && memory.is_multiple_of(SECTOR);
    if is_aligned { Ok(()) } else { fail(EINVAL) }
}

/// The part of `len` bytes that a call transfers which is cut short by chance.
fn shortened(len: usize, per_million: u32, is_direct: bool) -> usize {
    let unit = if is_direct { SECTOR } else { 1 };
    if len <= unit || !chance(per_million) {
        return len;
    }
    // At least one unit, and at least one fewer than all.
    len - unit * (1 + below(len.div_ceil(unit) - 1))
}

fn content(state: &mut State, ino: Ino) -> io::Result<&mut Content> {
    match &mut state.tree.inode_mut(ino).body {
        Body::Regular(content) => Ok(content),
        Body::Directory(_) => fail(EISDIR),
        Body::Symlink(_) => fail(EBADF),
    }
}

impl Handle {
    pub(super) fn new(opened: Opened) -> Handle {
        Handle(Arc::new(opened))
    }

    /// The handle of a descriptor that once was in a `File`.
    pub(crate) fn of_descriptor(descriptor: &std::fs::File) -> Option<Handle> {
        drive::bring_back(descriptor).map(Handle)
    }

    /// The descriptor leaves its `File`.
    pub(crate) fn take_out(self, descriptor: &std::fs::File) {
        drive::take_out(self.0, descriptor);
    }

    /// Whether it was opened with `O_DIRECT`.
    pub(crate) fn is_direct(&self) -> bool {
        self.file(&self.0.drive.state()).is_direct()
    }

    /// A switch point, and then the disk.
    fn enter(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.0.drive.enter()?;
        self.check(&state)?;
        Ok(state)
    }

    /// The disk again, after a wait.
    fn again(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.0.drive.state();
        self.check(&state)?;
        Ok(state)
    }

    fn check(&self, state: &State) -> io::Result<()> {
        if self.file(state).is_dead {
            return fail(EIO);
        }
        Ok(())
    }

    fn file<'a>(&self, state: &'a State) -> &'a OpenFile {
        state.open.get(&self.0.id).expect("it is open")
    }

    fn file_mut<'a>(&self, state: &'a mut State) -> &'a mut OpenFile {
        state.open.get_mut(&self.0.id).expect("it is open")
    }

    pub(crate) fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_from(buf, At::Position)
    }

    pub(crate) fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_from(buf, At::Offset(offset))
    }

    fn read_from(&self, buf: &mut [u8], at: At) -> io::Result<usize> {
        let len = buf.len().min(MOST_AT_ONCE);
        let mut state = self.enter()?;
        let file = self.file(&state);
        let (ino, is_direct) = (file.ino, file.is_direct());
        if !file.may_read() {
            return fail(EBADF);
        }
        let offset = file.place(at)?;
        if len == 0 {
            return Ok(0);
        }
        let content_here = content(&mut state, ino)?;
        if is_direct {
            check_aligned(offset, len, buf.as_ptr().addr())?;
        }
        if is_direct && offset < content_here.size() || content_here.is_cold(offset, len) {
            drop(state);
            self.0.drive.wait_for_transfer();
            state = self.again()?;
        }
        let settings = &state.tree.settings();
        let (errors, short) = (settings.read_errors, settings.short_reads);
        if chance(errors) {
            return fail(EIO);
        }
        // Another goroutine may have moved the position meanwhile.
        let offset = self.file(&state).place(at)?;
        let content = content(&mut state, ino)?;
        let there = content.size().saturating_sub(offset).min(len as u64) as usize;
        let len = shortened(there, short, is_direct);
        let n = content.read(offset, &mut buf[..len], !is_direct);
        let file = self.file_mut(&mut state);
        if at == At::Position {
            file.position += n as u64;
        }
        if file.flags & O_NOATIME == 0 {
            let attributes = &mut state.tree.inode_mut(ino).attributes;
            note_access(attributes);
        }
        Ok(n)
    }

    pub(crate) fn read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if let [one] = bufs {
            return self.read(one);
        }
        self.check_vector(bufs.iter().map(|buf| &**buf))?;
        let mut all = super::super::aligned::AlignedBuf::zeroed(bufs.iter().map(|b| b.len()).sum());
        let n = self.read(&mut all)?;
        let mut rest = &all[..n];
        for buf in bufs {
            let (part, more) = rest.split_at(rest.len().min(buf.len()));
            buf[..part.len()].copy_from_slice(part);
            rest = more;
        }
        Ok(n)
    }

    /// With `O_DIRECT` each buffer of a vector is aligned.
    fn check_vector<'a>(&self, bufs: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
        let is_direct = self.file(&self.0.drive.state()).is_direct();
        for buf in bufs.filter(|_| is_direct) {
            check_aligned(0, buf.len(), buf.as_ptr().addr())?;
        }
        Ok(())
    }

    pub(crate) fn write(&self, buf: &[u8]) -> io::Result<usize> {
        self.write_to(buf, At::Position)
    }

    pub(crate) fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.write_to(buf, At::Offset(offset))
    }

    fn write_to(&self, buf: &[u8], at: At) -> io::Result<usize> {
        let buf = &buf[..buf.len().min(MOST_AT_ONCE)];
        let mut state = self.enter()?;
        let file = self.file(&state);
        let (ino, flags, is_direct) = (file.ino, file.flags, file.is_direct());
        if !file.may_write() {
            return fail(EBADF);
        }
        let place = file.place(at)?;
        if is_direct {
            let size = state.tree.inode(ino).size();
            let offset = if flags & O_APPEND != 0 { size } else { place };
            check_aligned(offset, buf.len(), buf.as_ptr().addr())?;
        }
        if buf.is_empty() {
            return Ok(0);
        }
        if is_direct {
            drop(state);
            self.0.drive.wait_for_transfer();
            state = self.again()?;
        }
        state.tree.write_fault()?;
        let place = self.file(&state).place(at)?;
        let n_free = state.tree.free() / super::content::PAGE as u64;
        let short = state.tree.settings().short_writes;
        let seq = state.tree.next_seq();
        let content = content(&mut state, ino)?;
        let offset = if flags & O_APPEND != 0 {
            content.size()
        } else {
            place
        };
        if offset >= MOST_BYTES {
            return fail(EFBIG);
        }
        let len = buf.len().min((MOST_BYTES - offset) as usize);
        let len = shortened(len, short, is_direct);
        let mut room = content.room(offset, len, n_free);
        if is_direct {
            room -= room % SECTOR;
        }
        if room == 0 {
            return fail(ENOSPC);
        }
        content.write(seq, offset, &buf[..room], is_direct);
        state.tree.inode_mut(ino).touch(now());
        if at == At::Position {
            self.file_mut(&mut state).position = offset + room as u64;
        }
        drop(state);
        if flags & (O_SYNC | O_DSYNC) != 0 {
            self.sync_now(flags & O_SYNC != O_SYNC)?;
        }
        Ok(room)
    }

    pub(crate) fn write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if let [one] = bufs {
            return self.write(one);
        }
        self.check_vector(bufs.iter().map(|buf| &**buf))?;
        let mut all = super::super::aligned::AlignedBuf::zeroed(bufs.iter().map(|b| b.len()).sum());
        let mut at = 0;
        for buf in bufs {
            all[at..at + buf.len()].copy_from_slice(buf);
            at += buf.len();
        }
        self.write(&all)
    }

    pub(crate) fn seek(&self, to: SeekFrom) -> io::Result<u64> {
        let mut state = self.enter()?;
        let file = self.file(&state);
        if file.flags & O_PATH != 0 {
            return fail(EBADF);
        }
        let (from, by) = match to {
            SeekFrom::Start(offset) => (0, i64::try_from(offset).map_err(|_| error(EINVAL))?),
            SeekFrom::Current(by) => (file.position, by),
            SeekFrom::End(by) => (state.tree.inode(file.ino).size(), by),
        };
        let to = from.checked_add_signed(by).ok_or_else(|| error(EINVAL))?;
        self.file_mut(&mut state).position = to;
        Ok(to)
    }

    /// How many bytes there are after the position, for a buffer of the right length.
    pub(crate) fn bytes_left(&self) -> usize {
        let state = self.0.drive.state();
        let file = self.file(&state);
        if file.is_dead {
            return 0;
        }
        let size = state.tree.inode(file.ino).size();
        size.saturating_sub(file.position) as usize
    }

    /// A file that may be written, for a call that changes its size.
    fn enter_to_resize(&self) -> io::Result<(MutexGuard<'_, State>, Ino)> {
        let state = self.enter()?;
        let file = self.file(&state);
        let ino = file.ino;
        if !file.may_write() {
            return fail(if file.flags & O_PATH != 0 {
                EBADF
            } else {
                EINVAL
            });
        }
        state.tree.write_fault()?;
        Ok((state, ino))
    }

    pub(crate) fn set_len(&self, bytes: u64) -> io::Result<()> {
        if i64::try_from(bytes).is_err() {
            return fail(EINVAL);
        }
        let (mut state, ino) = self.enter_to_resize()?;
        if bytes > MOST_BYTES {
            return fail(EFBIG);
        }
        let seq = state.tree.next_seq();
        content(&mut state, ino)?.set_size(seq, bytes);
        state.tree.inode_mut(ino).touch(now());
        Ok(())
    }

    pub(crate) fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut state = self.enter()?;
        let file = self.file(&state);
        let ino = file.ino;
        if file.flags & O_PATH != 0 || len > 0 && !file.may_write() {
            return fail(EBADF);
        }
        if len == 0 {
            return fail(EINVAL);
        }
        state.tree.write_fault()?;
        if offset.checked_add(len).is_none_or(|end| end > MOST_BYTES) {
            return fail(EFBIG);
        }
        let n_free = state.tree.free() / super::content::PAGE as u64;
        let seq = state.tree.next_seq();
        let content = content(&mut state, ino)?;
        if content.room(offset, len as usize, n_free) < len as usize {
            return fail(ENOSPC);
        }
        content.allocate(seq, offset, len);
        state.tree.inode_mut(ino).touch(now());
        Ok(())
    }

    pub(crate) fn metadata(&self) -> io::Result<Stat> {
        let state = self.enter()?;
        Ok(state.tree.stat(self.file(&state).ino))
    }

    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.change(|attributes| {
            attributes.mode = mode & 0o7777;
            Ok(())
        })
    }

    pub(crate) fn set_times(&self, new: FileTimes) -> io::Result<()> {
        self.change(|attributes| {
            let (accessed, modified) = times::resolve(new, attributes)?;
            (attributes.accessed, attributes.modified) = (accessed, modified);
            Ok(())
        })
    }

    pub(crate) fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.set_times(FileTimes::new().set_modified(time))
    }

    fn change(&self, f: impl FnOnce(&mut Attributes) -> io::Result<()>) -> io::Result<()> {
        let mut state = self.enter()?;
        let file = self.file(&state);
        let ino = file.ino;
        if file.flags & O_PATH != 0 {
            return fail(EBADF);
        }
        state.tree.write_fault()?;
        let attributes = &mut state.tree.inode_mut(ino).attributes;
        f(attributes)?;
        attributes.touch(now());
        Ok(())
    }

    pub(crate) fn sync(&self, data_only: bool) -> io::Result<()> {
        let state = self.enter()?;
        if self.file(&state).flags & O_PATH != 0 {
            return fail(EBADF);
        }
        drop(state);
        self.sync_now(data_only)
    }

    /// Writes what there is when the call begins. What others write meanwhile is not part of it.
    fn sync_now(&self, data_only: bool) -> io::Result<()> {
        let state = self.again()?;
        let ino = self.file(&state).ino;
        let work = Work::of(&state, ino);
        if work.is_empty() {
            drop(state);
            return self.report(ino);
        }
        let between = state.tree.settings().sync_time.clone();
        drop(state);
        self.0
            .drive
            .wait(fate::time(*between.start(), *between.end()));
        let mut state = self.again()?;
        let fails = chance(state.tree.settings().sync_errors);
        let inode = state.tree.inode_mut(ino);
        match (&mut inode.body, &work.plan) {
            (Body::Regular(content), Some(plan)) if fails => {
                content.lose(plan);
                // What the disk had already cannot fail again, and has nobody to tell.
                if plan.writes_pages() {
                    inode.n_errors += 1;
                }
            }
            (Body::Regular(content), Some(plan)) => content.settle(plan),
            _ => {}
        }
        if fails {
            let file = self.file_mut(&mut state);
            let ino = file.ino;
            let n_errors = state.tree.inode(ino).n_errors;
            self.file_mut(&mut state).n_errors_seen = n_errors;
            return fail(EIO);
        }
        if !data_only {
            inode.attributes_on_disk = work.attributes;
        }
        state.tree.settle_names(&work.names);
        drop(state);
        self.report(ino)
    }

    /// # Errors
    ///
    /// EIO, once for each open file, after a sync of the file has failed.
    fn report(&self, ino: Ino) -> io::Result<()> {
        let mut state = self.again()?;
        let n_errors = state.tree.inode(ino).n_errors;
        let file = self.file_mut(&mut state);
        if std::mem::replace(&mut file.n_errors_seen, n_errors) < n_errors {
            return fail(EIO);
        }
        Ok(())
    }

    /// Takes the lock, if no other open file has one in its way.
    pub(crate) fn try_lock(&self, exclusive: bool) -> Result<(), TryLockError> {
        let mut state = self.enter().map_err(TryLockError::Error)?;
        match self.lock_in(&mut state, exclusive) {
            Ok(true) => Ok(()),
            Ok(false) => Err(TryLockError::WouldBlock),
            Err(e) => Err(TryLockError::Error(e)),
        }
    }

    fn lock_in(&self, state: &mut State, exclusive: bool) -> io::Result<bool> {
        let file = self.file(state);
        let ino = file.ino;
        if file.flags & O_PATH != 0 {
            return fail(EBADF);
        }
        if file.lock == Some(exclusive) {
            return Ok(true);
        }
        // As in Linux, a lock of the other kind is given up first.
        self.unlock_in(state);
        let mut others = state.open.iter().filter(|&(&id, _)| id != self.0.id);
        let in_the_way = |other: &OpenFile| match other.lock {
            Some(is_exclusive) => other.ino == ino && (is_exclusive || exclusive),
            None => false,
        };
        if others.any(|(_, other)| in_the_way(other)) {
            return Ok(false);
        }
        self.file_mut(state).lock = Some(exclusive);
        Ok(true)
    }

    /// Waits for the lock.
    pub(crate) fn lock(&self, exclusive: bool) -> io::Result<()> {
        let mut state = self.enter()?;
        while !self.lock_in(&mut state, exclusive)? {
            state.waiting.push(task::current());
            drop(state);
            task::park();
            if park::cancel_point().is_err() {
                // A goroutine that unwinds does not wait.
                return fail(EAGAIN);
            }
            state = self.again()?;
        }
        Ok(())
    }

    pub(crate) fn unlock(&self) -> io::Result<()> {
        let mut state = self.enter()?;
        if self.file(&state).flags & O_PATH != 0 {
            return fail(EBADF);
        }
        self.unlock_in(&mut state);
        Ok(())
    }

    fn unlock_in(&self, state: &mut State) {
        if self.file_mut(state).lock.take().is_some() {
            state.wake();
        }
    }
}

/// What a sync has to do.
#[derive(Debug)]
struct Work {
    plan: Option<Plan>,
    names: std::collections::BTreeSet<u64>,
    attributes: Attributes,
    attributes_are_new: bool,
}

impl Work {
    fn of(state: &State, ino: Ino) -> Work {
        let inode = state.tree.inode(ino);
        let (plan, names) = match &inode.body {
            Body::Regular(content) => (Some(content.plan()), Default::default()),
            Body::Directory(_) => (None, state.tree.changes_in(ino)),
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
fn note_access(attributes: &mut Attributes) {
    let now = now();
    let last = attributes.accessed;
    let is_old = now
        .duration_since(last)
        .is_ok_and(|age| age >= ACCESS_TIME_OLD);
    if is_old || last <= attributes.modified || last <= attributes.changed {
        attributes.accessed = now;
    }
}

//! Operations on an open file of a simulated disk.

use std::borrow::Cow;
use std::fmt;
use std::fs::TryLockError;
use std::io::{self, IoSlice, IoSliceMut, SeekFrom};

use super::sim_disk::{self, OpenFile, Opened, State, Woken, now};
use crate::fs::file_times::FileTimes;
use crate::loom::native::{Arc, MutexGuard};
use crate::sched::wait::current_context;
use crate::sync::SemaphorePermit;
use windlass_world::disk::chance::{self, below, chance};
use windlass_world::disk::content::{Content, MOST_BYTES, Plan, SECTOR};
use windlass_world::disk::errno::{
    EAGAIN, EBADF, EFBIG, EINVAL, EIO, EISDIR, ENOSPC, O_ACCMODE, O_APPEND, O_DIRECT, O_DSYNC,
    O_NOATIME, O_PATH, O_RDONLY, O_SYNC, O_WRONLY, error, fail,
};
use windlass_world::disk::inode::{Attributes, Body, Ino, Stat};

/// The kernel's limit of bytes for one read or write.
const MOST_AT_ONCE: usize = 0x7fff_f000;

/// Its limit of buffers, of which `std` passes no more.
const MOST_BUFS: usize = 1024;

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
    /// Transfers at the file's own position, which moves.
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

    fn place(&self, at: At) -> u64 {
        match at {
            At::Position => self.position,
            At::Offset(offset) => offset,
        }
    }
}

impl At {
    /// The kernel looks at an offset before it looks at the file.
    fn check(self) -> io::Result<()> {
        match self {
            At::Offset(offset) if i64::try_from(offset).is_err() => fail(EINVAL),
            _ => Ok(()),
        }
    }
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
        sim_disk::bring_back(descriptor).map(Handle)
    }

    /// The descriptor leaves its `File`.
    pub(crate) fn take_out(self, descriptor: &std::fs::File) {
        sim_disk::take_out(self.0, descriptor);
    }

    /// Whether it was opened with `O_DIRECT`.
    pub(crate) fn is_direct(&self) -> bool {
        self.file(&self.0.disk.state()).is_direct()
    }

    /// A switch point, and then the disk.
    fn enter(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.0.disk.enter()?;
        self.check(&state)?;
        Ok(state)
    }

    /// The disk again, after a wait.
    fn again(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.0.disk.state();
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
        self.read_from(&mut [IoSliceMut::new(buf)], At::Position)
    }

    pub(crate) fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_from(&mut [IoSliceMut::new(buf)], At::Offset(offset))
    }

    pub(crate) fn read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read_from(bufs, At::Position)
    }

    fn read_from(&self, bufs: &mut [IoSliceMut<'_>], at: At) -> io::Result<usize> {
        at.check()?;
        let len = transfer(bufs.iter().map(|buf| buf.len()));
        let mut state = self.enter()?;
        let file = self.file(&state);
        let (ino, is_direct) = (file.ino, file.is_direct());
        if !file.may_read() {
            return fail(EBADF);
        }
        let offset = file.place(at);
        check_end(offset, len)?;
        if len == 0 {
            return Ok(0);
        }
        let content_here = content(&mut state, ino)?;
        if is_direct {
            check_aligned(offset, bufs.iter().map(|buf| &**buf))?;
        }
        if is_direct && offset < content_here.size() || content_here.is_cold(offset, len) {
            drop(state);
            self.0.disk.wait_for_transfer()?;
            state = self.again()?;
        }
        let settings = &state.settings();
        let (errors, short) = (settings.read_errors, settings.short_reads);
        if chance(errors) {
            return fail(EIO);
        }
        // Another goroutine may have moved the position meanwhile.
        let offset = self.file(&state).place(at);
        let content = content(&mut state, ino)?;
        let there = content.size().saturating_sub(offset).min(len as u64) as usize;
        let mut left = shortened(there, short, is_direct);
        let mut n = 0;
        for buf in bufs {
            let part = left.min(buf.len());
            content.read(offset + n as u64, &mut buf[..part], !is_direct);
            n += part;
            left -= part;
        }
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

    pub(crate) fn write(&self, buf: &[u8]) -> io::Result<usize> {
        self.write_to(&[IoSlice::new(buf)], At::Position)
    }

    pub(crate) fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.write_to(&[IoSlice::new(buf)], At::Offset(offset))
    }

    pub(crate) fn write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_to(bufs, At::Position)
    }

    fn write_to(&self, bufs: &[IoSlice<'_>], at: At) -> io::Result<usize> {
        at.check()?;
        let len = transfer(bufs.iter().map(|buf| buf.len()));
        let mut state = self.enter()?;
        let file = self.file(&state);
        let (ino, flags, is_direct) = (file.ino, file.flags, file.is_direct());
        if !file.may_write() {
            return fail(EBADF);
        }
        let place = file.place(at);
        check_end(place, len)?;
        if is_direct {
            let size = state.tree.inode(ino).size();
            let offset = if flags & O_APPEND != 0 { size } else { place };
            check_aligned(offset, bufs.iter().map(|buf| &**buf))?;
        }
        if len == 0 {
            return Ok(0);
        }
        if is_direct {
            drop(state);
            self.0.disk.wait_for_transfer()?;
            state = self.again()?;
        }
        state.tree.write_fault()?;
        let place = self.file(&state).place(at);
        let n_free = state.tree.free() / windlass_world::disk::content::PAGE as u64;
        let short = state.settings().short_writes;
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
        state.tree.inode_mut(ino).touch(now());
        if at == At::Position {
            self.file_mut(&mut state).position = offset + room as u64;
        }
        drop(state);
        if flags & (O_SYNC | O_DSYNC) != 0
            && let Err(e) = self.sync_now(flags & O_SYNC != O_SYNC)
        {
            // The bytes are there, but the call has failed.
            let mut state = self.0.disk.state();
            let file = self.file_mut(&mut state);
            if at == At::Position && file.position == offset + room as u64 {
                file.position = place;
            }
            return Err(e);
        }
        Ok(room)
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
        let to = from.checked_add_signed(by).filter(|&to| to <= MOST_BYTES);
        let to = to.ok_or_else(|| error(EINVAL))?;
        self.file_mut(&mut state).position = to;
        Ok(to)
    }

    /// How many bytes there are after the position, for a buffer of the right length.
    pub(crate) fn bytes_left(&self) -> usize {
        let state = self.0.disk.state();
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
        // As `std` says it.
        i64::try_from(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
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
        if i64::try_from(offset).is_err() || i64::try_from(len).is_err() {
            return fail(EFBIG);
        }
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
        let n_free = state.tree.free() / windlass_world::disk::content::PAGE as u64;
        let seq = state.tree.next_seq();
        let content = content(&mut state, ino)?;
        if !content.allocate(seq, offset, len, n_free) {
            return fail(ENOSPC);
        }
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
            if let Some(time) = new.accessed {
                attributes.accessed = time.into();
            }
            if let Some(time) = new.modified {
                attributes.modified = time.into();
            }
            Ok(())
        })
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
        current_context::check()?;
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
        let between = state.settings().sync_time.clone();
        drop(state);
        self.0
            .disk
            .wait(chance::time(*between.start(), *between.end()));
        let mut state = self.again()?;
        let fails = chance(state.settings().sync_errors);
        let inode = state.tree.inode_mut(ino);
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
        if fails {
            let file = self.file_mut(&mut state);
            let ino = file.ino;
            let n_errors = state.tree.inode(ino).n_errors;
            self.file_mut(&mut state).n_errors_seen = n_errors;
            return fail(EIO);
        }
        // Another sync may have begun later and ended before.
        if !data_only && inode.attributes_on_disk.version < work.attributes.version {
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
        let (is_locked, woken) = self.lock_in(&mut state, exclusive);
        drop(state);
        woken.into_iter().for_each(Woken::wake);
        match is_locked {
            Ok(true) => Ok(()),
            Ok(false) => Err(TryLockError::WouldBlock),
            Err(e) => Err(TryLockError::Error(e)),
        }
    }

    /// Whether it has the lock now, and those that may have another one.
    fn lock_in(&self, state: &mut State, exclusive: bool) -> (io::Result<bool>, Option<Woken>) {
        let file = self.file(state);
        let ino = file.ino;
        if file.flags & O_PATH != 0 {
            return (fail(EBADF), None);
        }
        if file.lock == Some(exclusive) {
            return (Ok(true), None);
        }
        // As in Linux, a lock of the other kind is given up first.
        let woken = self.unlock_in(state);
        let mut others = state.open.iter().filter(|&(&id, _)| id != self.0.id);
        let in_the_way = |other: &OpenFile| match other.lock {
            Some(is_exclusive) => other.ino == ino && (is_exclusive || exclusive),
            None => false,
        };
        let is_free = !others.any(|(_, other)| in_the_way(other));
        if is_free {
            self.file_mut(state).lock = Some(exclusive);
        }
        (Ok(is_free), woken)
    }

    /// Waits for the lock.
    pub(crate) fn lock(&self, exclusive: bool) -> io::Result<()> {
        let mut state = self.enter()?;
        loop {
            let (is_locked, woken) = self.lock_in(&mut state, exclusive);
            let waiter = matches!(is_locked, Ok(false)).then(|| state.add_waiter());
            drop(state);
            woken.into_iter().for_each(Woken::wake);
            let Some(waiter) = waiter else {
                return is_locked.map(drop);
            };
            if std::thread::panicking() {
                // A goroutine that unwinds does not wait.
                return fail(EAGAIN);
            }
            // No context ends this wait, and nobody closes the semaphore.
            let _ = current_context::shield(|| waiter.acquire(1).map(SemaphorePermit::forget));
            state = self.again()?;
        }
    }

    pub(crate) fn unlock(&self) -> io::Result<()> {
        let mut state = self.enter()?;
        if self.file(&state).flags & O_PATH != 0 {
            return fail(EBADF);
        }
        let woken = self.unlock_in(&mut state);
        drop(state);
        woken.into_iter().for_each(Woken::wake);
        Ok(())
    }

    /// Gives up the lock, if it has one: those that wait may have it.
    fn unlock_in(&self, state: &mut State) -> Option<Woken> {
        let lock = self.file_mut(state).lock.take();
        lock.map(|_| state.end_waits())
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

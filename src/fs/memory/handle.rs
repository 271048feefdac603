//! Operations on an open file of a simulated disk: each is a switch point, and then steps of the crate windlass-world
//! (`disk::files`) with waits between them.

use std::fmt;
use std::fs::TryLockError;
use std::io::{self, IoSlice, IoSliceMut, SeekFrom};

use windlass_world::disk::errno::{EAGAIN, EFBIG, fail};
use windlass_world::disk::files::{At, Files, Transfer};
use windlass_world::disk::inode::{Attributes, Stat};

use super::sim_disk::{self, Opened, State, Woken, now};
use crate::fs::file_times::FileTimes;
use crate::loom::native::{Arc, MutexGuard};
use crate::sched::wait::current_context;
use crate::sync::SemaphorePermit;

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
        self.0.disk.state().files.is_direct(self.0.id)
    }

    /// A switch point, and then the disk.
    fn enter(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.0.disk.enter()?;
        state.files.check(self.0.id)?;
        Ok(state)
    }

    /// The disk again, after a wait.
    fn again(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.0.disk.state();
        state.files.check(self.0.id)?;
        Ok(state)
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
        let begin = |files: &mut Files| files.begin_read(self.0.id, bufs, at);
        match self.begin(begin)? {
            Some(mut state) => state.files.read(self.0.id, bufs, at, now()),
            None => Ok(0),
        }
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
        let begin = |files: &mut Files| files.begin_write(self.0.id, bufs, at);
        let Some(mut state) = self.begin(begin)? else {
            return Ok(0);
        };
        let written = state.files.write(self.0.id, bufs, at, now())?;
        drop(state);
        if let Some(data_only) = written.syncs
            && let Err(e) = self.sync_now(data_only)
        {
            self.0.disk.state().files.has_failed(self.0.id, &written);
            return Err(e);
        }
        Ok(written.n)
    }

    /// The disk for the bytes of a read or write, after the wait for a transfer. `None` if there are no bytes.
    fn begin(
        &self,
        first_step: impl FnOnce(&mut Files) -> io::Result<Transfer>,
    ) -> io::Result<Option<MutexGuard<'_, State>>> {
        let mut state = self.enter()?;
        match first_step(&mut state.files)? {
            Transfer::Nothing => Ok(None),
            Transfer::InCache => Ok(Some(state)),
            Transfer::OnDisk => {
                drop(state);
                self.0.disk.wait_for_transfer()?;
                self.again().map(Some)
            }
        }
    }

    pub(crate) fn seek(&self, to: SeekFrom) -> io::Result<u64> {
        self.enter()?.files.seek(self.0.id, to)
    }

    /// How many bytes there are after the position, for a buffer of the right length.
    pub(crate) fn bytes_left(&self) -> usize {
        self.0.disk.state().files.bytes_left(self.0.id)
    }

    pub(crate) fn set_len(&self, bytes: u64) -> io::Result<()> {
        // As `std` says it.
        i64::try_from(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        self.enter()?.files.set_len(self.0.id, bytes, now())
    }

    pub(crate) fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if i64::try_from(offset).is_err() || i64::try_from(len).is_err() {
            return fail(EFBIG);
        }
        let mut state = self.enter()?;
        state.files.allocate(self.0.id, (offset, len), now())
    }

    pub(crate) fn metadata(&self) -> io::Result<Stat> {
        Ok(self.enter()?.files.metadata(self.0.id))
    }

    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.change(|attributes| attributes.mode = mode & 0o7777)
    }

    pub(crate) fn set_times(&self, new: FileTimes) -> io::Result<()> {
        self.change(|attributes| {
            if let Some(time) = new.accessed {
                attributes.accessed = time.into();
            }
            if let Some(time) = new.modified {
                attributes.modified = time.into();
            }
        })
    }

    fn change(&self, f: impl FnOnce(&mut Attributes)) -> io::Result<()> {
        self.enter()?.files.change(self.0.id, now(), f)
    }

    pub(crate) fn sync(&self, data_only: bool) -> io::Result<()> {
        self.enter()?.files.check_not_path(self.0.id)?;
        current_context::check()?;
        self.sync_now(data_only)
    }

    /// Writes all there is when the call begins.
    fn sync_now(&self, data_only: bool) -> io::Result<()> {
        let mut state = self.again()?;
        if let Some(work) = state.files.begin_sync(self.0.id) {
            let time = state.files.sync_time();
            drop(state);
            self.0.disk.wait(time);
            state = self.again()?;
            state.files.end_sync(self.0.id, work, data_only)?;
        }
        state.files.report(self.0.id)
    }

    /// Takes the lock, if no other open file has one in its way.
    pub(crate) fn try_lock(&self, exclusive: bool) -> Result<(), TryLockError> {
        let mut state = self.enter().map_err(TryLockError::Error)?;
        let (is_locked, had_lock) = state.files.lock(self.0.id, exclusive);
        let woken = had_lock.then(|| state.end_waits());
        drop(state);
        woken.into_iter().for_each(Woken::wake);
        match is_locked {
            Ok(true) => Ok(()),
            Ok(false) => Err(TryLockError::WouldBlock),
            Err(e) => Err(TryLockError::Error(e)),
        }
    }

    /// Waits for the lock.
    pub(crate) fn lock(&self, exclusive: bool) -> io::Result<()> {
        let mut state = self.enter()?;
        loop {
            let (is_locked, had_lock) = state.files.lock(self.0.id, exclusive);
            let woken = had_lock.then(|| state.end_waits());
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
        state.files.check_not_path(self.0.id)?;
        let had_lock = state.files.unlock(self.0.id);
        let woken = had_lock.then(|| state.end_waits());
        drop(state);
        woken.into_iter().for_each(Woken::wake);
        Ok(())
    }
}

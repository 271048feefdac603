//! The raw lock of a reader-writer lock. Waiters are served first in, first out.
//!
//! While a waiter is queued, no caller takes the lock before it: a reader that arrives after a
//! waiting writer is queued behind it, so neither side starves the other. The holder that frees the
//! lock hands it over: to the first waiter, if it is a writer, or to all readers before the first
//! writer.
//!
//! ```text
//!  bit   31 .. 2   1        0
//!       readers    QUEUED   WRITER
//! ```
//!
//! QUEUED is set and cleared under the list's lock. While it is set, readers and a writer are added
//! to the state only under that lock. The last holder that leaves sees QUEUED and takes that lock.
//! A waiter sets QUEUED in the same atomic step in which it finds the lock held.

use super::waitlist::{Queue, QueueEnd, WaitError, WaitList};
use super::waitq::{DequeuedList, WaitCtx, WaitOptions};
use crate::g::status::Reason;
use crate::loom::{AtomicU32, Ordering, const_fn};
use crate::sched::wait::points;

const WRITER: u32 = 1;
const QUEUED: u32 = 2;
const READER: u32 = 4;
const MOST: u32 = u32::MAX - READER + 1;

/// How the lock is taken. A waiter stores its mode in the slot of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Mode {
    Read,
    Write,
}

impl Mode {
    /// The state after this mode has taken the lock in the state `now`; `None` if it must wait.
    fn on_top_of(self, now: u32) -> Option<u32> {
        match self {
            Mode::Read if now & WRITER == 0 && now < MOST => Some(now + READER),
            Mode::Write if now & !QUEUED == 0 => Some(now | WRITER),
            _ => None,
        }
    }
}

/// The raw lock. See the module documentation.
///
/// Ordering: locking acquires, unlocking releases; QUEUED publishes nothing.
#[derive(Debug)]
pub(crate) struct RawRwLock {
    state: AtomicU32,
    list: WaitList,
}

impl RawRwLock {
    const_fn! {
        pub(crate) const fn new() -> RawRwLock {
            RawRwLock {
                state: AtomicU32::new(0),
                list: WaitList::new(),
            }
        }
    }

    /// Takes the lock.
    ///
    /// # Errors
    ///
    /// If the wait was cut short, and the caller has to unwind. Never while the caller is
    /// unwinding.
    #[inline]
    pub(crate) fn lock(&self, mode: Mode) -> Result<(), WaitError> {
        points::switch_point();
        if self.try_lock(mode) {
            Ok(())
        } else {
            self.lock_contended(mode, WaitOptions::new(Reason::RwLock))
        }
    }

    /// As [`RawRwLock::lock`], but the wait also ends when the ambient context is done.
    ///
    /// # Errors
    ///
    /// The reason why the lock was not taken.
    pub(crate) fn lock_in_context(&self, mode: Mode) -> Result<(), WaitError> {
        points::switch_point();
        self.lock_contended(mode, WaitOptions::new(Reason::RwLock).by_context(true))
    }

    /// Takes the lock if its mode permits that and no waiter is queued.
    #[inline]
    pub(crate) fn try_lock(&self, mode: Mode) -> bool {
        let mut now = self.state.load(Ordering::Relaxed);
        while now & QUEUED == 0
            && let Some(new) = mode.on_top_of(now)
        {
            match self
                .state
                .compare_exchange_weak(now, new, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    #[cold]
    fn lock_contended(&self, mode: Mode, options: WaitOptions) -> Result<(), WaitError> {
        let now = self.state.load(Ordering::Relaxed);
        assert!(now < MOST, "too many active read locks on RwLock");
        let ctx = WaitCtx::enter();
        let queue = self.list.lock(&ctx);
        if self.take_or_queue(mode) {
            return Ok(());
        }
        let leave = |queue: &Queue<'_>| self.hand_over(queue);
        queue.wait(ctx, QueueEnd::Last, mode as usize, options, leave)?;
        Ok(())
    }

    /// Takes the lock, or sets QUEUED. The caller holds the list's lock.
    fn take_or_queue(&self, mode: Mode) -> bool {
        let mut now = self.state.load(Ordering::Relaxed);
        loop {
            let taken = (now & QUEUED == 0).then(|| mode.on_top_of(now)).flatten();
            let new = taken.unwrap_or(now | QUEUED);
            match self
                .state
                .compare_exchange_weak(now, new, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return taken.is_some(),
                Err(other) => now = other,
            }
        }
    }

    /// Unlocks. The caller holds the lock in this mode. A goroutine stays on its thread.
    #[inline]
    pub(crate) fn unlock(&self, mode: Mode) {
        let own = match mode {
            Mode::Read => READER,
            Mode::Write => WRITER,
        };
        let before = self.state.fetch_sub(own, Ordering::Release);
        if before - own == QUEUED {
            self.serve();
        }
    }

    /// Turns the write lock into a read lock. Readers at the head of the queue get the lock, too.
    pub(crate) fn downgrade(&self) {
        let before = self.state.fetch_add(READER - WRITER, Ordering::Release);
        if before & QUEUED != 0 {
            self.serve();
        }
    }

    #[cold]
    fn serve(&self) {
        let ctx = WaitCtx::enter_in_place();
        let queue = self.list.lock(&ctx);
        let next = self.hand_over(&queue);
        drop(queue);
        next.ready(&ctx);
    }

    /// Takes the waiters at the head of the queue that can hold the lock together, and gives it to
    /// them.
    fn hand_over(&self, queue: &Queue<'_>) -> DequeuedList {
        let mut next = DequeuedList::new();
        for mode in [Mode::Read, Mode::Write] {
            while let Some(taken) = queue.take_front_if(|asks| {
                let now = self.state.load(Ordering::Relaxed);
                asks == mode as usize && mode.on_top_of(now).is_some()
            }) {
                // Meanwhile others can only unlock, or wait for the list's lock.
                let own = match mode {
                    Mode::Read => READER,
                    Mode::Write => WRITER,
                };
                // ORDERING: acquires the writes of the last holders; the wake passes them to the
                // waiter.
                self.state.fetch_add(own, Ordering::Acquire);
                next.push(taken);
            }
        }
        if queue.is_empty() {
            self.state.fetch_and(!QUEUED, Ordering::Relaxed);
        }
        next
    }
}

#[cfg(all(test, any(loom, miri)))]
#[path = "raw_rwlock_loom_tests.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Guards can be leaked: the count of readers must not overflow.
    #[test]
    fn too_many_readers_are_refused() {
        let lock = RawRwLock::new();
        lock.state.store(MOST - READER, Ordering::Relaxed);
        assert!(lock.try_lock(Mode::Read));
        assert!(!lock.try_lock(Mode::Read));
        let lock_again = std::panic::AssertUnwindSafe(|| lock.lock(Mode::Read));
        let refused = std::panic::catch_unwind(lock_again);
        assert!(refused.is_err());
        assert_eq!(lock.state.load(Ordering::Relaxed), MOST);
    }
}

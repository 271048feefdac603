//! The runtime's own locks. They block the M, so they guard short sections that do not park,
//! do not allocate much and do not call user code.
//!
//! The lock itself is `std`'s: a futex with a short spin. [`Lock`] adds an order: every lock has a
//! [`Rank`], and a thread takes locks only in rising rank. Debug builds check that.

use std::ops::{Deref, DerefMut};

use crate::loom::native::PoisonError;
use crate::loom::{AtomicU32, Mutex, MutexGuard, Ordering, const_fn};

/// The lock order: a thread that holds a lock takes only locks of later ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// The list of all Ms and the spare ones (`sched::types::state`).
    Ms,
    /// A P's timers.
    Timers,
    /// A node's queue.
    NodeQueue,
    /// The free stacks of a node.
    Stacks,
    /// The free G slots of a node.
    Slab,
    /// The goroutines that wait on one descriptor (`poll::limit`).
    Waiters,
    /// The mode of a socket's open file description (`poll::fd`).
    Mode,
    /// The waiters of an epoll poller (`netpoll::waiters`).
    Poller,
    /// The multishot poll of a stream (`netpoll::multishot_poll`).
    MultishotPoll,
    /// The free buffers of a P's pool (`netpoll::pool`).
    Buffers,
}

/// A value behind a lock of the runtime.
#[derive(Debug)]
pub(crate) struct Lock<T> {
    rank: Rank,
    inner: Mutex<T>,
}

impl<T> Lock<T> {
    const_fn! {
        pub(crate) const fn new(rank: Rank, value: T) -> Lock<T> {
            Lock {
                rank,
                inner: Mutex::new(value),
            }
        }
    }

    /// Takes the lock. Poisoning is ignored: a panic while a lock is held is a bug of the runtime,
    /// which aborts.
    #[inline]
    #[cfg_attr(explore, track_caller)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let held = held::push(self.rank);
        Guard {
            inner: self.inner.lock().unwrap_or_else(PoisonError::into_inner),
            _held: held,
        }
    }
}

/// The guard of a [`Lock`].
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    inner: MutexGuard<'a, T>,
    _held: held::Held,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A lock without a value, for wait queues. A goroutine that parks keeps it locked across the
/// switch; the M unlocks it on its own stack when the wait is visible.
///
/// It has no rank. A thread may hold several (a select takes them in the order of their addresses).
/// Ranked locks may be taken while one is held, but not the other way round.
///
/// 0: free. 1: locked. 2: locked, and threads may sleep on it. Ordering: locking acquires,
/// unlocking releases.
#[derive(Debug)]
pub(crate) struct RawLock(AtomicU32);

const FREE: u32 = 0;
const LOCKED: u32 = 1;
const CONTENDED: u32 = 2;

/// How often a thread polls a locked lock before it sleeps on it. All polls together take some
/// 20 µs; the critical sections are far shorter than a system call.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 7 };
/// PAUSE instructions (some 10 to 40 ns each) after the first poll. Each later wait is four times
/// as long, up to the maximum. A thread that polls often takes the lock's cache line from the
/// holder, and threads that alternate at the lock each begin with a cache miss. Backing off lets
/// the thread that has the line use it for a while.
const FIRST_PAUSES: u32 = 4;
const MOST_PAUSES: u32 = 256;

impl RawLock {
    const_fn! {
        pub(crate) const fn new() -> RawLock {
            RawLock(AtomicU32::new(FREE))
        }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        self.0
            .compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[inline]
    pub(crate) fn lock(&self) {
        if !self.try_lock() {
            self.lock_contended();
        }
    }

    #[cold]
    fn lock_contended(&self) {
        let mut pauses = FIRST_PAUSES;
        for _ in 0..LOOKS {
            if self.0.load(Ordering::Relaxed) == FREE && self.try_lock() {
                return;
            }
            for _ in 0..pauses {
                crate::loom::spin_loop();
            }
            pauses = (pauses * 4).min(MOST_PAUSES);
        }
        while self.0.swap(CONTENDED, Ordering::Acquire) != FREE {
            crate::loom::futex_wait(&self.0, CONTENDED, crate::sys::clock::NEVER);
        }
    }

    /// Releases the lock, which the caller holds. Its memory may be freed as soon as it is
    /// unlocked, so nothing of it is read after that.
    #[inline]
    pub(crate) fn unlock(&self) {
        let word = &raw const self.0;
        if self.0.swap(FREE, Ordering::Release) == CONTENDED {
            crate::loom::futex_wake_one(word);
        }
    }
}

#[cfg(debug_assertions)]
mod held {
    //! The ranks that this thread holds. Ranked locks are never held across a stack switch, so a
    //! thread-local is correct here.
    #[cfg(not(explore))]
    use std::cell::Cell;

    use super::Rank;

    #[cfg(not(explore))]
    thread_local!(static HELD: Cell<u32> = const { Cell::new(0) });

    /// The explorer keeps the words of threads itself.
    #[cfg(explore)]
    const HELD: usize = 1;

    #[cfg(not(explore))]
    fn change(f: impl FnOnce(u32) -> u32) {
        HELD.with(|h| h.set(f(h.get())));
    }

    #[cfg(explore)]
    fn change(f: impl FnOnce(u32) -> u32) {
        let held = f(windlass_explorer::local(HELD) as u32);
        windlass_explorer::set_local(HELD, held as usize);
    }

    #[derive(Debug)]
    pub(super) struct Held(u32);

    #[inline(never)]
    pub(super) fn push(rank: Rank) -> Held {
        let bit = 1 << rank as u32;
        change(|held| {
            assert!(
                held < bit,
                "lock order: {rank:?} taken while holding {held:#b}"
            );
            held | bit
        });
        Held(bit)
    }

    impl Drop for Held {
        #[inline(never)]
        fn drop(&mut self) {
            change(|held| held & !self.0);
        }
    }
}

#[cfg(not(debug_assertions))]
mod held {
    use super::Rank;

    #[derive(Debug)]
    pub(super) struct Held;

    #[inline(always)]
    pub(super) fn push(_: Rank) -> Held {
        Held
    }
}

//! Locks of the runtime itself: they block the M, so they guard short sections
//! in which nothing parks, allocates at length or calls user code.
//!
//! The lock is `std`'s (a futex with a short spin). What is ours is the order:
//! every lock has a [`Rank`], a thread takes locks only in rising rank, and
//! debug builds check it.

use std::ops::{Deref, DerefMut};

use crate::loom::native::PoisonError;
use crate::loom::{AtomicU32, Mutex, MutexGuard, Ordering, const_fn};

/// The order in which locks may be taken: a thread that holds one takes only
/// later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// The list of all Ms and the spare ones (`sched::state`).
    Ms,
    /// A P's timers.
    Timers,
    /// A node's queue.
    NodeQueue,
    /// The free stacks of a node.
    Stacks,
    /// The free G slots of a node.
    Slab,
    /// Several goroutines that wait on one descriptor (`io::limit`).
    Waiters,
    /// How a socket's description is set up (`io::fd`).
    Mode,
    /// Who waits in an epoll poller (`netpoll::waiters`).
    Poller,
    /// What has come for a stream (`netpoll::multi`).
    Multi,
    /// The poll of a stream (`netpoll::watch`).
    Watch,
    /// Which buffers of a P's pool are free (`netpoll::pool`).
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

    /// Takes the lock. A panic in a holder is a bug of the runtime, which
    /// aborts elsewhere; poisoning adds nothing and is ignored.
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

/// The right to the value of a [`Lock`].
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

/// A lock without a value, for wait queues: whoever parks keeps it locked over the
/// switch, and the M unlocks it on its own stack once the wait is visible.
///
/// Outside the ranks: a thread may hold several (a select takes them by address),
/// and takes ranked locks only while it holds them, not the other way round.
///
/// 0 free, 1 locked, 2 locked and perhaps slept on. Ordering: taking acquires,
/// giving releases.
#[derive(Debug)]
pub(crate) struct RawLock(AtomicU32);

const FREE: u32 = 0;
const LOCKED: u32 = 1;
const CONTENDED: u32 = 2;

/// Looks at a locked lock before sleeping on it, some 20 µs together: the sections are far
/// shorter than a system call.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 7 };
/// Pauses (some 10 to 40 ns each) after the first look. Each later look comes after four
/// times as many, up to the most: who looks often takes the lock's cache line from its
/// holder, and where threads take turns at the lock each begins with a line that is
/// elsewhere. So whoever has the line goes on for a while.
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

    /// Gives the lock back, which the caller holds. The lock may be gone as soon as it is
    /// free: nothing of it is read after that.
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
    //! Which ranks this thread holds. A runtime lock is never held across a
    //! stack switch, so a thread-local is right here.
    use std::cell::Cell;

    use super::Rank;

    thread_local!(static HELD: Cell<u32> = const { Cell::new(0) });

    #[derive(Debug)]
    pub(super) struct Held(u32);

    #[inline(never)]
    pub(super) fn push(rank: Rank) -> Held {
        let bit = 1 << rank as u32;
        HELD.with(|h| {
            assert!(
                h.get() < bit,
                "lock order: {rank:?} taken while holding {:#b}",
                h.get()
            );
            h.set(h.get() | bit);
        });
        Held(bit)
    }

    impl Drop for Held {
        #[inline(never)]
        fn drop(&mut self) {
            HELD.with(|h| h.set(h.get() & !self.0));
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

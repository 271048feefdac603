//! Locks that a thread takes in a fixed order.
//!
//! The lock itself is `std`'s: a futex with a short spin. [`Lock`] adds an order: every lock has a
//! [`Rank`], and a thread takes locks only in rising rank. Debug builds check that.

use std::ops::{Deref, DerefMut};

use crate::loom::native::PoisonError;
use crate::loom::{Mutex, MutexGuard, const_fn};

/// The place of a lock in the order in which a thread takes locks, below 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(pub u8);

/// A value behind a ranked lock.
#[derive(Debug)]
pub struct Lock<T> {
    rank: Rank,
    inner: Mutex<T>,
}

impl<T> Lock<T> {
    const_fn! {
        /// A lock that is free.
        pub const fn new(rank: Rank, value: T) -> Lock<T> {
            Lock {
                rank,
                inner: Mutex::new(value),
            }
        }
    }

    /// Takes the lock. Poisoning is ignored.
    #[inline]
    #[cfg_attr(explore, track_caller)]
    pub fn lock(&self) -> Guard<'_, T> {
        let held = held::push(self.rank);
        Guard {
            inner: self.inner.lock().unwrap_or_else(PoisonError::into_inner),
            _held: held,
        }
    }
}

/// The guard of a [`Lock`].
#[derive(Debug)]
pub struct Guard<'a, T> {
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

#[cfg(all(debug_assertions, not(loom)))]
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
        let bit = 1 << rank.0;
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

#[cfg(any(not(debug_assertions), loom))]
mod held {
    use super::Rank;

    #[derive(Debug)]
    pub(super) struct Held;

    #[inline(always)]
    pub(super) fn push(_: Rank) -> Held {
        Held
    }
}

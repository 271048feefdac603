//! Poisoning, as `std` has it: a lock whose guard was dropped by a panic says so.
//!
//! One rule is ours: a goroutine that unwinds because its runtime ends has not panicked.
//! What it guarded is left as at the wait that was cut short, much as a future leaves it
//! that is dropped at an `.await`, and the lock is not poisoned. Otherwise the end of a
//! run would make destructors of other goroutines panic, which lock and `unwrap`.

use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use crate::loom::native::atomic::{AtomicBool, Ordering};
use crate::sched::park;

/// Whether a lock is poisoned.
///
/// Ordering: relaxed; it is read and written by holders of the lock, which orders them.
#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicBool);

/// What a guard remembers: whether the panic is older than itself.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    panicking: bool,
}

impl Flag {
    pub(crate) const fn new() -> Flag {
        Flag(AtomicBool::new(false))
    }

    /// For a guard that begins now.
    #[inline]
    pub(crate) fn guard() -> Guard {
        Guard {
            panicking: std::thread::panicking(),
        }
    }

    /// A guard ends.
    #[inline]
    pub(crate) fn done(&self, guard: &Guard) {
        if !guard.panicking && std::thread::panicking() {
            self.poison();
        }
    }

    #[cold]
    fn poison(&self) {
        if !park::unwinds_cancelled() {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// What a lock gives with the value: an error that holds it, if it is poisoned.
    #[inline]
    pub(crate) fn wrap<T>(&self, value: T) -> LockResult<T> {
        if self.get() {
            Err(PoisonError::new(value))
        } else {
            Ok(value)
        }
    }

    /// As [`Flag::wrap`], for an attempt that may have given nothing.
    #[inline]
    pub(crate) fn wrap_try<T>(&self, value: Option<T>) -> TryLockResult<T> {
        match value {
            Some(value) => Ok(self.wrap(value)?),
            None => Err(TryLockError::WouldBlock),
        }
    }
}

//! Lock poisoning, as in `std`: dropping a guard during a panic poisons its lock.
//!
//! One rule differs: a goroutine that unwinds because its runtime shuts down has not panicked. The
//! value it guarded is left as it was at the wait that was cut short, much as a future that is
//! dropped at an `.await` leaves its data, and the lock is not poisoned. Otherwise a shutdown would
//! make the destructors of other goroutines panic when they lock and `unwrap`.

use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use crate::loom::native::atomic::{AtomicBool, Ordering};
use crate::sched::wait::points;

/// Whether a lock is poisoned.
///
/// Ordering: relaxed; only holders of the lock read and write it, and the lock orders them.
#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicBool);

/// Part of a guard: whether its thread was already panicking when the guard was made.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    panicking: bool,
}

impl Flag {
    pub(crate) const fn new() -> Flag {
        Flag(AtomicBool::new(false))
    }

    /// Notes, for a new guard of the lock, whether its thread panics already.
    #[inline]
    pub(crate) fn guard() -> Guard {
        Guard {
            panicking: std::thread::panicking(),
        }
    }

    /// Called when a guard is dropped: poisons the lock if a panic began in between.
    #[inline]
    pub(crate) fn done(&self, guard: &Guard) {
        if !guard.panicking && std::thread::panicking() {
            self.poison();
        }
    }

    #[cold]
    fn poison(&self) {
        if !points::unwinds_cancelled() {
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

    /// Wraps `value` in an error if the lock is poisoned.
    #[inline]
    pub(crate) fn wrap<T>(&self, value: T) -> LockResult<T> {
        if self.get() {
            Err(PoisonError::new(value))
        } else {
            Ok(value)
        }
    }

    /// As [`Flag::wrap`]; `None` becomes `WouldBlock`.
    #[inline]
    pub(crate) fn wrap_try<T>(&self, value: Option<T>) -> TryLockResult<T> {
        match value {
            Some(value) => Ok(self.wrap(value)?),
            None => Err(TryLockError::WouldBlock),
        }
    }
}

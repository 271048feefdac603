//! A mutual exclusion lock.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{LockResult, TryLockError, TryLockResult};

use super::poison::{self, Flag};
use super::raw_mutex::RawMutex;
use super::waitlist::{self, GaveUp};
use crate::loom::const_fn;

/// A lock around a value, as `std::sync::Mutex`, for goroutines and threads alike.
///
/// Where nobody contends it is one atomic instruction to take and one to give back. Who
/// runs may overtake who waits, so that a hot lock is not idle for the time of a wake;
/// but a waiter that has waited for 1 ms gets the lock handed over, and so do those
/// behind it (see docs/decisions/waiting.md).
///
/// # Poisoning
///
/// As in `std`: a guard dropped by a panic poisons the mutex. A goroutine that unwinds
/// because its runtime ends has not panicked, and does not.
///
/// # Blocking
///
/// [`lock`](Mutex::lock) parks a goroutine and blocks a plain thread. A guard may be held
/// across a park.
///
/// # Examples
///
/// ```
/// use windlass::sync::{Arc, Mutex};
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let total = Arc::new(Mutex::new(0));
/// rt.run(|| {
///     let adders: Vec<_> = (1..=10)
///         .map(|i| {
///             let total = Arc::clone(&total);
///             windlass::spawn(move || *total.lock().unwrap() += i)
///         })
///         .collect();
///     adders.into_iter().for_each(|adder| adder.join().unwrap());
/// });
/// assert_eq!(*total.lock().unwrap(), 55);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Mutex<T: ?Sized> {
    raw: RawMutex,
    poison: Flag,
    data: UnsafeCell<T>,
}

// SAFETY: the lock gives the value to one at a time, on whatever thread.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T: ?Sized> UnwindSafe for Mutex<T> {}
impl<T: ?Sized> RefUnwindSafe for Mutex<T> {}

/// The right to the value of a [`Mutex`]; dropping it unlocks.
///
/// Unlike `std`'s it is [`Send`]: the lock does not know its owner, and a goroutine that
/// holds it changes threads anyway. Another goroutine or thread may drop it.
#[must_use = "if unused the Mutex will immediately unlock"]
pub struct MutexGuard<'a, T: ?Sized> {
    lock: &'a Mutex<T>,
    poison: poison::Guard,
}

// SAFETY: a guard is the value on loan, and unlocking is the same on every thread.
unsafe impl<T: ?Sized + Send> Send for MutexGuard<'_, T> {}
// SAFETY: through a shared guard only a shared value can be reached.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<T> Mutex<T> {
    const_fn! {
        /// Makes an unlocked mutex.
        #[inline]
        pub const fn new(value: T) -> Mutex<T> {
            Mutex {
                raw: RawMutex::new(),
                poison: Flag::new(),
                data: UnsafeCell::new(value),
            }
        }
    }

    /// Gives the value back.
    ///
    /// # Errors
    ///
    /// With the value, if the mutex is poisoned.
    pub fn into_inner(self) -> LockResult<T> {
        let value = self.data.into_inner();
        self.poison.wrap(value)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock, and takes it.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. On a goroutine whose runtime ends a wait
    /// unwinds. In a destructor that runs while it unwinds, the call waits all the same, as
    /// it has no other answer to give.
    ///
    /// Whoever locks a mutex that it holds already waits for ever.
    ///
    /// # Errors
    ///
    /// With the guard, if the mutex is poisoned.
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        if self.raw.lock().is_err() {
            waitlist::unwind();
        }
        self.poison.wrap(self.guard())
    }

    /// As [`Mutex::lock`], but the wait ends when the ambient context does.
    ///
    /// # Errors
    ///
    /// Why it has not got the lock.
    pub(crate) fn lock_in_context(&self) -> Result<LockResult<MutexGuard<'_, T>>, GaveUp> {
        self.raw.lock_in_context()?;
        Ok(self.poison.wrap(self.guard()))
    }

    /// Takes the lock if it is free.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if it is held, or others have waited for it for so long that it is
    /// handed to them; `Poisoned` with the guard.
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let guard = self.raw.try_lock().then(|| self.guard());
        self.poison.wrap_try(guard)
    }

    /// The lock is held, and the guard is to give it back.
    #[inline]
    fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            lock: self,
            poison: Flag::guard(),
        }
    }

    /// Whether the mutex is poisoned.
    #[inline]
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poison.get()
    }

    /// Makes the mutex sound again after a panic.
    #[inline]
    pub fn clear_poison(&self) {
        self.poison.clear();
    }

    /// The value, which nobody else can reach.
    ///
    /// # Errors
    ///
    /// With the value, if the mutex is poisoned.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.poison.wrap(self.data.get_mut())
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Mutex<T> {
        Mutex::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Mutex");
        match self.try_lock() {
            Ok(guard) => out.field("data", &&*guard),
            Err(TryLockError::Poisoned(e)) => out.field("data", &&**e.get_ref()),
            Err(TryLockError::WouldBlock) => out.field("data", &"<locked>"),
        };
        out.field("poisoned", &self.is_poisoned())
            .finish_non_exhaustive()
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// For a condition variable, which unlocks and locks again: the guard is gone, and the
    /// lock still held.
    pub(super) fn into_lock(self) -> (&'a Mutex<T>, poison::Guard) {
        let poison = poison::Guard::clone(&self.poison);
        let lock = self.lock;
        std::mem::forget(self);
        (lock, poison)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// The lock itself, without poison and value.
    pub(super) fn raw(&self) -> &RawMutex {
        &self.raw
    }

    /// The guard of a lock that is held, again.
    pub(super) fn guard_again(&self, poison: poison::Guard) -> LockResult<MutexGuard<'_, T>> {
        self.poison.wrap(MutexGuard { lock: self, poison })
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the right to the value.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the only right to the value, and borrowed exclusively.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.poison.done(&self.poison);
        self.lock.raw.unlock();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

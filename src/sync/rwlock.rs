//! A reader-writer lock.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{LockResult, TryLockError, TryLockResult};

use super::poison::{self, Flag};
use super::raw_rwlock::{Mode, RawRwLock};
use super::waitlist::{self, GaveUp};
use crate::loom::const_fn;

/// A lock for many readers or one writer, as `std::sync::RwLock`, for goroutines and
/// threads alike.
///
/// First in, first out: a reader that comes while a writer waits waits behind it. So
/// neither readers nor writers starve, and whoever takes a second read lock while it
/// holds one may wait for ever, as in `std`.
///
/// # Poisoning
///
/// As in `std`: a write guard dropped by a panic poisons the lock, a read guard does not.
/// A goroutine that unwinds because its runtime ends has not panicked.
///
/// # Blocking
///
/// [`read`](RwLock::read) and [`write`](RwLock::write) park a goroutine and block a plain
/// thread. Guards may be held across a park.
///
/// # Examples
///
/// ```
/// use windlass::sync::RwLock;
///
/// static NAMES: RwLock<Vec<&str>> = RwLock::new(Vec::new());
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let writer = windlass::spawn(|| NAMES.write().unwrap().push("sheave"));
///     writer.join().unwrap();
///     assert_eq!(*NAMES.read().unwrap(), ["sheave"]);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct RwLock<T: ?Sized> {
    raw: RawRwLock,
    poison: Flag,
    data: UnsafeCell<T>,
}

// SAFETY: the value goes with the lock.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: the lock gives the value to one writer at a time, or to many readers.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

impl<T: ?Sized> UnwindSafe for RwLock<T> {}
impl<T: ?Sized> RefUnwindSafe for RwLock<T> {}

/// The right to read the value of a [`RwLock`]; dropping it unlocks.
///
/// It is [`Send`], as [`MutexGuard`](super::MutexGuard) is.
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
}

/// The right to the value of a [`RwLock`]; dropping it unlocks.
///
/// It is [`Send`], as [`MutexGuard`](super::MutexGuard) is.
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    poison: poison::Guard,
}

// SAFETY: a read guard is a shared reference, and unlocking is the same on every thread.
unsafe impl<T: ?Sized + Sync> Send for RwLockReadGuard<'_, T> {}
// SAFETY: through a shared guard only a shared value can be reached.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}
// SAFETY:
// - a write guard is the value on loan, and unlocking is the same on every thread;
// - it can be made a read guard, which is sent only if the value is Sync.
unsafe impl<T: ?Sized + Send + Sync> Send for RwLockWriteGuard<'_, T> {}
// SAFETY: through a shared guard only a shared value can be reached.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}

impl<T> RwLock<T> {
    const_fn! {
        /// Makes an unlocked lock.
        #[inline]
        pub const fn new(value: T) -> RwLock<T> {
            RwLock {
                raw: RawRwLock::new(),
                poison: Flag::new(),
                data: UnsafeCell::new(value),
            }
        }
    }

    /// Gives the value back.
    ///
    /// # Errors
    ///
    /// With the value, if the lock is poisoned.
    pub fn into_inner(self) -> LockResult<T> {
        let value = self.data.into_inner();
        self.poison.wrap(value)
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no writer is there or waits before, and takes the lock for reading.
    ///
    /// # Blocking
    ///
    /// As [`Mutex::lock`](super::Mutex::lock).
    ///
    /// # Errors
    ///
    /// With the guard, if the lock is poisoned.
    ///
    /// # Panics
    ///
    /// With more than a billion readers.
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        if self.raw.lock(Mode::Read).is_err() {
            waitlist::unwind();
        }
        self.poison.wrap(RwLockReadGuard { lock: self })
    }

    /// As [`RwLock::read`], but the wait ends when the ambient context does.
    ///
    /// # Errors
    ///
    /// Why it has not got the lock.
    pub(crate) fn read_in_context(&self) -> Result<LockResult<RwLockReadGuard<'_, T>>, GaveUp> {
        self.raw.lock_in_context(Mode::Read)?;
        Ok(self.poison.wrap(RwLockReadGuard { lock: self }))
    }

    /// As [`RwLock::write`], but the wait ends when the ambient context does.
    ///
    /// # Errors
    ///
    /// Why it has not got the lock.
    pub(crate) fn write_in_context(&self) -> Result<LockResult<RwLockWriteGuard<'_, T>>, GaveUp> {
        self.raw.lock_in_context(Mode::Write)?;
        Ok(self.poison.wrap(self.write_guard()))
    }

    /// Takes the lock for reading, if it can be had at once.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if a writer has the lock or waits for it; `Poisoned` with the guard.
    #[inline]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        let taken = self.raw.try_lock(Mode::Read);
        self.poison
            .wrap_try(taken.then(|| RwLockReadGuard { lock: self }))
    }

    /// Waits until nobody has the lock, and takes it for writing.
    ///
    /// # Blocking
    ///
    /// As [`Mutex::lock`](super::Mutex::lock).
    ///
    /// # Errors
    ///
    /// With the guard, if the lock is poisoned.
    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        if self.raw.lock(Mode::Write).is_err() {
            waitlist::unwind();
        }
        self.poison.wrap(self.write_guard())
    }

    /// Takes the lock for writing, if it can be had at once.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if somebody has the lock; `Poisoned` with the guard.
    #[inline]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        let taken = self.raw.try_lock(Mode::Write);
        self.poison.wrap_try(taken.then(|| self.write_guard()))
    }

    #[inline]
    fn write_guard(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard {
            lock: self,
            poison: Flag::guard(),
        }
    }

    /// Whether the lock is poisoned.
    #[inline]
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poison.get()
    }

    /// Makes the lock sound again after a panic.
    #[inline]
    pub fn clear_poison(&self) {
        self.poison.clear();
    }

    /// The value, which nobody else can reach.
    ///
    /// # Errors
    ///
    /// With the value, if the lock is poisoned.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.poison.wrap(self.data.get_mut())
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Goes on reading: no other writer comes between, and readers that wait come in.
    ///
    /// # Blocking
    ///
    /// Never.
    pub fn downgrade(guard: RwLockWriteGuard<'a, T>) -> RwLockReadGuard<'a, T> {
        let lock = guard.lock;
        lock.poison.done(&guard.poison);
        std::mem::forget(guard);
        lock.raw.downgrade();
        RwLockReadGuard { lock }
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> RwLock<T> {
        RwLock::new(T::default())
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> RwLock<T> {
        RwLock::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("RwLock");
        match self.try_read() {
            Ok(guard) => out.field("data", &&*guard),
            Err(TryLockError::Poisoned(e)) => out.field("data", &&**e.get_ref()),
            Err(TryLockError::WouldBlock) => out.field("data", &format_args!("<locked>")),
        };
        out.field("poisoned", &self.is_poisoned())
            .finish_non_exhaustive()
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the right to read the value.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the right to the value.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the only right to the value, and borrowed exclusively.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock(Mode::Read);
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.poison.done(&self.poison);
        self.lock.raw.unlock(Mode::Write);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

//! A reader-writer lock.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::{self, NonNull};
use std::sync::{Arc, LockResult, TryLockResult};

use super::guard::guard;
use super::poison::{self, Flag};
use super::raw_rwlock::{Mode, RawRwLock};
use super::waitlist::{self, WaitError};
use crate::loom::const_fn;
use crate::sched::wait::points;

/// A reader-writer lock around a value, as `std::sync::RwLock`, for goroutines and plain threads.
///
/// Waiters are served first in, first out: a reader that arrives while a writer waits is queued
/// behind that writer. So neither readers nor writers starve. A goroutine or thread that takes a
/// second read lock while it holds one may wait forever, as in `std`.
///
/// # Poisoning
///
/// As in `std`: a write guard dropped by a panic poisons the lock, a read guard does not. A
/// goroutine that unwinds because its runtime shuts down has not panicked and does not poison it.
///
/// # Blocking
///
/// [`read`](RwLock::read) and [`write`](RwLock::write) park a goroutine and block a plain thread.
/// Guards may be held while the goroutine parks.
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

// SAFETY: sending the lock sends the value.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: the lock gives access to one writer at a time (T is Send), or to many readers (T is
// Sync).
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

impl<T: ?Sized> UnwindSafe for RwLock<T> {}
impl<T: ?Sized> RefUnwindSafe for RwLock<T> {}

/// Shared access to the value of a [`RwLock`]. Dropping it releases the read lock.
///
/// It is [`Send`], as [`MutexGuard`](super::MutexGuard) is.
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockReadGuard<'a, T: ?Sized + 'a> {
    /// Points into the lock that `raw` belongs to. Covariant, as the guard gives shared access only.
    data: NonNull<T>,
    raw: &'a RawRwLock,
}

impl<T: ?Sized> UnwindSafe for RwLockReadGuard<'_, T> {}
impl<T: ?Sized> RefUnwindSafe for RwLockReadGuard<'_, T> {}

/// Exclusive access to the value of a [`RwLock`]. Dropping it unlocks the lock.
///
/// It is [`Send`], as [`MutexGuard`](super::MutexGuard) is.
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    poison: poison::Guard,
}

// SAFETY: a read guard is a shared reference, and any thread may unlock.
unsafe impl<T: ?Sized + Sync> Send for RwLockReadGuard<'_, T> {}
// SAFETY: a shared guard gives only shared access to the value.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}
// SAFETY:
// - a write guard is a mutable reference to the value, and any thread may unlock;
// - it can be downgraded to a read guard, which is sent only if the value is Sync.
unsafe impl<T: ?Sized + Send + Sync> Send for RwLockWriteGuard<'_, T> {}
// SAFETY: a shared guard gives only shared access to the value.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}

/// Shared access to the value of a [`RwLock`] in an [`Arc`]. Dropping it releases the read lock.
///
/// It borrows nothing: a goroutine that is spawned can take it along. It can be sent if the lock can
/// be shared. Made by [`RwLock::read_owned`].
///
/// # Examples
///
/// ```compile_fail,E0277
/// use std::cell::Cell;
/// use windlass::sync::{Arc, RwLock};
///
/// let held = Arc::new(RwLock::new(Cell::new(0))).read_owned().unwrap();
/// std::thread::spawn(move || held.set(1));
/// ```
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct OwnedRwLockReadGuard<T: ?Sized> {
    /// Dropped after the lock was released.
    lock: Arc<RwLock<T>>,
}

/// Exclusive access to the value of a [`RwLock`] in an [`Arc`]. Dropping it unlocks the lock.
///
/// It borrows nothing: a goroutine that is spawned can take it along. It can be sent if the lock can
/// be shared. Made by [`RwLock::write_owned`].
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct OwnedRwLockWriteGuard<T: ?Sized> {
    /// Dropped after the lock was released.
    lock: Arc<RwLock<T>>,
    poison: poison::Guard,
}

// Both are Send and Sync if the Arc is: if the value is Send and Sync.

impl<T: ?Sized> UnwindSafe for OwnedRwLockReadGuard<T> {}
impl<T: ?Sized> RefUnwindSafe for OwnedRwLockReadGuard<T> {}
impl<T: ?Sized> UnwindSafe for OwnedRwLockWriteGuard<T> {}
impl<T: ?Sized> RefUnwindSafe for OwnedRwLockWriteGuard<T> {}

impl<T> RwLock<T> {
    const_fn! {
        /// Creates an unlocked lock.
        #[inline]
        pub const fn new(value: T) -> RwLock<T> {
            RwLock {
                raw: RawRwLock::new(),
                poison: Flag::new(),
                data: UnsafeCell::new(value),
            }
        }
    }

    /// Consumes the lock and returns the value.
    ///
    /// # Errors
    ///
    /// If the lock is poisoned. The error holds the value.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::RwLock;
    ///
    /// let lock = RwLock::new(String::from("sheave"));
    /// assert_eq!(lock.into_inner().unwrap(), "sheave");
    /// ```
    pub fn into_inner(self) -> LockResult<T> {
        let value = self.data.into_inner();
        self.poison.wrap(value)
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Takes the lock for reading, waiting until no writer holds it and no earlier waiter is
    /// queued.
    ///
    /// # Blocking
    ///
    /// As [`Mutex::lock`](super::Mutex::lock).
    ///
    /// # Errors
    ///
    /// If the lock is poisoned. The error holds the guard.
    ///
    /// # Panics
    ///
    /// If more than a billion readers hold the lock.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::RwLock;
    ///
    /// let lock = RwLock::new(7);
    /// let (one, two) = (lock.try_read().unwrap(), lock.read().unwrap());
    /// assert_eq!(*one, *two);
    /// ```
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        if self.raw.lock(Mode::Read).is_err() {
            waitlist::unwind();
        }
        self.poison.wrap(self.read_guard())
    }

    /// As [`RwLock::read`], but the wait also ends when the ambient context is done.
    ///
    /// # Errors
    ///
    /// The reason why the lock was not taken.
    pub(crate) fn read_in_context(&self) -> Result<LockResult<RwLockReadGuard<'_, T>>, WaitError> {
        self.raw.lock_in_context(Mode::Read)?;
        Ok(self.poison.wrap(self.read_guard()))
    }

    /// As [`RwLock::write`], but the wait also ends when the ambient context is done.
    ///
    /// # Errors
    ///
    /// The reason why the lock was not taken.
    pub(crate) fn write_in_context(
        &self,
    ) -> Result<LockResult<RwLockWriteGuard<'_, T>>, WaitError> {
        self.raw.lock_in_context(Mode::Write)?;
        Ok(self.poison.wrap(self.write_guard()))
    }

    /// Takes the lock for reading if that is possible without waiting.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if a writer holds the lock or a waiter is queued. `Poisoned` with the guard if
    /// the lock is poisoned.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::RwLock;
    ///
    /// let lock = RwLock::new(7);
    /// assert_eq!(*lock.try_read().unwrap(), 7);
    /// let writer = lock.write().unwrap();
    /// assert!(lock.try_read().is_err());
    /// # drop(writer);
    /// ```
    #[inline]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        points::switch_point();
        let taken = self.raw.try_lock(Mode::Read);
        self.poison.wrap_try(taken.then(|| self.read_guard()))
    }

    /// Takes the lock for writing, waiting until no reader and no writer holds it.
    ///
    /// # Blocking
    ///
    /// As [`Mutex::lock`](super::Mutex::lock).
    ///
    /// # Errors
    ///
    /// If the lock is poisoned. The error holds the guard.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::RwLock;
    ///
    /// let lock = RwLock::new(6);
    /// *lock.write().unwrap() += 1;
    /// assert_eq!(*lock.read().unwrap(), 7);
    /// ```
    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        if self.raw.lock(Mode::Write).is_err() {
            waitlist::unwind();
        }
        self.poison.wrap(self.write_guard())
    }

    /// Takes the lock for writing if that is possible without waiting.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the lock is held, or a waiter is queued. `Poisoned` with the guard if the
    /// lock is poisoned.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::RwLock;
    ///
    /// let lock = RwLock::new(6);
    /// *lock.try_write().unwrap() += 1;
    /// let reader = lock.read().unwrap();
    /// assert!(lock.try_write().is_err());
    /// assert_eq!(*reader, 7);
    /// ```
    #[inline]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        points::switch_point();
        let taken = self.raw.try_lock(Mode::Write);
        self.poison.wrap_try(taken.then(|| self.write_guard()))
    }

    /// As [`RwLock::read`], with a guard that borrows nothing.
    ///
    /// # Blocking
    ///
    /// As [`Mutex::lock`](super::Mutex::lock).
    ///
    /// # Errors
    ///
    /// As [`RwLock::read`].
    ///
    /// # Panics
    ///
    /// As [`RwLock::read`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::{Arc, RwLock};
    ///
    /// let names = Arc::new(RwLock::new(vec!["sheave"]));
    /// let view = names.read_owned().unwrap();
    /// let reader = std::thread::spawn(move || view.len());
    /// assert_eq!(reader.join().unwrap(), 1);
    /// ```
    pub fn read_owned(self: &Arc<Self>) -> LockResult<OwnedRwLockReadGuard<T>> {
        if self.raw.lock(Mode::Read).is_err() {
            waitlist::unwind();
        }
        self.poison.wrap(self.owned_read_guard())
    }

    /// As [`RwLock::write`], with a guard that borrows nothing.
    ///
    /// # Blocking
    ///
    /// As [`Mutex::lock`](super::Mutex::lock).
    ///
    /// # Errors
    ///
    /// As [`RwLock::write`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::{Arc, RwLock};
    ///
    /// let names = Arc::new(RwLock::new(vec!["sheave"]));
    /// let mut held = names.write_owned().unwrap();
    /// std::thread::spawn(move || held.push("capstan")).join().unwrap();
    /// assert_eq!(names.read().unwrap().len(), 2);
    /// ```
    pub fn write_owned(self: &Arc<Self>) -> LockResult<OwnedRwLockWriteGuard<T>> {
        if self.raw.lock(Mode::Write).is_err() {
            waitlist::unwind();
        }
        self.poison.wrap(self.owned_write_guard())
    }

    /// As [`RwLock::try_read`], with a guard that borrows nothing.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// As [`RwLock::try_read`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::{Arc, RwLock};
    ///
    /// let lock = Arc::new(RwLock::new(7));
    /// let (one, two) = (lock.try_read_owned().unwrap(), lock.try_read_owned().unwrap());
    /// assert!(lock.try_write_owned().is_err());
    /// assert_eq!(*one, *two);
    /// ```
    pub fn try_read_owned(self: &Arc<Self>) -> TryLockResult<OwnedRwLockReadGuard<T>> {
        points::switch_point();
        let taken = self.raw.try_lock(Mode::Read);
        self.poison.wrap_try(taken.then(|| self.owned_read_guard()))
    }

    /// As [`RwLock::try_write`], with a guard that borrows nothing.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// As [`RwLock::try_write`].
    ///
    /// # Examples
    ///
    /// See [`RwLock::try_read_owned`].
    pub fn try_write_owned(self: &Arc<Self>) -> TryLockResult<OwnedRwLockWriteGuard<T>> {
        points::switch_point();
        let taken = self.raw.try_lock(Mode::Write);
        self.poison
            .wrap_try(taken.then(|| self.owned_write_guard()))
    }

    /// As [`RwLock::read_owned`], but the wait also ends when the ambient context is done.
    ///
    /// # Errors
    ///
    /// The reason why the lock was not taken.
    pub(crate) fn read_owned_in_context(
        self: &Arc<Self>,
    ) -> Result<LockResult<OwnedRwLockReadGuard<T>>, WaitError> {
        self.raw.lock_in_context(Mode::Read)?;
        Ok(self.poison.wrap(self.owned_read_guard()))
    }

    /// As [`RwLock::write_owned`], but the wait also ends when the ambient context is done.
    ///
    /// # Errors
    ///
    /// The reason why the lock was not taken.
    pub(crate) fn write_owned_in_context(
        self: &Arc<Self>,
    ) -> Result<LockResult<OwnedRwLockWriteGuard<T>>, WaitError> {
        self.raw.lock_in_context(Mode::Write)?;
        Ok(self.poison.wrap(self.owned_write_guard()))
    }

    fn owned_read_guard(self: &Arc<Self>) -> OwnedRwLockReadGuard<T> {
        OwnedRwLockReadGuard {
            lock: Arc::clone(self),
        }
    }

    /// Unlocks for writing. A panic since the guard was made poisons the lock.
    #[inline]
    fn end_write(&self, guard: &poison::Guard) {
        self.poison.done(guard);
        self.raw.unlock(Mode::Write);
    }

    fn owned_write_guard(self: &Arc<Self>) -> OwnedRwLockWriteGuard<T> {
        OwnedRwLockWriteGuard {
            lock: Arc::clone(self),
            poison: Flag::guard(),
        }
    }

    /// Makes the guard of a lock that the caller holds for reading.
    #[inline]
    fn read_guard(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard {
            // SAFETY: the address of a value is not null.
            data: unsafe { NonNull::new_unchecked(self.data.get()) },
            raw: &self.raw,
        }
    }

    #[inline]
    fn write_guard(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard {
            lock: self,
            poison: Flag::guard(),
        }
    }

    /// Whether the lock is poisoned. See [`RwLock::clear_poison`] for an example.
    #[inline]
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poison.get()
    }

    /// Clears the poison of the lock, when its value is consistent again.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::RwLock;
    ///
    /// let lock = RwLock::new(0);
    /// std::thread::scope(|scope| {
    ///     let panicked = scope.spawn(|| {
    ///         let _guard = lock.write().unwrap();
    ///         panic!("poisons the lock");
    ///     });
    ///     assert!(panicked.join().is_err());
    /// });
    /// assert!(lock.is_poisoned());
    /// lock.clear_poison();
    /// assert_eq!(*lock.read().unwrap(), 0);
    /// ```
    #[inline]
    pub fn clear_poison(&self) {
        self.poison.clear();
    }

    /// Returns a mutable reference to the value. No locking is needed: `&mut self` excludes other
    /// users.
    ///
    /// # Errors
    ///
    /// If the lock is poisoned. The error holds the reference.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::RwLock;
    ///
    /// let mut lock = RwLock::new(0);
    /// *lock.get_mut().unwrap() = 7;
    /// assert_eq!(*lock.read().unwrap(), 7);
    /// ```
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.poison.wrap(self.data.get_mut())
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Atomically downgrades to a read lock: no other writer gets the lock in between. Readers at
    /// the head of the queue get the lock, too.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::{RwLock, RwLockWriteGuard};
    ///
    /// let lock = RwLock::new(6);
    /// let mut writer = lock.write().unwrap();
    /// *writer += 1;
    /// let reader = RwLockWriteGuard::downgrade(writer);
    /// assert_eq!(*reader, 7);
    /// assert!(lock.try_read().is_ok());
    /// ```
    pub fn downgrade(guard: RwLockWriteGuard<'a, T>) -> RwLockReadGuard<'a, T> {
        let lock = guard.lock;
        lock.poison.done(&guard.poison);
        std::mem::forget(guard);
        lock.raw.downgrade();
        lock.read_guard()
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
        // Not `try_read`, which is a switch point of a simulation.
        match self.raw.try_lock(Mode::Read) {
            true => out.field("data", &&*self.read_guard()),
            false => out.field("data", &format_args!("<locked>")),
        };
        out.field("poisoned", &self.is_poisoned())
            .finish_non_exhaustive()
    }
}

impl<T: ?Sized> OwnedRwLockReadGuard<T> {
    /// The lock that is held. See [`OwnedRwLockWriteGuard::rwlock`] for an example.
    pub fn rwlock(guard: &OwnedRwLockReadGuard<T>) -> &Arc<RwLock<T>> {
        &guard.lock
    }
}

impl<T: ?Sized> OwnedRwLockWriteGuard<T> {
    /// The lock that is held.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::{Arc, OwnedRwLockWriteGuard, RwLock};
    ///
    /// let lock = Arc::new(RwLock::new(0));
    /// let held = lock.write_owned().unwrap();
    /// assert!(Arc::ptr_eq(OwnedRwLockWriteGuard::rwlock(&held), &lock));
    /// ```
    pub fn rwlock(guard: &OwnedRwLockWriteGuard<T>) -> &Arc<RwLock<T>> {
        &guard.lock
    }

    /// Atomically downgrades to a read lock, as [`RwLockWriteGuard::downgrade`].
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::{Arc, OwnedRwLockWriteGuard, RwLock};
    ///
    /// let lock = Arc::new(RwLock::new(6));
    /// let mut writer = lock.write_owned().unwrap();
    /// *writer += 1;
    /// let reader = OwnedRwLockWriteGuard::downgrade(writer);
    /// assert_eq!(*reader, *lock.try_read().unwrap());
    /// ```
    pub fn downgrade(guard: OwnedRwLockWriteGuard<T>) -> OwnedRwLockReadGuard<T> {
        guard.lock.poison.done(&guard.poison);
        let guard = ManuallyDrop::new(guard);
        // SAFETY: the guard is not used or dropped any more, so the Arc is moved out. The rest of it
        // needs no drop.
        let lock = unsafe { ptr::read(&raw const guard.lock) };
        lock.raw.downgrade();
        OwnedRwLockReadGuard { lock }
    }
}

guard!(shared RwLockReadGuard<'_, T>, |this| this.data.as_ptr(), this.raw.unlock(Mode::Read));

guard!(shared OwnedRwLockReadGuard<T>, |this| this.lock.data.get(), this.lock.raw.unlock(Mode::Read));

guard!(exclusive RwLockWriteGuard<'_, T>, |this| this.lock.data.get(), this.lock.end_write(&this.poison));

guard!(exclusive OwnedRwLockWriteGuard<T>, |this| this.lock.data.get(), this.lock.end_write(&this.poison));

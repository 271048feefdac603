//! A mutual exclusion lock.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, LockResult, TryLockResult};

use super::guard::guard;
use super::poison::{self, Flag};
use super::raw_mutex::RawMutex;
use super::tag::{self, Tag};
use super::waitlist::{self, WaitError};
use crate::loom::const_fn;

/// A mutual exclusion lock around a value, as `std::sync::Mutex`, for goroutines and plain threads.
///
/// Without contention, locking and unlocking take one atomic instruction each. A running goroutine
/// or thread may take the lock before its waiters, so that a contended lock does not stay free
/// while a waiter wakes up. A waiter that has waited for 1 ms is handed the lock, and so are the
/// waiters behind it (see docs/decisions/waiting.md).
///
/// # Poisoning
///
/// As in `std`: a guard dropped by a panic poisons the mutex. A goroutine that unwinds because its
/// runtime shuts down has not panicked and does not poison it.
///
/// # Blocking
///
/// [`lock`](Mutex::lock) parks a goroutine and blocks a plain thread. A guard may be held while the
/// goroutine parks.
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

// SAFETY: the lock gives one thread at a time access to the value, so T is Send.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T: ?Sized> UnwindSafe for Mutex<T> {}
impl<T: ?Sized> RefUnwindSafe for Mutex<T> {}

/// Exclusive access to the value of a [`Mutex`]. Dropping it unlocks the mutex.
///
/// Unlike `std`'s guard it is [`Send`]: the lock has no owner, and a goroutine that holds it moves
/// between threads. Another goroutine or thread may drop the guard.
///
/// # Examples
///
/// ```
/// use windlass::sync::Mutex;
///
/// let mutex = Mutex::new(1);
/// std::thread::scope(|scope| {
///     let mut guard = mutex.lock().unwrap();
///     *guard += 1;
///     scope.spawn(move || drop(guard));
/// });
/// assert_eq!(*mutex.lock().unwrap(), 2);
/// ```
#[must_use = "if unused the Mutex will immediately unlock"]
pub struct MutexGuard<'a, T: ?Sized> {
    lock: &'a Mutex<T>,
    poison: poison::Guard,
    _tag: Tag,
}

// SAFETY: a guard is a mutable reference to the value, and any thread may unlock.
unsafe impl<T: ?Sized + Send> Send for MutexGuard<'_, T> {}
// SAFETY: a shared guard gives only shared access to the value.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

/// Exclusive access to the value of a [`Mutex`] in an [`Arc`]. Dropping it unlocks the mutex.
///
/// It borrows nothing: a goroutine that is spawned can take it along. Otherwise it is as
/// [`MutexGuard`]: it can be sent if the value can, and poisons the mutex if a panic drops it. Made
/// by [`Mutex::lock_owned`].
///
/// # Examples
///
/// Several threads may share a guard only if they may share the value:
///
/// ```compile_fail,E0277
/// use std::cell::Cell;
/// use windlass::sync::{Arc, Mutex};
///
/// let held = Arc::new(Mutex::new(Cell::new(0))).lock_owned().unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(|| held.set(1));
/// });
/// ```
#[must_use = "if unused the Mutex will immediately unlock"]
pub struct OwnedMutexGuard<T: ?Sized> {
    /// Dropped after the mutex was unlocked.
    lock: Arc<Mutex<T>>,
    poison: poison::Guard,
    _tag: Tag,
    /// A shared guard gives shared access to the value: it is Sync only if the value is.
    value: PhantomData<T>,
}

impl<T: ?Sized> UnwindSafe for OwnedMutexGuard<T> {}
impl<T: ?Sized> RefUnwindSafe for OwnedMutexGuard<T> {}

impl<T> Mutex<T> {
    const_fn! {
        /// Creates an unlocked mutex.
        ///
        /// # Examples
        ///
        /// ```
        /// use windlass::sync::Mutex;
        ///
        /// static NAMES: Mutex<Vec<&str>> = Mutex::new(Vec::new());
        /// NAMES.lock().unwrap().push("sheave");
        /// assert_eq!(NAMES.lock().unwrap().len(), 1);
        /// ```
        #[inline]
        pub const fn new(value: T) -> Mutex<T> {
            Mutex {
                raw: RawMutex::new(),
                poison: Flag::new(),
                data: UnsafeCell::new(value),
            }
        }
    }

    /// Consumes the mutex and returns the value.
    ///
    /// # Errors
    ///
    /// If the mutex is poisoned. The error holds the value.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::Mutex;
    ///
    /// let mutex = Mutex::new(String::from("sheave"));
    /// assert_eq!(mutex.into_inner().unwrap(), "sheave");
    /// ```
    pub fn into_inner(self) -> LockResult<T> {
        let value = self.data.into_inner();
        self.poison.wrap(value)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks the mutex, waiting until it is free.
    ///
    /// Locking a mutex that the caller already holds waits forever.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. If the runtime shuts down, a waiting goroutine
    /// unwinds. In a destructor that runs during this unwinding, the call waits nevertheless,
    /// because it has no way to report failure.
    ///
    /// # Errors
    ///
    /// If the mutex is poisoned. The error holds the guard.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::Mutex;
    ///
    /// let mutex = Mutex::new(0);
    /// *mutex.lock().unwrap() += 1;
    /// assert_eq!(*mutex.lock().unwrap(), 1);
    /// ```
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        if self.raw.lock().is_err() {
            waitlist::unwind();
        }
        self.poison.wrap(self.guard())
    }

    /// As [`Mutex::lock`], but the wait also ends when the ambient context is done.
    ///
    /// # Errors
    ///
    /// The reason why the lock was not taken.
    pub(crate) fn lock_in_context(&self) -> Result<LockResult<MutexGuard<'_, T>>, WaitError> {
        self.raw.lock_in_context()?;
        Ok(self.poison.wrap(self.guard()))
    }

    /// Locks the mutex if that is possible without waiting.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the mutex is locked, or if it is about to be handed to waiters that have
    /// waited for more than 1 ms. `Poisoned` with the guard if the mutex is poisoned.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::Mutex;
    ///
    /// let mutex = Mutex::new(0);
    /// let guard = mutex.try_lock().unwrap();
    /// assert!(mutex.try_lock().is_err());
    /// drop(guard);
    /// assert!(mutex.try_lock().is_ok());
    /// ```
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let guard = self.raw.try_lock().then(|| self.guard());
        self.poison.wrap_try(guard)
    }

    /// As [`Mutex::lock`], with a guard that borrows nothing.
    ///
    /// # Blocking
    ///
    /// As [`Mutex::lock`].
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::{Arc, Mutex};
    ///
    /// let log = Arc::new(Mutex::new(vec!["begin"]));
    /// let mut held = log.lock_owned().unwrap();
    /// let writer = std::thread::spawn(move || held.push("end"));
    /// writer.join().unwrap();
    /// assert_eq!(*log.lock().unwrap(), ["begin", "end"]);
    /// ```
    pub fn lock_owned(self: &Arc<Self>) -> LockResult<OwnedMutexGuard<T>> {
        if self.raw.lock().is_err() {
            waitlist::unwind();
        }
        self.poison.wrap(self.owned_guard())
    }

    /// As [`Mutex::lock_owned`], but the wait also ends when the ambient context is done.
    ///
    /// # Errors
    ///
    /// The reason why the lock was not taken.
    pub(crate) fn lock_owned_in_context(
        self: &Arc<Self>,
    ) -> Result<LockResult<OwnedMutexGuard<T>>, WaitError> {
        self.raw.lock_in_context()?;
        Ok(self.poison.wrap(self.owned_guard()))
    }

    /// As [`Mutex::try_lock`], with a guard that borrows nothing.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// As [`Mutex::try_lock`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::{Arc, Mutex};
    ///
    /// let mutex = Arc::new(Mutex::new(0));
    /// let held = mutex.try_lock_owned().unwrap();
    /// assert!(mutex.try_lock_owned().is_err());
    /// drop(held);
    /// assert!(mutex.try_lock().is_ok());
    /// ```
    pub fn try_lock_owned(self: &Arc<Self>) -> TryLockResult<OwnedMutexGuard<T>> {
        let guard = self.raw.try_lock().then(|| self.owned_guard());
        self.poison.wrap_try(guard)
    }

    /// Unlocks. A panic since the guard was made poisons the mutex.
    #[inline]
    fn release(&self, guard: &poison::Guard) {
        self.poison.done(guard);
        self.raw.unlock();
    }

    /// Makes the owned guard of a lock that the caller holds.
    fn owned_guard(self: &Arc<Self>) -> OwnedMutexGuard<T> {
        OwnedMutexGuard {
            lock: Arc::clone(self),
            poison: Flag::guard(),
            _tag: self.tag(),
            value: PhantomData,
        }
    }

    /// Makes the guard of a lock that the caller holds.
    #[inline]
    fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            lock: self,
            poison: Flag::guard(),
            _tag: self.tag(),
        }
    }

    #[inline(always)]
    fn tag(&self) -> Tag {
        Tag::new(tag::Handle::Guard, std::ptr::from_ref(&self.raw).addr())
    }

    /// Whether the mutex is poisoned. See [`Mutex::clear_poison`] for an example.
    #[inline]
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poison.get()
    }

    /// Clears the poison of the mutex, when its value is consistent again.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::Mutex;
    ///
    /// let mutex = Mutex::new(0);
    /// std::thread::scope(|scope| {
    ///     let panicked = scope.spawn(|| {
    ///         let _guard = mutex.lock().unwrap();
    ///         panic!("poisons the mutex");
    ///     });
    ///     assert!(panicked.join().is_err());
    /// });
    /// assert!(mutex.is_poisoned());
    /// mutex.clear_poison();
    /// assert_eq!(*mutex.lock().unwrap(), 0);
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
    /// If the mutex is poisoned. The error holds the reference.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::Mutex;
    ///
    /// let mut mutex = Mutex::new(0);
    /// *mutex.get_mut().unwrap() = 7;
    /// assert_eq!(*mutex.lock().unwrap(), 7);
    /// ```
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

/// The value of a mutex, locked for `Debug`.
struct Peek<'a, T: ?Sized>(&'a Mutex<T>);

impl<T: ?Sized> Deref for Peek<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.data.get() }
    }
}

impl<T: ?Sized> Drop for Peek<'_, T> {
    fn drop(&mut self) {
        self.0.raw.unlock_in_place();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Mutex");
        match self.raw.try_lock_in_place().then(|| Peek(self)) {
            Some(data) => out.field("data", &&*data),
            None => out.field("data", &"<locked>"),
        };
        out.field("poisoned", &self.is_poisoned())
            .finish_non_exhaustive()
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// Takes the guard apart and leaves the lock held: for a condition variable, which unlocks and
    /// locks again.
    pub(super) fn into_lock(self) -> (&'a Mutex<T>, poison::Guard) {
        let poison = poison::Guard::clone(&self.poison);
        let lock = self.lock;
        std::mem::forget(self);
        (lock, poison)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// The raw lock, without poison flag and value.
    pub(super) fn raw(&self) -> &RawMutex {
        &self.raw
    }

    /// Makes a guard again, of a lock that the caller holds.
    pub(super) fn guard_again(&self, poison: poison::Guard) -> LockResult<MutexGuard<'_, T>> {
        self.poison.wrap(MutexGuard {
            lock: self,
            poison,
            _tag: self.tag(),
        })
    }
}

impl<T: ?Sized> OwnedMutexGuard<T> {
    /// The mutex that is locked.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::{Arc, Mutex, OwnedMutexGuard};
    ///
    /// let mutex = Arc::new(Mutex::new(0));
    /// let held = mutex.lock_owned().unwrap();
    /// assert!(Arc::ptr_eq(OwnedMutexGuard::mutex(&held), &mutex));
    /// ```
    pub fn mutex(guard: &OwnedMutexGuard<T>) -> &Arc<Mutex<T>> {
        &guard.lock
    }
}

guard!(exclusive MutexGuard<'_, T>, |this| this.lock.data.get(), this.lock.release(&this.poison));

guard!(exclusive OwnedMutexGuard<T>, |this| this.lock.data.get(), this.lock.release(&this.poison));

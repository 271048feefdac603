//! A condition variable.
//!
//! | waiter                                 | notifier                              |
//! |----------------------------------------|---------------------------------------|
//! | 1. lock the list                       | 1. (change the condition, unlock      |
//! | 2. unlock the mutex                    |    the mutex)                         |
//! | 3. push a node and wait; the list's    | 2. lock the list                      |
//! |    lock is released once the wait is   | 3. take one waiter, or all            |
//! |    visible                             | 4. unlock the list, ready the waiters |
//! | 4. lock the mutex                      |                                       |
//!
//! No notification is lost: if a notifier changes the condition under the mutex after the waiter's
//! step 2, its step 2 comes after the waiter's step 3. Waiters are woken, not moved to the mutex's
//! queue: readying a goroutine wakes no thread while the current thread is busy, and by the time
//! the goroutine runs the mutex is mostly free.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{LockResult, PoisonError};
use std::time::Duration;

use windlass_ground::std_traits::fmt_as;

use super::mutex::MutexGuard;
use super::raw_mutex::RawMutex;
use super::waitlist::{self, QueueEnd, WaitError, WaitList};
use super::waitq::{DequeuedList, WaitCtx, WaitOptions};
use crate::g::status::Reason;
use crate::loom::const_fn;
use crate::sched::wait::points;
use crate::sys::clock::{self, NEVER, deadline_ns};

/// A condition variable, as `std::sync::Condvar`, for the [`Mutex`](super::Mutex) of this crate.
///
/// Waiters are notified first in, first out.
///
/// # Blocking
///
/// A wait parks a goroutine and blocks a plain thread. If the runtime shuts down, a waiting
/// goroutine unwinds without holding the lock. In a destructor that runs during this unwinding,
/// waits fail at once: [`wait`](Condvar::wait) returns without a notification and `wait_timeout`
/// reports a timeout. Only [`wait_while`](Condvar::wait_while) still waits, because its contract
/// leaves it no other way to return.
///
/// # Examples
///
/// ```
/// use windlass::sync::{Arc, Condvar, Mutex};
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let pair = Arc::new((Mutex::new(false), Condvar::new()));
///     let other = Arc::clone(&pair);
///     windlass::spawn(move || {
///         *other.0.lock().unwrap() = true;
///         other.1.notify_one();
///     });
///     let ready = pair.0.lock().unwrap();
///     let ready = pair.1.wait_while(ready, |ready| !*ready).unwrap();
///     assert!(*ready);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Condvar {
    list: WaitList,
}

impl UnwindSafe for Condvar {}
impl RefUnwindSafe for Condvar {}

/// Whether a wait of a [`Condvar`] ended because its time limit passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the time limit passed without a notification. See [`Condvar::wait_timeout`] for an
    /// example.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    const_fn! {
        /// Creates a condition variable.
        #[must_use]
        pub const fn new() -> Condvar {
            Condvar {
                list: WaitList::new(),
            }
        }
    }

    /// Unlocks the mutex, waits for a notification, and locks the mutex again.
    ///
    /// May return without a notification, as in `std`: call it in a loop, or use
    /// [`Condvar::wait_while`].
    ///
    /// # Blocking
    ///
    /// See [`Condvar`].
    ///
    /// # Errors
    ///
    /// If the mutex is poisoned when it is locked again. The error holds the guard.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::{Arc, Condvar, Mutex};
    ///
    /// let pair = Arc::new((Mutex::new(0), Condvar::new()));
    /// let other = Arc::clone(&pair);
    /// std::thread::spawn(move || {
    ///     *other.0.lock().unwrap() = 7;
    ///     other.1.notify_one();
    /// });
    /// let mut value = pair.0.lock().unwrap();
    /// while *value == 0 {
    ///     value = pair.1.wait(value).unwrap();
    /// }
    /// assert_eq!(*value, 7);
    /// ```
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.wait_on(guard, WaitOptions::new(Reason::Condvar)).0
    }

    /// Waits until `condition` returns false. Checks it before the first wait and after each
    /// notification.
    ///
    /// See [`Condvar`] for an example.
    ///
    /// # Blocking
    ///
    /// See [`Condvar`].
    ///
    /// # Errors
    ///
    /// As [`Condvar::wait`].
    pub fn wait_while<'a, T, F>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: F,
    ) -> LockResult<MutexGuard<'a, T>>
    where
        F: FnMut(&mut T) -> bool,
    {
        while condition(&mut *guard) {
            // While unwinding, wait as for a lock, which shutdown does not cut short: a wait that
            // is cut short could only be repeated.
            let reason = if std::thread::panicking() {
                Reason::Mutex
            } else {
                Reason::Condvar
            };
            guard = self.wait_on(guard, WaitOptions::new(reason)).0?;
        }
        Ok(guard)
    }

    /// As [`Condvar::wait`], but waits for at most `duration`.
    ///
    /// # Blocking
    ///
    /// See [`Condvar`]. The time to lock the mutex again is not limited by `duration`. The wait
    /// ends early, reported as a timeout, when the ambient [`context`](crate::context) is done.
    ///
    /// # Errors
    ///
    /// As [`Condvar::wait`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::sync::{Condvar, Mutex};
    ///
    /// let (mutex, condvar) = (Mutex::new(0), Condvar::new());
    /// let value = mutex.lock().unwrap();
    /// let (_value, result) = condvar.wait_timeout(value, Duration::from_millis(1)).unwrap();
    /// assert!(result.timed_out());
    /// ```
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        duration: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        self.wait_deadline(guard, deadline_ns(duration))
    }

    /// As [`Condvar::wait_timeout`], with a limit in milliseconds. The result is `false` if it
    /// passed.
    ///
    /// # Blocking
    ///
    /// See [`Condvar`].
    ///
    /// # Errors
    ///
    /// As [`Condvar::wait`].
    #[deprecated(note = "replaced by `Condvar::wait_timeout`, as in std")]
    pub fn wait_timeout_ms<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        ms: u32,
    ) -> LockResult<(MutexGuard<'a, T>, bool)> {
        let outcome = self.wait_timeout(guard, Duration::from_millis(u64::from(ms)));
        map(outcome, |(guard, timeout)| (guard, !timeout.timed_out()))
    }

    /// Waits until `condition` returns false, for at most `duration`. If the result reports a
    /// timeout, the condition was still true.
    ///
    /// # Blocking
    ///
    /// See [`Condvar`]. The wait ends early, reported as a timeout, when the ambient
    /// [`context`](crate::context) is done.
    ///
    /// # Errors
    ///
    /// As [`Condvar::wait`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::sync::{Condvar, Mutex};
    ///
    /// let (mutex, condvar) = (Mutex::new(false), Condvar::new());
    /// let limit = Duration::from_millis(1);
    /// let guard = mutex.lock().unwrap();
    /// let (ready, result) = condvar.wait_timeout_while(guard, limit, |ready| !*ready).unwrap();
    /// assert!(result.timed_out() && !*ready);
    /// ```
    pub fn wait_timeout_while<'a, T, F>(
        &self,
        mut guard: MutexGuard<'a, T>,
        duration: Duration,
        mut condition: F,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)>
    where
        F: FnMut(&mut T) -> bool,
    {
        let deadline = deadline_ns(duration);
        loop {
            if !condition(&mut *guard) {
                return Ok((guard, WaitTimeoutResult(false)));
            }
            if deadline != NEVER && clock::now_ns() >= deadline {
                return Ok((guard, WaitTimeoutResult(true)));
            }
            let (again, timeout) = self.wait_deadline(guard, deadline)?;
            guard = again;
            if timeout.timed_out() && condition(&mut *guard) {
                return Ok((guard, timeout));
            }
        }
    }

    fn wait_deadline<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline_ns: u64,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let options = WaitOptions::new(Reason::Condvar)
            .until(deadline_ns)
            .by_context(true);
        let (guard, notified) = self.wait_on(guard, options);
        map(guard, |guard| (guard, WaitTimeoutResult(notified.is_err())))
    }

    /// As [`Condvar::wait`], but the wait also ends when the ambient context is done: the second
    /// result is an error then.
    pub(crate) fn wait_in_context<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
    ) -> (LockResult<MutexGuard<'a, T>>, Result<(), WaitError>) {
        self.wait_on(guard, WaitOptions::new(Reason::Condvar).by_context(true))
    }

    fn wait_on<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        options: WaitOptions,
    ) -> (LockResult<MutexGuard<'a, T>>, Result<(), WaitError>) {
        points::switch_point();
        let (mutex, poison) = guard.into_lock();
        let notified = self
            .wait_raw(mutex.raw(), options)
            .unwrap_or_else(|_| waitlist::unwind());
        (mutex.guard_again(poison), notified)
    }

    /// Unlocks the mutex, waits, and locks it again. The inner error says why the wait ended
    /// without a notification.
    ///
    /// # Errors
    ///
    /// If a wait was cut short and the caller has to unwind. The mutex is not locked then.
    fn wait_raw(
        &self,
        mutex: &RawMutex,
        options: WaitOptions,
    ) -> Result<Result<(), WaitError>, WaitError> {
        let ctx = WaitCtx::enter();
        let queue = self.list.lock(&ctx);
        mutex.unlock_in(&ctx);
        let notified = queue.wait(ctx, QueueEnd::Last, 0, options, |_| DequeuedList::new());
        let must_unwind = notified == Err(WaitError::CutShort) && !std::thread::panicking();
        if must_unwind {
            return Err(WaitError::CutShort);
        }
        let locked = mutex.lock();
        if locked.is_err() && notified.is_ok() {
            // This waiter will unwind, so pass its notification on.
            self.notify_one();
        }
        locked.map(|()| notified.map(drop))
    }

    /// Wakes the longest waiting waiter, if there is one. See [`Condvar::wait`] for an example.
    ///
    /// # Blocking
    ///
    /// Never.
    pub fn notify_one(&self) {
        points::switch_point();
        self.list.wake_one();
    }

    /// Wakes all current waiters.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::{Arc, Condvar, Mutex};
    ///
    /// let pair = Arc::new((Mutex::new(false), Condvar::new()));
    /// let waiters = [(); 3].map(|()| {
    ///     let pair = Arc::clone(&pair);
    ///     std::thread::spawn(move || {
    ///         let open = pair.0.lock().unwrap();
    ///         *pair.1.wait_while(open, |open| !*open).unwrap()
    ///     })
    /// });
    /// *pair.0.lock().unwrap() = true;
    /// pair.1.notify_all();
    /// for waiter in waiters {
    ///     assert!(waiter.join().unwrap());
    /// }
    /// ```
    pub fn notify_all(&self) {
        points::switch_point();
        self.list.wake_all();
    }
}

fn map<T, U>(outcome: LockResult<T>, f: impl FnOnce(T) -> U) -> LockResult<U> {
    match outcome {
        Ok(value) => Ok(f(value)),
        Err(e) => Err(PoisonError::new(f(e.into_inner()))),
    }
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}

fmt_as!(Debug for Condvar, "Condvar { .. }");

//! A condition variable.
//!
//! | waiter                                | notifier                            |
//! |---------------------------------------|-------------------------------------|
//! | 1. lock the list                      | 1. (change the condition, unlock    |
//! | 2. unlock the mutex                   |    the mutex)                       |
//! | 3. push, and wait; the list's lock is | 2. lock the list                    |
//! |    free once the wait is visible      | 3. take one waiter, or all          |
//! | 4. lock the mutex, as everybody does  | 4. unlock the list, ready them      |
//!
//! Whoever changes the condition under the mutex, after the waiter's 2, comes to its own
//! 2 after the waiter's 3: no notification is lost. Waiters are woken, not moved to the
//! queue of the mutex: readying a goroutine wakes no thread as long as this one is busy,
//! and by the time it runs the mutex is mostly free.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{LockResult, PoisonError};
use std::time::Duration;

use super::mutex::MutexGuard;
use super::raw_mutex::RawMutex;
use super::waitlist::{self, GaveUp, Place, WaitList};
use super::waitq::{Here, TakenList, Terms};
use crate::g::status::Reason;
use crate::loom::const_fn;
use crate::sys::clock::{self, NEVER, deadline_ns};

/// A place to wait for a condition, as `std::sync::Condvar`, with the mutexes of this
/// crate. Waiters are notified first in, first out.
///
/// # Blocking
///
/// The waits park a goroutine and block a plain thread. On a goroutine whose runtime ends
/// they unwind, without the lock. In a destructor that runs while it unwinds they fail at
/// once: [`wait`](Condvar::wait) returns without a cause, `wait_timeout` says that it timed
/// out, and only [`wait_while`](Condvar::wait_while), which could not return, waits.
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

/// Whether a wait of a [`Condvar`] ended because the time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// `true` if it did, and not by a notification.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    const_fn! {
        /// Makes a condition variable.
        #[must_use]
        pub const fn new() -> Condvar {
            Condvar {
                list: WaitList::new(),
            }
        }
    }

    /// Unlocks the mutex, waits for a notification, and locks it again. May return
    /// without cause, as in `std`.
    ///
    /// # Blocking
    ///
    /// See [`Condvar`].
    ///
    /// # Errors
    ///
    /// With the guard, if the mutex is poisoned when it is locked again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.wait_on(guard, Terms::new(Reason::Condvar)).0
    }

    /// Waits until `condition` is false.
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
            // As a lock: not cut short in a destructor, which could only ask again.
            let reason = if std::thread::panicking() {
                Reason::Mutex
            } else {
                Reason::Condvar
            };
            guard = self.wait_on(guard, Terms::new(reason)).0?;
        }
        Ok(guard)
    }

    /// As [`Condvar::wait`], for at most `duration`.
    ///
    /// # Blocking
    ///
    /// See [`Condvar`]. The time to lock the mutex again comes on top. Ends early, as timed
    /// out, when the ambient context ([`context`](crate::context)) is done.
    ///
    /// # Errors
    ///
    /// As [`Condvar::wait`].
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        duration: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        self.wait_deadline(guard, deadline_ns(duration))
    }

    /// As [`Condvar::wait_timeout`], in milliseconds; `false` if the time was over.
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

    /// Waits until `condition` is false, for at most `duration`. The result says whether it
    /// is still true.
    ///
    /// # Blocking
    ///
    /// See [`Condvar`]. Ends early, as timed out, when the ambient context
    /// ([`context`](crate::context)) is done.
    ///
    /// # Errors
    ///
    /// As [`Condvar::wait`].
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
        let terms = Terms::new(Reason::Condvar)
            .until(deadline_ns)
            .by_context(true);
        let (guard, notified) = self.wait_on(guard, terms);
        map(guard, |guard| (guard, WaitTimeoutResult(notified.is_err())))
    }

    /// As [`Condvar::wait`], but the wait ends when the ambient context does: then the
    /// second result is an error.
    pub(crate) fn wait_in_context<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
    ) -> (LockResult<MutexGuard<'a, T>>, Result<(), GaveUp>) {
        self.wait_on(guard, Terms::new(Reason::Condvar).by_context(true))
    }

    fn wait_on<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        terms: Terms,
    ) -> (LockResult<MutexGuard<'a, T>>, Result<(), GaveUp>) {
        let (mutex, poison) = guard.into_lock();
        let notified = self
            .wait_raw(mutex.raw(), terms)
            .unwrap_or_else(|_| waitlist::unwind());
        (mutex.guard_again(poison), notified)
    }

    /// Unlocks, waits, locks. The inner error says why nobody notified this waiter.
    ///
    /// # Errors
    ///
    /// If a wait was cut short, and the caller is to unwind; the mutex is not locked then.
    fn wait_raw(&self, mutex: &RawMutex, terms: Terms) -> Result<Result<(), GaveUp>, GaveUp> {
        let here = Here::enter();
        let queue = self.list.lock(&here);
        mutex.unlock_in(&here);
        let told = queue.wait(here, Place::Last, 0, terms, |_| TakenList::new());
        let must_unwind = told == Err(GaveUp::CutShort) && !std::thread::panicking();
        if must_unwind {
            return Err(GaveUp::CutShort);
        }
        let locked = mutex.lock();
        if locked.is_err() && told.is_ok() {
            // The notification was for somebody who would go on.
            self.notify_one();
        }
        locked.map(|()| told.map(drop))
    }

    /// Lets the one go on that waits longest, if any.
    ///
    /// # Blocking
    ///
    /// Never.
    pub fn notify_one(&self) {
        self.list.wake_one();
    }

    /// Lets all go on that wait now.
    ///
    /// # Blocking
    ///
    /// Never.
    pub fn notify_all(&self) {
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

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}

//! Notifications without a value: tokio's `Notify` for code that blocks.
//!
//! All of the state is guarded by the lock of the waiters' queue:
//!
//! - `permits`: notifications of [`Notify::notify_one`] that no waiter has received yet;
//! - `listeners`: listeners that are registered, do not wait yet, and were not reached by a
//!   `notify_waiters`;
//! - `generation`: number of calls of [`Notify::notify_waiters`]. A listener compares it with its own
//!   to learn whether one of them came after it was registered.
//!
//! One permit for each listener is reserved, and one more may be stored. So `permits` is at most
//! `listeners` + 1, and a caller without a listener takes a permit only if there are more permits
//! than listeners. While a waiter is queued, there are not: each step that changes one of the two
//! numbers hands the surplus to the queue.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use windlass_ground::std_traits::fmt_as;

use super::waitlist::{Held, Queue, WaitCell, WaitError};
use super::waitq::{DequeuedList, WaitCtx, WaitOptions};
use crate::g::status::Reason;
use crate::loom::const_fn;
use crate::sched::wait::points;
use crate::sys::clock::{NEVER, deadline_ns};

/// Wakes goroutines and threads that wait for something to happen, as `tokio::sync::Notify`.
///
/// It carries no value and guards nothing: a waiter checks its condition, waits, and checks again.
/// For a condition under a [`Mutex`](super::Mutex), a [`Condvar`](super::Condvar) does the same.
///
/// - [`notify_one`](Notify::notify_one) wakes one waiter. If there is none, it stores a permit, which
///   lets the next waiter pass. At most one permit is stored.
/// - [`notify_waiters`](Notify::notify_waiters) wakes all that wait now, and stores nothing. A waiter
///   that first checks a condition registers before the check, with [`listen`](Notify::listen), so
///   that no notification between the check and the wait is lost.
///
/// # Blocking
///
/// [`wait`](Notify::wait) parks a goroutine and blocks a plain thread.
///
/// # Examples
///
/// A queue whose consumer sleeps while it is empty:
///
/// ```
/// use windlass::sync::{Arc, Mutex, Notify};
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let queue = Arc::new((Mutex::new(Vec::new()), Notify::new()));
///     let other = Arc::clone(&queue);
///     windlass::spawn(move || {
///         other.0.lock().unwrap().push("parcel");
///         other.1.notify_one();
///     });
///     let parcel = loop {
///         if let Some(parcel) = queue.0.lock().unwrap().pop() {
///             break parcel;
///         }
///         queue.1.wait();
///     };
///     assert_eq!(parcel, "parcel");
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Notify {
    state: WaitCell<State>,
}

/// See the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    permits: usize,
    listeners: usize,
    generation: u64,
}

impl UnwindSafe for Notify {}
impl RefUnwindSafe for Notify {}

/// A registration with a [`Notify`], made by [`Notify::listen`].
///
/// Notifications that come after it was made let its [`wait`](Listener::wait) pass. One that is
/// dropped without a wait passes a notification of [`Notify::notify_one`] on to another waiter.
#[must_use = "it is registered only until it is dropped"]
pub struct Listener<'a> {
    notify: &'a Notify,
    generation: u64,
}

impl Notify {
    const_fn! {
        /// Creates a `Notify` without a stored permit.
        #[must_use]
        pub const fn new() -> Notify {
            Notify {
                state: WaitCell::new(State {
                    permits: 0,
                    listeners: 0,
                    generation: 0,
                }),
            }
        }
    }

    /// Wakes the longest waiting waiter. If there is none, stores a permit, unless one is stored.
    ///
    /// A [`Listener`] that does not wait yet counts as a waiter.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::sync::Notify;
    ///
    /// let notify = Notify::new();
    /// notify.notify_one();
    /// notify.notify_one(); // one permit is stored already
    /// notify.wait();
    /// assert!(!notify.wait_timeout(Duration::from_millis(1)));
    /// ```
    pub fn notify_one(&self) {
        points::switch_point();
        self.state.update(|state, _, woken| {
            if let Some(taken) = state.queue().take() {
                woken.push(taken);
            } else {
                state.permits = (state.permits + 1).min(state.listeners + 1);
            }
        });
    }

    /// Wakes all waiters, and lets all registered listeners pass. Waiters that come later wait.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::sync::Notify;
    ///
    /// let notify = Notify::new();
    /// let (one, two) = (notify.listen(), notify.listen());
    /// notify.notify_waiters();
    /// one.wait();
    /// two.wait();
    /// assert!(!notify.wait_timeout(Duration::from_millis(1)));
    /// ```
    pub fn notify_waiters(&self) {
        points::switch_point();
        self.state.update(|state, _, woken| {
            state.generation += 1;
            state.listeners = 0;
            // A permit that was reserved for a listener stays: that listener may be dropped, and a
            // wake-up too many does less harm than a lost one.
            state.permits = state.permits.min(1);
            woken.append(state.queue().take_all());
        });
    }

    /// Waits for a notification, or takes the stored permit.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. If the runtime shuts down, a waiting goroutine
    /// unwinds. In a destructor that runs during this unwinding, a call that would wait returns at
    /// once. A context ends [`wait_timeout`](Notify::wait_timeout) and
    /// [`wait_context`](Notify::wait_context) only.
    ///
    /// # Examples
    ///
    /// See [`Notify`].
    pub fn wait(&self) {
        points::switch_point();
        end_of_wait(self.wait_until(None, NEVER, false));
    }

    /// As [`Notify::wait`], but waits for at most `timeout`. Returns whether a notification came.
    ///
    /// # Blocking
    ///
    /// As [`Notify::wait`]. The wait ends early, with `false`, when the ambient
    /// [`context`](crate::context) is done.
    ///
    /// # Examples
    ///
    /// See [`Notify::notify_one`].
    #[must_use = "false if the time limit passed"]
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        points::switch_point();
        end_of_wait(self.wait_until(None, deadline_ns(timeout), true))
    }

    /// As [`Notify::wait`], but the wait also ends when the ambient context is done.
    ///
    /// # Errors
    ///
    /// The reason why the wait ended without a notification.
    pub(crate) fn wait_in_context(&self) -> Result<(), WaitError> {
        self.wait_until(None, NEVER, true)
    }

    /// Registers the caller for notifications from now on, without waiting yet.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::{Arc, Notify};
    /// use windlass::sync::atomic::{AtomicBool, Ordering::Relaxed};
    ///
    /// let gate = Arc::new((AtomicBool::new(false), Notify::new()));
    /// let other = Arc::clone(&gate);
    /// std::thread::spawn(move || {
    ///     other.0.store(true, Relaxed);
    ///     other.1.notify_waiters();
    /// });
    /// let (is_open, opened) = &*gate;
    /// let listener = opened.listen();
    /// if !is_open.load(Relaxed) {
    ///     listener.wait(); // also if the gate has opened since the check
    /// }
    /// assert!(is_open.load(Relaxed));
    /// ```
    pub fn listen(&self) -> Listener<'_> {
        points::switch_point();
        let generation = self.state.with(|state| {
            state.listeners += 1;
            state.generation
        });
        Listener {
            notify: self,
            generation,
        }
    }

    /// Waits; `registered` is the generation of a listener, which this call ends.
    fn wait_until(
        &self,
        registered: Option<u64>,
        deadline_ns: u64,
        by_context: bool,
    ) -> Result<(), WaitError> {
        let ctx = WaitCtx::enter();
        let mut state = self.state.lock(&ctx);
        if state.end_or_take(registered) {
            return Ok(());
        }
        let options = WaitOptions::new(Reason::Condvar)
            .until(deadline_ns)
            .by_context(by_context);
        let leave = |_: &Queue<'_>| DequeuedList::new();
        match state.wait(ctx, 0, options, leave) {
            Ok(_) => Ok(()),
            Err(WaitError::CutShort) => Err(WaitError::CutShort),
            // A permit that was stored after the wait had ended.
            Err(_) if self.state.with(State::take) => Ok(()),
            Err(gave_up) => Err(gave_up),
        }
    }

    /// Whether a permit is stored that a call of [`Notify::wait`] would take now.
    #[cfg(all(test, any(loom, miri)))]
    fn state(&self) -> State {
        self.state.with(|state| *state)
    }
}

/// Called after a wait. Returns whether a notification came. Unwinds if the wait was cut short,
/// except in a destructor.
fn end_of_wait(waited: Result<(), WaitError>) -> bool {
    if waited == Err(WaitError::CutShort) {
        let _ = points::cancel_point();
    }
    waited.is_ok()
}

impl State {
    /// Takes a permit that is reserved for no listener.
    fn take(&mut self) -> bool {
        let is_free = self.permits > self.listeners;
        self.permits -= usize::from(is_free);
        is_free
    }

    /// Ends a listener, if there is one, and takes a permit or a notification.
    fn end_or_take(&mut self, registered: Option<u64>) -> bool {
        match registered {
            None => self.take(),
            Some(generation) if generation != self.generation => true,
            Some(_) => {
                self.listeners -= 1;
                let has_permit = self.permits > 0;
                self.permits -= usize::from(has_permit);
                has_permit
            }
        }
    }
}

/// Ends a listener that does not wait. Its permit goes to a waiter, or is stored.
fn end_listener(state: &mut Held<'_, State>, generation: u64, woken: &mut DequeuedList) {
    if generation != state.generation {
        return;
    }
    state.listeners -= 1;
    while state.permits > state.listeners
        && let Some(taken) = state.queue().take()
    {
        woken.push(taken);
        state.permits -= 1;
    }
    state.permits = state.permits.min(state.listeners + 1);
}

impl Listener<'_> {
    /// Waits for a notification that comes, or has come, after the listener was made.
    ///
    /// # Blocking
    ///
    /// As [`Notify::wait`].
    ///
    /// # Examples
    ///
    /// See [`Notify::listen`].
    pub fn wait(self) {
        points::switch_point();
        end_of_wait(self.wait_until(NEVER, false));
    }

    /// As [`Listener::wait`], but waits for at most `timeout`. Returns whether a notification came.
    ///
    /// # Blocking
    ///
    /// As [`Notify::wait_timeout`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::sync::Notify;
    ///
    /// let notify = Notify::new();
    /// let listener = notify.listen();
    /// assert!(!listener.wait_timeout(Duration::from_millis(1)));
    /// ```
    #[must_use = "false if the time limit passed"]
    pub fn wait_timeout(self, timeout: Duration) -> bool {
        points::switch_point();
        end_of_wait(self.wait_until(deadline_ns(timeout), true))
    }

    /// As [`Listener::wait`], but the wait also ends when the ambient context is done.
    ///
    /// # Errors
    ///
    /// The reason why the wait ended without a notification.
    pub(crate) fn wait_in_context(self) -> Result<(), WaitError> {
        self.wait_until(NEVER, true)
    }

    fn wait_until(self, deadline_ns: u64, by_context: bool) -> Result<(), WaitError> {
        let Listener { notify, generation } = self;
        // The wait ends the registration.
        std::mem::forget(self);
        notify.wait_until(Some(generation), deadline_ns, by_context)
    }
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        self.notify
            .state
            .update_in_place(|state, _, woken| end_listener(state, self.generation, woken));
    }
}

impl Default for Notify {
    fn default() -> Notify {
        Notify::new()
    }
}

fmt_as!(Debug for Notify, "Notify { .. }");

fmt_as!(Debug for Listener<'_>, "Listener { .. }");

#[cfg(all(test, any(loom, miri)))]
#[path = "notify_loom_tests.rs"]
mod loom_tests;

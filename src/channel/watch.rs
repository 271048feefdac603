//! Channels for the latest value of something, made by [`watch`](super::watch()).
//!
//! The channel always has a value. A sender replaces or changes it; a receiver looks at it, and can
//! wait until it has changed since the receiver last looked. Values that were replaced in between are
//! never seen. This is for configuration, states and progress, where only the present counts.
//!
//! ```
//! use windlass::channel::watch;
//!
//! # // SAFETY: nothing here keeps a thread-local across a call that parks.
//! # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
//! rt.run(|| {
//!     let (level, levels) = watch(0);
//!     let gauge = windlass::spawn(move || *levels.wait_for(|level| *level >= 3).unwrap());
//!     for n in 1..=3 {
//!         level.send(n).unwrap();
//!         windlass::yield_now();
//!     }
//!     assert_eq!(gauge.join().unwrap(), 3);
//! });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! The value is in a [`RwLock`], and a [`Ref`] holds the lock for reading: a
//! send waits until it is dropped, and later readers wait behind that send. Keep a `Ref` short, and do
//! not send, or take another `Ref` of the same channel, while you hold one.
//!
//! A receiver that is shared, by a reference or an [`Arc`], has seen a value when one of the callers
//! has. Clone it to give each its own.
//!
//! For a select, a receiver has a channel without messages that is disconnected while there is a
//! value that it has not seen: [`Receiver::ready`].

use std::convert::Infallible;
use std::fmt;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::chan::note_disconnect;
use super::core::Refused;
use super::err::{RecvError, RecvTimeoutError, SendError};
use super::ready::{self, Ready};
use super::receiver;
use super::sides::{self, Closed, Sides};
use crate::loom::native::OnceLock;
use crate::loom::{AtomicU64, Ordering};
use crate::sched::wait::points;
use crate::sync::waitlist::{WaitCell, Woken};
use crate::sync::waitq::{DequeuedList, WaitCtx};
use crate::sync::{RwLock, RwLockReadGuard};
use crate::sys::clock::{self, NEVER};

struct Shared<T> {
    value: RwLock<T>,
    /// Number of changes of the value. Ordering: relaxed; changes only with both locks held, and is
    /// read with either.
    version: AtomicU64,
    state: WaitCell<State>,
    closed: Closed,
}

struct State {
    sides: Sides,
}

/// The sending half of a watch channel.
///
/// It can be cloned, sent to other threads and shared. The channel is disconnected when the last
/// sender is dropped; receivers can still look at the last value.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// The receiving half of a watch channel.
///
/// It can be cloned, sent to other threads and shared. A clone has seen what this receiver has seen,
/// and goes on by itself.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// The version that was seen last. Ordering: relaxed; written with the state's lock held, read
    /// with either lock.
    seen: AtomicU64,
    /// Disconnected while there is something new. Made when it is asked for, with the
    /// channel's lock held.
    ready: OnceLock<Ready>,
}

/// The value of a watch channel, which does not change while this exists.
///
/// It is [`Send`] as a [`RwLockReadGuard`] is.
#[must_use = "it is the value"]
pub struct Ref<'a, T> {
    value: RwLockReadGuard<'a, T>,
    has_changed: bool,
}

sides::sender!("watch(0)");
sides::receiver!("watch(0)");

/// Makes a sender and a receiver, which has seen the value.
pub(super) fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        value: RwLock::new(value),
        version: AtomicU64::new(1),
        state: WaitCell::new(State {
            sides: Sides::new(),
        }),
        closed: Closed::new(),
    });
    let receiver = Receiver::new(Arc::clone(&shared), 1);
    (Sender { shared }, receiver)
}

impl<T> Shared<T> {
    fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// The value. A panic of a closure that changed it leaves it as it was then.
    fn read(&self) -> RwLockReadGuard<'_, T> {
        self.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f` with the value. If it returns true, all receivers are notified.
    fn change<R>(&self, f: impl FnOnce(&mut T) -> (bool, R)) -> R {
        let mut value = self.value.write().unwrap_or_else(PoisonError::into_inner);
        let (is_new, result) = f(&mut value);
        if !is_new {
            return result;
        }
        // Taken while the value is locked, so that all who have not seen this version are there, and
        // readied when the value is free.
        let woken = self.take_all();
        drop(value);
        drop(woken);
        result
    }

    /// Counts a change. Returns the waiters, who will see it.
    fn take_all(&self) -> Woken {
        let ctx = WaitCtx::enter();
        let mut woken = DequeuedList::new();
        let state = self.state.lock(&ctx);
        self.version.store(self.version() + 1, Ordering::Relaxed);
        woken.append(state.queue().take_all());
        state.sides.ready.raise(&ctx, &mut woken);
        drop(state);
        drop(ctx);
        Woken::new(woken)
    }

    fn add_receiver(self: &Arc<Self>, seen: Option<u64>) -> Receiver<T> {
        let seen = self.state.update(|state, ctx, woken| {
            state.sides.add_receiver(&self.closed, ctx, woken);
            seen.unwrap_or(self.version())
        });
        Receiver::new(Arc::clone(self), seen)
    }
}

impl<T> Sender<T> {
    /// Replaces the value and notifies all receivers.
    ///
    /// # Blocking
    ///
    /// Waits until no [`Ref`] is held: parks the goroutine, blocks a plain thread. If the runtime
    /// shuts down, a waiting goroutine unwinds.
    ///
    /// # Errors
    ///
    /// The value, if there is no receiver now. The channel's value does not change then;
    /// [`Sender::send_replace`] changes it.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::{SendError, watch};
    ///
    /// let (tx, rx) = watch(1);
    /// tx.send(2).unwrap();
    /// drop(rx);
    /// assert_eq!(tx.send(3), Err(SendError(3)));
    /// assert_eq!(*tx.borrow(), 2);
    /// ```
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.receiver_count() == 0 {
            note_disconnect();
            return Err(SendError(value));
        }
        drop(self.send_replace(value));
        Ok(())
    }

    /// Replaces the value, even if there is no receiver, and notifies all receivers. Returns the value
    /// before.
    ///
    /// # Blocking
    ///
    /// As [`Sender::send`].
    ///
    /// # Examples
    ///
    /// ```
    /// let (tx, _) = windlass::channel::watch(1);
    /// assert_eq!(tx.send_replace(2), 1);
    /// assert_eq!(*tx.subscribe().borrow(), 2);
    /// ```
    pub fn send_replace(&self, value: T) -> T {
        self.shared
            .change(|old| (true, std::mem::replace(old, value)))
    }

    /// Changes the value in place, even if there is no receiver, and notifies all receivers.
    ///
    /// # Blocking
    ///
    /// As [`Sender::send`].
    ///
    /// # Panics
    ///
    /// If `change` panics. The value stays as it was then, and no receiver is notified.
    ///
    /// # Examples
    ///
    /// ```
    /// let (tx, rx) = windlass::channel::watch(vec![1]);
    /// tx.send_modify(|numbers| numbers.push(2));
    /// assert_eq!(*rx.borrow(), [1, 2]);
    /// ```
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.shared.change(|value| (true, change(value)));
    }

    /// Changes the value in place, and notifies all receivers if `change` returns true. Returns the
    /// same.
    ///
    /// # Blocking
    ///
    /// As [`Sender::send`].
    ///
    /// # Panics
    ///
    /// As [`Sender::send_modify`].
    ///
    /// # Examples
    ///
    /// ```
    /// let (tx, rx) = windlass::channel::watch(5);
    /// let raise_to = |n: i32| move |value: &mut i32| {
    ///     let is_more = n > *value;
    ///     *value = n.max(*value);
    ///     is_more
    /// };
    /// assert!(!tx.send_if_modified(raise_to(3)));
    /// assert_eq!(rx.has_changed(), Ok(false));
    /// assert!(tx.send_if_modified(raise_to(7)));
    /// assert_eq!(rx.has_changed(), Ok(true));
    /// ```
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        self.shared.change(|value| {
            let is_new = change(value);
            (is_new, is_new)
        })
    }

    /// Returns the value.
    ///
    /// # Blocking
    ///
    /// As [`Receiver::borrow`].
    ///
    /// # Examples
    ///
    /// See [`Sender::send`].
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref {
            value: self.shared.read(),
            has_changed: false,
        }
    }

    /// Makes a receiver that has seen the present value.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// See [`Sender::send_replace`].
    #[must_use]
    pub fn subscribe(&self) -> Receiver<T> {
        self.shared.add_receiver(None)
    }
}

impl<T> Receiver<T> {
    fn new(shared: Arc<Shared<T>>, seen: u64) -> Receiver<T> {
        Receiver {
            shared,
            seen: AtomicU64::new(seen),
            ready: OnceLock::new(),
        }
    }

    /// Returns the value, without marking it as seen.
    ///
    /// # Blocking
    ///
    /// Waits while a sender changes the value: parks the goroutine, blocks a plain thread. If the
    /// runtime shuts down, a waiting goroutine unwinds.
    ///
    /// # Examples
    ///
    /// ```
    /// let (tx, rx) = windlass::channel::watch("a");
    /// tx.send("b").unwrap();
    /// let value = rx.borrow();
    /// assert_eq!(*value, "b");
    /// assert!(value.has_changed());
    /// # drop(value);
    /// assert_eq!(rx.has_changed(), Ok(true));
    /// ```
    pub fn borrow(&self) -> Ref<'_, T> {
        let value = self.shared.read();
        let has_changed = self.seen.load(Ordering::Relaxed) != self.shared.version();
        Ref { value, has_changed }
    }

    /// Returns the value, and marks it as seen.
    ///
    /// # Blocking
    ///
    /// As [`Receiver::borrow`].
    ///
    /// # Examples
    ///
    /// ```
    /// let (tx, rx) = windlass::channel::watch("a");
    /// tx.send("b").unwrap();
    /// assert_eq!(*rx.borrow_and_update(), "b");
    /// assert_eq!(rx.has_changed(), Ok(false));
    /// ```
    pub fn borrow_and_update(&self) -> Ref<'_, T> {
        let value = self.borrow();
        if value.has_changed {
            // The version does not change while the value is borrowed.
            self.mark_unchanged();
        }
        value
    }

    /// Marks the present value as seen. Returns whether it was not. The lock is held.
    fn see(&self, state: &State, ctx: &WaitCtx<'_>) -> bool {
        let version = self.shared.version();
        if self.seen.load(Ordering::Relaxed) == version {
            return false;
        }
        self.seen.store(version, Ordering::Relaxed);
        if state.sides.n_senders > 0
            && let Some(ready) = self.ready.get()
        {
            // Nobody is woken by that.
            ready::put(&ready.channel, false, ctx, &mut DequeuedList::new());
        }
        true
    }

    /// Marks the present value as seen.
    ///
    /// # Blocking
    ///
    /// Never.
    pub fn mark_unchanged(&self) {
        self.shared
            .state
            .update(|state, ctx, _| self.see(state, ctx));
    }

    /// Marks the present value as not seen: the next [`Receiver::changed`] returns at once.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// A first round of a loop that waits for changes:
    ///
    /// ```
    /// let (_tx, rx) = windlass::channel::watch("config");
    /// rx.mark_changed();
    /// rx.changed().unwrap();
    /// assert_eq!(*rx.borrow(), "config");
    /// ```
    pub fn mark_changed(&self) {
        self.shared.state.update(|state, ctx, woken| {
            self.seen
                .store(self.shared.version() - 1, Ordering::Relaxed);
            if let Some(ready) = self.ready.get() {
                ready::put(&ready.channel, true, ctx, woken);
            }
            // Others may wait in this receiver.
            woken.append(state.queue().take_all());
        });
    }

    /// Whether there is a value that this receiver has not seen.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// If it has seen the last value and all senders were dropped.
    ///
    /// # Examples
    ///
    /// See [`Receiver::borrow`].
    pub fn has_changed(&self) -> Result<bool, RecvError> {
        points::switch_point();
        let has_changed = self.shared.state.with(|state| {
            let has_changed = self.seen.load(Ordering::Relaxed) != self.shared.version();
            (has_changed || state.sides.n_senders > 0).then_some(has_changed)
        });
        has_changed.ok_or_else(|| {
            note_disconnect();
            RecvError
        })
    }

    /// Waits until `is_there` returns true, or all senders are gone.
    fn wait_until(
        &self,
        deadline_ns: u64,
        is_there: impl Fn(&State, &WaitCtx<'_>) -> bool,
    ) -> Result<(), Refused> {
        let poll = |state: &mut State, ctx: &WaitCtx<'_>| {
            if is_there(state, ctx) {
                Some(Ok(()))
            } else {
                (state.sides.n_senders == 0).then_some(Err(Refused::Disconnected))
            }
        };
        sides::wait(&self.shared.state, deadline_ns, poll)?.inspect_err(|_| note_disconnect())
    }

    /// Waits until there is a value that this receiver has not seen, and marks it as seen.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. If the runtime shuts down, a waiting goroutine
    /// unwinds. In a destructor that runs during this unwinding, a call that would wait fails at once.
    ///
    /// # Errors
    ///
    /// [`RecvError`] if it has seen the last value and all senders were dropped, or if the ambient
    /// [context](crate::context) ended the wait.
    ///
    /// # Examples
    ///
    /// ```
    /// let (tx, rx) = windlass::channel::watch(0);
    /// std::thread::spawn(move || (1..=3).for_each(|n| tx.send(n).unwrap()));
    /// let mut last = 0;
    /// while rx.changed().is_ok() {
    ///     last = *rx.borrow();
    /// }
    /// assert_eq!(last, 3);
    /// ```
    pub fn changed(&self) -> Result<(), RecvError> {
        self.wait_until(NEVER, |state, ctx| self.see(state, ctx))
            .map_err(|_| RecvError)
    }

    /// As [`Receiver::changed`], but waits for at most `timeout`.
    ///
    /// # Blocking
    ///
    /// As [`Receiver::changed`].
    ///
    /// # Errors
    ///
    /// [`RecvTimeoutError::Timeout`] if no new value came in time or the ambient
    /// [context](crate::context) was done, otherwise as [`Receiver::changed`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::channel::{RecvTimeoutError, watch};
    ///
    /// let (_tx, rx) = watch(0);
    /// let timeout = Duration::from_millis(1);
    /// assert_eq!(rx.changed_timeout(timeout), Err(RecvTimeoutError::Timeout));
    /// ```
    pub fn changed_timeout(&self, timeout: Duration) -> Result<(), RecvTimeoutError> {
        self.changed_until(clock::deadline_ns(timeout))
    }

    /// As [`Receiver::changed`], but waits until `deadline` at the latest.
    ///
    /// # Blocking
    ///
    /// As [`Receiver::changed`].
    ///
    /// # Errors
    ///
    /// As [`Receiver::changed_timeout`].
    pub fn changed_deadline(&self, deadline: impl Into<Instant>) -> Result<(), RecvTimeoutError> {
        let deadline = deadline.into();
        self.changed_until(clock::instant_ns(deadline))
    }

    fn changed_until(&self, deadline_ns: u64) -> Result<(), RecvTimeoutError> {
        self.wait_until(deadline_ns, |state, ctx| self.see(state, ctx))
            .map_err(timeout_error)
    }

    /// Waits until the value satisfies `condition`, and returns it, marked as seen. It is checked
    /// first as it is, seen or not.
    ///
    /// # Blocking
    ///
    /// As [`Receiver::changed`].
    ///
    /// # Errors
    ///
    /// [`RecvError`] if the last value does not satisfy it and all senders were dropped, or if the
    /// ambient [context](crate::context) ended the wait.
    ///
    /// # Panics
    ///
    /// If `condition` panics.
    ///
    /// # Examples
    ///
    /// See the [module](self).
    pub fn wait_for(&self, condition: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, RecvError> {
        self.wait_for_until(NEVER, condition).map_err(|_| RecvError)
    }

    /// As [`Receiver::wait_for`], but waits for at most `timeout`.
    ///
    /// # Blocking
    ///
    /// As [`Receiver::changed`].
    ///
    /// # Errors
    ///
    /// [`RecvTimeoutError::Timeout`] if no such value came in time or the ambient
    /// [context](crate::context) was done, otherwise as [`Receiver::wait_for`].
    ///
    /// # Panics
    ///
    /// If `condition` panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (tx, rx) = windlass::channel::watch(0);
    /// std::thread::spawn(move || tx.send(7));
    /// let seven = rx.wait_for_timeout(Duration::from_secs(3600), |n| *n == 7);
    /// assert_eq!(*seven.unwrap(), 7);
    /// ```
    pub fn wait_for_timeout(
        &self,
        timeout: Duration,
        condition: impl FnMut(&T) -> bool,
    ) -> Result<Ref<'_, T>, RecvTimeoutError> {
        self.wait_for_until(clock::deadline_ns(timeout), condition)
            .map_err(timeout_error)
    }

    fn wait_for_until(
        &self,
        deadline_ns: u64,
        mut condition: impl FnMut(&T) -> bool,
    ) -> Result<Ref<'_, T>, Refused> {
        loop {
            let value = self.borrow_and_update();
            let version = self.shared.version();
            if condition(&value) {
                return Ok(value);
            }
            drop(value);
            // Not what this receiver has seen: another caller that shares it may see a value first.
            self.wait_until(deadline_ns, |_, _| self.shared.version() != version)?;
        }
    }

    /// Returns a channel without messages that is disconnected while there is a value that this
    /// receiver has not seen, and after the senders were dropped. It is for use in a select, whose arm
    /// then calls [`Receiver::borrow_and_update`]. A clone of the returned channel that outlives the
    /// receiver is disconnected.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::channel::{after, select, watch};
    ///
    /// let (tx, rx) = watch("old");
    /// std::thread::spawn(move || tx.send("new"));
    /// select! {
    ///     recv(rx.ready()) -> _ => assert_eq!(*rx.borrow_and_update(), "new"),
    ///     recv(after(Duration::from_secs(3600))) -> _ => unreachable!(),
    /// }
    /// ```
    #[allow(clippy::missing_panics_doc, reason = "it is set before")]
    pub fn ready(&self) -> &receiver::Receiver<Infallible> {
        if let Some(ready) = self.ready.get() {
            return &ready.channel;
        }
        self.shared.state.update(|state, ctx, _| {
            if self.ready.get().is_none() {
                let is_new = self.seen.load(Ordering::Relaxed) != self.shared.version();
                let is_ready = is_new || state.sides.n_senders == 0;
                let _ = self.ready.set(state.sides.ready.add(is_ready, ctx));
            }
        });
        &self.ready.get().expect("it was set above").channel
    }
}

fn timeout_error(refused: Refused) -> RecvTimeoutError {
    match refused {
        Refused::Blocked => RecvTimeoutError::Timeout,
        Refused::Disconnected => RecvTimeoutError::Disconnected,
    }
}

impl<T> Ref<'_, T> {
    /// Whether the receiver had not seen this value before. Always false for [`Sender::borrow`].
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.has_changed
    }
}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        let seen = self.seen.load(Ordering::Relaxed);
        self.shared.add_receiver(Some(seen))
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.state.update_in_place(|state, ctx, woken| {
            let sides = &mut state.sides;
            sides.remove_receiver(self.ready.get(), &self.shared.closed, ctx, woken);
        });
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Sender<T> {
        channel(T::default()).0
    }
}

impl<T: fmt::Debug> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Display> fmt::Display for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

//! Parts that broadcast and watch channels share: the numbers of senders and receivers, how one side learns of
//! the end of the other, and the methods for that.

use std::convert::Infallible;
use std::time::Duration;

use super::core::Refused;
use super::err::{RecvTimeoutError, TryRecvError};
use super::ready::{self, Ready, ReadyList};
use super::receiver::Receiver;
use crate::g::status::Reason;
use crate::sched::wait::{current_context, points};
use crate::sync::waitlist::{WaitCell, WaitError};
use crate::sync::waitq::{DequeuedList, WaitCtx, WaitOptions};
use crate::sys::clock::NEVER;

/// Both sides of a channel. Guarded by the channel's lock.
#[derive(Debug)]
pub(super) struct Sides {
    pub(super) n_senders: usize,
    pub(super) n_receivers: usize,
    pub(super) ready: ReadyList,
}

impl Sides {
    /// One sender and one receiver.
    pub(super) fn new() -> Sides {
        Sides {
            n_senders: 1,
            n_receivers: 1,
            ready: ReadyList::default(),
        }
    }

    pub(super) fn add_receiver(
        &mut self,
        closed: &Closed,
        ctx: &WaitCtx<'_>,
        woken: &mut DequeuedList,
    ) {
        self.n_receivers += 1;
        ready::put(&closed.0, false, ctx, woken);
    }

    /// Removes a receiver, with its channel for a select. Returns whether it was the last one.
    pub(super) fn remove_receiver(
        &mut self,
        ready: Option<&Ready>,
        closed: &Closed,
        ctx: &WaitCtx<'_>,
        woken: &mut DequeuedList,
    ) -> bool {
        if let Some(ready) = ready {
            self.ready.remove(ready, ctx, woken);
        }
        self.n_receivers -= 1;
        let is_last = self.n_receivers == 0;
        if is_last {
            ready::put(&closed.0, true, ctx, woken);
        }
        is_last
    }
}

/// A channel without messages that is disconnected while there are no receivers.
#[derive(Debug)]
pub(super) struct Closed(Receiver<Infallible>);

/// Disconnects a [`Closed`] when it is dropped.
#[derive(Debug)]
pub(super) struct CloseOnDrop(Receiver<Infallible>);

impl Closed {
    pub(super) fn new() -> Closed {
        Closed(Receiver::closing(None))
    }

    /// For the only receiver of a channel.
    pub(super) fn on_drop(&self) -> CloseOnDrop {
        CloseOnDrop(self.0.clone())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// Waits until there are no receivers. A context does not end the wait.
    pub(super) fn wait(&self) {
        let Err(_) = current_context::shield(|| self.0.recv());
    }

    /// Waits until there are no receivers, or until the time limit has passed or the ambient context
    /// is done.
    pub(super) fn wait_timeout(&self, timeout: Duration) -> bool {
        match self.0.recv_timeout(timeout) {
            Ok(never) => match never {},
            Err(RecvTimeoutError::Timeout) => self.is_closed(),
            // Also the error of a wait that a context or the end of the run has ended. If neither has, the
            // last receiver has gone, and there may be another one by now.
            Err(RecvTimeoutError::Disconnected) => {
                let ended = points::is_cancelled() || current_context::check().is_err();
                !ended || self.is_closed()
            }
        }
    }

    pub(super) fn channel(&self) -> &Receiver<Infallible> {
        &self.0
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Waits until `poll` returns a value, which it is asked for now and after each change, or until the
/// deadline.
///
/// # Errors
///
/// Why there is no value. A context that ends a wait without a deadline counts as a disconnection.
pub(super) fn wait<S, R>(
    state: &WaitCell<S>,
    deadline_ns: u64,
    mut poll: impl FnMut(&mut S, &WaitCtx<'_>) -> Option<R>,
) -> Result<R, Refused> {
    points::end_if_late();
    let options = WaitOptions::new(Reason::ChanRecv)
        .until(deadline_ns)
        .by_context(true);
    loop {
        match state.wait_for(options, &mut poll) {
            Ok(found) => return Ok(found),
            Err(WaitError::CutShort) if points::cancel_point().is_ok() => {}
            Err(WaitError::CutShort) => return Err(Refused::Disconnected),
            Err(WaitError::Over(_)) if deadline_ns == NEVER => return Err(Refused::Disconnected),
            Err(_) => return Err(Refused::Blocked),
        }
    }
}

/// Implements what senders of such channels have in common, for a type `Sender` with a field `shared`
/// that has a `closed`, and a `state` with `sides`. `$new` makes a channel, for the examples.
macro_rules! sender {
    ($new:literal) => {
        impl<T> Sender<T> {
            /// Number of receivers.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = concat!("let (tx, _rx) = windlass::channel::", $new, ";")]
            /// let _another = tx.subscribe();
            /// assert_eq!((tx.receiver_count(), tx.sender_count()), (2, 1));
            /// ```
            #[must_use]
            pub fn receiver_count(&self) -> usize {
                points::switch_point();
                self.shared.state.with(|state| state.sides.n_receivers)
            }

            /// Number of senders.
            #[must_use]
            pub fn sender_count(&self) -> usize {
                points::switch_point();
                self.shared.state.with(|state| state.sides.n_senders)
            }

            /// Whether both senders belong to the same channel.
            ///
            /// ```
            #[doc = concat!("let (tx, _rx) = windlass::channel::", $new, ";")]
            /// assert!(tx.same_channel(&tx.clone()));
            /// ```
            #[must_use]
            pub fn same_channel(&self, other: &Sender<T>) -> bool {
                Arc::ptr_eq(&self.shared, &other.shared)
            }

            /// Whether there are no receivers now.
            #[must_use]
            pub fn is_closed(&self) -> bool {
                self.shared.closed.is_closed()
            }

            /// Waits until there are no receivers.
            ///
            /// # Blocking
            ///
            /// As [`oneshot::Sender::closed`](super::oneshot::Sender::closed).
            ///
            /// # Examples
            ///
            /// ```
            #[doc = concat!("let (tx, rx) = windlass::channel::", $new, ";")]
            /// std::thread::spawn(move || drop(rx));
            /// tx.closed();
            /// ```
            pub fn closed(&self) {
                self.shared.closed.wait();
            }

            /// As [`Sender::closed`], but waits for at most `timeout`. Returns whether there are no
            /// receivers.
            ///
            /// # Blocking
            ///
            /// As [`oneshot::Sender::closed_timeout`](super::oneshot::Sender::closed_timeout).
            #[must_use]
            pub fn closed_timeout(&self, timeout: Duration) -> bool {
                self.shared.closed.wait_timeout(timeout)
            }

            /// Returns a channel without messages that is disconnected while there are no receivers,
            /// for use in a select. See
            /// [`oneshot::Sender::closed_channel`](super::oneshot::Sender::closed_channel) for an
            /// example.
            #[must_use]
            pub fn closed_channel(&self) -> &receiver::Receiver<Infallible> {
                self.shared.closed.channel()
            }
        }

        impl<T> Clone for Sender<T> {
            fn clone(&self) -> Sender<T> {
                self.shared.state.with(|state| state.sides.n_senders += 1);
                Sender {
                    shared: Arc::clone(&self.shared),
                }
            }
        }

        /// Dropping the last sender disconnects the channel. The waits of receivers end, and each
        /// receives what is left.
        impl<T> Drop for Sender<T> {
            fn drop(&mut self) {
                self.shared.state.update_in_place(|state, ctx, woken| {
                    state.sides.n_senders -= 1;
                    if state.sides.n_senders == 0 {
                        woken.append(state.queue().take_all());
                        state.sides.ready.raise(ctx, woken);
                    }
                });
            }
        }

        impl<T> UnwindSafe for Sender<T> {}
        impl<T> RefUnwindSafe for Sender<T> {}

        windlass_ground::std_traits::fmt_as!([T] Debug for Sender<T>, "Sender { .. }");
    };
}
pub(super) use sender;

/// Implements what receivers of such channels have in common. See [`sender!`].
macro_rules! receiver {
    ($new:literal) => {
        impl<T> Receiver<T> {
            /// Number of senders.
            #[must_use]
            pub fn sender_count(&self) -> usize {
                points::switch_point();
                self.shared.state.with(|state| state.sides.n_senders)
            }

            /// Whether all senders were dropped. There may be something left to receive.
            #[must_use]
            pub fn is_closed(&self) -> bool {
                self.sender_count() == 0
            }

            /// Whether both receivers belong to the same channel.
            ///
            /// ```
            #[doc = concat!("let (tx, rx) = windlass::channel::", $new, ";")]
            /// assert!(rx.same_channel(&tx.subscribe()));
            /// ```
            #[must_use]
            pub fn same_channel(&self, other: &Receiver<T>) -> bool {
                Arc::ptr_eq(&self.shared, &other.shared)
            }
        }

        impl<T> UnwindSafe for Receiver<T> {}
        impl<T> RefUnwindSafe for Receiver<T> {}

        windlass_ground::std_traits::fmt_as!([T] Debug for Receiver<T>, "Receiver { .. }");
    };
}
pub(super) use receiver;

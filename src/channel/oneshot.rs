//! Channels for one message, made by [`oneshot`](super::oneshot()).
//!
//! The message goes through a bounded channel of capacity 1. A second channel, without messages, is
//! disconnected when the receiver is dropped, so that the sender can wait for that.
//!
//! ```
//! use windlass::channel::oneshot;
//!
//! # // SAFETY: nothing here keeps a thread-local across a call that parks.
//! # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
//! rt.run(|| {
//!     let (reply, answer) = oneshot();
//!     windlass::spawn(move || reply.send(6 * 7));
//!     assert_eq!(answer.recv(), Ok(42));
//! });
//! # Ok::<(), std::io::Error>(())
//! ```

use std::convert::Infallible;
use std::time::{Duration, Instant};

use windlass_ground::std_traits::fmt_as;

use super::err::{RecvError, RecvTimeoutError, TryRecvError, TrySendError};
use super::sides::{CloseOnDrop, Closed};
use super::{receiver, sender};

/// Makes both halves of those of a bounded channel of capacity 1.
pub(super) fn channel<T>(
    sender: sender::Sender<T>,
    receiver: receiver::Receiver<T>,
) -> (Sender<T>, Receiver<T>) {
    let closed = Closed::new();
    let receiver = Receiver {
        receiver,
        _closes: closed.on_drop(),
    };
    (Sender { sender, closed }, receiver)
}

/// The sending half of a oneshot channel. Sending consumes it.
///
/// Dropping it without sending disconnects the channel.
pub struct Sender<T> {
    sender: sender::Sender<T>,
    closed: Closed,
}

/// The receiving half of a oneshot channel.
///
/// Dropping it closes the channel: the sender can no longer send, and a message that was sent is
/// dropped. A clone of its [`channel`](Receiver::channel) may still receive.
pub struct Receiver<T> {
    receiver: receiver::Receiver<T>,
    /// Dropped after `receiver`: a sender that finds the channel closed cannot send, unless there is
    /// a clone of `receiver`.
    _closes: CloseOnDrop,
}

impl<T> Sender<T> {
    /// Sends the message.
    ///
    /// Success does not mean that the message will be received: the receiver may be dropped later.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// The message, if the receiver was dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::oneshot;
    ///
    /// let (tx, rx) = oneshot();
    /// drop(rx);
    /// assert_eq!(tx.send("late"), Err("late"));
    /// ```
    pub fn send(self, message: T) -> Result<(), T> {
        self.sender.try_send(message).map_err(|e| match e {
            TrySendError::Full(message) | TrySendError::Disconnected(message) => message,
        })
    }

    /// Whether the receiver was dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// let (tx, rx) = windlass::channel::oneshot::<()>();
    /// assert!(!tx.is_closed());
    /// drop(rx);
    /// assert!(tx.is_closed());
    /// ```
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.is_closed()
    }

    /// Waits until the receiver is dropped, so that work for it may end.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. If the runtime shuts down, a waiting goroutine
    /// unwinds. In a destructor that runs during this unwinding, a call that would wait returns at
    /// once. A context ends [`closed_timeout`](Sender::closed_timeout) and
    /// [`closed_context`](Sender::closed_context) only.
    ///
    /// # Examples
    ///
    /// ```
    /// let (tx, rx) = windlass::channel::oneshot::<()>();
    /// std::thread::spawn(move || drop(rx));
    /// tx.closed();
    /// ```
    pub fn closed(&self) {
        self.closed.wait();
    }

    /// As [`Sender::closed`], but waits for at most `timeout`. Returns whether the receiver was
    /// dropped.
    ///
    /// # Blocking
    ///
    /// As [`Sender::closed`]. The wait ends early, with `false`, when the ambient
    /// [context](crate::context) is done.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (tx, _rx) = windlass::channel::oneshot::<()>();
    /// assert!(!tx.closed_timeout(Duration::from_millis(1)));
    /// ```
    #[must_use]
    pub fn closed_timeout(&self, timeout: Duration) -> bool {
        self.closed.wait_timeout(timeout)
    }

    /// Returns a channel without messages that is disconnected when the receiver is dropped, for use
    /// in a select.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::channel::{after, oneshot, select};
    ///
    /// let (tx, rx) = oneshot::<u32>();
    /// std::thread::spawn(move || drop(rx));
    /// select! {
    ///     recv(tx.closed_channel()) -> _ => {} // the work is no longer wanted
    ///     recv(after(Duration::from_secs(3600))) -> _ => unreachable!(),
    /// }
    /// ```
    #[must_use]
    pub fn closed_channel(&self) -> &receiver::Receiver<Infallible> {
        self.closed.channel()
    }
}

impl<T> Receiver<T> {
    /// Receives the message, waiting until it is sent.
    ///
    /// # Blocking
    ///
    /// As [`channel::Receiver::recv`](super::Receiver::recv).
    ///
    /// # Errors
    ///
    /// [`RecvError`] if the sender was dropped without sending, if the message was received before,
    /// or if the ambient [context](crate::context) ended the wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::{RecvError, oneshot};
    ///
    /// let (tx, rx) = oneshot();
    /// tx.send(5).unwrap();
    /// assert_eq!(rx.recv(), Ok(5));
    /// assert_eq!(rx.recv(), Err(RecvError));
    /// ```
    pub fn recv(&self) -> Result<T, RecvError> {
        self.receiver.recv()
    }

    /// Receives the message if it was sent.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// [`TryRecvError::Empty`] if the message may still come, [`TryRecvError::Disconnected`] if the
    /// sender was dropped without sending, or if the message was received before.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::{TryRecvError, oneshot};
    ///
    /// let (tx, rx) = oneshot::<()>();
    /// assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
    /// drop(tx);
    /// assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
    /// ```
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.receiver.try_recv()
    }

    /// Receives the message, waiting for at most `timeout`. It may still be received after that.
    ///
    /// # Blocking
    ///
    /// As [`Receiver::recv`].
    ///
    /// # Errors
    ///
    /// [`RecvTimeoutError::Timeout`] if the message did not come in time or the ambient
    /// [context](crate::context) was done, [`RecvTimeoutError::Disconnected`] as
    /// [`Receiver::recv`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::channel::{RecvTimeoutError, oneshot};
    ///
    /// let (tx, rx) = oneshot();
    /// let timeout = Duration::from_millis(1);
    /// assert_eq!(rx.recv_timeout(timeout), Err(RecvTimeoutError::Timeout));
    /// tx.send(5).unwrap();
    /// assert_eq!(rx.recv_timeout(timeout), Ok(5));
    /// ```
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.receiver.recv_timeout(timeout)
    }

    /// Receives the message, waiting until `deadline` at the latest. Otherwise as
    /// [`Receiver::recv_timeout`].
    ///
    /// # Blocking
    ///
    /// As [`Receiver::recv`].
    ///
    /// # Errors
    ///
    /// As [`Receiver::recv_timeout`].
    pub fn recv_deadline(&self, deadline: impl Into<Instant>) -> Result<T, RecvTimeoutError> {
        self.receiver.recv_deadline(deadline)
    }

    /// Whether no message is there to be received.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }

    /// Returns the channel that the message comes through, for use in a select.
    ///
    /// A clone of it is another receiver: the message can be sent while there is one. But for
    /// [`Sender::closed`] and [`Sender::is_closed`] only this receiver counts.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::channel::{after, oneshot, select};
    ///
    /// let (tx, rx) = oneshot();
    /// std::thread::spawn(move || tx.send("done"));
    /// select! {
    ///     recv(rx.channel()) -> answer => assert_eq!(answer, Ok("done")),
    ///     recv(after(Duration::from_secs(3600))) -> _ => unreachable!(),
    /// }
    /// ```
    #[must_use]
    pub fn channel(&self) -> &receiver::Receiver<T> {
        &self.receiver
    }
}

fmt_as!([T] Debug for Sender<T>, "Sender { .. }");

fmt_as!([T] Debug for Receiver<T>, "Receiver { .. }");

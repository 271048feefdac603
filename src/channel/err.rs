//! Errors of channel operations. Names and messages are those of crossbeam-channel.

use std::error::Error;

use windlass_ground::std_traits::fmt_as;

/// Error of [`Sender::send`](super::Sender::send): all receivers were dropped.
///
/// It holds the message that was not sent: see [`SendError::into_inner`].
///
/// # Examples
///
/// ```
/// use windlass::channel::{SendError, bounded};
///
/// let (s, r) = bounded(1);
/// drop(r);
/// assert_eq!(s.send("late"), Err(SendError("late")));
/// ```
#[derive(PartialEq, Eq, Clone, Copy)]
pub struct SendError<T>(pub T);

/// Error of [`Sender::try_send`](super::Sender::try_send), with the message that was not sent.
///
/// # Examples
///
/// ```
/// use windlass::channel::bounded;
///
/// let (s, r) = bounded(1);
/// s.send(1).unwrap();
/// assert!(s.try_send(2).unwrap_err().is_full());
/// drop(r);
/// assert!(s.try_send(2).unwrap_err().is_disconnected());
/// ```
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum TrySendError<T> {
    /// The channel is full, or its capacity is 0 and no receiver is waiting.
    Full(T),
    /// All receivers were dropped.
    Disconnected(T),
}

/// Error of [`Sender::send_timeout`](super::Sender::send_timeout) and
/// [`Sender::send_deadline`](super::Sender::send_deadline), with the message that was not sent.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use windlass::channel::bounded;
///
/// let (s, r) = bounded(0);
/// let timeout = Duration::from_millis(1);
/// assert!(s.send_timeout("foo", timeout).unwrap_err().is_timeout());
/// drop(r);
/// assert!(s.send_timeout("foo", timeout).unwrap_err().is_disconnected());
/// ```
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum SendTimeoutError<T> {
    /// The channel stayed full, or its capacity is 0 and no receiver took the message in time.
    Timeout(T),
    /// All receivers were dropped.
    Disconnected(T),
}

/// Error of [`Receiver::recv`](super::Receiver::recv): the channel is empty and all senders were
/// dropped, so no message will ever come.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct RecvError;

/// Error of [`Receiver::try_recv`](super::Receiver::try_recv).
///
/// # Examples
///
/// ```
/// let (s, r) = windlass::channel::unbounded::<i32>();
/// assert!(r.try_recv().unwrap_err().is_empty());
/// drop(s);
/// assert!(r.try_recv().unwrap_err().is_disconnected());
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum TryRecvError {
    /// The channel is empty, or its capacity is 0 and no sender is waiting.
    Empty,
    /// The channel is empty and all senders were dropped.
    Disconnected,
}

/// Error of [`Receiver::recv_timeout`](super::Receiver::recv_timeout) and
/// [`Receiver::recv_deadline`](super::Receiver::recv_deadline).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// let (s, r) = windlass::channel::unbounded::<i32>();
/// let timeout = Duration::from_millis(1);
/// assert!(r.recv_timeout(timeout).unwrap_err().is_timeout());
/// drop(s);
/// assert!(r.recv_timeout(timeout).unwrap_err().is_disconnected());
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum RecvTimeoutError {
    /// No message came in time.
    Timeout,
    /// The channel is empty and all senders were dropped.
    Disconnected,
}

/// Error of [`Select::try_select`](super::Select::try_select): every operation would wait.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct TrySelectError;

/// Error of [`Select::select_timeout`](super::Select::select_timeout) and
/// [`Select::select_deadline`](super::Select::select_deadline): no operation became possible in
/// time.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct SelectTimeoutError;

/// Error of [`Select::try_ready`](super::Select::try_ready): no operation is ready.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct TryReadyError;

/// Error of [`Select::ready_timeout`](super::Select::ready_timeout) and
/// [`Select::ready_deadline`](super::Select::ready_deadline): no operation became ready in time.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct ReadyTimeoutError;

impl<T> SendError<T> {
    /// Returns the message that was not sent.
    ///
    /// ```
    /// let (s, r) = windlass::channel::unbounded();
    /// drop(r);
    /// assert_eq!(s.send("foo").unwrap_err().into_inner(), "foo");
    /// ```
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> TrySendError<T> {
    /// Returns the message that was not sent.
    ///
    /// ```
    /// let (s, _r) = windlass::channel::bounded(0);
    /// assert_eq!(s.try_send("foo").unwrap_err().into_inner(), "foo");
    /// ```
    pub fn into_inner(self) -> T {
        match self {
            TrySendError::Full(msg) | TrySendError::Disconnected(msg) => msg,
        }
    }

    /// Whether the channel was full. See [`TrySendError`] for an example.
    pub fn is_full(&self) -> bool {
        matches!(self, TrySendError::Full(_))
    }

    /// Whether all receivers were dropped.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, TrySendError::Disconnected(_))
    }
}

impl<T> SendTimeoutError<T> {
    /// Returns the message that was not sent.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (s, _r) = windlass::channel::bounded(0);
    /// let error = s.send_timeout("foo", Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error.into_inner(), "foo");
    /// ```
    pub fn into_inner(self) -> T {
        match self {
            SendTimeoutError::Timeout(msg) | SendTimeoutError::Disconnected(msg) => msg,
        }
    }

    /// Whether the time limit passed.
    pub fn is_timeout(&self) -> bool {
        matches!(self, SendTimeoutError::Timeout(_))
    }

    /// Whether all receivers were dropped.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, SendTimeoutError::Disconnected(_))
    }
}

impl TryRecvError {
    /// Whether the channel was empty.
    pub fn is_empty(&self) -> bool {
        matches!(self, TryRecvError::Empty)
    }

    /// Whether the channel was empty and all senders were dropped.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, TryRecvError::Disconnected)
    }
}

impl RecvTimeoutError {
    /// Whether the time limit passed.
    pub fn is_timeout(&self) -> bool {
        matches!(self, RecvTimeoutError::Timeout)
    }

    /// Whether the channel was empty and all senders were dropped.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, RecvTimeoutError::Disconnected)
    }
}

impl<T> From<SendError<T>> for TrySendError<T> {
    fn from(error: SendError<T>) -> TrySendError<T> {
        TrySendError::Disconnected(error.0)
    }
}

impl<T> From<SendError<T>> for SendTimeoutError<T> {
    fn from(error: SendError<T>) -> SendTimeoutError<T> {
        SendTimeoutError::Disconnected(error.0)
    }
}

impl From<RecvError> for TryRecvError {
    fn from(_: RecvError) -> TryRecvError {
        TryRecvError::Disconnected
    }
}

impl From<RecvError> for RecvTimeoutError {
    fn from(_: RecvError) -> RecvTimeoutError {
        RecvTimeoutError::Disconnected
    }
}

// Implemented by hand: a derived Debug would require `T: Debug`.

fmt_as!([T] Debug for SendError<T>, "SendError(..)");

fmt_as!([T] Debug for TrySendError<T>, |this| match this {
    TrySendError::Full(_) => "Full(..)",
    TrySendError::Disconnected(_) => "Disconnected(..)",
});

fmt_as!([T] Debug for SendTimeoutError<T>, "SendTimeoutError(..)");

const TO_NOBODY: &str = "sending on a disconnected channel";
const FROM_NOBODY: &str = "receiving on an empty and disconnected channel";

fmt_as!([T] Display for SendError<T>, TO_NOBODY);

fmt_as!([T] Display for TrySendError<T>, |this| match this {
    TrySendError::Full(_) => "sending on a full channel",
    TrySendError::Disconnected(_) => TO_NOBODY,
});

fmt_as!([T] Display for SendTimeoutError<T>, |this| match this {
    SendTimeoutError::Timeout(_) => "timed out waiting on send operation",
    SendTimeoutError::Disconnected(_) => TO_NOBODY,
});

fmt_as!(Display for RecvError, FROM_NOBODY);

fmt_as!(Display for TryRecvError, |this| match this {
    TryRecvError::Empty => "receiving on an empty channel",
    TryRecvError::Disconnected => FROM_NOBODY,
});

fmt_as!(Display for RecvTimeoutError, |this| match this {
    RecvTimeoutError::Timeout => "timed out waiting on receive operation",
    RecvTimeoutError::Disconnected => "channel is empty and disconnected",
});

fmt_as!(Display for TrySelectError, "all operations in select would block");

fmt_as!(Display for SelectTimeoutError, "timed out waiting on select");

impl<T: Send> Error for SendError<T> {}
impl<T: Send> Error for TrySendError<T> {}
impl<T: Send> Error for SendTimeoutError<T> {}
impl Error for RecvError {}
impl Error for TryRecvError {}
impl Error for RecvTimeoutError {}
impl Error for TrySelectError {}
impl Error for SelectTimeoutError {}

//! What can go wrong with a channel. Names and texts are crossbeam-channel's.

use std::error::Error;
use std::fmt;

/// The message could not be sent, because all receivers are gone.
///
/// It holds the message, see [`SendError::into_inner`].
#[derive(PartialEq, Eq, Clone, Copy)]
pub struct SendError<T>(pub T);

/// Why [`Sender::try_send`](super::Sender::try_send) gave the message back.
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum TrySendError<T> {
    /// The channel is full, or of capacity 0 and no receiver waits.
    Full(T),
    /// All receivers are gone.
    Disconnected(T),
}

/// Why [`Sender::send_timeout`](super::Sender::send_timeout) gave the message back.
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum SendTimeoutError<T> {
    /// The channel stayed full.
    Timeout(T),
    /// All receivers are gone.
    Disconnected(T),
}

/// No message will come any more: the channel is empty and all senders are gone.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct RecvError;

/// Why [`Receiver::try_recv`](super::Receiver::try_recv) gave no message.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum TryRecvError {
    /// The channel is empty, or of capacity 0 and no sender waits.
    Empty,
    /// The channel is empty and all senders are gone.
    Disconnected,
}

/// Why [`Receiver::recv_timeout`](super::Receiver::recv_timeout) gave no message.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum RecvTimeoutError {
    /// The channel stayed empty.
    Timeout,
    /// The channel is empty and all senders are gone.
    Disconnected,
}

/// None of the operations of a select can go ahead.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct TrySelectError;

/// None of the operations of a select could go ahead in time.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct SelectTimeoutError;

/// None of the operations is ready.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct TryReadyError;

/// None of the operations became ready in time.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct ReadyTimeoutError;

impl<T> SendError<T> {
    /// The message.
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
    /// The message.
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

    /// Whether the channel was full.
    pub fn is_full(&self) -> bool {
        matches!(self, TrySendError::Full(_))
    }

    /// Whether all receivers were gone.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, TrySendError::Disconnected(_))
    }
}

impl<T> SendTimeoutError<T> {
    /// The message.
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

    /// Whether the time was up.
    pub fn is_timeout(&self) -> bool {
        matches!(self, SendTimeoutError::Timeout(_))
    }

    /// Whether all receivers were gone.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, SendTimeoutError::Disconnected(_))
    }
}

impl TryRecvError {
    /// Whether the channel was empty.
    pub fn is_empty(&self) -> bool {
        matches!(self, TryRecvError::Empty)
    }

    /// Whether all senders were gone.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, TryRecvError::Disconnected)
    }
}

impl RecvTimeoutError {
    /// Whether the time was up.
    pub fn is_timeout(&self) -> bool {
        matches!(self, RecvTimeoutError::Timeout)
    }

    /// Whether all senders were gone.
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

// The message need not be Debug.

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("SendError(..)")
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            TrySendError::Full(_) => "Full(..)",
            TrySendError::Disconnected(_) => "Disconnected(..)",
        })
    }
}

impl<T> fmt::Debug for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("SendTimeoutError(..)")
    }
}

const TO_NOBODY: &str = "sending on a disconnected channel";
const FROM_NOBODY: &str = "receiving on an empty and disconnected channel";

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(TO_NOBODY)
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            TrySendError::Full(_) => "sending on a full channel",
            TrySendError::Disconnected(_) => TO_NOBODY,
        })
    }
}

impl<T> fmt::Display for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            SendTimeoutError::Timeout(_) => "timed out waiting on send operation",
            SendTimeoutError::Disconnected(_) => TO_NOBODY,
        })
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(FROM_NOBODY)
    }
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            TryRecvError::Empty => "receiving on an empty channel",
            TryRecvError::Disconnected => FROM_NOBODY,
        })
    }
}

impl fmt::Display for RecvTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            RecvTimeoutError::Timeout => "timed out waiting on receive operation",
            RecvTimeoutError::Disconnected => "channel is empty and disconnected",
        })
    }
}

impl fmt::Display for TrySelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("all operations in select would block")
    }
}

impl fmt::Display for SelectTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("timed out waiting on select")
    }
}

impl<T: Send> Error for SendError<T> {}
impl<T: Send> Error for TrySendError<T> {}
impl<T: Send> Error for SendTimeoutError<T> {}
impl Error for RecvError {}
impl Error for TryRecvError {}
impl Error for RecvTimeoutError {}
impl Error for TrySelectError {}
impl Error for SelectTimeoutError {}

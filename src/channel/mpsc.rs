//! The names of `std::sync::mpsc`, over the [channels](crate::channel) of windlass.
//!
//! A port changes `use std::sync::mpsc` to `use windlass::sync::mpsc`. The errors are `std`'s. New
//! code better uses [those](crate::channel): their receivers can be cloned, and they have `select!`.
//! [`Sender`], [`SyncSender`] and [`Receiver`] are converted from and to theirs with `From`.
//!
//! # Examples
//!
//! ```
//! use windlass::sync::mpsc;
//!
//! # // SAFETY: nothing here keeps a thread-local across a call that parks.
//! # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
//! rt.run(|| {
//!     let (sender, receiver) = mpsc::sync_channel(1);
//!     for n in 1..=3 {
//!         let sender = sender.clone();
//!         windlass::spawn(move || sender.send(n).unwrap());
//!     }
//!     drop(sender);
//!     assert_eq!(receiver.iter().sum::<i32>(), 6);
//! });
//! # Ok::<(), std::io::Error>(())
//! ```

use std::time::Duration;

use windlass_ground::std_traits::fmt_as;

use crate::channel;

pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

/// Creates a channel without a capacity limit, as [`channel::unbounded`].
///
/// # Examples
///
/// ```
/// let (sender, receiver) = windlass::sync::mpsc::channel();
/// std::thread::spawn(move || sender.send(20).unwrap());
/// assert_eq!(receiver.recv(), Ok(20));
/// ```
#[must_use]
#[track_caller]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = channel::unbounded();
    (Sender(sender), Receiver(receiver))
}

/// Creates a channel that holds at most `bound` messages, as [`channel::bounded`]. With a bound of 0
/// a sender waits until the receiver takes the message.
///
/// # Panics
///
/// If a buffer of `bound` messages does not fit into the address space.
///
/// # Examples
///
/// ```
/// let (sender, receiver) = windlass::sync::mpsc::sync_channel(0);
/// std::thread::spawn(move || sender.send("met").unwrap());
/// assert_eq!(receiver.recv(), Ok("met"));
/// ```
#[must_use]
#[track_caller]
pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    let (sender, receiver) = channel::bounded(bound);
    (SyncSender(sender), Receiver(receiver))
}

/// The sending half of [`channel`](channel()).
pub struct Sender<T>(channel::Sender<T>);

impl<T> Sender<T> {
    /// Sends a message.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// The message, if the receiver was dropped.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        self.0.send(message).map_err(|e| SendError(e.0))
    }
}

/// The sending half of [`sync_channel`].
pub struct SyncSender<T>(channel::Sender<T>);

impl<T> SyncSender<T> {
    /// Sends a message.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine while the channel is full; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// The message, if the receiver was dropped.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        self.0.send(message).map_err(|e| SendError(e.0))
    }

    /// Sends a message if that needs no wait.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// The message, if the channel is full or the receiver was dropped.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        self.0.try_send(message).map_err(|e| match e {
            channel::TrySendError::Full(message) => TrySendError::Full(message),
            channel::TrySendError::Disconnected(message) => TrySendError::Disconnected(message),
        })
    }
}

macro_rules! sender {
    ($type:ident) => {
        impl<T> Clone for $type<T> {
            fn clone(&self) -> $type<T> {
                $type(self.0.clone())
            }
        }

        fmt_as!([T] Debug for $type<T>, concat!(stringify!($type), " { .. }"));

        impl<T> From<channel::Sender<T>> for $type<T> {
            fn from(sender: channel::Sender<T>) -> $type<T> {
                $type(sender)
            }
        }

        impl<T> From<$type<T>> for channel::Sender<T> {
            fn from(sender: $type<T>) -> channel::Sender<T> {
                sender.0
            }
        }
    };
}

sender!(Sender);
sender!(SyncSender);

/// The receiving half of a channel. It cannot be cloned.
pub struct Receiver<T>(channel::Receiver<T>);

impl<T> Receiver<T> {
    /// Waits for a message.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until a message comes; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// The channel is empty, and all senders were dropped.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.0.recv().map_err(|channel::RecvError| RecvError)
    }

    /// Takes a message if there is one.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// There is none, or there will be none any more.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.0.try_recv().map_err(|e| match e {
            channel::TryRecvError::Empty => TryRecvError::Empty,
            channel::TryRecvError::Disconnected => TryRecvError::Disconnected,
        })
    }

    /// Waits for a message, but for at most `timeout`.
    ///
    /// # Blocking
    ///
    /// As [`recv`](Receiver::recv).
    ///
    /// # Errors
    ///
    /// None came in time, or there will be none any more.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.0.recv_timeout(timeout).map_err(|e| match e {
            channel::RecvTimeoutError::Timeout => RecvTimeoutError::Timeout,
            channel::RecvTimeoutError::Disconnected => RecvTimeoutError::Disconnected,
        })
    }

    /// Returns an iterator over the messages. It waits for each of them.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, T> {
        Iter(self.0.iter())
    }

    /// Returns an iterator over the messages that are there. It does not wait.
    #[must_use]
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter(self.0.try_iter())
    }
}

fmt_as!([T] Debug for Receiver<T>, "Receiver { .. }");

impl<T> From<channel::Receiver<T>> for Receiver<T> {
    fn from(receiver: channel::Receiver<T>) -> Receiver<T> {
        Receiver(receiver)
    }
}

impl<T> From<Receiver<T>> for channel::Receiver<T> {
    fn from(receiver: Receiver<T>) -> channel::Receiver<T> {
        receiver.0
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter(self.0.into_iter())
    }
}

/// The messages of a borrowed [`Receiver`], as they come.
#[derive(Debug)]
pub struct Iter<'a, T>(channel::Iter<'a, T>);

/// The messages that a [`Receiver`] has.
#[derive(Debug)]
pub struct TryIter<'a, T>(channel::TryIter<'a, T>);

/// The messages of an owned [`Receiver`], as they come.
#[derive(Debug)]
pub struct IntoIter<T>(channel::IntoIter<T>);

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.next()
    }
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.next()
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.next()
    }
}

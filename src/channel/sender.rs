//! The sending half of a channel.
#![allow(unsafe_code)]

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use windlass_ground::std_traits::fmt_as;

use super::chan::{Chan, note_disconnect};
use super::core::{Refused, Side};
use super::err::{SendError, SendTimeoutError, TrySendError};
use crate::sched::wait::points;
use crate::sync::tag::{self, Tag};
use crate::sys::clock::{self, NEVER};

/// The sending half of a channel.
///
/// It can be cloned, sent to other threads and shared. The channel is disconnected when the last
/// sender is dropped.
///
/// # Examples
///
/// ```
/// use windlass::channel::unbounded;
///
/// let (s1, r) = unbounded();
/// let s2 = s1.clone();
/// std::thread::spawn(move || s1.send(1).unwrap());
/// std::thread::spawn(move || s2.send(2).unwrap());
/// assert_eq!(r.recv().unwrap() + r.recv().unwrap(), 3);
/// ```
pub struct Sender<T> {
    chan: NonNull<Chan<T>>,
    tag: Tag,
}

// SAFETY: a channel may be used from any thread; messages are sent to other threads, so T is Send.
unsafe impl<T: Send> Send for Sender<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Sender<T> {}

impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}

impl<T> Sender<T> {
    /// Wraps a handle that the channel has already counted.
    pub(super) fn new(chan: NonNull<Chan<T>>, name: usize) -> Sender<T> {
        Sender {
            chan,
            tag: Tag::new(tag::Handle::Sender, name),
        }
    }

    #[inline]
    pub(super) fn chan(&self) -> &Chan<T> {
        // SAFETY: the channel is freed only after its last handle was dropped.
        unsafe { self.chan.as_ref() }
    }

    /// Sends a message if that is possible without waiting.
    ///
    /// In a channel of capacity 0 this succeeds only while a receiver is waiting.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// [`TrySendError::Full`] if the channel is full, [`TrySendError::Disconnected`] if all
    /// receivers were dropped. Both hold the message.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::{TrySendError, bounded};
    ///
    /// let (s, r) = bounded(1);
    /// assert_eq!(s.try_send(1), Ok(()));
    /// assert_eq!(s.try_send(2), Err(TrySendError::Full(2)));
    /// drop(r);
    /// assert_eq!(s.try_send(3), Err(TrySendError::Disconnected(3)));
    /// ```
    #[inline]
    pub fn try_send(&self, msg: T) -> Result<(), TrySendError<T>> {
        points::end_if_late();
        self.chan().try_send(msg).map_err(|(msg, why)| match why {
            Refused::Blocked => TrySendError::Full(msg),
            Refused::Disconnected => {
                note_disconnect();
                TrySendError::Disconnected(msg)
            }
        })
    }

    /// Sends a message, waiting while the channel is full.
    ///
    /// In a channel of capacity 0 it waits until a receiver takes the message.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. If the runtime shuts down, a waiting goroutine
    /// unwinds and the message is dropped. In a destructor that runs during this unwinding, a send
    /// that would wait fails at once.
    ///
    /// # Errors
    ///
    /// [`SendError`] with the message, if all receivers were dropped or the ambient
    /// [context](crate::context) ended the wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::{SendError, bounded};
    ///
    /// let (s, r) = bounded(1);
    /// s.send(1).unwrap();
    /// let sender = std::thread::spawn(move || {
    ///     s.send(2).unwrap();
    ///     s.send(3)
    /// });
    /// assert_eq!(r.recv(), Ok(1));
    /// assert_eq!(r.recv(), Ok(2));
    /// drop(r);
    /// // The receiver was dropped before the third send, or after it.
    /// assert!(matches!(sender.join().unwrap(), Ok(()) | Err(SendError(3))));
    /// ```
    #[inline]
    pub fn send(&self, msg: T) -> Result<(), SendError<T>> {
        self.chan().send(msg, NEVER).map_err(|(msg, _)| {
            note_disconnect();
            SendError(msg)
        })
    }

    /// Sends a message, waiting for at most `timeout`.
    ///
    /// # Blocking
    ///
    /// As [`Sender::send`].
    ///
    /// # Errors
    ///
    /// [`SendTimeoutError::Timeout`] if the time limit passed or the ambient
    /// [context](crate::context) was done, [`SendTimeoutError::Disconnected`] if all receivers were
    /// dropped. Both hold the message.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::channel::{SendTimeoutError, bounded};
    ///
    /// let (s, r) = bounded(0);
    /// let timeout = Duration::from_millis(5);
    /// assert_eq!(s.send_timeout(1, timeout), Err(SendTimeoutError::Timeout(1)));
    /// drop(r);
    /// assert_eq!(s.send_timeout(2, timeout), Err(SendTimeoutError::Disconnected(2)));
    /// ```
    pub fn send_timeout(&self, msg: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.send_until(msg, clock::deadline_ns(timeout))
    }

    /// Sends a message, waiting until `deadline` at the latest.
    ///
    /// # Blocking
    ///
    /// As [`Sender::send`].
    ///
    /// # Errors
    ///
    /// As [`Sender::send_timeout`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use windlass::channel::{SendTimeoutError, bounded};
    ///
    /// let (s, _r) = bounded(0);
    /// let deadline = Instant::now() + Duration::from_millis(5);
    /// assert_eq!(s.send_deadline(1, deadline), Err(SendTimeoutError::Timeout(1)));
    /// ```
    pub fn send_deadline(
        &self,
        msg: T,
        deadline: impl Into<Instant>,
    ) -> Result<(), SendTimeoutError<T>> {
        let deadline = deadline.into();
        self.send_until(msg, clock::instant_ns(deadline))
    }

    fn send_until(&self, msg: T, deadline_ns: u64) -> Result<(), SendTimeoutError<T>> {
        points::end_if_late();
        self.chan()
            .send(msg, deadline_ns)
            .map_err(|(msg, why)| match why {
                Refused::Blocked => SendTimeoutError::Timeout(msg),
                Refused::Disconnected => {
                    note_disconnect();
                    SendTimeoutError::Disconnected(msg)
                }
            })
    }

    /// Whether the channel holds no message. Always true for capacity 0.
    ///
    /// ```
    /// let (s, _r) = windlass::channel::unbounded();
    /// assert!(s.is_empty());
    /// s.send(0).unwrap();
    /// assert!(!s.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the channel is full. Always true for capacity 0.
    ///
    /// ```
    /// let (s, _r) = windlass::channel::bounded(1);
    /// assert!(!s.is_full());
    /// s.send(0).unwrap();
    /// assert!(s.is_full());
    /// ```
    pub fn is_full(&self) -> bool {
        points::switch_point();
        self.chan().is_full()
    }

    /// Number of messages in the channel.
    ///
    /// ```
    /// let (s, _r) = windlass::channel::unbounded();
    /// s.send(1).unwrap();
    /// s.send(2).unwrap();
    /// assert_eq!(s.len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        points::switch_point();
        self.chan().len()
    }

    /// Maximum number of messages in the channel; `None` if it is unbounded.
    ///
    /// ```
    /// use windlass::channel::{bounded, unbounded};
    ///
    /// assert_eq!(unbounded::<i32>().0.capacity(), None);
    /// assert_eq!(bounded::<i32>(5).0.capacity(), Some(5));
    /// ```
    pub fn capacity(&self) -> Option<usize> {
        self.chan().capacity()
    }

    /// Whether both senders belong to the same channel.
    ///
    /// ```
    /// use windlass::channel::unbounded;
    ///
    /// let (s, _r) = unbounded::<i32>();
    /// assert!(s.same_channel(&s.clone()));
    /// assert!(!s.same_channel(&unbounded().0));
    /// ```
    pub fn same_channel(&self, other: &Sender<T>) -> bool {
        self.chan == other.chan
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.chan().acquire(Side::Send);
        Sender {
            chan: self.chan,
            tag: self.tag.clone(),
        }
    }
}

/// Dropping the last sender disconnects the channel: waiting receivers return with an error.
impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // SAFETY: this handle was counted, and is not used again.
        unsafe { Chan::release(self.chan, Side::Send) };
    }
}

fmt_as!([T] Debug for Sender<T>, "Sender { .. }");

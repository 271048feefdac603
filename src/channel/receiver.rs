//! The receiving half of a channel, and its iterators.
#![allow(unsafe_code)]

use std::convert::Infallible;
use std::mem;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use windlass_ground::std_traits::fmt_as;

use super::alarm::{Alarm, Then};
use super::chan::{Chan, note_disconnect};
use super::core::{Refused, Side};
use super::err::{RecvError, RecvTimeoutError, TryRecvError};
use super::iter::iterators;
use super::timer::{self, At, Tick};
use crate::instant::Instant;
use crate::sched::wait::points;
use crate::sync::tag::{self, Tag};
use crate::sys::clock::{self, NEVER};

/// The receiving half of a channel.
///
/// It can be cloned, sent to other threads and shared. Each message is delivered to exactly one
/// receiver. The channel is disconnected when the last receiver is dropped.
///
/// # Examples
///
/// ```
/// use windlass::channel::unbounded;
///
/// let (s, r) = unbounded();
/// std::thread::spawn(move || {
///     let _ = s.send(1);
///     let _ = s.send(2);
/// });
/// assert_eq!(r.recv(), Ok(1));
/// assert_eq!(r.recv(), Ok(2));
/// assert!(r.recv().is_err());
/// ```
pub struct Receiver<T> {
    pub(super) source: Source<T>,
    tag: Tag,
}

/// Source of a receiver's messages.
pub(super) enum Source<T> {
    Senders(NonNull<Chan<T>>),
    // T is `Instant` in the next three.
    At(Arc<At>),
    Tick(Arc<Tick>),
    Alarm(Arc<Alarm>),
    Never,
}

// SAFETY: a channel may be used from any thread; messages come from other threads, so T is Send.
unsafe impl<T: Send> Send for Receiver<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Receiver<T> {}

impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

impl Receiver<Instant> {
    pub(super) fn at(when: std::time::Instant) -> Receiver<Instant> {
        Receiver {
            source: Source::At(Arc::new(At::new(when))),
            tag: Tag::NONE,
        }
    }

    pub(super) fn tick(start: std::time::Instant, period: Duration) -> Receiver<Instant> {
        Receiver {
            source: Source::Tick(Arc::new(Tick::new(start, period))),
            tag: Tag::NONE,
        }
    }

    /// Creates an alarm and a receiver of its messages.
    pub(crate) fn alarm(
        when: Option<std::time::Instant>,
        then: Then,
    ) -> (Arc<Alarm>, Receiver<Instant>) {
        let alarm = Arc::new(Alarm::new(when, then));
        let source = Source::Alarm(Arc::clone(&alarm));
        let receiver = Receiver {
            source,
            tag: Tag::NONE,
        };
        (alarm, receiver)
    }
}

impl Receiver<Infallible> {
    /// Creates a channel without messages that is disconnected by [`Receiver::close`], or at
    /// `when`.
    pub(crate) fn closing(when: Option<std::time::Instant>) -> Receiver<Infallible> {
        Receiver {
            source: Source::Alarm(Arc::new(Alarm::new(when, Then::Close))),
            tag: Tag::NONE,
        }
    }

    /// The alarm of a channel made by [`Receiver::closing`].
    pub(super) fn alarm(&self) -> Option<&Arc<Alarm>> {
        match &self.source {
            Source::Alarm(alarm) => Some(alarm),
            _ => None,
        }
    }

    /// Disconnects a channel made by [`Receiver::closing`].
    pub(crate) fn close(&self) {
        if let Some(alarm) = self.alarm() {
            alarm.close();
        }
    }
}

/// Converts the message of a time channel to `T`, which is `Instant`.
#[inline]
pub(super) fn from_instant<T>(instant: std::time::Instant) -> T {
    let instant: Instant = instant.into();
    assert!(size_of::<T>() == size_of::<Instant>(), "T is Instant");
    // SAFETY: only `Receiver::<Instant>` makes `At`, `Tick` and alarms with messages, so T is
    // Instant.
    unsafe { mem::transmute_copy(&instant) }
}

impl<T> Receiver<T> {
    pub(super) const fn never() -> Receiver<T> {
        Receiver {
            source: Source::Never,
            tag: Tag::NONE,
        }
    }

    /// Wraps a handle that the channel has already counted.
    pub(super) fn new(chan: NonNull<Chan<T>>, name: usize) -> Receiver<T> {
        Receiver {
            source: Source::Senders(chan),
            tag: Tag::new(tag::Handle::Receiver, name),
        }
    }

    /// The channel; `None` for a time channel.
    #[inline]
    pub(super) fn chan(&self) -> Option<&Chan<T>> {
        match &self.source {
            // SAFETY: the channel is freed only after its last handle was dropped.
            Source::Senders(chan) => Some(unsafe { chan.as_ref() }),
            _ => None,
        }
    }

    /// Receives a message if that is possible without waiting.
    ///
    /// In a channel of capacity 0 this succeeds only while a sender is waiting.
    ///
    /// # Blocking
    ///
    /// Never, with one exception: if the waiting sender is a [`Select`](super::Select) or
    /// [`select!`](crate::select!), the call waits until the select has produced its message.
    ///
    /// # Errors
    ///
    /// [`TryRecvError::Empty`] if there is no message, [`TryRecvError::Disconnected`] if the
    /// channel is empty and all senders were dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::{TryRecvError, unbounded};
    ///
    /// let (s, r) = unbounded();
    /// assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
    /// s.send(5).unwrap();
    /// drop(s);
    /// assert_eq!(r.try_recv(), Ok(5));
    /// assert_eq!(r.try_recv(), Err(TryRecvError::Disconnected));
    /// ```
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        match &self.source {
            Source::Senders(_) => points::end_if_late(),
            _ => points::switch_point(),
        }
        let received = match &self.source {
            // SAFETY: the channel lives while it has handles.
            Source::Senders(chan) => unsafe { chan.as_ref() }.try_recv(NEVER),
            Source::At(at) => at.try_recv().map(from_instant),
            Source::Tick(tick) => tick.try_recv().map(from_instant),
            Source::Alarm(alarm) => alarm.try_recv().map(from_instant),
            Source::Never => Err(Refused::Blocked),
        };
        received.map_err(|why| match why {
            Refused::Blocked => TryRecvError::Empty,
            Refused::Disconnected => {
                note_disconnect();
                TryRecvError::Disconnected
            }
        })
    }

    /// Receives a message, waiting while the channel is empty.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. If the runtime shuts down, a waiting goroutine
    /// unwinds. In a destructor that runs during this unwinding, a receive that would wait fails at
    /// once.
    ///
    /// # Errors
    ///
    /// [`RecvError`] if the channel is empty and all senders were dropped, or if the ambient
    /// [context](crate::context) ended the wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::{RecvError, unbounded};
    ///
    /// let (s, r) = unbounded();
    /// std::thread::spawn(move || s.send(5).unwrap());
    /// assert_eq!(r.recv(), Ok(5));
    /// assert_eq!(r.recv(), Err(RecvError));
    /// ```
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.recv_until(NEVER).map_err(|_| {
            note_disconnect();
            RecvError
        })
    }

    /// Receives a message, waiting for at most `timeout`.
    ///
    /// # Blocking
    ///
    /// As [`Receiver::recv`].
    ///
    /// # Errors
    ///
    /// [`RecvTimeoutError::Timeout`] if no message came in time or the ambient
    /// [context](crate::context) was done, [`RecvTimeoutError::Disconnected`] if the channel is
    /// empty and all senders were dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::channel::{RecvTimeoutError, unbounded};
    ///
    /// let (s, r) = unbounded::<i32>();
    /// let timeout = Duration::from_millis(5);
    /// assert_eq!(r.recv_timeout(timeout), Err(RecvTimeoutError::Timeout));
    /// drop(s);
    /// assert_eq!(r.recv_timeout(timeout), Err(RecvTimeoutError::Disconnected));
    /// ```
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.recv_until(clock::deadline_ns(timeout))
            .map_err(timeout_error)
    }

    /// Receives a message, waiting until `deadline` at the latest.
    ///
    /// # Blocking
    ///
    /// As [`Receiver::recv`].
    ///
    /// # Errors
    ///
    /// As [`Receiver::recv_timeout`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::time::{Duration, Instant};
    /// use windlass::channel::{RecvTimeoutError, unbounded};
    ///
    /// let (_s, r) = unbounded::<i32>();
    /// let deadline = Instant::now() + Duration::from_millis(5);
    /// assert_eq!(r.recv_deadline(deadline), Err(RecvTimeoutError::Timeout));
    /// ```
    pub fn recv_deadline(
        &self,
        deadline: impl Into<std::time::Instant>,
    ) -> Result<T, RecvTimeoutError> {
        let deadline = deadline.into();
        self.recv_until(clock::instant_ns(deadline))
            .map_err(timeout_error)
    }

    #[inline]
    fn recv_until(&self, deadline_ns: u64) -> Result<T, Refused> {
        points::end_if_late();
        match &self.source {
            // SAFETY: the channel lives while it has handles.
            Source::Senders(chan) => unsafe { chan.as_ref() }.recv(deadline_ns),
            Source::At(at) => at.recv(deadline_ns).map(from_instant),
            Source::Tick(tick) => tick.recv(deadline_ns).map(from_instant),
            Source::Alarm(alarm) => alarm.recv(deadline_ns).map(from_instant),
            Source::Never => Err(timer::recv_never(deadline_ns)),
        }
    }

    /// Whether the channel holds no message. Always true for capacity 0.
    ///
    /// ```
    /// let (s, r) = windlass::channel::unbounded();
    /// assert!(r.is_empty());
    /// s.send(0).unwrap();
    /// assert!(!r.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the channel is full. Always true for capacity 0.
    ///
    /// ```
    /// let (s, r) = windlass::channel::bounded(1);
    /// assert!(!r.is_full());
    /// s.send(0).unwrap();
    /// assert!(r.is_full());
    /// ```
    pub fn is_full(&self) -> bool {
        points::switch_point();
        match &self.source {
            // SAFETY: the channel lives while it has handles.
            Source::Senders(chan) => unsafe { chan.as_ref() }.is_full(),
            Source::At(_) | Source::Tick(_) | Source::Alarm(_) => self.len() == 1,
            Source::Never => true,
        }
    }

    /// Number of messages in the channel.
    ///
    /// ```
    /// let (s, r) = windlass::channel::unbounded();
    /// s.send(1).unwrap();
    /// s.send(2).unwrap();
    /// assert_eq!(r.len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        points::switch_point();
        self.len_now()
    }

    /// As [`len`](Receiver::len), and never lets another goroutine run.
    pub(super) fn len_now(&self) -> usize {
        match &self.source {
            // SAFETY: the channel lives while it has handles.
            Source::Senders(chan) => unsafe { chan.as_ref() }.len(),
            Source::At(at) => usize::from(!at.is_empty()),
            Source::Tick(tick) => usize::from(!tick.is_empty()),
            Source::Alarm(alarm) => usize::from(alarm.has_message()),
            Source::Never => 0,
        }
    }

    /// Maximum number of messages in the channel; `None` if it is unbounded.
    ///
    /// ```
    /// use windlass::channel::{bounded, unbounded};
    ///
    /// assert_eq!(unbounded::<i32>().1.capacity(), None);
    /// assert_eq!(bounded::<i32>(5).1.capacity(), Some(5));
    /// ```
    pub fn capacity(&self) -> Option<usize> {
        match &self.source {
            // SAFETY: the channel lives while it has handles.
            Source::Senders(chan) => unsafe { chan.as_ref() }.capacity(),
            Source::At(_) | Source::Tick(_) | Source::Alarm(_) => Some(1),
            Source::Never => Some(0),
        }
    }

    /// Iterates over the messages, until the channel is empty and all senders were dropped.
    ///
    /// # Blocking
    ///
    /// Each `next` waits as [`Receiver::recv`] does.
    ///
    /// # Examples
    ///
    /// ```
    /// let (s, r) = windlass::channel::unbounded();
    /// std::thread::spawn(move || (1..=3).for_each(|n| s.send(n).unwrap()));
    /// assert_eq!(r.iter().sum::<i32>(), 6);
    /// ```
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// Iterates over the messages that can be received without waiting: see [`Receiver::try_recv`].
    ///
    /// # Blocking
    ///
    /// As [`Receiver::try_recv`].
    ///
    /// # Examples
    ///
    /// ```
    /// let (s, r) = windlass::channel::unbounded();
    /// s.send(1).unwrap();
    /// s.send(2).unwrap();
    /// assert_eq!(r.try_iter().collect::<Vec<_>>(), [1, 2]);
    /// ```
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { receiver: self }
    }

    /// Whether both receivers belong to the same channel.
    ///
    /// ```
    /// use windlass::channel::unbounded;
    ///
    /// let (_s, r) = unbounded::<i32>();
    /// assert!(r.same_channel(&r.clone()));
    /// assert!(!r.same_channel(&unbounded().1));
    /// ```
    pub fn same_channel(&self, other: &Receiver<T>) -> bool {
        match (&self.source, &other.source) {
            (Source::Senders(one), Source::Senders(two)) => one == two,
            (Source::At(one), Source::At(two)) => Arc::ptr_eq(one, two),
            (Source::Tick(one), Source::Tick(two)) => Arc::ptr_eq(one, two),
            (Source::Alarm(one), Source::Alarm(two)) => Arc::ptr_eq(one, two),
            (Source::Never, Source::Never) => true,
            _ => false,
        }
    }
}

fn timeout_error(why: Refused) -> RecvTimeoutError {
    match why {
        Refused::Blocked => RecvTimeoutError::Timeout,
        Refused::Disconnected => {
            note_disconnect();
            RecvTimeoutError::Disconnected
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        let source = match &self.source {
            Source::Senders(chan) => {
                // SAFETY: the channel lives while it has handles.
                unsafe { chan.as_ref() }.acquire(Side::Recv);
                Source::Senders(*chan)
            }
            Source::At(at) => Source::At(Arc::clone(at)),
            Source::Tick(tick) => Source::Tick(Arc::clone(tick)),
            Source::Alarm(alarm) => Source::Alarm(Arc::clone(alarm)),
            Source::Never => Source::Never,
        };
        Receiver {
            source,
            tag: self.tag.clone(),
        }
    }
}

/// Dropping the last receiver disconnects the channel: the messages in it are dropped, and waiting
/// senders return with an error.
impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if let Source::Senders(chan) = self.source {
            // SAFETY: this handle was counted, and is not used again.
            unsafe { Chan::release(chan, Side::Recv) };
        }
    }
}

fmt_as!([T] Debug for Receiver<T>, "Receiver { .. }");

iterators! {
    [T], T,
    |receiver| receiver.recv().ok(), receiver.try_recv().ok(),
    ///
    /// # Examples
    ///
    /// ```
    /// let (s, r) = windlass::channel::unbounded();
    /// s.send(1).unwrap();
    /// s.send(2).unwrap();
    /// drop(s);
    /// assert_eq!(r.into_iter().collect::<Vec<_>>(), [1, 2]);
    /// ```
}

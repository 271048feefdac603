//! Channels whose receivers each get every message, made by [`broadcast`](super::broadcast()).
//!
//! A receiver gets the messages that are sent after it subscribed, in the order in which they were
//! sent. The channel holds at most as many messages as its capacity. A send never waits: if the
//! channel is full, the oldest message is dropped. A receiver that has not received it yet *lags*: its
//! next receive returns an error with the number of messages that it has missed, and it goes on with
//! the oldest message that is left. A message that all receivers have received is dropped.
//!
//! ```
//! use windlass::channel::broadcast;
//! use windlass::channel::broadcast::RecvError;
//!
//! let (tx, rx) = broadcast(2);
//! for n in 1..=5 {
//!     tx.send(n).unwrap();
//! }
//! assert_eq!(rx.recv(), Err(RecvError::Lagged(3)));
//! assert_eq!(rx.recv(), Ok(4));
//! assert_eq!(rx.recv(), Ok(5));
//! drop(tx);
//! assert_eq!(rx.recv(), Err(RecvError::Disconnected));
//! ```
//!
//! A message is cloned for each receiver but the last, which gets the message itself. It is cloned
//! outside of the channel's lock, maybe by several receivers at once: so `T` is [`Sync`] where a
//! receiver is sent to another goroutine. If `clone` panics, the receive panics, and the message
//! counts as received by this receiver. Large messages are better sent in an [`Arc`].
//!
//! A receiver that is shared, by a reference or an [`Arc`], is one receiver: each message goes to one
//! of the callers.
//!
//! For a select, a receiver has a channel without messages that is disconnected while there is
//! something to receive: [`Receiver::ready`].

use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::buffer::drop_all;
use super::chan::note_disconnect;
use super::core;
use super::err::SendError;
use super::iter::iterators;
use super::ready::{self, Ready};
use super::receiver;
use super::sides::{self, Closed, Sides};
use crate::loom::native::OnceLock;
use crate::loom::{AtomicU64, Ordering};
use crate::sched::wait::points;
use crate::sync::waitlist::WaitCell;
use crate::sync::waitq::{DequeuedList, WaitCtx};
use crate::sys::clock::{self, NEVER};

/// Largest number of places that are allocated with a channel. Others are when they are needed.
const MOST_AT_FIRST: usize = 64;

struct Shared<T> {
    state: WaitCell<State<T>>,
    capacity: usize,
    closed: Closed,
}

/// Messages are numbered in the order in which they were sent, from 0. Numbers do not wrap in the
/// lifetime of a machine.
struct State<T> {
    /// The messages that are kept, the oldest first. The last one has the number `n_sent` - 1.
    kept: VecDeque<Kept<T>>,
    n_sent: u64,
    sides: Sides,
}

struct Kept<T> {
    message: Arc<T>,
    /// Number of receivers that are to receive it. A receiver that is to receive this message is to
    /// receive all later ones, so this number is smallest at the front, and a message with 0 is
    /// dropped at once.
    n_left: usize,
}

/// The sending half of a broadcast channel.
///
/// It can be cloned, sent to other threads and shared. The channel is disconnected when the last
/// sender is dropped.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// A receiver of a broadcast channel.
///
/// It can be sent to other threads and shared. [`Sender::subscribe`] and [`Receiver::resubscribe`]
/// make others.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// Number of the next message. Ordering: relaxed; written and read under the channel's lock.
    next: AtomicU64,
    /// Disconnected while there is something to receive. Made when it is asked for, with the
    /// channel's lock held.
    ready: OnceLock<Ready>,
}

sides::sender!("broadcast::<()>(16)");
sides::receiver!("broadcast::<()>(16)");

/// Makes a sender and a receiver.
#[track_caller]
pub(super) fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(
        capacity > 0,
        "a broadcast channel needs a capacity of at least 1"
    );
    let shared = Arc::new(Shared {
        state: WaitCell::new(State {
            kept: VecDeque::with_capacity(capacity.min(MOST_AT_FIRST)),
            n_sent: 0,
            sides: Sides::new(),
        }),
        capacity,
        closed: Closed::new(),
    });
    let receiver = Receiver::new(Arc::clone(&shared), 0);
    (Sender { shared }, receiver)
}

/// Result of an attempt to receive.
enum Attempt<T> {
    Message(Arc<T>),
    Lagged(u64),
    Disconnected,
}

/// Why a receive returned no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Empty,
    Lagged(u64),
    Disconnected,
}

impl<T> State<T> {
    /// The number of the oldest message that is kept.
    fn oldest(&self) -> u64 {
        self.n_sent - self.kept.len() as u64
    }
}

impl<T> Shared<T> {
    /// Counts a receiver. Returns the number of its first message.
    fn add_receiver(&self) -> u64 {
        self.state.update(|state, ctx, woken| {
            state.sides.add_receiver(&self.closed, ctx, woken);
            state.n_sent
        })
    }
}

impl<T> Sender<T> {
    /// Sends a message to all current receivers, and returns their number.
    ///
    /// If the channel is full, its oldest message is dropped.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// The message, if there is no receiver now. There may be one later: [`Sender::subscribe`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::{SendError, broadcast};
    ///
    /// let (tx, rx) = broadcast(16);
    /// assert_eq!(tx.send("to one"), Ok(1));
    /// drop(rx);
    /// assert_eq!(tx.send("to nobody"), Err(SendError("to nobody")));
    /// ```
    #[allow(
        clippy::missing_panics_doc,
        reason = "it has one owner until it is sent"
    )]
    pub fn send(&self, message: T) -> Result<usize, SendError<T>> {
        points::end_if_late();
        let message = Arc::new(message);
        // Dropped after the lock was released, as are the Arcs below.
        let mut oldest = None;
        let sent = self.shared.state.update(|state, ctx, woken| {
            let n_left = state.sides.n_receivers;
            if n_left == 0 {
                return Err(message);
            }
            if state.kept.len() == self.shared.capacity {
                oldest = state.kept.pop_front();
            }
            state.kept.push_back(Kept { message, n_left });
            state.n_sent += 1;
            woken.append(state.queue().take_all());
            state.sides.ready.raise(ctx, woken);
            Ok(n_left)
        });
        drop(oldest);
        sent.map_err(|message| {
            note_disconnect();
            SendError(Arc::into_inner(message).expect("a message that was not sent has one owner"))
        })
    }

    /// Makes a receiver of the messages that are sent from now on.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// let (tx, _rx) = windlass::channel::broadcast(16);
    /// tx.send(1).unwrap();
    /// let late = tx.subscribe();
    /// tx.send(2).unwrap();
    /// assert_eq!(late.recv(), Ok(2));
    /// ```
    #[must_use]
    pub fn subscribe(&self) -> Receiver<T> {
        let next = self.shared.add_receiver();
        Receiver::new(Arc::clone(&self.shared), next)
    }

    /// Number of messages that are kept, because a receiver has not received them yet.
    ///
    /// # Examples
    ///
    /// ```
    /// let (tx, rx) = windlass::channel::broadcast(16);
    /// tx.send(1).unwrap();
    /// assert_eq!(tx.len(), 1);
    /// rx.recv().unwrap();
    /// assert!(tx.is_empty());
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        points::switch_point();
        self.shared.state.with(|state| state.kept.len())
    }

    /// Whether all receivers have received all messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of messages that the channel can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.capacity
    }
}

impl<T> Receiver<T> {
    fn new(shared: Arc<Shared<T>>, next: u64) -> Receiver<T> {
        Receiver {
            shared,
            next: AtomicU64::new(next),
            ready: OnceLock::new(),
        }
    }

    /// Makes another receiver of the messages that are sent from now on.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// let (tx, rx) = windlass::channel::broadcast(16);
    /// tx.send(1).unwrap();
    /// let late = rx.resubscribe();
    /// tx.send(2).unwrap();
    /// assert_eq!((rx.recv(), late.recv()), (Ok(1), Ok(2)));
    /// ```
    #[must_use]
    pub fn resubscribe(&self) -> Receiver<T> {
        let next = self.shared.add_receiver();
        Receiver::new(Arc::clone(&self.shared), next)
    }

    /// Number of messages to receive. It is larger than the capacity of the channel if the receiver
    /// lags: then it includes the messages that were missed.
    ///
    /// # Examples
    ///
    /// ```
    /// let (tx, rx) = windlass::channel::broadcast(2);
    /// (1..=3).for_each(|n| _ = tx.send(n).unwrap());
    /// assert_eq!(rx.len(), 3);
    /// assert!(rx.recv().is_err()); // one was missed
    /// assert_eq!(rx.len(), 2);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        points::switch_point();
        let n = self
            .shared
            .state
            .with(|state| state.n_sent - self.next.load(Ordering::Relaxed));
        usize::try_from(n).unwrap_or(usize::MAX)
    }

    /// Whether there is no message to receive.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a channel without messages that is disconnected while there is something to receive: a
    /// message, a notice of missed messages, or the end of the channel. It is for use in a select,
    /// whose arm then calls [`Receiver::try_recv`].
    ///
    /// If the receiver is shared, another caller may be faster: then `try_recv` finds nothing. A clone
    /// of the returned channel that outlives the receiver is disconnected.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::channel::{after, broadcast, select};
    ///
    /// let (tx, rx) = broadcast(16);
    /// std::thread::spawn(move || tx.send("news"));
    /// let timeout = after(Duration::from_secs(3600));
    /// select! {
    ///     recv(rx.ready()) -> _ => assert_eq!(rx.try_recv(), Ok("news")),
    ///     recv(timeout) -> _ => unreachable!(),
    /// }
    /// ```
    #[allow(clippy::missing_panics_doc, reason = "it is set before")]
    pub fn ready(&self) -> &receiver::Receiver<Infallible> {
        if let Some(ready) = self.ready.get() {
            return &ready.channel;
        }
        self.shared.state.update(|state, ctx, _| {
            if self.ready.get().is_none() {
                let next = self.next.load(Ordering::Relaxed);
                let is_ready = next != state.n_sent || state.sides.n_senders == 0;
                let _ = self.ready.set(state.sides.ready.add(is_ready, ctx));
            }
        });
        &self.ready.get().expect("it was set above").channel
    }

    /// Receives what is next, if there is something. The lock is held.
    fn attempt(&self, state: &mut State<T>, ctx: &WaitCtx<'_>) -> Option<Attempt<T>> {
        let next = self.next.load(Ordering::Relaxed);
        let oldest = state.oldest();
        if next < oldest {
            // The messages that made it lag are still there, so it stays ready.
            self.next.store(oldest, Ordering::Relaxed);
            return Some(Attempt::Lagged(oldest - next));
        }
        if next == state.n_sent {
            return (state.sides.n_senders == 0).then_some(Attempt::Disconnected);
        }
        self.next.store(next + 1, Ordering::Relaxed);
        if next + 1 == state.n_sent
            && state.sides.n_senders > 0
            && let Some(ready) = self.ready.get()
        {
            // Nobody is woken by that.
            ready::put(&ready.channel, false, ctx, &mut DequeuedList::new());
        }
        let at = (next - oldest) as usize;
        let kept = &mut state.kept[at];
        kept.n_left -= 1;
        let message = if kept.n_left > 0 {
            Arc::clone(&kept.message)
        } else {
            debug_assert_eq!(
                at, 0,
                "an older message has a receiver that this one has not"
            );
            state.kept.pop_front()?.message
        };
        Some(Attempt::Message(message))
    }

    fn recv_until(&self, deadline_ns: u64) -> Result<T, Refused>
    where
        T: Clone,
    {
        match sides::wait(&self.shared.state, deadline_ns, |state, ctx| {
            self.attempt(state, ctx)
        }) {
            Ok(attempt) => attempt.into_result(),
            Err(core::Refused::Blocked) => Err(Refused::Empty),
            Err(core::Refused::Disconnected) => Err(Refused::Disconnected),
        }
    }

    /// Receives the next message, waiting until there is one.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. If the runtime shuts down, a waiting goroutine
    /// unwinds. In a destructor that runs during this unwinding, a receive that would wait fails at
    /// once.
    ///
    /// # Errors
    ///
    /// [`RecvError::Lagged`] if messages were dropped before this receiver got them,
    /// [`RecvError::Disconnected`] if it has received all messages and all senders were dropped, or if
    /// the ambient [context](crate::context) ended the wait.
    ///
    /// # Examples
    ///
    /// See the [module](self).
    pub fn recv(&self) -> Result<T, RecvError>
    where
        T: Clone,
    {
        self.recv_until(NEVER).map_err(|refused| match refused {
            Refused::Lagged(n) => RecvError::Lagged(n),
            _ => RecvError::Disconnected,
        })
    }

    /// Receives the next message if that is possible without waiting.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// [`TryRecvError::Empty`] if there is no message, otherwise as [`Receiver::recv`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::broadcast;
    /// use windlass::channel::broadcast::TryRecvError;
    ///
    /// let (tx, rx) = broadcast(16);
    /// assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
    /// tx.send(5).unwrap();
    /// assert_eq!(rx.try_recv(), Ok(5));
    /// drop(tx);
    /// assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
    /// ```
    pub fn try_recv(&self) -> Result<T, TryRecvError>
    where
        T: Clone,
    {
        points::end_if_late();
        let attempt = self
            .shared
            .state
            .update(|state, ctx, _| self.attempt(state, ctx));
        let received = attempt.map_or(Err(Refused::Empty), Attempt::into_result);
        received.map_err(|refused| match refused {
            Refused::Empty => TryRecvError::Empty,
            Refused::Lagged(n) => TryRecvError::Lagged(n),
            Refused::Disconnected => TryRecvError::Disconnected,
        })
    }

    /// Receives the next message, waiting for at most `timeout`.
    ///
    /// # Blocking
    ///
    /// As [`Receiver::recv`].
    ///
    /// # Errors
    ///
    /// [`RecvTimeoutError::Timeout`] if no message came in time or the ambient
    /// [context](crate::context) was done, otherwise as [`Receiver::recv`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::channel::broadcast;
    /// use windlass::channel::broadcast::RecvTimeoutError;
    ///
    /// let (_tx, rx) = broadcast::<u32>(16);
    /// let timeout = Duration::from_millis(1);
    /// assert_eq!(rx.recv_timeout(timeout), Err(RecvTimeoutError::Timeout));
    /// ```
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError>
    where
        T: Clone,
    {
        self.recv_until(clock::deadline_ns(timeout))
            .map_err(timeout_error)
    }

    /// Receives the next message, waiting until `deadline` at the latest.
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
    /// use std::time::Instant;
    ///
    /// let (_tx, rx) = windlass::channel::broadcast::<u32>(16);
    /// assert!(rx.recv_deadline(Instant::now()).is_err());
    /// ```
    pub fn recv_deadline(&self, deadline: impl Into<Instant>) -> Result<T, RecvTimeoutError>
    where
        T: Clone,
    {
        let deadline = deadline.into();
        self.recv_until(clock::instant_ns(deadline))
            .map_err(timeout_error)
    }

    /// Iterates over the messages, waiting for each of them. Missed messages are an item, too. The
    /// iterator ends when all messages were received and all senders were dropped.
    ///
    /// # Blocking
    ///
    /// Each `next` waits as [`Receiver::recv`] does.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::broadcast;
    /// use windlass::channel::broadcast::Lagged;
    ///
    /// let (tx, rx) = broadcast(2);
    /// (1..=5).for_each(|n| _ = tx.send(n).unwrap());
    /// drop(tx);
    /// assert!(rx.iter().eq([Err(Lagged(3)), Ok(4), Ok(5)]));
    /// ```
    pub fn iter(&self) -> Iter<'_, T>
    where
        T: Clone,
    {
        Iter { receiver: self }
    }

    /// Iterates over the messages that can be received without waiting.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// let (tx, rx) = windlass::channel::broadcast(16);
    /// (1..=2).for_each(|n| _ = tx.send(n).unwrap());
    /// assert!(rx.try_iter().eq([Ok(1), Ok(2)]));
    /// ```
    pub fn try_iter(&self) -> TryIter<'_, T>
    where
        T: Clone,
    {
        TryIter { receiver: self }
    }
}

impl<T> Attempt<T> {
    fn into_result(self) -> Result<T, Refused>
    where
        T: Clone,
    {
        match self {
            Attempt::Message(message) => {
                Ok(Arc::try_unwrap(message).unwrap_or_else(|shared| T::clone(&shared)))
            }
            Attempt::Lagged(n) => Err(Refused::Lagged(n)),
            Attempt::Disconnected => {
                note_disconnect();
                Err(Refused::Disconnected)
            }
        }
    }
}

fn timeout_error(refused: Refused) -> RecvTimeoutError {
    match refused {
        Refused::Empty => RecvTimeoutError::Timeout,
        Refused::Lagged(n) => RecvTimeoutError::Lagged(n),
        Refused::Disconnected => RecvTimeoutError::Disconnected,
    }
}

/// Messages that only this receiver was still to receive are dropped.
impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // Dropped after the lock was released.
        let mut unread = VecDeque::new();
        self.shared.state.update_in_place(|state, ctx, woken| {
            let sides = &mut state.sides;
            if sides.remove_receiver(self.ready.get(), &self.shared.closed, ctx, woken) {
                std::mem::swap(&mut unread, &mut state.kept);
                return;
            }
            let next = self.next.load(Ordering::Relaxed);
            let at = next.saturating_sub(state.oldest()) as usize;
            state.kept.range_mut(at..).for_each(|kept| kept.n_left -= 1);
            let n_unread = state
                .kept
                .iter()
                .take_while(|kept| kept.n_left == 0)
                .count();
            unread.extend(state.kept.drain(..n_unread));
        });
        drop_all(unread, VecDeque::pop_front);
    }
}

fn next_item<T: Clone>(receiver: &Receiver<T>) -> Option<Result<T, Lagged>> {
    match receiver.recv() {
        Ok(message) => Some(Ok(message)),
        Err(RecvError::Lagged(n)) => Some(Err(Lagged(n))),
        Err(RecvError::Disconnected) => None,
    }
}

fn try_next_item<T: Clone>(receiver: &Receiver<T>) -> Option<Result<T, Lagged>> {
    match receiver.try_recv() {
        Ok(message) => Some(Ok(message)),
        Err(TryRecvError::Lagged(n)) => Some(Err(Lagged(n))),
        Err(_) => None,
    }
}

iterators! {
    [T: Clone], Result<T, Lagged>,
    |receiver| next_item(receiver), try_next_item(receiver),
}

/// Item of a receiver's iterators: so many messages were dropped before the receiver got them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lagged(pub u64);

/// Error of [`Receiver::recv`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvError {
    /// All messages were received, and all senders were dropped.
    Disconnected,
    /// So many messages were dropped before the receiver got them. The next receive returns the oldest
    /// one that is left.
    Lagged(u64),
}

/// Error of [`Receiver::try_recv`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// There is no message now.
    Empty,
    /// All messages were received, and all senders were dropped.
    Disconnected,
    /// As [`RecvError::Lagged`].
    Lagged(u64),
}

/// Error of [`Receiver::recv_timeout`] and [`Receiver::recv_deadline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvTimeoutError {
    /// No message came in time.
    Timeout,
    /// All messages were received, and all senders were dropped.
    Disconnected,
    /// As [`RecvError::Lagged`].
    Lagged(u64),
}

impl fmt::Display for Lagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the receiver lagged and missed {} messages", self.0)
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecvError::Disconnected => f.pad("receiving on an empty and disconnected channel"),
            RecvError::Lagged(n) => Lagged(*n).fmt(f),
        }
    }
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryRecvError::Empty => f.pad("receiving on an empty channel"),
            TryRecvError::Disconnected => RecvError::Disconnected.fmt(f),
            TryRecvError::Lagged(n) => Lagged(*n).fmt(f),
        }
    }
}

impl fmt::Display for RecvTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecvTimeoutError::Timeout => f.pad("timed out waiting on receive operation"),
            RecvTimeoutError::Disconnected => f.pad("channel is empty and disconnected"),
            RecvTimeoutError::Lagged(n) => Lagged(*n).fmt(f),
        }
    }
}

impl Error for Lagged {}
impl Error for RecvError {}
impl Error for TryRecvError {}
impl Error for RecvTimeoutError {}

impl From<Lagged> for RecvError {
    fn from(lagged: Lagged) -> RecvError {
        RecvError::Lagged(lagged.0)
    }
}

#[cfg(all(test, any(loom, miri)))]
#[path = "broadcast_loom_tests.rs"]
mod loom_tests;

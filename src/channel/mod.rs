//! Multi-producer, multi-consumer channels, with the names and semantics of crossbeam-channel 0.5.
//! They connect goroutines and plain threads in any combination.
//!
//! ```
//! use windlass::channel::bounded;
//!
//! # // SAFETY: nothing here keeps a thread-local across a call that parks.
//! # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
//! rt.run(|| {
//!     let (s, r) = bounded(1);
//!     windlass::spawn(move || {
//!         for n in 1..=3 {
//!             s.send(n).unwrap();
//!         }
//!     });
//!     assert_eq!(r.iter().sum::<i32>(), 6);
//! });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A waiting goroutine parks; a waiting plain thread blocks. Waiters are served first in, first
//! out. If a receiver is already waiting, a message is moved directly from the sender's stack to
//! the receiver's. No operation allocates memory, except a send that makes an unbounded channel
//! grow.
//!
//! A channel is disconnected when all senders or all receivers are dropped. Sends then fail. If the
//! senders were dropped, the messages left in the channel can still be received. If the receivers
//! were dropped, these messages are dropped.
//!
//! Three more channels have types of their own: [`oneshot`](mod@oneshot) for one message,
//! [`broadcast`](mod@broadcast), whose receivers each get every message, and [`watch`](mod@watch) for
//! the latest value of something.
//!
//! [`after`], [`at`] and [`tick`] return receivers whose messages come from the clock,
//! [`never`](never()) one that never has a message. They use no timer and no thread while no
//! receiver waits.
//!
//! # Runtime shutdown
//!
//! A goroutine that waits in a channel when its runtime shuts down unwinds, and the message that it
//! was sending is dropped. Channel operations in its destructors that would wait fail at once, as
//! if the channel were disconnected.
//!
//! Goroutines are unwound in no particular order, so a goroutine may find its channel disconnected
//! only because the runtime shuts down. That goroutine unwinds too. During a shutdown, no channel
//! operation of a goroutine reports "disconnected", except in a destructor.

mod err;
mod buffer;
mod core;
mod chan;
mod timer;
mod alarm;
mod sender;
mod iter;
mod receiver;
mod choice;
mod receivable;
mod select;
mod macros;
mod ready;
mod sides;
pub mod oneshot;
pub mod broadcast;
pub mod watch;

use std::ptr::NonNull;
use std::time::Duration;

use chan::Chan;

use crate::instant::Instant;
use crate::sys::clock;

pub(crate) use alarm::{Alarm, Then};
pub(crate) use receivable::Receivable;

pub use err::{
    ReadyTimeoutError, RecvError, RecvTimeoutError, SelectTimeoutError, SendError,
    SendTimeoutError, TryReadyError, TryRecvError, TrySelectError, TrySendError,
};
pub use macros::{select, select_biased};
pub use receiver::{IntoIter, Iter, Receiver, TryIter};
pub use select::{Select, SelectedOperation};
pub use sender::Sender;

/// Support for the macros; not public API.
#[doc(hidden)]
pub mod __select {
    pub use super::choice::Arm;
    pub use super::select::{select, select_timeout, try_select};
}

/// Creates a channel without a capacity limit.
///
/// Sending never waits.
///
/// # Examples
///
/// ```
/// let (s, r) = windlass::channel::unbounded();
/// std::thread::spawn(move || s.send(20).unwrap());
/// assert_eq!(r.recv(), Ok(20));
/// ```
#[track_caller]
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    channel(None)
}

/// Creates a channel that holds at most `cap` messages.
///
/// With a capacity of 0 the channel is a rendezvous: a sender waits until a receiver takes the
/// message.
///
/// # Panics
///
/// If a buffer of `cap` messages does not fit into the address space.
///
/// # Examples
///
/// ```
/// use windlass::channel::bounded;
///
/// let (s, r) = bounded(1);
/// s.send(1).unwrap();
/// std::thread::spawn(move || s.send(2).unwrap()); // waits for the next line
/// assert_eq!(r.recv(), Ok(1));
/// assert_eq!(r.recv(), Ok(2));
///
/// let (s, r) = bounded(0);
/// std::thread::spawn(move || s.send("met").unwrap());
/// assert_eq!(r.recv(), Ok("met"));
/// ```
#[track_caller]
pub fn bounded<T>(cap: usize) -> (Sender<T>, Receiver<T>) {
    channel(Some(cap))
}

#[track_caller]
fn channel<T>(cap: Option<usize>) -> (Sender<T>, Receiver<T>) {
    let mut chan = Chan::new(cap);
    chan.count();
    handles(chan)
}

/// A channel for windlass itself, whose messages a simulation does not count.
pub(crate) fn internal<T>(cap: Option<usize>) -> (Sender<T>, Receiver<T>) {
    handles(Chan::new(cap))
}

fn handles<T>(chan: Chan<T>) -> (Sender<T>, Receiver<T>) {
    let name = chan.name.get();
    let chan = NonNull::from(Box::leak(Box::new(chan)));
    (Sender::new(chan, name), Receiver::new(chan, name))
}

/// Creates a channel for one message: [`oneshot::Sender::send`] consumes the sender.
///
/// # Examples
///
/// ```
/// let (tx, rx) = windlass::channel::oneshot();
/// std::thread::spawn(move || tx.send("done"));
/// assert_eq!(rx.recv(), Ok("done"));
/// ```
pub fn oneshot<T>() -> (oneshot::Sender<T>, oneshot::Receiver<T>) {
    let (sender, receiver) = internal(Some(1));
    oneshot::channel(sender, receiver)
}

/// Creates a channel that delivers each message to every receiver, and that holds at most
/// `capacity` messages. See [`broadcast`](mod@broadcast).
///
/// # Panics
///
/// If `capacity` is 0.
///
/// # Examples
///
/// ```
/// let (tx, one) = windlass::channel::broadcast(16);
/// let two = tx.subscribe();
/// tx.send("all").unwrap();
/// assert_eq!((one.recv(), two.recv()), (Ok("all"), Ok("all")));
/// ```
#[track_caller]
pub fn broadcast<T>(capacity: usize) -> (broadcast::Sender<T>, broadcast::Receiver<T>) {
    broadcast::channel(capacity)
}

/// Creates a channel for the latest value of something. See [`watch`](mod@watch).
///
/// # Examples
///
/// ```
/// let (tx, rx) = windlass::channel::watch("starting");
/// assert_eq!(*rx.borrow(), "starting");
/// std::thread::spawn(move || tx.send("ready"));
/// rx.changed().unwrap();
/// assert_eq!(*rx.borrow(), "ready");
/// ```
pub fn watch<T>(value: T) -> (watch::Sender<T>, watch::Receiver<T>) {
    watch::channel(value)
}

/// Creates a channel that delivers one message after `duration`: the instant at which it was due.
///
/// If that instant cannot be represented, no message ever comes.
///
/// # Examples
///
/// ```
/// use windlass::channel::after;
/// use windlass::time::{Duration, Instant};
///
/// let start = Instant::now();
/// let r = after(Duration::from_millis(5));
/// let fired = r.recv().unwrap();
/// assert!(fired >= start + Duration::from_millis(5));
/// ```
pub fn after(duration: Duration) -> Receiver<Instant> {
    clock::now().checked_add(duration).map_or_else(never, at)
}

/// Creates a channel that delivers one message at the instant `when`: `when` itself.
///
/// # Examples
///
/// ```
/// use windlass::time::{Duration, Instant};
///
/// let when = Instant::now() + Duration::from_millis(5);
/// assert_eq!(windlass::channel::at(when).recv(), Ok(when));
/// ```
pub fn at(when: impl Into<std::time::Instant>) -> Receiver<Instant> {
    Receiver::at(when.into())
}

/// Creates a channel that never delivers a message and is never disconnected.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use windlass::channel::{RecvTimeoutError, never};
///
/// let r = never::<i32>();
/// let timeout = Duration::from_millis(5);
/// assert_eq!(r.recv_timeout(timeout), Err(RecvTimeoutError::Timeout));
/// ```
pub const fn never<T>() -> Receiver<T> {
    Receiver::never()
}

/// Creates a channel that delivers a message every `duration`: the instant at which it was due.
///
/// The first message comes after one `duration`. The channel holds at most one message; ticks that
/// become due while it holds one are skipped. The tick after a late receive comes one `duration`
/// after that receive.
///
/// # Examples
///
/// ```
/// use windlass::channel::tick;
/// use windlass::time::{Duration, Instant};
///
/// let start = Instant::now();
/// let period = Duration::from_millis(5);
/// let ticks = tick(period);
/// assert!(ticks.recv().unwrap() >= start + period);
/// assert!(ticks.recv().unwrap() >= start + 2 * period);
/// ```
pub fn tick(duration: Duration) -> Receiver<Instant> {
    let start = clock::now();
    match start.checked_add(duration) {
        Some(_) => Receiver::tick(start, duration),
        None => never(),
    }
}

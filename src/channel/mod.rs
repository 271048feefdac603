//! Channels, with the names and the meaning of crossbeam-channel 0.5: many senders, many
//! receivers, a limit or none, select. For goroutines, plain threads, and across.
//!
//! ```
//! use windlass::channel::unbounded;
//!
//! let (s, r) = unbounded();
//! s.send("hello").unwrap();
//! assert_eq!(r.recv(), Ok("hello"));
//! ```
//!
//! A goroutine that waits parks; a plain thread that waits blocks. Who waits is served
//! first in, first out, and a message goes from the sender's stack to the receiver's
//! without a stop where one of them waits already. No operation allocates, but for an
//! unbounded channel that grows.
//!
//! A channel is disconnected when all handles of one side are gone. Then nothing can be
//! sent; what is in it can still be received, if it is the senders who are gone, and is
//! dropped otherwise.
//!
//! [`after`], [`at`], [`tick`] and [`never`](never()) give receivers whose messages time sends, or
//! nobody. They cost nothing while nobody waits for them.
//!
//! # The end of a run
//!
//! A goroutine that waits in a channel when its runtime ends unwinds; the message it
//! wanted to send is dropped. What it calls in destructors then fails at once, as if
//! the channel were disconnected.
//!
//! Goroutines are unwound in no order, so one may find its channel disconnected because the
//! run ends. Then it unwinds as well: no operation of a goroutine, with or without waiting,
//! says "disconnected" while its run ends, except in a destructor.

mod err;
mod buffer;
mod core;
mod chan;
mod timer;
mod alarm;
mod sender;
mod receiver;
mod choice;
mod select;
mod macros;

use std::ptr::NonNull;
use std::time::{Duration, Instant};

use chan::Chan;

use crate::sys::clock;

pub(crate) use alarm::{Alarm, Then};

pub use err::{
    ReadyTimeoutError, RecvError, RecvTimeoutError, SelectTimeoutError, SendError,
    SendTimeoutError, TryReadyError, TryRecvError, TrySelectError, TrySendError,
};
pub use macros::{select, select_biased};
pub use receiver::{IntoIter, Iter, Receiver, TryIter};
pub use select::{Select, SelectedOperation};
pub use sender::Sender;

/// What the macros need.
#[doc(hidden)]
pub mod __select {
    pub use super::choice::Arm;
    pub use super::select::{select, select_timeout, try_select};
}

/// A channel that holds any number of messages.
///
/// # Examples
///
/// ```
/// let (s, r) = windlass::channel::unbounded();
/// std::thread::spawn(move || s.send(20).unwrap());
/// assert_eq!(r.recv(), Ok(20));
/// ```
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    channel(None)
}

/// A channel that holds at most `cap` messages. With 0, a sender waits for a receiver
/// and hands the message over.
///
/// # Panics
///
/// If that many messages do not fit into the address space.
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
pub fn bounded<T>(cap: usize) -> (Sender<T>, Receiver<T>) {
    channel(Some(cap))
}

fn channel<T>(cap: Option<usize>) -> (Sender<T>, Receiver<T>) {
    let chan = NonNull::from(Box::leak(Box::new(Chan::new(cap))));
    (Sender::new(chan), Receiver::new(chan))
}

/// A channel with one message, the instant `duration` from now, once that has come.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use windlass::channel::after;
///
/// let start = Instant::now();
/// let r = after(Duration::from_millis(5));
/// let fired = r.recv().unwrap();
/// assert!(fired >= start + Duration::from_millis(5));
/// ```
pub fn after(duration: Duration) -> Receiver<Instant> {
    clock::now().checked_add(duration).map_or_else(never, at)
}

/// A channel with one message, the instant `when`, once that has come.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let when = Instant::now() + Duration::from_millis(5);
/// assert_eq!(windlass::channel::at(when).recv(), Ok(when));
/// ```
pub fn at(when: Instant) -> Receiver<Instant> {
    Receiver::at(when)
}

/// A channel that stays empty.
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

/// A channel with a message every `duration`, the instant at which it was due. It holds
/// one message: ticks that nobody takes in time are skipped, and the next one comes a
/// `duration` after the late one was taken.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use windlass::channel::tick;
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

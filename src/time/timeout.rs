//! A deadline for all waits of a call.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use crate::g::cut::Frame;
use crate::sched::{ambient, park};
use crate::sys::clock;

/// A wait was cut short because the time was up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl std::error::Error for Elapsed {}

/// Of kind `TimedOut`.
impl From<Elapsed> for io::Error {
    fn from(e: Elapsed) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, e)
    }
}

/// Runs `f`, whose waits end after `timeout`: a socket's with an error of kind
/// `TimedOut`, a sleep's by returning, a channel's as if disconnected
/// ([`context`](crate::context) has the table).
///
/// `f` runs on the caller's own stack and is never stopped from outside: it returns when
/// it has seen that its waits fail. A computation is not cut short.
///
/// # Blocking
///
/// As `f` does.
///
/// # Errors
///
/// [`Elapsed`] if the timeout kept `f` from a wait; what `f` gave is dropped. A result
/// that came without, however late, is not lost.
///
/// # Panics
///
/// With `f`'s panic.
///
/// # Examples
///
/// ```
/// use windlass::time::{Duration, Elapsed, sleep, timeout};
///
/// let quick = timeout(Duration::from_secs(100), || 6 * 7);
/// assert_eq!(quick, Ok(42));
/// let slow = timeout(Duration::from_millis(2), || sleep(Duration::from_secs(1000)));
/// assert_eq!(slow, Err(Elapsed::default()));
/// ```
pub fn timeout<T>(timeout: Duration, f: impl FnOnce() -> T) -> Result<T, Elapsed> {
    within(clock::deadline_ns(timeout), f)
}

/// As [`timeout`], with the instant at which waits end.
///
/// # Blocking
///
/// As `f` does.
///
/// # Errors
///
/// As [`timeout`].
///
/// # Panics
///
/// With `f`'s panic.
pub fn timeout_at<T>(deadline: Instant, f: impl FnOnce() -> T) -> Result<T, Elapsed> {
    within(clock::instant_ns(deadline), f)
}

fn within<T>(deadline_ns: u64, f: impl FnOnce() -> T) -> Result<T, Elapsed> {
    let frame = Frame::new(park::current_g(), deadline_ns);
    let entered = ambient::enter(&frame);
    let value = f();
    drop(entered);
    if frame.was_late() {
        return Err(Elapsed);
    }
    Ok(value)
}

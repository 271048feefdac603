//! `timeout`: a deadline for all waits of a call.

use std::io;
use std::time::{Duration, Instant};

use windlass_ground::std_traits::fmt_as;

use crate::g::cancel_wait::CancelScope;
use crate::sched::types::current;
use crate::sched::wait::current_context;
use crate::sys::clock;

/// The error of [`timeout`] and [`timeout_at`]: the time ended a wait.
///
/// Converts to an `io::Error` of kind `TimedOut`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Elapsed;

fmt_as!(Display for Elapsed, "deadline has elapsed");

impl std::error::Error for Elapsed {}

/// The error is of kind `TimedOut`.
impl From<Elapsed> for io::Error {
    fn from(e: Elapsed) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, e)
    }
}

/// Runs `f` and ends its waits when `timeout` has passed.
///
/// A wait of a socket then fails with `TimedOut`, a sleep returns early, and a channel appears
/// disconnected. The [table of waits](crate::context#what-a-context-ends) is that of a context.
///
/// `f` runs on the caller's stack and is never interrupted: it returns after it has handled the
/// failed waits. A computation is not cut short.
///
/// # Blocking
///
/// As `f` does.
///
/// # Errors
///
/// [`Elapsed`] if the timeout has ended or refused a wait of `f`. The value of `f` is then dropped.
/// If no wait was ended, the value of `f` is returned, even after the timeout.
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

/// Runs `f` and ends its waits at `deadline`. As [`timeout`], with an instant.
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
///
/// # Examples
///
/// ```
/// use windlass::time::{Duration, Elapsed, Instant, sleep, timeout_at};
///
/// let deadline = Instant::now() + Duration::from_millis(2);
/// let slow = timeout_at(deadline, || sleep(Duration::from_secs(1000)));
/// assert_eq!(slow, Err(Elapsed::default()));
/// assert!(Instant::now() >= deadline);
/// ```
pub fn timeout_at<T>(deadline: impl Into<Instant>, f: impl FnOnce() -> T) -> Result<T, Elapsed> {
    let deadline = deadline.into();
    within(clock::instant_ns(deadline), f)
}

fn within<T>(deadline_ns: u64, f: impl FnOnce() -> T) -> Result<T, Elapsed> {
    let frame = CancelScope::new(current::g(), deadline_ns);
    let entered = current_context::enter(&frame);
    let value = f();
    drop(entered);
    if frame.was_late() {
        return Err(Elapsed);
    }
    Ok(value)
}

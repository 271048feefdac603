//! Sleeping until an instant.

use std::time::Instant;

use crate::sched::park;
use crate::sys::clock;

/// Waits until `deadline`; returns at once if it has passed.
///
/// # Blocking
///
/// Parks the goroutine; blocks a plain thread. On a goroutine whose runtime ends it
/// unwinds. Returns early if the ambient context ([`context`](crate::context)) is done.
///
/// # Examples
///
/// ```
/// use windlass::time::{Duration, Instant, sleep_until};
///
/// let deadline = Instant::now() + Duration::from_millis(2);
/// sleep_until(deadline);
/// assert!(Instant::now() >= deadline);
/// ```
pub fn sleep_until(deadline: Instant) {
    if deadline > clock::now() {
        // A destructor of a goroutine that is being cancelled does not wait.
        let _ = park::sleep_until(clock::instant_ns(deadline));
    }
}

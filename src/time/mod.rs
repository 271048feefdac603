//! Sleeping, deadlines and repetition.
//!
//! Everything here works on goroutines, which park, and on plain threads, which are
//! blocked. Time is that of the monotonic clock, in nanoseconds.

mod timeout;
mod interval;
mod timer;

pub use std::time::{Duration, Instant};

pub use crate::task::sleep;
pub use interval::{Interval, MissedTickBehavior, interval, interval_at};
pub use timeout::{Elapsed, timeout, timeout_at};
pub use timer::{Ticker, Timer};

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
    if deadline > Instant::now() {
        // A destructor of a goroutine that is being cancelled does not wait.
        let _ = park::sleep_until(clock::instant_ns(deadline));
    }
}

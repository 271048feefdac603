//! Sleeps until an instant.

use std::time::Instant;

use crate::sched::wait::points;
use crate::sched::wait::sleep;
use crate::sys::clock;

/// Waits until `deadline`. Returns at once if it has passed.
///
/// # Blocking
///
/// Parks the goroutine; blocks a plain thread. Unwinds if the goroutine's runtime ends. Returns
/// early if the ambient context ([`context`](crate::context)) is done.
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
pub fn sleep_until(deadline: impl Into<Instant>) {
    let deadline = deadline.into();
    if deadline > clock::now() {
        // An error means that the goroutine already unwinds. Its destructors do not wait.
        let _ = sleep::sleep_until(clock::instant_ns(deadline));
    } else {
        points::switch_point();
    }
}

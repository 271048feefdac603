//! Sleeping, deadlines and repetition.
//!
//! Everything here works on goroutines, which park, and on plain threads, which are
//! blocked. Time is that of the monotonic clock, in nanoseconds.

mod sleep;
mod timeout;
mod interval;
mod timer;

pub use std::time::{Duration, Instant};

pub use crate::task::sleep;
pub use interval::{Interval, MissedTickBehavior, interval, interval_at};
pub use sleep::sleep_until;
pub use timeout::{Elapsed, timeout, timeout_at};
pub use timer::{Ticker, Timer};

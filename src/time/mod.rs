//! Sleeps, timeouts, intervals and timers.
//!
//! All functions work on goroutines, which they park, and on plain threads, which they block.
//! Times are those of the monotonic clock (`CLOCK_MONOTONIC`), in nanoseconds.

mod sleep;
mod timeout;
mod interval;
mod timer;

pub use std::time::{
    Duration, Instant, SystemTime, SystemTimeError, TryFromFloatSecsError, UNIX_EPOCH,
};

pub use crate::task::sleep;
pub use interval::{Interval, MissedTickBehavior, interval, interval_at};
pub use sleep::sleep_until;
pub use timeout::{Elapsed, timeout, timeout_at};
pub use timer::{Ticker, Timer};

//! Sleeps, timeouts, intervals and timers.
//!
//! All functions work on goroutines, which they park, and on plain threads, which they block.
//! Times are those of the monotonic clock (`CLOCK_MONOTONIC`), in nanoseconds. Inside a simulation
//! (feature `sim`) they are virtual, and so are [`Instant`] and [`SystemTime`].

mod system_time;
mod sleep;
mod timeout;
mod interval;
mod timer;
mod after_func;

pub use std::time::{Duration, SystemTimeError, TryFromFloatSecsError};

pub use crate::instant::Instant;
pub use crate::task::sleep;
pub use after_func::{AfterFunc, after_func};
pub use interval::{Interval, MissedTickBehavior, interval, interval_at};
pub use sleep::sleep_until;
pub use system_time::{SystemTime, UNIX_EPOCH};
pub use timeout::{Elapsed, timeout, timeout_at};
pub use timer::{Ticker, Timer};

//! The time of the simulated run that the calling thread is in; `None` outside.

use std::time::{Instant, SystemTime};

use windlass_world::inside::current;

/// In nanoseconds.
#[inline(always)]
pub(crate) fn now_ns() -> Option<u64> {
    current().map(|bubble| bubble.now_ns())
}

/// In `std`'s type.
#[inline(always)]
pub(crate) fn now() -> Option<Instant> {
    current().map(|bubble| bubble.now())
}

/// The time of day.
#[inline(always)]
pub(crate) fn time_of_day() -> Option<SystemTime> {
    current().map(|bubble| bubble.time_of_day())
}

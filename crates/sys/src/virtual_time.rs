//! The time of the simulated run that the calling thread is in; `None` outside.

use std::time::{Instant, SystemTime};

use windlass_world::inside::{Bubble, current};

/// In nanoseconds.
#[inline(always)]
pub(crate) fn now_ns() -> Option<u64> {
    current().map(Bubble::now_ns)
}

/// In `std`'s type.
#[inline(always)]
pub(crate) fn now() -> Option<Instant> {
    current().map(Bubble::now)
}

/// The time of day.
#[inline(always)]
pub(crate) fn time_of_day() -> Option<SystemTime> {
    current().map(Bubble::time_of_day)
}

//! In the place of `virtual_time` without the feature `sim`: no thread is in a simulated run.

use std::time::{Instant, SystemTime};

#[inline(always)]
pub(crate) fn now_ns() -> Option<u64> {
    None
}

#[inline(always)]
pub(crate) fn now() -> Option<Instant> {
    None
}

#[inline(always)]
pub(crate) fn time_of_day() -> Option<SystemTime> {
    None
}

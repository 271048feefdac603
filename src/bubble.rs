//! A bubble: one simulated run, seen from below.
//!
//! With the feature `sim`, a program can run inside a bubble (`crate::sim`): one thread, one P, and
//! one seed, from which all choices are drawn. The crate windlass-world has its clock, its choices, its
//! network and its disks, as plain values. What the scheduler does in a bubble is in
//! `sched/wait/turn.rs` and `sched/proc/simulate.rs`.
//!
//! Without the feature a bubble cannot exist: the functions here say so at compile time, and the
//! crate is not built.

#[cfg(feature = "sim")]
pub(crate) use windlass_world::{draw, inside, log, messages, net, strategy, tally};

#[cfg(feature = "sim")]
pub(crate) use inside::{Bubble, current};

use std::time::{Instant, SystemTime};

/// Whether the calling thread is in a bubble.
#[inline(always)]
pub(crate) fn is_inside() -> bool {
    #[cfg(feature = "sim")]
    return current().is_some();
    #[cfg(not(feature = "sim"))]
    false
}

/// The virtual time of the calling thread's bubble, in nanoseconds; `None` outside.
#[inline(always)]
pub(crate) fn now_ns() -> Option<u64> {
    #[cfg(feature = "sim")]
    return current().map(Bubble::now_ns);
    #[cfg(not(feature = "sim"))]
    None
}

/// The same in `std`'s type.
#[inline(always)]
pub(crate) fn now() -> Option<Instant> {
    #[cfg(feature = "sim")]
    return current().map(Bubble::now);
    #[cfg(not(feature = "sim"))]
    None
}

/// The virtual time of day of the calling thread's bubble; `None` outside.
#[inline(always)]
pub(crate) fn time_of_day() -> Option<SystemTime> {
    #[cfg(feature = "sim")]
    return current().map(Bubble::time_of_day);
    #[cfg(not(feature = "sim"))]
    None
}

/// A number below `n`, which is not 0, drawn from the seed of the calling thread's bubble; `None`
/// outside.
#[inline(always)]
pub(crate) fn below(n: usize) -> Option<usize> {
    #[cfg(feature = "sim")]
    return current().map(|bubble| bubble.below(n));
    #[cfg(not(feature = "sim"))]
    {
        let _ = n;
        None
    }
}

/// Whether the simulated host of the calling goroutine has crashed under it: the goroutine must
/// end.
#[inline(always)]
pub(crate) fn is_lost() -> bool {
    #[cfg(feature = "sim")]
    return current().is_some_and(Bubble::is_current_lost);
    #[cfg(not(feature = "sim"))]
    false
}

/// Refuses what a simulation does not contain.
///
/// # Panics
///
/// Inside a bubble, unless the thread unwinds already.
#[inline(always)]
#[track_caller]
pub(crate) fn refuse(what: &str, instead: &str) {
    #[cfg(feature = "sim")]
    if is_inside() {
        refuse_now(what, instead);
    }
    #[cfg(not(feature = "sim"))]
    let _ = (what, instead);
}

#[cfg(feature = "sim")]
#[cold]
#[track_caller]
fn refuse_now(what: &str, instead: &str) {
    if !std::thread::panicking() {
        panic!("windlass: {what} is not simulated: {instead}");
    }
}

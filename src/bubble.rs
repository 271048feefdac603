//! A bubble: one simulated run, seen from below.
//!
//! With the feature `sim`, a program can run inside a bubble (`crate::sim`): one thread, one P, and
//! one seed, from which all choices are drawn. The crate windlass-world has its clock, its choices, its
//! network and its disks, as plain values. What the scheduler does in a bubble is in
//! `sched/wait/turn.rs` and `sched/proc/simulate.rs`.
//!
//! Without the feature a bubble cannot exist, and that crate is not built. Then `no_bubble.rs` stands in the place of
//! this file, and other files `no_*.rs` in that of files that know a bubble. Their types have no
//! values, so nothing is left of an `if let` on them.

pub(crate) use inside::{Bubble, current, is_inside};
pub(crate) use windlass_world::{
    draw, inside, log, messages, net, runnable, schedule, shorten, strategy, tally,
};

/// A number below `n`, which is not 0, drawn from the seed of the calling thread's bubble; `None`
/// outside.
#[inline(always)]
pub(crate) fn below(n: usize) -> Option<usize> {
    current().map(|bubble| bubble.below(n))
}

/// Whether the simulated host of the calling goroutine has crashed under it: the goroutine must
/// end.
#[inline(always)]
pub(crate) fn is_lost() -> bool {
    current().is_some_and(|bubble| bubble.is_current_lost())
}

/// Refuses what a simulation does not contain.
///
/// # Panics
///
/// Inside a bubble, unless the thread unwinds already.
#[inline(always)]
#[track_caller]
pub(crate) fn refuse(what: &str, instead: &str) {
    if is_inside() {
        refuse_now(what, instead);
    }
}

#[cold]
#[track_caller]
fn refuse_now(what: &str, instead: &str) {
    if !std::thread::panicking() {
        panic!("windlass: {what} is not simulated: {instead}");
    }
}

/// Called by the sanitizer: it has reported a race of the calling thread, which is a failure of the simulation that the
/// thread is in.
#[cfg(all(feature = "race", target_arch = "x86_64"))]
#[allow(unsafe_code, reason = "the name is the sanitizer's")]
#[unsafe(no_mangle)]
extern "C" fn __tsan_on_report(_: *const std::ffi::c_void) {
    crate::race::in_report(|| {
        if let Some(bubble) = current() {
            bubble.note_race();
        }
    });
}

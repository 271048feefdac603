//! The monotonic clock in nanoseconds, the runtime's only notion of time.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

/// A deadline that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// Nanoseconds of `CLOCK_MONOTONIC` (a vDSO read, no system call).
#[inline]
pub(crate) fn now_ns() -> u64 {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY:
    // - `ts` is a valid place for a timespec.
    // - CLOCK_MONOTONIC exists on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// The present as `std` names it, for deadlines that users give as an [`Instant`].
#[inline]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The instant `d` from now; durations past the clock's range mean [`NEVER`].
pub(crate) fn deadline_ns(d: Duration) -> u64 {
    u64::try_from(d.as_nanos())
        .ok()
        .and_then(|ns| now_ns().checked_add(ns))
        .unwrap_or(NEVER)
}

/// The same instant on this clock, never before it; [`NEVER`] past the clock's range.
pub(crate) fn instant_ns(when: Instant) -> u64 {
    deadline_ns(when.saturating_duration_since(now()))
}

/// CPU time that thread `tid` of this process has used, or `None` if it is gone.
pub(crate) fn thread_cpu_ns(tid: i32) -> Option<u64> {
    // The clock id of a thread's CPU clock as the kernel encodes it
    // (include/linux/posix-timers.h): !tid << 3, per-thread bit 4, CPUCLOCK_SCHED 2.
    let clock = (!tid << 3) | 4 | 2;
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `ts` is a valid place for a timespec; a bad clock id is an error return.
    let r = unsafe { libc::clock_gettime(clock, &mut ts) };
    (r == 0).then(|| ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64)
}

/// A timespec of `ns` nanoseconds, for relative waits.
pub(crate) fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

/// Sleeps the calling thread for `ns` nanoseconds or until a signal.
pub(crate) fn nap(ns: u64) {
    let ts = timespec(ns);
    // SAFETY: `ts` is a valid timespec; a null remainder is allowed.
    unsafe { libc::nanosleep(&ts, std::ptr::null_mut()) };
}

/// Makes the calling thread's timed waits end on time: by default the kernel
/// may let them run 50 µs late to batch wake-ups.
pub(crate) fn tighten_timer_slack() -> u64 {
    // SAFETY: both calls take plain integers and change only this thread's slack.
    unsafe {
        let before = libc::prctl(libc::PR_GET_TIMERSLACK);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1u64);
        u64::try_from(before).unwrap_or(0)
    }
}

/// Gives a borrowed thread its timer slack back.
pub(crate) fn restore_timer_slack(slack_ns: u64) {
    // SAFETY: takes a plain integer; 0 means the default.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns) };
}

//! The monotonic clock in nanoseconds, the runtime's only clock.
#![allow(unsafe_code)]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::virtual_time;

/// A deadline that never comes.
pub const NEVER: u64 = u64::MAX;

/// Nanoseconds of `CLOCK_MONOTONIC` (read through the vDSO, without a system call).
#[inline]
#[cfg_attr(explore, allow(unreachable_code))]
pub fn now_ns() -> u64 {
    #[cfg(explore)]
    return windlass_explorer::now_ns();
    if let Some(ns) = virtual_time::now_ns() {
        return ns;
    }
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY:
    // - `ts` is a valid timespec to write to.
    // - CLOCK_MONOTONIC exists on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// The current time in `std`'s type, for deadlines that users give as an [`Instant`].
#[inline]
#[cfg_attr(explore, allow(unreachable_code))]
pub fn now() -> Instant {
    #[cfg(explore)]
    return windlass_explorer::instant_now();
    virtual_time::now().unwrap_or_else(Instant::now)
}

/// The time of day.
#[inline]
pub fn time_of_day() -> SystemTime {
    virtual_time::time_of_day().unwrap_or_else(SystemTime::now)
}

/// A counter that runs at a constant rate ([`ticks_in`]) and is cheaper than [`now_ns`]: the CPU's
/// own, if it has one. It may jump when a thread changes CPUs, on machines whose CPUs are not
/// synchronised. For hints about durations only.
#[inline(always)]
pub fn ticks() -> u64 {
    // In the explorer, time is virtual.
    if cfg!(explore) {
        return now_ns();
    }
    if let Some(ns) = virtual_time::now_ns() {
        return ns;
    }
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 has the instruction.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: Linux lets user code read the virtual counter; the instruction accesses nothing
        // else.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    now_ns()
}

/// The number of [`ticks`] in `ns`, measured once: rather too few than too many.
pub fn ticks_in(ns: u64) -> u64 {
    if cfg!(explore) {
        return ns;
    }
    static PER_MS: LazyLock<u64> = LazyLock::new(|| (0..3).map(|_| measure()).max().unwrap_or(1));
    (u128::from(*PER_MS) * u128::from(ns) / 1_000_000) as u64
}

/// The number of ticks in a millisecond, or fewer if the thread is interrupted during the
/// measurement.
fn measure() -> u64 {
    const FOR_NS: u64 = 20_000;
    let begin_ns = now_ns();
    let begin = ticks();
    while now_ns() - begin_ns < FOR_NS {
        std::hint::spin_loop();
    }
    let elapsed = ticks().wrapping_sub(begin);
    let elapsed_ns = now_ns() - begin_ns;
    (u128::from(elapsed) * 1_000_000 / u128::from(elapsed_ns)) as u64
}

/// The instant `d` from now; [`NEVER`] past the clock's range.
#[inline]
pub fn deadline_ns(d: Duration) -> u64 {
    u64::try_from(d.as_nanos())
        .ok()
        .and_then(|ns| now_ns().checked_add(ns))
        .unwrap_or(NEVER)
}

/// The time until the deadline: 0 if it has passed, [`NEVER`] if there is none.
#[inline]
pub fn left_ns(deadline_ns: u64) -> u64 {
    match deadline_ns {
        NEVER => NEVER,
        _ => deadline_ns.saturating_sub(now_ns()),
    }
}

/// An instant of `std` on this clock, rounded up; [`NEVER`] past the clock's range.
#[inline]
pub fn instant_ns(when: Instant) -> u64 {
    deadline_ns(when.saturating_duration_since(now()))
}

/// The CPU time that thread `tid` of this process has used; `None` if it has ended.
#[cfg_attr(explore, allow(unreachable_code, unused_variables))]
pub fn thread_cpu_ns(tid: i32) -> Option<u64> {
    // In the explorer, a thread that does not wait is running.
    #[cfg(explore)]
    return Some(windlass_explorer::now_ns());
    // The clock id of a thread's CPU clock as the kernel encodes it
    // (include/linux/posix-timers.h): !tid << 3, per-thread bit 4, CPUCLOCK_SCHED 2.
    let clock = (!tid << 3) | 4 | 2;
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `ts` is a valid timespec to write to; a bad clock id is an error return.
    let r = unsafe { libc::clock_gettime(clock, &mut ts) };
    (r == 0).then(|| ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64)
}

/// A timespec of `ns` nanoseconds, for relative waits.
#[inline]
pub fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

/// Sleeps the calling thread for `ns` nanoseconds or until a signal.
#[cfg_attr(explore, allow(unreachable_code), track_caller)]
pub fn nap(ns: u64) {
    #[cfg(explore)]
    return windlass_explorer::sleep_ns(ns);
    let ts = timespec(ns);
    // SAFETY: `ts` is a valid timespec; a null remainder is allowed.
    unsafe { super::raw::nanosleep(&raw const ts) };
}

/// The slack of threads that the runtime has not tightened; 0, which stands for a thread's default,
/// before one has been.
///
/// Ordering: relaxed. A number that a thread which does not see it does without.
static USUAL_SLACK_NS: AtomicU64 = AtomicU64::new(0);

/// The least slack.
const TIGHT_NS: u64 = 1;

/// Makes the calling thread's timed waits end on time: by default the kernel may delay them by 50
/// µs to batch wake-ups. Returns the previous slack.
pub fn tighten_timer_slack() -> u64 {
    let before = timer_slack_ns();
    if before > TIGHT_NS {
        USUAL_SLACK_NS.store(before, Ordering::Relaxed);
    }
    restore_timer_slack(TIGHT_NS);
    before
}

/// Gives the calling thread the slack that threads have which the runtime has not tightened. `false` if
/// it is not tight.
pub fn loosen_timer_slack() -> bool {
    let is_tight = timer_slack_ns() == TIGHT_NS;
    if is_tight {
        restore_timer_slack(USUAL_SLACK_NS.load(Ordering::Relaxed));
    }
    is_tight
}

fn timer_slack_ns() -> u64 {
    // SAFETY: takes a plain integer.
    let slack_ns = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
    u64::try_from(slack_ns).unwrap_or(0)
}

/// Restores the timer slack of a thread that the runtime has borrowed.
pub fn restore_timer_slack(slack_ns: u64) {
    // SAFETY: takes a plain integer, and changes only this thread's slack; 0 means the default.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ticks_run_at_the_rate_that_was_measured() {
        let mut seen = Vec::new();
        // The least disturbed of several measurements.
        for _ in 0..20 {
            let (begin, begin_ns) = (ticks(), now_ns());
            nap(1_000_000);
            let (end, end_ns) = (ticks(), now_ns());
            let expected = ticks_in(end_ns - begin_ns) as f64;
            seen.push(end.wrapping_sub(begin) as f64 / expected);
        }
        assert!(seen.iter().any(|r| (0.9..1.1).contains(r)), "{seen:?}");
    }
}

//! How often a P reads the clock, how many expired timers overtake its queue, and whether its
//! goroutines compute: functions of plain numbers.
//!
//! Reading the clock takes as long as a fast dispatch, so it is not done for each one. A count of
//! dispatches alone bounds no time: 61 dispatches of 100 µs are 6 ms. So dispatches are measured,
//! in ticks of the CPU's counter, which is cheaper than the clock, and not after every dispatch
//! either:
//!
//! - The next measurement comes after as many dispatches as fit into [`ladder::TICK_NS`], by the last
//!   measurement. Slow dispatches are measured one by one.
//! - While dispatches are fast, the interval doubles up to [`MOST_DISPATCHES`]. This bounds the
//!   cost of a change from fast to slow ones: at most that many slow dispatches pass before it is
//!   noticed.
//! - A chain of runnext dispatches is measured after its second one, so a chain of slow ones ends
//!   about when its slice does, whatever ran before.
//!
//! When a measurement finds that [`ladder::TICK_NS`] have passed, the P reads the clock, and handles the
//! slice, the timers, and all other periodic duties.

use crate::util::ladder;

/// Maximum number of dispatches between two measurements.
pub(crate) const MOST_DISPATCHES: u32 = 16;
/// A chain of hand-overs is measured with so many dispatches through runnext: the first of the
/// chain did not come from there.
pub(crate) const MEASURE_CHAIN_AT: u8 = 2;
/// How many dispatches back the share is counted.
const SHARE_KEPT: u64 = 2 * ladder::BATCH as u64;

/// After how many dispatches to measure again. The last `n` of an interval of `interval` took
/// `elapsed` ticks; [`ladder::TICK_NS`] are `tick` ticks.
#[inline]
pub(crate) fn interval_after(interval: u32, n: u32, elapsed: u64, tick: u64) -> u32 {
    if elapsed < tick / 2 {
        return (2 * interval).min(MOST_DISPATCHES);
    }
    let fits = u64::from(n) * tick / elapsed.max(1);
    fits.clamp(1, u64::from(MOST_DISPATCHES)) as u32
}

/// How many of `n` goroutines with expired timers may run before those in the queue: as many as
/// there were other dispatches since `from`, so the queue keeps half of all. Also returns the
/// dispatch from which to count next time.
pub(crate) fn overtakers(from: u64, dispatches: u64, n: usize) -> (usize, u64) {
    let from = from.max(dispatches.saturating_sub(SHARE_KEPT));
    let share = dispatches.saturating_sub(from) / 2;
    let taken = share.min(n as u64);
    (taken as usize, from + 2 * taken)
}

/// From so many goroutines on that timers have woken since the P slept last, the memory of those
/// that come next is prefetched: many slept, so none of it is still in the caches.
pub(crate) const MANY_SLEEPERS: usize = 64;
/// How many goroutines timers must have woken between two sleeps for the next timers to wait a
/// little for one another.
const COALESCE_FROM: usize = 4;
/// How long they wait at most for each goroutine woken: at least [`ladder::SLICE_NS`], which is for a few
/// tickers, and at most [`ladder::LATE_NS`], for thousands of sleepers.
const COALESCE_EACH_NS: u64 = 5 * ladder::TICK_NS;

/// When a P that goes to sleep may be woken by a timer, if timers have woken `woken` goroutines
/// since it slept last.
///
/// Going to sleep and waking takes as much CPU as tens of timers. If one sleep is too short for
/// more than a few of them, it is short because there are many: then they are served together. The
/// more there are, the longer the next sleep.
pub(crate) fn earliest_wake(woken: usize, now_ns: impl FnOnce() -> u64) -> u64 {
    if woken < COALESCE_FROM {
        return 0;
    }
    let wait_ns = (woken as u64).saturating_mul(COALESCE_EACH_NS);
    now_ns() + wait_ns.clamp(ladder::SLICE_NS, ladder::LATE_NS)
}

/// From this time between two looks at the node queue on, a share of it costs little beside what
/// the dispatches in between took.
const SHARE_AFTER_NS: u64 = 5 * ladder::TICK_NS;

/// How many goroutines to take from the node queue however long the local queue is, after `since`
/// dispatches in `since_ns`: as many as were dispatched. Then the local queue overflows into the node
/// queue as fast as it takes from there, and all take turns. With one goroutine a look, those in the
/// node queue waited for dozens of rounds of those in the local queue. Fast dispatches do not
/// pay for that: there dozens of rounds are a few milliseconds.
pub(crate) fn share_of_node_queue(since: u32, since_ns: u64) -> usize {
    match since_ns >= SHARE_AFTER_NS {
        true => since as usize,
        false => 1,
    }
}

/// A P's goroutines compute if at most so many dispatches lie between two long ones. A thread that
/// is preempted runs more in between.
const LONG_WITHIN: u64 = 16;
/// For so many dispatches after that nothing is queued for a batch.
const AT_ONCE_FOR: u64 = 64;

/// Whether dispatches that took `elapsed` ticks hold a long one; [`ladder::TICK_NS`] are `tick` ticks.
#[inline]
pub(crate) fn is_long(elapsed: u64, tick: u64) -> bool {
    elapsed >= ladder::SLICE_NS / ladder::TICK_NS * tick
}

/// Until which dispatch sends and receives are made at once, if the long ones before this, the
/// `n`th, ended with dispatch `last`.
pub(crate) fn at_once_until(last: Option<u64>, n: u64) -> Option<u64> {
    let is_near = last.is_some_and(|last| (1..=LONG_WITHIN).contains(&(n - last)));
    is_near.then_some(n + AT_ONCE_FOR)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const TICK: u64 = 30_000;

    #[test]
    fn fast_dispatches_are_measured_rarely() {
        let mut interval = 1;
        for expected in [2, 4, 8, 16, 16] {
            interval = interval_after(interval, interval, u64::from(interval) * 100, TICK);
            assert_eq!(interval, expected);
        }
    }

    #[test]
    fn slow_dispatches_are_measured_one_by_one_at_once() {
        assert_eq!(interval_after(16, 16, 16 * TICK, TICK), 1);
        assert_eq!(interval_after(16, 16, 100 * TICK, TICK), 1);
        // A counter that jumps back.
        assert_eq!(interval_after(16, 16, u64::MAX - 5, TICK), 1);
    }

    #[test]
    fn in_between_as_many_as_fit() {
        assert_eq!(interval_after(4, 4, TICK, TICK), 4);
        assert_eq!(interval_after(4, 4, 2 * TICK, TICK), 2);
        assert_eq!(interval_after(1, 1, TICK / 2, TICK), 2);
        // Fewer dispatches were measured than the interval, because the P entered the kernel
        // meanwhile.
        assert_eq!(interval_after(16, 2, TICK, TICK), 2);
    }

    /// Sleepers that wake at every dispatch get half of the dispatches.
    #[test]
    fn the_queue_keeps_half_of_the_dispatches() {
        let (mut from, mut overtaken) = (0, 0);
        for dispatches in 0..10_000 {
            let (taken, next) = overtakers(from, dispatches, 3);
            overtaken += taken as u64;
            from = next;
            assert!(2 * overtaken <= dispatches + SHARE_KEPT);
        }
        assert!(overtaken >= 4_990);
    }

    #[test]
    fn the_more_timers_come_due_the_longer_they_wait_for_one_another() {
        let wake = |woken| earliest_wake(woken, || 7);
        assert_eq!([wake(0), wake(3)], [0, 0]);
        assert_eq!([wake(4), wake(10), wake(15)], [200_007, 500_007, 750_007]);
        assert_eq!([wake(20), wake(100_000)], [1_000_007, 1_000_007]);
        assert_eq!(wake(usize::MAX), 1_000_007);
    }

    #[test]
    fn slow_dispatches_take_as_many_from_the_node_queue() {
        assert_eq!(share_of_node_queue(61, 3_000), 1);
        assert_eq!(share_of_node_queue(61, 49_999), 1);
        assert_eq!(share_of_node_queue(61, 50_000), 61);
        assert_eq!(share_of_node_queue(1, 1_000_000), 1);
        assert_eq!(share_of_node_queue(10, 1_000_000), 10);
    }

    #[test]
    fn a_dispatch_is_long_from_twenty_ticks_on() {
        assert!(!is_long(20 * TICK - 1, TICK));
        assert!(is_long(20 * TICK, TICK));
    }

    #[test]
    fn two_long_dispatches_close_together_are_needed() {
        assert_eq!(at_once_until(None, 0), None);
        assert_eq!(at_once_until(Some(100), 117), None);
        assert_eq!(at_once_until(Some(100), 116), Some(180));
        assert_eq!(at_once_until(Some(100), 101), Some(165));
        // The same dispatch.
        assert_eq!(at_once_until(Some(100), 100), None);
    }

    #[test]
    fn after_a_pause_a_batch_may_overtake() {
        assert_eq!(overtakers(0, 10_000, 100), (32, 10_000));
        assert_eq!(overtakers(10_000, 10_000, 100), (0, 10_000));
        assert_eq!(overtakers(10_000, 10_011, 1), (1, 10_002));
    }
}

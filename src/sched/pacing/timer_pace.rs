//! How many goroutines whose timers expired overtake the queue, and how long the timers of a P that sleeps wait for
//! one another.

use std::cell::Cell;

use crate::util::ladder;

/// How long timers wait for one another for each goroutine that timers have woken between two sleeps: not at all below
/// [`ladder::SLICE_NS`], which is for a few tickers, and at most [`ladder::LATE_NS`], for thousands of sleepers.
const COALESCE_EACH_NS: u64 = ladder::SLICE_NS / 4;

/// The goroutines that timers wake on one P.
#[derive(Debug, Default)]
pub(crate) struct TimerPace {
    /// Number of goroutines that timers have woken since it slept last.
    woken: Cell<usize>,
    /// Before this time no timer ends its sleep.
    earliest_wake_ns: Cell<u64>,
    /// Dispatch count from which the share of expired timers is counted.
    overtakes_from: Cell<u64>,
}

impl TimerPace {
    /// Timers have woken `n` goroutines.
    pub(crate) fn note_woken(&self, n: usize) {
        self.woken.set(self.woken.get() + n);
    }

    /// Whether timers have woken many goroutines since the P slept last, two batches: then none of their memory is still
    /// in the caches.
    #[inline(always)]
    pub(crate) fn has_many(&self) -> bool {
        self.woken.get() >= 2 * ladder::BATCH as usize
    }

    /// How many of `n` goroutines with expired timers may run before those in the queue, after so many dispatches: at
    /// most half of all dispatches, or the queue would starve.
    pub(crate) fn overtakers(&self, dispatches: u64, n: usize) -> usize {
        let from = &self.overtakes_from;
        let (share, next) = overtakers(from.get(), dispatches, n);
        from.set(next);
        share
    }

    /// When the P, which goes to sleep, may be woken by a timer.
    pub(crate) fn begin_sleep(&self, now_ns: impl FnOnce() -> u64) -> u64 {
        let earliest_ns = earliest_wake(self.woken.replace(0), now_ns);
        // A notification may have ended the last sleep early.
        let earliest_ns = earliest_ns.max(self.earliest_wake_ns.get());
        self.earliest_wake_ns.set(earliest_ns);
        earliest_ns
    }
}

/// How many of `n` goroutines with expired timers may run before those in the queue: as many as
/// there were other dispatches since `from`, so the queue keeps half of all. At most a batch: two batches of
/// dispatches are counted. Also returns the dispatch from which to count next time.
fn overtakers(from: u64, dispatches: u64, n: usize) -> (usize, u64) {
    let from = from.max(dispatches.saturating_sub(2 * u64::from(ladder::BATCH)));
    let share = dispatches.saturating_sub(from) / 2;
    let taken = share.min(n as u64);
    (taken as usize, from + 2 * taken)
}

/// When a P that goes to sleep may be woken by a timer, if timers have woken `woken` goroutines
/// since it slept last.
///
/// Going to sleep and waking takes as much CPU as tens of timers. If one sleep is too short for
/// more than a few of them, it is short because there are many: then they are served together. The
/// more there are, the longer the next sleep.
fn earliest_wake(woken: usize, now_ns: impl FnOnce() -> u64) -> u64 {
    let wait_ns = (woken as u64).saturating_mul(COALESCE_EACH_NS);
    if wait_ns < ladder::SLICE_NS {
        return 0;
    }
    now_ns() + wait_ns.min(ladder::LATE_NS)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Sleepers that wake at every dispatch get half of the dispatches.
    #[test]
    fn the_queue_keeps_half_of_the_dispatches() {
        let pace = TimerPace::default();
        let mut overtaken = 0;
        for dispatches in 0..10_000 {
            overtaken += pace.overtakers(dispatches, 3) as u64;
            assert!(2 * overtaken <= dispatches + 2 * u64::from(ladder::BATCH));
        }
        assert!(overtaken >= 4_990);
    }

    #[test]
    fn after_a_pause_a_batch_may_overtake() {
        assert_eq!(overtakers(0, 10_000, 100), (32, 10_000));
        assert_eq!(overtakers(10_000, 10_000, 100), (0, 10_000));
        assert_eq!(overtakers(10_000, 10_011, 1), (1, 10_002));
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
    fn a_sleep_that_ends_early_goes_on_until_its_time() {
        let pace = TimerPace::default();
        pace.note_woken(10);
        assert_eq!(pace.begin_sleep(|| 1_000), 501_000);
        // Woken by a notification, with no timers served.
        assert_eq!(pace.begin_sleep(|| 2_000), 501_000);
        pace.note_woken(2 * ladder::BATCH as usize - 1);
        assert!(!pace.has_many());
        pace.note_woken(1);
        assert!(pace.has_many());
    }
}

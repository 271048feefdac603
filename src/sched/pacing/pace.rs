//! How often a P reads the clock.
//!
//! Reading the clock takes as long as a fast dispatch, so it is not done for each one. A count of
//! dispatches alone bounds no time: 61 dispatches of 100 µs are 6 ms. So dispatches are measured,
//! in ticks of the CPU's counter, which is cheaper than the clock, and not after every dispatch
//! either:
//!
//! - The next measurement comes after as many dispatches as fit into `ladder::TICK_NS`, by the last
//!   measurement. Slow dispatches are measured one by one.
//! - While dispatches are fast, the interval doubles up to [`MOST_DISPATCHES`]. This bounds the
//!   cost of a change from fast to slow ones: at most that many slow dispatches pass before it is
//!   noticed.
//! - A chain of runnext dispatches is measured after its third one, so a chain of slow ones ends
//!   about when its slice does, whatever ran before.
//!
//! When a measurement finds that `ladder::TICK_NS` have passed, the P reads the clock, and handles the
//! slice, the timers, and all other periodic duties: a *tick* of the P.

use std::cell::Cell;

use windlass_ground::counter::CoarseTime;

use crate::loom::native::atomic::{AtomicU32, Ordering};

/// Maximum number of dispatches between two measurements.
const MOST_DISPATCHES: u32 = 16;
/// A chain of hand-overs is measured with so many dispatches through runnext: the first of the
/// chain did not come from there.
const MEASURE_CHAIN_AT: u8 = 2;

/// The measurements of one P, and the last time that it has read.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Dispatches until the next measurement, at which the P's status is read, too. Ordering: relaxed
    /// loads and stores of the holder; sysmon stores 0 for an earlier check, and stores it again if
    /// the holder has just overwritten it.
    budget: AtomicU32,
    /// Dispatches between two measurements.
    interval: Cell<u32>,
    /// The counter, and the rest of the budget, when dispatches were last measured.
    measured_at: Cell<u64>,
    measured_from: Cell<u32>,
    /// Dispatches through runnext in the current chain, up to [`MEASURE_CHAIN_AT`].
    chained: Cell<u8>,
    /// `ladder::TICK_NS`, in units of the counter.
    tick: u64,
    /// The counter at the last tick, and dispatches since.
    ticked_at: Cell<u64>,
    since_tick: Cell<u32>,
    /// The time of the last clock reading. Sysmon updates it for a P whose goroutine runs for long.
    now_ns: CoarseTime,
}

impl Pace {
    /// For a counter that adds `tick` in `ladder::TICK_NS`.
    pub(crate) fn new(tick: u64) -> Pace {
        Pace {
            budget: AtomicU32::new(0),
            interval: Cell::new(1),
            measured_at: Cell::new(0),
            measured_from: Cell::new(0),
            chained: Cell::new(MEASURE_CHAIN_AT),
            tick,
            ticked_at: Cell::new(0),
            since_tick: Cell::new(0),
            now_ns: CoarseTime::default(),
        }
    }

    #[inline(always)]
    fn budget(&self) -> u32 {
        self.budget.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn set_budget(&self, n: u32) {
        self.budget.store(n, Ordering::Relaxed);
    }

    /// Counts a dispatch. `false` if it is time for [`Pace::measure`] instead.
    #[inline(always)]
    pub(crate) fn count_dispatch(&self) -> bool {
        let left = self.budget();
        if left == 0 {
            return false;
        }
        self.set_budget(left - 1);
        true
    }

    /// Makes the next dispatch a measured one. Any thread; the holder may overwrite it.
    #[inline]
    pub(crate) fn measure_next(&self) {
        self.set_budget(0);
    }

    /// Measures the dispatches of the interval that has ended, with the counter at `counter`. Returns
    /// their number.
    #[inline]
    pub(crate) fn measure(&self, counter: u64) -> u32 {
        let elapsed = counter.wrapping_sub(self.measured_at.replace(counter));
        let (interval, measured) = (self.interval.get(), self.measured_from.get() + 1);
        let next = interval_after(interval, measured, elapsed, self.tick);
        self.interval.set(next);
        self.measured_from.set(next - 1);
        self.set_budget(next - 1);
        self.since_tick.set(self.since_tick.get() + interval);
        interval
    }

    /// Measures from here on, at `now_ns` and with the counter at `counter`: no dispatch is charged for the time until
    /// now.
    #[inline]
    pub(crate) fn restart(&self, now_ns: u64, counter: u64) {
        self.now_ns.set(now_ns);
        self.measured_from.set(self.budget());
        self.measured_at.set(counter);
    }

    /// The next goroutine did not come through runnext.
    #[inline(always)]
    pub(crate) fn begin_chain(&self) {
        self.chained.set(0);
    }

    /// The next goroutine came through runnext. The third of a chain ends a measurement,
    /// whatever the interval is: earlier goroutines give no estimate of how long these take.
    #[inline(always)]
    pub(crate) fn lengthen_chain(&self) {
        let n = self.chained.get();
        if n < MEASURE_CHAIN_AT {
            self.chained.set(n + 1);
            if n + 1 == MEASURE_CHAIN_AT {
                self.measure_chain();
            }
        }
    }

    /// The next dispatch is the last before a measurement.
    #[inline(never)]
    fn measure_chain(&self) {
        let left_out = self.budget();
        if left_out != 0 && left_out < self.interval.get() {
            self.set_budget(0);
            self.interval.set(self.interval.get() - left_out);
            let from = self.measured_from.get().saturating_sub(left_out);
            self.measured_from.set(from);
        }
    }

    /// `ladder::TICK_NS`, in units of the counter. Any thread.
    #[inline(always)]
    pub(crate) fn tick(&self) -> u64 {
        self.tick
    }

    /// Whether a tick is due, with the counter at `counter`. If so, it counts as begun.
    #[inline]
    pub(crate) fn begin_tick(&self, counter: u64) -> bool {
        let is_due = counter.wrapping_sub(self.ticked_at.get()) >= self.tick;
        if is_due {
            self.ticked_at.set(counter);
        }
        is_due
    }

    /// Makes a tick due before the next dispatch.
    #[inline]
    pub(crate) fn tick_soon(&self, counter: u64) {
        self.measure_next();
        self.ticked_at.set(counter.wrapping_sub(self.tick));
    }

    /// The clock was read, at a tick. Returns the time since the reading before, at least 1, and the dispatches since
    /// the last tick.
    #[inline]
    pub(crate) fn note_tick(&self, now_ns: u64) -> (u64, u32) {
        let elapsed_ns = now_ns.saturating_sub(self.now_ns.get()).max(1);
        self.now_ns.set(now_ns);
        (elapsed_ns, self.since_tick.replace(0))
    }

    /// The time of the last clock reading. Any thread.
    #[inline(always)]
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    /// The clock was read. Any thread.
    pub(crate) fn set_now_ns(&self, now_ns: u64) {
        self.now_ns.set(now_ns);
    }
}

/// After how many dispatches to measure again. The last `n` of an interval of `interval` took
/// `elapsed` ticks of the counter; `ladder::TICK_NS` are `tick` of them.
#[inline]
fn interval_after(interval: u32, n: u32, elapsed: u64, tick: u64) -> u32 {
    if elapsed < tick / 2 {
        return (2 * interval).min(MOST_DISPATCHES);
    }
    let fits = u64::from(n) * tick / elapsed.max(1);
    fits.clamp(1, u64::from(MOST_DISPATCHES)) as u32
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

    /// A P whose next measurement comes after 16 dispatches, with the counter at the end of the last one.
    fn fast() -> (Pace, u64) {
        let (pace, mut counter) = (Pace::new(TICK), 1_000_000);
        for _ in 0..5 {
            pace.measure(counter);
            while pace.count_dispatch() {}
            counter += 100;
        }
        pace.measure(counter);
        (pace, counter)
    }

    /// Dispatches until the next measurement, counting the one that it precedes.
    fn until_measured(pace: &Pace) -> u32 {
        let mut n = 1;
        while pace.count_dispatch() {
            n += 1;
        }
        n
    }

    #[test]
    fn an_interval_has_as_many_dispatches_as_it_says() {
        let (pace, counter) = fast();
        assert_eq!(until_measured(&pace), 16);
        assert_eq!(pace.measure(counter + 16 * TICK), 16);
        assert_eq!(until_measured(&pace), 1);
        assert_eq!(pace.measure(counter + 17 * TICK), 1);
    }

    #[test]
    fn a_chain_is_measured_after_its_third_dispatch() {
        let (pace, _) = fast();
        pace.begin_chain();
        for handed_on in [1, 2] {
            assert!(pace.count_dispatch(), "{handed_on}");
            pace.lengthen_chain();
        }
        assert!(!pace.count_dispatch());
        // Later ones of the chain are measured as the interval says.
        let (pace, _) = fast();
        (0..3).for_each(|_| pace.lengthen_chain());
        assert_eq!(until_measured(&pace), 16);
    }

    #[test]
    fn a_measurement_can_be_asked_for() {
        let (pace, _) = fast();
        pace.measure_next();
        assert!(!pace.count_dispatch());
    }

    #[test]
    fn a_tick_is_due_once_in_its_time_or_when_asked_for() {
        let (pace, counter) = fast();
        assert!(pace.begin_tick(counter));
        assert!(!pace.begin_tick(counter + TICK - 1));
        assert!(pace.begin_tick(counter + TICK));
        pace.tick_soon(counter + TICK + 1);
        assert!(!pace.count_dispatch());
        assert!(pace.begin_tick(counter + TICK + 1));
    }

    #[test]
    fn a_tick_tells_the_time_and_the_dispatches_since_the_last() {
        let (pace, counter) = fast();
        pace.note_tick(5_000);
        pace.measure(counter + 100);
        assert_eq!(pace.note_tick(6_000), (1_000, 16));
        // A clock that stands still.
        assert_eq!(pace.note_tick(6_000), (1, 0));
        assert_eq!(pace.now_ns(), 6_000);
    }

    #[test]
    fn after_a_restart_the_time_before_is_charged_to_no_dispatch() {
        let (pace, counter) = fast();
        for _ in 0..8 {
            assert!(pace.count_dispatch());
        }
        pace.restart(7_000, counter + 100 * TICK);
        assert_eq!(pace.now_ns(), 7_000);
        // 8 dispatches were fast.
        pace.measure(counter + 100 * TICK + 100);
        assert_eq!(until_measured(&pace), 16);
    }
}

//! How long the dispatches of a P take, on average, and how often it reads the clock.
//!
//! Reading the clock takes as long as a fast dispatch, so it is not done for each one. A count of
//! dispatches alone bounds no time: 61 dispatches of 100 µs are 6 ms. So dispatches are measured,
//! in ticks of the CPU's counter, which is cheaper than the clock, and not after every dispatch
//! either. A moving average over the last [`MOST_DISPATCHES`] of them decides
//!
//! - after how many dispatches the next measurement comes: as many as fit into `ladder::TICK_NS`. Slow dispatches are
//!   measured one by one, fast ones [`MOST_DISPATCHES`] at a time. This bounds the cost of a change from fast to slow
//!   ones: at most that many slow dispatches pass before it is noticed, and none after a pause of the P;
//! - when the node's queue has its turn, and how large (`node_queue_turns`);
//! - whether the goroutines compute: if so, operations do not wait for a batch ([`COMPUTES_NS`]).
//!
//! A chain of runnext dispatches is measured after its third one, so a chain of slow ones ends
//! about when its slice does, whatever ran before.
//!
//! A measurement counts for `ladder::SLICE_NS` at most. A longer one tells nothing more: the kernel may have
//! preempted the thread for any time. So one accident is a sixteenth of a slice in the average, 12.5 µs, and two are less
//! than `COMPUTES_NS`.
//!
//! When a measurement finds that `ladder::TICK_NS` have passed, the P reads the clock, and handles the
//! slice, the timers, and all other periodic duties: a *tick* of the P.

use std::cell::Cell;

use windlass_ground::counter::{CoarseTime, Counter};

use crate::loom::native::atomic::{AtomicU32, Ordering};
use crate::util::ladder;

/// Maximum number of dispatches between two measurements, and how many the average is over.
const MOST_DISPATCHES: u64 = 16;
/// A chain of hand-overs is measured with so many dispatches through runnext: the first of the
/// chain did not come from there.
const MEASURE_CHAIN_AT: u8 = 2;
/// Goroutines compute if a dispatch takes so long on average. An entry waits for `ladder::GRACE_NS` until it is
/// submitted: from this length on, one submission seldom has the entries of two dispatches, so batches gain nothing.
const COMPUTES_NS: u64 = ladder::LATE_NS / ladder::BATCH as u64;

/// The measurements of one P, and the last time that it has read.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Dispatches until the next measurement, at which the P's status is read, too. Ordering: relaxed
    /// loads and stores of the holder; sysmon stores 0 for an earlier check, and stores it again if
    /// the holder has just overwritten it.
    budget: AtomicU32,
    /// The counter, and the number of the last dispatch, when dispatches were last measured.
    measured_at: Cell<u64>,
    measured_n: Cell<u64>,
    /// What [`MOST_DISPATCHES`] take on average, in units of the counter.
    taken: Counter,
    /// Dispatches through runnext in the current chain, up to [`MEASURE_CHAIN_AT`].
    chained: Cell<u8>,
    /// `ladder::TICK_NS`, in units of the counter.
    tick: u64,
    /// The counter at the last tick.
    ticked_at: Cell<u64>,
    /// The time of the last clock reading. Sysmon updates it for a P whose goroutine runs for long.
    now_ns: CoarseTime,
}

impl Pace {
    /// For a counter that adds `tick` in `ladder::TICK_NS`.
    pub(crate) fn new(tick: u64) -> Pace {
        Pace {
            budget: AtomicU32::new(0),
            measured_at: Cell::new(0),
            measured_n: Cell::new(0),
            taken: Counter::default(),
            chained: Cell::new(MEASURE_CHAIN_AT),
            tick,
            ticked_at: Cell::new(0),
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

    /// Measures the dispatches up to the `n`th, which has ended, with the counter at `counter`. Returns whether they took
    /// a slice.
    #[inline]
    pub(crate) fn measure(&self, counter: u64, n: u64) -> bool {
        let sample = self.charge(counter, n);
        let next = match sample {
            // The first one after a pause is measured by itself.
            None => 1,
            Some(_) => interval(self.taken.get(), self.tick),
        };
        self.set_budget(next - 1);
        sample == Some(self.slice())
    }

    /// Goroutines have run until now, up to the `n`th dispatch: as [`Pace::measure`], but does not say when to measure
    /// again. Returns how long they took, a slice at most. `None` without a dispatch: the P has searched or slept.
    #[inline]
    pub(crate) fn charge(&self, counter: u64, n: u64) -> Option<u64> {
        let elapsed = counter.wrapping_sub(self.measured_at.replace(counter));
        let dispatches = n - self.measured_n.replace(n);
        if dispatches == 0 {
            return None;
        }
        let (taken, sample) = (self.taken.get(), elapsed.min(self.slice()));
        self.taken.set(average(taken, dispatches, sample));
        Some(sample)
    }

    /// No dispatch is charged for the time between two readings of the counter.
    #[inline]
    pub(crate) fn leave_out(&self, from: u64, to: u64) {
        let measured_at = self.measured_at.get();
        self.measured_at
            .set(measured_at.wrapping_add(to.wrapping_sub(from)));
    }

    /// Whether `n` dispatches take a slice, on average.
    #[inline]
    pub(crate) fn take_a_slice(&self, n: u64) -> bool {
        n * self.taken.get() >= MOST_DISPATCHES * self.slice()
    }

    /// Whether dispatches are so fast that they are measured [`MOST_DISPATCHES`] at a time.
    #[inline]
    pub(crate) fn is_fast(&self) -> bool {
        self.taken.get() <= self.tick
    }

    /// Whether the goroutines compute. Any thread.
    #[inline]
    pub(crate) fn computes(&self) -> bool {
        self.taken.get() >= MOST_DISPATCHES * COMPUTES_NS / ladder::TICK_NS * self.tick
    }

    /// `ladder::SLICE_NS`, in units of the counter.
    #[inline]
    fn slice(&self) -> u64 {
        ladder::SLICE_NS / ladder::TICK_NS * self.tick
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
                self.measure_next();
            }
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

    /// The clock was read, at a tick. Returns the time since the reading before, at least 1.
    #[inline]
    pub(crate) fn note_tick(&self, now_ns: u64) -> u64 {
        let elapsed_ns = now_ns.saturating_sub(self.now_ns.get()).max(1);
        self.now_ns.set(now_ns);
        elapsed_ns
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

/// After how many dispatches to measure again, if [`MOST_DISPATCHES`] take `taken` ticks of the counter;
/// `ladder::TICK_NS` are `tick` of them.
#[inline]
fn interval(taken: u64, tick: u64) -> u32 {
    if taken <= tick {
        return MOST_DISPATCHES as u32;
    }
    (MOST_DISPATCHES * tick / taken).max(1) as u32
}

/// What [`MOST_DISPATCHES`] take on average, if that was `taken` and the next `n` took `elapsed`.
#[inline]
fn average(taken: u64, n: u64, elapsed: u64) -> u64 {
    taken * MOST_DISPATCHES.saturating_sub(n) / MOST_DISPATCHES + elapsed
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const TICK: u64 = 30_000;
    const SLICE: u64 = 20 * TICK;

    /// A P whose goroutines run one after the other.
    struct Running {
        pace: Pace,
        counter: u64,
        n: u64,
    }

    impl Running {
        /// Its dispatches were fast, and have just been measured.
        fn fast() -> Running {
            let pace = Pace::new(TICK);
            let counter = 1_000_000;
            let mut running = Running {
                pace,
                counter,
                n: 0,
            };
            (0..20).for_each(|_| running.run(100));
            running.measure();
            running
        }

        fn measure(&self) -> bool {
            self.pace.measure(self.counter, self.n)
        }

        /// A dispatch that takes so long.
        fn run(&mut self, elapsed: u64) {
            if !self.pace.count_dispatch() {
                self.measure();
            }
            self.n += 1;
            self.counter += elapsed;
        }

        /// Fast dispatches until the next measurement, counting the one that it precedes.
        fn until_measured(&mut self) -> u32 {
            let mut n = 1;
            while self.pace.count_dispatch() {
                n += 1;
            }
            self.n += u64::from(n);
            self.counter += 100 * u64::from(n);
            n
        }

        /// A dispatch that takes so long, and is measured by itself. Returns whether its P computes now.
        fn run_alone(&mut self, elapsed: u64) -> bool {
            self.measure();
            self.n += 1;
            self.counter += elapsed;
            self.measure();
            self.pace.computes()
        }

        /// As many such dispatches.
        fn run_many(&mut self, n: usize, elapsed: u64) {
            for _ in 0..n {
                self.run_alone(elapsed);
            }
        }
    }

    #[test]
    fn fast_dispatches_are_measured_rarely() {
        let mut running = Running::fast();
        assert!(running.pace.is_fast());
        assert_eq!(running.until_measured(), 16);
        running.measure();
        assert_eq!(running.until_measured(), 16);
    }

    #[test]
    fn slow_dispatches_are_measured_one_by_one_at_once() {
        for elapsed in [16 * TICK, 100 * TICK, u64::MAX - 5] {
            // The counter jumps back in the last case.
            let running = Running::fast();
            running
                .pace
                .measure(running.counter.wrapping_add(elapsed), running.n + 16);
            assert!(!running.pace.count_dispatch(), "{elapsed}");
            assert!(!running.pace.is_fast(), "{elapsed}");
        }
    }

    #[test]
    fn in_between_as_many_as_fit() {
        assert_eq!(interval(TICK, TICK), 16);
        assert_eq!(interval(4 * TICK, TICK), 4);
        assert_eq!(interval(16 * TICK, TICK), 1);
        assert_eq!(interval(17 * TICK, TICK), 1);
    }

    #[test]
    fn the_average_forgets_all_but_the_last_sixteen() {
        assert_eq!(average(800, 16, 160), 160);
        assert_eq!(average(800, 40, 160), 160);
        assert_eq!(average(800, 4, 160), 760);
        // All take 10.
        assert_eq!(average(160, 1, 10), 160);
    }

    /// A chain of dispatches as slow as they may be is measured by its third one: see `slice`.
    #[test]
    fn a_chain_is_measured_after_its_third_dispatch() {
        let running = Running::fast();
        running.pace.begin_chain();
        for handed_on in [1, 2] {
            assert!(running.pace.count_dispatch(), "{handed_on}");
            running.pace.lengthen_chain();
        }
        assert!(!running.pace.count_dispatch());
        // Later ones of the chain are measured as the average says.
        let mut running = Running::fast();
        running.pace.begin_chain();
        (0..2).for_each(|_| running.pace.lengthen_chain());
        running.run_alone(100);
        running.pace.lengthen_chain();
        assert_eq!(running.until_measured(), 16);
    }

    #[test]
    fn a_measurement_can_be_asked_for() {
        let running = Running::fast();
        running.pace.measure_next();
        assert!(!running.pace.count_dispatch());
    }

    /// Timers would wait for 16 goroutines that run for long, if a P that begins with such ones believed what ran before
    /// its pause.
    #[test]
    fn the_first_dispatch_after_a_pause_is_measured_by_itself() {
        let mut running = Running::fast();
        running.measure();
        assert!(!running.pace.count_dispatch());
        running.measure();
        running.n += 1;
        running.counter += 100;
        running.measure();
        assert_eq!(running.until_measured(), 16);
    }

    #[test]
    fn goroutines_compute_from_31_us_on() {
        for (elapsed, computes) in [(3 * TICK, false), (4 * TICK, true)] {
            let mut running = Running::fast();
            running.run_many(200, elapsed);
            assert_eq!(running.pace.computes(), computes, "{elapsed}");
        }
    }

    /// As a server does where a third of the requests take a millisecond: `benches/src/bin/stalls.rs`.
    #[test]
    fn three_long_dispatches_among_few_short_ones_compute() {
        let mut running = Running::fast();
        assert!(!running.run_alone(100 * TICK));
        running.run_alone(100);
        assert!(!running.run_alone(100 * TICK));
        running.run_alone(100);
        assert!(running.run_alone(100 * TICK));
        for _ in 0..100 {
            running.run_alone(100);
            running.run_alone(100);
            assert!(running.run_alone(100 * TICK));
        }
        running.run_many(16, 100);
        assert!(!running.pace.computes());
    }

    /// On a busy machine the kernel takes the CPU from a thread now and then, for milliseconds, whatever its goroutines
    /// do: an echo server whose batches end then takes a fifth more CPU time.
    #[test]
    fn a_thread_that_is_preempted_now_and_then_does_not_compute() {
        let mut running = Running::fast();
        for _ in 0..1_000 {
            // Twice together, as by a client that the server wakes.
            assert!(!running.run_alone(1_000 * TICK));
            assert!(!running.run_alone(1_000 * TICK));
            (0..64).for_each(|_| running.run(TICK / 5));
        }
    }

    #[test]
    fn the_kernel_s_time_is_no_dispatch_s() {
        let mut running = Running::fast();
        for _ in 0..50 {
            let from = running.counter;
            running.counter += 10 * SLICE;
            running.pace.leave_out(from, running.counter);
            running.run(100);
            running.measure();
        }
        assert!(running.pace.is_fast());
    }

    #[test]
    fn a_pause_is_no_dispatch_s() {
        let mut running = Running::fast();
        for _ in 0..50 {
            running.counter += 10 * SLICE;
            assert!(!running.run_alone(100));
        }
        assert!(running.pace.is_fast());
    }

    #[test]
    fn as_many_dispatches_take_a_slice_as_the_average_says() {
        let mut running = Running::fast();
        assert!(!running.pace.take_a_slice(61));
        running.run_many(200, 5 * TICK);
        assert!(!running.pace.take_a_slice(3));
        assert!(running.pace.take_a_slice(5));
        assert!(!running.pace.take_a_slice(0));
    }

    #[test]
    fn a_measurement_tells_whether_dispatches_took_a_slice() {
        for (elapsed, is_long) in [(SLICE - 1, false), (SLICE, true), (50 * SLICE, true)] {
            let mut running = Running::fast();
            running.pace.measure_next();
            running.run(elapsed);
            assert_eq!(running.measure(), is_long, "{elapsed}");
            // Nothing has run since.
            running.counter += SLICE;
            assert!(!running.measure());
        }
    }

    #[test]
    fn a_tick_is_due_once_in_its_time_or_when_asked_for() {
        let Running { pace, counter, .. } = Running::fast();
        assert!(pace.begin_tick(counter));
        assert!(!pace.begin_tick(counter + TICK - 1));
        assert!(pace.begin_tick(counter + TICK));
        pace.tick_soon(counter + TICK + 1);
        assert!(!pace.count_dispatch());
        assert!(pace.begin_tick(counter + TICK + 1));
    }

    #[test]
    fn a_tick_tells_the_time_since_the_last() {
        let pace = Pace::new(TICK);
        pace.note_tick(5_000);
        assert_eq!(pace.note_tick(6_000), 1_000);
        // A clock that stands still.
        assert_eq!(pace.note_tick(6_000), 1);
        assert_eq!(pace.now_ns(), 6_000);
    }
}

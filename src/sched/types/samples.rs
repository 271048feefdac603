//! When `sampling` takes a sample of a P: at which tick, between which checks of the ring, after which wake-up.

use std::cell::Cell;

/// The measurement of a gap between two checks of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    None,
    /// The next check begins it.
    Begins,
    /// The next check ends it.
    Ends,
}

/// One tick in so many stamps a goroutine.
const STAMP_EVERY: u8 = 8;

/// The samples that one P has begun.
#[derive(Debug)]
pub(crate) struct Samples {
    ticks: Cell<u8>,
    gap: Cell<Gap>,
    gap_from_ns: Cell<u64>,
    /// The dispatch count at the last tick.
    ticked_n: Cell<u64>,
    /// Whether the M slept since the last tick.
    slept: Cell<bool>,
    /// The dispatch count when the M was last woken.
    woken_at: Cell<u64>,
}

impl Samples {
    pub(crate) fn new() -> Samples {
        Samples {
            ticks: Cell::new(0),
            gap: Cell::new(Gap::None),
            gap_from_ns: Cell::new(0),
            ticked_n: Cell::new(0),
            slept: Cell::new(false),
            woken_at: Cell::new(u64::MAX),
        }
    }

    /// Counts a tick. `true` if it stamps a goroutine.
    pub(crate) fn count_tick(&self) -> bool {
        let n = self.ticks.get().wrapping_add(1);
        self.ticks.set(n);
        n.is_multiple_of(STAMP_EVERY)
    }

    /// Called at a tick that comes `elapsed_ns` after the last one, with the dispatch count. Returns the length of
    /// the gap between two checks of the ring that ends here, if one does.
    pub(crate) fn gap_at_tick(
        &self,
        is_any_in_flight: bool,
        elapsed_ns: u64,
        n: u64,
    ) -> Option<u64> {
        let dispatches = n - self.ticked_n.replace(n);
        if self.slept.replace(false) || !is_any_in_flight {
            self.gap.set(Gap::None);
        } else if dispatches == 1 {
            return Some(elapsed_ns);
        } else {
            self.gap.set(Gap::Begins);
        }
        None
    }

    /// Whether the next check of the ring is one end of a gap.
    #[inline(always)]
    pub(crate) fn has_gap(&self) -> bool {
        self.gap.get() != Gap::None
    }

    /// Called where the ring is checked, at one end of a gap. The last tick was at `tick_ns`: a moment ago, if it
    /// is the tick that began the gap. Returns the length of the gap if it ends here.
    pub(crate) fn gap_at_check(&self, tick_ns: u64, now_ns: impl FnOnce() -> u64) -> Option<u64> {
        if self.gap.get() == Gap::Begins {
            self.gap_from_ns.set(tick_ns);
            self.gap.set(Gap::Ends);
            return None;
        }
        self.gap.set(Gap::None);
        Some(now_ns().saturating_sub(self.gap_from_ns.get()))
    }

    /// The M is about to sleep, after so many dispatches. `true` if it was woken in vain.
    pub(crate) fn note_sleep(&self, dispatches: u64) -> bool {
        self.gap.set(Gap::None);
        self.slept.set(true);
        self.woken_at.replace(u64::MAX) == dispatches
    }

    /// Another thread woke the M, after so many dispatches.
    pub(crate) fn note_wake(&self, dispatches: u64) {
        self.woken_at.set(dispatches);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_tick_in_eight_stamps() {
        let samples = Samples::new();
        let stamps = (0..64).filter(|_| samples.count_tick()).count();
        assert_eq!(stamps, 8);
    }

    #[test]
    fn a_gap_lies_between_the_two_checks_after_a_tick() {
        let samples = Samples::new();
        assert_eq!(samples.gap_at_tick(true, 9, 3), None);
        assert!(samples.has_gap());
        assert_eq!(samples.gap_at_check(100, || unreachable!()), None);
        assert_eq!(samples.gap_at_check(100, || 130), Some(30));
        assert!(!samples.has_gap());
    }

    #[test]
    fn one_long_dispatch_is_a_gap_by_itself() {
        let samples = Samples::new();
        samples.gap_at_tick(false, 9, 3);
        assert_eq!(samples.gap_at_tick(true, 50_000, 4), Some(50_000));
        assert!(!samples.has_gap());
    }

    #[test]
    fn sleep_is_no_gap() {
        let samples = Samples::new();
        samples.gap_at_tick(true, 9, 3);
        samples.note_sleep(0);
        assert!(!samples.has_gap());
        assert_eq!(samples.gap_at_tick(true, 50_000, 4), None);
        assert_eq!(samples.gap_at_tick(false, 50_000, 5), None);
        assert!(!samples.has_gap());
    }

    #[test]
    fn a_wake_is_useless_if_nothing_ran_after_it() {
        let samples = Samples::new();
        assert!(!samples.note_sleep(5));
        samples.note_wake(5);
        assert!(samples.note_sleep(5));
        samples.note_wake(5);
        assert!(!samples.note_sleep(6));
    }
}

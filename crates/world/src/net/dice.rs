//! The part of a run that the simulated network needs: its clock, and numbers from its seed.

/// The run, as the network sees it.
pub trait Dice {
    /// The virtual time, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// The number of steps so far.
    fn step(&self) -> u64;

    /// The virtual time at which the run began.
    fn began_ns(&self) -> u64;

    /// A number below `n`, which is not 0. The plainest run draws 0.
    fn below(&self, n: u32) -> u32;

    /// Whether the run belongs to an exhaustive search of schedules. Then the network draws
    /// nothing: each number would multiply the schedules.
    fn is_search(&self) -> bool;
}

/// A probability is stored as a number of millionths.
pub const MILLION: u32 = 1_000_000;

/// One read or write of a stream in so many is short, if it could move more than a byte.
const SHORT_EVERY: u32 = 8;

impl dyn Dice + '_ {
    /// Whether something happens that has this probability, in millionths.
    pub(crate) fn chance(&self, millionths: u32) -> bool {
        millionths > 0
            && !self.is_search()
            && self.below(MILLION) >= MILLION - millionths.min(MILLION)
    }

    /// A number from `least` to `most`. The plainest run draws `least`.
    pub(crate) fn between(&self, least: u64, most: u64) -> u64 {
        let span = most.saturating_sub(least);
        if span == 0 || self.is_search() {
            return least;
        }
        let steps = u32::try_from(span).unwrap_or(u32::MAX - 1);
        let drawn = u128::from(self.below(steps + 1)) * u128::from(span) / u128::from(steps);
        least + drawn as u64
    }

    /// How many of `n` bytes one call on a stream moves: all, or now and then fewer. At least 1, if
    /// `n` is not 0.
    pub(crate) fn short(&self, n: usize) -> usize {
        if n < 2 || self.is_search() || self.below(SHORT_EVERY) + 1 < SHORT_EVERY {
            return n;
        }
        let fewer = u32::try_from(n - 1).unwrap_or(u32::MAX);
        1 + self.below(fewer) as usize
    }

    /// The time `ns` from now.
    pub(crate) fn after(&self, ns: u64) -> u64 {
        self.now_ns().saturating_add(ns)
    }
}

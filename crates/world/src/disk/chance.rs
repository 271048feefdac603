//! Draws for a simulated disk. Without a bubble nothing is drawn, and nothing goes wrong. An
//! exhaustive search tries what a loss of power leaves, but neither other faults nor times.

use std::time::Duration;

use crate::inside::current;
use crate::net::dice::Dice;

/// How many steps a drawn time has between its ends.
const TIME_STEPS: usize = 16;

/// One in so many pages that were being written when the power went is torn.
const TORN: u32 = 250_000;

/// A number below `n`, which is not 0. 0 is the plain case.
pub fn below(n: usize) -> usize {
    current().map_or(0, |bubble| bubble.below(n))
}

/// Whether something happens that has this probability, in millionths.
pub fn chance(per_million: u32) -> bool {
    current().is_some_and(|bubble| !bubble.is_search() && bubble.chance(per_million))
}

/// A random time from `first` to `last`, which are in order; `first` where nothing is drawn.
pub fn time(first: Duration, last: Duration) -> Duration {
    let width = last.saturating_sub(first);
    if width.is_zero() || current().is_some_and(|bubble| bubble.is_search()) {
        return first;
    }
    let (step, last) = (below(TIME_STEPS) as u32, TIME_STEPS as u32 - 1);
    let part = width.checked_mul(step).map(|time| time / last);
    first + part.unwrap_or_else(|| width / last * step)
}

/// The effect of a loss of power on all that had not been synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PowerLoss {
    /// All of it had reached the disk.
    Kept,
    /// None of it had.
    Lost,
    /// Each part has an effect of its own.
    Mixed,
}

impl PowerLoss {
    pub(super) fn draw() -> PowerLoss {
        match below(4) {
            0 => PowerLoss::Kept,
            1 => PowerLoss::Lost,
            _ => PowerLoss::Mixed,
        }
    }

    /// Which of `n` states, in order of time, the disk has. There is at least one.
    pub(super) fn state_of(self, n: usize) -> usize {
        match self {
            PowerLoss::Kept => n - 1,
            PowerLoss::Lost => 0,
            PowerLoss::Mixed => n - 1 - below(n),
        }
    }

    /// The sectors of a page that have the state before the newest one on the disk, as bits.
    pub(super) fn torn_sectors(self) -> u8 {
        if self == PowerLoss::Mixed && chance(TORN) {
            below(256) as u8
        } else {
            0
        }
    }
}

//! Something to do again and again.

use std::time::{Duration, Instant};

use super::sleep::sleep_until;
use crate::sys::clock;

/// What to do about ticks that nobody waited for in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedTickBehavior {
    /// Gives them one after another, until the interval has caught up.
    #[default]
    Burst,
    /// Gives one, and counts the period from then on.
    Delay,
    /// Gives one, leaves the others out, and goes on in the old rhythm.
    Skip,
}

/// Ticks at a fixed rate: made by [`interval`].
#[derive(Debug)]
pub struct Interval {
    next: Instant,
    period: Duration,
    missed: MissedTickBehavior,
}

/// Ticks every `period`, the first time at once.
///
/// # Panics
///
/// If `period` is zero.
///
/// # Examples
///
/// ```
/// use windlass::time::{Duration, interval};
///
/// let mut ticks = interval(Duration::from_millis(2));
/// let first = ticks.tick();
/// assert_eq!(ticks.tick() - first, Duration::from_millis(2));
/// ```
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    interval_at(clock::now(), period)
}

/// Ticks every `period`, the first time at `start`.
///
/// # Panics
///
/// If `period` is zero.
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(!period.is_zero(), "`period` must be non-zero");
    Interval {
        next: start,
        period,
        missed: MissedTickBehavior::default(),
    }
}

impl Interval {
    /// Waits for the next tick and gives the instant that it was due.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. On a goroutine whose runtime ends it
    /// unwinds. Returns early if the ambient context ([`context`](crate::context)) is
    /// done; the tick is then still to come.
    pub fn tick(&mut self) -> Instant {
        let due = self.next;
        sleep_until(due);
        let now = clock::now();
        if due <= now {
            self.next = self.after(due, now);
        }
        due
    }

    /// Begins anew: the next tick comes in a period.
    pub fn reset(&mut self) {
        self.next = later(clock::now(), self.period);
    }

    /// What happens to ticks that nobody waited for in time.
    #[must_use]
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed
    }

    /// Sets what happens to ticks that nobody waited for in time.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed = behavior;
    }

    /// The time between two ticks.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }

    /// The tick after the one at `due`, which is given at `now`.
    fn after(&self, due: Instant, now: Instant) -> Instant {
        let next = later(due, self.period);
        if next > now {
            return next;
        }
        match self.missed {
            MissedTickBehavior::Burst => next,
            MissedTickBehavior::Delay => later(now, self.period),
            MissedTickBehavior::Skip => {
                let into_period = (now - due).as_nanos() % self.period.as_nanos();
                let left = self.period - nanos(into_period);
                later(now, left)
            }
        }
    }
}

/// `at + d`; where the clock ends, a time that nobody will see.
fn later(at: Instant, d: Duration) -> Instant {
    const THIRTY_YEARS: Duration = Duration::from_secs(30 * 365 * 86_400);
    at.checked_add(d).unwrap_or_else(|| at + THIRTY_YEARS)
}

fn nanos(ns: u128) -> Duration {
    Duration::new((ns / 1_000_000_000) as u64, (ns % 1_000_000_000) as u32)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn after(missed: MissedTickBehavior, late: Duration) -> Duration {
        let start = Instant::now();
        let mut ticks = interval_at(start, 10 * MS);
        ticks.set_missed_tick_behavior(missed);
        ticks.after(start, start + late) - start
    }

    #[test]
    fn the_next_tick_by_behavior() {
        use MissedTickBehavior::{Burst, Delay, Skip};
        for missed in [Burst, Delay, Skip] {
            assert_eq!(after(missed, MS), 10 * MS, "{missed:?}, in time");
        }
        assert_eq!(after(Burst, 35 * MS), 10 * MS);
        assert_eq!(after(Delay, 35 * MS), 45 * MS);
        assert_eq!(after(Skip, 35 * MS), 40 * MS);
        assert_eq!(after(Skip, 40 * MS), 50 * MS);
    }
}

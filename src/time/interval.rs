//! Ticks at a fixed rate.

use std::time::{Duration, Instant};

use super::sleep::sleep_until;
use crate::sys::clock;

/// The treatment of missed ticks by an [`Interval`]: those that were due before [`Interval::tick`] was
/// called for them.
///
/// # Examples
///
/// ```
/// use windlass::time::{Duration, Instant, MissedTickBehavior, interval_at};
///
/// let period = Duration::from_millis(10);
/// let start = Instant::now() - Duration::from_millis(35);
/// let mut ticks = interval_at(start, period);
/// ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
/// assert_eq!(ticks.missed_tick_behavior(), MissedTickBehavior::Skip);
/// assert_eq!(ticks.tick(), start);
/// let next = ticks.tick();
/// assert!(next >= start + 4 * period); // the ticks at 10, 20 and 30 ms are skipped
/// assert_eq!((next - start).as_millis() % 10, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedTickBehavior {
    /// Returns all missed ticks one after another, until the interval has caught up.
    #[default]
    Burst,
    /// Returns one missed tick. The next tick is one period after that call.
    Delay,
    /// Returns one missed tick and skips the others. Later ticks stay multiples of the period after
    /// the start.
    Skip,
}

/// Ticks at a fixed rate. Created by [`interval`] and [`interval_at`].
#[derive(Debug)]
pub struct Interval {
    next: Instant,
    period: Duration,
    missed: MissedTickBehavior,
}

/// Creates an interval that ticks every `period`. The first tick is due at once.
///
/// # Blocking
///
/// Never; see [`Interval::tick`].
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

/// Creates an interval that ticks every `period`. The first tick is due at `start`.
///
/// # Blocking
///
/// Never; see [`Interval::tick`].
///
/// # Panics
///
/// If `period` is zero.
///
/// # Examples
///
/// ```
/// use windlass::time::{Duration, Instant, interval_at};
///
/// let start = Instant::now() + Duration::from_millis(2);
/// let mut ticks = interval_at(start, Duration::from_millis(1));
/// assert_eq!(ticks.period(), Duration::from_millis(1));
/// assert_eq!(ticks.tick(), start);
/// assert!(Instant::now() >= start);
/// ```
#[track_caller]
pub fn interval_at(start: impl Into<Instant>, period: Duration) -> Interval {
    assert!(!period.is_zero(), "`period` must be non-zero");
    Interval {
        next: start.into(),
        period,
        missed: MissedTickBehavior::default(),
    }
}

impl Interval {
    /// Waits for the next tick and returns the instant at which it was due.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. Unwinds if the goroutine's runtime ends. Returns
    /// early if the ambient context ([`context`](crate::context)) is done; the next call then
    /// returns the same tick.
    ///
    /// # Examples
    ///
    /// See [`interval`].
    pub fn tick(&mut self) -> crate::instant::Instant {
        let due = self.next;
        sleep_until(due);
        let now = clock::now();
        if due <= now {
            self.next = self.after(due, now);
        }
        due.into()
    }

    /// Restarts the interval: the next tick is due one period from now.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::time::{Duration, Instant, interval};
    ///
    /// let period = Duration::from_millis(2);
    /// let mut ticks = interval(period);
    /// let start = Instant::now();
    /// ticks.reset();
    /// assert!(ticks.tick() >= start + period);
    /// ```
    pub fn reset(&mut self) {
        self.next = later(clock::now(), self.period);
    }

    /// Returns what the interval does with missed ticks.
    #[must_use]
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed
    }

    /// Sets what the interval does with missed ticks.
    ///
    /// # Examples
    ///
    /// See [`MissedTickBehavior`].
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed = behavior;
    }

    /// Returns the time between two ticks.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Returns the tick after the one that was due at `due` and is returned at `now`.
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

/// Returns `at + d`, or a time in the far future if the sum overflows.
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

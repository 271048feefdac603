//! The monotonic clock: the kernel's, or that of a simulation.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

use crate::sys::clock;

/// A time of the monotonic clock. It has the interface of [`std::time::Instant`].
///
/// The difference: inside a simulation (feature `sim`) it is virtual time, which moves only when
/// no goroutine can run. Outside, it is `std`'s clock.
///
/// The two types convert into each other, and each is compared with and subtracted from the other.
/// Functions of windlass that take a deadline take either type, and all that return an instant
/// return this one. Only in an `Option`, such as that of
/// [`TcpStream::set_read_deadline`](crate::net::TcpStream::set_read_deadline), an instant of `std`
/// must be converted: `Some(instant.into())`.
///
/// # Examples
///
/// ```
/// use windlass::time::{Duration, Instant};
///
/// let start = Instant::now();
/// windlass::sleep(Duration::from_millis(2));
/// assert!(start.elapsed() >= Duration::from_millis(2));
///
/// let of_std: std::time::Instant = start.into();
/// assert_eq!(Instant::from(of_std), start);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(std::time::Instant);

impl Instant {
    /// The time now.
    ///
    /// # Blocking
    ///
    /// Never.
    #[must_use]
    #[inline]
    pub fn now() -> Instant {
        Instant(clock::now())
    }

    /// The time from `earlier` to this, or zero if that is later.
    #[must_use]
    #[inline]
    pub fn duration_since(&self, earlier: impl Into<Instant>) -> Duration {
        self.0.duration_since(earlier.into().0)
    }

    /// The time from `earlier` to this, or `None` if that is later.
    #[must_use]
    #[inline]
    pub fn checked_duration_since(&self, earlier: impl Into<Instant>) -> Option<Duration> {
        self.0.checked_duration_since(earlier.into().0)
    }

    /// The time from `earlier` to this, or zero if that is later.
    #[must_use]
    #[inline]
    pub fn saturating_duration_since(&self, earlier: impl Into<Instant>) -> Duration {
        self.0.saturating_duration_since(earlier.into().0)
    }

    /// The time that has passed since this instant.
    #[must_use]
    #[inline]
    pub fn elapsed(&self) -> Duration {
        clock::now().duration_since(self.0)
    }

    /// The instant `duration` later, or `None` past the clock's range.
    #[must_use]
    #[inline]
    pub fn checked_add(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_add(duration).map(Instant)
    }

    /// The instant `duration` earlier, or `None` past the clock's range.
    #[must_use]
    #[inline]
    pub fn checked_sub(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_sub(duration).map(Instant)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<std::time::Instant> for Instant {
    #[inline]
    fn from(instant: std::time::Instant) -> Instant {
        Instant(instant)
    }
}

impl From<Instant> for std::time::Instant {
    #[inline]
    fn from(instant: Instant) -> std::time::Instant {
        instant.0
    }
}

impl PartialEq<std::time::Instant> for Instant {
    fn eq(&self, other: &std::time::Instant) -> bool {
        self.0 == *other
    }
}

impl PartialEq<Instant> for std::time::Instant {
    fn eq(&self, other: &Instant) -> bool {
        *self == other.0
    }
}

impl PartialOrd<std::time::Instant> for Instant {
    fn partial_cmp(&self, other: &std::time::Instant) -> Option<std::cmp::Ordering> {
        self.0.partial_cmp(other)
    }
}

impl PartialOrd<Instant> for std::time::Instant {
    fn partial_cmp(&self, other: &Instant) -> Option<std::cmp::Ordering> {
        self.partial_cmp(&other.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// # Panics
    ///
    /// Past the clock's range.
    fn add(self, duration: Duration) -> Instant {
        Instant(self.0 + duration)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    /// # Panics
    ///
    /// Past the clock's range.
    fn sub(self, duration: Duration) -> Instant {
        Instant(self.0 - duration)
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    /// As [`Instant::duration_since`].
    fn sub(self, earlier: Instant) -> Duration {
        self.duration_since(earlier)
    }
}

impl Sub<std::time::Instant> for Instant {
    type Output = Duration;

    fn sub(self, earlier: std::time::Instant) -> Duration {
        self.0 - earlier
    }
}

impl Sub<Instant> for std::time::Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self - earlier.0
    }
}

//! The monotonic clock: the kernel's, or that of a simulation.

use std::ops::Sub;
use std::time::Duration;

use windlass_ground::std_traits::time_traits;

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

time_traits!(Instant);

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

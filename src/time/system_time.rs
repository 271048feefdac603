//! The time of day: the kernel's, or that of a simulation.

use std::time::{Duration, SystemTimeError};

use windlass_ground::std_traits::time_traits;

use crate::sys::clock;

/// A time of day. It has the interface of [`std::time::SystemTime`].
///
/// The difference: inside a simulation (feature `sim`) it is virtual time, which begins on 1
/// January 2000, UTC, and moves only when no goroutine can run. Outside, it is `std`'s clock.
///
/// The two types convert into each other and can be compared. Functions of windlass that take a
/// time of day take either type, and all that return one return this one.
///
/// # Examples
///
/// ```
/// use windlass::time::{Duration, SystemTime, UNIX_EPOCH};
///
/// let now = SystemTime::now();
/// assert!(now.duration_since(UNIX_EPOCH)? > Duration::from_secs(946_684_800));
///
/// let of_std: std::time::SystemTime = now.into();
/// assert_eq!(SystemTime::from(of_std), now);
/// # Ok::<(), windlass::time::SystemTimeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SystemTime(std::time::SystemTime);

/// 1 January 1970, UTC.
pub const UNIX_EPOCH: SystemTime = SystemTime::UNIX_EPOCH;

impl SystemTime {
    /// 1 January 1970, UTC.
    pub const UNIX_EPOCH: SystemTime = SystemTime(std::time::SystemTime::UNIX_EPOCH);

    /// The time now.
    ///
    /// # Blocking
    ///
    /// Never.
    #[must_use]
    pub fn now() -> SystemTime {
        SystemTime(clock::time_of_day())
    }

    /// The time from `earlier` to this.
    ///
    /// # Errors
    ///
    /// If `earlier` is later. The error has the difference.
    pub fn duration_since(
        &self,
        earlier: impl Into<SystemTime>,
    ) -> Result<Duration, SystemTimeError> {
        self.0.duration_since(earlier.into().0)
    }

    /// The time that has passed since this time.
    ///
    /// # Errors
    ///
    /// If this time is still to come, or the clock was set back.
    pub fn elapsed(&self) -> Result<Duration, SystemTimeError> {
        SystemTime::now().duration_since(*self)
    }

    /// The time `duration` later, or `None` past the clock's range.
    #[must_use]
    pub fn checked_add(&self, duration: Duration) -> Option<SystemTime> {
        self.0.checked_add(duration).map(SystemTime)
    }

    /// The time `duration` earlier, or `None` past the clock's range.
    #[must_use]
    pub fn checked_sub(&self, duration: Duration) -> Option<SystemTime> {
        self.0.checked_sub(duration).map(SystemTime)
    }
}

time_traits!(SystemTime);

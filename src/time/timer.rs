//! Timers and tickers: instants as messages of a channel, to select among.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::channel::{Alarm, Receiver, Then};
use crate::sys::clock;

/// Sends one instant on its channel, once that has come. Unlike
/// [`channel::after`](crate::channel::after) it can be stopped and set again.
///
/// After [`stop`](Timer::stop) or [`reset`](Timer::reset) nothing of the time before is
/// ever received, also if the instant had come and nobody had taken the message: so there
/// is no channel to drain. A timer that nobody waits for costs nothing.
///
/// # Examples
///
/// ```
/// use windlass::channel::TryRecvError;
/// use windlass::time::{Duration, Instant, Timer};
///
/// let start = Instant::now();
/// let timer = Timer::new(Duration::from_millis(2));
/// assert!(timer.channel().recv().unwrap() >= start + Duration::from_millis(2));
///
/// timer.reset(Duration::ZERO);
/// assert!(timer.stop());
/// assert_eq!(timer.channel().try_recv(), Err(TryRecvError::Empty));
/// ```
pub struct Timer {
    alarm: Arc<Alarm>,
    channel: Receiver<Instant>,
}

impl Timer {
    /// A timer for `duration` from now.
    #[must_use]
    pub fn new(duration: Duration) -> Timer {
        let (alarm, channel) = Receiver::alarm(clock::now().checked_add(duration), Then::Once);
        Timer { alarm, channel }
    }

    /// The channel of its message. Clones of it stay the timer's.
    #[must_use]
    pub fn channel(&self) -> &Receiver<Instant> {
        &self.channel
    }

    /// Stops it: nothing is received until it is set again. Whether a message was still to
    /// come, or to be received.
    ///
    /// # Blocking
    ///
    /// Never. Those that wait in the channel go on waiting.
    pub fn stop(&self) -> bool {
        self.alarm.set(None, Then::Once)
    }

    /// Sets it to `duration` from now. Whether a message was still to come, or to be
    /// received; it will not be.
    ///
    /// # Blocking
    ///
    /// Never. Those that wait in the channel wait for the new instant.
    pub fn reset(&self, duration: Duration) -> bool {
        let when = clock::now().checked_add(duration);
        self.alarm.set(when, Then::Once)
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").finish_non_exhaustive()
    }
}

/// Sends an instant on its channel every period. Unlike
/// [`channel::tick`](crate::channel::tick) it keeps its rhythm, and can be stopped and
/// set again.
///
/// Who receives late gets the first instant that was missed, and then the next one in the
/// rhythm. As with a [`Timer`], nothing of the time before `stop` or `reset` is ever
/// received, and a ticker that nobody waits for costs nothing.
///
/// # Examples
///
/// ```
/// use windlass::time::{Duration, Instant, Ticker};
///
/// let start = Instant::now();
/// let ticker = Ticker::new(Duration::from_millis(2));
/// let first = ticker.channel().recv().unwrap();
/// assert!(first >= start + Duration::from_millis(2));
/// assert!(ticker.channel().recv().unwrap() > first);
/// ticker.stop();
/// ```
pub struct Ticker {
    alarm: Arc<Alarm>,
    channel: Receiver<Instant>,
}

impl Ticker {
    /// A ticker whose first instant is a `period` from now.
    ///
    /// # Panics
    ///
    /// If `period` is zero.
    #[must_use]
    #[track_caller]
    pub fn new(period: Duration) -> Ticker {
        let (when, then) = plan(period);
        let (alarm, channel) = Receiver::alarm(when, then);
        Ticker { alarm, channel }
    }

    /// The channel of its messages. Clones of it stay the ticker's.
    #[must_use]
    pub fn channel(&self) -> &Receiver<Instant> {
        &self.channel
    }

    /// Stops it: nothing is received until it is set again.
    ///
    /// # Blocking
    ///
    /// Never. Those that wait in the channel go on waiting.
    pub fn stop(&self) {
        self.alarm.set(None, Then::Once);
    }

    /// Sets it to `period`; the next instant is that far from now.
    ///
    /// # Blocking
    ///
    /// Never. Those that wait in the channel wait for the new instant.
    ///
    /// # Panics
    ///
    /// If `period` is zero.
    #[track_caller]
    pub fn reset(&self, period: Duration) {
        let (when, then) = plan(period);
        self.alarm.set(when, then);
    }
}

#[track_caller]
fn plan(period: Duration) -> (Option<Instant>, Then) {
    assert!(!period.is_zero(), "`period` must be non-zero");
    (clock::now().checked_add(period), Then::Repeat(period))
}

impl fmt::Debug for Ticker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticker").finish_non_exhaustive()
    }
}

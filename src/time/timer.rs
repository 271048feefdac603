//! Timers and tickers: they send instants on a channel, for use in a select.

use std::sync::Arc;
use std::time::Duration;

use windlass_ground::std_traits::fmt_as;

use crate::channel::{Alarm, Receiver, Then};
use crate::instant::Instant;
use crate::sched::wait::points;
use crate::sys::clock;

/// Sends one instant on its channel when that instant has come: Go's `time.Timer`.
///
/// Unlike [`channel::after`](crate::channel::after), it can be stopped and reset. After
/// [`stop`](Timer::stop) or [`reset`](Timer::reset), a message of the earlier setting is never
/// received, even if it was due and not yet received. So the channel need not be drained. A timer
/// without a waiting goroutine uses no CPU.
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
    /// Creates a timer that fires `duration` from now.
    ///
    /// # Examples
    ///
    /// See [`Timer`].
    #[must_use]
    pub fn new(duration: Duration) -> Timer {
        let (alarm, channel) = Receiver::alarm(clock::now().checked_add(duration), Then::Once);
        Timer { alarm, channel }
    }

    /// Returns the channel of the timer. `stop` and `reset` also act on clones of it.
    #[must_use]
    pub fn channel(&self) -> &Receiver<Instant> {
        &self.channel
    }

    /// Stops the timer: no message is received until it is reset.
    ///
    /// Returns `true` if this call prevented a message, whether it was already due or not.
    ///
    /// # Blocking
    ///
    /// Never. Goroutines that wait in the channel go on waiting.
    pub fn stop(&self) -> bool {
        points::switch_point();
        self.alarm.set(None, Then::Once)
    }

    /// Resets the timer: it fires `duration` from now.
    ///
    /// Returns `true` if this call prevented a message of the earlier setting, whether it was
    /// already due or not.
    ///
    /// # Blocking
    ///
    /// Never. Goroutines that wait in the channel wait for the new instant.
    pub fn reset(&self, duration: Duration) -> bool {
        points::switch_point();
        let when = clock::now().checked_add(duration);
        self.alarm.set(when, Then::Once)
    }
}

fmt_as!(Debug for Timer, "Timer { .. }");

/// Sends an instant on its channel every period: Go's `time.Ticker`.
///
/// Unlike [`channel::tick`](crate::channel::tick), its instants stay multiples of the period after
/// the start, and it can be stopped and reset.
///
/// A late receiver gets the first missed instant, and then the next one that is still to come. As
/// with a [`Timer`], a message of the time before `stop` or `reset` is never received, and a ticker
/// without a waiting goroutine uses no CPU.
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
    /// Creates a ticker. Its first instant is one `period` from now.
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

    /// Returns the channel of the ticker. `stop` and `reset` also act on clones of it.
    #[must_use]
    pub fn channel(&self) -> &Receiver<Instant> {
        &self.channel
    }

    /// Stops the ticker: no message is received until it is reset.
    ///
    /// # Blocking
    ///
    /// Never. Goroutines that wait in the channel go on waiting.
    pub fn stop(&self) {
        points::switch_point();
        self.alarm.set(None, Then::Once);
    }

    /// Resets the ticker to `period`. The next instant is one `period` from now.
    ///
    /// # Blocking
    ///
    /// Never. Goroutines that wait in the channel wait for the new instant.
    ///
    /// # Panics
    ///
    /// If `period` is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::time::{Duration, Instant, Ticker};
    ///
    /// let ticker = Ticker::new(Duration::from_secs(1000));
    /// let start = Instant::now();
    /// ticker.reset(Duration::from_millis(2));
    /// assert!(ticker.channel().recv().unwrap() >= start + Duration::from_millis(2));
    /// ```
    #[track_caller]
    pub fn reset(&self, period: Duration) {
        let (when, then) = plan(period);
        points::switch_point();
        self.alarm.set(when, then);
    }
}

#[track_caller]
fn plan(period: Duration) -> (Option<std::time::Instant>, Then) {
    assert!(!period.is_zero(), "`period` must be non-zero");
    (clock::now().checked_add(period), Then::Repeat(period))
}

fmt_as!(Debug for Ticker, "Ticker { .. }");

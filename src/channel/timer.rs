//! Channels whose messages come from the clock: [`after`](super::after), [`at`](super::at),
//! [`tick`](super::tick). There is no sender: a waiting receiver uses the instant of the message as
//! its deadline, so a channel without waiters costs nothing.

use std::time::{Duration, Instant};

use super::core::Refused;
use crate::loom::native::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sched::wait::{current_context, park};
use crate::sys::clock::{self, NEVER};

/// One message at one instant.
#[derive(Debug)]
pub(super) struct At {
    when: Instant,
    when_ns: u64,
    /// Ordering: relaxed; the message is the instant, which never changes.
    taken: AtomicBool,
}

impl At {
    pub(super) fn new(when: Instant) -> At {
        At {
            when,
            when_ns: clock::instant_ns(when),
            taken: AtomicBool::new(false),
        }
    }

    pub(super) fn try_recv(&self) -> Result<Instant, Refused> {
        if self.is_empty() || self.taken.swap(true, Ordering::Relaxed) {
            Err(Refused::Blocked)
        } else {
            Ok(self.when)
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.taken.load(Ordering::Relaxed) || clock::now() < self.when
    }

    pub(super) fn recv(&self, deadline_ns: u64) -> Result<Instant, Refused> {
        loop {
            if let Ok(msg) = self.try_recv() {
                return Ok(msg);
            }
            // If the message was taken, only the deadline can end the wait.
            let wait_ns = self.next_ns().min(deadline_ns);
            if let Refused::Disconnected = recv_never(wait_ns) {
                return Err(Refused::Disconnected);
            }
            if deadline_ns <= clock::now_ns() {
                return self.try_recv();
            }
        }
    }

    /// When there may be a message.
    pub(super) fn next_ns(&self) -> u64 {
        match self.taken.load(Ordering::Relaxed) {
            true => NEVER,
            false => self.when_ns,
        }
    }
}

/// A message each period. At most one message is pending: a late receiver gets it, and the next one
/// a period later.
#[derive(Debug)]
pub(super) struct Tick {
    start: Instant,
    start_ns: u64,
    period_ns: u64,
    /// When the next message is due, in nanoseconds from the start. Ordering: relaxed; a message is
    /// the number that its receiver replaced, and no other data depends on it.
    due_ns: AtomicU64,
}

impl Tick {
    /// The first message comes a period after `start`.
    pub(super) fn new(start: Instant, period: Duration) -> Tick {
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(NEVER);
        Tick {
            start,
            start_ns: clock::instant_ns(start),
            period_ns,
            due_ns: AtomicU64::new(period_ns),
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(NEVER)
    }

    pub(super) fn try_recv(&self) -> Result<Instant, Refused> {
        loop {
            let due_ns = self.due_ns.load(Ordering::Relaxed);
            let now_ns = self.now_ns();
            if now_ns < due_ns {
                return Err(Refused::Blocked);
            }
            let next_ns = now_ns.saturating_add(self.period_ns);
            if self
                .due_ns
                .compare_exchange(due_ns, next_ns, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            {
                return Ok(self.start + Duration::from_nanos(due_ns));
            }
        }
    }

    /// Takes the next message before it is due, and waits until it is. So several receivers get one
    /// message each, and a late wake-up does not delay the following messages.
    pub(super) fn recv(&self, deadline_ns: u64) -> Result<Instant, Refused> {
        loop {
            let due_ns = self.due_ns.load(Ordering::Relaxed);
            let wait_ns = self.start_ns.saturating_add(due_ns);
            if deadline_ns < wait_ns {
                return Err(recv_never(deadline_ns));
            }
            let next_ns = due_ns.max(self.now_ns()).saturating_add(self.period_ns);
            if self
                .due_ns
                .compare_exchange(due_ns, next_ns, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            {
                return match recv_never(wait_ns) {
                    Refused::Blocked => Ok(self.start + Duration::from_nanos(due_ns)),
                    Refused::Disconnected => Err(Refused::Disconnected),
                };
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.now_ns() < self.due_ns.load(Ordering::Relaxed)
    }

    /// When there may be a message.
    pub(super) fn next_ns(&self) -> u64 {
        self.start_ns
            .saturating_add(self.due_ns.load(Ordering::Relaxed))
    }
}

/// Receives from a channel that stays empty: `Blocked` at the deadline.
pub(super) fn recv_never(deadline_ns: u64) -> Refused {
    while deadline_ns == NEVER || clock::now_ns() < deadline_ns {
        // Ended by the ambient context or, in a destructor, by the shutdown.
        if park::sleep_until(deadline_ns).is_err() || current_context::check().is_err() {
            return Refused::Disconnected;
        }
    }
    Refused::Blocked
}

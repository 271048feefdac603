//! Channels whose messages come from the clock: [`after`](super::after), [`at`](super::at),
//! [`tick`](super::tick). There is no sender: a waiting receiver uses the instant of the message as
//! its deadline, so a channel without waiters costs nothing.

use std::time::{Duration, Instant};

use super::core::Refused;
use crate::loom::native::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sched::wait::{current_context, sleep};
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

    /// The next time at which there may be a message.
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
        u64::try_from((clock::now() - self.start).as_nanos()).unwrap_or(NEVER)
    }

    /// Replaces the instant at which the next message is due. `false` if it was not `due_ns`: another
    /// receiver has taken that message.
    fn replace(&self, due_ns: u64, next_ns: u64) -> bool {
        self.due_ns
            .compare_exchange(due_ns, next_ns, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    pub(super) fn try_recv(&self) -> Result<Instant, Refused> {
        loop {
            let due_ns = self.due_ns.load(Ordering::Relaxed);
            let now_ns = self.now_ns();
            if now_ns < due_ns {
                return Err(Refused::Blocked);
            }
            if self.replace(due_ns, now_ns.saturating_add(self.period_ns)) {
                return Ok(self.start + Duration::from_nanos(due_ns));
            }
        }
    }

    /// Waits until the next message is due, and then takes it. Several receivers wait for the same
    /// message, and one of them gets it: if the wait of one is cut short, nothing is lost.
    pub(super) fn recv(&self, deadline_ns: u64) -> Result<Instant, Refused> {
        let mut waited_for_ns = NEVER;
        loop {
            let due_ns = self.due_ns.load(Ordering::Relaxed);
            let now_ns = self.now_ns();
            if due_ns <= now_ns {
                // A late wake-up does not delay the messages that follow.
                let from_ns = match waited_for_ns == due_ns {
                    true => due_ns,
                    false => now_ns,
                };
                if self.replace(due_ns, from_ns.saturating_add(self.period_ns)) {
                    return Ok(self.start + Duration::from_nanos(due_ns));
                }
                continue;
            }
            let until_ns = self.start_ns.saturating_add(due_ns);
            // No message comes earlier than the one that is due next.
            if deadline_ns < until_ns {
                return Err(recv_never(deadline_ns));
            }
            waited_for_ns = due_ns;
            if let Refused::Disconnected = recv_never(until_ns) {
                return Err(Refused::Disconnected);
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
        if sleep::sleep_until(deadline_ns).is_err() || current_context::check().is_err() {
            return Refused::Disconnected;
        }
    }
    Refused::Blocked
}

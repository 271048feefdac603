//! A channel that time fills or closes, and whose plan can change: under
//! [`time::Timer`](crate::time::Timer), [`time::Ticker`](crate::time::Ticker) and
//! [`Context::done`](crate::context::Context::done).
//!
//! Nobody sends. What there is is a plan, under a short lock: when the next message is
//! due, and what comes after it. A receiver that waits is in a queue, with that instant
//! as its deadline; so a channel that nobody waits for costs nothing. Whoever changes the
//! plan takes all who wait, and they look again. A message is made from the plan when it
//! is received, so none of an old plan is ever seen.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::chan::cut_short;
use super::core::{Head, Refused, Told, head_of};
use crate::g::status::Reason;
use crate::lock::RawLock;
use crate::sched::{ambient, park};
use crate::sync::waitq::{Here, Link, Taken, Terms, WaitQueue, Waiter};
use crate::sys::clock::{self, NEVER};

/// What comes at the instant of a plan, and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// One message.
    Once,
    /// A message then, and one every so often. Those that nobody takes in time are left
    /// out, but for the first.
    Repeat(Duration),
    /// Nothing: the channel is disconnected.
    Close,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    when: Option<Instant>,
    when_ns: u64,
    then: Then,
}

impl Plan {
    fn new(when: Option<Instant>, then: Then) -> Plan {
        Plan {
            when,
            when_ns: when.map_or(NEVER, clock::instant_ns),
            then,
        }
    }

    /// After the message of `when` was taken at `now`.
    fn next(self, when: Instant, now: Instant) -> Plan {
        let Then::Repeat(period) = self.then else {
            return Plan::new(None, self.then);
        };
        let into_period_ns = (now - when).as_nanos() % period.as_nanos();
        let left_ns = u64::try_from(period.as_nanos() - into_period_ns).unwrap_or(NEVER);
        Plan::new(now.checked_add(Duration::from_nanos(left_ns)), self.then)
    }
}

/// See above.
#[derive(Debug)]
pub(crate) struct Alarm {
    lock: RawLock,
    /// Guarded by the lock, as the queue is.
    plan: Cell<Plan>,
    waiting: WaitQueue,
}

// SAFETY: plan and queue are used under the lock.
unsafe impl Sync for Alarm {}

/// How many are readied after each time that the lock is held.
const BATCH: usize = 16;

impl Alarm {
    /// With a plan for `when`; `None` is never.
    pub(crate) fn new(when: Option<Instant>, then: Then) -> Alarm {
        Alarm {
            lock: RawLock::new(),
            plan: Cell::new(Plan::new(when, then)),
            waiting: WaitQueue::new(),
        }
    }

    /// Gives it another plan. Whether the old one still had something to come, or to be
    /// received.
    pub(crate) fn set(&self, when: Option<Instant>, then: Then) -> bool {
        let here = Here::enter();
        let plan = Plan::new(when, then);
        self.lock.lock();
        let before = self.plan.replace(plan);
        loop {
            let mut batch = [const { None }; BATCH];
            let n = self.take_waiting(&mut batch);
            self.lock.unlock();
            for taken in batch.into_iter().flatten() {
                taken.ready(&here);
            }
            if n < BATCH {
                return before.when.is_some();
            }
            self.lock.lock();
        }
    }

    /// Disconnects the channel.
    pub(crate) fn close(&self) {
        self.set(Some(clock::now()), Then::Close);
    }

    /// The lock is held.
    fn take_waiting(&self, batch: &mut [Option<Taken>]) -> usize {
        let mut n = 0;
        for place in batch {
            let Some(taken) = self.waiting.take() else {
                break;
            };
            head_of(&taken).told.set(Told::Again);
            *place = Some(taken);
            n += 1;
        }
        n
    }

    pub(super) fn raw_lock(&self) -> &RawLock {
        &self.lock
    }

    /// What is there now. The lock is held.
    pub(super) fn take(&self) -> Result<Instant, Refused> {
        let plan = self.plan.get();
        let now = clock::now();
        match plan.when {
            Some(when) if when <= now => {
                if plan.then == Then::Close {
                    return Err(Refused::Disconnected);
                }
                self.plan.set(plan.next(when, now));
                Ok(when)
            }
            _ => Err(Refused::Blocked),
        }
    }

    /// Whether a receiver need not wait. The lock is held.
    pub(super) fn is_ready(&self) -> bool {
        self.plan
            .get()
            .when
            .is_some_and(|when| when <= clock::now())
    }

    /// When there may be something. The lock is held.
    pub(super) fn next_ns(&self) -> u64 {
        self.plan.get().when_ns
    }

    /// Who waits. The lock is held.
    pub(super) fn waiting(&self) -> &WaitQueue {
        &self.waiting
    }

    fn locked<T>(&self, f: impl FnOnce() -> T) -> T {
        let _here = Here::enter();
        self.lock.lock();
        let value = f();
        self.lock.unlock();
        value
    }

    pub(super) fn try_recv(&self) -> Result<Instant, Refused> {
        self.locked(|| self.take())
    }

    /// Whether there is a message.
    pub(super) fn has_message(&self) -> bool {
        self.locked(|| self.is_ready() && self.plan.get().then != Then::Close)
    }

    pub(super) fn recv(&self, deadline_ns: u64) -> Result<Instant, Refused> {
        loop {
            let here = Here::enter();
            self.lock.lock();
            let found = self.take();
            let is_late = deadline_ns != NEVER && clock::now_ns() >= deadline_ns;
            if found != Err(Refused::Blocked) || is_late || here.is_cancelled() {
                self.lock.unlock();
                drop(here);
                if found != Err(Refused::Blocked) || is_late {
                    return found;
                }
            } else {
                self.wait(here, deadline_ns);
            }
            if park::cancel_point().is_err() {
                return Err(Refused::Disconnected);
            }
            if ambient::check().is_err() {
                return Err(cut_short(deadline_ns));
            }
        }
    }

    /// Waits in the queue, whose lock is held, until there may be something.
    fn wait(&self, here: Here<'_>, deadline_ns: u64) {
        let head = Head::select();
        let waiter = Waiter::new(&here);
        let link = Link::new(&waiter, 0, std::ptr::from_ref(&head).cast_mut().cast());
        let until_ns = self.next_ns().min(deadline_ns);
        // SAFETY: the lock is held, and the frame stays until the link is out of the queue.
        unsafe { self.waiting.push_back(&link) };
        let terms = Terms::new(Reason::ChanRecv)
            .until(until_ns)
            .by_context(true);
        let unlock = || self.lock.unlock();
        if here.wait(&waiter, terms, unlock).is_none() {
            self.locked(|| self.waiting.remove(&link));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ticks_keep_their_rhythm_and_late_ones_are_left_out() {
        let start = Instant::now();
        let period = Duration::from_millis(10);
        let plan = Plan::new(Some(start), Then::Repeat(period));
        let after = |late_ms| {
            let now = start + Duration::from_millis(late_ms);
            plan.next(start, now).when.map(|when| when - start)
        };
        assert_eq!(after(0), Some(period));
        assert_eq!(after(9), Some(period));
        assert_eq!(after(10), Some(2 * period));
        assert_eq!(after(35), Some(4 * period));
    }

    #[test]
    fn a_plan_that_is_changed_gives_nothing_of_the_old_one() {
        let past = Instant::now();
        let alarm = Alarm::new(Some(past), Then::Once);
        assert!(alarm.has_message());
        assert!(alarm.set(None, Then::Once));
        assert_eq!(alarm.try_recv(), Err(Refused::Blocked));
        assert!(!alarm.set(Some(past), Then::Once));
        assert_eq!(alarm.try_recv(), Ok(past));
        assert!(!alarm.set(None, Then::Once));
        alarm.close();
        assert_eq!(alarm.try_recv(), Err(Refused::Disconnected));
        assert!(!alarm.has_message());
    }
}

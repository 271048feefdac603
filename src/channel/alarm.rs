//! A channel whose messages, or whose disconnection, come from the clock, according to a plan that
//! can change. It implements [`time::Timer`](crate::time::Timer),
//! [`time::Ticker`](crate::time::Ticker) and [`Context::done`](crate::context::Context::done).
//!
//! There is no sender. The plan, under a short lock, says when the next message is due and what
//! follows it. A waiting receiver is in a queue, with that instant as its deadline, so a channel
//! without waiters costs nothing. A caller that changes the plan takes all waiters, which then
//! check the new plan. A message is made from the plan when it is received, so no message of an old
//! plan is ever delivered.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::chan::cut_short;
use super::core::{Head, Refused, WaiterEvent, head_of};
use crate::g::status::Reason;
use crate::lock::RawLock;
use crate::sched::wait::{current_context, points};
use crate::sync::waitq::{DequeuedList, WaitCtx, WaitNode, WaitOptions, WaitQueue, Waiter};
use crate::sys::clock::{self, NEVER};

/// The event at the instant of a plan, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// One message is sent.
    Once,
    /// A message is sent, and another one each period. Of messages that are not received in time only the
    /// first is delivered.
    Repeat(Duration),
    /// The channel is disconnected, without a message.
    Close,
}

#[derive(Clone, Copy, Debug)]
struct AlarmPlan {
    when: Option<Instant>,
    /// The instant in nanoseconds; 0 if it counts as past by every clock.
    when_ns: u64,
    then: Then,
}

impl AlarmPlan {
    fn new(when: Option<Instant>, then: Then) -> AlarmPlan {
        AlarmPlan {
            when,
            when_ns: when.map_or(NEVER, clock::instant_ns),
            then,
        }
    }

    /// The channel is disconnected. Not from now on but since ever: another simulation, or the program
    /// after it, has a clock that may be behind.
    fn closed() -> AlarmPlan {
        AlarmPlan {
            when: Some(clock::now()),
            when_ns: 0,
            then: Then::Close,
        }
    }

    /// The instant of the event, if that has come.
    fn due(&self, now: Instant) -> Option<Instant> {
        self.when.filter(|when| self.when_ns == 0 || *when <= now)
    }

    /// The plan after the message of `when` was received at `now`.
    fn next(self, when: Instant, now: Instant) -> AlarmPlan {
        let Then::Repeat(period) = self.then else {
            return AlarmPlan::new(None, self.then);
        };
        let into_period_ns = (now - when).as_nanos() % period.as_nanos();
        let left_ns = u64::try_from(period.as_nanos() - into_period_ns).unwrap_or(NEVER);
        AlarmPlan::new(now.checked_add(Duration::from_nanos(left_ns)), self.then)
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Alarm {
    lock: RawLock,
    /// Guarded by the lock, as is the queue.
    plan: Cell<AlarmPlan>,
    waiting: WaitQueue,
}

// SAFETY: plan and queue are accessed only under the lock.
unsafe impl Sync for Alarm {}

impl Alarm {
    /// Creates an alarm with a plan for `when`; `None` is never.
    pub(crate) fn new(when: Option<Instant>, then: Then) -> Alarm {
        Alarm {
            lock: RawLock::new(),
            plan: Cell::new(AlarmPlan::new(when, then)),
            waiting: WaitQueue::new(),
        }
    }

    /// Replaces the plan. Returns whether the old plan still had an event to come or a message to
    /// receive.
    pub(crate) fn set(&self, when: Option<Instant>, then: Then) -> bool {
        self.replace(AlarmPlan::new(when, then))
    }

    fn replace(&self, plan: AlarmPlan) -> bool {
        let ctx = WaitCtx::enter_in_place();
        let mut woken = DequeuedList::new();
        self.lock.lock();
        let before = self.plan.replace(plan);
        // All at once: those that are readied wait again, and this would not come to an end.
        self.take_waiting(&mut woken);
        self.lock.unlock();
        woken.ready(&ctx);
        before.when.is_some()
    }

    /// Disconnects the channel. Leaves the goroutine on its thread.
    pub(crate) fn close(&self) {
        self.replace(AlarmPlan::closed());
    }

    /// Makes the channel disconnected, or connected again, for a caller that holds the lock of a
    /// state that the channel follows. The waiters are added to `woken`, to be readied when that lock
    /// is released.
    pub(super) fn put(&self, is_closed: bool, _ctx: &WaitCtx<'_>, woken: &mut DequeuedList) {
        self.lock.lock();
        if self.plan.get().when.is_some() != is_closed {
            self.plan.set(match is_closed {
                true => AlarmPlan::closed(),
                false => AlarmPlan::new(None, Then::Close),
            });
            if is_closed {
                self.take_waiting(woken);
            }
        }
        self.lock.unlock();
    }

    /// Takes the waiters, which will check the plan again. The lock is held.
    fn take_waiting(&self, woken: &mut DequeuedList) {
        while let Some(taken) = self.waiting.take() {
            head_of(&taken).event.set(WaiterEvent::Again);
            woken.push(taken);
        }
    }

    pub(super) fn raw_lock(&self) -> &RawLock {
        &self.lock
    }

    /// Takes the message that is due now. The lock is held.
    pub(super) fn take(&self) -> Result<Instant, Refused> {
        let plan = self.plan.get();
        let now = clock::now();
        match plan.due(now) {
            Some(when) => {
                if plan.then == Then::Close {
                    return Err(Refused::Disconnected);
                }
                self.plan.set(plan.next(when, now));
                Ok(when)
            }
            None => Err(Refused::Blocked),
        }
    }

    /// Whether a receive would return without waiting. The lock is held.
    pub(super) fn is_ready(&self) -> bool {
        self.plan.get().due(clock::now()).is_some()
    }

    /// When a receive may next return without waiting. The lock is held.
    pub(super) fn next_ns(&self) -> u64 {
        self.plan.get().when_ns
    }

    /// The waiters. The lock is held.
    pub(super) fn waiting(&self) -> &WaitQueue {
        &self.waiting
    }

    fn locked<T>(&self, f: impl FnOnce() -> T) -> T {
        let _ctx = WaitCtx::enter();
        self.lock.lock();
        let value = f();
        self.lock.unlock();
        value
    }

    pub(super) fn try_recv(&self) -> Result<Instant, Refused> {
        self.locked(|| self.take())
    }

    /// Whether a message is due.
    pub(super) fn has_message(&self) -> bool {
        self.locked(|| self.is_ready() && self.plan.get().then != Then::Close)
    }

    pub(super) fn recv(&self, deadline_ns: u64) -> Result<Instant, Refused> {
        loop {
            let ctx = WaitCtx::enter();
            self.lock.lock();
            let found = self.take();
            let is_late = deadline_ns != NEVER && clock::now_ns() >= deadline_ns;
            if found != Err(Refused::Blocked) || is_late || ctx.is_cancelled() {
                self.lock.unlock();
                drop(ctx);
                if found != Err(Refused::Blocked) || is_late {
                    return found;
                }
            } else {
                self.wait(ctx, deadline_ns);
            }
            if points::cancel_point().is_err() {
                return Err(Refused::Disconnected);
            }
            if current_context::check().is_err() {
                return Err(cut_short(deadline_ns));
            }
        }
    }

    /// Waits in the queue, until a message may be due. The lock is held.
    fn wait(&self, ctx: WaitCtx<'_>, deadline_ns: u64) {
        let head = Head::select();
        let waiter = Waiter::new(&ctx);
        let node = WaitNode::new(&waiter, 0, std::ptr::from_ref(&head).cast_mut().cast());
        let until_ns = self.next_ns().min(deadline_ns);
        // SAFETY: the lock is held, and this frame stays valid until the node is out of the queue.
        unsafe { self.waiting.push_back(&node) };
        let options = WaitOptions::new(Reason::ChanRecv)
            .until(until_ns)
            .by_context(true);
        let unlock = || self.lock.unlock();
        if ctx.wait(&waiter, options, unlock).is_none() {
            self.locked(|| self.waiting.remove(&node));
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
        let plan = AlarmPlan::new(Some(start), Then::Repeat(period));
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

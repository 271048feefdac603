//! A wait for a message by a goroutine that has no stack meanwhile.
//!
//! It is a watcher, as `Select::ready`: a sender wakes it and hands nothing over, and it looks again. The M
//! makes it one in the commit, under the channel's lock, unless there is a message already. So no message
//! comes unseen between the two:
//!
//! | commit                               | sender                                    |
//! |--------------------------------------|-------------------------------------------|
//! | 1. status = Waiting(n)               | 1. lock                                   |
//! | 2. lock                              | 2. store the message                      |
//! | 3. a message? unlock; take the token | 3. take the token of each watcher, and    |
//! | 4. waiter = n; push the node         |    ready it                               |
//! | 5. unlock                            | 4. unlock                                 |
//!
//! A goroutine that a limit has ended removes its node under the lock, before it leaves the place.
#![allow(unsafe_code)]

use std::io;

use windlass_ground::std_traits::fmt_as;

use super::choice::SelectOp;
use super::core::{Head, SelectWait};
use super::receiver::Receiver;
use crate::g::header::GRef;
use crate::g::status::{Reason, WaitId};
use crate::poll::off_stack::{Event, Limits};
use crate::sched::types::m::M;
use crate::sync::waitq::{WaitCtx, WaitNode, Waiter};

/// A receive would not wait.
pub(crate) struct Receivable<T> {
    receiver: Receiver<T>,
    head: Head,
    /// Those of the last wait.
    waits: Option<(Waiter, Option<WaitNode>)>,
}

fmt_as!([T] Debug for Receivable<T>, "Receivable");

impl<T> Receivable<T> {
    pub(crate) fn new(receiver: Receiver<T>) -> Receivable<T> {
        Receivable {
            receiver,
            head: Head::select(),
            waits: None,
        }
    }

    fn locked<R>(&self, f: impl FnOnce(&Receiver<T>) -> R) -> R {
        let lock = self.receiver.lock();
        lock.inspect(|lock| lock.lock());
        let result = f(&self.receiver);
        lock.inspect(|lock| lock.unlock());
        result
    }

    /// Leaves the channel's queue, and looks whether there is a message.
    fn leave(&self) -> bool {
        let _ctx = WaitCtx::enter();
        self.locked(|receiver| {
            if let Some((_, Some(node))) = &self.waits {
                // SAFETY: the lock is held, and `begin` has enqueued the node, if anyone has.
                unsafe { receiver.dequeue(node, SelectWait::Readiness) };
            }
            // SAFETY: the lock is held.
            unsafe { receiver.is_ready() }
        })
    }
}

impl<T> Event for Receivable<T> {
    fn reason(&self) -> Reason {
        Reason::ChanRecv
    }

    fn prepare(&mut self, g: GRef, limits: Limits) -> Option<io::Result<()>> {
        if limits.is_late() {
            return Some(match self.leave() {
                true => Ok(()),
                false => self.at_deadline(),
            });
        }
        let slot = std::ptr::from_ref(&self.head).cast_mut().cast();
        // The node has the waiter's address, so it is made once that is in its place.
        let (waiter, node) = self.waits.insert((Waiter::of(g), None));
        *node = Some(WaitNode::new(waiter, 0, slot));
        None
    }

    fn begin(&self, wait: WaitId, _m: &M, is_done: bool) -> Option<u64> {
        let Some((waiter, Some(node))) = self.waits.as_ref().filter(|_| !is_done) else {
            return None;
        };
        self.locked(|receiver| {
            // SAFETY: the lock is held.
            if unsafe { receiver.is_ready() } {
                return None;
            }
            waiter.bind(wait);
            // SAFETY: the lock is held. All stays in place until `leave`, or until the node was taken.
            unsafe { receiver.enqueue(node, SelectWait::Readiness, &WaitCtx::of_commit()) };
            // An alarm whose plan changes after this wakes its waiters.
            Some(receiver.next_ns())
        })
    }

    fn has_ended_it(&self) -> bool {
        self.waits
            .as_ref()
            .is_some_and(|(waiter, _)| waiter.was_taken())
    }

    fn look(&mut self, _limits: Limits) -> Option<io::Result<()>> {
        self.leave().then_some(Ok(()))
    }
}

impl<T> Drop for Receivable<T> {
    fn drop(&mut self) {
        if self.waits.is_some() {
            self.leave();
        }
    }
}

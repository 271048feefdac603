//! Choosing among operations, as Go's `select`: check all in random order; if none is possible,
//! wait in the queues of all; be taken from one queue; leave the others.
//!
//! Before it waits, a select holds the locks of all its channels at once, taken in the order of
//! their addresses, so that no operation becomes possible between the check and the wait. The taker
//! that gets the waiter's wake token has chosen; it reports its result in the [`Head`].
//!
//! The M releases the locks once the goroutine has switched out. As soon as the first lock is free,
//! another thread may wake the goroutine. It then needs the other locks to leave their queues, so
//! it cannot leave its frame, which contains the list of locks, before the M has released them all.
#![allow(unsafe_code)]

use std::time::Instant;

use super::chan::Chan;
use super::core::{Head, Refused, SelectWait, Side, WaiterEvent};
use super::receiver::{Receiver, Source};
use super::sender::Sender;
use super::timer::recv_never;
use crate::g::status::Reason;
use crate::lock::RawLock;
use crate::sched::wait::{current_context, points};
use crate::sync::tag;
use crate::sync::waitq::{Dequeued, WaitCtx, WaitNode, WaitOptions, Waiter};
use crate::sys::clock::{self, NEVER};

/// One operation of a select: a sender or a receiver.
pub(super) trait SelectOp {
    /// The channel's lock, if it has one.
    fn lock(&self) -> Option<&RawLock>;

    /// Chooses the operation if it is possible. Returns the choice and the waiter to ready.
    ///
    /// # Safety
    ///
    /// The lock is held.
    unsafe fn choose(&self, ctx: &WaitCtx<'_>) -> Option<(Decision, Option<Dequeued>)>;

    /// Whether the operation is possible.
    ///
    /// # Safety
    ///
    /// The lock is held.
    unsafe fn is_ready(&self) -> bool;

    /// Adds the node to the channel's queue.
    ///
    /// # Safety
    ///
    /// The lock is held, the slot of the node points to a [`Head`], and the node, its waiter and
    /// the head stay valid until the node was taken or removed.
    unsafe fn enqueue(&self, node: &WaitNode, wait: SelectWait, ctx: &WaitCtx<'_>);

    /// Removes the node from the channel's queue.
    ///
    /// # Safety
    ///
    /// The lock is held, and the node was enqueued for the same `wait`.
    unsafe fn dequeue(&self, node: &WaitNode, wait: SelectWait);

    /// When the operation may become possible by the clock alone.
    fn next_ns(&self) -> u64 {
        NEVER
    }

    /// The handles that may end a wait for the operation, and the name of their channel.
    fn ended_by(&self) -> Option<(tag::Handle, usize)>;

    /// Gives back a choice that is not completed.
    fn abandon(&self);
}

/// The outcome of the operation that a select has chosen.
#[derive(Clone, Copy, Debug)]
pub(super) enum Decision {
    /// A claim to a message or a promise of one: see [`super::core`].
    Chosen,
    /// The message of a time channel.
    Instant(Instant),
    /// The operation fails: the other side has no handles any more.
    Disconnected,
}

/// An operation and its index in the select.
#[doc(hidden)]
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "for the macros only")]
pub struct Arm<'a> {
    pub(super) handle: &'a dyn SelectOp,
    pub(super) index: usize,
}

/// Result of a search: the position of the arm, its choice, and the waiter to ready.
type Choice = (usize, Decision, Option<Dequeued>);

impl Arm<'_> {
    /// # Safety
    ///
    /// The channel's lock is held.
    unsafe fn look(
        &self,
        wait: SelectWait,
        ctx: &WaitCtx<'_>,
    ) -> Option<(Decision, Option<Dequeued>)> {
        match wait {
            // SAFETY: by the contract of this function.
            SelectWait::Choice => unsafe { self.handle.choose(ctx) },
            SelectWait::Readiness => {
                // SAFETY: by the contract of this function.
                let is_ready = unsafe { self.handle.is_ready() };
                is_ready.then_some((Decision::Chosen, None))
            }
        }
    }
}

/// Returns the position of an arm that is possible now.
pub(super) fn try_once(
    arms: &mut [Arm<'_>],
    wait: SelectWait,
    biased: bool,
) -> Option<(usize, Decision)> {
    let mut locks = Few::new(arms.len());
    let locks = sorted_locks(arms, locks.places());
    points::end_if_late();
    let ctx = WaitCtx::enter();
    shuffle(arms, biased, &ctx);
    let mut found = look_at_each(arms, wait, &ctx);
    if found.is_none() && locks.len() > 1 {
        // One operation may have become possible after its check, and another impossible before its
        // check. Only a check of all under all locks can find that none is possible.
        lock_all(locks);
        found = look_at_all(arms, wait, &ctx);
        unlock_all(locks);
    }
    found.map(|found| settle(found, &ctx))
}

/// Checks each arm under its own lock.
fn look_at_each(arms: &[Arm<'_>], wait: SelectWait, ctx: &WaitCtx<'_>) -> Option<Choice> {
    arms.iter().enumerate().find_map(|(at, arm)| {
        let lock = arm.handle.lock();
        lock.inspect(|lock| lock.lock());
        // SAFETY: the lock is held.
        let found = unsafe { arm.look(wait, ctx) };
        lock.inspect(|lock| lock.unlock());
        found.map(|(token, taken)| (at, token, taken))
    })
}

/// Checks all arms. All locks are held.
fn look_at_all(arms: &[Arm<'_>], wait: SelectWait, ctx: &WaitCtx<'_>) -> Option<Choice> {
    arms.iter().enumerate().find_map(|(at, arm)| {
        // SAFETY: the lock is held.
        let (token, taken) = unsafe { arm.look(wait, ctx) }?;
        Some((at, token, taken))
    })
}

/// Waits until an arm is possible, or until the deadline. Returns its position.
pub(super) fn wait(
    arms: &mut [Arm<'_>],
    wait: SelectWait,
    biased: bool,
    deadline_ns: u64,
) -> Option<(usize, Decision)> {
    if arms.is_empty() {
        // A context does not end a select.
        return match current_context::shield(|| recv_never(deadline_ns)) {
            Refused::Blocked => None,
            Refused::Disconnected => {
                panic!("a select without operations cannot wait: its runtime has ended")
            }
        };
    }
    let mut locks = Few::new(arms.len());
    let locks = sorted_locks(arms, locks.places());
    let mut nodes = Few::new(arms.len());
    points::end_if_late();
    loop {
        let ctx = WaitCtx::enter();
        shuffle(arms, biased, &ctx);
        lock_all(locks);
        if let Some(found) = look_at_all(arms, wait, &ctx) {
            unlock_all(locks);
            return Some(settle(found, &ctx));
        }
        let is_late = deadline_ns != NEVER && clock::now_ns() >= deadline_ns;
        if is_late || ctx.is_cancelled() {
            unlock_all(locks);
            drop(ctx);
            if points::cancel_point().is_err() {
                return Some((0, Decision::Disconnected));
            }
            if is_late {
                return None;
            }
            continue;
        }
        if let Some(chosen) = wait_once(arms, locks, nodes.places(), wait, ctx, deadline_ns) {
            return Some(chosen);
        }
        if points::cancel_point().is_err() {
            return Some((0, Decision::Disconnected));
        }
    }
}

/// Waits in the queues of all arms, whose locks are held. `None` if no taker chose.
fn wait_once(
    arms: &[Arm<'_>],
    locks: &[Option<&RawLock>],
    nodes: &mut [Option<WaitNode>],
    wait: SelectWait,
    ctx: WaitCtx<'_>,
    deadline_ns: u64,
) -> Option<(usize, Decision)> {
    let head = Head::select();
    let slot = std::ptr::from_ref(&head).cast_mut().cast();
    let waiter = Waiter::new(&ctx);
    let mut until_ns = deadline_ns;
    for (at, (arm, node)) in arms.iter().zip(nodes.iter_mut()).enumerate() {
        until_ns = until_ns.min(arm.handle.next_ns());
        let node = node.insert(WaitNode::new(&waiter, at, slot));
        // SAFETY: all locks are held, and this function does not return before the node is
        // out of the queue.
        unsafe { arm.handle.enqueue(node, wait, &ctx) };
    }
    let options = WaitOptions::new(Reason::Select).until(until_ns);
    let handles = arms.iter().map(|arm| arm.handle.ended_by());
    let park = || ctx.wait(&waiter, options, || unlock_all(locks));
    let chosen = tag::while_waiting_for_any(handles, park);
    let ctx = WaitCtx::enter();
    for (at, (arm, node)) in arms.iter().zip(nodes.iter()).enumerate() {
        // The taker has removed the chosen node; it got the lock after the M released it.
        if chosen != Some(at)
            && let (Some(lock), Some(node)) = (arm.handle.lock(), node)
        {
            lock.lock();
            // SAFETY: the lock is held, and the node was enqueued above.
            unsafe { arm.handle.dequeue(node, wait) };
            lock.unlock();
        }
    }
    drop(ctx);
    let token = match head.event.get() {
        WaiterEvent::Disconnected => Decision::Disconnected,
        // The plan of an alarm was changed.
        WaiterEvent::Again => return None,
        _ => Decision::Chosen,
    };
    chosen.map(|at| (at, token))
}

fn settle((at, token, taken): Choice, ctx: &WaitCtx<'_>) -> (usize, Decision) {
    if let Some(taken) = taken {
        taken.ready(ctx);
    }
    (at, token)
}

fn shuffle(arms: &mut [Arm<'_>], biased: bool, ctx: &WaitCtx<'_>) {
    if !biased {
        for i in 1..arms.len() {
            arms.swap(i, ctx.random_below(i + 1));
        }
    }
}

/// The locks of the channels, in the order of their addresses, without duplicates.
fn sorted_locks<'a, 's>(
    arms: &[Arm<'a>],
    places: &'s mut [Option<&'a RawLock>],
) -> &'s [Option<&'a RawLock>] {
    let address = |lock: &Option<&RawLock>| lock.map(|lock| std::ptr::from_ref(lock).addr());
    let mut n = 0;
    for lock in arms.iter().filter_map(|arm| arm.handle.lock()) {
        let lock = Some(lock);
        if let Err(at) = places[..n].binary_search_by_key(&address(&lock), address) {
            places[at..=n].rotate_right(1);
            places[at] = lock;
            n += 1;
        }
    }
    &places[..n]
}

fn lock_all(locks: &[Option<&RawLock>]) {
    locks.iter().flatten().for_each(|lock| lock.lock());
}

/// The last access to the list comes before the last lock is released.
fn unlock_all(locks: &[Option<&RawLock>]) {
    locks.iter().flatten().for_each(|lock| lock.unlock());
}

/// One place per arm: on the stack if there are at most `FEW` arms.
struct Few<T> {
    few: [Option<T>; FEW],
    many: Vec<Option<T>>,
    n: usize,
}

const FEW: usize = 8;

impl<T> Few<T> {
    fn new(n: usize) -> Few<T> {
        let mut many = Vec::new();
        if n > FEW {
            many.resize_with(n, || None);
        }
        Few {
            few: [const { None }; FEW],
            many,
            n,
        }
    }

    fn places(&mut self) -> &mut [Option<T>] {
        if self.n > FEW {
            &mut self.many
        } else {
            &mut self.few[..self.n]
        }
    }
}

fn decided((event, taken): (WaiterEvent, Option<Dequeued>)) -> (Decision, Option<Dequeued>) {
    let token = match event {
        WaiterEvent::Disconnected => Decision::Disconnected,
        _ => Decision::Chosen,
    };
    (token, taken)
}

impl<T> SelectOp for Sender<T> {
    fn lock(&self) -> Option<&RawLock> {
        Some(self.chan().raw_lock())
    }

    unsafe fn choose(&self, ctx: &WaitCtx<'_>) -> Option<(Decision, Option<Dequeued>)> {
        // SAFETY: by the contract of this function.
        unsafe { self.chan().held() }
            .choose(Side::Send, ctx)
            .map(decided)
    }

    unsafe fn is_ready(&self) -> bool {
        // SAFETY: by the contract of this function.
        unsafe { self.chan().held() }.is_ready(Side::Send)
    }

    unsafe fn enqueue(&self, node: &WaitNode, wait: SelectWait, ctx: &WaitCtx<'_>) {
        // SAFETY: by the contract of this function.
        unsafe { self.chan().held().enqueue(Side::Send, node, wait, ctx) };
    }

    unsafe fn dequeue(&self, node: &WaitNode, wait: SelectWait) {
        // SAFETY: by the contract of this function.
        unsafe { self.chan().held() }
            .waiters(Side::Send, wait)
            .remove(node);
    }

    fn ended_by(&self) -> Option<(tag::Handle, usize)> {
        Some((tag::Handle::Receiver, self.chan().name.get()))
    }

    fn abandon(&self) {
        self.chan().abandon(Side::Send);
    }
}

impl<T> SelectOp for Receiver<T> {
    fn lock(&self) -> Option<&RawLock> {
        match &self.source {
            Source::Alarm(alarm) => Some(alarm.raw_lock()),
            _ => self.chan().map(Chan::raw_lock),
        }
    }

    unsafe fn choose(&self, ctx: &WaitCtx<'_>) -> Option<(Decision, Option<Dequeued>)> {
        let received = match &self.source {
            Source::At(at) => at.try_recv(),
            Source::Tick(tick) => tick.try_recv(),
            Source::Never => return None,
            Source::Alarm(alarm) => match alarm.take() {
                Err(Refused::Disconnected) => return Some((Decision::Disconnected, None)),
                received => received,
            },
            Source::Senders(_) => {
                // SAFETY: by the contract of this function.
                let core = unsafe { self.chan()?.held() };
                return core.choose(Side::Recv, ctx).map(decided);
            }
        };
        let instant = received.ok()?;
        Some((Decision::Instant(instant), None))
    }

    unsafe fn is_ready(&self) -> bool {
        match (&self.source, self.chan()) {
            // SAFETY: by the contract of this function.
            (_, Some(chan)) => unsafe { chan.held() }.is_ready(Side::Recv),
            (Source::Alarm(alarm), _) => alarm.is_ready(),
            _ => self.len_now() > 0,
        }
    }

    unsafe fn enqueue(&self, node: &WaitNode, wait: SelectWait, ctx: &WaitCtx<'_>) {
        if let Some(chan) = self.chan() {
            // SAFETY: by the contract of this function.
            unsafe { chan.held().enqueue(Side::Recv, node, wait, ctx) };
        } else if let Source::Alarm(alarm) = &self.source {
            // SAFETY: by the contract of this function.
            unsafe { alarm.waiting().push_back(node) };
        }
    }

    unsafe fn dequeue(&self, node: &WaitNode, wait: SelectWait) {
        if let Some(chan) = self.chan() {
            // SAFETY: by the contract of this function.
            unsafe { chan.held() }
                .waiters(Side::Recv, wait)
                .remove(node);
        } else if let Source::Alarm(alarm) = &self.source {
            alarm.waiting().remove(node);
        }
    }

    fn next_ns(&self) -> u64 {
        match &self.source {
            Source::At(at) => at.next_ns(),
            Source::Tick(tick) => tick.next_ns(),
            Source::Alarm(alarm) => alarm.next_ns(),
            Source::Senders(_) | Source::Never => NEVER,
        }
    }

    fn ended_by(&self) -> Option<(tag::Handle, usize)> {
        let name = match (&self.source, self.chan()) {
            (_, Some(chan)) => chan.name.get(),
            (Source::Never, _) => 0,
            _ => return None,
        };
        Some((tag::Handle::Sender, name))
    }

    fn abandon(&self) {
        if let Some(chan) = self.chan() {
            chan.abandon(Side::Recv);
        }
    }
}

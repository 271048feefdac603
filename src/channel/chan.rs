//! The operations of a channel: each takes the lock, calls the core, and readies the waiter that
//! can proceed, or waits itself.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::mem::{self, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::core::{Claim, Core, Packet, Refused, SelectWait, Side, TryReceived, WaiterEvent};
use crate::g::status::Reason;
use crate::lock::RawLock;
use crate::loom::native::atomic::{AtomicUsize, Ordering};
use crate::sched::wait::{current_context, points};
use crate::sync::tag;
use crate::sync::waitq::{Dequeued, WaitCtx, WaitNode, WaitOptions, Waiter};
use crate::sys::clock::{self, NEVER};

/// A channel. Senders and receivers are counted. The last handle of a side disconnects that side,
/// and the last handle of both frees the channel.
#[derive(Debug)]
pub(super) struct Chan<T> {
    lock: RawLock,
    core: UnsafeCell<Core<T>>,
    cap: Option<usize>,
    /// Numbers of handles. Ordering: increments are relaxed; decrements release and acquire, so
    /// that the last handle sees the writes of all others.
    n_senders: AtomicUsize,
    n_receivers: AtomicUsize,
    /// Number of sides that have handles. Ordering: as above.
    n_sides: AtomicUsize,
    pub(super) name: tag::Name,
}

// SAFETY: the core is accessed only under the lock; messages are sent between threads, so T is
// Send.
unsafe impl<T: Send> Sync for Chan<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Chan<T> {}

/// Number of waiters of a disconnected channel that are taken at a time, so that the lock is not
/// held for long if the queue is long.
const DISCONNECT_BATCH: usize = 64;

/// Access to a channel's core, with the lock held.
pub(super) struct Locked<'a, T>(&'a Chan<T>);

impl<T> Deref for Locked<'_, T> {
    type Target = Core<T>;
    #[inline]
    fn deref(&self) -> &Core<T> {
        // SAFETY: the lock is held.
        unsafe { &*self.0.core.get() }
    }
}

impl<T> DerefMut for Locked<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Core<T> {
        // SAFETY: the lock is held.
        unsafe { &mut *self.0.core.get() }
    }
}

impl<T> Drop for Locked<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.lock.unlock();
    }
}

/// Whether the ambient context ended a wait before its deadline.
fn is_cut(deadline_ns: u64) -> bool {
    clock::now_ns() < deadline_ns && current_context::check().is_err()
}

/// Error of an operation whose wait the ambient context ended.
pub(super) fn cut_short(deadline_ns: u64) -> Refused {
    match deadline_ns {
        NEVER => Refused::Disconnected,
        _ => Refused::Blocked,
    }
}

/// Called before a caller is informed that its channel is disconnected. During a shutdown,
/// goroutines are unwound in no particular order, so that may be the only reason why the other side
/// is gone. Then the caller unwinds too, as in a wait. In a destructor and on a plain thread it
/// returns, and the operation fails.
#[cold]
pub(super) fn note_disconnect() {
    let _ = points::cancel_point();
}

impl<T> Chan<T> {
    /// A channel of capacity `cap`; `None` is unbounded.
    pub(super) fn new(cap: Option<usize>) -> Chan<T> {
        Chan {
            lock: RawLock::new(),
            core: UnsafeCell::new(Core::new(cap)),
            cap,
            n_senders: AtomicUsize::new(1),
            n_receivers: AtomicUsize::new(1),
            n_sides: AtomicUsize::new(2),
            name: tag::Name::new(),
        }
    }

    /// Counts the messages of a new channel, in a simulation that asks for it.
    #[track_caller]
    pub(super) fn count(&mut self) {
        self.core.get_mut().count();
    }

    /// Takes the lock. The `WaitCtx` of the caller must exist until the lock is released.
    #[inline]
    fn lock(&self, _: &WaitCtx<'_>) -> Locked<'_, T> {
        self.lock.lock();
        Locked(self)
    }

    /// The lock, for a select, which locks it directly.
    pub(super) fn raw_lock(&self) -> &RawLock {
        &self.lock
    }

    /// The core, for a select that has taken the lock.
    ///
    /// # Safety
    ///
    /// The lock is held, and no other reference to the core is used meanwhile.
    #[expect(clippy::mut_from_ref, reason = "the lock makes it the only one")]
    pub(super) unsafe fn held(&self) -> &mut Core<T> {
        // SAFETY: by the contract of this function.
        unsafe { &mut *self.core.get() }
    }

    /// Sends if that is possible without waiting.
    #[inline]
    pub(super) fn try_send(&self, msg: T) -> Result<(), (T, Refused)> {
        let ctx = WaitCtx::enter();
        let mut core = self.lock(&ctx);
        let outcome = core.offer(msg, &ctx);
        drop(core);
        outcome.map(|taken| ready(taken, &ctx))
    }

    /// Sends, waiting for a place or a receiver until the deadline.
    #[inline]
    pub(super) fn send(&self, msg: T, deadline_ns: u64) -> Result<(), (T, Refused)> {
        let ctx = WaitCtx::enter();
        let mut core = self.lock(&ctx);
        match core.offer(msg, &ctx) {
            Ok(taken) => {
                drop(core);
                ready(taken, &ctx);
                Ok(())
            }
            Err((msg, Refused::Blocked)) => self.send_waiting(ctx, core, msg, deadline_ns),
            refused => {
                drop(core);
                refused.map(drop)
            }
        }
    }

    /// Waits in the queue of senders. The lock is held.
    #[inline(never)]
    fn send_waiting(
        &self,
        ctx: WaitCtx<'_>,
        core: Locked<'_, T>,
        msg: T,
        deadline_ns: u64,
    ) -> Result<(), (T, Refused)> {
        if ctx.is_cancelled() {
            drop((core, ctx));
            return match points::cancel_point() {
                Ok(()) => self.send(msg, deadline_ns),
                Err(_) => Err((msg, Refused::Disconnected)),
            };
        }
        let packet = Packet::new(MaybeUninit::new(msg));
        let chosen = {
            let waiter = Waiter::new(&ctx);
            let node = WaitNode::new(&waiter, 0, packet.slot());
            self.wait(ctx, core, &waiter, &node, Side::Send, deadline_ns)
        };
        if chosen && packet.head.event.get() == WaiterEvent::Done {
            return Ok(());
        }
        // SAFETY: no taker took the message, and none can any more: the node is out of the queue.
        let msg = unsafe { packet.take() };
        if chosen || points::cancel_point().is_err() {
            return Err((msg, Refused::Disconnected));
        }
        match self.try_send(msg) {
            Err((msg, Refused::Blocked)) if is_cut(deadline_ns) => {
                Err((msg, cut_short(deadline_ns)))
            }
            Err((msg, Refused::Blocked)) if clock::now_ns() < deadline_ns => {
                self.send(msg, deadline_ns)
            }
            outcome => outcome,
        }
    }

    /// Receives if that is possible without waiting. If a select has promised the message, waits
    /// for it until the deadline.
    #[inline]
    pub(super) fn try_recv(&self, deadline_ns: u64) -> Result<T, Refused> {
        let ctx = WaitCtx::enter();
        let mut core = self.lock(&ctx);
        let found = core.pull(&ctx);
        drop(core);
        match found {
            TryReceived::Message(msg, taken) => {
                ready(taken, &ctx);
                Ok(msg)
            }
            TryReceived::Nothing(refused) => Err(refused),
            TryReceived::Promise(taken) => {
                taken.ready(&ctx);
                drop(ctx);
                self.complete_recv(deadline_ns)
            }
        }
    }

    /// Receives, waiting for a message until the deadline.
    #[inline]
    pub(super) fn recv(&self, deadline_ns: u64) -> Result<T, Refused> {
        let ctx = WaitCtx::enter();
        let mut core = self.lock(&ctx);
        match core.pull(&ctx) {
            TryReceived::Message(msg, taken) => {
                drop(core);
                ready(taken, &ctx);
                Ok(msg)
            }
            TryReceived::Nothing(Refused::Blocked) => self.recv_waiting(ctx, core, deadline_ns),
            TryReceived::Nothing(Refused::Disconnected) => {
                drop(core);
                Err(Refused::Disconnected)
            }
            TryReceived::Promise(taken) => {
                drop(core);
                taken.ready(&ctx);
                drop(ctx);
                self.complete_recv(deadline_ns)
            }
        }
    }

    /// Waits in the queue of receivers. The lock is held.
    #[inline(never)]
    fn recv_waiting(
        &self,
        ctx: WaitCtx<'_>,
        core: Locked<'_, T>,
        deadline_ns: u64,
    ) -> Result<T, Refused> {
        if ctx.is_cancelled() {
            drop((core, ctx));
            return match points::cancel_point() {
                Ok(()) => self.recv(deadline_ns),
                Err(_) => Err(Refused::Disconnected),
            };
        }
        let packet = Packet::new(MaybeUninit::uninit());
        let chosen = {
            let waiter = Waiter::new(&ctx);
            let node = WaitNode::new(&waiter, 0, packet.slot());
            self.wait(ctx, core, &waiter, &node, Side::Recv, deadline_ns)
        };
        match packet.head.event.get() {
            // SAFETY: a sender has written it.
            WaiterEvent::Done => return Ok(unsafe { packet.take() }),
            WaiterEvent::Chosen => return self.complete_recv(deadline_ns),
            WaiterEvent::Disconnected => return Err(Refused::Disconnected),
            WaiterEvent::Nothing | WaiterEvent::Again => {
                debug_assert!(!chosen, "no taker reported an event")
            }
        }
        if points::cancel_point().is_err() {
            return Err(Refused::Disconnected);
        }
        match self.try_recv(deadline_ns) {
            Err(Refused::Blocked) if is_cut(deadline_ns) => Err(cut_short(deadline_ns)),
            Err(Refused::Blocked) if clock::now_ns() < deadline_ns => self.recv(deadline_ns),
            outcome => outcome,
        }
    }

    /// Waits in the queue of a side. The lock is held. `false` if no taker took the node, which is
    /// then out of the queue.
    #[inline]
    fn wait(
        &self,
        ctx: WaitCtx<'_>,
        core: Locked<'_, T>,
        waiter: &Waiter,
        node: &WaitNode,
        side: Side,
        deadline_ns: u64,
    ) -> bool {
        let reason = match side {
            Side::Send => Reason::ChanSend,
            Side::Recv => Reason::ChanRecv,
        };
        // SAFETY: the lock is held, and the frames stay until the wait is over.
        unsafe { core.enqueue(side, node, SelectWait::Choice, &ctx) };
        mem::forget(core);
        let options = WaitOptions::new(reason).until(deadline_ns).by_context(true);
        let wait = || ctx.wait(waiter, options, || self.lock.unlock());
        if tag::while_waiting(side.other().into(), self.name.get(), wait).is_some() {
            return true;
        }
        let ctx = WaitCtx::enter();
        self.lock(&ctx).queue(side).remove(node);
        false
    }

    /// Completes a promise with its message.
    pub(super) fn complete_send(&self, msg: T) -> Result<(), T> {
        let ctx = WaitCtx::enter();
        let mut core = self.lock(&ctx);
        let outcome = core.fulfil(msg, &ctx);
        drop(core);
        outcome.map(|taken| ready(taken, &ctx))
    }

    /// Completes a claim: takes its message, or waits until the deadline for the select that promised
    /// it.
    pub(super) fn complete_recv(&self, deadline_ns: u64) -> Result<T, Refused> {
        let ctx = WaitCtx::enter();
        let mut core = self.lock(&ctx);
        match core.redeem() {
            Claim::Message(msg) => Ok(msg),
            Claim::Wait => self.wait_as_claimant(ctx, core, deadline_ns),
            Claim::Broken => {
                drop((core, ctx));
                self.recv(deadline_ns)
            }
        }
    }

    #[inline(never)]
    fn wait_as_claimant(
        &self,
        ctx: WaitCtx<'_>,
        core: Locked<'_, T>,
        deadline_ns: u64,
    ) -> Result<T, Refused> {
        let packet = Packet::new(MaybeUninit::<T>::uninit());
        let waiter = Waiter::new(&ctx);
        let node = WaitNode::new(&waiter, 0, packet.slot());
        // SAFETY: the lock is held, and the frames stay until the wait is over.
        unsafe { core.claimants.push_back(&node) };
        mem::forget(core);
        let options = WaitOptions::new(Reason::ChanRecv)
            .until(deadline_ns)
            .by_context(true);
        let chosen = ctx.wait(&waiter, options, || self.lock.unlock()).is_some();
        match packet.head.event.get() {
            // SAFETY: a sender has written it.
            WaiterEvent::Done => return Ok(unsafe { packet.take() }),
            WaiterEvent::Disconnected => return Err(Refused::Disconnected),
            _ if chosen => return self.recv(deadline_ns),
            _ => {}
        }
        // The deadline has passed, the runtime shuts down, or the ambient context is done.
        let ctx = WaitCtx::enter();
        let mut core = self.lock(&ctx);
        core.claimants.remove(&node);
        let taken = core.give_up(&ctx);
        drop(core);
        ready(taken, &ctx);
        drop(ctx);
        match points::cancel_point() {
            Err(_) => Err(Refused::Disconnected),
            Ok(()) if deadline_ns <= clock::now_ns() => Err(Refused::Blocked),
            Ok(()) => self.recv(deadline_ns),
        }
    }

    /// Gives back a choice that is not completed. Leaves the goroutine on its thread.
    pub(super) fn abandon(&self, side: Side) {
        let ctx = WaitCtx::enter_in_place();
        let mut core = self.lock(&ctx);
        let taken = match side {
            Side::Send => core.abandon_promise(&ctx),
            Side::Recv => core.abandon_claim(&ctx),
        };
        drop(core);
        ready(taken, &ctx);
    }

    /// Number of messages that can be received.
    pub(super) fn len(&self) -> usize {
        let ctx = WaitCtx::enter();
        self.lock(&ctx).n_free()
    }

    pub(super) fn is_full(&self) -> bool {
        let ctx = WaitCtx::enter();
        !self.lock(&ctx).has_place()
    }

    pub(super) fn capacity(&self) -> Option<usize> {
        self.cap
    }

    fn handles(&self, side: Side) -> &AtomicUsize {
        match side {
            Side::Send => &self.n_senders,
            Side::Recv => &self.n_receivers,
        }
    }

    /// Counts one more handle.
    #[inline]
    pub(super) fn acquire(&self, side: Side) {
        let n = self.handles(side).fetch_add(1, Ordering::Relaxed);
        if n > isize::MAX as usize {
            std::process::abort();
        }
    }

    /// Counts one handle less. The last one frees the channel. Leaves the goroutine on its thread.
    ///
    /// # Safety
    ///
    /// `this` was boxed and leaked, and the caller owns a counted handle of this side, which it
    /// does not use again.
    #[inline]
    pub(super) unsafe fn release(this: NonNull<Chan<T>>, side: Side) {
        // SAFETY: the channel is alive while it has handles.
        let chan = unsafe { this.as_ref() };
        if chan.handles(side).fetch_sub(1, Ordering::AcqRel) == 1 {
            chan.disconnect(side);
            if chan.n_sides.fetch_sub(1, Ordering::AcqRel) == 1 {
                // SAFETY: it was boxed, and no handle is left.
                drop(unsafe { Box::from_raw(this.as_ptr()) });
            }
        }
    }

    /// Called when a side has lost its last handle: readies all waiters of the other side.
    #[cold]
    fn disconnect(&self, side: Side) {
        let other = side.other();
        // Messages of a channel without receivers, to be dropped after the lock is released.
        let mut unread = None;
        let mut is_first = true;
        loop {
            let ctx = WaitCtx::enter_in_place();
            let mut core = self.lock(&ctx);
            if mem::take(&mut is_first) {
                unread = core.close(side);
            }
            let (batch, is_last) = core.take_for_disconnect(other, DISCONNECT_BATCH);
            drop(core);
            batch.ready(&ctx);
            if is_last {
                break;
            }
        }
        if let Some(unread) = unread {
            unread.clear();
        }
    }
}

#[inline]
fn ready(taken: Option<Dequeued>, ctx: &WaitCtx<'_>) {
    if let Some(taken) = taken {
        taken.ready(ctx);
    }
}

#[cfg(all(test, any(loom, miri)))]
#[path = "chan_loom_tests.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::util::test_child;

    /// Handles can be leaked: a count that wraps would free a channel in use.
    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn too_many_handles_end_the_process() {
        const NAME: &str = "channel::chan::tests::too_many_handles_end_the_process";
        let chan = Chan::<u8>::new(None);
        let too_many = isize::MAX as usize + 1;
        match test_child::case().as_deref() {
            Some("senders") => {
                chan.n_senders.store(too_many, Ordering::Relaxed);
                chan.acquire(Side::Send);
            }
            Some("receivers") => {
                chan.n_receivers.store(too_many, Ordering::Relaxed);
                chan.acquire(Side::Recv);
            }
            _ => {
                test_child::aborts(NAME, "senders", "");
                test_child::aborts(NAME, "receivers", "");
            }
        }
    }
}

//! The state of a channel: a buffer and the waiters of either side, guarded by one short lock.
//!
//! The algorithm is Go's (`chan.go`). A sender that finds a waiting receiver moves the message into
//! the receiver's frame; a receiver that finds a waiting sender moves it from there; otherwise the
//! message goes through the buffer. Waiters are served first in, first out. They are readied after
//! the lock is released.
//!
//! **Select.** A select first *chooses* an operation and later *completes* it; the message is
//! evaluated in between. The chosen operation must still be possible then, so a choice changes one
//! of two numbers under the lock:
//!
//! | number     | chosen                                       | completed                      |
//! |------------|----------------------------------------------|--------------------------------|
//! | `claims`   | a receive: one message, in the buffer or     | takes it from the buffer, or   |
//! |            | promised, is reserved for this receiver      | waits in `claimants` for it    |
//! | `promises` | a send: one message will come, and its place | hands it to a claimant, or to  |
//! |            | is reserved                                  | a receiver, or to the buffer   |
//!
//! A choice that meets a waiter also chooses for that waiter. For example, a select that would send
//! finds a receiver waiting in a channel of capacity 0: the receiver then has a claim, and the
//! select a promise. So neither delays the other, no code accesses another waiter's frame without
//! the lock, and either may complete first. A choice that is never completed (a panic in between)
//! is given back: `abandon_*`.
//!
//! A receiver whose claim waits for a promise gives the claim back at its deadline (`give_up`). The
//! promise is then one of `orphans`: no claim may wait for it, and its message will be offered to others
//! or stored, also in a channel of capacity 0. So a select whose operation was forgotten
//! (`mem::forget`) takes a place with it, and no receiver that has a deadline. Which promise it was
//! does not matter: as long as there are others, one that ends is none of the orphans.
//!
//! To other users, a claimed message has left the channel: `len` does not count it, and its place
//! is free. So a goroutine that was woken with a claim and has not run yet delays no sender; in Go
//! the message is already in that goroutine's frame. The buffer may hold as many messages beyond
//! the capacity as there are claims.
//!
//! Invariants, under the lock:
//!
//! - a waiter can be taken from `receivers` only while no message is free (`n_free`);
//! - a waiter can be taken from `senders` only while there is no place (`has_place`);
//! - without panics, claims ≤ messages + promises;
//! - without panics, the buffer of a channel of capacity 0 holds only claimed messages.
//!
//! No message is dropped and no user code runs under the lock.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;

use super::buffer::Buffer;
use crate::sync::tag;
use crate::sync::waitq::{Dequeued, DequeuedList, WaitCtx, WaitNode, WaitQueue};

/// The report of a waiter's taker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaiterEvent {
    /// Nobody has taken the waiter yet.
    Nothing,
    /// The message was moved from or to the waiter's frame.
    Done,
    /// An operation was chosen for the waiter: it has a claim or a promise.
    Chosen,
    /// The other side has no handles any more.
    Disconnected,
    /// The event that the waiter expected will not come: it starts again.
    Again,
}

/// The part of a waiter's frame that does not depend on the message type.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Head {
    /// Whether the waiter is a select, which has no message to give and no place for one.
    pub(super) is_select: bool,
    pub(super) event: Cell<WaiterEvent>,
}

impl Head {
    pub(super) fn select() -> Head {
        Head {
            is_select: true,
            event: Cell::new(WaiterEvent::Nothing),
        }
    }
}

/// Lies on the frame of a waiting sender or receiver. The slots of its nodes point to it.
#[repr(C)]
pub(super) struct Packet<T> {
    pub(super) head: Head,
    msg: UnsafeCell<MaybeUninit<T>>,
}

impl<T> Packet<T> {
    #[inline]
    pub(super) fn new(msg: MaybeUninit<T>) -> Packet<T> {
        Packet {
            head: Head {
                is_select: false,
                event: Cell::new(WaiterEvent::Nothing),
            },
            msg: UnsafeCell::new(msg),
        }
    }

    #[inline]
    pub(super) fn slot(&self) -> *mut () {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Moves the message out.
    ///
    /// # Safety
    ///
    /// The message is initialized, no other code accesses it, and it is not taken again.
    #[inline]
    pub(super) unsafe fn take(&self) -> T {
        // SAFETY: by the contract of this function.
        unsafe { (*self.msg.get()).assume_init_read() }
    }
}

/// Why an operation was not performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The channel is full or empty, now or still at the deadline.
    Blocked,
    Disconnected,
}

/// Result of an attempt to receive.
pub(super) enum TryReceived<T> {
    /// A message, and the waiter to ready.
    Message(T, Option<Dequeued>),
    /// A select that will send. The receiver now has a claim.
    Promise(Dequeued),
    Nothing(Refused),
}

/// A side of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Send,
    Recv,
}

impl Side {
    pub(super) fn other(self) -> Side {
        match self {
            Side::Send => Side::Recv,
            Side::Recv => Side::Send,
        }
    }
}

/// The handles of a side.
impl From<Side> for tag::Handle {
    fn from(side: Side) -> tag::Handle {
        match side {
            Side::Send => tag::Handle::Sender,
            Side::Recv => tag::Handle::Receiver,
        }
    }
}

/// The operations that a select waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SelectWait {
    /// Until an operation is chosen for the select.
    Choice,
    /// Until an operation is possible; none is chosen (`Select::ready`).
    Readiness,
}

/// The state that the lock guards.
#[derive(Debug)]
pub(super) struct Core<T> {
    buffer: Buffer<T>,
    cap: usize,
    claims: usize,
    promises: usize,
    /// The promises whose receivers have given up.
    orphans: usize,
    no_senders: bool,
    no_receivers: bool,
    receivers: WaitQueue,
    senders: WaitQueue,
    /// Receivers with a claim whose message has not come yet.
    pub(super) claimants: WaitQueue,
    /// Waiters of `Select::ready`. All are taken when an operation becomes possible.
    recv_watchers: WaitQueue,
    send_watchers: WaitQueue,
}

/// State of a claim.
pub(super) enum Claim<T> {
    /// The claimed message.
    Message(T),
    /// The message has not come yet.
    Wait,
    /// The select that had promised the message abandoned its promise: the claim is void.
    Broken,
}

impl<T> Core<T> {
    pub(super) fn new(cap: Option<usize>) -> Core<T> {
        Core {
            buffer: cap.map_or_else(Buffer::unbounded, Buffer::bounded),
            cap: cap.unwrap_or(usize::MAX),
            claims: 0,
            promises: 0,
            orphans: 0,
            no_senders: false,
            no_receivers: false,
            receivers: WaitQueue::new(),
            senders: WaitQueue::new(),
            claimants: WaitQueue::new(),
            recv_watchers: WaitQueue::new(),
            send_watchers: WaitQueue::new(),
        }
    }

    /// See [`Buffer::count`].
    #[track_caller]
    pub(super) fn count(&mut self) {
        self.buffer.count();
    }

    /// Number of messages that are not claimed.
    #[inline]
    pub(super) fn n_free(&self) -> usize {
        self.buffer.len().saturating_sub(self.claims)
    }

    #[inline]
    pub(super) fn has_place(&self) -> bool {
        (self.buffer.len() + self.promises).saturating_sub(self.claims) < self.cap
    }

    pub(super) fn queue(&self, side: Side) -> &WaitQueue {
        match side {
            Side::Send => &self.senders,
            Side::Recv => &self.receivers,
        }
    }

    fn watchers(&self, side: Side) -> &WaitQueue {
        match side {
            Side::Send => &self.send_watchers,
            Side::Recv => &self.recv_watchers,
        }
    }

    pub(super) fn waiters(&self, side: Side, wait: SelectWait) -> &WaitQueue {
        match wait {
            SelectWait::Choice => self.queue(side),
            SelectWait::Readiness => self.watchers(side),
        }
    }

    /// Waits in the queue of a side.
    ///
    /// # Safety
    ///
    /// As [`WaitQueue::push_back`]; the slot of the node points to a head or a packet, which stays
    /// valid as long as the node does.
    #[inline]
    pub(super) unsafe fn enqueue(
        &self,
        side: Side,
        node: &WaitNode,
        wait: SelectWait,
        ctx: &WaitCtx<'_>,
    ) {
        // SAFETY: by the contract of this function.
        unsafe { self.waiters(side, wait).push_back(node) };
        if wait == SelectWait::Choice {
            // A watcher of the other side could meet this waiter.
            let other = match side {
                Side::Send => Side::Recv,
                Side::Recv => Side::Send,
            };
            self.notify(other, ctx);
        }
    }

    /// Whether an operation of a side is possible: it would succeed or fail at once.
    pub(super) fn is_ready(&self, side: Side) -> bool {
        match side {
            Side::Send => self.no_receivers || self.has_place() || !self.receivers.is_empty(),
            Side::Recv => self.no_senders || self.n_free() != 0 || !self.senders.is_empty(),
        }
    }

    /// Readies the watchers of a side, after an operation of this side became possible.
    #[inline]
    pub(super) fn notify(&self, side: Side, ctx: &WaitCtx<'_>) {
        if !self.watchers(side).is_empty() {
            self.ready_watchers(side, ctx);
        }
    }

    #[cold]
    fn ready_watchers(&self, side: Side, ctx: &WaitCtx<'_>) {
        while let Some(taken) = self.watchers(side).take() {
            taken.ready(ctx);
        }
    }

    #[inline]
    fn store(&mut self, msg: T, ctx: &WaitCtx<'_>) {
        self.buffer.push(msg);
        self.notify(Side::Recv, ctx);
    }

    /// Gives the message to a receiver that was taken from its queue.
    #[inline]
    fn hand_over(&mut self, taken: &Dequeued, msg: T) {
        let head = head_of(taken);
        if head.is_select {
            self.claims += 1;
            self.buffer.push(msg);
            head.event.set(WaiterEvent::Chosen);
        } else {
            let packet = taken.slot().cast::<Packet<T>>();
            // SAFETY: as in `head_of`; a head that is not a select's begins a packet of T.
            unsafe { (*(*packet).msg.get()).write(msg) };
            head.event.set(WaiterEvent::Done);
        }
    }

    /// Takes the message of a sender that was taken from its queue. A select gets a promise instead: `None`.
    #[inline]
    fn take_over(&mut self, taken: &Dequeued) -> Option<T> {
        let head = head_of(taken);
        if head.is_select {
            self.promises += 1;
            head.event.set(WaiterEvent::Chosen);
            return None;
        }
        let packet = taken.slot().cast::<Packet<T>>();
        // SAFETY: as in `hand_over`; `WaiterEvent::Done` informs the sender that its message was taken.
        let msg = unsafe { (*packet).take() };
        head.event.set(WaiterEvent::Done);
        Some(msg)
    }

    /// A sender's attempt. Returns the waiter to ready.
    #[inline]
    pub(super) fn offer(
        &mut self,
        msg: T,
        ctx: &WaitCtx<'_>,
    ) -> Result<Option<Dequeued>, (T, Refused)> {
        if self.no_receivers {
            return Err((msg, Refused::Disconnected));
        }
        if let Some(taken) = self.receivers.take() {
            self.hand_over(&taken, msg);
            return Ok(Some(taken));
        }
        if self.has_place() {
            self.store(msg, ctx);
            return Ok(None);
        }
        Err((msg, Refused::Blocked))
    }

    /// A receiver's attempt.
    #[inline]
    pub(super) fn pull(&mut self, ctx: &WaitCtx<'_>) -> TryReceived<T> {
        if self.n_free() != 0
            && let Some(msg) = self.buffer.pop()
        {
            return TryReceived::Message(msg, self.refill(ctx));
        }
        if let Some(taken) = self.senders.take() {
            return match self.take_over(&taken) {
                Some(msg) => TryReceived::Message(msg, Some(taken)),
                None => {
                    self.claims += 1;
                    TryReceived::Promise(taken)
                }
            };
        }
        TryReceived::Nothing(match self.no_senders {
            true => Refused::Disconnected,
            false => Refused::Blocked,
        })
    }

    /// Called when a place may have become free. Gives it to the first waiting sender.
    #[inline]
    fn refill(&mut self, ctx: &WaitCtx<'_>) -> Option<Dequeued> {
        if !self.has_place() {
            return None;
        }
        let Some(taken) = self.senders.take() else {
            self.notify(Side::Send, ctx);
            return None;
        };
        if let Some(msg) = self.take_over(&taken) {
            self.store(msg, ctx);
        }
        Some(taken)
    }

    /// Lets a select choose. Returns `None` if the operation is not possible; otherwise the choice
    /// and the waiter to ready.
    pub(super) fn choose(
        &mut self,
        side: Side,
        ctx: &WaitCtx<'_>,
    ) -> Option<(WaiterEvent, Option<Dequeued>)> {
        match side {
            Side::Send => self.choose_send(),
            Side::Recv => self.choose_recv(ctx),
        }
    }

    fn choose_recv(&mut self, ctx: &WaitCtx<'_>) -> Option<(WaiterEvent, Option<Dequeued>)> {
        if self.n_free() != 0 {
            self.claims += 1;
            return Some((WaiterEvent::Chosen, self.refill(ctx)));
        }
        if let Some(taken) = self.senders.take() {
            if let Some(msg) = self.take_over(&taken) {
                self.buffer.push(msg);
            }
            self.claims += 1;
            return Some((WaiterEvent::Chosen, Some(taken)));
        }
        self.no_senders.then_some((WaiterEvent::Disconnected, None))
    }

    fn choose_send(&mut self) -> Option<(WaiterEvent, Option<Dequeued>)> {
        if self.no_receivers {
            return Some((WaiterEvent::Disconnected, None));
        }
        if self.has_place() {
            self.promises += 1;
            return Some((WaiterEvent::Chosen, None));
        }
        let taken = self.receivers.take()?;
        head_of(&taken).event.set(WaiterEvent::Chosen);
        self.claims += 1;
        self.promises += 1;
        Some((WaiterEvent::Chosen, Some(taken)))
    }

    /// Called by a receiver with a claim: takes its message.
    pub(super) fn redeem(&mut self) -> Claim<T> {
        if let Some(msg) = self.buffer.pop() {
            // Its place was freed when it was claimed.
            self.claims -= 1;
            return Claim::Message(msg);
        }
        if self.no_senders || self.is_claim_void() {
            self.claims -= 1;
            return Claim::Broken;
        }
        Claim::Wait
    }

    /// Gives back a claim that is not completed. Its message goes to other receivers, even if the
    /// channel then holds one more than its capacity. Returns the waiter to ready.
    ///
    /// [`Core::give_up`] does it for a receiver that waits for its message.
    pub(super) fn abandon_claim(&mut self, ctx: &WaitCtx<'_>) -> Option<Dequeued> {
        self.claims -= 1;
        if self.n_free() == 0 {
            return None;
        }
        let Some(taken) = self.receivers.take() else {
            self.notify(Side::Recv, ctx);
            return None;
        };
        if let Some(msg) = self.buffer.pop() {
            self.hand_over(&taken, msg);
        }
        Some(taken)
    }

    /// Gives back the claim of a receiver that no longer waits for its message, which was promised.
    /// Returns the waiter to ready.
    pub(super) fn give_up(&mut self, ctx: &WaitCtx<'_>) -> Option<Dequeued> {
        self.orphans = self.promises.min(self.orphans + 1);
        self.abandon_claim(ctx)
    }

    fn end_promise(&mut self) {
        self.promises -= 1;
        self.orphans = self.orphans.min(self.promises);
    }

    /// Whether there are more claims than messages, now and promised: one of them is void.
    fn is_claim_void(&self) -> bool {
        self.claims > self.buffer.len() + self.promises - self.orphans
    }

    /// Gives back a promise that is not completed. Its place goes to other senders, and a receiver
    /// that has a claim to the message starts again. Returns the waiter to ready.
    pub(super) fn abandon_promise(&mut self, ctx: &WaitCtx<'_>) -> Option<Dequeued> {
        self.end_promise();
        if self.no_receivers {
            return None;
        }
        if self.is_claim_void()
            && let Some(taken) = self.claimants.take()
        {
            self.claims -= 1;
            head_of(&taken).event.set(WaiterEvent::Again);
            return Some(taken);
        }
        self.refill(ctx)
    }

    /// Notes that a side has no handles any more. Returns the messages that can no longer be
    /// received, for the caller to drop.
    pub(super) fn close(&mut self, side: Side) -> Option<Buffer<T>> {
        match side {
            Side::Send => {
                self.no_senders = true;
                None
            }
            Side::Recv => {
                self.no_receivers = true;
                Some(self.buffer.take())
            }
        }
    }

    /// Sends the message of a promise.
    pub(super) fn fulfil(&mut self, msg: T, ctx: &WaitCtx<'_>) -> Result<Option<Dequeued>, T> {
        self.end_promise();
        if self.no_receivers {
            return Err(msg);
        }
        if let Some(taken) = self.claimants.take() {
            self.claims -= 1;
            self.hand_over(&taken, msg);
            return Ok(Some(taken));
        }
        if self.buffer.len() < self.claims {
            // It is claimed by a receiver that has not asked for it yet.
            self.buffer.push(msg);
            return Ok(None);
        }
        if let Some(taken) = self.receivers.take() {
            self.hand_over(&taken, msg);
            return Ok(Some(taken));
        }
        self.store(msg, ctx);
        Ok(None)
    }

    /// Takes at most `most` waiters of a side whose other side has no handles any more. Returns
    /// whether these were all.
    pub(super) fn take_for_disconnect(&mut self, side: Side, most: usize) -> (DequeuedList, bool) {
        let mut list = DequeuedList::new();
        for _ in 0..most {
            let taken = self.queue(side).take().or_else(|| self.take_claimant(side));
            if let Some(taken) = taken {
                head_of(&taken).event.set(WaiterEvent::Disconnected);
                list.push(taken);
            } else if let Some(taken) = self.watchers(side).take() {
                list.push(taken);
            } else {
                return (list, true);
            }
        }
        (list, false)
    }

    fn take_claimant(&mut self, side: Side) -> Option<Dequeued> {
        let taken = match side {
            Side::Recv => self.claimants.take(),
            Side::Send => None,
        };
        self.claims -= usize::from(taken.is_some());
        taken
    }
}

/// The head of a waiter that was taken, from any queue except those of watchers.
#[inline]
pub(super) fn head_of(taken: &Dequeued) -> &Head {
    // SAFETY:
    // - the slot of a node points to the head of a select, or to a packet, which begins with one;
    // - the frame of a taken waiter belongs to the taker until the waiter is readied.
    unsafe { &*taken.slot().cast::<Head>() }
}

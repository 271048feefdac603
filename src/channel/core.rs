//! One channel: a buffer, who waits at either side, and a short lock around both.
//!
//! The algorithm is Go's (`chan.go`). A sender that finds a receiver waiting puts the
//! message into the receiver's frame; a receiver that finds a sender waiting takes it
//! from there; otherwise the message goes through the buffer. Who must wait is first in,
//! first out. Readying happens after the lock is free.
//!
//! **Select.** A select first *chooses* an operation and later *completes* it: the
//! message is made in between. What it has chosen must still be possible then, so
//! choosing changes two numbers, under the lock:
//!
//! | number     | chosen                                       | completed                      |
//! |------------|----------------------------------------------|--------------------------------|
//! | `claims`   | to receive: one message, here or on its way, | takes it from the buffer, or   |
//! |            | is nobody else's                             | waits in `claimants` for it    |
//! | `promises` | to send: one message will come, its place is | hands it to a claimant, or a   |
//! |            | taken                                        | receiver, or to the buffer     |
//!
//! A choice that meets somebody who waits also chooses for that one: a select that
//! would send finds a receiver waiting in a channel of capacity 0, and then the receiver
//! has a claim and the select a promise. So neither holds the other up, nobody refers to
//! another's frame without the lock, and whichever completes first does not matter. What
//! was chosen and never completed (a panic in between) is given back: `abandon_*`.
//!
//! A message that is claimed has left the channel as far as others can see: `len` does not
//! count it, and its place is free. So a goroutine that was woken with a claim and has not
//! run yet holds up no sender, as in Go, where the message lies in its frame by then. The
//! buffer may hold as many messages beyond the capacity as there are claims.
//!
//! Invariants, under the lock:
//! - somebody can be taken from `receivers` only while no message is free (`n_free`);
//! - somebody can be taken from `senders` only while there is no place (`has_place`);
//! - without panics, claims ≤ messages + promises;
//! - in a channel of capacity 0 the buffer holds claimed messages only, again without
//!   panics.
//!
//! No message is dropped, and nothing of the user's runs, under the lock.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;

use super::buffer::Buffer;
use crate::sync::waitq::{Here, Link, Taken, TakenList, WaitQueue};

/// What a waiter was told by whoever took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Nothing yet.
    Nothing,
    /// The message was moved from or to its frame.
    Done,
    /// An operation was chosen for it: it has a claim or a promise.
    Chosen,
    /// The other side is gone.
    Disconnected,
    /// What it waited for will not come: it begins again.
    Again,
}

/// The part of a waiting frame that does not depend on the message.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Head {
    /// A select has no message to give, and no place for one.
    pub(super) is_select: bool,
    pub(super) told: Cell<Told>,
}

impl Head {
    pub(super) fn select() -> Head {
        Head {
            is_select: true,
            told: Cell::new(Told::Nothing),
        }
    }
}

/// On the frame of a sender or receiver that waits; links name it in their slots.
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
                told: Cell::new(Told::Nothing),
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
    /// It is there, nobody else has access, and it is not taken again.
    #[inline]
    pub(super) unsafe fn take(&self) -> T {
        // SAFETY: by the contract of this function.
        unsafe { (*self.msg.get()).assume_init_read() }
    }
}

/// Why an operation did not go ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Full or empty: at once, or still at the deadline.
    Blocked,
    Disconnected,
}

/// What a receiver found.
pub(super) enum Found<T> {
    /// A message, and who can go on because of that.
    Message(T, Option<Taken>),
    /// A select that will send: the receiver has a claim now.
    Promise(Taken),
    Nothing(Refused),
}

/// A side of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Send,
    Recv,
}

/// What a select waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// To choose.
    Choice,
    /// To learn that an operation is possible.
    Readiness,
}

/// What the lock guards.
#[derive(Debug)]
pub(super) struct Core<T> {
    buffer: Buffer<T>,
    cap: usize,
    claims: usize,
    promises: usize,
    no_senders: bool,
    no_receivers: bool,
    receivers: WaitQueue,
    senders: WaitQueue,
    /// Receivers that have a claim, and whose message is not there yet.
    pub(super) claimants: WaitQueue,
    /// `Select::ready`: taken, all of them, when an operation becomes possible.
    recv_watchers: WaitQueue,
    send_watchers: WaitQueue,
}

/// What became of a claim.
pub(super) enum Claim<T> {
    /// Its message.
    Message(T),
    /// The message is still to come.
    Wait,
    /// Whoever chose to send it did not: the claim is gone.
    Broken,
}

impl<T> Core<T> {
    pub(super) fn new(cap: Option<usize>) -> Core<T> {
        Core {
            buffer: cap.map_or_else(Buffer::unbounded, Buffer::bounded),
            cap: cap.unwrap_or(usize::MAX),
            claims: 0,
            promises: 0,
            no_senders: false,
            no_receivers: false,
            receivers: WaitQueue::new(),
            senders: WaitQueue::new(),
            claimants: WaitQueue::new(),
            recv_watchers: WaitQueue::new(),
            send_watchers: WaitQueue::new(),
        }
    }

    /// Messages that are nobody's yet.
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

    pub(super) fn waiters(&self, side: Side, wait: Wait) -> &WaitQueue {
        match wait {
            Wait::Choice => self.queue(side),
            Wait::Readiness => self.watchers(side),
        }
    }

    /// Waits in the queue of a side.
    ///
    /// # Safety
    ///
    /// As [`WaitQueue::push_back`]; the slot of the link names a head or a packet, which
    /// stays as the link does.
    #[inline]
    pub(super) unsafe fn enqueue(&self, side: Side, link: &Link, wait: Wait, here: &Here<'_>) {
        // SAFETY: by the contract of this function.
        unsafe { self.waiters(side, wait).push_back(link) };
        if wait == Wait::Choice {
            // Somebody could meet whoever waits.
            let other = match side {
                Side::Send => Side::Recv,
                Side::Recv => Side::Send,
            };
            self.notify(other, here);
        }
    }

    /// Whether an operation of a side is possible, if only to fail.
    pub(super) fn is_ready(&self, side: Side) -> bool {
        match side {
            Side::Send => self.no_receivers || self.has_place() || !self.receivers.is_empty(),
            Side::Recv => self.no_senders || self.n_free() != 0 || !self.senders.is_empty(),
        }
    }

    /// An operation of this side became possible.
    #[inline]
    pub(super) fn notify(&self, side: Side, here: &Here<'_>) {
        if !self.watchers(side).is_empty() {
            self.ready_watchers(side, here);
        }
    }

    #[cold]
    fn ready_watchers(&self, side: Side, here: &Here<'_>) {
        while let Some(taken) = self.watchers(side).take() {
            taken.ready(here);
        }
    }

    #[inline]
    fn store(&mut self, msg: T, here: &Here<'_>) {
        self.buffer.push(msg);
        self.notify(Side::Recv, here);
    }

    /// Gives the message to a receiver that was taken.
    #[inline]
    fn hand_over(&mut self, taken: &Taken, msg: T) {
        let head = head_of(taken);
        if head.is_select {
            self.claims += 1;
            self.buffer.push(msg);
            head.told.set(Told::Chosen);
        } else {
            let packet = taken.slot().cast::<Packet<T>>();
            // SAFETY: as in `head_of`, and a head that is no select's is a packet's of T.
            unsafe { (*(*packet).msg.get()).write(msg) };
            head.told.set(Told::Done);
        }
    }

    /// Takes the message of a sender that was taken; from a select, its promise.
    #[inline]
    fn take_over(&mut self, taken: &Taken) -> Option<T> {
        let head = head_of(taken);
        if head.is_select {
            self.promises += 1;
            head.told.set(Told::Chosen);
            return None;
        }
        let packet = taken.slot().cast::<Packet<T>>();
        // SAFETY: as in `hand_over`; the sender learns that its message is gone.
        let msg = unsafe { (*packet).take() };
        head.told.set(Told::Done);
        Some(msg)
    }

    /// A sender's attempt. Gives who can go on because of it.
    #[inline]
    pub(super) fn offer(&mut self, msg: T, here: &Here<'_>) -> Result<Option<Taken>, (T, Refused)> {
        if self.no_receivers {
            return Err((msg, Refused::Disconnected));
        }
        if let Some(taken) = self.receivers.take() {
            self.hand_over(&taken, msg);
            return Ok(Some(taken));
        }
        if self.has_place() {
            self.store(msg, here);
            return Ok(None);
        }
        Err((msg, Refused::Blocked))
    }

    /// A receiver's attempt.
    #[inline]
    pub(super) fn pull(&mut self, here: &Here<'_>) -> Found<T> {
        if self.n_free() != 0
            && let Some(msg) = self.buffer.pop()
        {
            return Found::Message(msg, self.refill(here));
        }
        if let Some(taken) = self.senders.take() {
            return match self.take_over(&taken) {
                Some(msg) => Found::Message(msg, Some(taken)),
                None => {
                    self.claims += 1;
                    Found::Promise(taken)
                }
            };
        }
        Found::Nothing(match self.no_senders {
            true => Refused::Disconnected,
            false => Refused::Blocked,
        })
    }

    /// A place may have become free: gives it to the first who waits for one.
    #[inline]
    fn refill(&mut self, here: &Here<'_>) -> Option<Taken> {
        if !self.has_place() {
            return None;
        }
        let Some(taken) = self.senders.take() else {
            self.notify(Side::Send, here);
            return None;
        };
        if let Some(msg) = self.take_over(&taken) {
            self.store(msg, here);
        }
        Some(taken)
    }

    /// Lets a select choose. Gives whether it can, and who goes on by that.
    pub(super) fn choose(&mut self, side: Side, here: &Here<'_>) -> Option<(Told, Option<Taken>)> {
        match side {
            Side::Send => self.choose_send(),
            Side::Recv => self.choose_recv(here),
        }
    }

    fn choose_recv(&mut self, here: &Here<'_>) -> Option<(Told, Option<Taken>)> {
        if self.n_free() != 0 {
            self.claims += 1;
            return Some((Told::Chosen, self.refill(here)));
        }
        if let Some(taken) = self.senders.take() {
            if let Some(msg) = self.take_over(&taken) {
                self.buffer.push(msg);
            }
            self.claims += 1;
            return Some((Told::Chosen, Some(taken)));
        }
        self.no_senders.then_some((Told::Disconnected, None))
    }

    fn choose_send(&mut self) -> Option<(Told, Option<Taken>)> {
        if self.no_receivers {
            return Some((Told::Disconnected, None));
        }
        if self.has_place() {
            self.promises += 1;
            return Some((Told::Chosen, None));
        }
        let taken = self.receivers.take()?;
        head_of(&taken).told.set(Told::Chosen);
        self.claims += 1;
        self.promises += 1;
        Some((Told::Chosen, Some(taken)))
    }

    /// Somebody comes for the message of its claim.
    pub(super) fn redeem(&mut self) -> Claim<T> {
        if let Some(msg) = self.buffer.pop() {
            // Its place was given on when it was claimed.
            self.claims -= 1;
            return Claim::Message(msg);
        }
        if self.no_senders || self.claims > self.promises {
            self.claims -= 1;
            return Claim::Broken;
        }
        Claim::Wait
    }

    /// A choice to receive is not completed. A message that was meant for it goes to
    /// others, even if that is one more than the capacity. Gives who can go on by that.
    pub(super) fn abandon_claim(&mut self, here: &Here<'_>) -> Option<Taken> {
        self.claims -= 1;
        if self.n_free() == 0 {
            return None;
        }
        let Some(taken) = self.receivers.take() else {
            self.notify(Side::Recv, here);
            return None;
        };
        if let Some(msg) = self.buffer.pop() {
            self.hand_over(&taken, msg);
        }
        Some(taken)
    }

    /// A choice to send is not completed. Its place goes to others, and a receiver that
    /// has a claim to the message begins again. Gives who can go on by that.
    pub(super) fn abandon_promise(&mut self, here: &Here<'_>) -> Option<Taken> {
        self.promises -= 1;
        if self.no_receivers {
            return None;
        }
        if self.claims > self.buffer.len() + self.promises
            && let Some(taken) = self.claimants.take()
        {
            self.claims -= 1;
            head_of(&taken).told.set(Told::Again);
            return Some(taken);
        }
        self.refill(here)
    }

    /// Notes that a side has no handles any more. Gives the messages that nobody can
    /// receive then, for the caller to drop.
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

    /// The message of a promise has come.
    pub(super) fn fulfil(&mut self, msg: T, here: &Here<'_>) -> Result<Option<Taken>, T> {
        self.promises -= 1;
        if self.no_receivers {
            return Err(msg);
        }
        if let Some(taken) = self.claimants.take() {
            self.claims -= 1;
            self.hand_over(&taken, msg);
            return Ok(Some(taken));
        }
        if self.buffer.len() < self.claims {
            // Of somebody who has not come for it yet.
            self.buffer.push(msg);
            return Ok(None);
        }
        if let Some(taken) = self.receivers.take() {
            self.hand_over(&taken, msg);
            return Ok(Some(taken));
        }
        self.store(msg, here);
        Ok(None)
    }

    /// Takes at most `most` of those who wait at a side that has lost the other one. Gives
    /// whether these were all.
    pub(super) fn take_for_disconnect(&mut self, side: Side, most: usize) -> (TakenList, bool) {
        let mut list = TakenList::new();
        for _ in 0..most {
            let taken = self.queue(side).take().or_else(|| self.take_claimant(side));
            if let Some(taken) = taken {
                head_of(&taken).told.set(Told::Disconnected);
                list.push(taken);
            } else if let Some(taken) = self.watchers(side).take() {
                list.push(taken);
            } else {
                return (list, true);
            }
        }
        (list, false)
    }

    fn take_claimant(&mut self, side: Side) -> Option<Taken> {
        let taken = match side {
            Side::Recv => self.claimants.take(),
            Side::Send => None,
        };
        self.claims -= usize::from(taken.is_some());
        taken
    }
}

/// What whoever was taken learns from its taker. In all queues but the watchers'.
#[inline]
pub(super) fn head_of(taken: &Taken) -> &Head {
    // SAFETY:
    // - the slot of a link names the head of a select, or a packet, which begins with one;
    // - whoever was taken leaves its frame to the taker until it is readied.
    unsafe { &*taken.slot().cast::<Head>() }
}

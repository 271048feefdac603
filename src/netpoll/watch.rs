//! A stream that is watched: one poll that stays armed, and tells whenever more has come.
//!
//! A one-shot receive arms a poll, is woken, receives, and posts its completion, for each
//! message. Where the reader waits for one message after the other the poll may as well stay:
//! then the kernel posts a completion when something comes, and whoever hears of it begins the
//! receive that the reader has left with its wait, in one batch with others (`netpoll::hear`).
//!
//! The poll is edge-triggered: it tells of what comes, not of what is there. So a stream must
//! have been found empty before its reader waits ([`super::edge`]).
//!
//! It belongs to the thread that armed it, and to that thread's ring, which has a reference of
//! its own until the last completion. It also keeps the stream's file open: whoever closes the
//! stream has to end it ([`Watch::stop`]).
#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::edge::{Edge, Seen, Wait};
use super::op::{ERESTARTSYS, Op};
use crate::lock::{Lock, Rank};
use crate::loom::native::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use crate::sys::uring::sync_cancel;
use crate::util::chaos::{self, Point};
use crate::util::prefetch::prefetch_bytes;

/// `IORING_CQE_F_MORE`: it stays armed.
const MORE: u32 = 1 << 1;

/// What is asked for; errors and hang-ups come unasked.
pub(super) const EVENTS: u32 = (libc::POLLIN | libc::POLLRDHUP) as u32;

/// What may stay true with no edge to tell of it: then each receive is waited for by itself.
const LASTING: i32 = (libc::POLLRDHUP | libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) as i32;

fn is_lasting(result: i32) -> bool {
    match result {
        0.. => result & LASTING != 0,
        // Asked for, or by nobody: the thread that submitted it has gone.
        _ => !matches!(-result, libc::ECANCELED | libc::EINTR | ERESTARTSYS),
    }
}

/// Waits from another ring than that which has the poll, in a row, before it moves.
const MOVES_AFTER: u8 = 4;

/// What a poll has to tell of before it moves to have been worth arming: that and its end are two
/// system calls.
const PAYS_FROM: u64 = 4;
/// Polls in a row that were not, after which the stream is watched no more.
const VAIN_AT_MOST: u8 = 4;

/// Nowhere.
const NOT_ARMED: u64 = 0;

/// A ring and the thread that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home(u64);

impl Home {
    /// That of the M with this number, which holds the P of this ring.
    pub(crate) fn new(ring_fd: i32, m_id: u64) -> Home {
        Home(u64::from(ring_fd.cast_unsigned()) << 32 | (m_id + 1) & u64::from(u32::MAX))
    }

    fn ring(self) -> u64 {
        self.0 >> 32
    }
}

/// Where a reader stands that wants to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The poll has to be armed first.
    ToArm,
    /// It may wait.
    Here,
    /// The poll is another's and ends: this once it waits in another way.
    Leaving,
}

#[derive(Debug)]
struct Armed {
    ring_fd: i32,
    /// Its name in that ring.
    name: u64,
    /// What had been told of before.
    n_told: u64,
}

/// What a completion came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// Who waited, whose wait is the caller's to end: the operation stays until then.
    pub(super) waiter: Option<NonNull<Op>>,
    /// What the waiter would see. Nothing if a receive could be in vain, or not the last one:
    /// the waiter has to look at the stream itself.
    pub(super) seen: Option<Seen>,
    /// The ring's reference is to be dropped.
    pub(super) is_last: bool,
}

/// The poll of one stream.
#[derive(Debug)]
pub(crate) struct Watch {
    edge: Edge,
    /// Where it is armed. Ordering: relaxed; set under the lock, and a hint where the thread that
    /// looks is not the one named. Cleared before the edge is told of the end, so whoever waits
    /// for an edge that never comes has seen it cleared, or is told.
    home: AtomicU64,
    /// Something lasting was told. Ordering: relaxed; written before the edge is told.
    is_over: AtomicBool,
    /// Waits from elsewhere in a row. Ordering: relaxed, a hint.
    n_away: AtomicU8,
    /// Polls in a row that had to move before they had paid. Ordering: relaxed; written under the
    /// lock.
    n_vain: AtomicU8,
    /// The poll that is to be stopped, if there is one that nobody has stopped yet.
    armed: Lock<Option<Armed>>,
}

impl Watch {
    pub(crate) fn new() -> Watch {
        Watch {
            edge: Edge::new(),
            home: AtomicU64::new(NOT_ARMED),
            is_over: AtomicBool::new(false),
            n_away: AtomicU8::new(0),
            n_vain: AtomicU8::new(0),
            armed: Lock::new(Rank::Watch, None),
        }
    }

    /// Whether an attempt is worth while.
    #[inline]
    pub(crate) fn look(&self) -> Option<Seen> {
        self.edge.look()
    }

    /// An attempt that began after [`Watch::look`] has left nothing.
    #[inline]
    pub(crate) fn found_empty(&self, seen: Seen) {
        self.edge.forget(seen);
    }

    /// Whether it is of no use any more: the stream has ended, failed, or has urgent data.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Where a reader stands that waits at `here`.
    #[inline]
    pub(crate) fn place(&self, here: Home) -> Place {
        match self.home.load(Ordering::Relaxed) {
            home if home == here.0 => {
                self.n_away.store(0, Ordering::Relaxed);
                Place::Here
            }
            NOT_ARMED => Place::ToArm,
            home => self.place_away(Home(home), here),
        }
    }

    #[cold]
    fn place_away(&self, home: Home, here: Home) -> Place {
        let n_away = self.n_away.load(Ordering::Relaxed).saturating_add(1);
        self.n_away.store(n_away, Ordering::Relaxed);
        // On this ring by a thread that has gone elsewhere: it would be woken for each completion.
        if home.ring() == here.ring() || n_away >= MOVES_AFTER {
            self.move_on();
            return Place::Leaving;
        }
        Place::Here
    }

    /// Ends the poll, so that it can be armed elsewhere. If that happens too often it is not: its
    /// reader, or the P of that, goes from thread to thread.
    fn move_on(&self) {
        let mut armed = self.armed.lock();
        let Some(Armed { n_told, .. }) = *armed else {
            return;
        };
        let has_paid = self.edge.n_told() - n_told >= PAYS_FROM;
        let n_vain = match has_paid {
            true => 0,
            false => self.n_vain.load(Ordering::Relaxed) + 1,
        };
        self.n_vain.store(n_vain, Ordering::Relaxed);
        if n_vain > VAIN_AT_MOST {
            self.is_over.store(true, Ordering::Relaxed);
        }
        cancel(&mut armed);
    }

    /// It is about to be queued. `false` if it is armed already: then the caller's reference
    /// is not used.
    pub(super) fn begin(&self, home: Home, ring_fd: i32, name: u64) -> bool {
        let mut armed = self.armed.lock();
        if self.home.load(Ordering::Relaxed) != NOT_ARMED {
            return false;
        }
        *armed = Some(Armed {
            ring_fd,
            name,
            n_told: self.edge.n_told(),
        });
        self.home.store(home.0, Ordering::Relaxed);
        self.n_away.store(0, Ordering::Relaxed);
        true
    }

    /// Names `op` as what to complete when something comes. After [`Wait::Waits`] it may be
    /// gone.
    #[inline]
    pub(crate) fn wait(&self, op: &Op) -> Wait {
        op.set_watch(std::ptr::from_ref(self).cast());
        chaos::pause(Point::Commit);
        self.edge.wait(std::ptr::from_ref(op).cast())
    }

    /// Asks for the operation that waits to be in the caches soon.
    #[inline]
    pub(super) fn prefetch_waiter(&self) {
        prefetch_bytes(self.edge.waiter(), size_of::<Op>());
    }

    /// The side of whoever hears of a completion.
    #[inline]
    pub(super) fn complete(&self, result: i32, flags: u32) -> Told {
        let is_last = flags & MORE == 0;
        if is_last {
            // Under the lock, so that nobody asks a ring that may be closed.
            let mut armed = self.armed.lock();
            *armed = None;
            self.home.store(NOT_ARMED, Ordering::Relaxed);
        }
        let is_over = is_lasting(result);
        if is_over {
            self.is_over.store(true, Ordering::Relaxed);
        }
        let (waiter, seen) = self.edge.tell();
        Told {
            waiter: waiter.and_then(|op| NonNull::new(op.cast::<Op>().cast_mut())),
            seen: (!is_over && !is_last).then_some(seen),
            is_last,
        }
    }

    /// Ends the wait of `op`, if nobody else is about to. The caller holds the wait
    /// (`Status::begin_cancel`), and looks at its mark afterwards. `false` if it does not wait: it is
    /// about to, or has been told of something, and whoever wants its end asks again.
    pub(crate) fn withdraw(&self, op: &Op) -> bool {
        let waited = self.edge.withdraw(std::ptr::from_ref(op).cast());
        if waited {
            let g = op.complete(-libc::ECANCELED, 0);
            debug_assert!(g.is_none(), "the wait is held by the caller");
        }
        waited
    }

    /// Asks for the last completion, once. Any thread.
    #[cold]
    pub(crate) fn stop(&self) {
        cancel(&mut self.armed.lock());
    }
}

fn cancel(armed: &mut Option<Armed>) {
    if let Some(Armed { ring_fd, name, .. }) = armed.take() {
        // It was submitted when it was armed: if it is not known its last completion is there.
        let _ = sync_cancel(ring_fd, name);
    }
}

//! A stream that is watched: one poll that stays armed, and tells whenever more has come.
//!
//! A one-shot receive arms a poll, is woken, receives, and posts its completion, for each
//! message. Where the reader waits for one message after the other the poll may as well stay:
//! then the kernel posts a completion when something comes, and the reader receives by a
//! system call, which costs less where a P has few connections (docs/BENCHMARKS.md).
//!
//! The poll is edge-triggered: it tells of what comes, not of what is there. So a reader must
//! have found the stream empty before it waits ([`super::edge`]).
//!
//! It belongs to the thread that armed it, and to that thread's ring, which has a reference of
//! its own until the last completion. It also keeps the stream's file open: whoever closes the
//! stream has to end it ([`Watch::stop`]).
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use super::edge::{Edge, Seen, Wait};
use super::op::{ERESTARTSYS, Op};
use crate::g::header::GRef;
use crate::lock::{Lock, Rank};
use crate::sys::uring::sync_cancel;
use crate::util::chaos::{self, Point};

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

    /// Whether it is armed, somewhere.
    #[inline]
    pub(crate) fn is_armed(&self) -> bool {
        self.home.load(Ordering::Relaxed) != NOT_ARMED
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
            self.stop();
            return Place::Leaving;
        }
        Place::Here
    }

    /// It is about to be queued. `false` if it is armed already: then the caller's reference
    /// is not used.
    pub(super) fn begin(&self, home: Home, ring_fd: i32, name: u64) -> bool {
        let mut armed = self.armed.lock();
        if self.home.load(Ordering::Relaxed) != NOT_ARMED {
            return false;
        }
        *armed = Some(Armed { ring_fd, name });
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

    /// The reaper's side of a completion: the G whose wait it ends, and whether it was the
    /// last: the ring's reference is to be dropped.
    #[inline]
    pub(super) fn complete(&self, result: i32, flags: u32) -> (Option<GRef>, bool) {
        let is_last = flags & MORE == 0;
        if is_last {
            // Under the lock, so that nobody asks a ring that may be closed.
            let mut armed = self.armed.lock();
            *armed = None;
            self.home.store(NOT_ARMED, Ordering::Relaxed);
        }
        if is_lasting(result) {
            self.is_over.store(true, Ordering::Relaxed);
        }
        let waiter = self.edge.tell().map(<*const ()>::cast::<Op>);
        // SAFETY: it was taken out of the word, so this alone ends its wait, and its frame stays
        // until then.
        let g = waiter.and_then(|op| unsafe { &*op }.complete(0, 0));
        (g, is_last)
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
        let mut armed = self.armed.lock();
        if let Some(Armed { ring_fd, name }) = armed.take() {
            // It was submitted when it was armed: if it is not known its last completion is there.
            let _ = sync_cancel(ring_fd, name);
        }
    }
}

//! A stream that is watched: one poll that stays armed, and tells whenever more has come.
//!
//! A one-shot receive arms a poll, is woken, receives, and posts its completion, for each
//! message. Where the reader waits for one message after the other the poll may as well stay:
//! then the kernel posts a completion when something comes, and whoever hears of it begins the
//! receive that the reader has left with its wait, in one batch with others (`netpoll::dispatch_events`).
//!
//! The poll is edge-triggered: it tells of what comes, not of what is there. So a stream must
//! have been found empty before its reader waits ([`super::poll_desc`]).
//!
//! It belongs to the thread that armed it, and to that thread's ring, which has a reference of
//! its own until the last completion. It also keeps the stream's file open: whoever closes the
//! stream has to end it ([`MultishotPoll::stop`]).
//!
//! Readers on other Ps may wait for it too, but only goroutines of the runtime that armed it: a
//! reader of another runtime ends it, receives in another way, and arms it anew once the last
//! completion has come. Naming a waiter, arming, and the last completion exclude each other:
//!
//! | reader on the M that armed it     | reader elsewhere                | last completion    |
//! |-----------------------------------|---------------------------------|--------------------|
//! | 1. home is here: the end is this  | under the lock:                 | under the lock:    |
//! |    M's to hear of, after this     | 1. armed, by this runtime?      | 1. armed = nothing |
//! | 2. name itself in the edge        | 2. name itself in the edge      | 2. tell the edge   |
//! |                                   | 1. not armed? arm, begin again  |                    |
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use super::op::{ERESTARTSYS, Op};
use super::poll_desc::{PollDesc, PollWait, SeenEvents};
use crate::lock::{Lock, Rank};
use crate::loom::native::atomic::{AtomicBool, AtomicU8};
use crate::loom::{AtomicU64, Ordering, oracle};
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

/// A ring, and the thread and the runtime that use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingThread {
    /// The ring's descriptor, and the M's number.
    ring_and_m: u64,
    /// The runtime's address, which is only compared.
    runtime: usize,
}

impl RingThread {
    /// That of the M with this number, which holds the P of this ring of `runtime`.
    pub(crate) fn new(ring_fd: i32, m_id: u64, runtime: *const ()) -> RingThread {
        RingThread {
            ring_and_m: u64::from(ring_fd.cast_unsigned()) << 32 | (m_id + 1) & u64::from(u32::MAX),
            runtime: runtime.addr(),
        }
    }

    fn ring(self) -> u64 {
        self.ring_and_m >> 32
    }
}

/// What came of a reader's wish to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitStart {
    /// The poll has to be armed first; then the reader asks again.
    ToArm,
    /// A completion or a canceller ends the wait.
    Waits,
    /// A completion has come: an attempt is worth while.
    Told,
    /// The reader waits in another way: the poll is being moved, or has another waiter.
    Elsewhere,
}

/// The request in the kernel.
#[derive(Debug)]
struct ArmedPoll {
    home: RingThread,
    /// Its name in that ring.
    name: u64,
    /// What had been told of before.
    n_events: u64,
    /// The kernel was asked for the last completion.
    is_stopping: bool,
}

/// What a completion came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    /// Who waited, whose wait is the caller's to end: the operation stays until then.
    pub(super) waiter: Option<NonNull<Op>>,
    /// What the waiter would see. Nothing if a receive could be in vain, or not the last one:
    /// the waiter has to look at the stream itself.
    pub(super) seen: Option<SeenEvents>,
    /// The ring's reference is to be dropped.
    pub(super) is_last: bool,
}

/// The poll of one stream.
#[derive(Debug)]
pub(crate) struct MultishotPoll {
    edge: PollDesc,
    /// Where `armed` says that it is armed: `RingThread::ring_and_m`. Ordering: relaxed; written under
    /// the lock. Exact for the M that it names, which wrote it and is the one to clear it, or has
    /// got the P from the M that did; a hint for all others.
    home: AtomicU64,
    /// Something lasting was told. Ordering: relaxed; written before the edge is told.
    is_over: AtomicBool,
    /// Waits from elsewhere in a row. Ordering: relaxed, a hint.
    n_away: AtomicU8,
    /// Polls in a row that had to move before they had paid. Ordering: relaxed; written under the
    /// lock.
    n_vain: AtomicU8,
    /// From the moment before it is queued to its last completion.
    armed: Lock<Option<ArmedPoll>>,
}

impl MultishotPoll {
    pub(crate) fn new() -> MultishotPoll {
        MultishotPoll {
            edge: PollDesc::new(),
            home: AtomicU64::new(NOT_ARMED),
            is_over: AtomicBool::new(false),
            n_away: AtomicU8::new(0),
            n_vain: AtomicU8::new(0),
            armed: Lock::new(Rank::Watch, None),
        }
    }

    /// Whether an attempt is worth while.
    #[inline]
    pub(crate) fn look(&self) -> Option<SeenEvents> {
        self.edge.look()
    }

    /// An attempt that began after [`MultishotPoll::look`] has left nothing.
    #[inline]
    pub(crate) fn found_empty(&self, seen: SeenEvents) {
        self.edge.forget(seen);
    }

    /// Whether it is of no use any more: the stream has ended, failed, or has urgent data.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Names `op` as what to complete when something comes, if the poll is armed where its reader
    /// may wait for it. After [`WaitStart::Waits`] the operation may be gone, and with it the caller's
    /// reference. `here` is the calling M, whose goroutine the operation is.
    #[inline]
    pub(crate) fn wait(self: &Arc<MultishotPoll>, op: &Op, here: RingThread) -> WaitStart {
        op.set_watch(Arc::as_ptr(self).cast());
        chaos::pause(Point::Commit);
        self.wait_at(std::ptr::from_ref(op).cast(), here)
    }

    #[inline]
    fn wait_at(self: &Arc<MultishotPoll>, waiter: *const (), here: RingThread) -> WaitStart {
        match self.home.load(Ordering::Relaxed) {
            // The last completion is this M's to hear of. So it comes after this, and the ring's
            // reference stays as long.
            home if home == here.ring_and_m => {
                self.n_away.store(0, Ordering::Relaxed);
                self.name(waiter)
            }
            NOT_ARMED => WaitStart::ToArm,
            _ => self.wait_away(waiter, here),
        }
    }

    fn name(&self, waiter: *const ()) -> WaitStart {
        match self.edge.wait(waiter) {
            PollWait::Waits => WaitStart::Waits,
            PollWait::Told => WaitStart::Told,
            PollWait::Taken => WaitStart::Elsewhere,
        }
    }

    /// Names a waiter while another thread has the poll. Under the lock, so that the last
    /// completion comes either before, and then this sees that nothing is armed, or after, and
    /// then it finds the waiter.
    #[cold]
    fn wait_away(self: &Arc<MultishotPoll>, waiter: *const (), here: RingThread) -> WaitStart {
        // The goroutine may go on, and drop its reference, as soon as it is named.
        let watch = Arc::clone(self);
        let mut armed = watch.armed.lock();
        let Some(poll) = &mut *armed else {
            return WaitStart::ToArm;
        };
        let n_away = watch.n_away.load(Ordering::Relaxed).saturating_add(1);
        watch.n_away.store(n_away, Ordering::Relaxed);
        // Another runtime's thread would have to pass the wake on, and may end before it does. On
        // this ring by a thread that has gone elsewhere: that would be woken for each completion.
        let is_foreign = poll.home.runtime != here.runtime;
        if is_foreign || poll.home.ring() == here.ring() || n_away >= MOVES_AFTER {
            watch.move_on(poll);
            return WaitStart::Elsewhere;
        }
        watch.name(waiter)
    }

    /// Ends the poll, so that it can be armed elsewhere. If that happens too often it is not: its
    /// reader, or the P of that, goes from thread to thread.
    fn move_on(&self, poll: &mut ArmedPoll) {
        if poll.is_stopping {
            return;
        }
        let has_paid = self.edge.n_events() - poll.n_events >= PAYS_FROM;
        let n_vain = match has_paid {
            true => 0,
            false => self.n_vain.load(Ordering::Relaxed) + 1,
        };
        self.n_vain.store(n_vain, Ordering::Relaxed);
        if n_vain > VAIN_AT_MOST {
            self.is_over.store(true, Ordering::Relaxed);
        }
        poll.stop();
    }

    /// It is about to be queued. `false` if it is armed already: then the caller's reference
    /// is not used.
    pub(super) fn begin(&self, home: RingThread, name: u64) -> bool {
        oracle::lives(self);
        let mut armed = self.armed.lock();
        if armed.is_some() {
            return false;
        }
        *armed = Some(ArmedPoll {
            home,
            name,
            n_events: self.edge.n_events(),
            is_stopping: false,
        });
        self.home.store(home.ring_and_m, Ordering::Relaxed);
        self.n_away.store(0, Ordering::Relaxed);
        true
    }

    /// Asks for the operation that waits to be in the caches soon.
    #[inline]
    pub(super) fn prefetch_waiter(&self) {
        prefetch_bytes(self.edge.waiter(), size_of::<Op>());
    }

    /// The side of whoever hears of a completion.
    #[inline]
    pub(super) fn complete(&self, result: i32, flags: u32) -> Event {
        oracle::touches(self);
        let is_last = flags & MORE == 0;
        let is_over = is_lasting(result);
        if is_over {
            self.is_over.store(true, Ordering::Relaxed);
        }
        let (waiter, seen) = match is_last {
            false => self.edge.set_ready(),
            true => self.end(),
        };
        Event {
            waiter: waiter.and_then(|op| NonNull::new(op.cast::<Op>().cast_mut())),
            seen: (!is_over && !is_last).then_some(seen),
            is_last,
        }
    }

    /// The last completion. In one step under the lock: nobody asks a ring that may be closed,
    /// nobody waits for a poll that is gone (`wait_away`), and a poll that is armed from here on,
    /// perhaps by another runtime, finds no waiter of this one.
    #[cold]
    fn end(&self) -> (Option<*const ()>, SeenEvents) {
        let mut armed = self.armed.lock();
        *armed = None;
        self.home.store(NOT_ARMED, Ordering::Relaxed);
        self.edge.set_ready()
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
        if let Some(poll) = &mut *self.armed.lock() {
            poll.stop();
        }
    }
}

#[cfg(explore)]
impl Drop for MultishotPoll {
    fn drop(&mut self) {
        oracle::dies(self);
    }
}

impl ArmedPoll {
    /// Asks the kernel for the last completion. Under the lock, so that the ring stays. A failure
    /// says that the last completion is there, or that the poll is not submitted yet: the next
    /// one that wants its end asks again.
    fn stop(&mut self) {
        if !self.is_stopping {
            let ring_fd = self.home.ring() as i32;
            self.is_stopping = sync_cancel(ring_fd, self.name).is_ok();
        }
    }
}

#[cfg(all(test, loom))]
#[path = "multishot_poll_loom_tests.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::g::header::GRef;
    use crate::g::slab;

    const RUNTIME: *const () = std::ptr::without_provenance(0x1000);

    fn op() -> Op {
        let mut g = None;
        slab::take(slab::DepotId::ANY, 0, 1, |slot| g = Some(slot));
        let g: GRef = g.unwrap();
        Op::new(g)
    }

    /// A poll on P1 that has just ended, without a trace of that in the edge.
    fn ended(home: RingThread) -> Arc<MultishotPoll> {
        let watch = Arc::new(MultishotPoll::new());
        assert!(watch.begin(home, 0x1000));
        let told = watch.complete(-libc::ECANCELED, 0);
        assert!(told.waiter.is_none() && told.is_last);
        // Another reader finds nothing, and says so.
        watch.found_empty(watch.look().unwrap());
        watch
    }

    #[test]
    fn nobody_waits_for_a_poll_that_has_ended() {
        let (p1, p2) = (
            RingThread::new(5, 1, RUNTIME),
            RingThread::new(6, 2, RUNTIME),
        );
        let watch = ended(p1);
        // As one that has read the home before that was cleared.
        watch.home.store(p1.ring_and_m, Ordering::Relaxed);
        assert_eq!(watch.wait(&op(), p2), WaitStart::ToArm);
        assert!(watch.edge.waiter().is_null());
    }

    #[test]
    fn nobody_waits_for_a_poll_of_another_runtime() {
        let watch = Arc::new(MultishotPoll::new());
        let theirs = RingThread::new(-1, 1, std::ptr::without_provenance(0x2000));
        assert!(watch.begin(theirs, 0x1000));
        let ours = RingThread::new(6, 1, RUNTIME);
        assert_eq!(watch.wait(&op(), ours), WaitStart::Elsewhere);
        assert!(watch.complete(1, 0).waiter.is_none());
        assert_eq!(watch.wait(&op(), ours), WaitStart::ToArm);
        assert!(watch.begin(ours, 0x1000));
        let op = op();
        // What the last completion has told of comes first.
        assert_eq!(watch.wait(&op, ours), WaitStart::Told);
        watch.found_empty(watch.look().unwrap());
        assert_eq!(watch.wait(&op, ours), WaitStart::Waits);
        assert!(watch.complete(1, MORE).waiter.is_some());
    }
}

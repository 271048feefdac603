//! A multishot poll of a stream: it stays armed, and reports each time more data has arrived.
//!
//! A one-shot receive arms a poll, is woken, receives, and posts its completion, for each message.
//! Where a reader waits for one message after the other, the poll can stay armed instead. Then the
//! kernel posts a completion when data arrives, and the thread that dispatches it queues the
//! receive that the reader left when it began to wait, in one batch with others
//! (`netpoll::dispatch_events`).
//!
//! The poll is edge-triggered: it reports that data arrives, not that data is there. So a reader
//! must have found the stream empty before it waits ([`super::poll_desc`]).
//!
//! The poll belongs to the thread that armed it, and to that thread's ring, which has a reference
//! of its own until the last completion. It also keeps the stream's file open: closing the stream
//! must stop it ([`MultishotPoll::stop`]).
//!
//! Readers on other Ps may wait for it too, but only goroutines of the runtime that armed it. A
//! reader of another runtime stops the poll, receives in another way, and arms it again once the
//! last completion has come. Registering a waiter, arming, and the last completion exclude each
//! other:
//!
//! | reader on the M that armed it     | reader elsewhere                | last completion    |
//! |-----------------------------------|---------------------------------|--------------------|
//! | 1. it is armed here: this M will  | under the lock:                 | under the lock:    |
//! |    dispatch the end, after this   | 1. armed, by this runtime?      | 1. armed = None    |
//! | 2. register in the poll_desc      | 2. register in the poll_desc    | 2. set the         |
//! |                                   | 1. not armed? arm, start again  |    poll_desc ready |
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use windlass_ground::cpu::prefetch_bytes;

use super::op::{ERESTARTSYS, Op, OwnerKind};
use super::poll_desc::{PollDesc, PollWait, SeenEvents};
use crate::lock::{Lock, rank};
use crate::loom::native::atomic::{AtomicBool, AtomicU8};
use crate::loom::{AtomicU64, Ordering, oracle};
use crate::sys::uring::sync_cancel;
use crate::util::chaos::{self, Point};

/// `IORING_CQE_F_MORE`: it stays armed.
const MORE: u32 = 1 << 1;

/// The events asked for; errors and hang-ups are always reported.
pub(super) const EVENTS: u32 = (libc::POLLIN | libc::POLLRDHUP) as u32;

/// Conditions that may last without a further edge to report them: after one of these the
/// receives of the stream do not use the poll.
const LASTING: i32 = (libc::POLLRDHUP | libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) as i32;

fn is_lasting(result: i32) -> bool {
    match result {
        0.. => result & LASTING != 0,
        // Cancelled by us, or by the kernel because the thread that submitted it has ended.
        _ => !matches!(-result, libc::ECANCELED | libc::EINTR | ERESTARTSYS),
    }
}

/// The number of waits in a row from another ring after which the poll moves to that ring.
const MOVES_AFTER: u8 = 4;

/// The number of events before a move from which on a poll was worth arming: arming and stopping it
/// are two system calls.
const PAYS_FROM: u64 = 4;
/// The number of polls in a row that were not worth arming, after which the stream gets no further
/// poll.
const VAIN_AT_MOST: u8 = 4;

/// The `armed_on` of a poll that is not armed.
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
    /// The ring with this descriptor, used by the M with this number, which holds the P, in
    /// `runtime`.
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

/// The result of [`MultishotPoll::wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitStart {
    /// The poll must be armed first; then call again.
    ToArm,
    /// A completion or a canceller ends the wait.
    Waits,
    /// There is an event: an attempt is worthwhile.
    Ready,
    /// The reader must wait in another way: the poll is being moved, or has another waiter.
    Elsewhere,
}

/// The request in the kernel.
#[derive(Debug)]
struct ArmedPoll {
    armed_on: RingThread,
    /// The request's `user_data` in that ring.
    user_data: u64,
    /// The number of events before it was armed.
    n_events: u64,
    /// The kernel was asked for the last completion.
    is_stopping: bool,
}

/// The outcome of a completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    /// The waiter, whose wait the caller must end: its operation stays until then.
    pub(super) waiter: Option<NonNull<Op>>,
    /// The event that the waiter would see. `None` if a receive could be in vain, or if one may not
    /// be enough: the waiter must examine the stream itself.
    pub(super) seen: Option<SeenEvents>,
    /// The ring's reference must be dropped.
    pub(super) is_last: bool,
}

/// The poll of one stream.
#[derive(Debug)]
pub(crate) struct MultishotPoll {
    poll_desc: PollDesc,
    /// `RingThread::ring_and_m` of the ring that `armed` names. Ordering: relaxed; written under
    /// the lock. Exact for the M that it names: that M wrote it and is the one to clear it, or has
    /// got the P from the M that did. A hint for all others.
    armed_on: AtomicU64,
    /// A lasting condition was reported. Ordering: relaxed; written before the poll_desc is set
    /// ready.
    is_over: AtomicBool,
    /// Waits in a row from other rings. Ordering: relaxed, a hint.
    n_away: AtomicU8,
    /// Polls in a row that moved before they were worth arming. Ordering: relaxed; written under
    /// the lock.
    n_vain: AtomicU8,
    /// Set from just before the request is queued until its last completion.
    armed: Lock<Option<ArmedPoll>>,
}

impl MultishotPoll {
    pub(crate) fn new() -> MultishotPoll {
        MultishotPoll {
            poll_desc: PollDesc::new(),
            armed_on: AtomicU64::new(NOT_ARMED),
            is_over: AtomicBool::new(false),
            n_away: AtomicU8::new(0),
            n_vain: AtomicU8::new(0),
            armed: Lock::new(rank::MULTISHOT_POLL, None),
        }
    }

    /// The current event, if there is one: then an attempt is worthwhile.
    #[inline]
    pub(crate) fn look(&self) -> Option<SeenEvents> {
        self.poll_desc.look()
    }

    /// Records that an attempt made after [`MultishotPoll::look`] left nothing.
    #[inline]
    pub(crate) fn found_empty(&self, seen: SeenEvents) {
        self.poll_desc.forget(seen);
    }

    /// Whether the poll is of no more use: the stream has ended, failed, or has urgent data.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Registers `op` to be completed at the next event, if the poll is armed where its reader may
    /// wait for it. After [`WaitStart::Waits`] the operation may be gone, and with it the caller's
    /// reference. `here` is the calling M, whose goroutine owns the operation.
    #[inline]
    pub(crate) fn wait(self: &Arc<MultishotPoll>, op: &Op, here: RingThread) -> WaitStart {
        op.set_owner(OwnerKind::MultishotPoll, Arc::as_ptr(self).cast());
        chaos::pause(Point::Commit);
        self.wait_at(std::ptr::from_ref(op).cast(), here)
    }

    #[inline]
    fn wait_at(self: &Arc<MultishotPoll>, waiter: *const (), here: RingThread) -> WaitStart {
        match self.armed_on.load(Ordering::Relaxed) {
            // This M itself dispatches the last completion. So that comes after this call, and the
            // ring's reference stays as long.
            ring_and_m if ring_and_m == here.ring_and_m => {
                self.n_away.store(0, Ordering::Relaxed);
                self.register(waiter)
            }
            NOT_ARMED => WaitStart::ToArm,
            _ => self.wait_away(waiter, here),
        }
    }

    fn register(&self, waiter: *const ()) -> WaitStart {
        match self.poll_desc.wait(waiter) {
            PollWait::Waits => WaitStart::Waits,
            PollWait::Ready => WaitStart::Ready,
            PollWait::Taken => WaitStart::Elsewhere,
        }
    }

    /// Registers a waiter while another thread has the poll. Under the lock, so that the last
    /// completion either comes before, and then this finds nothing armed, or comes after, and then
    /// it finds the waiter.
    #[cold]
    fn wait_away(self: &Arc<MultishotPoll>, waiter: *const (), here: RingThread) -> WaitStart {
        // The goroutine may continue, and drop its reference, as soon as it is registered.
        let this = Arc::clone(self);
        let mut armed = this.armed.lock();
        let Some(poll) = &mut *armed else {
            return WaitStart::ToArm;
        };
        let n_away = this.n_away.load(Ordering::Relaxed).saturating_add(1);
        this.n_away.store(n_away, Ordering::Relaxed);
        // A thread of another runtime would have to pass the wake on, and may end before it does.
        // If a thread that has since left this ring armed the poll, each completion would wake that
        // thread.
        let is_foreign = poll.armed_on.runtime != here.runtime;
        if is_foreign || poll.armed_on.ring() == here.ring() || n_away >= MOVES_AFTER {
            this.move_on(poll);
            return WaitStart::Elsewhere;
        }
        this.register(waiter)
    }

    /// Stops the poll, so that it can be armed elsewhere. After too many moves the stream gets no
    /// further poll: its reader, or the reader's P, moves from thread to thread.
    fn move_on(&self, poll: &mut ArmedPoll) {
        if poll.is_stopping {
            return;
        }
        let has_paid = self.poll_desc.n_events() - poll.n_events >= PAYS_FROM;
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

    /// Records that the request is about to be queued. `false` if it is armed already.
    pub(super) fn begin(&self, armed_on: RingThread, user_data: u64) -> bool {
        oracle::lives(self);
        let mut armed = self.armed.lock();
        if armed.is_some() {
            return false;
        }
        *armed = Some(ArmedPoll {
            armed_on,
            user_data,
            n_events: self.poll_desc.n_events(),
            is_stopping: false,
        });
        self.armed_on.store(armed_on.ring_and_m, Ordering::Relaxed);
        self.n_away.store(0, Ordering::Relaxed);
        true
    }

    /// Prefetches the operation that waits.
    #[inline]
    pub(super) fn prefetch_waiter(&self) {
        prefetch_bytes(self.poll_desc.waiter(), size_of::<Op>());
    }

    /// Handles a completion, for the thread that dispatches it.
    #[inline]
    pub(super) fn complete(&self, result: i32, flags: u32) -> Event {
        oracle::touches(self);
        let is_last = flags & MORE == 0;
        let is_over = is_lasting(result);
        if is_over {
            self.is_over.store(true, Ordering::Relaxed);
        }
        let (waiter, seen) = match is_last {
            false => self.poll_desc.set_ready(),
            true => self.end(),
        };
        Event {
            waiter: waiter.and_then(|op| NonNull::new(op.cast::<Op>().cast_mut())),
            seen: (!is_over && !is_last).then_some(seen),
            is_last,
        }
    }

    /// Handles the last completion. One step under the lock, so that no cancel goes to a ring that
    /// may be closed, no reader waits for a poll that has ended (`wait_away`), and a poll that is
    /// armed from here on, perhaps by another runtime, finds no waiter of this one.
    #[cold]
    fn end(&self) -> (Option<*const ()>, SeenEvents) {
        let mut armed = self.armed.lock();
        *armed = None;
        self.armed_on.store(NOT_ARMED, Ordering::Relaxed);
        self.poll_desc.set_ready()
    }

    /// Ends the wait of `op`, unless another thread is about to. The caller holds the wait
    /// (`Status::begin_cancel`), and checks its mark afterwards. `false` if `op` is not registered:
    /// it is about to wait, or an event has come. The caller must then retry.
    pub(crate) fn withdraw(&self, op: &Op) -> bool {
        let waited = self.poll_desc.withdraw(std::ptr::from_ref(op).cast());
        if waited {
            let g = op.complete(-libc::ECANCELED, 0);
            debug_assert!(g.is_none(), "the wait is held by the caller");
        }
        waited
    }

    /// Asks the kernel to cancel the poll, once. Any thread may call this.
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
    /// Asks the kernel to cancel the poll. Under the lock, so that the ring stays open. A failure
    /// means that the last completion has come, or that the poll is not submitted yet: the next
    /// caller tries again.
    fn stop(&mut self) {
        if !self.is_stopping {
            // SAFETY: the ring stays open as said above.
            let ring = unsafe { BorrowedFd::borrow_raw(self.armed_on.ring() as i32) };
            self.is_stopping = sync_cancel(ring, self.user_data).is_ok();
        }
    }
}

#[cfg(all(test, any(loom, miri)))]
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

    /// A poll on P1 that has just ended, with no event left in its poll_desc.
    fn ended(armed_on: RingThread) -> Arc<MultishotPoll> {
        let poll = Arc::new(MultishotPoll::new());
        assert!(poll.begin(armed_on, 0x1000));
        let event = poll.complete(-libc::ECANCELED, 0);
        assert!(event.waiter.is_none() && event.is_last);
        // Another reader finds nothing, and records that.
        poll.found_empty(poll.look().unwrap());
        poll
    }

    #[test]
    fn nobody_waits_for_a_poll_that_has_ended() {
        let (p1, p2) = (
            RingThread::new(5, 1, RUNTIME),
            RingThread::new(6, 2, RUNTIME),
        );
        let poll = ended(p1);
        // As for a reader that read `armed_on` before it was cleared.
        poll.armed_on.store(p1.ring_and_m, Ordering::Relaxed);
        assert_eq!(poll.wait(&op(), p2), WaitStart::ToArm);
        assert!(poll.poll_desc.waiter().is_null());
    }

    #[test]
    fn nobody_waits_for_a_poll_of_another_runtime() {
        let poll = Arc::new(MultishotPoll::new());
        let theirs = RingThread::new(i32::MAX, 1, std::ptr::without_provenance(0x2000));
        assert!(poll.begin(theirs, 0x1000));
        let ours = RingThread::new(6, 1, RUNTIME);
        assert_eq!(poll.wait(&op(), ours), WaitStart::Elsewhere);
        assert!(poll.complete(1, 0).waiter.is_none());
        assert_eq!(poll.wait(&op(), ours), WaitStart::ToArm);
        assert!(poll.begin(ours, 0x1000));
        let op = op();
        // The event of the last completion comes first.
        assert_eq!(poll.wait(&op, ours), WaitStart::Ready);
        poll.found_empty(poll.look().unwrap());
        assert_eq!(poll.wait(&op, ours), WaitStart::Waits);
        assert!(poll.complete(1, MORE).waiter.is_some());
    }
}

//! What polls that stay have told: put aside when the completion queue is read, and heard a
//! few at a time.
//!
//! The completion of a poll is where the work on a message begins: a receive, a goroutine, a
//! send. That of an operation is in the midst of it. In one queue, first come first served, a
//! ring with a thousand busy connections would go round in great rounds: all receives, then
//! all goroutines, then all sends, and each time what a connection needs would have left the
//! caches. So what polls tell waits here until what was begun is done (`sched::proc::find`), in the
//! order in which it came. With a thousand connections that is a fifth of the CPU time of a
//! request (docs/BENCHMARKS.md).
#![allow(unsafe_code)]

use std::sync::Arc;

use io_uring::cqueue;

use super::counts::Counts;
use super::multishot_poll::{self, Event, MultishotPoll, RingThread};
use super::op::Op;
use super::ring::{Ring, TAG_WATCH, TAGS};
use super::sqe;
use crate::g::header::GRef;
use crate::g::list::GList;
use crate::util::prefetch::prefetch_bytes;

/// How far ahead memory is asked for: that of the poll that has told of something, and that of
/// who waits for it, on a stack that is no longer in the TLB either. With 1,000 connections that
/// makes hearing take 2 % of a request's time instead of 3.5 %; to ask for eight at once is no better.
const WATCH_AHEAD: usize = 8;
const WAITER_AHEAD: usize = 4;

fn watch_of(told: &cqueue::Entry) -> *const MultishotPoll {
    std::ptr::with_exposed_provenance((told.user_data() & !TAGS) as usize)
}

impl Ring {
    /// Queues and submits a poll of `fd` that stays, unless there is one. Its end can be
    /// asked for from here on.
    ///
    /// # Safety
    ///
    /// The caller holds the P.
    pub(crate) unsafe fn arm_watch(
        &self,
        counts: &Counts,
        fd: i32,
        watch: &Arc<MultishotPoll>,
        (home, now_ns): (RingThread, u64),
        ready: &mut GList,
    ) {
        let name = Arc::as_ptr(watch).expose_provenance() as u64 | TAG_WATCH;
        if !watch.begin(home, name) {
            return;
        }
        // The ring's own reference, until the last completion is heard of.
        std::mem::forget(Arc::clone(watch));
        let entry = sqe::poll_multi(fd, multishot_poll::EVENTS).user_data(name);
        counts.begin_standing();
        // SAFETY: the caller holds the P, and the entry points at nothing.
        unsafe { self.push(counts, &entry, now_ns, ready) };
        self.flush_all(counts, ready);
    }

    /// Whether there is something to be heard.
    #[inline(always)]
    pub(crate) fn has_pending_events(&self) -> bool {
        !self.pending_events.borrow().is_empty()
    }

    /// Hears what polls have told, at most so many times; where it is said when that is, queues the
    /// receives of those who waited for it. Those who are to receive themselves go to `ready`.
    ///
    /// Gives how many times it was. The caller holds the P.
    pub(crate) fn dispatch_events(
        &self,
        counts: &Counts,
        at_most: usize,
        begins_ns: Option<u64>,
        ready: &mut GList,
    ) -> usize {
        let mut n = 0;
        while n < at_most
            && let Some(told) = self.next_told()
        {
            ready.extend_one(self.dispatch_one(counts, &told, begins_ns));
            n += 1;
        }
        if n > 0 {
            counts.note_reap(n);
        }
        n
    }

    /// Takes out what was told first, and asks for the memory that hearing of what comes after it
    /// touches.
    fn next_told(&self) -> Option<cqueue::Entry> {
        let mut told = self.pending_events.borrow_mut();
        if let Some(later) = told.get(WATCH_AHEAD) {
            prefetch_bytes(watch_of(later), size_of::<MultishotPoll>());
        }
        if let Some(next) = told.get(WAITER_AHEAD) {
            // SAFETY: as in `dispatch_one`: it is heard of later.
            unsafe { &*watch_of(next) }.prefetch_waiter();
        }
        told.pop_front()
    }

    fn dispatch_one(
        &self,
        counts: &Counts,
        told: &cqueue::Entry,
        begins_ns: Option<u64>,
    ) -> Option<GRef> {
        let at = watch_of(told);
        // SAFETY: `arm_watch` gave the address of a reference that is the ring's until the last
        // completion is heard of.
        let watch = unsafe { &*at };
        let Event {
            waiter,
            seen,
            is_last,
        } = watch.complete(told.result(), told.flags());
        if is_last {
            counts.end_standing();
            // SAFETY: as above, and this is the last.
            drop(unsafe { Arc::from_raw(at) });
        }
        // SAFETY: it was taken out of the watch, so this alone ends its wait, and its frame stays
        // until then.
        let op = unsafe { waiter?.as_ref() };
        if let (Some(seen), Some(now_ns)) = (seen, begins_ns)
            && self.begin_receive(counts, op, now_ns)
        {
            op.set_seen(seen);
            return None;
        }
        op.complete(0, 0)
    }

    /// Queues the receive of an operation that waited for a poll; `false` if there is none, or no
    /// room for it.
    fn begin_receive(&self, counts: &Counts, op: &Op, now_ns: u64) -> bool {
        let Some(receive) = op.receive() else {
            return false;
        };
        let entry = receive.entry().user_data(op.user_data());
        // SAFETY: the operation stays until its completion was delivered, and with it the frame
        // of its goroutine, who keeps what the request points at. A canceller leaves it alone, as
        // the watch does not know it any more, and asks again.
        let queued = unsafe { self.try_push(&entry, now_ns) };
        if queued {
            counts.begin();
        }
        queued
    }
}

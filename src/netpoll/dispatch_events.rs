//! Readiness events of multishot polls: buffered when the completion queue is read, and dispatched
//! in small batches.
//!
//! The completion of a poll is where the work on a message begins: a receive, the goroutine, a
//! send. The completion of an operation lies in the middle of that work. With one first-in
//! first-out queue, a ring with a thousand busy connections would work in large rounds: all
//! receives, then all goroutines, then all sends. The data of each connection would have left the
//! caches by its next turn. So events of polls wait here, in their order of arrival, until the work
//! that was begun is done (`sched::proc::find`). With a thousand connections this saves a fifth of
//! the CPU time of a request (docs/decisions/netpoller.md).
#![allow(unsafe_code)]

use std::sync::Arc;

use io_uring::cqueue;
use windlass_ground::cpu::prefetch_bytes;

use super::counts::Counts;
use super::multishot_poll::{self, Event, MultishotPoll, RingThread};
use super::op::Op;
use super::ring::{Ring, TAG_MULTISHOT_POLL, TAGS};
use crate::g::header::GRef;
use crate::g::list::GList;
use crate::loom::native::atomic::Ordering;
use crate::sys::request;

/// How many events ahead memory is prefetched: that of the event's poll, and that of its waiter,
/// which lies on a stack that is no longer in the TLB either. With 1,000 connections dispatching
/// then takes 2 % of a request's time instead of 3.5 %. Prefetching eight at once is no better.
const POLL_AHEAD: usize = 8;
const WAITER_AHEAD: usize = 4;

fn poll_of(event: &cqueue::Entry) -> *const MultishotPoll {
    std::ptr::with_exposed_provenance((event.user_data() & !TAGS) as usize)
}

impl Ring {
    /// Queues and submits a multishot poll of `fd`, unless it is armed already. It can be stopped
    /// from here on.
    ///
    /// # Safety
    ///
    /// The caller holds the P.
    pub(crate) unsafe fn arm_multishot_poll(
        &self,
        counts: &Counts,
        fd: i32,
        poll: &Arc<MultishotPoll>,
        (armed_on, now_ns): (RingThread, u64),
        ready: &mut GList,
    ) {
        let user_data = Arc::as_ptr(poll).expose_provenance() as u64 | TAG_MULTISHOT_POLL;
        if !poll.begin(armed_on, user_data) {
            return;
        }
        // The ring's own reference, released at the last completion.
        std::mem::forget(Arc::clone(poll));
        let entry = request::multishot_poll(fd, multishot_poll::EVENTS).user_data(user_data);
        counts.begin_armed();
        // SAFETY: the caller holds the P, and the entry points at nothing.
        unsafe { self.push(counts, &entry, now_ns, ready) };
        self.flush_all(counts, ready);
    }

    /// Whether events are waiting to be dispatched.
    #[inline(always)]
    pub(crate) fn has_pending_events(&self) -> bool {
        !self.pending_events.borrow().is_empty()
    }

    /// Dispatches at most `at_most` events of multishot polls. With `begins_ns`, the time now, it
    /// queues the receives that the waiters left. The Gs of waiters that must receive themselves go
    /// to `ready`.
    ///
    /// Returns how many events it dispatched. The caller holds the P.
    pub(crate) fn dispatch_events(
        &self,
        counts: &Counts,
        at_most: usize,
        begins_ns: Option<u64>,
        ready: &mut GList,
    ) -> usize {
        let mut n = 0;
        while n < at_most
            && let Some(event) = self.next_event()
        {
            ready.extend_one(self.dispatch_one(counts, &event, begins_ns));
            n += 1;
        }
        if n > 0 {
            counts.note_reap(n);
            let left = self.pending_events.borrow().len() as u32;
            // ORDERING: see the field.
            self.n_pending_events.store(left, Ordering::Relaxed);
        }
        n
    }

    /// Removes the oldest event, and prefetches the memory that dispatching the later ones will
    /// touch.
    fn next_event(&self) -> Option<cqueue::Entry> {
        let mut event = self.pending_events.borrow_mut();
        if let Some(later) = event.get(POLL_AHEAD) {
            prefetch_bytes(poll_of(later), size_of::<MultishotPoll>());
        }
        if let Some(next) = event.get(WAITER_AHEAD) {
            // SAFETY: as in `dispatch_one`: it is dispatched later.
            unsafe { &*poll_of(next) }.prefetch_waiter();
        }
        event.pop_front()
    }

    fn dispatch_one(
        &self,
        counts: &Counts,
        event: &cqueue::Entry,
        begins_ns: Option<u64>,
    ) -> Option<GRef> {
        let at = poll_of(event);
        // SAFETY: `arm_multishot_poll` gave the address of a reference that is the ring's until the last
        // completion is dispatched, and completions are dispatched in their order.
        let poll = unsafe { &*at };
        let Event {
            waiter,
            seen,
            is_last,
        } = poll.complete(event.result(), event.flags());
        if is_last {
            counts.end_armed();
            // SAFETY: as above, and this is the last.
            drop(unsafe { Arc::from_raw(at) });
        }
        // SAFETY: it was removed from the poll, so only this code ends its wait, and its frame
        // stays until then.
        let op = unsafe { waiter?.as_ref() };
        if let (Some(seen), Some(now_ns)) = (seen, begins_ns)
            && self.begin_receive(counts, op, now_ns)
        {
            op.set_seen(seen);
            return None;
        }
        op.complete(0, 0)
    }

    /// Queues the receive of an operation that waited for a poll. `false` if it has none, or if the
    /// queue is full.
    fn begin_receive(&self, counts: &Counts, op: &Op, now_ns: u64) -> bool {
        let Some(receive) = op.request() else {
            return false;
        };
        let entry = receive.entry().user_data(op.user_data());
        // SAFETY: the operation stays until its completion is delivered, and with it the frame of
        // its goroutine, which keeps alive what the request points at. A canceller leaves it alone,
        // as the poll no longer names it as its waiter, and tries again later.
        let queued = unsafe { self.try_push(&entry, now_ns) };
        if queued {
            counts.begin();
        }
        queued
    }
}

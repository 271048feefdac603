//! One operation in flight: a small struct on the stack of its parked goroutine. Its address is the
//! operation's `user_data` in the kernel.
//!
//! ```text
//!  G's stack                      ring                        M of the P
//!  op { g, .. }  --address-->  user_data of the entry
//!  park ------------------------------------------------>  status = Waiting(n),
//!                                                          entry queued, flushed
//!                              completion: address, result
//!  op.result  <----------------------------------------  reap: result, done,
//!  returns from park                                       wake token n -> ready
//! ```
//!
//! The frame with the operation stays until the completion is reaped: only the completion wakes the
//! wait (`Reason::Io`). A deadline or the shutdown asks the kernel to cancel, and the completion
//! that follows wakes the goroutine. A canceller holds the wait (`Status::begin_cancel`) while it
//! reads the operation. The two sides are:
//!
//! | reaper                            | canceller                              |
//! |-----------------------------------|----------------------------------------|
//! | 1. result = r                     | 1. Waiting(n) → Cancelling, or give up |
//! | 2. done = true                    | 2. ask the kernel, by address          |
//! | 3. Waiting(n) → Runnable;         | 3. Cancelling → Waiting(n)             |
//! |    if that fails, leave it to the | 4. if done: Waiting(n) → Runnable, and |
//! |    canceller                      |    the side whose CAS wins queues G    |
//!
//! `done` and the status are sequentially consistent, so at least one side sees the other's write.
//! `done` lies in the G and not here, because the canceller reads it when this struct may be gone.
//!
//! With epoll the poller itself carries the operation out. A canceller that finds the operation
//! waiting removes it and acts as its reaper: it takes the reader's steps between its own steps 2
//! and 3.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;

use super::poll_desc::SeenEvents;
use crate::g::header::GRef;
use crate::g::status::WaitId;
use crate::loom::after_seq_cst;
use crate::loom::native::atomic::{AtomicBool, AtomicPtr, Ordering};
use crate::loom::oracle;
use crate::sys::request::{Interest, Request};

/// The kernel-internal error "interrupted by a signal, restart". Some operations let it through.
pub(crate) const ERESTARTSYS: i32 = 512;

/// The type of what ends an operation's wait, and withdraws the operation (`Op::withdraw`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum OwnerKind {
    /// The poller that it is queued on.
    Poller,
    /// The multishot poll whose event it waits for.
    MultishotPoll,
}

impl OwnerKind {
    /// The bits of an owner's address that hold its kind.
    const BITS: usize = 0b11;

    #[inline]
    fn from_bits(bits: usize) -> OwnerKind {
        match bits {
            0 => OwnerKind::Poller,
            1 => OwnerKind::MultishotPoll,
            _ => unreachable!("no owner is stored with these bits"),
        }
    }
}

/// The meaning of [`Op::subject`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Nothing,
    /// The address of the request.
    Request,
    /// A poll: its descriptor in the upper half, its events in the lower one. It is no address.
    Poll,
    /// The event that was current when the receive was queued.
    Seen,
}

/// An operation in flight.
#[derive(Debug)]
pub(crate) struct Op {
    g: GRef,
    wait: Cell<WaitId>,
    /// The receiver of its completion: an address, with the [`OwnerKind`] in its lowest bits, so that a
    /// canceller reads both at once. Null before the operation is queued. Ordering: release by the
    /// commit that queues it, acquire by a canceller.
    owner: AtomicPtr<()>,
    /// The receive to queue when the multishot poll that it waits for reports an event, and once that is done,
    /// the event; with epoll, the request itself. See [`Subject`].
    subject: Cell<*const ()>,
    /// The next in the list of its descriptor (`netpoll::waiters`), and that list, if it is in any. With epoll only,
    /// under the poller's lock. They lie here so that waiting allocates nothing.
    pub(super) next: Cell<*const Op>,
    pub(super) list_fd: Cell<i32>,
    pub(super) list: Cell<Option<Interest>>,
    subject_is: Cell<Subject>,
    /// It has ended before it was queued. Written in the commit, before the mark in the G.
    ended_at_once: Cell<bool>,
    timed_out: AtomicBool,
    result: Cell<i32>,
    flags: Cell<u32>,
}

/// A goroutine that waits without a stack pays for it.
#[cfg(not(any(loom, explore)))]
const _: () = assert!(size_of::<Op>() <= 56);

impl Op {
    /// An operation that `g` will park for.
    pub(crate) fn new(g: GRef) -> Op {
        // Before the wait begins: a canceller that finds this wait must not see the mark of the
        // previous one.
        g.op_done.store(0, Ordering::SeqCst);
        Op {
            g,
            wait: Cell::new(WaitId::default()),
            owner: AtomicPtr::new(ptr::null_mut()),
            subject: Cell::new(ptr::null()),
            next: Cell::new(ptr::null()),
            list_fd: Cell::new(0),
            list: Cell::new(None),
            subject_is: Cell::new(Subject::Nothing),
            ended_at_once: Cell::new(false),
            timed_out: AtomicBool::new(false),
            result: Cell::new(0),
            flags: Cell::new(0),
        }
    }

    /// Makes the operation visible to cancellers, before the wait begins. It must not move from
    /// here on.
    pub(crate) fn publish(&self) {
        oracle::lives(self);
        self.g
            .op
            .store(ptr::from_ref(self).cast_mut().cast(), Ordering::Release);
    }

    /// Binds the operation to the wait that it will end.
    #[inline]
    pub(crate) fn bind(&self, wait: WaitId) {
        oracle::lives(self);
        self.wait.set(wait);
    }

    /// Records what will end its wait, after [`Op::bind`]. From here on it can be withdrawn there.
    #[inline]
    pub(super) fn set_owner(&self, kind: OwnerKind, owner: *const ()) {
        let owner = owner.map_addr(|at| at | kind as usize);
        self.owner.store(owner.cast_mut(), Ordering::Release);
    }

    /// The receiver of its completion; `None` before it is queued.
    pub(super) fn owner(&self) -> Option<(OwnerKind, *const ())> {
        oracle::touches(self);
        let owner = self.owner.load(Ordering::Acquire).cast_const();
        let kind = OwnerKind::from_bits(owner.addr() & OwnerKind::BITS);
        let owner = owner.map_addr(|at| at & !OwnerKind::BITS);
        (!owner.is_null()).then_some((kind, owner))
    }

    /// Sets the receive to queue when the multishot poll that it is about to wait for reports an event, or the
    /// request that the epoll poller is to carry out.
    ///
    /// # Safety
    ///
    /// The request stays in place until the operation has completed. A poll need not.
    pub(crate) unsafe fn set_request(&self, request: &Request) {
        let (subject, is) = match *request {
            Request::PollAdd { fd, events } => {
                let both = u64::from(fd.cast_unsigned()) << u32::BITS | u64::from(events);
                (ptr::without_provenance(both as usize), Subject::Poll)
            }
            _ => (ptr::from_ref(request).cast(), Subject::Request),
        };
        self.subject.set(subject);
        self.subject_is.set(is);
    }

    /// The request set by [`Op::set_request`].
    #[inline]
    pub(super) fn request(&self) -> Option<Request> {
        let subject = self.subject.get();
        match self.subject_is.get() {
            // SAFETY: the contract of `set_request`.
            Subject::Request => Some(unsafe { *subject.cast::<Request>() }),
            Subject::Poll => Some(Request::PollAdd {
                fd: (subject.addr() >> u32::BITS) as i32,
                events: subject.addr() as u32,
            }),
            Subject::Nothing | Subject::Seen => None,
        }
    }

    /// The request that the epoll poller is to carry out.
    #[inline]
    pub(super) fn queued(&self) -> Request {
        self.request()
            .expect("it is set before the operation is queued")
    }

    /// Records the event after which the receive of this operation was queued, in place of that receive.
    pub(super) fn set_seen(&self, seen: SeenEvents) {
        self.subject.set(seen.as_raw());
        self.subject_is.set(Subject::Seen);
    }

    /// The event that showed the descriptor ready, if the receive of this operation was queued after one.
    pub(crate) fn seen(&self) -> Option<SeenEvents> {
        let is_seen = self.subject_is.get() == Subject::Seen;
        is_seen
            .then(|| SeenEvents::from_raw(self.subject.get()))
            .flatten()
    }

    /// The operation's `user_data` in the kernel.
    pub(crate) fn user_data(&self) -> u64 {
        ptr::from_ref(self).expose_provenance() as u64
    }

    /// The kernel's result: a length or descriptor, or a negated error number.
    pub(crate) fn result(&self) -> i32 {
        self.result.get()
    }

    /// The completion's flags.
    pub(crate) fn flags(&self) -> u32 {
        self.flags.get()
    }

    /// The reaper's side. Returns the G if this call took its wake token.
    pub(crate) fn complete(&self, result: i32, flags: u32) -> Option<GRef> {
        let (g, wait) = (self.g, self.wait.get());
        self.set_done(result, flags);
        g.status.wake(wait).then_some(g)
    }

    /// In the commit: the operation has ended with `result` before it was queued. The commit takes
    /// the wake token, unless a canceller does.
    pub(crate) fn end_at_once(&self, result: i32) {
        self.ended_at_once.set(true);
        self.set_done(result, 0);
    }

    /// Whether it ended by [`Op::end_at_once`].
    pub(crate) fn ended_at_once(&self) -> bool {
        self.ended_at_once.get()
    }

    /// From here on a canceller may wake the G, and this struct may be gone.
    #[inline]
    fn set_done(&self, result: i32, flags: u32) {
        oracle::touches(self);
        self.result.set(result);
        self.flags.set(flags);
        self.g.op_done.store(1, Ordering::SeqCst);
        // The CAS on the status may fail, and is only a relaxed load then.
        after_seq_cst();
    }

    /// Records that a deadline asked for the cancellation.
    pub(crate) fn set_timed_out(&self) {
        self.timed_out.store(true, Ordering::Relaxed);
    }

    pub(crate) fn timed_out(&self) -> bool {
        self.timed_out.load(Ordering::Relaxed)
    }
}

#[cfg(explore)]
impl Drop for Op {
    fn drop(&mut self) {
        oracle::dies(self);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;
    use crate::g::slab;
    use crate::g::status::Reason;

    /// A canceller that holds the wait while the operation completes must find the mark once it has let go.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "plain threads wait here")]
    fn a_completion_is_marked_before_its_wait_ends() {
        let mut g = None;
        slab::take(slab::DepotId::ANY, 0, 1, |slot| g = Some(slot));
        let g: GRef = g.unwrap();
        g.status.set_new(false);
        g.status.set_runnable();
        g.status.set_running();
        let wait = g.status.set_waiting(Reason::Io, 0);
        g.op_done.store(0, Ordering::SeqCst);
        assert!(g.status.hold(wait));
        let reaper = thread::spawn(move || {
            let op = Op::new(g);
            op.bind(wait);
            op.complete(7, 0).is_some()
        });
        // The reaper cannot take the wake token as yet.
        while g.op_done.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        g.status.let_go(wait);
        assert!(reaper.join().unwrap());
    }
}

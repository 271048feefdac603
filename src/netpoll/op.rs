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

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;

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

/// An operation in flight.
#[derive(Debug)]
pub(crate) struct Op {
    g: GRef,
    wait: Cell<WaitId>,
    result: Cell<i32>,
    flags: Cell<u32>,
    timed_out: AtomicBool,
    /// It has ended before it was queued. Written in the commit, before the mark in the G.
    ended_at_once: Cell<bool>,
    /// The receiver of its completion: an address, with the [`OwnerKind`] in its lowest bits, so that a
    /// canceller reads both at once. Null before the operation is queued. Ordering: release by the
    /// commit that queues it, acquire by a canceller.
    owner: AtomicPtr<()>,
    /// The receive to queue when the multishot poll that it waits for reports an event; with epoll, the request
    /// itself.
    request: Cell<Option<Request>>,
    /// The event that was current when that receive was queued.
    seen: Cell<Option<SeenEvents>>,
    /// The epoll poller's state for this operation; unused on a ring.
    waiting: UnsafeCell<MaybeUninit<WaiterLink>>,
}

/// An operation's link in the list of a descriptor's waiters (`netpoll::waiters`). It lies in the
/// operation so that waiting allocates nothing.
#[derive(Debug)]
pub(crate) struct WaiterLink {
    /// The next in its list. The fields are accessed under the poller's lock.
    pub(crate) next: *const Op,
    /// The list that it is in, if any.
    pub(crate) list: Option<(i32, Interest)>,
}

impl Op {
    /// An operation that `g` will park for.
    pub(crate) fn new(g: GRef) -> Op {
        // Before the wait begins: a canceller that finds this wait must not see the mark of the
        // previous one.
        g.op_done.store(0, Ordering::SeqCst);
        Op {
            g,
            wait: Cell::new(WaitId::default()),
            result: Cell::new(0),
            flags: Cell::new(0),
            timed_out: AtomicBool::new(false),
            ended_at_once: Cell::new(false),
            owner: AtomicPtr::new(std::ptr::null_mut()),
            request: Cell::new(None),
            seen: Cell::new(None),
            waiting: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Makes the operation visible to cancellers, before the wait begins. It must not move from
    /// here on.
    pub(crate) fn publish(&self) {
        oracle::lives(self);
        self.g.op.store(
            std::ptr::from_ref(self).cast_mut().cast(),
            Ordering::Release,
        );
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
    pub(crate) fn set_request(&self, request: Request) {
        self.request.set(Some(request));
    }

    /// The request set by [`Op::set_request`].
    #[inline]
    pub(super) fn request(&self) -> Option<Request> {
        self.request.get()
    }

    /// The request that the epoll poller is to carry out.
    #[inline]
    pub(super) fn queued(&self) -> Request {
        self.request()
            .expect("it is set before the operation is queued")
    }

    /// Records the readiness event at which its receive was queued.
    pub(super) fn set_seen(&self, seen: SeenEvents) {
        self.seen.set(Some(seen));
    }

    /// The readiness event at which its receive was queued, if it was.
    pub(crate) fn seen(&self) -> Option<SeenEvents> {
        self.seen.get()
    }

    /// The operation's `user_data` in the kernel.
    pub(crate) fn user_data(&self) -> u64 {
        std::ptr::from_ref(self).expose_provenance() as u64
    }

    /// The epoll poller's link, which that poller initialises first.
    pub(crate) fn waiting(&self) -> *mut WaiterLink {
        self.waiting.get().cast()
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
        g.status.set_new();
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

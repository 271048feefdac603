//! One operation in flight: a small struct on its parked goroutine's own stack,
//! whose address is the operation's name in the kernel.
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
//! The frame with the operation stays until the completion was reaped: only the
//! completion wakes the wait (`Reason::Io`). A deadline or the shutdown asks the
//! kernel to cancel, and the completion that follows does the waking. While a
//! canceller looks at the operation it holds the wait (`Status::begin_cancel`),
//! so the two sides are:
//!
//! | reaper                            | canceller                              |
//! |-----------------------------------|----------------------------------------|
//! | 1. result = r                     | 1. Waiting(n) → Cancelling, or give up |
//! | 2. done = true                    | 2. ask the kernel, by address          |
//! | 3. Waiting(n) → Runnable;         | 3. Cancelling → Waiting(n)             |
//! |    if that fails, leave it to the | 4. if done: Waiting(n) → Runnable, and |
//! |    canceller                      |    whoever's CAS succeeds queues the G |
//!
//! Sequential consistency of `done` and the status makes one of them see the other.
//! The mark lies in the G, not here: the canceller looks at it when this struct
//! may be gone.
//!
//! With epoll the poller itself carries the operation out. A canceller that finds it
//! waiting takes it out and is its reaper, too: it does the reaper's steps between
//! its own 2 and 3.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;

use super::poll_desc::SeenEvents;
use super::sqe::Request;
use crate::g::header::GRef;
use crate::g::status::WaitId;
use crate::loom::after_seq_cst;
use crate::loom::native::atomic::{AtomicBool, AtomicPtr, Ordering};
use crate::loom::oracle;

/// The kernel's own number for "a signal came, begin again". Some operations let it out.
pub(crate) const ERESTARTSYS: i32 = 512;

/// Marks the address of what an operation waits for as no poller's.
const IS_MULTI: usize = 1;
/// The same, where that is a poll that stays.
const IS_WATCH: usize = 2;
/// The same, where that is the notice of a send without copying.
const IS_NOTICE: usize = 4;
const MARKS: usize = IS_MULTI | IS_WATCH | IS_NOTICE;

/// An operation in flight.
#[derive(Debug)]
pub(crate) struct Op {
    g: GRef,
    wait: Cell<WaitId>,
    result: Cell<i32>,
    flags: Cell<u32>,
    timed_out: AtomicBool,
    /// The poller that it was queued on, null before; or with a mark the receive, the poll or the
    /// notice that it waits for (`netpoll::multishot`, `netpoll::multishot_poll`, `netpoll::zero_copy_send`).
    /// Ordering: release by the commit that queues it, acquire by a canceller.
    poller: AtomicPtr<()>,
    /// What to begin when the poll that it waits for tells of something.
    receive: Cell<Option<Request>>,
    /// What had been told when that was begun.
    seen: Cell<Option<SeenEvents>>,
    /// What the epoll poller keeps of it; nothing on a ring.
    waiting: UnsafeCell<MaybeUninit<WaiterLink>>,
}

/// An operation's place among those that wait for a descriptor (`netpoll::waiters`).
/// Lies here so that waiting allocates nothing.
#[derive(Debug)]
pub(crate) struct WaiterLink {
    pub(crate) request: Request,
    /// The next in its list. This and what follows: under the poller's lock.
    pub(crate) next: *const Op,
    /// The list that it is in, `None` while it is in none.
    pub(crate) list: Option<(i32, Interest)>,
    /// Times that its descriptor was said to be ready and was not.
    pub(crate) n_vain: u8,
}

/// What an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    Read,
    Write,
    /// Events of its own choice: a poll.
    Events,
}

impl Op {
    /// An operation that `g` will park for.
    pub(crate) fn new(g: GRef) -> Op {
        // Before the wait begins: a canceller that finds the wait must not see the last one's mark.
        g.op_done.store(0, Ordering::SeqCst);
        Op {
            g,
            wait: Cell::new(WaitId::default()),
            result: Cell::new(0),
            flags: Cell::new(0),
            timed_out: AtomicBool::new(false),
            poller: AtomicPtr::new(std::ptr::null_mut()),
            receive: Cell::new(None),
            seen: Cell::new(None),
            waiting: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Makes the operation known to cancellers, before the wait begins. It must not
    /// move from here on.
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

    /// Says which poller has the operation, after [`Op::bind`]: from here on it can be
    /// cancelled there.
    #[inline]
    pub(crate) fn set_poller(&self, poller: *const ()) {
        self.poller.store(poller.cast_mut(), Ordering::Release);
    }

    /// The poller that has it, if it was queued already.
    pub(crate) fn poller(&self) -> Option<*const ()> {
        oracle::touches(self);
        let poller = self.poller.load(Ordering::Acquire);
        let is_there = !poller.is_null() && poller.addr() & MARKS == 0;
        is_there.then_some(poller.cast_const())
    }

    /// Says which receive it waits for, in place of a poller.
    pub(super) fn set_multi(&self, multi: *const ()) {
        self.set_marked(multi, IS_MULTI);
    }

    /// The receive that it waits for, if it does.
    pub(crate) fn multi(&self) -> Option<*const ()> {
        self.marked(IS_MULTI)
    }

    /// Says which poll it waits for, in place of a poller.
    #[inline]
    pub(super) fn set_watch(&self, watch: *const ()) {
        self.set_marked(watch, IS_WATCH);
    }

    /// The poll that it waits for, if it does.
    pub(crate) fn watch(&self) -> Option<*const ()> {
        self.marked(IS_WATCH)
    }

    /// Says whose notice it waits for, in place of a poller.
    pub(super) fn set_notice(&self, twice: *const ()) {
        self.set_marked(twice, IS_NOTICE);
    }

    /// The operation whose notice it waits for, if it does.
    pub(crate) fn notice(&self) -> Option<*const ()> {
        self.marked(IS_NOTICE)
    }

    #[inline]
    fn set_marked(&self, what: *const (), mark: usize) {
        let marked = what.map_addr(|at| at | mark);
        self.poller.store(marked.cast_mut(), Ordering::Release);
    }

    fn marked(&self, mark: usize) -> Option<*const ()> {
        oracle::touches(self);
        let what = self.poller.load(Ordering::Acquire);
        let has_mark = what.addr() & mark != 0;
        has_mark.then(|| what.map_addr(|at| at & !MARKS).cast_const())
    }

    /// Says what to begin once the poll that it is going to wait for has told of something.
    pub(crate) fn set_receive(&self, request: Request) {
        self.receive.set(Some(request));
    }

    /// What was said by [`Op::set_receive`].
    pub(super) fn receive(&self) -> Option<Request> {
        self.receive.get()
    }

    /// Notes what had been told when its receive was begun.
    pub(super) fn set_seen(&self, seen: SeenEvents) {
        self.seen.set(Some(seen));
    }

    /// What had been told when its receive was begun, if one was.
    pub(crate) fn seen(&self) -> Option<SeenEvents> {
        self.seen.get()
    }

    /// The name of the operation in the kernel.
    pub(crate) fn user_data(&self) -> u64 {
        std::ptr::from_ref(self).expose_provenance() as u64
    }

    /// The place for what the epoll poller keeps of it, which it fills in first.
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

    /// The reaper's side. Gives the G if its wake token was taken.
    pub(crate) fn complete(&self, result: i32, flags: u32) -> Option<GRef> {
        oracle::touches(self);
        self.result.set(result);
        self.flags.set(flags);
        let (g, wait) = (self.g, self.wait.get());
        // From here on a canceller may wake the G, and this struct may go.
        g.op_done.store(1, Ordering::SeqCst);
        // The CAS on the status may fail, and is a relaxed load then.
        after_seq_cst();
        g.status.wake(wait).then_some(g)
    }

    /// Notes that a deadline, not the kernel, asked for the end.
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

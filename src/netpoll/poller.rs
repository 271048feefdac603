//! The poller of one P: a ring, or epoll where io_uring is denied.
//!
//! The M that holds the P owns its poller. Other threads may only call [`Poller::wake`],
//! [`Poller::cancel`], [`Poller::has_news`] and [`Poller::owes_completions`].
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::counts::Counts;
use super::epoll::Epoll;
use super::multishot_poll::{MultishotPoll, RingThread};
use super::op::{Op, OwnerKind};
use super::pool::BufferRing;
use super::ring::Ring;
use crate::config::BATCHES_FROM;
use crate::g::list::GList;
use crate::g::status::WaitId;
use crate::sys::clock::{self, NEVER};
use crate::sys::probe;
use crate::sys::request::Request;
use crate::sys::uring::sync_cancel;
use crate::util::ladder;

/// The implementation. The tag comes first, beside the counts, as it is read as often as they are.
#[derive(Debug)]
#[repr(u32)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one per P, and rings are the rule"
)]
enum Engine {
    Ring(Ring),
    Epoll(Epoll),
}

/// The poller of a P.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Poller {
    /// Outside the engine: every dispatch checks whether anything is in flight.
    pub(crate) counts: Counts,
    engine: Engine,
}

impl From<Ring> for Poller {
    fn from(ring: Ring) -> Poller {
        Poller {
            counts: Counts::default(),
            engine: Engine::Ring(ring),
        }
    }
}

impl From<Epoll> for Poller {
    fn from(epoll: Epoll) -> Poller {
        Poller {
            counts: Counts::default(),
            engine: Engine::Epoll(epoll),
        }
    }
}

impl Poller {
    /// Whether this is the epoll poller: each of its operations is a system call of its own, so
    /// queueing several gains nothing.
    #[inline(always)]
    pub(crate) fn is_epoll(&self) -> bool {
        self.ring().is_none()
    }

    #[inline(always)]
    fn ring(&self) -> Option<&Ring> {
        match &self.engine {
            Engine::Ring(ring) => Some(ring),
            Engine::Epoll(_) => None,
        }
    }

    /// Opens the poller, unless it is open. No other thread may use it meanwhile. Many Ps are never
    /// used, so this is done late.
    ///
    /// # Errors
    ///
    /// The kernel's, with a message that names the cause.
    pub(crate) fn open(&self) -> io::Result<()> {
        match &self.engine {
            Engine::Ring(ring) => ring.open().map_err(|e| probe::explain_here(&e)),
            Engine::Epoll(epoll) => epoll.open(),
        }
    }

    /// Whether [`Poller::open`] has succeeded. Any thread may call this.
    pub(crate) fn is_open(&self) -> bool {
        match &self.engine {
            Engine::Ring(ring) => ring.fd() >= 0,
            Engine::Epoll(epoll) => epoll.is_open(),
        }
    }

    /// Its ring, if it has one and it is open.
    pub(crate) fn open_ring(&self) -> Option<BorrowedFd<'_>> {
        self.ring().filter(|ring| ring.fd() >= 0).map(Ring::borrow)
    }

    /// Removes a descriptor that nothing waits for any more. Any thread. `false` if it was not there;
    /// a ring remembers none.
    pub(crate) fn forget(&self, fd: i32) -> bool {
        match &self.engine {
            Engine::Ring(_) => true,
            Engine::Epoll(epoll) => epoll.forget(fd),
        }
    }

    /// The address range of its receive buffers, if they were made.
    pub(crate) fn pool_span(&self) -> Option<std::ops::Range<usize>> {
        self.ring()?.made_pool().map(|pool| pool.span())
    }

    /// Closes descriptors and removes mappings, at the end of the runtime. Nothing is in flight.
    pub(crate) fn close(&self) {
        match &self.engine {
            Engine::Ring(ring) => ring.close(),
            Engine::Epoll(epoll) => epoll.close(),
        }
    }

    /// Operations in flight or queued.
    #[inline(always)]
    pub(crate) fn inflight(&self) -> u32 {
        self.counts.inflight()
    }

    /// Whether it is a ring with enough in flight for batches to pay.
    #[inline]
    pub(crate) fn batches_pay(&self) -> bool {
        self.inflight() >= BATCHES_FROM && !self.is_epoll()
    }

    /// The pool of receive buffers: see [`Ring::pool`]. `None` without a ring.
    pub(crate) fn pool(&self, group: u16, node: Option<u32>) -> Option<&Arc<BufferRing>> {
        self.ring()?.pool(group, node)
    }

    /// Entries queued and not submitted.
    #[inline(always)]
    pub(crate) fn pending(&self) -> u32 {
        self.ring().map_or(0, Ring::pending)
    }

    /// When the oldest queued entry was queued; `NEVER` if none is.
    #[inline(always)]
    pub(crate) fn pending_since_ns(&self) -> u64 {
        self.ring().map_or(NEVER, Ring::pending_since_ns)
    }

    /// Queues a request for `op`, which will end `wait`. The Gs of operations that complete
    /// meanwhile go to `ready`.
    ///
    /// # Safety
    ///
    /// - The caller holds the P.
    /// - The request, but for a poll, and the memory that it points at stay valid until `op` has completed, and
    ///   `op` stays where it is until then.
    #[inline]
    pub(crate) unsafe fn queue(
        &self,
        request: &Request,
        op: &Op,
        wait: WaitId,
        now_ns: u64,
        ready: &mut GList,
    ) {
        let this = std::ptr::from_ref(self).cast();
        match &self.engine {
            Engine::Ring(ring) => {
                op.bind(wait);
                op.set_owner(OwnerKind::Poller, this);
                // SAFETY: by this function's contract.
                unsafe { ring.queue(&self.counts, request, op, now_ns, ready) };
            }
            // SAFETY: by this function's contract.
            Engine::Epoll(epoll) => unsafe {
                epoll.queue(&self.counts, request, op, wait, this, ready);
            },
        }
    }

    /// Arms a multishot poll: see [`Ring::arm_multishot_poll`]. Needs a ring.
    ///
    /// # Safety
    ///
    /// The caller holds the P.
    #[cold]
    pub(crate) unsafe fn arm_multishot_poll(
        &self,
        fd: i32,
        poll: &Arc<MultishotPoll>,
        by: (RingThread, u64),
        ready: &mut GList,
    ) {
        if let Some(ring) = self.ring() {
            // SAFETY: by this function's contract.
            unsafe { ring.arm_multishot_poll(&self.counts, fd, poll, by, ready) };
        }
    }

    /// Cancels, at the end of a run, what no goroutine of this runtime waits for any more. No other
    /// thread uses the poller.
    pub(crate) fn drain(&self) {
        const PATIENCE_NS: u64 = 10_000_000_000;
        let mut ready = GList::new();
        let mut ask_at_ns = clock::now_ns();
        let give_up_at_ns = ask_at_ns + PATIENCE_NS;
        // Operations submitted by a thread that has ended are completed by a kernel thread, later.
        while self.inflight() > 0 && ask_at_ns < give_up_at_ns {
            if ask_at_ns <= clock::now_ns() {
                self.cancel_all(&mut ready);
                ask_at_ns = clock::now_ns() + ladder::HOG_NS;
            }
            self.wait(ask_at_ns);
            self.reap(&mut ready);
        }
        debug_assert!(ready.is_empty(), "a goroutine waits after the end");
    }

    /// Asks for the cancellation of an operation in flight here. Any thread. Its completion
    /// follows, with ECANCELED or its result. `false` if the operation cannot be found now: the
    /// caller must retry.
    ///
    /// The caller holds the operation's wait (`Status::begin_cancel`).
    pub(crate) fn cancel(&self, op: &Op) -> bool {
        match &self.engine {
            Engine::Ring(ring) => !sync_cancel(ring.borrow(), op.user_data())
                .is_err_and(|e| e.kind() == io::ErrorKind::NotFound),
            Engine::Epoll(epoll) => epoll.cancel(&self.counts, op),
        }
    }

    /// Makes the owner's wait return. Any thread. One system call, never blocks.
    pub(crate) fn wake(&self) {
        match &self.engine {
            Engine::Ring(ring) => ring.waker().wake(),
            Engine::Epoll(epoll) => epoll.wake(),
        }
    }

    /// Whether there are completions or events to handle. Reads memory only.
    #[inline]
    pub(crate) fn has_completions(&self) -> bool {
        self.has_unread() || self.has_pending_events()
    }

    /// Whether there are completions to reap. Reads memory only.
    #[inline(always)]
    pub(crate) fn has_unread(&self) -> bool {
        match &self.engine {
            Engine::Ring(ring) => ring.has_unread(),
            Engine::Epoll(epoll) => epoll.has_completions(),
        }
    }

    /// Whether events of multishot polls wait to be dispatched.
    #[inline(always)]
    pub(crate) fn has_pending_events(&self) -> bool {
        self.ring().is_some_and(Ring::has_pending_events)
    }

    /// Whether the holder of the P would find something to do here: completions, events, entries
    /// that were not submitted. Any thread, while the P is in use; a hint.
    pub(crate) fn has_news(&self) -> bool {
        match &self.engine {
            Engine::Ring(ring) => ring.has_news(),
            Engine::Epoll(epoll) => epoll.has_news(),
        }
    }

    /// Whether completions wait until a thread that submitted operations here, and need not hold
    /// the P any more, enters the kernel or is interrupted. Any thread, while the P is in use; a
    /// hint.
    pub(crate) fn owes_completions(&self) -> bool {
        self.ring().is_some_and(Ring::owes_completions)
    }

    /// Dispatches events of multishot polls: see [`Ring::dispatch_events`].
    pub(crate) fn dispatch_events(
        &self,
        at_most: usize,
        begins_ns: Option<u64>,
        ready: &mut GList,
    ) -> usize {
        self.ring().map_or(0, |ring| {
            ring.dispatch_events(&self.counts, at_most, begins_ns, ready)
        })
    }

    /// Whether [`Poller::flush`] would give completions. Reads memory only.
    #[inline(always)]
    pub(crate) fn has_task_work(&self) -> bool {
        self.ring().is_some_and(Ring::wants_enter)
    }

    /// Whether a flush now and then pays while operations are in flight: epoll reports nothing
    /// unless it is called.
    #[inline(always)]
    pub(crate) fn wants_enter(&self) -> bool {
        self.ring().is_none_or(Ring::wants_enter)
    }

    /// Submits the queued entries and collects what has completed, without waiting.
    pub(crate) fn flush(&self) {
        match &self.engine {
            Engine::Ring(ring) => ring.flush(&self.counts),
            Engine::Epoll(epoll) => epoll.flush(&self.counts),
        }
    }

    /// Waits for a completion, a wake, a signal, or the deadline.
    pub(crate) fn wait(&self, deadline_ns: u64) {
        match &self.engine {
            Engine::Ring(ring) => ring.wait(&self.counts, deadline_ns),
            Engine::Epoll(epoll) => epoll.wait(&self.counts, deadline_ns),
        }
    }

    /// Reads all completions, and dispatches all events of multishot polls. The Gs whose waits they
    /// end go to `ready`.
    pub(crate) fn reap(&self, ready: &mut GList) {
        self.reap_some(usize::MAX, ready);
        self.dispatch_events(usize::MAX, None, ready);
    }

    /// Reads completions; the Gs whose waits they end go to `ready`. A ring reads at most
    /// `at_most`; the others stay in it, in order. Returns how many operations completed.
    pub(crate) fn reap_some(&self, at_most: usize, ready: &mut GList) -> usize {
        match &self.engine {
            Engine::Ring(ring) => ring.reap_some(&self.counts, at_most, ready),
            Engine::Epoll(epoll) => epoll.reap(&self.counts, ready),
        }
    }

    /// Asks for the cancellation of everything in flight. A cancelled operation completes with
    /// ECANCELED; one that cannot be cancelled completes in its own time.
    pub(crate) fn cancel_all(&self, ready: &mut GList) {
        match &self.engine {
            Engine::Ring(ring) => ring.cancel_all(&self.counts),
            Engine::Epoll(epoll) => epoll.cancel_all(&self.counts, ready),
        }
    }

    /// Called when another thread takes the poller over: see [`Ring::adopt`].
    pub(crate) fn adopt(&self) {
        if let Some(ring) = self.ring() {
            ring.adopt();
        }
    }
}

//! The ring of one P.
//!
//! Flags, and why these (`docs/decisions/netpoller.md` has the reasons):
//!
//! - `COOP_TASKRUN | TASKRUN_FLAG`: no interrupt per completion; a flag in shared
//!   memory tells the scheduler that entering the kernel would yield completions.
//! - `CQSIZE`: room for many completions between two reaps.
//! - `SUBMIT_ALL`: a bad entry does not stop the submission of those behind it.
//! - Not `SINGLE_ISSUER` and not `DEFER_TASKRUN`: such a ring is bound to one thread for good, and
//!   a P moves between threads. Not `SQPOLL`: it burns a core.
//! - No registered ring descriptor: those are per thread.
//!
//! The M that holds the P owns the ring. Other threads may only call [`Waker::wake`], cancel an
//! operation by the ring's descriptor (`sys::uring::sync_cancel`), and read the words that the
//! kernel writes, in a mapping of their own ([`Ring::has_news`]).
//!
//! Nothing is lost: a full submission queue is flushed; when the kernel refuses a flush for now,
//! the entries stay queued; completions that do not fit the queue are kept by the kernel (`NODROP`)
//! and collected at the next enter.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

#[cfg(not(explore))]
use io_uring::IoUring;
use io_uring::cqueue;
use io_uring::squeue::Entry;
use windlass_ground::std_traits::debug_fields;

use super::counts::Counts;
use super::multishot_poll::MultishotPoll;
use super::op::Op;
use super::pool::BufferRing;
use crate::g::list::GList;
use crate::loom::native::atomic::{AtomicI32, AtomicU32, Ordering};
use crate::loom::native::{Arc, OnceLock};
use crate::sys::clock::{self, NEVER};
use crate::sys::mmap;
use crate::sys::probe::{COMPLETIONS, ENTRIES, Features, builder};
use crate::sys::request::{self, Request};
use crate::sys::uring::{self, SharedWords, send_msg_ring};
use crate::sys::{epoll, file};
#[cfg(explore)]
use windlass_explorer::IoUring;

/// The most events of multishot polls that are buffered; further ones wait in the completion queue.
const PENDING_AT_MOST: usize = COMPLETIONS as usize;

/// The most threads the kernel may start for those operations of one thread that it can only carry
/// out by blocking. More than the kernel's own limit: opening a device may take long, and many such
/// opens must not hold up every `fsync`.
const KERNEL_THREADS: u32 = 256;

const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_NO_IOWAIT: u32 = 1 << 7;

/// Tags in the lowest bits of `user_data`, which is otherwise an address: a wake, the read of the
/// eventfd.
const TAG_WAKE: u64 = 1;
const TAG_EVENTFD: u64 = 2;
/// The tag of a multishot poll.
pub(super) const TAG_MULTISHOT_POLL: u64 = 6;
pub(super) const TAGS: u64 = 7;
const _: () = assert!(align_of::<Op>() > TAGS as usize);
const _: () = assert!(align_of::<MultishotPoll>() > TAGS as usize);

/// The argument of a timed `io_uring_enter(2)` (`struct io_uring_getevents_arg`).
#[repr(C)]
struct GetEventsArg {
    sigmask: u64,
    sigmask_sz: u32,
    min_wait_usec: u32,
    ts: u64,
}

/// The sizes of a ring's sampled parts: completions, submissions.
const SAMPLED_BYTES: [usize; 2] = [
    COMPLETIONS as usize * size_of::<cqueue::Entry>(),
    ENTRIES as usize * size_of::<Entry>(),
];

/// The number of pages that [`with_pages`] passes.
pub(crate) fn n_pages() -> usize {
    let pages = |bytes: usize| bytes.div_ceil(mmap::page_bytes());
    SAMPLED_BYTES.into_iter().map(pages).sum()
}

/// Passes the addresses of an open ring's pages to `f`; they are mapped until it returns. Any
/// thread.
///
/// # Errors
///
/// The kernel's.
pub(crate) fn with_pages<T>(ring: BorrowedFd<'_>, f: impl FnOnce(&[usize]) -> T) -> io::Result<T> {
    let views = uring::map_again(ring, SAMPLED_BYTES)?;
    let pages: Vec<usize> = views
        .iter()
        .flat_map(|view| view.span().step_by(mmap::page_bytes()))
        .collect();
    Ok(f(&pages))
}

/// The means by which another thread ends a ring's wait.
///
/// Ordering: set when the ring is opened, before its P has an M to be woken; relaxed.
#[derive(Debug)]
pub(crate) struct Waker {
    /// The ring's descriptor; -1 until it is opened.
    ring_fd: AtomicI32,
    /// The eventfd that the ring reads, where messages do not work; else -1.
    event_fd: AtomicI32,
}

impl Waker {
    fn event_fd(&self) -> Option<i32> {
        let fd = self.event_fd.load(Ordering::Relaxed);
        (fd >= 0).then_some(fd)
    }

    /// Makes the ring's wait return. One system call, more only if the kernel refuses it for now.
    pub(crate) fn wake(&self) {
        match self.event_fd() {
            None => {
                // SAFETY: as in `Ring::borrow`: only an open ring has a thread to be woken.
                let ring = unsafe { BorrowedFd::borrow_raw(self.ring_fd.load(Ordering::Relaxed)) };
                send_wake(|| send_msg_ring(ring, TAG_WAKE));
            }
            Some(fd) => {
                let one = 1u64.to_ne_bytes();
                // SAFETY: the descriptor is open and the bytes are valid; an eventfd whose counter
                // is full (EAGAIN) wakes the ring as well.
                unsafe { crate::sys::raw::write(fd, one.as_ptr().cast(), one.len()) };
            }
        }
    }
}

/// How often a wake is tried, with sleeps of 1 µs, 2 µs, … in between: 4 ms in all.
const WAKE_TRIES: u32 = 12;

/// Sends a wake, and retries while the kernel is short of memory or was interrupted. It does not
/// retry if the completion queue is full (the completions wake the waiter), or if the ring is
/// closed.
fn send_wake(mut send: impl FnMut() -> io::Result<()>) {
    for i in 0..WAKE_TRIES {
        match send().map_err(|e| e.raw_os_error()) {
            Err(Some(libc::ENOMEM | libc::EAGAIN | libc::EBUSY | libc::EINTR)) => {
                clock::nap(1000 << i);
            }
            _ => return,
        }
    }
}

/// A ring, owned by the M that holds its P.
pub(crate) struct Ring {
    /// None before [`Ring::open`] and after [`Ring::close`].
    uring: UnsafeCell<Option<IoUring>>,
    eventfd: Cell<Option<OwnedFd>>,
    /// Its words, for other threads: see [`Ring::has_news`]. Set and cleared with `uring`.
    words: UnsafeCell<Option<SharedWords>>,
    waker: Waker,
    features: Features,
    /// Operations that the tests deny to this ring, one bit for each opcode.
    #[cfg(all(not(loom), test))]
    denied: u64,
    /// Entries queued and not submitted.
    pending: Cell<u32>,
    /// When the oldest of them was queued.
    pending_since_ns: Cell<u64>,
    eventfd_buf: UnsafeCell<u64>,
    /// The `user_data` of the eventfd read that this owner has in flight; 0 for none.
    eventfd_read: Cell<u64>,
    /// Reads of the eventfd so far; each gets its own `user_data`.
    n_eventfd_reads: Cell<u64>,
    /// Events of multishot polls that are not dispatched yet.
    pub(super) pending_events: RefCell<VecDeque<cqueue::Entry>>,
    /// Their number. Ordering: relaxed; the owner writes it, and for other threads it is a hint.
    pub(super) n_pending_events: AtomicU32,
    /// Made at the first receive that asks for it; `None` inside where the kernel refused.
    pool: OnceLock<Option<Arc<BufferRing>>>,
}

debug_fields!(Ring, |this| fd: this.fd(), ..);

impl Ring {
    /// A ring that is not open yet: many Ps are never used.
    pub(crate) fn new(features: Features) -> Ring {
        Ring {
            waker: Waker {
                ring_fd: AtomicI32::new(-1),
                event_fd: AtomicI32::new(-1),
            },
            uring: UnsafeCell::new(None),
            eventfd: Cell::new(None),
            words: UnsafeCell::new(None),
            features,
            #[cfg(all(not(loom), test))]
            denied: tests::DENIED.get(),
            pending: Cell::new(0),
            pending_since_ns: Cell::new(NEVER),
            eventfd_buf: UnsafeCell::new(0),
            eventfd_read: Cell::new(0),
            n_eventfd_reads: Cell::new(0),
            pending_events: RefCell::default(),
            n_pending_events: AtomicU32::new(0),
            pool: OnceLock::new(),
        }
    }

    /// Creates the ring in the kernel, unless it is open. No other thread may use it meanwhile.
    ///
    /// The thread that creates a ring is interrupted once when the ring is closed: the kernel makes
    /// each thread that has used a ring take note of its end, as if by a signal.
    ///
    /// # Errors
    ///
    /// The kernel's; `probe::explain_here` explains them.
    pub(crate) fn open(&self) -> io::Result<()> {
        // SAFETY: nothing else writes to the cell: by this function's contract only this caller
        // opens it.
        if unsafe { (*self.uring.get()).is_some() } {
            return Ok(());
        }
        #[cfg(any(loom, not(test)))]
        let uring = builder().build(ENTRIES)?;
        #[cfg(all(not(loom), test))]
        let uring = tests::restricted(self.denied)?;
        // If this fails, the kernel's own limit stays: four for each CPU.
        let _ = uring
            .submitter()
            .register_iowq_max_workers(&mut [KERNEL_THREADS, 0]);
        let eventfd = if self.features.msg_wake {
            None
        } else {
            let eventfd = epoll::eventfd()?;
            // The ring's read must wait for the counter, and it does so only if `O_NONBLOCK` is clear. Writes
            // never block in practice.
            file::set_flags(eventfd.as_fd(), 0)?;
            Some(eventfd)
        };
        let event_fd = eventfd.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        self.waker
            .ring_fd
            .store(uring.as_raw_fd(), Ordering::Relaxed);
        self.waker.event_fd.store(event_fd, Ordering::Relaxed);
        self.eventfd.set(eventfd);
        // SAFETY: it was None, so the ring has not been used, and by this function's contract no
        // other thread uses it now.
        unsafe {
            *self.words.get() = SharedWords::map(BorrowedFd::borrow_raw(uring.as_raw_fd()));
            *self.uring.get() = Some(uring);
        }
        Ok(())
    }

    #[inline(always)]
    fn uring(&self) -> &IoUring {
        // SAFETY:
        // - the cell changes only in `open` and `close`, when no other thread uses the ring.
        // - a P is in use, and its ring used, only between the two.
        unsafe { (*self.uring.get()).as_ref().unwrap_unchecked() }
    }

    /// Closes the descriptors and removes the mappings, at the end of the runtime. Nothing is in
    /// flight.
    pub(crate) fn close(&self) {
        // SAFETY: the ring is not used after its runtime.
        unsafe {
            (*self.words.get()).take();
            (*self.uring.get()).take();
        }
        self.eventfd.take();
    }

    /// The words for other threads; `None` if they could not be mapped.
    fn words(&self) -> Option<&SharedWords> {
        // SAFETY: as in `uring`.
        unsafe { (*self.words.get()).as_ref() }
    }

    /// Whether the owner would find something to do here: see [`SharedWords::has_news`]. Any
    /// thread, while the P is in use; a hint.
    pub(crate) fn has_news(&self) -> bool {
        self.n_pending_events.load(Ordering::Relaxed) > 0
            || self.words().is_some_and(SharedWords::has_news)
    }

    /// Whether a thread that submitted operations here must be interrupted for their completions.
    /// Any thread, while the P is in use; a hint.
    pub(crate) fn owes_completions(&self) -> bool {
        self.words().is_some_and(SharedWords::has_task_work)
    }

    pub(crate) fn fd(&self) -> i32 {
        self.waker.ring_fd.load(Ordering::Relaxed)
    }

    /// The ring for calls of any thread. It is open.
    #[inline]
    pub(crate) fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: an open ring is closed at the end of the runtime, when nobody uses it.
        unsafe { BorrowedFd::borrow_raw(self.fd()) }
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// The pool of receive buffers, on `node` if there is one. `group` is different for each ring
    /// of the runtime. Makes the pool at the first call. Any thread may call this.
    pub(crate) fn pool(&self, group: u16, node: Option<u32>) -> Option<&Arc<BufferRing>> {
        self.pool
            .get_or_init(|| BufferRing::new(&self.uring().submitter(), group, node).ok())
            .as_ref()
    }

    /// The pool, if it was made. Any thread may call this.
    pub(crate) fn made_pool(&self) -> Option<&Arc<BufferRing>> {
        self.pool.get()?.as_ref()
    }

    /// Entries queued and not submitted.
    #[inline(always)]
    pub(crate) fn pending(&self) -> u32 {
        self.pending.get()
    }

    /// When the oldest queued entry was queued; `NEVER` if none is.
    #[inline(always)]
    pub(crate) fn pending_since_ns(&self) -> u64 {
        self.pending_since_ns.get()
    }

    /// Queues a request for `op`. A full queue is flushed first; the Gs of operations that complete
    /// meanwhile go to `ready`.
    ///
    /// # Safety
    ///
    /// - The caller holds the P.
    /// - The memory that the request points at stays valid until `op` has completed, and `op`
    ///   stays where it is until then.
    pub(crate) unsafe fn queue(
        &self,
        counts: &Counts,
        request: &Request,
        op: &Op,
        now_ns: u64,
        ready: &mut GList,
    ) {
        let entry = request.entry().user_data(op.user_data());
        counts.begin();
        // SAFETY: by this function's contract.
        unsafe { self.push(counts, &entry, now_ns, ready) };
    }

    /// Submits all queued entries.
    pub(super) fn flush_all(&self, counts: &Counts, ready: &mut GList) {
        self.flush(counts);
        while self.pending() > 0 {
            // As in `push`.
            self.reap(counts, ready);
            clock::nap(20_000);
            self.flush(counts);
        }
    }

    /// # Safety
    ///
    /// As [`Ring::queue`].
    pub(super) unsafe fn push(
        &self,
        counts: &Counts,
        entry: &Entry,
        now_ns: u64,
        ready: &mut GList,
    ) {
        // SAFETY: by this function's contract.
        while !unsafe { self.try_push(entry, now_ns) } {
            // Full: the kernel takes the entries unless it is short of memory or of room for
            // completions. Reaping makes room.
            if self.enter(counts, 0, None).is_err() {
                self.reap(counts, ready);
                clock::nap(20_000);
            }
        }
    }

    /// Queues an entry, if there is room. `false` if not.
    ///
    /// # Safety
    ///
    /// As [`Ring::queue`].
    pub(super) unsafe fn try_push(&self, entry: &Entry, now_ns: u64) -> bool {
        // SAFETY: the caller holds the P, so no other thread uses this end of the queue.
        if unsafe { self.uring().submission_shared().push(entry) }.is_err() {
            return false;
        }
        if self.pending.get() == 0 {
            self.pending_since_ns.set(now_ns);
        }
        self.pending.set(self.pending.get() + 1);
        true
    }

    /// Whether the completion queue has entries. Reads shared memory only.
    #[inline(always)]
    pub(crate) fn has_unread(&self) -> bool {
        // SAFETY: the caller holds the P, so no other thread uses this end of the queue.
        unsafe { !self.uring().completion_shared().is_empty() }
    }

    /// Whether entering the kernel would give completions: task work is pending, or completions
    /// have overflowed.
    #[inline(always)]
    pub(crate) fn wants_enter(&self) -> bool {
        // SAFETY: as in `has_unread`.
        let sq = unsafe { self.uring().submission_shared() };
        sq.taskrun() || sq.cq_overflow()
    }

    /// Submits the queued entries and collects what has completed, without waiting.
    pub(crate) fn flush(&self, counts: &Counts) {
        // A refusal (EBUSY, EAGAIN) leaves the entries queued for the next flush.
        let _ = self.enter(counts, 0, None);
    }

    /// Waits for a completion, a wake, a signal, or the deadline.
    pub(crate) fn wait(&self, counts: &Counts, deadline_ns: u64) {
        self.arm_eventfd(counts);
        let _ = self.enter(counts, 1, Some(deadline_ns));
    }

    /// Reads all completions. The Gs whose waits they end go to `ready`. Events of multishot polls
    /// are buffered. Returns how many operations completed.
    pub(crate) fn reap(&self, counts: &Counts, ready: &mut GList) -> usize {
        self.reap_some(counts, usize::MAX, ready)
    }

    /// As [`Ring::reap`], but of at most `at_most` operations. The completions behind them stay in
    /// the queue.
    pub(crate) fn reap_some(&self, counts: &Counts, at_most: usize, ready: &mut GList) -> usize {
        let mut n = 0;
        // SAFETY: the caller holds the P, so no other thread uses this end of the queue.
        let mut cq = unsafe { self.uring().completion_shared() };
        let mut events = self.pending_events.borrow_mut();
        while n < at_most && events.len() < PENDING_AT_MOST {
            let Some(cqe) = cq.next() else { break };
            let at = cqe.user_data();
            if at & TAGS == TAG_MULTISHOT_POLL {
                events.push_back(cqe);
                continue;
            }
            if at & TAGS != 0 {
                self.reap_tagged(at);
                continue;
            }
            n += 1;
            let op = std::ptr::with_exposed_provenance::<Op>(at as usize);
            // SAFETY: the address was given by `queue`, whose caller keeps the operation in place
            // until this completion, its only one, is delivered.
            let op = unsafe { &*op };
            if let Some(g) = op.complete(cqe.result(), cqe.flags()) {
                ready.push(g);
            }
        }
        self.n_pending_events
            .store(events.len() as u32, Ordering::Relaxed);
        if n > 0 {
            counts.end(n);
            counts.note_reap(n);
        }
        n
    }

    /// Handles a completion with another tag.
    #[cold]
    fn reap_tagged(&self, at: u64) {
        // The read of an earlier owner does not count.
        if at & TAGS == TAG_EVENTFD && at == self.eventfd_read.get() {
            self.eventfd_read.set(0);
        }
    }

    /// Enters the kernel: submits all queued entries and, with `min_complete`, waits for
    /// completions until the deadline. Asks for completions only if it waits, or if the ring's flags show pending task
    /// work or an overflow.
    fn enter(
        &self,
        counts: &Counts,
        min_complete: u32,
        deadline_ns: Option<u64>,
    ) -> io::Result<usize> {
        let pending = self.pending.get();
        let timeout_ns = deadline_ns
            .filter(|&d| d != NEVER)
            .map(|d| d.saturating_sub(clock::now_ns()));
        let ts = clock::timespec(timeout_ns.unwrap_or(0));
        let arg = GetEventsArg {
            sigmask: 0,
            sigmask_sz: 0,
            min_wait_usec: 0,
            ts: if timeout_ns.is_some() {
                (&raw const ts).expose_provenance() as u64
            } else {
                0
            },
        };
        let asks = min_complete > 0 || self.wants_enter();
        let mut flags = match asks {
            true => ENTER_GETEVENTS | ENTER_EXT_ARG,
            false => 0,
        };
        if self.features.no_iowait && min_complete > 0 {
            flags |= ENTER_NO_IOWAIT;
        }
        counts.enters.add(1);
        // SAFETY:
        // - the queued entries satisfy `queue`'s contract.
        // - the argument and the timespec have the kernel's layout and outlive the call.
        let r = unsafe {
            self.uring()
                .submitter()
                .enter(pending, min_complete, flags, asks.then_some(&arg))
        };
        if let Ok(n) = r {
            self.note_submitted(counts, n as u32);
        } else if pending > 0 {
            // If nothing was submitted the error is that of the call itself, and the entries stay
            // queued.
            // SAFETY: the caller holds the P.
            let left = unsafe { self.uring().submission_shared().len() } as u32;
            self.note_submitted(counts, pending - left.min(pending));
        }
        r
    }

    fn note_submitted(&self, counts: &Counts, n: u32) {
        let left = self.pending.get() - n.min(self.pending.get());
        self.pending.set(left);
        if left == 0 {
            self.pending_since_ns.set(NEVER);
        }
        counts.submitted.add(u64::from(n));
        if n > 0 {
            counts.submit_sizes.record(u64::from(n));
        }
    }

    /// Queues the read of the eventfd that ends a wait, where messages do not work.
    fn arm_eventfd(&self, counts: &Counts) {
        let Some(fd) = self.waker.event_fd() else {
            return;
        };
        if self.eventfd_read.get() != 0 {
            return;
        }
        let n = self.n_eventfd_reads.get() + 1;
        self.n_eventfd_reads.set(n);
        let name = (n * (TAGS + 1)) | TAG_EVENTFD;
        self.eventfd_read.set(name);
        let entry = request::read_eventfd(fd, self.eventfd_buf.get()).user_data(name);
        let mut ready = GList::new();
        // SAFETY: the buffer is the ring's own and lives as long as the ring.
        unsafe { self.push(counts, &entry, 0, &mut ready) };
        debug_assert!(ready.is_empty(), "the queue was flushed before a wait");
    }

    /// Called when another thread takes the ring over. The eventfd read that the previous thread
    /// submitted can complete on that thread only, which may be blocked in the kernel for long. So
    /// the read is cancelled and forgotten, and the next wait submits its own.
    pub(crate) fn adopt(&self) {
        let name = self.eventfd_read.replace(0);
        if name != 0 {
            // One that is not found is queued still: then this thread submits it, and it completes here.
            let _ = uring::sync_cancel(self.borrow(), name);
        }
    }
}

impl Ring {
    /// Asks the kernel to cancel everything in flight. A cancelled operation completes with
    /// ECANCELED; one that cannot be cancelled completes in its own time. By a system call of its own: the operation of a ring
    /// that does this may be denied.
    pub(crate) fn cancel_all(&self, counts: &Counts) {
        // What is queued is not found.
        self.flush(counts);
        let _ = uring::sync_cancel_all(self.borrow());
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests;

//! The poller of one P where io_uring is denied: an epoll instance, and an eventfd to
//! end its wait.
//!
//! An operation is carried out here, by the M that holds the P: with an attempt that cannot block.
//! If that finds nothing, the operation waits for its descriptor ([`super::waiters`]), is tried
//! again when epoll reports the descriptor ready, and completes as one on a ring would.
//!
//! - One-shot: epoll reports a descriptor once each time it is armed. So no other goroutine is
//!   woken in vain, and a descriptor without waiters is never reported.
//! - Only the owner of the P arms descriptors and makes attempts. Other threads may remove a
//!   waiting operation, to cancel it ([`Epoll::cancel`]), and end the wait ([`Epoll::wake`]). While
//!   the owner works on an operation, it is in no list: a canceller finds nothing then and retries
//!   later.
//! - An event is a hint. It may belong to an earlier descriptor with the same number, or come after
//!   another thread has taken the data. Then the attempt finds nothing, and the descriptor is armed
//!   again. If the descriptor still shows as ready (an error queue that is not read), the operation
//!   completes with [`IN_VAIN`].
//! - Where a descriptor cannot be reported at all (a Unix listener's full queue, no memory for
//!   another watch), the operation is retried every millisecond instead.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use windlass_ground::std_traits::debug_fields;

use super::counts::Counts;
use super::op::{Op, OwnerKind};
use super::waiters::{UNANNOUNCED, Waiters};
use crate::g::list::GList;
use crate::g::status::WaitId;
use crate::lock::{Lock, rank};
use crate::loom::native::atomic::{AtomicI32, Ordering};
use crate::sys::call::{Attempt, Class, IN_VAIN, MUST_BLOCK};
use crate::sys::clock::{self, NEVER};
use crate::sys::epoll::{self, Event, NO_EVENT};
use crate::sys::request::{Interest, Request};
use crate::sys::socket;
use crate::util::ladder;

/// The most events collected at once: the P's goroutines wait while they are handled.
const EVENTS: usize = 128;
/// The `data` value of the eventfd; those of descriptors have 32 bits.
const WAKE: u64 = u64::MAX;

/// An epoll instance, owned by the M that holds its P.
pub(crate) struct Epoll {
    /// -1 before [`Epoll::open`]. Ordering: relaxed; set before the P has an M to be woken.
    epfd: AtomicI32,
    eventfd: AtomicI32,
    /// The two descriptors, until [`Epoll::close`] or the end.
    owned: Cell<Option<[OwnedFd; 2]>>,
    waiters: Lock<Waiters>,
    /// Collected events; the first `n_events` are not handled yet.
    events: UnsafeCell<Box<[Event; EVENTS]>>,
    n_events: Cell<usize>,
    /// When operations that no event announces are next retried; `NEVER` if there are none.
    retry_ns: Cell<u64>,
    retry_due: Cell<bool>,
    /// Whether waits can be timed in nanoseconds here (`epoll_pwait2`).
    precise: Cell<bool>,
}

debug_fields!(Epoll, |this| fd: this.epfd(), ..);

impl Epoll {
    /// A poller that is not open yet.
    pub(crate) fn new() -> Epoll {
        Epoll {
            epfd: AtomicI32::new(-1),
            eventfd: AtomicI32::new(-1),
            owned: Cell::new(None),
            waiters: Lock::new(rank::POLLER, Waiters::default()),
            events: UnsafeCell::new(Box::new([NO_EVENT; EVENTS])),
            n_events: Cell::new(0),
            retry_ns: Cell::new(NEVER),
            retry_due: Cell::new(false),
            precise: Cell::new(true),
        }
    }

    /// Whether [`Epoll::open`] has succeeded.
    pub(crate) fn is_open(&self) -> bool {
        self.epfd() >= 0
    }

    /// Creates its descriptors, unless it is open.
    ///
    /// # Errors
    ///
    /// The kernel's, when descriptors or memory are short.
    pub(crate) fn open(&self) -> io::Result<()> {
        if self.epfd() < 0 {
            self.make().map_err(|e| match e.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE) => io::Error::new(
                    e.kind(),
                    format!(
                        "no file descriptor is left for the epoll pollers: raise RLIMIT_NOFILE \
                         (ulimit -n) ({e})"
                    ),
                ),
                _ => e,
            })?;
        }
        Ok(())
    }

    fn make(&self) -> io::Result<()> {
        let (epfd, eventfd) = (epoll::create()?, epoll::eventfd()?);
        // Edge-triggered: each wake is reported once, and the eventfd is never read.
        let events = (libc::EPOLLIN | libc::EPOLLET).cast_unsigned();
        epoll::set(epfd.as_fd(), eventfd.as_fd(), events, WAKE)?;
        self.eventfd.store(eventfd.as_raw_fd(), Ordering::Relaxed);
        self.epfd.store(epfd.as_raw_fd(), Ordering::Relaxed);
        self.owned.set(Some([epfd, eventfd]));
        Ok(())
    }

    #[inline]
    fn epfd(&self) -> i32 {
        self.epfd.load(Ordering::Relaxed)
    }

    /// Its instance. The poller is open.
    #[inline]
    fn instance(&self) -> BorrowedFd<'_> {
        // SAFETY: the instance of an open poller is closed at the end of the runtime, when nobody uses it.
        unsafe { BorrowedFd::borrow_raw(self.epfd()) }
    }

    /// Whether the owner would find events here. Any thread, while the P is in use; one system
    /// call; a hint.
    pub(crate) fn has_news(&self) -> bool {
        epoll::has_events(self.instance())
    }

    /// Removes a descriptor from the instance. Any thread. `false` if it was not there.
    pub(crate) fn forget(&self, fd: i32) -> bool {
        // SAFETY: it is the caller's, who is about to close it.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        self.is_open() && epoll::remove(self.instance(), fd).is_ok()
    }

    /// Closes its descriptors, at the end of the runtime. No operation waits.
    pub(crate) fn close(&self) {
        self.owned.take();
    }

    /// Makes the poller's wait return. Any thread; one system call; never blocks.
    pub(crate) fn wake(&self) {
        // SAFETY: as in `instance`: only an open poller has a thread to be woken.
        let eventfd = unsafe { BorrowedFd::borrow_raw(self.eventfd.load(Ordering::Relaxed)) };
        epoll::signal(eventfd);
    }

    /// Carries a request out for `op`, or lets it wait for its descriptor. If it completes at once
    /// the G goes to `ready`.
    ///
    /// # Safety
    ///
    /// - The caller holds the P.
    /// - The request, but for a poll, and the memory that it points at stay valid until `op` has completed, and
    ///   `op` stays where it is until then.
    #[inline(never)]
    pub(crate) unsafe fn queue(
        &self,
        counts: &Counts,
        request: &Request,
        op: &Op,
        wait: WaitId,
        poller: *const (),
        ready: &mut GList,
    ) {
        op.bind(wait);
        counts.begin_shared();
        counts.submitted.add(1);
        let Class::Waits {
            fd,
            direction,
            at_once,
        } = request.class()
        else {
            return complete(counts, op, MUST_BLOCK, 0, ready);
        };
        // SAFETY: by this function's contract.
        unsafe { op.set_request(request) };
        op.set_owner(OwnerKind::Poller, poller);
        let attempt = if at_once {
            // SAFETY: by this function's contract.
            unsafe { request.attempt(false) }
        } else {
            Attempt::NotReady
        };
        match attempt {
            Attempt::Done { result, flags } => {
                complete(counts, op, result, flags, ready);
                counts.note_batch(1);
            }
            Attempt::NotReady => {
                // SAFETY: the operation is in no list, and stays (this function's contract).
                unsafe { self.waiters.lock().push_back(fd, direction, op) };
                self.arm(counts, fd, ready);
            }
            // SAFETY: as above.
            Attempt::Unannounced => unsafe { self.try_later(op) },
        }
    }

    /// Whether there are events to reap or operations to retry. Reads memory only.
    #[inline]
    pub(crate) fn has_completions(&self) -> bool {
        self.n_events.get() > 0 || self.retry_due.get()
    }

    /// Collects pending events, without waiting.
    #[inline(never)]
    pub(crate) fn flush(&self, counts: &Counts) {
        self.collect(counts, 0);
    }

    /// Waits for an event, a wake, a signal, or the deadline.
    #[inline(never)]
    pub(crate) fn wait(&self, counts: &Counts, deadline_ns: u64) {
        let until_ns = deadline_ns.min(self.retry_ns.get());
        self.collect(counts, clock::left_ns(until_ns));
    }

    fn collect(&self, counts: &Counts, timeout_ns: u64) {
        if self.has_completions() {
            return;
        }
        counts.enters.add(1);
        // SAFETY: only the owner of the P uses the events, and the borrow ends in this function.
        let events = unsafe { &mut **self.events.get() };
        let mut n = self.wait_for(events, timeout_ns);
        if let Some(at) = events[..n].iter().position(|e| e.u64 == WAKE) {
            n -= 1;
            events.swap(at, n);
        }
        self.n_events.set(n);
        if self.retry_ns.get() != NEVER && self.retry_ns.get() <= clock::now_ns() {
            self.retry_ns.set(NEVER);
            self.retry_due.set(true);
        }
    }

    /// An interrupted wait returns 0; the caller checks again.
    fn wait_for(&self, events: &mut [Event], timeout_ns: u64) -> usize {
        if self.precise.get() {
            match epoll::wait(self.instance(), events, timeout_ns) {
                Ok(n) => return n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => return 0,
                // The kernel does not have the call, or a sandbox denies it.
                Err(_) => self.precise.set(false),
            }
        }
        epoll::wait_ms(self.instance(), events, timeout_ns).unwrap_or(0)
    }

    /// Continues the operations whose descriptors were reported. The Gs whose waits end go to
    /// `ready`. Returns how many operations completed.
    #[inline(never)]
    pub(crate) fn reap(&self, counts: &Counts, ready: &mut GList) -> usize {
        let before = ready.len();
        for i in 0..self.n_events.replace(0) {
            // SAFETY: only the owner of the P uses the events; the event is copied out.
            let Event { events, u64: data } = unsafe { (*self.events.get())[i] };
            self.serve(counts, data as i32, events, ready);
        }
        if self.retry_due.replace(false) {
            self.retry(counts, ready);
        }
        let n = ready.len() - before;
        if n > 0 {
            counts.note_batch(n);
        }
        n
    }

    /// A descriptor may be ready: tries the operations that wait for it, in order.
    fn serve(&self, counts: &Counts, fd: i32, events: u32, ready: &mut GList) {
        self.waiters.lock().note_event(fd);
        for direction in [Interest::Read, Interest::Write] {
            if direction.is_in(events) {
                self.serve_list(counts, fd, direction, ready);
            }
        }
        // Each waits for events of its own, so all are tried.
        self.serve_all(counts, fd, Interest::Events, ready);
        self.arm(counts, fd, ready);
    }

    fn serve_list(&self, counts: &Counts, fd: i32, direction: Interest, ready: &mut GList) {
        loop {
            let Some(op) = self.waiters.lock().pop(fd, direction) else {
                return;
            };
            // SAFETY: it was removed from the list here, so only this function may complete it.
            unsafe {
                if self.try_op(counts, op, true, ready) {
                    continue;
                }
                if !is_ready(fd, direction) {
                    return self.waiters.lock().push_front(fd, direction, op);
                }
                complete(counts, &*op, IN_VAIN, 0, ready);
            }
        }
    }

    /// Tries each operation of a list once, in order.
    fn serve_all(&self, counts: &Counts, fd: i32, direction: Interest, ready: &mut GList) {
        let n = self.waiters.lock().len(fd, direction);
        for _ in 0..n {
            let Some(op) = self.waiters.lock().pop(fd, direction) else {
                return;
            };
            // SAFETY: it was removed from the list here, so only this function may complete it.
            unsafe {
                if !self.try_op(counts, op, true, ready) {
                    self.waiters.lock().push_back(fd, direction, op);
                }
            }
        }
    }

    /// Retries the operations that no event announces, and lets them wait for an event again where
    /// that is possible.
    #[cold]
    fn retry(&self, counts: &Counts, ready: &mut GList) {
        let n = self.waiters.lock().len(UNANNOUNCED, Interest::Read);
        for _ in 0..n {
            let Some(op) = self.waiters.lock().pop(UNANNOUNCED, Interest::Read) else {
                return;
            };
            // SAFETY: it was removed from the list here, so only this function may complete it.
            unsafe {
                let request = (*op).queued();
                match (request.attempt(true), request.class()) {
                    (Attempt::Done { result, flags }, _) => {
                        complete(counts, &*op, result, flags, ready);
                    }
                    (Attempt::NotReady, Class::Waits { fd, direction, .. }) => {
                        self.waiters.lock().push_back(fd, direction, op);
                        self.arm(counts, fd, ready);
                    }
                    (Attempt::NotReady | Attempt::Unannounced, _) => self.try_later(op),
                }
            }
        }
    }

    /// Makes an attempt for an operation that is in no list. `true` if it completed.
    ///
    /// # Safety
    ///
    /// `op` was queued here and has not completed; the caller has removed it from its list.
    unsafe fn try_op(
        &self,
        counts: &Counts,
        op: *const Op,
        announced: bool,
        ready: &mut GList,
    ) -> bool {
        // SAFETY: an operation stays until it has completed, and so does what its request points
        // at, by `queue`'s contract.
        let (op, attempt) = unsafe { (&*op, (*op).queued().attempt(announced)) };
        let Attempt::Done { result, flags } = attempt else {
            return false;
        };
        complete(counts, op, result, flags, ready);
        true
    }

    /// Arms a descriptor in epoll for the operations that wait for it.
    fn arm(&self, counts: &Counts, fd: i32, ready: &mut GList) {
        let Some(events) = self.waiters.lock().arm(fd) else {
            return;
        };
        let events = events | libc::EPOLLONESHOT.cast_unsigned();
        // SAFETY: the owner of an operation keeps its descriptor open; a number that is none is an error.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        if let Err(e) = epoll::set(self.instance(), borrowed, events, fd as u64) {
            let is_file = e.raw_os_error() == Some(libc::EPERM);
            self.serve_unwatched(counts, fd, is_file, ready);
        }
    }

    /// Handles a descriptor that epoll refuses: a regular file, which is always ready, a closed
    /// one, or no memory for it. The attempts themselves return the error.
    #[cold]
    fn serve_unwatched(&self, counts: &Counts, fd: i32, is_file: bool, ready: &mut GList) {
        for direction in [Interest::Read, Interest::Write, Interest::Events] {
            loop {
                let Some(op) = self.waiters.lock().pop(fd, direction) else {
                    break;
                };
                // SAFETY: it was removed from the list here, so only this function may complete it.
                unsafe {
                    if is_file && (*op).queued().blocking().is_some() {
                        complete(counts, &*op, MUST_BLOCK, 0, ready);
                    } else if !self.try_op(counts, op, false, ready) {
                        self.try_later(op);
                    }
                }
            }
        }
    }

    /// Queues an operation to be retried after [`ladder::LATE_NS`].
    ///
    /// # Safety
    ///
    /// As [`Epoll::try_op`].
    #[cold]
    unsafe fn try_later(&self, op: *const Op) {
        if self.retry_ns.get() == NEVER {
            self.retry_ns.set(clock::now_ns() + ladder::LATE_NS);
        }
        let mut waiters = self.waiters.lock();
        // SAFETY: by this function's contract.
        unsafe { waiters.push_back(UNANNOUNCED, Interest::Read, op) };
    }

    /// Completes all waiting operations, with `ECANCELED`.
    pub(crate) fn cancel_all(&self, counts: &Counts, ready: &mut GList) {
        loop {
            let Some(op) = self.waiters.lock().pop_any() else {
                return;
            };
            // SAFETY: it was removed from its list here, so only this function may complete it, and
            // it stays until it has completed, by `queue`'s contract.
            complete(counts, unsafe { &*op }, -libc::ECANCELED, 0, ready);
        }
    }

    /// Completes a waiting operation with `ECANCELED`. Any thread. `false` if it is not waiting
    /// now: it has completed, or its owner is working on it.
    ///
    /// At a deadline a last attempt is made first: data that arrived in time is delivered even if
    /// the owner has not read it yet.
    ///
    /// The caller holds the operation's wait (`Status::begin_cancel`).
    #[inline(never)]
    pub(crate) fn cancel(&self, counts: &Counts, op: &Op) -> bool {
        // SAFETY: the held wait keeps the operation alive.
        if !unsafe { self.waiters.lock().remove(op) } {
            return false;
        }
        let attempt = if op.timed_out() {
            // SAFETY: it was removed from its list here, and the held wait keeps alive what its
            // request points at.
            unsafe { op.queued().attempt(true) }
        } else {
            Attempt::NotReady
        };
        let (result, flags) = match attempt {
            Attempt::Done { result, flags } => (result, flags),
            Attempt::NotReady | Attempt::Unannounced => (-libc::ECANCELED, 0),
        };
        counts.end_shared();
        let woken = op.complete(result, flags);
        debug_assert!(woken.is_none(), "the canceller holds the wait");
        true
    }
}

/// Whether a descriptor shows as ready, or an error, after an attempt has found nothing.
fn is_ready(fd: i32, direction: Interest) -> bool {
    // SAFETY: as for the attempts, the owner of an operation that waits for it keeps it open; if it
    // does not, the poll fails.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    socket::poll_now(fd, direction.poll_events() as i16).is_ok_and(|shown| shown != 0)
}

fn complete(counts: &Counts, op: &Op, result: i32, flags: u32, ready: &mut GList) {
    counts.end_shared();
    ready.extend_one(op.complete(result, flags));
}

#[cfg(all(test, not(loom)))]
mod tests;

//! Runs one operation: queues the request on this P's ring, parks the goroutine, and returns the
//! result.
//!
//! The operation lies in the parked frame, and so do the buffers that it names. They stay until the
//! completion, whatever happens (deadline, cancellation, end of the run), because only the
//! completion ends the wait.
//!
//! The way of a read that has to wait, from the call down to the ring and back:
//!
//! ```text
//! runs on        file                         does
//! goroutine      net/tcp.rs                   stream!: TcpStream::read
//!                poll/socket.rs               Fd::read, recv: tries inline, or chooses another way to wait
//!                poll/op.rs                   run_until, park_for: an Op on this frame
//!                sched/wait/park.rs           park_until: switches out
//! M, committing  sched/wait/park.rs           publishes the wait, and calls the commit of park_for
//!                poll/op.rs                   start_request
//!                netpoll/poller.rs, ring.rs   queue: a submission entry (sys/request.rs)
//!                sched/types/p.rs             submit_and_poll, if kernel_visits.rs says that it is due
//! M              sched/proc/find.rs           runs other goroutines, and later enters the kernel
//!                netpoll/ring.rs              reap_some: the completion; Op::complete takes the wake token
//!                sched/wait/wake.rs           ready_completed: the goroutine is in a queue
//! goroutine      poll/op.rs                   park_for returns; run_until: the result, an error, or again
//! ```
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

pub(crate) use super::limit::Deadline;
use super::waits::{self, Waits};
use crate::bubble;
use crate::g::cancel_wait::ScopeChain;
use crate::g::header::GRef;
use crate::g::list::GList;
use crate::g::status::{Reason, WaitId};
use crate::loom::native::atomic::{AtomicU64, Ordering};
use crate::netpoll::multishot_poll::{MultishotPoll, RingThread, WaitStart};
use crate::netpoll::op::{ERESTARTSYS, Op};
use crate::netpoll::poll_desc::SeenEvents;
use crate::netpoll::pool::{self, BufferRing};
use crate::sched::pacing::kernel_visits::Moment;
use crate::sched::proc::check_ring::reap;
use crate::sched::types::current;
use crate::sched::types::m::M;
use crate::sched::types::p::P;
use crate::sched::wait::current_context;
use crate::sched::wait::handoff::{Section, bump};
use crate::sched::wait::offload::{is_locked, offload};
use crate::sched::wait::park::{self, Caller};
use crate::sched::wait::points::{self, Cancelled};
use crate::sched::wait::wake;
use crate::sys::call::{Attempt, Blocking, Class, IN_VAIN, MUST_BLOCK};
use crate::sys::clock::{self, NEVER};
use crate::sys::request::{Request, left_something};
use crate::sys::{file, signal};
use crate::util::ladder;

/// The result of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completed {
    pub(crate) n: usize,
    /// The completion's flags.
    pub(crate) flags: u32,
}

/// The error of a blocking call in a destructor of a goroutine that is being cancelled.
impl From<Cancelled> for io::Error {
    fn from(e: Cancelled) -> io::Error {
        io::Error::other(e)
    }
}

/// Whether the calling goroutine sends and receives in batches of its P's ring ([`P::batches_operations`]).
/// Not on a plain thread, in a blocking section, while unwinding, or without a ring.
#[inline]
pub(crate) fn batches_here() -> bool {
    last_p().is_some_and(P::batches_operations)
}

/// The P of the calling goroutine, which may have been taken from its M. `None` as in
/// [`batches_here`].
#[inline]
fn last_p<'a>() -> Option<&'a P> {
    match park::caller() {
        Caller::Goroutine(_) => current::m()?.last_p(),
        Caller::Thread => None,
    }
}

/// A send or a receive did not have to wait. A goroutine that makes many of them does not compute
/// (`due_work`), and may run for long. So after [`ladder::BATCH`] of them it reaps what has completed at its P, as after so
/// many dispatches: idle Ps can steal runnable goroutines, but no completions.
#[inline]
pub(crate) fn note_transfer() {
    if let Some(m) = current::m() {
        bump(&m.transfers);
        if m.transfers
            .load(Ordering::Relaxed)
            .is_multiple_of(ladder::BATCH)
        {
            reap_for_others();
        }
    }
}

#[cold]
#[inline(never)]
fn reap_for_others() {
    if let Some(section) = Section::enter() {
        let (m, p) = (section.m(), section.m().p());
        let has_room = Moment::Dispatch.reaps(p.runq.len());
        if has_room && p.poller.inflight() > 0 && p.poller.has_unread() {
            reap(m, p);
        }
    }
}

/// The receive buffers of the calling goroutine's P. `None` where [`batches_here`] is `false`, and
/// where the kernel does not support them.
pub(crate) fn pool_here() -> Option<Arc<BufferRing>> {
    match park::caller() {
        Caller::Goroutine(_) => pool_of(Section::enter()?.m()).cloned(),
        Caller::Thread => None,
    }
}

/// The receive buffers of the P that `m` holds.
pub(super) fn pool_of(m: &M) -> Option<&Arc<BufferRing>> {
    let (p, sched) = (m.p(), m.sched());
    let group = u16::try_from(p.idx).ok()?;
    p.poller.pool(group, sched.node_of(p).memory)
}

/// Whether the calling goroutine's P runs the epoll fallback.
#[inline]
pub(crate) fn is_epoll_here() -> bool {
    last_p().is_some_and(|p| p.poller.is_epoll())
}

/// Fails if the current context of the calling goroutine `g` is done.
pub(super) fn check(g: GRef) -> io::Result<()> {
    bubble::refuse(
        "an operation on a descriptor",
        "in a simulation, use the sockets and pipes of windlass, or hand the code under test \
         something that implements Read and Write over a channel",
    );
    match park::chain_of(g).over() {
        None => Ok(()),
        Some(over) => Err(current_context::Error::from(over).into()),
    }
}

/// Runs an operation for the calling goroutine `g`, and waits for it until the deadline, or until
/// the current context is done.
///
/// # Safety
///
/// The memory that the request points at stays valid until this returns.
///
/// # Errors
///
/// The operation's; `WouldBlock` at the deadline, as `std` does on Linux; the context's if that is
/// done.
pub(crate) unsafe fn run(g: GRef, request: Request, deadline_ns: u64) -> io::Result<Completed> {
    let deadline = Deadline::at(deadline_ns);
    // The thread that submits a request may have other name spaces and credentials than the locked one.
    let is_of_thread = matches!(request, Request::Connect { .. }) && is_locked();
    if is_of_thread || lacks_kernel_threads() && request.blocking().is_some() {
        points::cancel_point()?;
        check(g)?;
        // SAFETY: by this function's contract.
        return unsafe { run_by_attempts(g, request, deadline) };
    }
    // SAFETY: by this function's contract.
    unsafe { run_until(g, request, deadline) }
}

/// As [`run`], with a deadline that may be moved while the operation is in flight.
///
/// # Safety
///
/// As [`run`].
///
/// # Errors
///
/// As [`run`].
pub(crate) unsafe fn run_until(
    g: GRef,
    request: Request,
    deadline: Deadline<'_>,
) -> io::Result<Completed> {
    let _bytes = request.moves_bytes();
    let waiting = deadline.enter(g);
    let mut n_unasked = 0;
    loop {
        points::cancel_point()?;
        check(g)?;
        // SAFETY: by this function's contract. The request lies in this frame.
        let ended = park_for(g, deadline, |op, wait, m| unsafe {
            start_request(m, &request, op, wait)
        });
        if let Ok(n) = usize::try_from(ended.result) {
            let flags = ended.flags;
            return Ok(Completed { n, flags });
        }
        give_back(&request, ended.flags);
        let may_be_denied = is_denial(-ended.result)
            && !is_epoll_here()
            && !matches!(request, Request::Accept { .. });
        // SAFETY: by this function's contract.
        if may_be_denied && !unsafe { is_denied_to_rings(g, &request) }? {
            return Err(io::Error::from_raw_os_error(-ended.result));
        }
        if may_be_denied || ended.result == IN_VAIN {
            drop(waiting);
            // SAFETY: by this function's contract.
            return unsafe { run_by_attempts(g, request, deadline) };
        }
        if ended.result != MUST_BLOCK {
            why_failed(park::chain_of(g), deadline, ended)?;
            n_unasked += u32::from(ended.is_unasked_cancel());
            if n_unasked >= UNASKED_AT_MOST && request.blocking().is_some() {
                note_no_kernel_threads();
                drop(waiting);
                // SAFETY: by this function's contract.
                return unsafe { run_by_attempts(g, request, deadline) };
            }
        } else if let Some(call) = request.blocking() {
            // SAFETY: by this function's contract.
            return unsafe { run_blocking(call) };
        }
    }
}

/// The number of cancellations that no deadline asked for, after which an operation that may need a
/// kernel thread is carried out by system calls. One occurs if the thread that submitted it ends.
const UNASKED_AT_MOST: u32 = 3;

/// Until when operations that may need a kernel thread are not given to rings; 0 for never.
/// Ordering: relaxed, a hint.
static NO_KERNEL_THREADS_UNTIL_NS: AtomicU64 = AtomicU64::new(0);

/// How long [`note_no_kernel_threads`] is remembered: a ring takes 50 ms for each cancellation.
const NO_KERNEL_THREADS_NS: u64 = 1_000_000_000;

/// Records that the kernel can start no thread for an operation. Reports it once in the process.
#[cold]
fn note_no_kernel_threads() {
    let until_ns = clock::now_ns() + NO_KERNEL_THREADS_NS;
    if NO_KERNEL_THREADS_UNTIL_NS.swap(until_ns, Ordering::Relaxed) == 0 {
        signal::write_stderr(
            b"windlass: the kernel cannot start threads for io_uring: raise RLIMIT_NPROC or the \
              cgroup's pids.max; operations on files block threads of the program instead\n",
        );
    }
}

/// Whether the kernel can start no threads for operations, as far as is known.
#[inline]
fn lacks_kernel_threads() -> bool {
    let until_ns = NO_KERNEL_THREADS_UNTIL_NS.load(Ordering::Relaxed);
    until_ns != 0 && clock::now_ns() < until_ns
}

/// In a commit: queues a request with the operation `op`, and enters the kernel if that is due.
///
/// # Safety
///
/// As [`run`], until the operation has completed. The request stays in place until then, but for a poll.
#[inline(always)]
pub(super) unsafe fn start_request(m: &M, request: &Request, op: &Op, wait: WaitId) -> Option<i32> {
    let p = m.p();
    let mut ready = GList::new();
    // SAFETY:
    // - the M in a commit holds the P.
    // - the goroutine is parked until the completion, so the operation, the request and what that points
    //   at (this function's contract) stay valid.
    unsafe {
        p.poller
            .queue(request, op, wait, p.local.pace.now_ns(), &mut ready)
    };
    wake::ready_completed(m, ready);
    p.visit_kernel(Moment::Queued);
    None
}

/// Whether a ring may have returned this error because it may not carry out this kind of operation,
/// due to ring restrictions or a filter by opcode. It may also be the operation's own error:
/// [`is_denied_to_rings`] tells the two apart.
pub(super) fn is_denial(errno: i32) -> bool {
    matches!(errno, libc::EACCES | libc::EPERM)
}

/// Whether a poll ended in a way that says nothing of its descriptor: it must be made as an operation is
/// that [`run`] repeats by attempts.
pub(super) fn is_to_repeat(result: i32) -> bool {
    result >= 0 || is_denial(-result) || matches!(result, IN_VAIN | MUST_BLOCK)
}

/// Whether rings may not carry out this kind of operation. Called after an operation has failed
/// with an error for which [`is_denial`] holds. The operation itself cannot be repeated to find
/// out: a socket returns a pending error only once (that of an ICMPv6 message is EACCES). So the
/// same request is made without a descriptor: it fails with a different error where the kind is
/// allowed.
///
/// # Safety
///
/// As [`run`].
///
/// # Errors
///
/// The context's, if that is done.
#[cold]
pub(super) unsafe fn is_denied_to_rings(g: GRef, request: &Request) -> io::Result<bool> {
    let Some(nothing) = request.of_no_descriptor() else {
        return Ok(true);
    };
    loop {
        points::cancel_point()?;
        check(g)?;
        // SAFETY: by this function's contract. The request lies in this frame.
        let ended = park_for(g, Deadline::at(NEVER), |op, wait, m| unsafe {
            start_request(m, &nothing, op, wait)
        });
        match -ended.result {
            libc::ECANCELED | libc::EINTR | ERESTARTSYS => {}
            errno => return Ok(is_denial(errno)),
        }
    }
}

/// Carries out a request by attempts of the goroutine: one that rings refuse
/// ([`is_denied_to_rings`]), cannot carry out ([`note_no_kernel_threads`]) or would block at (a read of
/// a device), that must be made on its thread, or that the epoll poller has tried in vain. Its result is
/// final, even if the error is the same: then it was not the ring's. No part of the request was carried
/// out before.
///
/// A listener stays in non-blocking mode meanwhile (`Fd::accepting`).
///
/// # Safety
///
/// As [`run`].
///
/// # Errors
///
/// As [`run`].
#[cold]
pub(super) unsafe fn run_by_attempts(
    g: GRef,
    request: Request,
    deadline: Deadline<'_>,
) -> io::Result<Completed> {
    let Class::Waits { fd, direction, .. } = request.class() else {
        return match request.blocking() {
            // SAFETY: by this function's contract.
            Some(call) => unsafe { run_blocking(call) },
            None => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        };
    };
    // SAFETY: the owner of the request keeps the descriptor open until this returns.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    if let Some(call) = request.blocking()
        && !file::is_polled(borrowed)?
    {
        // SAFETY: by this function's contract.
        return unsafe { run_blocking(call) };
    }
    let mut is_announced = false;
    let mut waits = Waits::new(direction.poll_events() as i16, deadline);
    loop {
        points::cancel_point()?;
        check(g)?;
        // SAFETY: by this function's contract.
        let is_announceable = match unsafe { request.attempt(is_announced) } {
            Attempt::Done { result, flags } => {
                return match usize::try_from(result) {
                    Ok(n) => Ok(Completed { n, flags }),
                    Err(_) => Err(io::Error::from_raw_os_error(-result)),
                };
            }
            Attempt::NotReady if request.is_one_attempt() => {
                return Err(io::Error::from_raw_os_error(libc::EAGAIN));
            }
            Attempt::NotReady => !matches!(request, Request::PollAdd { .. }),
            Attempt::Unannounced => false,
        };
        if deadline.has_passed() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if is_announceable {
            // If polls are refused as well, this recurses once more at most.
            waits.wait_by(borrowed, |fd, events, deadline| {
                poll(g, fd, events, deadline)
            })?;
            is_announced = true;
        } else {
            waits.pause()?;
        }
    }
}

/// Waits for events of a descriptor, or an error, by a request.
///
/// # Errors
///
/// As [`run`].
pub(super) fn poll(
    g: GRef,
    fd: BorrowedFd<'_>,
    events: i16,
    deadline: Deadline<'_>,
) -> io::Result<()> {
    let request = Request::PollAdd {
        fd: fd.as_raw_fd(),
        events: u32::from(events.cast_unsigned()),
    };
    // SAFETY: the request holds no pointer; the descriptor is borrowed until this returns.
    let done = unsafe { run_until(g, request, deadline) }?;
    if shows(done.n as i32, events) {
        return Ok(());
    }
    // A ring also reports POLLRDHUP, which nobody asked for: a peer that has sent everything may still
    // be slow to read. An epoll instance does not.
    match waits::changes_of(fd, events) {
        Some(changes) => poll(g, changes.as_fd(), libc::POLLIN, deadline),
        None => Waits::new(events, deadline).pause(),
    }
}

/// Whether a poll's result has one of `events`, or an error.
pub(super) fn shows(result: i32, events: i16) -> bool {
    let errors = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
    result > 0 && result as i16 & (events | errors) != 0
}

/// How the park for an operation ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// The operation's result, or the one that `start` returned.
    pub(super) result: i32,
    flags: u32,
    /// The event of a multishot poll after which the ring carried out the waiter's receive.
    seen: Option<SeenEvents>,
    timed_out: bool,
}

impl From<&Op> for Ended {
    fn from(op: &Op) -> Ended {
        Ended {
            result: op.result(),
            flags: op.flags(),
            seen: op.seen(),
            timed_out: op.timed_out(),
        }
    }
}

impl Ended {
    /// Whether it was cancelled, and no deadline asked for that.
    fn is_unasked_cancel(self) -> bool {
        self.result == -libc::ECANCELED && !self.timed_out
    }
}

/// Parks `g` until the operation has ended that `start` begins, which runs on the M's stack. If
/// `start` returns a result, there is nothing to wait for.
#[inline]
pub(super) fn park_for<F>(g: GRef, deadline: Deadline<'_>, start: F) -> Ended
where
    F: FnOnce(&Op, WaitId, &M) -> Option<i32>,
{
    let op = Op::new(g);
    op.publish();
    let chain = park::chain_of(g);
    let until_ns = move || deadline.ns().min(chain.deadline_ns());
    let commit = |_, wait, m: &M, is_done| begin(&op, wait, is_done, || start(&op, wait, m));
    let was_woken = || !op.timed_out() && !op.ended_at_once();
    park::park_until::<false>(
        park::enter(),
        Reason::Io,
        until_ns,
        chain,
        commit,
        was_woken,
    );
    Ended::from(&op)
}

/// In a commit: binds `op` to its wait, and begins it by `start`, unless `is_done` says that a context is.
/// `false` if there is nothing to wait for.
#[inline(always)]
pub(super) fn begin(
    op: &Op,
    wait: WaitId,
    is_done: bool,
    start: impl FnOnce() -> Option<i32>,
) -> bool {
    op.bind(wait);
    let at_once = match is_done {
        true => Some(-libc::ECANCELED),
        false => start(),
    };
    // If nothing was queued, a canceller that holds the wait finds the mark.
    at_once.map(|result| op.end_at_once(result)).is_none()
}

/// Why an operation failed; no error if it must be repeated.
pub(super) fn why_failed(
    chain: ScopeChain,
    deadline: Deadline<'_>,
    ended: Ended,
) -> io::Result<()> {
    // It was cancelled. The context is checked only now, so that bytes which the operation moved
    // before are not lost. The last two error numbers are those of operations that had begun on a
    // kernel thread.
    if !matches!(-ended.result, libc::ECANCELED | libc::EINTR | ERESTARTSYS) {
        return Err(io::Error::from_raw_os_error(-ended.result));
    }
    if let Some(over) = chain.over() {
        return Err(current_context::Error::from(over).into());
    }
    // The deadline may have been moved. If this runtime did not ask for the cancellation, the
    // thread that submitted the operation has ended, or the run ends (then the next check for that
    // unwinds).
    if ended.timed_out && deadline.has_passed() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    Ok(())
}

/// Attempts to receive once. Returns the number of bytes and, as far as it is known, the number of
/// bytes left.
///
/// # Safety
///
/// As [`run`].
///
/// # Errors
///
/// As [`run`]; EAGAIN if there is nothing.
pub(super) unsafe fn recv_left(
    g: GRef,
    attempt: Request,
    deadline: Deadline<'_>,
) -> io::Result<(usize, Option<u32>)> {
    // SAFETY: by this function's contract.
    let done = unsafe { run_until(g, attempt, deadline) }?;
    let left = (!left_something(done.flags)).then_some(0);
    Ok((done.n, left))
}

/// The result of waiting for a stream that has a multishot poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PollOutcome {
    /// The ring has received this many bytes.
    Received(usize),
    /// An attempt is worthwhile.
    Event,
    /// The reader must wait in another way: the poll belongs to another thread or has a waiter.
    Elsewhere,
}

const READY: i32 = 0;
const ELSEWHERE: i32 = 1;

/// Waits until more arrives on `fd`, and carries out `receive`, an attempt. The caller has found
/// `fd` empty since the last event of `poll`. Arms the poll if it is not armed.
///
/// # Safety
///
/// As [`run`].
///
/// # Errors
///
/// As [`run`].
pub(super) unsafe fn wait_for_event(
    g: GRef,
    (fd, poll): (i32, &Arc<MultishotPoll>),
    receive: Request,
    deadline: Deadline<'_>,
) -> io::Result<PollOutcome> {
    let _bytes = receive.moves_bytes();
    let _waiting = deadline.enter(g);
    loop {
        points::cancel_point()?;
        check(g)?;
        let ended = park_for(g, deadline, |op, _, m| {
            // SAFETY: it stays in this frame until the goroutine runs again.
            unsafe { op.set_request(&receive) };
            register(m, op, fd, poll)
        });
        match (ended.result, ended.seen) {
            (n @ 0.., Some(seen)) => {
                if n > 0 && !left_something(ended.flags) {
                    poll.found_empty(seen);
                }
                return Ok(PollOutcome::Received(n as usize));
            }
            (READY, None) => return Ok(PollOutcome::Event),
            (ELSEWHERE, None) => return Ok(PollOutcome::Elsewhere),
            (error, Some(seen)) if -error == libc::EAGAIN => poll.found_empty(seen),
            (error, Some(_)) if is_denial(-error) => {
                // SAFETY: by this function's contract.
                if unsafe { is_denied_to_rings(g, &receive) }? {
                    // The caller makes the attempt itself, without the ring.
                    return Ok(PollOutcome::Event);
                }
                why_failed(park::chain_of(g), deadline, ended)?;
            }
            _ => why_failed(park::chain_of(g), deadline, ended)?,
        }
    }
}

/// In a commit: lets `op` wait for an event of `poll`, unless there is one.
fn register(m: &M, op: &Op, fd: i32, poll: &Arc<MultishotPoll>) -> Option<i32> {
    let p = m.p();
    let Some(ring) = p.poller.open_ring() else {
        return Some(ELSEWHERE);
    };
    let here = RingThread::new(ring.as_raw_fd(), m.id(), m.sched.cast());
    loop {
        match poll.wait(op, here) {
            WaitStart::Waits => return None,
            WaitStart::Ready => return Some(READY),
            WaitStart::Elsewhere => return Some(ELSEWHERE),
            WaitStart::ToArm => {
                let mut ready = GList::new();
                let by = (here, p.local.pace.now_ns());
                // SAFETY: the M in a commit holds the P.
                unsafe { p.poller.arm_multishot_poll(fd, poll, by, &mut ready) };
                wake::ready_completed(m, ready);
            }
        }
    }
}

/// Returns the slot of a receive that failed, if it had taken one.
#[cold]
fn give_back(request: &Request, flags: u32) {
    if let Request::RecvPooled { pool, .. } = *request
        && let Some(slot) = pool::slot_of(flags)
    {
        // SAFETY: the caller of `run_until` keeps what the request points at alive.
        unsafe { &*pool.cast::<BufferRing>() }.give(slot);
    }
}

/// Carries out an operation for which the epoll poller cannot wait, as a blocking call on a thread
/// that may block. Neither its deadline nor the end of a run cuts it short.
///
/// # Safety
///
/// As [`run`].
#[cold]
unsafe fn run_blocking(call: Blocking) -> io::Result<Completed> {
    loop {
        // SAFETY: by this function's contract; `offload` returns only after the call has.
        let result = offload(move || unsafe { call.run() });
        match usize::try_from(result) {
            Ok(n) => return Ok(Completed { n, flags: 0 }),
            Err(_) if result == -libc::EINTR => points::cancel_point()?,
            Err(_) => return Err(io::Error::from_raw_os_error(-result)),
        }
    }
}

//! Waits for callers that must not unwind: functions that C and `std` call. For windlass-hook, and
//! windlass-hyper; not part of the public interface.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use super::op::{self, Deadline};
use super::{ready, waits};
use crate::bubble;
use crate::loom::Ordering;
use crate::sched::types::current;
use crate::sched::types::m::Carrier;
use crate::sched::wait::handoff;
use crate::sched::wait::park::{self, Caller};
use crate::sched::wait::points::{self, Cancelled};
use crate::sched::wait::sleep;
use crate::sys::clock;
use crate::sys::request::{Buffers, HERE, Request};

/// A deadline that never comes.
pub const NEVER: u64 = clock::NEVER;

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[must_use]
pub fn now_ns() -> u64 {
    clock::now_ns()
}

/// The time `timeout` from now.
#[must_use]
pub fn deadline_ns(timeout: Duration) -> u64 {
    clock::deadline_ns(timeout)
}

/// Whether a wait of the caller parks a goroutine. Not on a plain thread, in a blocking section,
/// while unwinding, inside the scheduler, in a simulation, or in a child that a goroutine has forked:
/// that has no scheduler.
#[must_use]
pub fn parks() -> bool {
    // Relaxed: written by this thread only.
    let is_outside =
        |m: &Carrier| m.in_runtime.load(Ordering::Relaxed) == 0 && m.sched().is_in_its_process();
    matches!(park::caller(), Caller::Goroutine(_))
        && !bubble::is_inside()
        && current::m().is_some_and(is_outside)
}

/// The waits of one call for a descriptor, between attempts that find nothing.
#[derive(Debug)]
pub struct Waits(waits::Waits<'static>);

impl Waits {
    /// Waits for one of `events`, an error or a hangup, until the deadline.
    #[must_use]
    pub fn new(events: i16, deadline_ns: u64) -> Waits {
        Waits(waits::Waits::new(events, Deadline::at(deadline_ns)))
    }

    /// Waits until an attempt is worthwhile (`true`), or until the deadline (`false`). `fd` is the
    /// same each time. For goroutines that may wait ([`parks`]).
    ///
    /// # Errors
    ///
    /// An `errno`: `ECANCELED` if the run ends or the context is cancelled, `ETIMEDOUT` at the
    /// deadline of the context; those of `poll(2)`.
    pub fn wait(&mut self, fd: RawFd) -> Result<bool, i32> {
        wait_for(fd, |fd| self.0.wait(fd))
    }

    /// As [`Waits::wait`], for a descriptor that the caller alone knows and closes next, while other
    /// descriptors of the same file stay open.
    ///
    /// # Errors
    ///
    /// As [`Waits::wait`].
    pub fn wait_for_copy(&mut self, fd: RawFd) -> Result<bool, i32> {
        let here = current::m().and_then(|m| Some(m.last_p()?.idx));
        let waited = self.wait(fd);
        // An epoll instance reports a file until its last descriptor is closed, by a number that may
        // be another file's by then.
        if let (Some(m), Some(here)) = (current::m(), here) {
            let ps = &m.sched().ps;
            // The goroutine may have waited on another P, if its own was retaken.
            if !ps[here].poller.forget(fd) {
                for p in ps.iter() {
                    p.poller.forget(fd);
                }
            }
        }
        waited
    }
}

/// Waits until the descriptor shows one of `events`, an error or a hangup (`true`), or until the
/// deadline (`false`). The caller [`parks`].
///
/// # Errors
///
/// As [`Waits::wait`].
pub fn wait(fd: RawFd, events: i16, deadline_ns: u64) -> Result<bool, i32> {
    wait_for(fd, |fd| {
        ready::wait_until(fd, events, Deadline::at(deadline_ns))
    })
}

fn wait_for(fd: RawFd, wait: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>) -> Result<bool, i32> {
    if fd < 0 {
        return Err(libc::EBADF);
    }
    // SAFETY: the caller of the C function owns the descriptor, as with the C function itself. If it
    // is closed meanwhile, the poll fails or waits for the file that was open: no memory is
    // involved.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    match with_errno(|| wait(fd)) {
        Ok(()) => Ok(true),
        Err(libc::EAGAIN) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Receives a message. The ring holds the file, whatever becomes of the descriptor. `None` on a P
/// without a ring. The caller [`parks`].
///
/// # Safety
///
/// `msg` is as for `recvmsg(2)`, until this returns.
///
/// # Errors
///
/// An `errno`, as [`wait`] and `recvmsg(2)`; `EAGAIN` at the deadline.
pub unsafe fn recvmsg(
    fd: RawFd,
    msg: *mut libc::msghdr,
    flags: i32,
    deadline_ns: u64,
) -> Option<Result<usize, i32>> {
    // SAFETY: by this function's contract.
    unsafe { run_in_ring(Request::RecvMsg { fd, msg, flags }, deadline_ns) }
}

/// Reads from a pipe, as [`recvmsg`] receives.
///
/// # Safety
///
/// The buffers are as for `readv(2)`, until this returns.
///
/// # Errors
///
/// An `errno`, as [`wait`] and `readv(2)`; `EAGAIN` at the deadline.
pub unsafe fn readv(
    fd: RawFd,
    iov: &[libc::iovec],
    deadline_ns: u64,
) -> Option<Result<usize, i32>> {
    let (iovec, len) = (iov.as_ptr(), iov.len() as u32);
    let request = Request::Read {
        fd,
        bufs: Buffers::Several { iovec, len },
        offset: HERE,
    };
    // SAFETY: by this function's contract.
    unsafe { run_in_ring(request, deadline_ns) }
}

/// Accepts a connection, close-on-exec. `None` where only a blocking call could: on a P without a
/// ring. The caller [`parks`].
///
/// # Safety
///
/// `addr` and `len` are as for `accept(2)`, until this returns.
///
/// # Errors
///
/// An `errno`, as [`wait`] and `accept(2)`; `EAGAIN` at the deadline.
pub unsafe fn accept(
    fd: RawFd,
    addr: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
    deadline_ns: u64,
) -> Option<Result<RawFd, i32>> {
    let request = Request::Accept { fd, addr, len };
    // SAFETY: by this function's contract.
    let accepted = unsafe { run_in_ring(request, deadline_ns) }?;
    Some(accepted.map(|fd| fd as RawFd))
}

/// Connects a socket. `None` where only a blocking call could: on a P without a ring. The caller
/// [`parks`].
///
/// # Safety
///
/// `addr` and `len` are as for `connect(2)`, until this returns.
///
/// # Errors
///
/// An `errno`, as [`wait`] and `connect(2)`; `EAGAIN` at the deadline.
pub unsafe fn connect(
    fd: RawFd,
    addr: *const libc::sockaddr,
    len: libc::socklen_t,
    deadline_ns: u64,
) -> Option<Result<(), i32>> {
    let request = Request::Connect { fd, addr, len };
    // SAFETY: by this function's contract.
    let connected = unsafe { run_in_ring(request, deadline_ns) }?;
    Some(connected.map(drop))
}

/// Runs an operation in the P's ring. `None` if there is no ring, or if it may not do this.
///
/// # Safety
///
/// The memory that the request points at stays valid until this returns.
unsafe fn run_in_ring(request: Request, deadline_ns: u64) -> Option<Result<usize, i32>> {
    let Caller::Goroutine(g) = park::caller() else {
        return None;
    };
    if op::is_epoll_here() {
        return None;
    }
    // SAFETY: by this function's contract.
    let run = || unsafe { op::run(g, request, deadline_ns) };
    match with_errno(run) {
        Err(errno) if op::is_denial(errno) => None,
        done => Some(done.map(|done| done.n)),
    }
}

/// Sleeps until the deadline, or until the current context is done. `false` if the run ends first.
/// The caller [`parks`].
#[must_use]
pub fn sleep_until(deadline_ns: u64) -> bool {
    matches!(
        points::without_unwinding(|| sleep::sleep_until(deadline_ns)),
        Ok(Ok(()))
    )
}

/// Runs `f`, which blocks, while the P is handed to another thread. Unlike
/// [`blocking`](crate::blocking) it never moves the goroutine to another thread, so that the caller
/// may keep thread-locals across it. The caller [`parks`].
pub fn block<T>(f: impl FnOnce() -> T) -> T {
    handoff::blocking_on_thread(f)
}

/// Waits without unwinding. An error is an `errno`.
fn with_errno<T>(wait: impl FnOnce() -> io::Result<T>) -> Result<T, i32> {
    let waited = points::without_unwinding(wait).map_err(|_: Cancelled| libc::ECANCELED)?;
    waited.map_err(|e| {
        e.raw_os_error().unwrap_or(match e.kind() {
            io::ErrorKind::WouldBlock => libc::EAGAIN,
            io::ErrorKind::TimedOut => libc::ETIMEDOUT,
            _ => libc::ECANCELED,
        })
    })
}

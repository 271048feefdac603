//! Reading and writing byte streams that are not sockets: pipes, terminals, and files at their own
//! position.
//!
//! The ring reads and writes them. It does not wait for a descriptor in non-blocking mode, so the
//! goroutine waits for that with a poll. On a plain thread the system calls block, unless a deadline
//! or a context may end them ([`run_on_thread`]). Devices, such as terminals, are read by system calls
//! once they poll as ready. A write to a terminal blocks in any case: the kernel
//! finds it writable while there is room for a byte, and then waits for room for all.
#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut, IsTerminal};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::op::{self, Deadline};
use super::ready;
use super::waits::Waits;
use crate::g::header::GRef;
use crate::sched::wait::park::{self, Caller};
use crate::sched::wait::points;
use crate::sched::wait::sleep;
use crate::sched::wait::{current_context, handoff};
use crate::sys::call::Attempt;
use crate::sys::clock::NEVER;
use crate::sys::errno::is_would_block;
use crate::sys::file;
use crate::sys::request::{Buffers, HERE, Request};

/// A descriptor that bytes are read from or written to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    /// Whether it is of a device ([`is_device`]): its owner remembers that.
    pub(crate) is_device: bool,
}

impl<'a> Stream<'a> {
    /// The stream of a descriptor of any kind. Makes a system call to find out whether it is a device.
    pub(crate) fn of(fd: BorrowedFd<'a>) -> Stream<'a> {
        let is_device = is_device(fd);
        Stream { fd, is_device }
    }

    /// The stream of a pipe.
    pub(crate) fn of_pipe(fd: BorrowedFd<'a>) -> Stream<'a> {
        let is_device = false;
        Stream { fd, is_device }
    }
}

/// Whether a descriptor is of a device, such as a terminal: its calls may block although it polls as ready.
/// So does what the kernel tells nothing of.
pub(crate) fn is_device(fd: BorrowedFd<'_>) -> bool {
    file::is_device(fd).unwrap_or(true)
}

/// Reads at least one byte; returns 0 at the end.
pub(crate) fn read(from: Stream<'_>, buf: &mut [u8]) -> io::Result<usize> {
    if buf.is_empty() {
        return Ok(0);
    }
    // SAFETY: the buffer is borrowed until this returns.
    unsafe { read_into(from, Buffers::to_fill(buf)) }
}

/// Reads into several buffers. For the end and empty buffers as [`read`].
pub(crate) fn read_vectored(from: Stream<'_>, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    if bufs.iter().all(|b| b.is_empty()) {
        return Ok(0);
    }
    // SAFETY: the buffers are borrowed until this returns.
    unsafe { read_into(from, Buffers::to_fill_each(bufs)) }
}

/// Writes at least one byte, unless the buffer is empty.
pub(crate) fn write(to: Stream<'_>, buf: &[u8]) -> io::Result<usize> {
    if buf.is_empty() {
        return Ok(0);
    }
    // SAFETY: the buffer is borrowed until this returns.
    unsafe { write_from(to, Buffers::to_write(buf)) }
}

/// Writes from several buffers.
pub(crate) fn write_vectored(to: Stream<'_>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    if bufs.iter().all(|b| b.is_empty()) {
        return Ok(0);
    }
    // SAFETY: the buffers are borrowed until this returns.
    unsafe { write_from(to, Buffers::to_write_each(bufs)) }
}

/// # Safety
///
/// As [`op::run`].
unsafe fn read_into(from: Stream<'_>, bufs: Buffers) -> io::Result<usize> {
    let (fd, offset) = (from.fd.as_raw_fd(), HERE);
    // SAFETY: by this function's contract.
    unsafe { transfer(from, libc::POLLIN, Request::Read { fd, bufs, offset }) }
}

/// # Safety
///
/// As [`op::run`].
unsafe fn write_from(to: Stream<'_>, bufs: Buffers) -> io::Result<usize> {
    let (fd, offset) = (to.fd.as_raw_fd(), HERE);
    // SAFETY: by this function's contract.
    unsafe { transfer(to, libc::POLLOUT, Request::Write { fd, bufs, offset }) }
}

/// # Safety
///
/// As [`op::run`].
unsafe fn transfer(stream: Stream<'_>, events: i16, request: Request) -> io::Result<usize> {
    let mut waits = Waits::new(events, Deadline::at(NEVER));
    loop {
        let r = match park::caller() {
            // SAFETY: by this function's contract.
            Caller::Thread => unsafe { run_on_thread(stream.fd, request, NEVER) },
            Caller::Goroutine(g) => {
                // SAFETY: as above.
                unsafe { run(g, stream, request, NEVER) }
            }
        };
        if !is_would_block(&r) {
            return r;
        }
        waits.wait(stream.fd)?;
    }
}

/// Runs a read or write for the calling goroutine `g`.
///
/// # Safety
///
/// As [`op::run`].
///
/// # Errors
///
/// As [`op::run`].
pub(crate) unsafe fn run(
    g: GRef,
    Stream { fd, is_device }: Stream<'_>,
    request: Request,
    deadline_ns: u64,
) -> io::Result<usize> {
    if is_device && !is_read(&request) && fd.is_terminal() {
        // The kernel would block the thread inside the scheduler.
        ready::wait_until(fd, libc::POLLOUT, Deadline::at(deadline_ns))?;
        // SAFETY: by this function's contract.
        return handoff::blocking(|| unsafe { run_on_thread(fd, request, deadline_ns) });
    }
    if is_device && is_read(&request) {
        // Devices, such as terminals, know no attempt that does not block. A poller would call one that
        // polls as ready, and if another reader was faster, it would block the M's thread inside the scheduler,
        // where its P cannot be retaken (a ring also holds its own lock). Here only the goroutine blocks.
        let deadline = Deadline::at(deadline_ns);
        // SAFETY: by this function's contract.
        return unsafe { op::run_by_attempts(g, request, deadline) }.map(|done| done.n);
    }
    // SAFETY: by this function's contract.
    unsafe { op::run(g, request, deadline_ns) }.map(|done| done.n)
}

fn is_read(request: &Request) -> bool {
    matches!(request, Request::Read { .. })
}

/// Runs a read or write by blocking the thread, until the deadline, or the end of the ambient context
/// or of the goroutine's run.
///
/// Where one of these may come, it polls and makes non-blocking attempts: a blocking write to a
/// pipe that polls as ready waits for room for all of its bytes.
///
/// # Safety
///
/// As [`op::run`].
///
/// # Errors
///
/// As [`op::run`].
pub(crate) unsafe fn run_on_thread(
    fd: BorrowedFd<'_>,
    request: Request,
    deadline_ns: u64,
) -> io::Result<usize> {
    points::cancel_point()?;
    let events = match is_read(&request) {
        true => libc::POLLIN,
        false => libc::POLLOUT,
    };
    let may_end = deadline_ns != NEVER || sleep::may_be_cancelled();
    let is_awaited = may_end && file::is_polled(fd)?;
    let mut waits = Waits::new(events, Deadline::at(deadline_ns));
    loop {
        current_context::check()?;
        let result = if is_awaited {
            // SAFETY: by this function's contract.
            match unsafe { request.attempt(true) } {
                Attempt::Done { result, .. } => Some(result),
                Attempt::NotReady | Attempt::Unannounced => None,
            }
        } else {
            // SAFETY: as above.
            request.blocking().map(|call| unsafe { call.run() })
        };
        match result {
            Some(n) if n >= 0 => return Ok(n as usize),
            Some(errno) if errno == -libc::EINTR => {}
            Some(errno) => return Err(io::Error::from_raw_os_error(-errno)),
            None => waits.wait(fd)?,
        }
    }
}

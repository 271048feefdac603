//! Reading and writing byte streams that are not sockets: pipes, terminals, and files at their own
//! position.
//!
//! The ring reads and writes them. It does not wait for a descriptor in non-blocking mode, so the
//! goroutine waits for that with a poll. On a plain thread the system calls block.
#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::fd::{is_would_block, retry};
use super::op::{self, Deadline};
use super::socket::{MAX_BUFFERS, MAX_LEN};
use super::waits::Waits;
use crate::netpoll::sqe::{HERE, Request};
use crate::sched::wait::park::{self, Caller};
use crate::sys::clock::NEVER;
use crate::sys::file;

/// Reads at least one byte; returns 0 at the end.
pub(crate) fn read(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    if buf.is_empty() {
        return Ok(0);
    }
    let len = buf.len().min(MAX_LEN);
    let ptr = buf.as_mut_ptr();
    let request = Request::Read {
        fd: fd.as_raw_fd(),
        buf: ptr,
        len: len as u32,
        offset: HERE,
    };
    // SAFETY: the buffer is borrowed until this returns.
    unsafe { transfer(fd, libc::POLLIN, request, || file::read(fd, ptr, len)) }
}

/// Reads into several buffers. For the end and empty buffers as [`read`].
pub(crate) fn read_vectored(fd: BorrowedFd<'_>, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    if bufs.iter().all(|b| b.is_empty()) {
        return Ok(0);
    }
    let (iovec, len) = (bufs.as_mut_ptr().cast(), bufs.len().min(MAX_BUFFERS));
    let request = Request::Readv {
        fd: fd.as_raw_fd(),
        iovec,
        len: len as u32,
        offset: HERE,
    };
    // SAFETY: the buffers are borrowed until this returns.
    unsafe { transfer(fd, libc::POLLIN, request, || file::readv(fd, iovec, len)) }
}

/// Writes at least one byte, unless the buffer is empty.
pub(crate) fn write(fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
    if buf.is_empty() {
        return Ok(0);
    }
    let len = buf.len().min(MAX_LEN);
    let request = Request::Write {
        fd: fd.as_raw_fd(),
        buf: buf.as_ptr(),
        len: len as u32,
        offset: HERE,
    };
    // SAFETY: the buffer is borrowed until this returns.
    unsafe { transfer(fd, libc::POLLOUT, request, || file::write(fd, &buf[..len])) }
}

/// Writes from several buffers.
pub(crate) fn write_vectored(fd: BorrowedFd<'_>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    if bufs.iter().all(|b| b.is_empty()) {
        return Ok(0);
    }
    let (iovec, len) = (bufs.as_ptr().cast(), bufs.len().min(MAX_BUFFERS));
    let request = Request::Writev {
        fd: fd.as_raw_fd(),
        iovec,
        len: len as u32,
        offset: HERE,
    };
    // SAFETY: the buffers are borrowed until this returns.
    unsafe { transfer(fd, libc::POLLOUT, request, || file::writev(fd, iovec, len)) }
}

/// # Safety
///
/// As [`op::run`].
unsafe fn transfer(
    fd: BorrowedFd<'_>,
    events: i16,
    request: Request,
    call: impl Fn() -> io::Result<usize>,
) -> io::Result<usize> {
    let mut waits = Waits::new(events, Deadline::at(NEVER));
    loop {
        let r = match park::caller() {
            Caller::Thread => {
                park::cancel_point()?;
                retry(&call)
            }
            Caller::Goroutine(g) => {
                // SAFETY: by this function's contract.
                unsafe { op::run(g, request, NEVER) }.map(|done| done.n)
            }
        };
        if !is_would_block(&r) {
            return r;
        }
        waits.wait(fd)?;
    }
}

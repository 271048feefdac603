//! Reading, writing and splicing by system call: on plain threads, and where a call
//! does not wait.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::errno::{cvt, cvt_len};

/// `read(2)`.
pub(crate) fn read(fd: BorrowedFd<'_>, buf: *mut u8, len: usize) -> io::Result<usize> {
    // SAFETY: the caller passes a buffer valid for writes of `len` bytes; the call does not outlive it.
    cvt_len(unsafe { libc::read(fd.as_raw_fd(), buf.cast(), len) })
}

/// `readv(2)`.
pub(crate) fn readv(fd: BorrowedFd<'_>, iov: *const libc::iovec, n: usize) -> io::Result<usize> {
    // SAFETY: the caller passes `n` buffers valid for writes.
    cvt_len(unsafe { libc::readv(fd.as_raw_fd(), iov, n as libc::c_int) })
}

/// `write(2)`.
pub(crate) fn write(fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
    // SAFETY: the slice is valid for reads during the call.
    cvt_len(unsafe { libc::write(fd.as_raw_fd(), buf.as_ptr().cast(), buf.len()) })
}

/// `writev(2)`.
pub(crate) fn writev(fd: BorrowedFd<'_>, iov: *const libc::iovec, n: usize) -> io::Result<usize> {
    // SAFETY: the caller passes `n` buffers valid for reads.
    cvt_len(unsafe { libc::writev(fd.as_raw_fd(), iov, n as libc::c_int) })
}

/// `splice(2)` of at most `len` bytes. Does not wait for a pipe; whether it waits for the
/// other side is up to that one's mode.
pub(crate) fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    let null = std::ptr::null_mut();
    // SAFETY: takes descriptors and plain numbers; null means no offset.
    cvt_len(unsafe {
        libc::splice(
            from.as_raw_fd(),
            null,
            to.as_raw_fd(),
            null,
            len,
            libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK,
        )
    })
}

/// Asks for a pipe of so many bytes. That a limit forbids it is no matter.
pub(crate) fn set_pipe_bytes(fd: BorrowedFd<'_>, bytes: i32) {
    // SAFETY: takes a descriptor and plain numbers.
    let _ = cvt(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) });
}

/// `O_NONBLOCK` on or off. Gives how it was.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>, on: bool) -> io::Result<bool> {
    // SAFETY: takes a descriptor and plain numbers.
    let flags = cvt(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    let before = flags & libc::O_NONBLOCK != 0;
    if before != on {
        // SAFETY: as above.
        cvt(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags ^ libc::O_NONBLOCK) })?;
    }
    Ok(before)
}

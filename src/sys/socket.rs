//! Socket calls that `std` and socket2 do not offer without blocking: a single
//! attempt, and a wait for readiness on a plain thread.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::clock;
use super::errno::{cvt, cvt_len};

/// Receives what is there now, or `WouldBlock`.
pub(crate) fn recv_now(
    fd: BorrowedFd<'_>,
    buf: *mut u8,
    len: usize,
    flags: i32,
) -> io::Result<usize> {
    // SAFETY: the caller passes a buffer valid for writes of `len` bytes; the call does not outlive it.
    cvt_len(unsafe { libc::recv(fd.as_raw_fd(), buf.cast(), len, flags | libc::MSG_DONTWAIT) })
}

/// Sends what fits now, or `WouldBlock`. Never raises SIGPIPE.
pub(crate) fn send_now(fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
    // SAFETY: the slice is valid for reads during the call.
    cvt_len(unsafe {
        libc::send(
            fd.as_raw_fd(),
            buf.as_ptr().cast(),
            buf.len(),
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    })
}

/// Receives into several buffers what is there now, or `WouldBlock`.
pub(crate) fn recvmsg_now(fd: BorrowedFd<'_>, msg: *mut libc::msghdr) -> io::Result<usize> {
    // SAFETY: the caller passes a header whose buffers are valid for the length of the call.
    cvt_len(unsafe { libc::recvmsg(fd.as_raw_fd(), msg, libc::MSG_DONTWAIT) })
}

/// Sends several buffers as far as they fit now, or `WouldBlock`.
pub(crate) fn sendmsg_now(fd: BorrowedFd<'_>, msg: *const libc::msghdr) -> io::Result<usize> {
    // SAFETY: the caller passes a header whose buffers are valid for the length of the call.
    cvt_len(unsafe { libc::sendmsg(fd.as_raw_fd(), msg, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) })
}

/// Accepts a connection with `accept4(2)`; blocks the thread on a blocking socket.
pub(crate) fn accept(
    fd: BorrowedFd<'_>,
    addr: *mut libc::sockaddr_storage,
    len: *mut libc::socklen_t,
) -> io::Result<i32> {
    // SAFETY: the caller passes a valid place for an address and its length.
    cvt(unsafe { libc::accept4(fd.as_raw_fd(), addr.cast(), len, libc::SOCK_CLOEXEC) })
}

/// Makes calls on a descriptor non-blocking or blocking, for all who share its open
/// file description. Gives whether they were non-blocking.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>, on: bool) -> io::Result<bool> {
    // SAFETY: takes plain integers.
    let flags = cvt(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    let was_on = flags & libc::O_NONBLOCK != 0;
    if was_on != on {
        // SAFETY: takes plain integers.
        cvt(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags ^ libc::O_NONBLOCK) })?;
    }
    Ok(was_on)
}

/// Accepts a connection that is there now, or `WouldBlock`. The listener is made
/// non-blocking and stays so: `accept4(2)` has no flag for a single attempt, and a
/// connection that was announced may be gone, or another's, by the time of the call.
pub(crate) fn accept_now(
    fd: BorrowedFd<'_>,
    addr: *mut libc::sockaddr_storage,
    len: *mut libc::socklen_t,
) -> io::Result<i32> {
    set_nonblocking(fd, true)?;
    accept(fd, addr, len)
}

/// Begins to connect, or asks how it goes: `EINPROGRESS` or `EALREADY` if it is not
/// decided yet. The socket is as blocking afterwards as it was.
pub(crate) fn connect_now(
    fd: BorrowedFd<'_>,
    addr: *const libc::sockaddr,
    len: libc::socklen_t,
) -> io::Result<()> {
    let was_nonblocking = set_nonblocking(fd, true)?;
    // SAFETY: the caller passes an address of `len` bytes that outlives the call.
    let r = cvt(unsafe { libc::connect(fd.as_raw_fd(), addr, len) }).map(drop);
    if !was_nonblocking {
        set_nonblocking(fd, false)?;
    }
    r
}

/// Blocks the calling thread until `fd` shows one of `events`, or the deadline
/// (`false`). Signals do not end the wait.
pub(crate) fn poll(fd: BorrowedFd<'_>, events: i16, deadline_ns: u64) -> io::Result<bool> {
    loop {
        let mut pollfd = libc::pollfd {
            fd: fd.as_raw_fd(),
            events,
            revents: 0,
        };
        let ts = clock::timespec(deadline_ns.saturating_sub(clock::now_ns()));
        let ts_ptr: *const libc::timespec = if deadline_ns == clock::NEVER {
            std::ptr::null()
        } else {
            &raw const ts
        };
        // SAFETY: `pollfd` and the timeout outlive the call; a null mask is allowed.
        let r = cvt(unsafe { libc::ppoll(&mut pollfd, 1, ts_ptr, std::ptr::null()) });
        match r {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

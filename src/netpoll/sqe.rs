//! One small function per opcode, with the kernel version it needs.
//!
//! Each takes raw addresses: the caller (`io::op`) keeps what they point at
//! alive and still until the operation has completed.

use io_uring::squeue::Entry;
use io_uring::{opcode, types};

/// `IORING_RECVSEND_POLL_FIRST`: wait for readiness before the first attempt.
const POLL_FIRST: u16 = 1;

/// `recv(2)` (5.6). With `poll_first` (5.19) the kernel skips the attempt that
/// would find nothing.
pub(crate) fn recv(fd: i32, buf: *mut u8, len: u32, flags: i32, poll_first: bool) -> Entry {
    opcode::Recv::new(types::Fd(fd), buf, len)
        .flags(flags)
        .ioprio(if poll_first { POLL_FIRST } else { 0 })
        .build()
}

/// `send(2)` (5.6); never raises SIGPIPE.
pub(crate) fn send(fd: i32, buf: *const u8, len: u32) -> Entry {
    opcode::Send::new(types::Fd(fd), buf, len)
        .flags(libc::MSG_NOSIGNAL)
        .build()
}

/// `recvmsg(2)` (5.3).
pub(crate) fn recvmsg(fd: i32, msg: *mut libc::msghdr) -> Entry {
    opcode::RecvMsg::new(types::Fd(fd), msg)
        .ioprio(POLL_FIRST)
        .build()
}

/// `sendmsg(2)` (5.3); never raises SIGPIPE.
pub(crate) fn sendmsg(fd: i32, msg: *const libc::msghdr) -> Entry {
    opcode::SendMsg::new(types::Fd(fd), msg)
        .flags(libc::MSG_NOSIGNAL.cast_unsigned())
        .build()
}

/// `accept4(2)` (5.5), close-on-exec.
pub(crate) fn accept(fd: i32, addr: *mut libc::sockaddr, len: *mut libc::socklen_t) -> Entry {
    opcode::Accept::new(types::Fd(fd), addr, len)
        .flags(libc::SOCK_CLOEXEC)
        .build()
}

/// `connect(2)` (5.5).
pub(crate) fn connect(fd: i32, addr: *const libc::sockaddr, len: libc::socklen_t) -> Entry {
    opcode::Connect::new(types::Fd(fd), addr, len).build()
}

/// A read of the eventfd that wakes a ring without message passing (5.1).
pub(crate) fn read_eventfd(fd: i32, buf: *mut u64) -> Entry {
    opcode::Read::new(types::Fd(fd), buf.cast(), size_of::<u64>() as u32).build()
}

/// Cancels the entry named `user_data` on the same ring (5.5).
pub(crate) fn cancel(user_data: u64) -> Entry {
    opcode::AsyncCancel::new(user_data).build()
}

//! What may be asked of a poller, as plain values, and the ring's entry for each,
//! with the kernel version it needs.
//!
//! A request holds raw addresses: the caller (`io::op`) keeps what they point at
//! alive and still until the operation has completed. The ring makes an entry of it;
//! another poller can carry it out by itself.

use io_uring::squeue::{Entry, Flags};
use io_uring::{cqueue, opcode, types};

use super::pool::BufferRing;

/// `IORING_RECVSEND_POLL_FIRST`: wait for readiness before the first attempt.
const POLL_FIRST: u16 = 1;

/// `IORING_SEND_ZC_REPORT_USAGE`: the notice says whether the bytes were copied (6.2).
const REPORT_USAGE: u16 = 1 << 3;

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    /// `recv(2)` (5.6). Polls first (5.19), as an attempt would most likely find nothing; with
    /// `MSG_DONTWAIT` it is that attempt.
    Recv {
        fd: i32,
        buf: *mut u8,
        len: u32,
        flags: i32,
    },
    /// `recv(2)` into a slot of a pool that the kernel takes when data has come (5.19); the
    /// completion's flags name it.
    RecvPooled {
        fd: i32,
        pool: *const BufferRing,
        group: u16,
        /// Whether an attempt would most likely find nothing.
        poll_first: bool,
    },
    /// `send(2)` (5.6); never raises SIGPIPE.
    Send { fd: i32, buf: *const u8, len: u32 },
    /// `send(2)` without copying (6.0), of all that is given unless something is in the way;
    /// never raises SIGPIPE. Completes twice (`netpoll::zero_copy_send`).
    SendZc { fd: i32, buf: *const u8, len: u32 },
    /// `recvmsg(2)` (5.3). Polls first.
    RecvMsg {
        fd: i32,
        msg: *mut libc::msghdr,
        flags: i32,
    },
    /// `sendmsg(2)` (5.3); never raises SIGPIPE.
    SendMsg { fd: i32, msg: *const libc::msghdr },
    /// `accept4(2)` (5.5), close-on-exec.
    Accept {
        fd: i32,
        addr: *mut libc::sockaddr,
        len: *mut libc::socklen_t,
    },
    /// `connect(2)` (5.5).
    Connect {
        fd: i32,
        addr: *const libc::sockaddr,
        len: libc::socklen_t,
    },
    /// `poll(2)` for one descriptor (5.1): the result is the events it shows.
    PollAdd { fd: i32, events: u32 },
    /// `pread(2)` (5.6); at [`HERE`] as `read(2)`.
    Read {
        fd: i32,
        buf: *mut u8,
        len: u32,
        offset: u64,
    },
    /// `pwrite(2)` (5.6); at [`HERE`] as `write(2)`.
    Write {
        fd: i32,
        buf: *const u8,
        len: u32,
        offset: u64,
    },
    /// `preadv(2)` (5.1); at [`HERE`] as `readv(2)`.
    Readv {
        fd: i32,
        iovec: *const libc::iovec,
        len: u32,
        offset: u64,
    },
    /// `pwritev(2)` (5.1); at [`HERE`] as `writev(2)`.
    Writev {
        fd: i32,
        iovec: *const libc::iovec,
        len: u32,
        offset: u64,
    },
    /// `fsync(2)`, or `fdatasync(2)` (5.1).
    Fsync { fd: i32, data_only: bool },
    /// `fallocate(2)` with mode 0 (5.6).
    Fallocate { fd: i32, offset: u64, len: u64 },
    /// `open(2)` relative to the current directory (5.6). On a thread of the kernel from the
    /// start: the attempt that the ring would make first does not wait at a FIFO, but succeeds.
    Open {
        path: *const libc::c_char,
        flags: i32,
        mode: libc::mode_t,
    },
}

/// The offset that means the file's own position, and for pipes and terminals the
/// next bytes (5.6).
pub(crate) const HERE: u64 = u64::MAX;

impl Request {
    /// The same of no descriptor, which fails with EBADF where a ring carries such requests out;
    /// of those that may be made of a socket.
    pub(crate) fn of_no_descriptor(&self) -> Option<Request> {
        let mut request = *self;
        match &mut request {
            Request::Recv { fd, .. }
            | Request::RecvPooled { fd, .. }
            | Request::RecvMsg { fd, .. }
            | Request::Send { fd, .. }
            | Request::SendMsg { fd, .. }
            | Request::Connect { fd, .. }
            | Request::Read { fd, .. }
            | Request::Readv { fd, .. }
            | Request::Write { fd, .. }
            | Request::Writev { fd, .. } => *fd = -1,
            _ => return None,
        }
        Some(request)
    }

    /// The ring's entry.
    #[inline]
    pub(crate) fn entry(&self) -> Entry {
        match *self {
            Request::Recv {
                fd,
                buf,
                len,
                flags,
            } => opcode::Recv::new(types::Fd(fd), buf, len)
                .flags(flags)
                .ioprio(match flags & libc::MSG_DONTWAIT {
                    0 => POLL_FIRST,
                    _ => 0,
                })
                .build(),
            Request::RecvPooled {
                fd,
                group,
                poll_first,
                ..
            } => opcode::Recv::new(types::Fd(fd), std::ptr::null_mut(), 0)
                .buf_group(group)
                .ioprio(if poll_first { POLL_FIRST } else { 0 })
                .build()
                .flags(Flags::BUFFER_SELECT),
            Request::Send { fd, buf, len } => opcode::Send::new(types::Fd(fd), buf, len)
                .flags(libc::MSG_NOSIGNAL)
                .build(),
            Request::SendZc { fd, buf, len } => opcode::SendZc::new(types::Fd(fd), buf, len)
                .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
                .zc_flags(REPORT_USAGE)
                .build(),
            Request::RecvMsg { fd, msg, flags } => opcode::RecvMsg::new(types::Fd(fd), msg)
                .flags(flags.cast_unsigned())
                .ioprio(POLL_FIRST)
                .build(),
            Request::SendMsg { fd, msg } => opcode::SendMsg::new(types::Fd(fd), msg)
                .flags(libc::MSG_NOSIGNAL.cast_unsigned())
                .build(),
            Request::Accept { fd, addr, len } => opcode::Accept::new(types::Fd(fd), addr, len)
                .flags(libc::SOCK_CLOEXEC)
                .build(),
            Request::Connect { fd, addr, len } => {
                opcode::Connect::new(types::Fd(fd), addr, len).build()
            }
            Request::PollAdd { fd, events } => opcode::PollAdd::new(types::Fd(fd), events).build(),
            Request::Read {
                fd,
                buf,
                len,
                offset,
            } => opcode::Read::new(types::Fd(fd), buf, len)
                .offset(offset)
                .build(),
            Request::Write {
                fd,
                buf,
                len,
                offset,
            } => opcode::Write::new(types::Fd(fd), buf, len)
                .offset(offset)
                .build(),
            Request::Readv {
                fd,
                iovec,
                len,
                offset,
            } => opcode::Readv::new(types::Fd(fd), iovec, len)
                .offset(offset)
                .build(),
            Request::Writev {
                fd,
                iovec,
                len,
                offset,
            } => opcode::Writev::new(types::Fd(fd), iovec, len)
                .offset(offset)
                .build(),
            Request::Fsync { fd, data_only } => {
                let flags = if data_only {
                    types::FsyncFlags::DATASYNC
                } else {
                    types::FsyncFlags::empty()
                };
                opcode::Fsync::new(types::Fd(fd)).flags(flags).build()
            }
            Request::Fallocate { fd, offset, len } => opcode::Fallocate::new(types::Fd(fd), len)
                .offset(offset)
                .build(),
            Request::Open { path, flags, mode } => {
                opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path)
                    .flags(flags)
                    .mode(mode)
                    .build()
                    .flags(Flags::ASYNC)
            }
        }
    }
}

/// Whether a receive whose completion has these flags has left something in its socket (5.19); of
/// a TCP socket that is certain, and the end of the stream is something.
#[inline]
pub(crate) fn left_something(flags: u32) -> bool {
    cqueue::sock_nonempty(flags)
}

/// Receives again and again into slots of a pool's group (6.0).
pub(crate) fn recv_multi(fd: i32, group: u16) -> Entry {
    opcode::RecvMulti::new(types::Fd(fd), group).build()
}

/// Polls again and again, when something comes and not while it is there (5.13).
pub(crate) fn poll_multi(fd: i32, events: u32) -> Entry {
    opcode::PollAdd::new(types::Fd(fd), events)
        .multi(true)
        .build()
}

/// Accepts again and again, close-on-exec (5.19). The addresses of peers are not told.
pub(crate) fn accept_multi(fd: i32) -> Entry {
    opcode::AcceptMulti::new(types::Fd(fd))
        .flags(libc::SOCK_CLOEXEC)
        .build()
}

/// A read of the eventfd that wakes a ring without message passing (5.1).
pub(crate) fn read_eventfd(fd: i32, buf: *mut u64) -> Entry {
    opcode::Read::new(types::Fd(fd), buf.cast(), size_of::<u64>() as u32).build()
}

/// Cancels everything in flight on the same ring (5.19).
pub(crate) fn cancel_all() -> Entry {
    opcode::AsyncCancel2::new(types::CancelBuilder::any().all()).build()
}

/// Cancels the entry named `user_data` on the same ring (5.5).
pub(crate) fn cancel(user_data: u64) -> Entry {
    opcode::AsyncCancel::new(user_data).build()
}

//! Requests to a poller, as plain values, and the ring's entry for each. The kernel version that an
//! operation needs is in parentheses.
//!
//! A request holds raw addresses: the caller keeps what they point at alive and in place
//! until the operation has completed. A ring makes an entry of a request; the epoll poller carries
//! it out by itself.

use std::io::{IoSlice, IoSliceMut};

use io_uring::squeue::{Entry, Flags};
use io_uring::{cqueue, opcode, types};

/// `IORING_RECVSEND_POLL_FIRST`: wait for readiness before the first attempt.
const POLL_FIRST: u16 = 1;

/// One request.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields are the arguments of the call")]
pub enum Request {
    /// `recv(2)` (5.6). It polls first (5.19), as an attempt would most likely find nothing. With
    /// `MSG_DONTWAIT` it is a single attempt.
    Recv {
        fd: i32,
        buf: *mut u8,
        len: u32,
        flags: i32,
    },
    /// `recv(2)` into a pool's slot, which the kernel picks when data arrives (5.19). The
    /// completion's flags name the slot.
    RecvPooled {
        fd: i32,
        /// The pool, for the caller alone.
        pool: *const (),
        group: u16,
        /// Whether an attempt would most likely find nothing, so that polling first is cheaper.
        poll_first: bool,
    },
    /// `send(2)` (5.6); never raises SIGPIPE.
    Send { fd: i32, buf: *const u8, len: u32 },
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
    /// `poll(2)` on one descriptor (5.1): the result is the events that are ready.
    PollAdd { fd: i32, events: u32 },
    /// `pread(2)` (5.6) or `preadv(2)` (5.1); at [`HERE`] as `read(2)` and `readv(2)`.
    Read { fd: i32, bufs: Buffers, offset: u64 },
    /// `pwrite(2)` (5.6) or `pwritev(2)` (5.1); at [`HERE`] as `write(2)` and `writev(2)`.
    Write { fd: i32, bufs: Buffers, offset: u64 },
    /// `fsync(2)`, or `fdatasync(2)` (5.1).
    Fsync { fd: i32, data_only: bool },
    /// `fallocate(2)` with mode 0 (5.6).
    Fallocate { fd: i32, offset: u64, len: u64 },
    /// `open(2)` relative to the current directory (5.6). It always runs on a kernel worker thread:
    /// the first attempt that the ring makes otherwise would not wait at a FIFO, but succeed.
    Open {
        path: *const libc::c_char,
        flags: i32,
        mode: libc::mode_t,
    },
}

/// The memory of a read, or of a write, which only reads it.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "as for requests")]
pub enum Buffers {
    One { at: *mut u8, len: u32 },
    Several { iovec: *const libc::iovec, len: u32 },
}

/// The most bytes that one call moves: the kernel's own limit.
pub const MAX_LEN: usize = 0x7fff_f000;

/// The most buffers that the kernel takes in one call; further ones are left for the next call.
pub const MAX_BUFFERS: usize = 1024;

/// `std`'s vectors of buffers have the layout of iovecs.
impl Buffers {
    /// Memory to read into.
    #[inline]
    pub fn to_fill(buf: &mut [u8]) -> Buffers {
        Buffers::One {
            at: buf.as_mut_ptr(),
            len: buf.len().min(MAX_LEN) as u32,
        }
    }

    /// As [`Buffers::to_fill`], one after the other.
    #[inline]
    pub fn to_fill_each(bufs: &mut [IoSliceMut<'_>]) -> Buffers {
        Buffers::Several {
            iovec: bufs.as_mut_ptr().cast(),
            len: bufs.len().min(MAX_BUFFERS) as u32,
        }
    }

    /// Bytes to write.
    #[inline]
    pub fn to_write(buf: &[u8]) -> Buffers {
        Buffers::One {
            at: buf.as_ptr().cast_mut(),
            len: buf.len().min(MAX_LEN) as u32,
        }
    }

    /// As [`Buffers::to_write`], one after the other.
    #[inline]
    pub fn to_write_each(bufs: &[IoSlice<'_>]) -> Buffers {
        Buffers::Several {
            iovec: bufs.as_ptr().cast(),
            len: bufs.len().min(MAX_BUFFERS) as u32,
        }
    }
}

/// The reason why an operation waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// For something to read.
    Read,
    /// For room to write.
    Write,
    /// A set of events of its own: a poll.
    Events,
}

/// The events after which a read is attempted. An error or a hang-up, which epoll
/// always reports, counts for both.
pub const READ_EVENTS: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP) as u32;
/// As [`READ_EVENTS`], of the other direction.
pub const WRITE_EVENTS: u32 = libc::EPOLLOUT as u32;
const BOTH_EVENTS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

impl Interest {
    /// The `poll(2)` events to wait for, for an operation of this direction.
    pub fn poll_events(self) -> u32 {
        match self {
            Interest::Read => libc::POLLIN as u32,
            Interest::Write => libc::POLLOUT as u32,
            Interest::Events => (libc::POLLIN | libc::POLLOUT) as u32,
        }
    }

    /// Whether one of `events` may have made this direction ready.
    pub fn is_in(self, events: u32) -> bool {
        let own = match self {
            Interest::Read => READ_EVENTS,
            Interest::Write => WRITE_EVENTS,
            Interest::Events => u32::MAX,
        };
        events & (own | BOTH_EVENTS) != 0
    }
}

/// The offset that means the file's current position, and for pipes and terminals the next bytes
/// (5.6).
pub const HERE: u64 = u64::MAX;

impl Request {
    /// The request on no descriptor, which completes on a ring with EBADF. `None` for requests
    /// that are not made on sockets.
    pub fn of_no_descriptor(&self) -> Option<Request> {
        let mut request = *self;
        match &mut request {
            Request::Recv { fd, .. }
            | Request::RecvPooled { fd, .. }
            | Request::RecvMsg { fd, .. }
            | Request::Send { fd, .. }
            | Request::SendMsg { fd, .. }
            | Request::Connect { fd, .. }
            | Request::Read { fd, .. }
            | Request::Write { fd, .. } => *fd = -1,
            _ => return None,
        }
        Some(request)
    }

    /// The ring's entry.
    #[inline]
    pub fn entry(&self) -> Entry {
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
            Request::Read { fd, bufs, offset } => match bufs {
                Buffers::One { at, len } => opcode::Read::new(types::Fd(fd), at, len)
                    .offset(offset)
                    .build(),
                Buffers::Several { iovec, len } => opcode::Readv::new(types::Fd(fd), iovec, len)
                    .offset(offset)
                    .build(),
            },
            Request::Write { fd, bufs, offset } => match bufs {
                Buffers::One { at, len } => opcode::Write::new(types::Fd(fd), at, len)
                    .offset(offset)
                    .build(),
                Buffers::Several { iovec, len } => opcode::Writev::new(types::Fd(fd), iovec, len)
                    .offset(offset)
                    .build(),
            },
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

/// Whether the flags of a receive's completion say that there is more in the socket (5.19). For a
/// TCP socket the flag is reliable; the end of the stream counts as more.
#[inline]
pub fn left_something(flags: u32) -> bool {
    cqueue::sock_nonempty(flags)
}

/// Multishot poll, edge-triggered (5.13).
pub fn multishot_poll(fd: i32, events: u32) -> Entry {
    opcode::PollAdd::new(types::Fd(fd), events)
        .multi(true)
        .build()
}

/// A read of the eventfd that wakes a ring without message passing (5.1).
pub fn read_eventfd(fd: i32, buf: *mut u64) -> Entry {
    opcode::Read::new(types::Fd(fd), buf.cast(), size_of::<u64>() as u32).build()
}

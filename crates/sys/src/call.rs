//! Requests carried out by plain system calls, for the epoll poller.
//!
//! Most requests wait for readiness of their descriptor and then make one attempt that cannot
//! block. The attempt may still find nothing. A request on a regular file cannot wait for
//! readiness: it completes with [`MUST_BLOCK`], and its goroutine then makes a blocking call on a
//! thread that may block ([`Blocking`]).
//!
//! A new request needs one line in [`Request::class`], and an arm in [`Request::attempt`] or
//! [`Blocking::run`].
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;

use crate::errno::retry;
use crate::request::{Buffers, Interest, Request};
use crate::{file, race, socket};

/// The result that means "make a blocking call"; no error number is so large.
pub const MUST_BLOCK: i32 = -0x1000_0000;

/// The result that means "reported ready, but the attempt found nothing, and it still is": the
/// goroutine waits for its descriptor by itself.
pub const IN_VAIN: i32 = -0x1000_0001;

/// The flag of a receive's completion for "there is more" (`IORING_CQE_F_SOCK_NONEMPTY`).
const SOCK_NONEMPTY: u32 = 1 << 2;

const LARGE: usize = 4096;

/// How a request is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// By attempts, when the descriptor is ready.
    Waits {
        /// The descriptor.
        fd: i32,
        /// Its readiness for what.
        direction: Interest,
        /// Whether an attempt is worthwhile before the descriptor is polled.
        at_once: bool,
    },
    /// By a blocking call.
    Blocks,
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The result as a ring would give it: a length or descriptor, or a negated error
    /// number; and the completion's flags.
    #[allow(missing_docs, reason = "named above")]
    Done { result: i32, flags: u32 },
    /// The descriptor is not ready; epoll reports when it is.
    NotReady,
    /// It cannot proceed now, and no event reports when it can.
    Unannounced,
}

impl Request {
    /// Tells the race detector of the bytes that the caller is about to move by this request, until the drop.
    #[inline]
    pub fn moves_bytes(&self) -> Option<race::Receives> {
        match self.class() {
            Class::Waits {
                direction: Interest::Write,
                ..
            } => {
                race::sends();
                None
            }
            Class::Waits { .. } => Some(race::receives()),
            Class::Blocks => None,
        }
    }

    /// How the request is carried out.
    pub fn class(&self) -> Class {
        let waits = |fd, direction, at_once| Class::Waits {
            fd,
            direction,
            at_once,
        };
        match *self {
            // As on the ring: an attempt would most likely find nothing.
            Request::Recv { fd, .. } => waits(fd, Interest::Read, false),
            Request::RecvMsg { fd, .. } => waits(fd, Interest::Read, false),
            Request::RecvPooled { fd, .. } => waits(fd, Interest::Read, false),
            Request::Accept { fd, .. } => waits(fd, Interest::Read, true),
            Request::Send { fd, .. } => waits(fd, Interest::Write, true),
            Request::SendMsg { fd, .. } => waits(fd, Interest::Write, true),
            Request::Connect { fd, .. } => waits(fd, Interest::Write, true),
            Request::PollAdd { fd, .. } => waits(fd, Interest::Events, false),
            // Pipes, terminals and files. An attempt reads what a file has in the page cache.
            Request::Read { fd, .. } => waits(fd, Interest::Read, true),
            Request::Write { fd, .. } => waits(fd, Interest::Write, true),
            Request::Fsync { .. } | Request::Fallocate { .. } | Request::Open { .. } => {
                Class::Blocks
            }
        }
    }

    /// The events that a poll waits for; 0 for other requests.
    pub fn polled_events(&self) -> u32 {
        match *self {
            Request::PollAdd { events, .. } => events,
            _ => 0,
        }
    }

    /// Makes one attempt, which does not block. `announced` means that epoll has reported the
    /// descriptor ready; so it is no regular file.
    ///
    /// # Safety
    ///
    /// The memory that the request points at is valid, and not used by others during the call.
    pub unsafe fn attempt(&self, announced: bool) -> Attempt {
        match *self {
            Request::Recv {
                fd,
                buf,
                len,
                flags,
            } => received(
                len as usize,
                recv_as_if_blocking(fd, flags, announced, || {
                    // SAFETY: by this function's contract.
                    retry(|| unsafe { socket::recv_now(borrow(fd), buf, len as usize, flags) })
                }),
            ),
            Request::RecvMsg { fd, msg, flags } => {
                let r = recv_as_if_blocking(fd, flags, announced, || {
                    // SAFETY: by this function's contract.
                    retry(|| unsafe { socket::recvmsg_now(borrow(fd), msg, flags) })
                });
                came_to(r)
            }
            // The epoll poller has no pool: the caller receives into a buffer of its own.
            Request::RecvPooled { .. } => Attempt::Done {
                result: -libc::ENOBUFS,
                flags: 0,
            },
            Request::Send { fd, buf, len } => {
                // SAFETY: by this function's contract.
                let bytes = unsafe { std::slice::from_raw_parts(buf, len as usize) };
                came_to(retry(|| socket::send_now(borrow(fd), bytes)))
            }
            Request::SendMsg { fd, msg } => {
                // SAFETY: by this function's contract.
                came_to(retry(|| unsafe { socket::sendmsg_now(borrow(fd), msg) }))
            }
            Request::Accept { fd, addr, len } => {
                // SAFETY: by this function's contract.
                let r = retry(|| unsafe { socket::accept_now(borrow(fd), addr.cast(), len) });
                accepted(fd, announced, r)
            }
            Request::Connect { fd, addr, len } => {
                // SAFETY: by this function's contract.
                connected(unsafe { socket::connect_now(borrow(fd), addr, len) })
            }
            Request::PollAdd { fd, events } => match socket::poll_now(borrow(fd), events as i16) {
                Ok(0) => Attempt::NotReady,
                shown => came_to(shown.map(|events| usize::from(events.cast_unsigned()))),
            },
            Request::Read { fd, bufs, offset } => {
                // SAFETY: by this function's contract.
                unsafe { bufs.with_iovecs(|iov| read(fd, iov, offset, announced)) }
            }
            Request::Write { fd, bufs, offset } => {
                // SAFETY: by this function's contract.
                unsafe { bufs.with_iovecs(|iov| write(fd, iov, offset, announced)) }
            }
            // These block.
            Request::Fsync { .. } | Request::Fallocate { .. } | Request::Open { .. } => {
                Attempt::Unannounced
            }
        }
    }

    /// Whether the request is itself a single attempt, which fails instead of waiting.
    pub fn is_one_attempt(&self) -> bool {
        matches!(*self, Request::Recv { flags, .. } if flags & libc::MSG_DONTWAIT != 0)
    }

    /// The request as a blocking call, if its descriptor is or may be a file's.
    pub fn blocking(&self) -> Option<Blocking> {
        let is_files = matches!(self, Request::Read { .. } | Request::Write { .. })
            || self.class() == Class::Blocks;
        is_files.then_some(Blocking(*self))
    }
}

/// A request to be carried out by a blocking call.
#[derive(Clone, Copy, Debug)]
pub struct Blocking(Request);

// SAFETY: a request is addresses and numbers; the contract of `run` says when what they point at
// may be used.
unsafe impl Send for Blocking {}

impl Blocking {
    /// Makes the call. Returns the result as a ring would.
    ///
    /// # Safety
    ///
    /// The memory that the request points at is valid, and not used by others during the call.
    pub unsafe fn run(self) -> i32 {
        let r = match self.0 {
            Request::Read { fd, bufs, offset } => {
                // SAFETY: by this function's contract.
                unsafe { bufs.with_iovecs(|iov| file::readv_at(borrow(fd), iov, offset as i64)) }
            }
            Request::Write { fd, bufs, offset } => {
                // SAFETY: by this function's contract.
                unsafe { bufs.with_iovecs(|iov| file::writev_at(borrow(fd), iov, offset as i64)) }
            }
            Request::Fsync { fd, data_only } => file::sync(borrow(fd), data_only).map(|()| 0),
            Request::Fallocate { fd, offset, len } => {
                file::allocate(borrow(fd), offset as i64, len as i64).map(|()| 0)
            }
            Request::Open { path, flags, mode } => {
                // SAFETY: by this function's contract.
                let path = unsafe { std::ffi::CStr::from_ptr(path) };
                file::open(path, flags, mode).map(|fd| fd as usize)
            }
            // The others wait for their descriptors.
            _ => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        };
        r.map_or_else(|e| -errno(&e), |n| n as i32)
    }
}

impl Buffers {
    /// Calls `f` with the buffers as a vector.
    ///
    /// # Safety
    ///
    /// The vector of several is valid during the call.
    unsafe fn with_iovecs<R>(self, f: impl FnOnce(&[libc::iovec]) -> R) -> R {
        match self {
            Buffers::One { at, len } => f(&[whole(at, len)]),
            Buffers::Several { iovec, len } => {
                // SAFETY: by this function's contract.
                let iov = unsafe { std::slice::from_raw_parts(iovec, len as usize) };
                f(iov)
            }
        }
    }
}

fn whole(buf: *mut u8, len: u32) -> libc::iovec {
    libc::iovec {
        iov_base: buf.cast(),
        iov_len: len as usize,
    }
}

/// # Safety
///
/// The buffers are valid for writes.
unsafe fn read(fd: i32, iov: &[libc::iovec], offset: u64, announced: bool) -> Attempt {
    let fd = borrow(fd);
    // SAFETY: by this function's contract, here and below.
    match retry(|| unsafe { file::readv_now(fd, iov, offset as i64) }) {
        Err(e) if cannot_tell(&e, file::denies_readv_now) => {
            when_it_shows(fd, libc::POLLIN, announced, || {
                // SAFETY: as above.
                unsafe { file::readv_at(fd, iov, offset as i64) }
            })
        }
        r => came_to(r),
    }
}

/// # Safety
///
/// The buffers are valid for reads.
unsafe fn write(fd: i32, iov: &[libc::iovec], offset: u64, announced: bool) -> Attempt {
    let fd = borrow(fd);
    // SAFETY: by this function's contract, here and below.
    match retry(|| unsafe { file::writev_now(fd, iov, offset as i64) }) {
        Err(e) if cannot_tell(&e, file::denies_writev_now) => {
            when_it_shows(fd, libc::POLLOUT, announced, || {
                match n_at_once(iov) {
                    // SAFETY: as above, of a part of the first buffer.
                    0 => unsafe { file::writev_at(fd, &[short(iov)], offset as i64) },
                    // SAFETY: as above.
                    n => unsafe { file::writev_at(fd, &iov[..n], offset as i64) },
                }
            })
        }
        r => came_to(r),
    }
}

/// Whether an attempt failed because the file does not support it (pipes before Linux 6.4, terminals),
/// or because no file does: a sandbox may deny the call with an error that files have, too.
fn cannot_tell(e: &io::Error, is_denied: impl FnOnce() -> bool) -> bool {
    match e.raw_os_error() {
        Some(libc::EAGAIN) => false,
        Some(libc::EOPNOTSUPP) => true,
        _ => is_denied(),
    }
}

/// A ready descriptor does not block, unless another thread takes the data at this very moment.
/// Then the M blocks, as in an undeclared blocking call.
fn when_it_shows(
    fd: BorrowedFd<'_>,
    events: i16,
    announced: bool,
    call: impl FnMut() -> io::Result<usize>,
) -> Attempt {
    if !announced {
        return Attempt::NotReady;
    }
    match socket::poll_now(fd, events) {
        Ok(0) => Attempt::NotReady,
        Ok(_) => came_to(retry(call)),
        Err(e) => done(-errno(&e), 0),
    }
}

/// How many buffers a pipe that polls as writable takes in one piece, as a blocking call gives them to it; 0 if it has no
/// room for the first that is not empty.
fn n_at_once(iov: &[libc::iovec]) -> usize {
    let mut room = libc::PIPE_BUF;
    let fits = |part: &&libc::iovec| match room.checked_sub(part.iov_len) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    };
    let n = iov.iter().take_while(fits).count();
    match room {
        libc::PIPE_BUF if n < iov.len() => 0,
        _ => n,
    }
}

/// The part of the first buffer that a pipe which polls as writable has room for.
fn short(iov: &[libc::iovec]) -> libc::iovec {
    let first = iov.iter().find(|part| part.iov_len > 0);
    first.map_or(whole(std::ptr::null_mut(), 0), |part| libc::iovec {
        iov_base: part.iov_base,
        iov_len: part.iov_len.min(libc::PIPE_BUF),
    })
}

/// The descriptor of a request. If it is closed, or was never open, the calls fail.
fn borrow<'a>(fd: i32) -> BorrowedFd<'a> {
    // SAFETY: the maker of the request keeps the descriptor open until it has completed; calls are
    // made with the bare number, and the kernel never returns -1 for an open descriptor.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

fn came_to(r: io::Result<usize>) -> Attempt {
    match r {
        Ok(n) => done(n as i32, 0),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Attempt::NotReady,
        Err(e) => done(-errno(&e), 0),
    }
}

/// Receives. An attempt on a datagram or packet socket that was shut down for reading does not
/// return what a blocking receive would ([`socket::recv_after_shutdown`]).
fn recv_as_if_blocking(
    fd: i32,
    flags: i32,
    announced: bool,
    call: impl Fn() -> io::Result<usize>,
) -> io::Result<usize> {
    match call() {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
            let may_end = announced && flags & libc::MSG_DONTWAIT == 0;
            may_end
                .then(|| socket::recv_after_shutdown(borrow(fd), call))
                .flatten()
                .unwrap_or(Err(e))
        }
        r => r,
    }
}

/// A receive that filled a large buffer has most likely left data behind. One that filled a small
/// buffer more likely got the one message that the buffer was made for.
fn received(len: usize, r: io::Result<usize>) -> Attempt {
    match r {
        Ok(n) if n == len && len >= LARGE => done(n as i32, SOCK_NONEMPTY),
        r => came_to(r),
    }
}

/// A Unix listener that was shut down polls as ready, but a non-blocking accept reports only that
/// there is no connection; a blocking one would report the error. So the listener is polled for it.
fn accepted(listener: i32, announced: bool, r: io::Result<i32>) -> Attempt {
    const IS_SHUT: i16 = libc::POLLRDHUP | libc::POLLHUP;
    match came_to(r.map(|fd| fd as usize)) {
        Attempt::NotReady if announced => {
            match socket::poll_now(borrow(listener), libc::POLLRDHUP) {
                Ok(shown) if shown & IS_SHUT != 0 => done(-libc::EINVAL, 0),
                _ => Attempt::NotReady,
            }
        }
        attempt => attempt,
    }
}

fn connected(r: io::Result<()>) -> Attempt {
    match r.as_ref().map_err(errno) {
        Ok(()) => done(0, 0),
        // A signal does not interrupt the connection attempt.
        Err(libc::EINPROGRESS | libc::EALREADY | libc::EINTR) => Attempt::NotReady,
        // A Unix listener's queue is full; no event reports when it has room.
        Err(libc::EAGAIN) => Attempt::Unannounced,
        Err(errno) => done(-errno, 0),
    }
}

fn done(result: i32, flags: u32) -> Attempt {
    Attempt::Done { result, flags }
}

fn errno(e: &io::Error) -> i32 {
    e.raw_os_error().unwrap_or(libc::EIO)
}

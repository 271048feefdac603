//! Requests carried out by plain system calls, where there is no ring to do it.
//!
//! Most wait for readiness of their descriptor and then make one attempt that cannot
//! block, and that may find nothing after all. Adding a request is one line in
//! [`Request::class`] and one in [`Request::attempt`], or [`Request::block`].
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;

use super::op::Direction;
use super::sqe::Request;
use crate::sys::socket;

/// The flag of a receive's completion that says that there is more
/// (`IORING_CQE_F_SOCK_NONEMPTY`).
const SOCK_NONEMPTY: u32 = 1 << 2;

const LARGE: usize = 4096;

/// How a request is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// By attempts, when the descriptor is ready.
    Waits {
        fd: i32,
        direction: Direction,
        /// Whether an attempt is worth while before the descriptor was looked at.
        at_once: bool,
    },
}

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The result as a ring would give it: a length or descriptor, or a negated error
    /// number; and the completion's flags.
    Done { result: i32, flags: u32 },
    /// The descriptor is not ready; it will be said when it is.
    NotReady,
    /// It cannot go on now, and nothing will say when it can.
    Unannounced,
}

impl Request {
    /// How to carry it out.
    pub(crate) fn class(&self) -> Class {
        let waits = |fd, direction, at_once| Class::Waits {
            fd,
            direction,
            at_once,
        };
        match *self {
            // As on the ring: an attempt would most likely find nothing.
            Request::Recv { fd, .. } => waits(fd, Direction::Read, false),
            Request::RecvMsg { fd, .. } => waits(fd, Direction::Read, false),
            Request::Accept { fd, .. } => waits(fd, Direction::Read, true),
            Request::Send { fd, .. } => waits(fd, Direction::Write, true),
            Request::SendMsg { fd, .. } => waits(fd, Direction::Write, true),
            Request::Connect { fd, .. } => waits(fd, Direction::Write, true),
        }
    }

    /// Makes one attempt. Never blocks.
    ///
    /// # Safety
    ///
    /// What the request points at is valid, and nobody else uses it meanwhile.
    pub(crate) unsafe fn attempt(&self) -> Attempt {
        match *self {
            Request::Recv {
                fd,
                buf,
                len,
                flags,
            } => received(
                len as usize,
                again(|| socket::recv_now(borrow(fd), buf, len as usize, flags)),
            ),
            Request::RecvMsg { fd, msg } => came_to(again(|| socket::recvmsg_now(borrow(fd), msg))),
            Request::Send { fd, buf, len } => {
                // SAFETY: by this function's contract.
                let bytes = unsafe { std::slice::from_raw_parts(buf, len as usize) };
                came_to(again(|| socket::send_now(borrow(fd), bytes)))
            }
            Request::SendMsg { fd, msg } => came_to(again(|| socket::sendmsg_now(borrow(fd), msg))),
            Request::Accept { fd, addr, len } => came_to(
                again(|| socket::accept_now(borrow(fd), addr.cast(), len)).map(|fd| fd as usize),
            ),
            Request::Connect { fd, addr, len } => {
                connected(socket::connect_now(borrow(fd), addr, len))
            }
        }
    }
}

/// The descriptor of a request: one that is closed, or was never open, makes calls fail.
fn borrow<'a>(fd: i32) -> BorrowedFd<'a> {
    // SAFETY: whoever made the request keeps the descriptor open until it has completed; calls are
    // made with the bare number, and -1 is not among what an open descriptor gives.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Repeats a call that a signal interrupted.
fn again<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            r => return r,
        }
    }
}

fn came_to(r: io::Result<usize>) -> Attempt {
    match r {
        Ok(n) => done(n as i32, 0),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Attempt::NotReady,
        Err(e) => done(-errno(&e), 0),
    }
}

/// A receive that filled a large buffer has most likely left something. One that filled
/// a small one has more likely got the one message that it was made for.
fn received(len: usize, r: io::Result<usize>) -> Attempt {
    match r {
        Ok(n) if n == len && len >= LARGE => done(n as i32, SOCK_NONEMPTY),
        r => came_to(r),
    }
}

fn connected(r: io::Result<()>) -> Attempt {
    match r.as_ref().map_err(errno) {
        Ok(()) => done(0, 0),
        // A signal does not stop a connection from being made.
        Err(libc::EINPROGRESS | libc::EALREADY | libc::EINTR) => Attempt::NotReady,
        // A Unix listener's queue is full, and no readiness tells when it is not.
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

//! Waiting until a descriptor is ready.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::op::{self, Deadline};
use crate::netpoll::sqe::Request;
use crate::sched::ambient;
use crate::sched::park::{self, Caller};
use crate::sys::clock::{self, NEVER};
use crate::sys::socket;

/// Waits until reading from a descriptor would not wait: there is something to read,
/// the other side has ended, or there is an error to fetch.
///
/// Any descriptor that `poll(2)` knows: sockets, pipes, terminals, eventfd, timerfd,
/// inotify, pidfd. Another reader may be quicker, so read in non-blocking mode.
///
/// # Blocking
///
/// Parks the goroutine; blocks a plain thread.
///
/// # Errors
///
/// The kernel's.
///
/// # Examples
///
/// ```
/// use std::io::Write;
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
/// rt.run(|| {
///     let (reader, mut writer) = std::io::pipe()?;
///     writer.write_all(b"!")?;
///     windlass::io::wait_readable(&reader)
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn wait_readable(fd: impl AsFd) -> io::Result<()> {
    wait(fd.as_fd(), libc::POLLIN, NEVER)
}

/// As [`wait_readable`], for some time.
///
/// # Blocking
///
/// As [`wait_readable`].
///
/// # Errors
///
/// `TimedOut`, or the kernel's.
pub fn wait_readable_timeout(fd: impl AsFd, timeout: Duration) -> io::Result<()> {
    wait(fd.as_fd(), libc::POLLIN, clock::deadline_ns(timeout))
}

/// As [`wait_readable`], until a moment. One that has passed: is it ready now?
///
/// # Blocking
///
/// As [`wait_readable`].
///
/// # Errors
///
/// `TimedOut`, or the kernel's.
pub fn wait_readable_deadline(fd: impl AsFd, deadline: Instant) -> io::Result<()> {
    wait(fd.as_fd(), libc::POLLIN, clock::instant_ns(deadline))
}

/// Waits until writing to a descriptor would not wait: there is room, or an error to
/// fetch.
///
/// # Blocking
///
/// As [`wait_readable`].
///
/// # Errors
///
/// The kernel's.
pub fn wait_writable(fd: impl AsFd) -> io::Result<()> {
    wait(fd.as_fd(), libc::POLLOUT, NEVER)
}

/// As [`wait_writable`], for some time.
///
/// # Blocking
///
/// As [`wait_readable`].
///
/// # Errors
///
/// `TimedOut`, or the kernel's.
pub fn wait_writable_timeout(fd: impl AsFd, timeout: Duration) -> io::Result<()> {
    wait(fd.as_fd(), libc::POLLOUT, clock::deadline_ns(timeout))
}

/// As [`wait_writable`], until a moment. One that has passed: is it ready now?
///
/// # Blocking
///
/// As [`wait_readable`].
///
/// # Errors
///
/// `TimedOut`, or the kernel's.
pub fn wait_writable_deadline(fd: impl AsFd, deadline: Instant) -> io::Result<()> {
    wait(fd.as_fd(), libc::POLLOUT, clock::instant_ns(deadline))
}

fn wait(fd: BorrowedFd<'_>, events: i16, deadline_ns: u64) -> io::Result<()> {
    wait_until(fd, events, Deadline::at(deadline_ns)).map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(
            io::ErrorKind::TimedOut,
            "the descriptor was not ready in time",
        ),
        _ => e,
    })
}

/// Waits for one of `events`; `WouldBlock` at the deadline.
pub(crate) fn wait_until(
    fd: BorrowedFd<'_>,
    events: i16,
    deadline: Deadline<'_>,
) -> io::Result<()> {
    match park::caller() {
        Caller::Goroutine(g) if !deadline.has_passed() => {
            let request = Request::PollAdd {
                fd: fd.as_raw_fd(),
                events: events as u32,
            };
            // SAFETY: the request points at nothing; the descriptor is borrowed until this returns.
            unsafe { op::run_until(g, request, deadline) }.map(drop)
        }
        // Only looks, if the deadline has passed.
        _ => {
            park::cancel_point()?;
            match poll(fd, events, deadline.ns())? {
                true => Ok(()),
                false => Err(io::ErrorKind::WouldBlock.into()),
            }
        }
    }
}

/// Waits on a plain thread until the descriptor shows one of `events`, or the deadline
/// (`false`), or until the ambient context is done: its cancellation wakes no thread, so
/// that is looked for.
pub(crate) fn poll(fd: BorrowedFd<'_>, events: i16, deadline_ns: u64) -> io::Result<bool> {
    loop {
        ambient::check()?;
        let chain = park::current_chain();
        if !chain.is_some() {
            return socket::poll(fd, events, deadline_ns);
        }
        let look_up_ns = (clock::now_ns() + park::LOOK_UP_NS).min(chain.deadline_ns());
        if socket::poll(fd, events, deadline_ns.min(look_up_ns))? {
            return Ok(true);
        }
        if deadline_ns <= clock::now_ns() {
            return Ok(false);
        }
    }
}

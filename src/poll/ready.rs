//! Waits until a descriptor is ready.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::op::{self, Deadline};
use super::sim_socket;
use super::waits::Waits;
use crate::sched::wait::current_context;
use crate::sched::wait::park::{self, Caller};
use crate::sched::wait::points;
use crate::sched::wait::sleep;
use crate::sys::clock::{self, NEVER};
use crate::sys::socket;
use crate::util::ladder;

/// Waits until a read from the descriptor would not block: bytes are there, the other end is
/// closed, or an error is pending.
///
/// The descriptor may be anything that `poll(2)` supports: a socket, a pipe, a terminal, an
/// eventfd, a timerfd, an inotify descriptor, a pidfd. Another reader may take the bytes first, so
/// read in non-blocking mode ([`Async`](crate::io::Async) does that).
///
/// # Blocking
///
/// Parks the goroutine until the descriptor is readable; blocks a plain thread.
///
/// # Errors
///
/// The errors of `poll(2)`.
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

/// Waits as [`wait_readable`] does, at most for `timeout`.
///
/// # Blocking
///
/// As [`wait_readable`].
///
/// # Errors
///
/// `TimedOut` after `timeout`; those of `poll(2)`.
///
/// # Examples
///
/// ```
/// use std::io::{self, ErrorKind};
/// use std::time::Duration;
///
/// let (reader, _writer) = io::pipe()?;
/// let error = windlass::io::wait_readable_timeout(&reader, Duration::from_millis(1)).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::TimedOut);
/// # Ok::<(), io::Error>(())
/// ```
pub fn wait_readable_timeout(fd: impl AsFd, timeout: Duration) -> io::Result<()> {
    wait(fd.as_fd(), libc::POLLIN, clock::deadline_ns(timeout))
}

/// Waits as [`wait_readable`] does, until `deadline`. If `deadline` has passed, the call checks
/// readiness without waiting.
///
/// # Blocking
///
/// As [`wait_readable`].
///
/// # Errors
///
/// `TimedOut` at `deadline`; those of `poll(2)`.
///
/// # Examples
///
/// ```
/// use std::io::{self, ErrorKind, Write};
/// use std::time::Instant;
/// use windlass::io::wait_readable_deadline;
///
/// let (reader, mut writer) = io::pipe()?;
/// let now = Instant::now();
/// assert_eq!(wait_readable_deadline(&reader, now).unwrap_err().kind(), ErrorKind::TimedOut);
/// writer.write_all(b"!")?;
/// wait_readable_deadline(&reader, now)?;
/// # Ok::<(), io::Error>(())
/// ```
pub fn wait_readable_deadline(fd: impl AsFd, deadline: impl Into<Instant>) -> io::Result<()> {
    let deadline = deadline.into();
    wait(fd.as_fd(), libc::POLLIN, clock::instant_ns(deadline))
}

/// Waits until a write to the descriptor would not block: there is room, or an error is pending.
///
/// # Blocking
///
/// Parks the goroutine until the descriptor is writable; blocks a plain thread.
///
/// # Errors
///
/// The errors of `poll(2)`.
///
/// # Examples
///
/// ```
/// let (_reader, writer) = std::io::pipe()?;
/// windlass::io::wait_writable(&writer)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn wait_writable(fd: impl AsFd) -> io::Result<()> {
    wait(fd.as_fd(), libc::POLLOUT, NEVER)
}

/// Waits as [`wait_writable`] does, at most for `timeout`.
///
/// # Blocking
///
/// As [`wait_writable`].
///
/// # Errors
///
/// `TimedOut` after `timeout`; those of `poll(2)`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// let (_reader, writer) = std::io::pipe()?;
/// windlass::io::wait_writable_timeout(&writer, Duration::from_secs(1))?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn wait_writable_timeout(fd: impl AsFd, timeout: Duration) -> io::Result<()> {
    wait(fd.as_fd(), libc::POLLOUT, clock::deadline_ns(timeout))
}

/// Waits as [`wait_writable`] does, until `deadline`. If `deadline` has passed, the call checks
/// readiness without waiting.
///
/// # Blocking
///
/// As [`wait_writable`].
///
/// # Errors
///
/// `TimedOut` at `deadline`; those of `poll(2)`.
///
/// # Examples
///
/// ```
/// use std::time::Instant;
///
/// let (_reader, writer) = std::io::pipe()?;
/// windlass::io::wait_writable_deadline(&writer, Instant::now())?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn wait_writable_deadline(fd: impl AsFd, deadline: impl Into<Instant>) -> io::Result<()> {
    let deadline = deadline.into();
    wait(fd.as_fd(), libc::POLLOUT, clock::instant_ns(deadline))
}

/// Waits for one of `events`. Fails with `TimedOut` at the deadline.
pub(super) fn wait(fd: BorrowedFd<'_>, events: i16, deadline_ns: u64) -> io::Result<()> {
    wait_until(fd, events, Deadline::at(deadline_ns)).map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => not_in_time(),
        _ => e,
    })
}

/// The error of a wait at its deadline.
pub(super) fn not_in_time() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "the descriptor was not ready in time",
    )
}

/// Waits for one of `events`. Fails with `WouldBlock` at the deadline.
pub(crate) fn wait_until(
    fd: BorrowedFd<'_>,
    events: i16,
    deadline: Deadline<'_>,
) -> io::Result<()> {
    if let Some(waited) = sim_socket::wait_until(fd, events & libc::POLLIN != 0, deadline) {
        return waited;
    }
    match park::caller() {
        Caller::Goroutine(g) if !deadline.has_passed() => op::poll(g, fd, events, deadline),
        // On a goroutine whose deadline has passed, the poll does not wait.
        _ => {
            points::cancel_point()?;
            match poll(fd, events, deadline.ns())? {
                true => Ok(()),
                false => Err(io::ErrorKind::WouldBlock.into()),
            }
        }
    }
}

impl Waits<'_> {
    /// Waits until another attempt is worthwhile. `fd` is the same each time.
    ///
    /// # Errors
    ///
    /// `WouldBlock` at the deadline; the context's if that is done.
    pub(crate) fn wait(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if sim_socket::is_simulated(fd) {
            // It is never shown as ready in vain.
            return wait_until(fd, self.events, self.deadline);
        }
        self.wait_by(fd, wait_until)
    }
}

/// Waits on a plain thread until the descriptor shows one of `events` (`true`) or the deadline
/// passes (`false`). Fails when the ambient context is done, or the run of the goroutine ends: neither
/// wakes the thread, so it looks for them ([`sleep::look_up_ns`]).
pub(crate) fn poll(fd: BorrowedFd<'_>, events: i16, deadline_ns: u64) -> io::Result<bool> {
    loop {
        current_context::check()?;
        points::cancel_point()?;
        let chain = park::current_chain();
        let look_ns = clock::now_ns().saturating_add(sleep::look_up_ns(chain));
        let until_ns = deadline_ns.min(look_ns).min(chain.deadline_ns());
        if socket::poll(fd, events, until_ns)? {
            return Ok(true);
        }
        if deadline_ns <= clock::now_ns() {
            return Ok(false);
        }
    }
}

/// The shortest and the longest pause between two looks. Between these limits, a pause is
/// 1/[`PART`] of the time waited so far, which bounds the relative delay.
const FIRST_PAUSE_NS: u64 = ladder::LATE_NS / 2;
const LAST_PAUSE_NS: u64 = 5 * ladder::HOG_NS;
const PART: u64 = 8;

/// Waits for something that no descriptor reports: calls `look` until it finds it. Fails when the
/// ambient context is done.
pub(crate) fn look_for<T>(mut look: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    let begun_ns = clock::now_ns();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        // An ended context cuts the sleep short without an error, so check here.
        current_context::check()?;
        let now_ns = clock::now_ns();
        let pause_ns = ((now_ns - begun_ns) / PART).clamp(FIRST_PAUSE_NS, LAST_PAUSE_NS);
        sleep::sleep_until(now_ns + pause_ns)?;
    }
}

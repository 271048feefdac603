//! The steps that all functions share: an attempt, a wait for readiness, another attempt.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libc::{c_int, c_short, pollfd, timespec};
use windlass::foreign::{self, NEVER};

use crate::handlers;
use crate::raw::sys;

/// The calling thread's `errno`. Not inlined, and with assembly that keeps the compiler from merging
/// two calls: the goroutine may be on another thread than a moment ago.
#[inline(never)]
pub(crate) fn errno() -> c_int {
    // SAFETY: the empty assembly touches nothing; the address is valid on this thread.
    unsafe {
        std::arch::asm!("", options(nostack, preserves_flags));
        *libc::__errno_location()
    }
}

/// Sets the `errno` of the thread on which the goroutine is now.
#[inline(never)]
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: as in `errno`.
    unsafe {
        std::arch::asm!("", options(nostack, preserves_flags));
        *libc::__errno_location() = value;
    }
}

/// The result of libc's function: the result, or -1 with `errno`.
pub(crate) fn give(done: Result<isize, c_int>) -> isize {
    done.unwrap_or_else(|errno| {
        set_errno(errno);
        -1
    })
}

/// Waits by `f`. A call that succeeds leaves `errno` as it was. A run that ends makes each wait fail at
/// once, and a caller that ignores errors may try again for ever: it must not burn the CPU.
pub(crate) fn parked<T>(f: impl FnOnce() -> Result<T, c_int>) -> Result<T, c_int> {
    let before = errno();
    let done = f();
    if matches!(done, Err(libc::ECANCELED)) {
        slow_down();
    }
    set_errno(before);
    done
}

/// Calls `f`, which blocks, in a section in which the P is handed to another thread. The goroutine
/// stays on its own.
pub(crate) fn in_section<T>(f: impl FnOnce() -> T) -> T {
    // Handing over makes system calls, too.
    let (done, errno) = foreign::block(|| handlers::without_parks(|| (f(), errno())));
    set_errno(errno);
    done
}

pub(crate) fn slow_down() {
    foreign::block(|| nap(Duration::from_millis(1)));
}

/// Blocks the thread.
pub(crate) fn nap(time: Duration) {
    let ts = timespec_of(time);
    // SAFETY: the time is valid during the call; what is left is not asked for.
    let _ = unsafe { sys!(libc::SYS_nanosleep, &raw const ts, 0_usize) };
}

pub(crate) fn timespec_of(time: Duration) -> timespec {
    timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// `None` for a time that the kernel refuses.
pub(crate) fn duration_of(ts: timespec) -> Option<Duration> {
    let nanos = u32::try_from(ts.tv_nsec)
        .ok()
        .filter(|&n| n < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(ts.tv_sec).ok()?, nanos))
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    Read,
    Write,
}

impl For {
    fn events(self) -> c_short {
        match self {
            For::Read => libc::POLLIN,
            For::Write => libc::POLLOUT,
        }
    }

    fn timeout(self) -> c_int {
        match self {
            For::Read => libc::SO_RCVTIMEO,
            For::Write => libc::SO_SNDTIMEO,
        }
    }
}

/// How a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// It does not wait.
    AtOnce,
    /// It blocks the thread.
    Blocking,
}

/// The waits of one call that has found nothing at its first attempt, in blocking mode. They hold the file, as a system
/// call does: another thread may close the descriptor meanwhile, or make it another file's.
#[derive(Debug)]
pub(crate) struct Waits {
    fd: c_int,
    direction: For,
    deadline_ns: u64,
    waits: foreign::Waits,
    /// Another descriptor of the file, from the first wait for readiness on.
    copy: Option<OwnedFd>,
}

impl Waits {
    pub(crate) fn new(fd: c_int, direction: For) -> Waits {
        let deadline_ns = socket_deadline(fd, direction);
        Waits {
            fd,
            direction,
            deadline_ns,
            waits: foreign::Waits::new(direction.events(), deadline_ns),
            copy: None,
        }
    }

    /// Counts the socket's timeout anew.
    pub(crate) fn begin_anew(&mut self) {
        self.deadline_ns = socket_deadline(self.fd(), self.direction);
        self.waits = foreign::Waits::new(self.direction.events(), self.deadline_ns);
    }

    /// The descriptor to use for the next attempt.
    pub(crate) fn fd(&self) -> c_int {
        self.copy.as_ref().map_or(self.fd, AsRawFd::as_raw_fd)
    }

    pub(crate) fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Waits until another attempt is worthwhile. Fails with `EAGAIN` at the socket's timeout.
    pub(crate) fn ready(&mut self) -> Result<(), c_int> {
        let copy = self.hold()?;
        match self.waits.wait_for_copy(copy)? {
            true => Ok(()),
            false => Err(libc::EAGAIN),
        }
    }

    /// Waits, and makes an attempt by `call`, until that finds something.
    pub(crate) fn transfer(
        &mut self,
        mut call: impl FnMut(c_int, How) -> Result<isize, c_int>,
    ) -> Result<isize, c_int> {
        let mut shut = false;
        loop {
            if !shut {
                if self.hold().is_err() {
                    return in_section(|| call(self.fd, How::Blocking));
                }
                self.ready()?;
            }
            match call(self.fd(), How::AtOnce) {
                // An attempt after the shutdown found nothing: there will be nothing.
                Err(libc::EAGAIN) if shut => return Ok(0),
                Err(libc::EAGAIN) => {
                    shut = self.direction == For::Read && shows(self.fd(), libc::POLLRDHUP);
                }
                done => return done,
            }
        }
    }

    /// Another descriptor of the file. Fails where none is left: then only a blocking call can hold it.
    pub(crate) fn hold(&mut self) -> Result<c_int, c_int> {
        if self.copy.is_none() {
            // Not one of the standard streams, should these be closed.
            // SAFETY: takes plain numbers.
            let copy = unsafe { sys!(libc::SYS_fcntl, self.fd, libc::F_DUPFD_CLOEXEC, 3) }?;
            // SAFETY: the call returned a descriptor that has no other owner.
            self.copy = Some(unsafe { OwnedFd::from_raw_fd(copy as c_int) });
        }
        Ok(self.fd())
    }
}

/// Keeps `poll` and `select` from spinning where a wait ends for an event that they were not asked
/// for: `select` for exceptions does not report an error.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    at_once: u32,
}

impl Pace {
    /// This many waits may end at once.
    const FREE: u32 = 8;
    /// A wait that is shorter did not park.
    const AT_ONCE_NS: u64 = 20_000;
    /// The first pause. Each is twice as long as the one before, up to eight times this.
    const PAUSE_NS: u64 = 1_000_000;
    const DOUBLED_AT_MOST: u32 = 3;

    pub(crate) fn wait(&mut self, deadline_ns: u64, wait: impl FnOnce() -> Waited) -> Waited {
        if let Some(in_vain) = self.at_once.checked_sub(Self::FREE) {
            let pause_ns = Self::PAUSE_NS << in_vain.min(Self::DOUBLED_AT_MOST);
            let until_ns = foreign::now_ns().saturating_add(pause_ns);
            if !foreign::sleep_until(until_ns.min(deadline_ns)) {
                return Waited::Failed(libc::ECANCELED);
            }
            // The wait would not see it: it ends at once.
            if deadline_ns <= foreign::now_ns() {
                return Waited::TimedOut;
            }
        }
        let begin_ns = foreign::now_ns();
        let waited = wait();
        if foreign::now_ns().saturating_sub(begin_ns) < Self::AT_ONCE_NS {
            self.at_once = self.at_once.saturating_add(1);
        } else {
            self.at_once = 0;
        }
        waited
    }
}

/// Whether `O_NONBLOCK` is set. Of a bad descriptor: yes, so that nothing waits for it.
pub(crate) fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: takes plain numbers.
    let flags = unsafe { sys!(libc::SYS_fcntl, fd, libc::F_GETFL) };
    flags.is_ok_and(|flags| flags as c_int & libc::O_NONBLOCK != 0) || flags.is_err()
}

/// An option of a socket, of one or two machine words.
pub(crate) fn option<T: Copy>(fd: c_int, option: c_int, mut value: T) -> Result<T, c_int> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let (at, len_at) = (&raw mut value, &raw mut len);
    // SAFETY: the value is as long as `len` says. Callers ask for plain numbers.
    unsafe {
        sys!(
            libc::SYS_getsockopt,
            fd,
            libc::SOL_SOCKET,
            option,
            at,
            len_at
        )
    }?;
    Ok(value)
}

/// When `SO_RCVTIMEO` or `SO_SNDTIMEO` ends a wait that begins now.
pub(crate) fn socket_deadline(fd: c_int, direction: For) -> u64 {
    let zero = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let Ok(time) = option(fd, direction.timeout(), zero) else {
        return NEVER;
    };
    if (time.tv_sec, time.tv_usec) == (0, 0) {
        return NEVER;
    }
    let secs = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
    let micros = Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0));
    foreign::deadline_ns(secs + micros)
}

/// Whether the descriptor shows `event` now. `POLLRDHUP`: the socket was shut down for reading. Then a
/// datagram socket stays readable, and an attempt says `EAGAIN` where a blocking call returns 0.
pub(crate) fn shows(fd: c_int, event: c_short) -> bool {
    let mut one = pollfd {
        fd,
        events: event,
        revents: 0,
    };
    // SAFETY: the array of one is valid during the call.
    let ready = unsafe { poll_for(&raw mut one, 1, Some(Duration::ZERO)) };
    ready == Ok(1) && one.revents & event != 0
}

/// `poll` that blocks for at most `time`.
///
/// # Safety
///
/// As `poll(2)`.
pub(crate) unsafe fn poll_for(
    fds: *mut pollfd,
    n: u32,
    time: Option<Duration>,
) -> Result<isize, c_int> {
    let mut left = time.map(timespec_of);
    let left = left
        .as_mut()
        .map_or(std::ptr::null_mut(), std::ptr::from_mut);
    // SAFETY: by this function's contract; there is no signal mask.
    unsafe { sys!(libc::SYS_ppoll, fds, n, left, 0_usize, 0_usize) }
}

/// The outcome of a wait for several descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// Look again.
    Ready,
    TimedOut,
    /// An `errno`.
    Failed(c_int),
    /// The kernel has no means for this set: only a blocking call can wait.
    Impossible,
}

/// Parks until one of the descriptors is ready.
pub(crate) fn wait_for_any(fds: &[pollfd], deadline_ns: u64) -> Waited {
    let mut open = fds.iter().filter(|one| one.fd >= 0);
    match (open.next(), open.next()) {
        (None, _) => match foreign::sleep_until(deadline_ns) {
            true => Waited::TimedOut,
            false => Waited::Failed(libc::ECANCELED),
        },
        (Some(one), None) if is_polled_directly(one.events) => {
            match foreign::wait(one.fd, one.events, deadline_ns) {
                // It was closed after the attempt, or `select` looks no further than the table.
                Err(libc::EBADF) => Waited::Impossible,
                r => waited(r),
            }
        }
        _ => wait_in_epoll(fds, deadline_ns),
    }
}

/// io_uring ignores a wake for `POLLPRI` alone, and the epoll poller waits for nothing where only
/// errors are asked for.
fn is_polled_directly(events: c_short) -> bool {
    events & libc::POLLPRI == 0 && events & (libc::POLLIN | libc::POLLOUT) != 0
}

fn waited(r: Result<bool, c_int>) -> Waited {
    match r {
        Ok(true) => Waited::Ready,
        Ok(false) => Waited::TimedOut,
        Err(errno) => Waited::Failed(errno),
    }
}

/// An epoll instance is readable when one of its descriptors is ready.
fn wait_in_epoll(fds: &[pollfd], deadline_ns: u64) -> Waited {
    // SAFETY: takes a plain number.
    let Ok(set) = (unsafe { sys!(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) }) else {
        return Waited::Impossible;
    };
    // SAFETY: the call returned a descriptor that has no other owner.
    let set = unsafe { OwnedFd::from_raw_fd(set as c_int) };
    let mut open = fds.iter().filter(|one| one.fd >= 0);
    if open.all(|one| add(set.as_raw_fd(), one, fds)) {
        waited(foreign::wait(set.as_raw_fd(), libc::POLLIN, deadline_ns))
    } else {
        Waited::Impossible
    }
}

fn add(set: c_int, one: &pollfd, all: &[pollfd]) -> bool {
    let control = |how: c_int, events: c_short| {
        let mut event = libc::epoll_event {
            events: u32::from(events.cast_unsigned()),
            u64: 0,
        };
        // SAFETY: the event is valid during the call.
        unsafe { sys!(libc::SYS_epoll_ctl, set, how, one.fd, &raw mut event) }
    };
    match control(libc::EPOLL_CTL_ADD, one.events) {
        Ok(_) => true,
        // The descriptor is listed twice: it waits for the events of both.
        Err(libc::EEXIST) => {
            let same = all.iter().filter(|other| other.fd == one.fd);
            let events = same.fold(0, |events, other| events | other.events);
            control(libc::EPOLL_CTL_MOD, events).is_ok()
        }
        // A file that is always ready, and was asked for nothing that it shows.
        Err(libc::EPERM) => true,
        Err(_) => false,
    }
}

#[cfg(test)]
#[path = "wait_tests.rs"]
mod tests;

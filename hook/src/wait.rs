//! What the functions have in common: an attempt, a wait for readiness, another attempt.
#![allow(unsafe_code)]

use std::time::Duration;

use libc::{c_int, c_short, pollfd, timespec};
use windlass::foreign::{self, NEVER};

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

pub(crate) fn fail(errno: c_int) -> isize {
    if errno == libc::ECANCELED {
        slow_down();
    }
    set_errno(errno);
    -1
}

/// The run ends, and a caller that ignores errors may try again for ever: it must not burn the CPU.
pub(crate) fn slow_down() {
    foreign::block(|| nap(Duration::from_millis(1)));
}

/// Blocks the thread.
pub(crate) fn nap(time: Duration) {
    let ts = timespec_of(time);
    // SAFETY: the time is valid during the call; what is left is not asked for.
    unsafe {
        libc::syscall(
            libc::SYS_nanosleep,
            &raw const ts,
            std::ptr::null_mut::<timespec>(),
        )
    };
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

/// The waits of one call. Its timeout counts from the first one.
#[derive(Debug)]
pub(crate) struct Waits {
    fd: c_int,
    direction: For,
    waits: Option<foreign::Waits>,
}

impl Waits {
    pub(crate) fn new(fd: c_int, direction: For) -> Waits {
        Waits {
            fd,
            direction,
            waits: None,
        }
    }

    pub(crate) fn has_waited(&self) -> bool {
        self.waits.is_some()
    }

    /// Waits until another attempt is worthwhile. Fails with `EAGAIN` in non-blocking mode and at
    /// the socket's timeout.
    pub(crate) fn ready(&mut self) -> Result<(), c_int> {
        let waits = match &mut self.waits {
            Some(waits) => waits,
            None if is_nonblocking(self.fd) => return Err(libc::EAGAIN),
            none => {
                let deadline_ns = socket_deadline(self.fd, self.direction);
                none.insert(foreign::Waits::new(self.direction.events(), deadline_ns))
            }
        };
        match waits.wait(self.fd)? {
            true => Ok(()),
            false => Err(libc::EAGAIN),
        }
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
    const PAUSE_NS: u64 = 1_000_000;

    pub(crate) fn wait(&mut self, deadline_ns: u64, wait: impl FnOnce() -> Waited) -> Waited {
        let begin_ns = foreign::now_ns();
        if self.at_once > 0 && deadline_ns <= begin_ns {
            // The descriptors may show as ready all the time.
            return Waited::TimedOut;
        }
        if self.at_once >= Self::FREE {
            let pause_ns = begin_ns.saturating_add(Self::PAUSE_NS);
            if !foreign::sleep_until(pause_ns.min(deadline_ns)) {
                return Waited::Failed(libc::ECANCELED);
            }
            return wait();
        }
        let waited = wait();
        if foreign::now_ns().saturating_sub(begin_ns) < Self::AT_ONCE_NS {
            self.at_once += 1;
        } else {
            self.at_once = 0;
        }
        waited
    }
}

/// Whether `O_NONBLOCK` is set. Of a bad descriptor: yes, so that nothing waits for it.
pub(crate) fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: takes plain numbers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags < 0 || flags & libc::O_NONBLOCK != 0
}

/// When `SO_RCVTIMEO` or `SO_SNDTIMEO` ends a wait that begins now.
pub(crate) fn socket_deadline(fd: c_int, direction: For) -> u64 {
    let mut time = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let mut len = size_of_val(&time) as libc::socklen_t;
    // SAFETY: the value is as long as `len` says.
    let r = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            direction.timeout(),
            (&raw mut time).cast(),
            &raw mut len,
        )
    };
    if r != 0 || (time.tv_sec, time.tv_usec) == (0, 0) {
        return NEVER;
    }
    let secs = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
    let micros = Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0));
    foreign::deadline_ns(secs + micros)
}

/// Whether the socket was shut down for reading: then a datagram socket stays readable, and an
/// attempt says `EAGAIN` where a blocking call returns 0.
pub(crate) fn is_shut_for_reading(fd: c_int) -> bool {
    let mut one = pollfd {
        fd,
        events: libc::POLLRDHUP,
        revents: 0,
    };
    // SAFETY: the array of one is valid during the call.
    unsafe { poll_now(&raw mut one, 1) == 1 && one.revents & libc::POLLRDHUP != 0 }
}

/// `poll` that does not wait.
///
/// # Safety
///
/// As `poll(2)`.
pub(crate) unsafe fn poll_now(fds: *mut pollfd, n: libc::nfds_t) -> c_int {
    let mut zero = timespec_of(Duration::ZERO);
    let no_mask = std::ptr::null::<libc::sigset_t>();
    // SAFETY: by this function's contract.
    unsafe { libc::syscall(libc::SYS_ppoll, fds, n, &raw mut zero, no_mask, 8_usize) as c_int }
}

/// What became of a wait for several descriptors.
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
        (Some(one), None) => waited(foreign::wait(one.fd, one.events, deadline_ns)),
        _ => wait_in_epoll(fds, deadline_ns),
    }
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
    let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if set < 0 {
        return Waited::Impossible;
    }
    let waited = if fds
        .iter()
        .filter(|one| one.fd >= 0)
        .all(|one| add(set, one, fds))
    {
        waited(foreign::wait(set, libc::POLLIN, deadline_ns))
    } else {
        Waited::Impossible
    };
    // SAFETY: this function has opened the descriptor, and nobody else knows it.
    unsafe { libc::close(set) };
    waited
}

fn add(set: c_int, one: &pollfd, all: &[pollfd]) -> bool {
    let mut event = libc::epoll_event {
        events: u32::from(one.events.cast_unsigned()),
        u64: 0,
    };
    // SAFETY: the event is valid during the call.
    if unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, one.fd, &raw mut event) } == 0 {
        return true;
    }
    match errno() {
        // The same descriptor twice: it waits for the events of both.
        libc::EEXIST => {
            let same = all.iter().filter(|other| other.fd == one.fd);
            event.events = same.fold(0, |events, other| {
                events | u32::from(other.events.cast_unsigned())
            });
            // SAFETY: as above.
            unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_MOD, one.fd, &raw mut event) == 0 }
        }
        // A file that is always ready, and was asked for nothing that it shows.
        libc::EPERM => true,
        _ => false,
    }
}

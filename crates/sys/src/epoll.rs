//! `epoll(7)` and `eventfd(2)`: readiness of descriptors, and the means by which another thread
//! ends a wait for it.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::clock::{self, NEVER};
use super::errno::cvt;
use super::raw;

/// `struct epoll_event`: the ready events, and the number registered with the descriptor.
pub type Event = libc::epoll_event;

/// An empty event, to fill buffers.
pub const NO_EVENT: Event = Event { events: 0, u64: 0 };

/// Makes an epoll instance, close-on-exec.
pub fn create() -> io::Result<OwnedFd> {
    // SAFETY: takes a plain integer.
    let fd = cvt(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: the call returned a descriptor that has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes an eventfd, close-on-exec and non-blocking.
pub fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: takes plain integers.
    let fd = cvt(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: the call returned a descriptor that has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Adds one to an eventfd. Never blocks; if the counter is full, the eventfd is readable anyway.
#[cfg_attr(explore, track_caller)]
pub fn signal(eventfd: BorrowedFd<'_>) {
    #[cfg(explore)]
    windlass_explorer::point_of_call();
    let one = 1u64.to_ne_bytes();
    // SAFETY: the bytes are valid during the call.
    unsafe { raw::write(eventfd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Registers `fd` for `events`, which are reported with `data`. Replaces an earlier registration of
/// `fd`.
///
/// # Errors
///
/// `EPERM` for a file that is always ready, `EBADF`, `ENOSPC` at the limit
/// `fs.epoll.max_user_watches`, `ENOMEM`.
pub fn set(epfd: BorrowedFd<'_>, fd: BorrowedFd<'_>, events: u32, data: u64) -> io::Result<()> {
    // A descriptor that was registered once nearly always still is.
    match ctl(epfd, libc::EPOLL_CTL_MOD, fd, events, data) {
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {
            ctl(epfd, libc::EPOLL_CTL_ADD, fd, events, data)
        }
        r => r,
    }
}

/// Removes the registration of `fd`.
///
/// # Errors
///
/// `ENOENT` if there is none, `EBADF`.
pub fn remove(epfd: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> io::Result<()> {
    ctl(epfd, libc::EPOLL_CTL_DEL, fd, 0, 0)
}

#[cfg_attr(explore, track_caller)]
fn ctl(
    epfd: BorrowedFd<'_>,
    op: i32,
    fd: BorrowedFd<'_>,
    events: u32,
    data: u64,
) -> io::Result<()> {
    #[cfg(explore)]
    windlass_explorer::point_of_call();
    let (epfd, fd) = (epfd.as_raw_fd(), fd.as_raw_fd());
    let mut event = Event { events, u64: data };
    // SAFETY: the event is valid during the call.
    cvt(unsafe { libc::epoll_ctl(epfd, op, fd, &raw mut event) }).map(drop)
}

/// Whether there are events to collect. Any thread; collects none.
pub fn has_events(epfd: BorrowedFd<'_>) -> bool {
    let mut pollfd = libc::pollfd {
        fd: epfd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the array of one is valid during the call, which does not wait.
    unsafe { raw::poll_now(&raw mut pollfd, 1) == 1 }
}

/// Collects as many events as fit, and waits up to `timeout_ns` nanoseconds ([`NEVER`]: without
/// limit) for the first. Returns their number.
///
/// # Errors
///
/// `EINTR`; `ENOSYS` or a sandbox's error where [`wait_ms`] must be used (before Linux 5.11).
#[cfg_attr(explore, allow(unreachable_code), track_caller)]
pub fn wait(epfd: BorrowedFd<'_>, events: &mut [Event], timeout_ns: u64) -> io::Result<usize> {
    #[cfg(explore)]
    return windlass_explorer::epoll_wait(epfd, events, timeout_ns);
    let ts = clock::timespec(timeout_ns);
    let ts_ptr: *const libc::timespec = if timeout_ns == NEVER {
        std::ptr::null()
    } else {
        &raw const ts
    };
    // SAFETY:
    // - the buffer has room for as many events as its length says.
    // - the timeout is null or outlives the call; a null mask is allowed.
    let n = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epfd.as_raw_fd(),
            events.as_mut_ptr(),
            events.len(),
            ts_ptr,
            std::ptr::null::<libc::sigset_t>(),
            0,
        )
    };
    cvt(n as libc::c_int).map(|n| n as usize)
}

/// As [`wait`], for kernels and sandboxes without `epoll_pwait2`: the timeout is rounded up to
/// milliseconds.
pub fn wait_ms(epfd: BorrowedFd<'_>, events: &mut [Event], timeout_ns: u64) -> io::Result<usize> {
    let ms = if timeout_ns == NEVER {
        -1
    } else {
        timeout_ns.div_ceil(1_000_000).min(i32::MAX as u64) as i32
    };
    // SAFETY: the buffer has room for as many events as its length says.
    // No mask: as `epoll_wait`, which not every architecture has as a system call.
    let n = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait,
            epfd.as_raw_fd(),
            events.as_mut_ptr(),
            events.len() as i32,
            ms,
            std::ptr::null::<libc::sigset_t>(),
            0,
        ) as libc::c_int
    };
    cvt(n).map(|n| n as usize)
}

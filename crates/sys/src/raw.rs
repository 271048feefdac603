//! The calls that wait, as raw system calls.
//!
//! A program may replace libc's functions of these names, as the crate windlass-hook does, by ones
//! that park the calling goroutine. windlass makes these calls inside the scheduler and on behalf
//! of goroutines that have parked already, so it never calls libc's functions of these names. On
//! failure each returns -1 and sets `errno`. The race detector does not see them: they tell it of the bytes.
#![allow(unsafe_code)]

use std::ffi::c_void;

use libc::{
    c_int, c_long, iovec, mmsghdr, msghdr, off_t, pollfd, sockaddr, socklen_t, syscall, timespec,
};

use crate::race;

#[cfg(explore)]
use windlass_explorer::{receives, sends};

/// Of the twin such a call has a price.
#[cfg(not(explore))]
#[inline(always)]
fn sends(call: impl FnOnce() -> isize) -> isize {
    call()
}

#[cfg(not(explore))]
#[inline(always)]
fn receives(call: impl FnOnce() -> isize) -> isize {
    call()
}

/// A null pointer where the kernel allows one.
const NONE: *const c_void = std::ptr::null();

/// The upper half of an offset, which is whole in the lower one on 64-bit machines.
const NO_HIGH_HALF: c_long = 0;

/// # Safety
///
/// As `read(2)`.
#[inline]
pub unsafe fn read(fd: c_int, buf: *mut c_void, len: usize) -> isize {
    let _received = race::receives();
    // SAFETY: by this function's contract.
    unsafe { syscall(libc::SYS_read, fd as c_long, buf, len) as isize }
}

/// # Safety
///
/// As `write(2)`.
#[inline]
pub unsafe fn write(fd: c_int, buf: *const c_void, len: usize) -> isize {
    race::sends();
    // SAFETY: by this function's contract.
    unsafe { syscall(libc::SYS_write, fd as c_long, buf, len) as isize }
}

/// # Safety
///
/// As `readv(2)`.
#[inline]
pub unsafe fn readv(fd: c_int, iov: *const iovec, n: c_int) -> isize {
    let _received = race::receives();
    // SAFETY: by this function's contract.
    unsafe { syscall(libc::SYS_readv, fd as c_long, iov, n as c_long) as isize }
}

/// # Safety
///
/// As `writev(2)`.
#[inline]
pub unsafe fn writev(fd: c_int, iov: *const iovec, n: c_int) -> isize {
    race::sends();
    // SAFETY: by this function's contract.
    unsafe { syscall(libc::SYS_writev, fd as c_long, iov, n as c_long) as isize }
}

/// # Safety
///
/// As `preadv(2)`.
#[inline]
pub unsafe fn preadv(fd: c_int, iov: *const iovec, n: c_int, offset: off_t) -> isize {
    let _received = race::receives();
    let (fd, n) = (fd as c_long, n as c_long);
    // SAFETY: by this function's contract.
    unsafe { syscall(libc::SYS_preadv, fd, iov, n, offset, NO_HIGH_HALF) as isize }
}

/// # Safety
///
/// As `pwritev(2)`.
#[inline]
pub unsafe fn pwritev(fd: c_int, iov: *const iovec, n: c_int, offset: off_t) -> isize {
    race::sends();
    let (fd, n) = (fd as c_long, n as c_long);
    // SAFETY: by this function's contract.
    unsafe { syscall(libc::SYS_pwritev, fd, iov, n, offset, NO_HIGH_HALF) as isize }
}

/// # Safety
///
/// As `preadv2(2)`.
#[inline]
pub unsafe fn preadv2(
    fd: c_int,
    iov: *const iovec,
    n: c_int,
    offset: off_t,
    flags: c_int,
) -> isize {
    let _received = race::receives();
    let (fd, n, flags) = (fd as c_long, n as c_long, flags as c_long);
    // SAFETY: by this function's contract.
    unsafe { syscall(libc::SYS_preadv2, fd, iov, n, offset, NO_HIGH_HALF, flags) as isize }
}

/// # Safety
///
/// As `pwritev2(2)`.
#[inline]
pub unsafe fn pwritev2(
    fd: c_int,
    iov: *const iovec,
    n: c_int,
    offset: off_t,
    flags: c_int,
) -> isize {
    race::sends();
    let (fd, n, flags) = (fd as c_long, n as c_long, flags as c_long);
    // SAFETY: by this function's contract.
    unsafe { syscall(libc::SYS_pwritev2, fd, iov, n, offset, NO_HIGH_HALF, flags) as isize }
}

/// # Safety
///
/// As `recv(2)`.
#[inline]
pub unsafe fn recv(fd: c_int, buf: *mut c_void, len: usize, flags: c_int) -> isize {
    let _received = race::receives();
    let (fd, flags) = (fd as c_long, flags as c_long);
    // SAFETY: by this function's contract; the sender's address is not asked for.
    receives(|| unsafe { syscall(libc::SYS_recvfrom, fd, buf, len, flags, NONE, NONE) as isize })
}

/// # Safety
///
/// As `send(2)`.
#[inline]
pub unsafe fn send(fd: c_int, buf: *const c_void, len: usize, flags: c_int) -> isize {
    race::sends();
    let (fd, flags, no_len) = (fd as c_long, flags as c_long, 0 as c_long);
    // SAFETY: by this function's contract; there is no address.
    sends(|| unsafe { syscall(libc::SYS_sendto, fd, buf, len, flags, NONE, no_len) as isize })
}

/// # Safety
///
/// As `recvmsg(2)`.
#[inline]
pub unsafe fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> isize {
    let _received = race::receives();
    // SAFETY: by this function's contract.
    receives(|| unsafe { syscall(libc::SYS_recvmsg, fd as c_long, msg, flags as c_long) as isize })
}

/// # Safety
///
/// As `sendmsg(2)`.
#[inline]
pub unsafe fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> isize {
    race::sends();
    // SAFETY: by this function's contract.
    sends(|| unsafe { syscall(libc::SYS_sendmsg, fd as c_long, msg, flags as c_long) as isize })
}

/// # Safety
///
/// As `recvmmsg(2)`, without a timeout.
#[inline]
pub unsafe fn recvmmsg(fd: c_int, msgs: *mut mmsghdr, n: u32, flags: c_int) -> c_int {
    let _received = race::receives();
    let (fd, n, flags) = (fd as c_long, n as c_long, flags as c_long);
    // SAFETY: by this function's contract.
    unsafe { syscall(libc::SYS_recvmmsg, fd, msgs, n, flags, NONE) as c_int }
}

/// # Safety
///
/// As `sendmmsg(2)`.
#[inline]
pub unsafe fn sendmmsg(fd: c_int, msgs: *mut mmsghdr, n: u32, flags: c_int) -> c_int {
    race::sends();
    let (fd, n, flags) = (fd as c_long, n as c_long, flags as c_long);
    // SAFETY: by this function's contract.
    unsafe { syscall(libc::SYS_sendmmsg, fd, msgs, n, flags) as c_int }
}

/// # Safety
///
/// As `accept4(2)`.
#[inline]
pub unsafe fn accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
    let _received = race::receives();
    // SAFETY: by this function's contract.
    unsafe { syscall(libc::SYS_accept4, fd as c_long, addr, len, flags as c_long) as c_int }
}

/// # Safety
///
/// As `connect(2)`.
#[inline]
pub unsafe fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    race::sends();
    // SAFETY: by this function's contract.
    unsafe { syscall(libc::SYS_connect, fd as c_long, addr, len as c_long) as c_int }
}

/// `ppoll(2)` without a signal mask.
///
/// # Safety
///
/// As `ppoll(2)`; `timeout` may be null.
#[inline]
pub unsafe fn ppoll(fds: *mut pollfd, n: usize, timeout: *const timespec) -> c_int {
    let _received = race::receives();
    // The kernel writes what is left of the timeout.
    // SAFETY: by this function's contract.
    let mut left = unsafe { timeout.as_ref() }.copied();
    let left = left
        .as_mut()
        .map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let no_len: c_long = 0;
    // SAFETY: by this function's contract.
    unsafe { syscall(libc::SYS_ppoll, fds, n, left, NONE, no_len) as c_int }
}

/// `poll(2)` that does not wait.
///
/// # Safety
///
/// As `poll(2)`.
#[inline]
pub unsafe fn poll_now(fds: *mut pollfd, n: usize) -> c_int {
    let at_once = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: by this function's contract.
    unsafe { ppoll(fds, n, &raw const at_once) }
}

/// # Safety
///
/// As `nanosleep(2)`.
pub unsafe fn nanosleep(time: *const timespec) -> c_int {
    // SAFETY: by this function's contract; what is left is not asked for.
    unsafe { syscall(libc::SYS_nanosleep, time, NONE) as c_int }
}

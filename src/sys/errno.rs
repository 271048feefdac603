//! `errno` is thread-local; a goroutine that changes threads takes its value along.
#![allow(unsafe_code)]

use std::io;

/// Turns a C return value into a `Result`: -1 means look at `errno`.
pub(crate) fn cvt(r: libc::c_int) -> io::Result<libc::c_int> {
    if r == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(r)
    }
}

/// Like [`cvt`], for calls that return a length.
pub(crate) fn cvt_len(r: isize) -> io::Result<usize> {
    usize::try_from(r).map_err(|_| io::Error::last_os_error())
}

/// Reads this thread's `errno`.
///
/// Never inlined, and gives a value: the address of a thread-local must not be
/// kept across a stack switch (see `sched::current`).
#[inline(never)]
pub(crate) fn get() -> i32 {
    // SAFETY: the location is valid for the life of the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's `errno`. Never inlined, for the same reason as [`get`].
#[inline(never)]
pub(crate) fn set(value: i32) {
    // SAFETY: the location is valid for the life of the calling thread.
    unsafe { *libc::__errno_location() = value };
}

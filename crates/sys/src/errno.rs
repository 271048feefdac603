//! `errno` is thread-local; a goroutine that changes threads takes its value with it.
#![allow(unsafe_code)]

use std::io;

/// Turns a C return value into a `Result`: -1 means an error in `errno`.
#[inline]
pub fn cvt(r: libc::c_int) -> io::Result<libc::c_int> {
    if r == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(r)
    }
}

/// Like [`cvt`], for calls that return a length.
#[inline]
pub fn cvt_len(r: isize) -> io::Result<usize> {
    usize::try_from(r).map_err(|_| io::Error::last_os_error())
}

/// The address of this thread's `errno`: valid as long as the thread.
#[inline]
pub fn location() -> *mut i32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::__errno_location() }
}

/// Repeats a system call that a signal interrupted.
#[inline]
pub fn retry<T>(mut f: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match f() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            r => return r,
        }
    }
}

/// Whether a call would have had to wait.
pub fn is_would_block<T>(r: &io::Result<T>) -> bool {
    r.as_ref()
        .is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
}

//! File calls that `std` does not offer: a read that does not wait for the disk,
//! and the status flags of a descriptor.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::errno::{cvt, cvt_len};

/// Reads what is in the page cache, at `offset`, or with `None` at the file's own
/// position (which moves on, as with `read(2)`).
///
/// # Errors
///
/// `WouldBlock` if the first byte must come from the disk; `EOPNOTSUPP` where the
/// file system cannot tell.
pub(crate) fn read_cached(
    fd: BorrowedFd<'_>,
    buf: &mut [u8],
    offset: Option<u64>,
) -> io::Result<usize> {
    let iov = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    };
    let offset = match offset.map(i64::try_from) {
        None => -1,
        Some(Ok(offset)) => offset,
        Some(Err(_)) => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
    };
    // SAFETY: the vector names the one buffer, which is valid for writes during the call.
    cvt_len(unsafe { libc::preadv2(fd.as_raw_fd(), &raw const iov, 1, offset, libc::RWF_NOWAIT) })
}

/// The status flags (`O_DIRECT`, `O_NONBLOCK`, access mode, ..) of an open file.
pub(crate) fn flags(fd: BorrowedFd<'_>) -> io::Result<i32> {
    // SAFETY: takes plain integers.
    cvt(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })
}

/// Sets the status flags that can be changed.
pub(crate) fn set_flags(fd: BorrowedFd<'_>, flags: i32) -> io::Result<()> {
    // SAFETY: takes plain integers.
    cvt(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags) }).map(drop)
}

/// Reserves room with `fallocate(2)`, mode 0.
pub(crate) fn allocate(fd: BorrowedFd<'_>, offset: i64, len: i64) -> io::Result<()> {
    // SAFETY: takes plain integers.
    cvt(unsafe { libc::fallocate(fd.as_raw_fd(), 0, offset, len) }).map(drop)
}

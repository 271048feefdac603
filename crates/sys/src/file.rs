//! File calls that `std` does not offer, or only through its own types: reading, writing and
//! splicing, also without waiting; status flags.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::errno::{cvt, cvt_len};
use super::raw;

/// `preadv2(2)` of the bytes available without waiting, not even for a disk. An offset of -1 means
/// the file's current position.
///
/// # Errors
///
/// `EAGAIN` if there are none; `EOPNOTSUPP` if the file does not support it.
///
/// # Safety
///
/// The buffers are valid for writes.
#[inline]
pub unsafe fn readv_now(fd: BorrowedFd<'_>, iov: &[libc::iovec], offset: i64) -> io::Result<usize> {
    let n = iov.len() as libc::c_int;
    // SAFETY: by this function's contract.
    cvt_len(unsafe { raw::preadv2(fd.as_raw_fd(), iov.as_ptr(), n, offset, libc::RWF_NOWAIT) })
}

/// `pwritev2(2)` of as many bytes as there is room for without waiting. An offset of -1 means the
/// file's current position.
///
/// # Errors
///
/// As [`readv_now`].
///
/// # Safety
///
/// The buffers are valid for reads.
#[inline]
pub unsafe fn writev_now(
    fd: BorrowedFd<'_>,
    iov: &[libc::iovec],
    offset: i64,
) -> io::Result<usize> {
    let n = iov.len() as libc::c_int;
    // SAFETY: by this function's contract.
    cvt_len(unsafe { raw::pwritev2(fd.as_raw_fd(), iov.as_ptr(), n, offset, libc::RWF_NOWAIT) })
}

/// Whether [`readv_now`] fails on any file: a sandbox denies the call, or the kernel does not have it.
pub fn denies_readv_now() -> bool {
    // SAFETY: there are no buffers; a number that is no descriptor is an error.
    let r = cvt_len(unsafe { raw::preadv2(-1, std::ptr::null(), 0, -1, libc::RWF_NOWAIT) });
    r.is_err_and(|e| e.raw_os_error() != Some(libc::EBADF))
}

/// As [`denies_readv_now`], for [`writev_now`].
pub fn denies_writev_now() -> bool {
    // SAFETY: as above.
    let r = cvt_len(unsafe { raw::pwritev2(-1, std::ptr::null(), 0, -1, libc::RWF_NOWAIT) });
    r.is_err_and(|e| e.raw_os_error() != Some(libc::EBADF))
}

/// `preadv(2)`, or `readv(2)` for offset -1. Blocks.
///
/// # Safety
///
/// The buffers are valid for writes.
#[inline]
pub unsafe fn readv_at(fd: BorrowedFd<'_>, iov: &[libc::iovec], offset: i64) -> io::Result<usize> {
    let (fd, n) = (fd.as_raw_fd(), iov.len() as libc::c_int);
    // SAFETY: by this function's contract.
    cvt_len(unsafe {
        match offset {
            -1 => raw::readv(fd, iov.as_ptr(), n),
            _ => raw::preadv(fd, iov.as_ptr(), n, offset),
        }
    })
}

/// `pwritev(2)`, or `writev(2)` for offset -1. Blocks.
///
/// # Safety
///
/// The buffers are valid for reads.
#[inline]
pub unsafe fn writev_at(fd: BorrowedFd<'_>, iov: &[libc::iovec], offset: i64) -> io::Result<usize> {
    let (fd, n) = (fd.as_raw_fd(), iov.len() as libc::c_int);
    // SAFETY: by this function's contract.
    cvt_len(unsafe {
        match offset {
            -1 => raw::writev(fd, iov.as_ptr(), n),
            _ => raw::pwritev(fd, iov.as_ptr(), n, offset),
        }
    })
}

/// `splice(2)` of at most `len` bytes. Does not wait for a pipe; whether it waits for the other
/// descriptor depends on that one's mode.
pub fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    let null = std::ptr::null_mut();
    // SAFETY: takes descriptors and plain numbers; null means no offset.
    cvt_len(unsafe {
        libc::splice(
            from.as_raw_fd(),
            null,
            to.as_raw_fd(),
            null,
            len,
            libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK,
        )
    })
}

/// Requests a capacity for a pipe. Returns the actual capacity: a limit may forbid the change.
pub fn set_pipe_bytes(fd: BorrowedFd<'_>, bytes: usize) -> usize {
    // SAFETY: takes a descriptor and plain numbers.
    let set = cvt(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETPIPE_SZ, bytes as i32) });
    // SAFETY: as above.
    let has = set.or_else(|_| cvt(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETPIPE_SZ) }));
    has.map_or(0, |bytes| bytes as usize)
}

/// Whether the descriptor is of a pipe or a FIFO.
pub fn is_pipe(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: takes a descriptor and a plain number.
    cvt(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETPIPE_SZ) }).is_ok()
}

/// Whether `O_NONBLOCK` is set.
pub fn is_nonblocking(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(flags(fd)? & libc::O_NONBLOCK != 0)
}

/// Sets or clears `O_NONBLOCK`. Returns the previous state.
pub fn set_nonblocking(fd: BorrowedFd<'_>, on: bool) -> io::Result<bool> {
    // SAFETY: takes a descriptor and plain numbers.
    let flags = cvt(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    let before = flags & libc::O_NONBLOCK != 0;
    if before != on {
        // SAFETY: as above.
        cvt(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags ^ libc::O_NONBLOCK) })?;
    }
    Ok(before)
}

/// Reads bytes that are in the page cache, at `offset`, or for `None` at the file's current
/// position (which advances, as with `read(2)`).
///
/// # Errors
///
/// `WouldBlock` if the first byte must come from the disk; `EOPNOTSUPP` where the file system does
/// not support it.
pub fn read_cached(fd: BorrowedFd<'_>, buf: &mut [u8], offset: Option<u64>) -> io::Result<usize> {
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
    cvt_len(unsafe { raw::preadv2(fd.as_raw_fd(), &raw const iov, 1, offset, libc::RWF_NOWAIT) })
}

/// Whether a non-blocking pipe has a writer, or bytes. A read into invalid memory shows it: it
/// returns 0 at the end, EAGAIN without data, or EFAULT with data.
pub fn has_writer(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: the kernel refuses to write to that address.
    match cvt_len(unsafe { raw::read(fd.as_raw_fd(), std::ptr::null_mut(), 1) }) {
        Ok(n) => Ok(n > 0),
        Err(e) => match e.raw_os_error() {
            Some(libc::EAGAIN | libc::EFAULT) => Ok(true),
            Some(libc::EINTR) => Ok(false),
            _ => Err(e),
        },
    }
}

/// The status flags (`O_DIRECT`, `O_NONBLOCK`, access mode, ..) of an open file.
pub fn flags(fd: BorrowedFd<'_>) -> io::Result<i32> {
    // SAFETY: takes plain integers.
    cvt(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })
}

/// Sets the status flags, as far as they can be changed.
pub fn set_flags(fd: BorrowedFd<'_>, flags: i32) -> io::Result<()> {
    // SAFETY: takes plain integers.
    cvt(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags) }).map(drop)
}

/// Whether polling a descriptor is meaningful: not for a regular file, which is always ready.
pub fn is_polled(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let kind = kind_of(fd)?;
    Ok(matches!(kind, libc::S_IFIFO | libc::S_IFCHR | libc::S_IFSOCK) || kind == 0)
}

/// Whether a descriptor is of a character device.
pub fn is_device(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(kind_of(fd)? == libc::S_IFCHR)
}

/// The kind of a file, as in its mode; 0 for one that is none of these.
fn kind_of(fd: BorrowedFd<'_>) -> io::Result<libc::mode_t> {
    // SAFETY: all-zero is a valid struct, which the call overwrites.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the struct is valid for writes; a number that is no descriptor is an error.
    cvt(unsafe { libc::fstat(fd.as_raw_fd(), &raw mut stat) })?;
    Ok(stat.st_mode & libc::S_IFMT)
}

/// Reserves space with `fallocate(2)`, mode 0.
pub fn allocate(fd: BorrowedFd<'_>, offset: i64, len: i64) -> io::Result<()> {
    // SAFETY: takes plain integers.
    cvt(unsafe { libc::fallocate(fd.as_raw_fd(), 0, offset, len) }).map(drop)
}

/// `fsync(2)` or `fdatasync(2)`.
pub fn sync(fd: BorrowedFd<'_>, data_only: bool) -> io::Result<()> {
    // SAFETY: takes plain integers.
    cvt(unsafe {
        if data_only {
            libc::fdatasync(fd.as_raw_fd())
        } else {
            libc::fsync(fd.as_raw_fd())
        }
    })
    .map(drop)
}

/// `open(2)`. The caller owns the descriptor.
pub fn open(path: &CStr, flags: i32, mode: libc::mode_t) -> io::Result<i32> {
    // SAFETY: the path ends with a zero byte and outlives the call.
    cvt(unsafe { libc::open(path.as_ptr(), flags, libc::c_uint::from(mode)) })
}

/// The device with these numbers, in the form of `st_dev`.
pub fn device(major: u32, minor: u32) -> u64 {
    libc::makedev(major, minor)
}

//! The kernel's error numbers, as errors.

use std::io;

pub use libc::{
    EAGAIN, EBADF, EBUSY, EEXIST, EFBIG, EINVAL, EIO, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOSPC,
    ENOTDIR, ENOTEMPTY, EPERM,
};
pub use libc::{O_ACCMODE, O_RDONLY, O_WRONLY};
pub use libc::{
    O_APPEND, O_CREAT, O_DIRECT, O_DIRECTORY, O_DSYNC, O_EXCL, O_NOATIME, O_NOFOLLOW, O_PATH,
    O_SYNC, O_TMPFILE, O_TRUNC,
};
pub(super) use libc::{S_IFDIR, S_IFLNK, S_IFREG};

/// The error with the kernel's number.
pub fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// The error as a result.
pub fn fail<T>(number: i32) -> io::Result<T> {
    Err(error(number))
}

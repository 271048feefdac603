//! Processes: a descriptor that stands for one, and how many descriptors this one may have.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::errno::cvt;

/// A descriptor, close-on-exec, that becomes readable when the process ends (Linux 5.3).
///
/// # Errors
///
/// `ESRCH` if there is no such process, `ENOSYS` or `EPERM` in a sandbox.
pub(crate) fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes plain integers.
    let fd = cvt(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as libc::c_int)?;
    // SAFETY: the kernel gave this descriptor to this call alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// How many descriptors this process may have (`RLIMIT_NOFILE`).
pub(crate) fn max_descriptors() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the place is valid for a write of the structure. Failure leaves zeros.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

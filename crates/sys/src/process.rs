//! Processes: pidfds, the limit on descriptors, and the detection of forks.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::errno::cvt;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Ordering: relaxed; it changes only while the process has a single thread, and later threads are
/// started after that.
static N_FORKS: AtomicUsize = AtomicUsize::new(0);

/// The number of forks between the process that first called this and this one.
pub fn n_forks() -> usize {
    extern "C" fn in_child() {
        N_FORKS.fetch_add(1, Ordering::Relaxed);
    }
    static COUNTED: Once = Once::new();
    COUNTED.call_once(|| {
        // SAFETY: the handler is a function of this program, and may run after any fork. Failure
        // (no memory) leaves forks uncounted.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    N_FORKS.load(Ordering::Relaxed)
}

/// A descriptor, close-on-exec, that becomes readable when the process ends (Linux 5.3).
///
/// # Errors
///
/// `ESRCH` if there is no such process, `ENOSYS` or `EPERM` in a sandbox.
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes plain integers.
    let fd = cvt(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as libc::c_int)?;
    // SAFETY: the kernel returned this descriptor to this call only.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The most descriptors that this process may have (`RLIMIT_NOFILE`).
pub fn max_descriptors() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure is valid for writes. On failure it stays zero.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

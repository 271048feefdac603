//! Processes: a descriptor that stands for one, how many descriptors this one may have, and
//! whether it is a child that goes on with its parent's memory.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::errno::cvt;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Ordering: relaxed; it changes where the process has one thread only, and later threads are
/// started after that.
static N_FORKS: AtomicUsize = AtomicUsize::new(0);

/// How many forks lie between the process that called this first and this one.
pub(crate) fn n_forks() -> usize {
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

/// Runs `f` in a child that is a copy of this process, and tells how that ended: well if `f` gave
/// `true`.
#[cfg(all(test, not(loom)))]
pub(crate) fn in_fork(f: impl FnOnce() -> bool) -> std::process::ExitStatus {
    use std::os::unix::process::ExitStatusExt;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    // SAFETY: the child has this thread only. `f` waits for no other, and glibc's allocator is
    // usable in a child.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let is_well = catch_unwind(AssertUnwindSafe(f)).unwrap_or(false);
        // SAFETY: takes a plain number; nothing of the parent's is run.
        unsafe { libc::_exit(i32::from(!is_well)) };
    }
    assert!(pid > 0, "{}", io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: the place is valid for a write, and the child is this thread's own.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    std::process::ExitStatus::from_raw(status)
}

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

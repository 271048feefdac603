//! Threads in the kernel's scheduler: ids, priorities, cross-CPU barriers, and threads for a single
//! piece of work.
#![allow(unsafe_code)]

use std::io;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;

use super::errno::cvt;

const MEMBARRIER_CMD_PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

/// The calling thread's kernel id.
pub(crate) fn gettid() -> i32 {
    // SAFETY: takes no argument and cannot fail.
    unsafe { libc::gettid() }
}

/// The CPU on which the caller is running; 0 where that is unknown. No system call.
pub(crate) fn current_cpu() -> usize {
    // SAFETY: takes no argument.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// The effective user of the process.
pub(crate) fn effective_uid() -> u32 {
    // SAFETY: takes no argument and cannot fail.
    unsafe { libc::geteuid() }
}

/// Registers the process for [`membarrier`]. Called once, before threads use it.
///
/// # Errors
///
/// `ENOSYS` or `EPERM` where a sandbox denies the call.
pub(crate) fn membarrier_register() -> io::Result<()> {
    // SAFETY: takes plain integers.
    let r = unsafe {
        libc::syscall(
            libc::SYS_membarrier,
            MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
            0,
            0,
        )
    };
    cvt(r as libc::c_int).map(drop)
}

/// A full memory barrier on every CPU that runs a thread of this process, so that the other side of
/// a Dekker-like protocol needs only a compiler barrier.
///
/// # Errors
///
/// The kernel's, if [`membarrier_register`] did not succeed before.
#[cfg_attr(explore, allow(unreachable_code), track_caller)]
pub(crate) fn membarrier() -> io::Result<()> {
    #[cfg(explore)]
    return {
        crate::explore::point_of_membarrier();
        Ok(())
    };
    // SAFETY: takes plain integers.
    let r = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) };
    cvt(r as libc::c_int).map(drop)
}

/// Sets the nice value of thread `tid`.
///
/// # Errors
///
/// `EPERM` or `EACCES` when raising the priority without `CAP_SYS_NICE`.
#[cfg_attr(explore, allow(unreachable_code, unused_variables))]
pub(crate) fn set_nice(tid: i32, nice: i32) -> io::Result<()> {
    // There, the host's scheduler does not choose the thread that runs.
    #[cfg(explore)]
    return Ok(());
    // SAFETY: takes plain integers; on Linux PRIO_PROCESS with a thread id names one thread.
    cvt(unsafe { libc::setpriority(libc::PRIO_PROCESS, tid.cast_unsigned(), nice) }).map(drop)
}

/// Runs `f` on a thread of its own, which ends with it. Runs `f` in place if the kernel refuses a
/// thread.
pub(crate) fn on_own_thread<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    if cfg!(explore) {
        // The rings there belong to the explorer's threads, and no kernel interrupts anyone.
        return f();
    }
    let work = Mutex::new(Some(f));
    let take = || work.lock().unwrap_or_else(PoisonError::into_inner).take();
    // Not `thread::scope`: it leaves the calling thread unparked, so that the next
    // `thread::park` of the program would return at once.
    //
    // SAFETY: the thread borrows `work`, and is joined before this function returns.
    let thread = unsafe { Builder::new().spawn_unchecked(|| take().map(|f| f())) };
    let done = thread.map_or(None, |t| t.join().unwrap_or_else(|e| resume_unwind(e)));
    done.unwrap_or_else(|| take().expect("no thread has taken it")())
}

/// Sends a signal to thread `tid` of this process; `false` if there is no such thread.
#[cfg(any(feature = "backtrace", test))]
pub(crate) fn signal_thread(tid: i32, signal: libc::c_int) -> bool {
    // SAFETY: takes plain integers; the process's own id is not that of another process.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal) == 0 }
}

//! The calls of the kernel and of libc that a sample needs. All of them may be made in a signal handler.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU32;

/// Sleeps until `word` is woken, if it still holds `expected`, for at most `timeout_ns`; may return
/// early.
///
/// The address is passed a second time, which FUTEX_WAIT ignores. It marks the wait as windlass's own
/// for the crate windlass-hook, which hands the P of a goroutine over while it waits for others.
pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout_ns: u64) {
    let timeout = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `word` is a live, aligned 32-bit word and `timeout` a valid timespec for the whole call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            &raw const timeout,
            word.as_ptr(),
        );
    }
}

/// Wakes one thread that sleeps on `word`.
pub(crate) fn wake_one(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE reads no memory at the address.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        );
    }
}

/// The calling thread's kernel id.
pub(crate) fn gettid() -> i32 {
    // SAFETY: takes no argument and cannot fail.
    unsafe { libc::gettid() }
}

/// Sends a signal to thread `tid` of this process; `false` if there is no such thread.
pub(crate) fn signal_thread(tid: i32, signal: libc::c_int) -> bool {
    // SAFETY: takes plain integers; the process's own id is not that of another process.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal) == 0 }
}

/// The address of this thread's `errno`: valid as long as the thread.
pub(crate) fn errno() -> *mut i32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::__errno_location() }
}

/// Calls the handler that was installed before ours, if there was one.
///
/// # Safety
///
/// The caller is a handler of `signal` and passes the arguments that the kernel gave it; `before`
/// is from `sigaction`.
pub(crate) unsafe fn call_handler(
    before: &libc::sigaction,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let f = before.sa_sigaction;
    if f == libc::SIG_DFL || f == libc::SIG_IGN {
        return;
    }
    if before.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: with SA_SIGINFO the old handler has this signature.
        let f: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(f) };
        f(signal, info, context);
    } else {
        // SAFETY: without SA_SIGINFO the old handler takes only the signal's number.
        let f: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(f) };
        f(signal);
    }
}

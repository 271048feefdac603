//! Threads in the kernel's scheduler: ids, priorities, cross-CPU barriers, and threads for a single
//! piece of work.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;

use super::errno::cvt;

const MEMBARRIER_CMD_PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

/// The calling thread's kernel id.
#[inline]
pub fn gettid() -> i32 {
    // SAFETY: takes no argument and cannot fail.
    unsafe { libc::gettid() }
}

/// The system call in which a thread of this process waits, and its first argument, if it is one of those in
/// which programs block without meaning to.
pub fn waits_in(tid: i32) -> Option<(&'static str, u64)> {
    let calls = [
        (libc::SYS_read, "read"),
        (libc::SYS_readv, "readv"),
        (libc::SYS_recvfrom, "recvfrom"),
        (libc::SYS_recvmsg, "recvmsg"),
        (libc::SYS_write, "write"),
        (libc::SYS_writev, "writev"),
        (libc::SYS_sendto, "sendto"),
        (libc::SYS_sendmsg, "sendmsg"),
        (libc::SYS_accept4, "accept4"),
        (libc::SYS_connect, "connect"),
        (libc::SYS_futex, "futex"),
    ];
    // "running", or the number of the call and its arguments.
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).ok()?;
    let mut words = text.split_whitespace();
    let number: libc::c_long = words.next()?.parse().ok()?;
    let first = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    let (_, name) = calls.into_iter().find(|(known, _)| *known == number)?;
    Some((name, first))
}

/// The CPU on which the caller is running; 0 where that is unknown. No system call.
#[inline]
pub fn current_cpu() -> usize {
    // SAFETY: takes no argument.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// The effective user of the process.
pub fn effective_uid() -> u32 {
    // SAFETY: takes no argument and cannot fail.
    unsafe { libc::geteuid() }
}

/// Registers the process for [`membarrier`]. Called once, before threads use it.
///
/// # Errors
///
/// `ENOSYS` or `EPERM` where a sandbox denies the call.
pub fn membarrier_register() -> io::Result<()> {
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
#[inline]
#[cfg_attr(explore, allow(unreachable_code), track_caller)]
pub fn membarrier() -> io::Result<()> {
    #[cfg(explore)]
    return {
        windlass_explorer::point_of_membarrier();
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
pub fn set_nice(tid: i32, nice: i32) -> io::Result<()> {
    // There, the host's scheduler does not choose the thread that runs.
    #[cfg(explore)]
    return Ok(());
    // SAFETY: takes plain integers; on Linux PRIO_PROCESS with a thread id names one thread.
    cvt(unsafe { libc::setpriority(libc::PRIO_PROCESS, tid.cast_unsigned(), nice) }).map(drop)
}

/// The least time slice that a thread can ask for.
const SHORT_SLICE_NS: u64 = 100_000;

/// Sets the nice value and the time slice of thread `tid`; 0 is the calling thread. A thread that wakes
/// takes the CPU of one that has run for its slice. A slice of 0 is the kernel's own: some milliseconds.
/// Linux before 6.12 ignores the slice. `flags` are `SCHED_FLAG_KEEP_POLICY`, or the policy becomes
/// `SCHED_OTHER`.
///
/// # Errors
///
/// `EPERM` or `EACCES` when raising the priority without `CAP_SYS_NICE`, or where a sandbox denies the
/// call; `EINVAL` if the policy that is kept is a real-time one.
#[cfg_attr(explore, allow(unreachable_code, unused_variables))]
fn set_nice_and_slice(tid: i32, nice: i32, slice_ns: u64, flags: libc::c_int) -> io::Result<()> {
    #[cfg(explore)]
    return Ok(());
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: flags as u64,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: slice_ns,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the attributes are valid, and of the size that they state.
    let r = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attributes, 0) };
    cvt(r as libc::c_int).map(drop)
}

/// Gives the calling thread a short time slice: it gets its CPU sooner when it wakes, and gives way
/// sooner while it computes. Threads that it starts have a usual one. `false` if it has another policy or
/// priority than the usual ones, or a sandbox denies the call.
pub fn shorten_own_slice() -> bool {
    let flags = libc::SCHED_FLAG_RESET_ON_FORK;
    is_usual(0) && set_nice_and_slice(0, 0, SHORT_SLICE_NS, flags).is_ok()
}

/// Whether thread `tid` has the usual policy and priority; 0 is the calling thread. `false` where a sandbox
/// denies the question.
#[cfg_attr(explore, allow(unreachable_code, unused_variables))]
pub fn is_usual(tid: i32) -> bool {
    // As all changes of priorities succeed there.
    #[cfg(explore)]
    return true;
    let usual = (libc::SCHED_OTHER as u32, 0);
    attributes_of(tid).is_ok_and(|of| (of.sched_policy, of.sched_nice) == usual)
}

/// Gives a thread whose slice was shortened the kernel's own again. `false` if the kernel refuses.
pub fn lengthen_own_slice() -> bool {
    let Ok(own) = own_attributes() else {
        return false;
    };
    // Only where that is allowed does a program inherit nothing of `SCHED_FLAG_RESET_ON_FORK`.
    (own.sched_policy == libc::SCHED_OTHER as u32
        && set_nice_and_slice(0, own.sched_nice, 0, 0).is_ok())
        || set_nice_and_slice(0, own.sched_nice, 0, libc::SCHED_FLAG_KEEP_POLICY).is_ok()
}

/// How the kernel schedules the calling thread.
fn own_attributes() -> io::Result<libc::sched_attr> {
    attributes_of(0)
}

/// How the kernel schedules thread `tid`; 0 is the calling thread.
fn attributes_of(tid: i32) -> io::Result<libc::sched_attr> {
    let mut found = MaybeUninit::<libc::sched_attr>::zeroed();
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the place for the answer is valid, and of the size that is stated.
    let r = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, found.as_mut_ptr(), size, 0) };
    cvt(r as libc::c_int)?;
    // SAFETY: plain numbers, which the kernel has filled in.
    Ok(unsafe { found.assume_init() })
}

/// As [`set_nice`], for a thread whose slice was shortened: with a nice value of 0 it is short, and
/// otherwise the kernel's own.
///
/// # Errors
///
/// As [`set_nice`]; and `EINVAL` if the thread has got a real-time policy.
pub fn set_nice_of_shortened(tid: i32, nice: i32) -> io::Result<()> {
    let slice_ns = if nice == 0 { SHORT_SLICE_NS } else { 0 };
    // A goroutine may have given a thread that it has locked a policy of its own.
    set_nice_and_slice(tid, nice, slice_ns, libc::SCHED_FLAG_KEEP_POLICY)
}

/// Runs `f` on a thread of its own, which ends with it. Runs `f` in place if the kernel refuses a
/// thread.
pub fn on_own_thread<T: Send>(f: impl FnOnce() -> T + Send) -> T {
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

#[cfg(all(test, not(loom), not(explore)))]
mod tests {
    use super::*;

    /// The slice of the calling thread; 0 before Linux 6.12.
    fn slice_ns() -> u64 {
        own_attributes().unwrap().sched_runtime
    }

    fn usual_ns_of_a_new_thread() -> u64 {
        std::thread::spawn(slice_ns).join().unwrap()
    }

    #[test]
    fn what_a_thread_with_a_short_slice_starts_has_a_usual_one() {
        let usual_ns = slice_ns();
        let (is_short, own_ns, others_ns) = std::thread::spawn(|| {
            let is_short = shorten_own_slice();
            (is_short, slice_ns(), usual_ns_of_a_new_thread())
        })
        .join()
        .unwrap();
        assert_eq!(others_ns, usual_ns);
        let is_seen = is_short && usual_ns > 0;
        assert_eq!(own_ns, if is_seen { SHORT_SLICE_NS } else { usual_ns });
    }

    #[test]
    fn a_shortened_thread_may_be_demoted_and_restored() {
        std::thread::spawn(|| {
            if !shorten_own_slice() {
                return;
            }
            let short_ns = slice_ns();
            let tid = gettid();
            if set_nice_of_shortened(tid, 10).is_ok() {
                assert_eq!(slice_ns(), usual_ns_of_a_new_thread());
                // It is raised again only where that is allowed.
                if set_nice_of_shortened(tid, 0).is_ok() {
                    assert_eq!(slice_ns(), short_ns);
                }
            }
        })
        .join()
        .unwrap();
    }
}

//! Rings that carry out some operations only (`IORING_REGISTER_RESTRICTIONS`), for programs that know nothing of it.
//!
//! A filter sees no operation of a ring. So the filter here hands each `io_uring_setup` of the program to a supervisor
//! (`SECCOMP_RET_USER_NOTIF`), which makes the ring in its place, restricts it, and puts its descriptor into the
//! program.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread;

use crate::filter::{JUMP_IF_EQUAL, LOAD_WORD, RETURN, install_with, step};

/// The operations of rings, and of `io_uring_register`, that are allowed.
#[derive(Clone, Debug)]
pub(crate) struct Allowed {
    pub(crate) operations: Vec<u8>,
    pub(crate) registers: Vec<u8>,
}

/// Runs `f` on a thread whose processes get such rings only. So does the thread itself.
pub(crate) fn with_rings<T: Send>(allowed: &Allowed, f: impl FnOnce() -> T + Send) -> T {
    // On a thread without a ring: the end of a ring interrupts the threads that have used it, and an answer that is
    // interrupted may be lost.
    let supervisor = || {
        let (tell, told) = std::sync::mpsc::channel();
        thread::scope(|s| {
            let thread = s.spawn(move || {
                tell.send(listener()).unwrap();
                f()
            });
            let listener = told.recv().unwrap();
            supervise(&listener, allowed, || thread.is_finished());
            thread.join()
        })
    };
    let joined = thread::scope(|s| s.spawn(supervisor).join());
    match joined.and_then(|joined| joined) {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn supervise(listener: &OwnedFd, allowed: &Allowed, is_over: impl Fn() -> bool) {
    while !is_over() {
        let mut poll = libc::pollfd {
            fd: listener.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the array of one is valid during the call.
        let n = unsafe { libc::poll(&raw mut poll, 1, 20) };
        if n == 1 && poll.revents & libc::POLLIN != 0 {
            answer(listener, allowed);
        }
    }
}

/// Installs the filter in this thread, and returns the descriptor from which its calls are read.
fn listener() -> OwnedFd {
    let mut filter = [
        step(LOAD_WORD, 0, 0, 0),
        step(JUMP_IF_EQUAL, 0, 1, libc::SYS_io_uring_setup as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    // Signals do not interrupt a call that has been read: programs know that this one takes no time.
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let fd = install_with(flags, &mut filter);
    // SAFETY: the call has made the descriptor, and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// `SECCOMP_IOCTL_NOTIF_RECV`, `.._SEND`, `.._ADDFD`.
const RECV: libc::Ioctl = 0xc050_2100_u32 as libc::Ioctl;
const SEND: libc::Ioctl = 0xc018_2101_u32 as libc::Ioctl;
const ADD_FD: libc::Ioctl = 0x4018_2103_u32 as libc::Ioctl;

/// Makes a ring for the program that asks.
fn answer(listener: &OwnedFd, allowed: &Allowed) {
    // SAFETY: plain numbers, for which zeros are values.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is the call's, and valid meanwhile.
    if unsafe { libc::ioctl(listener.as_raw_fd(), RECV, &raw mut call) } != 0 {
        // The thread was killed meanwhile.
        return;
    }
    // For the same reason on a thread that has ended before the answer.
    let made = thread::scope(|s| s.spawn(|| ring(&call, allowed)).join().unwrap());
    let answered = match &made {
        Ok(ring) => {
            let add = libc::seccomp_notif_addfd {
                id: call.id,
                flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
                srcfd: ring.as_raw_fd() as u32,
                newfd: 0,
                newfd_flags: libc::O_CLOEXEC as u32,
            };
            // SAFETY: as above.
            unsafe { libc::ioctl(listener.as_raw_fd(), ADD_FD, &raw const add) }
        }
        Err(e) => {
            let response = libc::seccomp_notif_resp {
                id: call.id,
                val: 0,
                error: -e.raw_os_error().unwrap_or(libc::EINVAL),
                flags: 0,
            };
            // SAFETY: as above.
            unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw const response) }
        }
    };
    if answered < 0 {
        // The thread is gone; anything else would leave it waiting.
        let e = io::Error::last_os_error();
        assert_eq!(e.raw_os_error(), Some(libc::ENOENT), "{e}");
    }
}

/// The words of `io_uring_params`, of which the third has the flags.
type Params = [u32; 30];
const FLAGS: usize = 2;

/// The flag with which a ring begins disabled, and operations of `io_uring_register` that it takes then.
const R_DISABLED: u32 = 1 << 6;
const RESTRICTIONS: libc::c_long = 11;
const ENABLE: libc::c_long = 12;

/// `IORING_RESTRICTION_REGISTER_OP`, `.._SQE_OP`, `.._SQE_FLAGS_ALLOWED`.
const REGISTER: u16 = 0;
const OPERATION: u16 = 1;
const SQE_FLAGS: u16 = 2;

/// `struct io_uring_restriction`.
#[repr(C)]
struct Restriction {
    kind: u16,
    value: u8,
    rest: [u8; 13],
}

fn ring(call: &libc::seccomp_notif, allowed: &Allowed) -> io::Result<OwnedFd> {
    let (entries, at) = (call.data.args[0], call.data.args[1]);
    let mut params: Params = [0; 30];
    copy(call.pid, at, &mut params, libc::process_vm_readv)?;
    let asked = params[FLAGS];
    params[FLAGS] |= R_DISABLED;
    // SAFETY: the parameters are the call's, and valid meanwhile.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, params.as_mut_ptr()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has made the descriptor, and nobody else knows it.
    let ring = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let rule = |kind, value| Restriction {
        kind,
        value,
        rest: [0; 13],
    };
    let mut rules = vec![rule(SQE_FLAGS, u8::MAX)];
    rules.extend(allowed.registers.iter().map(|&op| rule(REGISTER, op)));
    rules.extend(allowed.operations.iter().map(|&op| rule(OPERATION, op)));
    let no_rules: &[Restriction] = &[];
    for (what, rules) in [(RESTRICTIONS, &*rules), (ENABLE, no_rules)] {
        let call = libc::SYS_io_uring_register;
        let at = if rules.is_empty() {
            std::ptr::null()
        } else {
            rules.as_ptr()
        };
        // SAFETY: the rules are as many as the call says, and valid meanwhile.
        if unsafe { libc::syscall(call, ring.as_raw_fd(), what, at, rules.len()) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    params[FLAGS] = asked;
    copy(call.pid, at, &mut params, libc::process_vm_writev)?;
    Ok(ring)
}

/// `process_vm_readv` or `process_vm_writev`.
type Copy = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

/// Copies the parameters from or to the program, whose thread waits meanwhile.
fn copy(pid: u32, at: u64, params: &mut Params, copy: Copy) -> io::Result<()> {
    let len = size_of::<Params>();
    let vector = |base| libc::iovec {
        iov_base: base,
        iov_len: len,
    };
    let here = vector(params.as_mut_ptr().cast());
    let there = vector(std::ptr::without_provenance_mut(at as usize));
    // SAFETY: the place here is as long as it says; the kernel checks that in the program.
    let n = unsafe { copy(pid as i32, &raw const here, 1, &raw const there, 1, 0) };
    if n == len as isize {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

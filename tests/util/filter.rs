//! A seccomp filter, as container engines install one.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(unsafe_code)]

use std::io;

/// Makes a system call answer `errno` in the whole process.
pub(crate) fn deny(syscall: libc::c_long, errno: i32) {
    deny_for(libc::SECCOMP_FILTER_FLAG_TSYNC, syscall, errno);
}

/// As [`deny`], in whose threads the flags say.
pub(crate) fn deny_for(flags: libc::c_ulong, syscall: libc::c_long, errno: i32) {
    deny_where(flags, syscall, None, errno);
}

/// Makes a socket option answer `errno` when it is set, in the whole process.
pub(crate) fn deny_option(option: i32, errno: i32) {
    let is_option = Some((2, option as u32));
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC;
    deny_where(flags, libc::SYS_setsockopt, is_option, errno);
}

/// As [`deny_for`]; with a position and a value only calls with this argument.
fn deny_where(
    flags: libc::c_ulong,
    syscall: libc::c_long,
    argument: Option<(u32, u32)>,
    errno: i32,
) {
    // The number of the call lies at offset 0 of what the filter sees, its arguments, eight bytes
    // each, from 16 on.
    let mut filter = vec![
        step(LOAD_WORD, 0, 0, 0),
        step(JUMP_IF_EQUAL, 0, 1, syscall as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    if let Some((position, value)) = argument {
        filter[1].jf = 3;
        let low_half = 16 + 8 * position + if cfg!(target_endian = "big") { 4 } else { 0 };
        let is_value = [
            step(LOAD_WORD, 0, 0, low_half),
            step(JUMP_IF_EQUAL, 0, 1, value),
        ];
        filter.splice(2..2, is_value);
    }
    install(flags, &mut filter);
}

pub(crate) const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
pub(crate) const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
pub(crate) const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// An instruction of a filter.
pub(crate) fn step(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// Installs a filter in the threads that the flags say.
pub(crate) fn install(flags: libc::c_ulong, filter: &mut [libc::sock_filter]) {
    let r = install_with(flags, filter);
    assert_eq!(r, 0, "the thread {r} is out of step");
}

/// As [`install`], and returns the call's result.
pub(crate) fn install_with(flags: libc::c_ulong, filter: &mut [libc::sock_filter]) -> i32 {
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the first call takes plain numbers; the second reads the program and the filter, which
    // live until it returns.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let set = libc::SECCOMP_SET_MODE_FILTER;
        let r = libc::syscall(libc::SYS_seccomp, set, flags, &raw const program);
        assert!(r >= 0, "{}", io::Error::last_os_error());
        r as i32
    }
}

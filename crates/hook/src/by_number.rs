//! `syscall`, by which `std` and parking_lot wait for a futex. Every other call goes to the kernel
//! by the same instructions as in libc.
#![allow(unsafe_code)]

use std::arch::naked_asm;
use std::ffi::c_void;

use libc::{c_int, c_long};

use crate::parks;
use crate::raw::sys;
use crate::wait::{give, in_section, set_errno};

/// `syscall(2)`. Naked, as it passes on arguments of any number and type, and must leave the stack
/// as it is for calls that return twice.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn syscall(number: c_long) -> c_long {
    naked_asm!(
        "cmp rdi, {futex}",
        "je 2f",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 3f",
        "ret",
        "2:",
        "jmp {wait}",
        "3:",
        "mov rdi, rax",
        "jmp {failed}",
        futex = const libc::SYS_futex,
        wait = sym futex,
        failed = sym failed,
    )
}

/// `syscall(2)`, as above.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn syscall(number: c_long) -> c_long {
    naked_asm!(
        "cmp x0, #{futex}",
        "b.eq 2f",
        "mov x8, x0",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "mov x5, x6",
        "svc #0",
        "cmn x0, #4095",
        "b.cs 3f",
        "ret",
        "2:",
        "b {wait}",
        "3:",
        "b {failed}",
        futex = const libc::SYS_futex,
        wait = sym futex,
        failed = sym failed,
    )
}

/// The kernel's result, which is a negated `errno`.
extern "C" fn failed(negated: c_long) -> c_long {
    set_errno(-negated as c_int);
    -1
}

/// `futex(2)`. While a goroutine waits for a futex, its thread does, but its P goes to another thread.
///
/// # Safety
///
/// As `futex(2)`.
unsafe extern "C" fn futex(
    number: c_long,
    word: *const c_void,
    op: c_int,
    value: u32,
    timeout: *const c_void,
    word_2: *const c_void,
    value_3: u32,
) -> c_long {
    let call = || {
        // SAFETY: by this function's contract.
        unsafe { sys!(number, word, op, value, timeout, word_2, value_3) }
    };
    let waits = matches!(
        op & libc::FUTEX_CMD_MASK,
        libc::FUTEX_WAIT
            | libc::FUTEX_WAIT_BITSET
            | libc::FUTEX_LOCK_PI
            | FUTEX_LOCK_PI2
            | libc::FUTEX_WAIT_REQUEUE_PI
    );
    // windlass marks its own waits by a second address, which is the first.
    let is_own = std::ptr::eq(word, word_2) && op & libc::FUTEX_CMD_MASK == libc::FUTEX_WAIT;
    if !waits || is_own || !parks() {
        return give(call()) as c_long;
    }
    let done = in_section(call);
    give(done) as c_long
}

const FUTEX_LOCK_PI2: c_int = 13;

//! `syscall`, by which `std` and parking_lot wait for a futex. Every other call goes to the kernel
//! by the same instructions as in libc.
#![allow(unsafe_code)]

use std::arch::naked_asm;
use std::ffi::c_void;

use libc::{c_int, c_long};
use windlass::foreign;

use crate::parks;
use crate::wait::{errno, set_errno};

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

/// What the kernel returned, which is a negated `errno`.
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
    // SAFETY: by this function's contract.
    let call = || unsafe { enter(number, [word, timeout, word_2], op, [value, value_3]) };
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
        return call();
    }
    let (r, errno) = foreign::block(|| (call(), errno()));
    if r < 0 {
        set_errno(errno);
    }
    r
}

const FUTEX_LOCK_PI2: c_int = 13;

/// The system call. Sets `errno`.
///
/// # Safety
///
/// As `futex(2)`.
#[cfg(target_arch = "x86_64")]
unsafe fn enter(
    number: c_long,
    [word, timeout, word_2]: [*const c_void; 3],
    op: c_int,
    [value, value_3]: [u32; 2],
) -> c_long {
    let r: c_long;
    // SAFETY: by this function's contract; the kernel changes these registers only.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => r,
            in("rdi") word,
            in("rsi") op as c_long,
            in("rdx") c_long::from(value),
            in("r10") timeout,
            in("r8") word_2,
            in("r9") c_long::from(value_3),
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    if r < 0 { failed(r) } else { r }
}

/// The system call. Sets `errno`.
///
/// # Safety
///
/// As `futex(2)`.
#[cfg(target_arch = "aarch64")]
unsafe fn enter(
    number: c_long,
    [word, timeout, word_2]: [*const c_void; 3],
    op: c_int,
    [value, value_3]: [u32; 2],
) -> c_long {
    let r: c_long;
    // SAFETY: by this function's contract; the kernel changes this register only.
    unsafe {
        std::arch::asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") word => r,
            in("x1") op as c_long,
            in("x2") c_long::from(value),
            in("x3") timeout,
            in("x4") word_2,
            in("x5") c_long::from(value_3),
            options(nostack),
        );
    }
    if r < 0 { failed(r) } else { r }
}

//! System calls as the kernel makes them: none sets `errno`, which belongs to the caller.
#![allow(unsafe_code)]

use std::arch::asm;

use libc::{c_int, c_long};

/// An argument of a system call.
pub(crate) trait Word {
    fn word(self) -> usize;
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl Word for $number {
            fn word(self) -> usize {
                self as usize
            }
        })*
    };
}

numbers!(i32 u32 i64 u64 usize);

impl<T> Word for *const T {
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

impl<T> Word for *mut T {
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

/// The registers of a system call.
pub(crate) fn words<const N: usize>(given: [usize; N]) -> [usize; 6] {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&given);
    all
}

/// Makes the system call of this number: `Ok` with its result, or `Err` with an error number.
/// Unsafe, as [`call`] is.
macro_rules! sys {
    ($number:expr $(, $arg:expr)* $(,)?) => {
        $crate::raw::call($number, $crate::raw::words([$($crate::raw::Word::word($arg)),*]))
    };
}
pub(crate) use sys;

/// # Safety
///
/// As the system call.
pub(crate) unsafe fn call(number: c_long, args: [usize; 6]) -> Result<isize, c_int> {
    // SAFETY: by this function's contract.
    let r = unsafe { enter(number, args) };
    // The last 4,095 numbers are errors.
    if (-4095..0).contains(&r) {
        Err(-r as c_int)
    } else {
        Ok(r)
    }
}

/// # Safety
///
/// As the system call.
#[cfg(target_arch = "x86_64")]
unsafe fn enter(number: c_long, args: [usize; 6]) -> isize {
    let r: isize;
    // SAFETY: by this function's contract; the kernel changes these registers only.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => r,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    r
}

/// # Safety
///
/// As the system call.
#[cfg(target_arch = "aarch64")]
unsafe fn enter(number: c_long, args: [usize; 6]) -> isize {
    let r: isize;
    // SAFETY: by this function's contract; the kernel changes this register only.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") args[0] as isize => r,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    r
}

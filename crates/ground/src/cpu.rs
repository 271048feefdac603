//! What a CPU can do and Rust has no word for: prefetching into its caches, the stack pointer, a plain load.
#![allow(unsafe_code)]

/// The length of a cache line on the supported CPUs.
pub const LINE_BYTES: usize = 64;

/// Prefetches the cache line at an address. Any address is allowed: a prefetch is a hint and never
/// faults.
#[inline(always)]
pub fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has the instruction, which affects only caches.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction is a hint, which affects only caches.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{}]",
            in(reg) at,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// Prefetches the cache lines of `bytes` bytes from an address on.
#[inline(always)]
pub fn prefetch_bytes<T>(at: *const T, bytes: usize) {
    let mut line = 0;
    while line < bytes {
        prefetch(at.wrapping_byte_add(line));
        line += LINE_BYTES;
    }
}

/// The stack pointer of the caller.
#[inline(always)]
pub fn stack_pointer() -> usize {
    let sp: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction reads a register.
    unsafe {
        std::arch::asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("mov {}, sp", out(reg) sp, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let here = 0_u8;
        sp = (&raw const here).addr();
    }
    sp
}

/// Reads a word that other threads may be writing.
///
/// The load is atomic, as every aligned one of the CPU, and orders nothing.
///
/// In assembly, which sanitizers do not check: AddressSanitizer lays zones between the variables
/// of a frame, and would report that they are read where a whole stack is copied.
///
/// # Safety
///
/// `at` is a multiple of 8, and is mapped.
#[inline(always)]
pub unsafe fn word_at(at: usize) -> usize {
    let word: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: by this function's contract.
    unsafe {
        std::arch::asm!(
            "mov {}, [{}]",
            out(reg) word,
            in(reg) at,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: by this function's contract.
    unsafe {
        std::arch::asm!(
            "ldr {}, [{}]",
            out(reg) word,
            in(reg) at,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let at = std::ptr::with_exposed_provenance::<usize>(at);
        // SAFETY: by this function's contract.
        word = unsafe { at.read_volatile() };
    }
    word
}

//! Prefetching of memory into the CPU's caches.
#![allow(unsafe_code)]

/// The length of a cache line on the supported CPUs.
pub(crate) const LINE_BYTES: usize = 64;

/// Prefetches the cache line at an address. Any address is allowed: a prefetch is a hint and never
/// faults.
#[inline(always)]
pub(crate) fn prefetch<T>(at: *const T) {
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
pub(crate) fn prefetch_bytes<T>(at: *const T, bytes: usize) {
    let mut line = 0;
    while line < bytes {
        prefetch(at.wrapping_byte_add(line));
        line += LINE_BYTES;
    }
}

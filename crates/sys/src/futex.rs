//! Futexes: waiting on a word, private to this process.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU32;

use super::clock;

/// The number of the system call, by which `/proc` names it.
pub const NUMBER: libc::c_long = libc::SYS_futex;

/// Sleeps until `word` is woken, if it still holds `expected`; returns at once otherwise. May
/// return early (signal, spurious wake), so callers loop. A `timeout_ns` of [`clock::NEVER`] waits
/// without limit.
///
/// The address is passed a second time, which FUTEX_WAIT ignores. It marks the wait as windlass's own
/// for the crate windlass-hook, which hands the P of a goroutine over while it waits for others.
#[inline]
pub fn wait(word: &AtomicU32, expected: u32, timeout_ns: u64) {
    let ts = clock::timespec(timeout_ns);
    let ts_ptr: *const libc::timespec = if timeout_ns == clock::NEVER {
        std::ptr::null()
    } else {
        &raw const ts
    };
    // SAFETY:
    // - `word` is a live, aligned 32-bit word for the whole call.
    // - `ts_ptr` is null or points at a timespec that outlives the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            ts_ptr,
            word.as_ptr(),
        );
    }
}

/// Wakes one thread that sleeps on the word at `word`.
///
/// Takes a pointer, not a reference: the word may be freed before the call. Then a thread that
/// sleeps on the word now at that address wakes spuriously, which every waiter allows for.
#[inline]
pub fn wake_one(word: *const AtomicU32) {
    // SAFETY: FUTEX_WAKE reads no memory at the address; for an unmapped one it returns EFAULT.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.cast::<u32>().cast_mut(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        );
    }
}

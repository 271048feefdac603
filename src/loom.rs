//! The one door to atomics for the lock-free pieces that loom checks.
//!
//! Under `cfg(loom)` these are loom's model-checked twins, so the run queue, a
//! goroutine's status and the idle protocol are tested over every interleaving;
//! otherwise they are `std`'s, at no cost. Code that loom never models uses
//! `std` directly.

#[cfg(loom)]
pub(crate) use ::loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// Stands behind sequentially consistent accesses that a later load must not pass.
/// loom takes such accesses for acquire-release ones and honours only fences, so its
/// models need one here; for the real atomics the accesses themselves suffice.
#[inline(always)]
pub(crate) fn after_seq_cst() {
    #[cfg(loom)]
    ::loom::sync::atomic::fence(Ordering::SeqCst);
}

/// A pause in a loop that waits for another thread.
#[inline(always)]
pub(crate) fn spin_loop() {
    #[cfg(not(loom))]
    std::hint::spin_loop();
    #[cfg(loom)]
    ::loom::thread::yield_now();
}

/// Sleeps while `word` holds `expected`; may return early. In a model: lets the others
/// run, as loom knows no futex.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32) {
    #[cfg(not(loom))]
    crate::sys::futex::wait(word, expected, crate::sys::clock::NEVER);
    #[cfg(loom)]
    {
        let _ = (word, expected);
        ::loom::thread::yield_now();
    }
}

/// Wakes one thread that sleeps on the word at `word`, which may be gone.
#[cfg_attr(not(loom), inline(always))]
pub(crate) fn futex_wake_one(word: *const AtomicU32) {
    #[cfg(not(loom))]
    crate::sys::futex::wake_one(word);
    #[cfg(loom)]
    let _ = word;
}

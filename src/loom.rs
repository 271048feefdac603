//! The one door to atomics for the lock-free pieces that loom checks.
//!
//! Under `cfg(loom)` these are loom's model-checked twins, so the run queue, a
//! goroutine's status and the idle protocol are tested over every interleaving;
//! otherwise they are `std`'s, at no cost. Code that loom never models uses
//! `std` directly.

#[cfg(loom)]
pub(crate) use ::loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Stands behind sequentially consistent accesses that a later load must not pass.
/// loom takes such accesses for acquire-release ones and honours only fences, so its
/// models need one here; for the real atomics the accesses themselves suffice.
#[inline(always)]
pub(crate) fn after_seq_cst() {
    #[cfg(loom)]
    ::loom::sync::atomic::fence(Ordering::SeqCst);
}

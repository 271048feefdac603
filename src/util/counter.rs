//! Counters that one thread writes and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// Ordering: release and acquire, free on x86: whoever sees a count also sees the
/// counts that came before it. One writer at a time (the M that holds the P);
/// readers want a recent value.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds without a locked instruction: only the owner writes.
    #[inline(always)]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Release,
        );
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

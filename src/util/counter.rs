//! Counters that one thread writes and any thread reads.

use crate::loom::native::atomic::{AtomicU64, Ordering};

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

    /// For what goes up and down.
    #[inline(always)]
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Release);
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// A reading of a clock that its owner renews now and then, and another thread for an
/// owner that does not get to it. Ordering: relaxed; any recent reading will do.
#[derive(Debug, Default)]
pub(crate) struct CoarseTime(AtomicU64);

impl CoarseTime {
    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set(&self, now_ns: u64) {
        self.0.store(now_ns, Ordering::Relaxed);
    }
}

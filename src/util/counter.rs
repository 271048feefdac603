//! Counters that one thread writes and any thread reads.

use crate::loom::native::atomic::{AtomicU64, Ordering};

/// A counter with one writer at a time, the M that holds the P.
///
/// Ordering: release and acquire, which are free on x86. A reader that sees a count also sees the
/// counts that were written before it.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds without an atomic read-modify-write, because only the owner writes.
    #[inline(always)]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Release,
        );
    }

    /// Stores a value, for quantities that rise and fall.
    #[inline(always)]
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Release);
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// A cached reading of the clock. Its owner updates it from time to time; another thread does so if
/// the owner cannot. Ordering: relaxed; any recent reading serves.
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

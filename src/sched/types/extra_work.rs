//! Reasons for extra work at a goroutine's way through a P.

use crate::loom::native::atomic::{AtomicU32, Ordering};

/// The P is traced (`trace`).
pub(crate) const TRACED: u32 = 1;
/// Several nodes have Ps in use, so goroutines have a home (`home`).
pub(crate) const NUMA: u32 = 2;
/// CPU times are measured (`accounting`).
pub(crate) const TIMED: u32 = 4;
/// A goroutine may have a label for its children to inherit.
pub(crate) const LABELLED: u32 = 8;

/// The reasons that a P has. They share one word, so that a P with none pays for one test.
///
/// Ordering: relaxed; set by other threads, and a delay does no harm.
#[derive(Debug, Default)]
pub(crate) struct ExtraWork(AtomicU32);

impl ExtraWork {
    /// Whether there is one of these reasons.
    #[inline(always)]
    pub(crate) fn has(&self, reasons: u32) -> bool {
        self.0.load(Ordering::Relaxed) & reasons != 0
    }

    pub(crate) fn set(&self, reason: u32, is_on: bool) {
        match is_on {
            true => self.0.fetch_or(reason, Ordering::Relaxed),
            false => self.0.fetch_and(!reason, Ordering::Relaxed),
        };
    }
}

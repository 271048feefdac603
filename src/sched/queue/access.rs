//! Whether an M may use its P: the words that an M and sysmon share.
//!
//! The protocol is told in `handoff`. It is here so that loom can check it.

use crate::loom::{AtomicPtr, AtomicU32, Ordering};
use crate::util::chaos::{self, Point};

/// The M may use its P.
pub(crate) const HAS_P: u32 = 0;
/// Sysmon is deciding whether to take the P: wait for its verdict.
pub(crate) const RETAKING: u32 = 1;
/// The P was taken while user code ran.
pub(crate) const RETAKEN: u32 = 2;
/// The M is in a declared blocking section.
pub(crate) const BLOCKING: u32 = 3;
/// The M may use its P, but its goroutine has had it for long and shall give way when it
/// enters the scheduler next.
pub(crate) const PREEMPT: u32 = 4;

/// Scheduler code runs on the M from here on.
///
/// Ordering: relaxed and a compiler fence; sysmon's membarrier does the rest. A model has
/// none, and needs a fence on both sides.
#[inline(always)]
pub(crate) fn mark_inside(in_runtime: &AtomicU32) {
    in_runtime.store(1, Ordering::Relaxed);
    #[cfg(not(loom))]
    crate::loom::native::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    crate::loom::fence(Ordering::SeqCst);
}

/// User code runs on the M from here on.
#[inline(always)]
pub(crate) fn mark_outside(in_runtime: &AtomicU32) {
    // ORDERING: release: what was done inside is seen by whoever takes the P after this.
    in_runtime.store(0, Ordering::Release);
}

/// The words of one M, as sysmon sees them.
#[derive(Debug)]
pub(crate) struct Access<'a, T> {
    pub(crate) access: &'a AtomicU32,
    pub(crate) in_runtime: &'a AtomicU32,
    /// The P that the M holds.
    pub(crate) p: &'a AtomicPtr<T>,
}

impl<T> Access<'_, T> {
    /// Takes `p` from the M, if it holds that very P and runs user code. `barrier` is the
    /// membarrier; `false` from it means that there is none.
    ///
    /// The M may have given `p` to another M since the caller looked, and hold another P.
    /// Its `p` tells:
    ///
    /// - An M that is found outside was outside at the barrier, or came out after it. In
    ///   both cases all that it wrote before is seen here: by the barrier, or by the release
    ///   store that said that it is outside. So is its `p`.
    /// - From there on the M finds the question when it comes in, and waits. An M that came in
    ///   before may change its P only by taking another, which writes `access`: then the last
    ///   step fails.
    pub(crate) fn take(&self, p: *const T, barrier: impl FnOnce() -> bool) -> bool {
        let put_in_question = |from| {
            self.access
                .compare_exchange(from, RETAKING, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        };
        if !(put_in_question(HAS_P) || put_in_question(PREEMPT)) {
            return false;
        }
        // ORDERING: acquire at least, with the store of `mark_outside`, before `p` is read.
        let is_outside = barrier() && self.in_runtime.load(Ordering::SeqCst) == 0;
        chaos::pause(Point::Retake);
        // ORDERING: relaxed; see above.
        let is_taken = is_outside && std::ptr::eq(self.p.load(Ordering::Relaxed), p);
        let verdict = if is_taken { RETAKEN } else { HAS_P };
        let given =
            self.access
                .compare_exchange(RETAKING, verdict, Ordering::SeqCst, Ordering::Relaxed);
        is_taken && given.is_ok()
    }
}

#[cfg(all(test, loom))]
#[path = "access_loom_tests.rs"]
mod loom_tests;

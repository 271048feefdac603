//! Whether an M may use its P: the words that an M and sysmon share.
//!
//! `handoff` describes the protocol. The code is here so that loom can check it.

use crate::loom::{AtomicPtr, AtomicU32, Ordering};
use crate::util::chaos::{self, Point};

/// The M may use its P.
pub(crate) const HAS_P: u32 = 0;
/// Sysmon is deciding whether to retake the P: the M must wait for the decision.
pub(crate) const RETAKING: u32 = 1;
/// The P was retaken while user code ran.
pub(crate) const RETAKEN: u32 = 2;
/// The M is in a blocking section.
pub(crate) const BLOCKING: u32 = 3;
/// The M may use its P, but its goroutine has had it for long and must yield when it next enters
/// the scheduler.
pub(crate) const PREEMPT: u32 = 4;
/// The M's goroutine has forked this process, which has no scheduler.
pub(crate) const FORKED: u32 = 5;

/// Scheduler code runs on the M from here on.
///
/// Ordering: relaxed and a compiler fence; sysmon's membarrier provides the rest. loom and Miri
/// have no membarrier, and need a fence on both sides.
#[inline(always)]
pub(crate) fn mark_inside(in_runtime: &AtomicU32) {
    in_runtime.store(1, Ordering::Relaxed);
    if cfg!(any(loom, miri)) {
        crate::loom::fence(Ordering::SeqCst);
    } else {
        crate::loom::native::atomic::compiler_fence(Ordering::SeqCst);
    }
}

/// The M's step 3: whether it goes on at once.
#[inline(always)]
pub(crate) fn is_granted(access: &AtomicU32) -> bool {
    // ORDERING: relaxed: a thread that writes HAS_P leaves the M what it had, or wakes it afterwards.
    access.load(Ordering::Relaxed) == HAS_P
}

/// The M's step 3, if it does not go on at once.
pub(crate) fn state(access: &AtomicU32) -> u32 {
    // ORDERING: acquire: behind RETAKEN the M sees what sysmon did before.
    access.load(Ordering::Acquire)
}

/// The M acknowledges a request to yield; `false` if sysmon has replaced it.
pub(crate) fn acknowledge(access: &AtomicU32) -> bool {
    // ORDERING: acquire, paired with `Access::ask`. Sysmon may write RETAKING instead. If it does so after this, it
    // reads with HAS_P that the M was already inside.
    access
        .compare_exchange(PREEMPT, HAS_P, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}

/// User code runs on the M from here on.
#[inline(always)]
pub(crate) fn mark_outside(in_runtime: &AtomicU32) {
    // ORDERING: release: a thread that takes the P after this sees everything done inside.
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
    /// Requests that the M's goroutine yields at its next entry.
    pub(crate) fn ask(&self) {
        // RETAKEN and BLOCKING stay: the M has no P, or gives it up to the first that wants it.
        // ORDERING: release: `M::preempt_at` was written before.
        let _ = self
            .access
            .compare_exchange(HAS_P, PREEMPT, Ordering::Release, Ordering::Relaxed);
    }

    /// Retakes `p` from the M, if the M holds that same P and runs user code. If it may be inside the
    /// scheduler, asks as [`Access::ask`] does. `barrier` is the membarrier; it returns `false` if
    /// there is none.
    ///
    /// The M may have given `p` to another M since the caller checked, and hold another P. Its `p`
    /// word shows that:
    ///
    /// - An M that is found outside was outside at the barrier, or went outside after it. In both
    ///   cases everything it wrote before is visible here: by the barrier, or by the release store
    ///   that marked it as outside. So is its `p`.
    /// - From then on the M finds RETAKING when it enters, and waits. An M that entered before may
    ///   change its P only by taking another, which writes `access`: then the last step fails.
    pub(crate) fn take(&self, p: *const T, barrier: impl FnOnce() -> bool) -> bool {
        let put_in_question = |from| {
            self.access
                .compare_exchange(from, RETAKING, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        };
        if !(put_in_question(HAS_P) || put_in_question(PREEMPT)) {
            return false;
        }
        // ORDERING: at least acquire, paired with the store of `mark_outside`, before `p` is read.
        let is_outside = barrier() && self.in_runtime.load(Ordering::SeqCst) == 0;
        chaos::pause(Point::Retake);
        // ORDERING: relaxed; see above.
        let is_taken = is_outside && std::ptr::eq(self.p.load(Ordering::Relaxed), p);
        let verdict = match is_outside {
            false => PREEMPT,
            true if is_taken => RETAKEN,
            true => HAS_P,
        };
        let given =
            self.access
                .compare_exchange(RETAKING, verdict, Ordering::SeqCst, Ordering::Relaxed);
        is_taken && given.is_ok()
    }
}

#[cfg(all(test, any(loom, miri)))]
#[path = "access_loom_tests.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The words of an M that holds a P and runs user code.
    struct Words {
        access: AtomicU32,
        in_runtime: AtomicU32,
        p: AtomicPtr<u8>,
    }

    const P: *const u8 = std::ptr::without_provenance(8);
    const OTHER: *const u8 = std::ptr::without_provenance(16);

    impl Words {
        fn new(access: u32) -> Words {
            Words {
                access: AtomicU32::new(access),
                in_runtime: AtomicU32::new(0),
                p: AtomicPtr::new(P.cast_mut()),
            }
        }

        fn shown(&self) -> Access<'_, u8> {
            Access {
                access: &self.access,
                in_runtime: &self.in_runtime,
                p: &self.p,
            }
        }

        fn is(&self, access: u32) -> bool {
            self.access.load(Ordering::Relaxed) == access
        }
    }

    #[test]
    fn a_p_is_taken_from_an_m_outside() {
        for access in [HAS_P, PREEMPT] {
            let m = Words::new(access);
            assert!(m.shown().take(P, || m.is(RETAKING)));
            assert!(m.is(RETAKEN));
            assert!(!m.shown().take(P, || true));
        }
    }

    #[test]
    fn an_m_keeps_another_p() {
        let m = Words::new(HAS_P);
        assert!(!m.shown().take(OTHER, || true));
        assert!(m.is(HAS_P));
    }

    #[test]
    fn an_m_inside_is_asked() {
        let m = Words::new(HAS_P);
        m.in_runtime.store(1, Ordering::Relaxed);
        assert!(!m.shown().take(P, || true));
        assert!(m.is(PREEMPT));
        let unknown = Words::new(HAS_P);
        assert!(!unknown.shown().take(P, || false));
        assert!(unknown.is(PREEMPT));
    }

    #[test]
    fn what_counts_is_where_the_m_is_after_the_barrier() {
        let m = Words::new(HAS_P);
        let enters = || {
            m.in_runtime.store(1, Ordering::Relaxed);
            true
        };
        assert!(!m.shown().take(P, enters));
        assert!(m.is(PREEMPT));
    }

    #[test]
    fn what_the_m_writes_meanwhile_stays() {
        let m = Words::new(HAS_P);
        // It has left its P in a blocking section, or has another one by now.
        for written in [BLOCKING, HAS_P] {
            m.access.store(HAS_P, Ordering::Relaxed);
            let writes = || {
                m.access.store(written, Ordering::Relaxed);
                true
            };
            assert!(!m.shown().take(P, writes));
            assert!(m.is(written));
        }
    }

    #[test]
    fn only_an_m_with_a_p_is_asked() {
        for access in [RETAKING, RETAKEN, BLOCKING] {
            let m = Words::new(access);
            m.shown().ask();
            assert!(m.is(access));
        }
        let m = Words::new(HAS_P);
        m.shown().ask();
        assert!(m.is(PREEMPT) && acknowledge(&m.access) && m.is(HAS_P));
    }
}

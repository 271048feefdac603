//! When a P enters the kernel for its poller, reaps completions, and dispatches buffered events of
//! multishot polls.
//!
//! | moment                            | enters the kernel     | reaps         | dispatches events |
//! |-----------------------------------|-----------------------|---------------|-------------------|
//! | a goroutine has queued an entry   | from the 32nd on      | –             | –                 |
//! | before a dispatch                 | –                     | short queue   | without batches   |
//! | the same, every 32nd dispatch     | entries, kernel work  | yes           | yes               |
//! | every 10 µs (`pace`)              | old entries, kernel   | –             | yes               |
//! |                                   | work                  |               |                   |
//! | the local queue is empty, and     | entries               | yes           | if no goroutine   |
//! | events are buffered               |                       |               | became runnable   |
//! | events were dispatched            | entries               | –             | –                 |
//! | nothing to run on this P          | entries, if other Ps  | –             | –                 |
//! |                                   | are busy; kernel work |               |                   |
//! | looking for work elsewhere        | kernel work           | –             | –                 |
//!
//! *Entries* are queued and not submitted; *kernel work* is completions that the kernel posts only
//! when it is entered. Goroutines that each queue an operation form a batch between two visits;
//! beside goroutines that only compute, 32 dispatches pass quickly.
//!
//! After a full batch of events the next one waits until the local queue is empty: the goroutines that the first made
//! runnable go first. Unrelated ones that keep the P busy defer it for at most [`ladder::LATE_NS`].

use std::cell::Cell;

use crate::sched::queue::runq;
use crate::util::ladder;

/// Where a P is in its loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A goroutine has queued an entry.
    Queued,
    /// Before a dispatch, with operations in flight.
    Dispatch,
    /// As the row before, every [`ladder::BATCH`] times.
    Visit,
    /// The periodic duties. The oldest entry was queued `waited_ns` ago.
    Tick { waited_ns: u64 },
    /// The local queue is empty, and events are buffered.
    QueueEmpty,
    /// Events were dispatched, which may have queued receives.
    Dispatched,
    /// Nothing to run on this P. All others sleep if it is `alone`: then its own sleep submits.
    Dry { alone: bool },
    /// It looks for work on other Ps.
    Search,
}

impl Moment {
    /// A dispatch comes, with operations in flight: the next one after so many.
    #[inline(always)]
    pub(crate) fn before_dispatch(dispatches: u64) -> Moment {
        match dispatches.is_multiple_of(u64::from(ladder::BATCH)) {
            true => Moment::Visit,
            false => Moment::Dispatch,
        }
    }

    /// Whether to enter the kernel, with `pending` entries queued. `has_kernel_work` reads shared
    /// memory, so it is not asked where the answer does not matter.
    #[inline(always)]
    pub(crate) fn enters(self, pending: u32, has_kernel_work: impl FnOnce() -> bool) -> bool {
        match self {
            Moment::Queued => pending >= ladder::BATCH,
            Moment::Dispatch => false,
            Moment::Visit => pending > 0 || has_kernel_work(),
            Moment::Tick { waited_ns } => {
                has_kernel_work() || pending > 0 && waited_ns >= ladder::GRACE_NS
            }
            Moment::QueueEmpty | Moment::Dispatched => pending > 0,
            Moment::Dry { alone } => pending > 0 && !alone || has_kernel_work(),
            Moment::Search => has_kernel_work(),
        }
    }

    /// Whether to reap completions, if there are any.
    #[inline(always)]
    pub(crate) fn reaps(self, queue_len: usize) -> bool {
        match self {
            // Reaped into a longer queue, completions would only overflow to the node queue, behind
            // goroutines that became runnable later.
            Moment::Dispatch => queue_len <= runq::HALF,
            Moment::Visit | Moment::QueueEmpty => true,
            _ => false,
        }
    }
}

/// The visits of one P to the kernel, and its batches of events.
#[derive(Debug, Default)]
pub(crate) struct Visits {
    /// When the last batch of events was dispatched, if it was a full one; else 0.
    full_ns: Cell<u64>,
}

impl Visits {
    /// Whether to dispatch events, if there are any.
    ///
    /// `has_batches`: enough is in flight for batches to pay, and no goroutines compute.
    #[inline(always)]
    pub(crate) fn dispatches(&self, at: Moment, has_batches: bool, now_ns: u64) -> bool {
        match at {
            Moment::Dispatch if has_batches => false,
            Moment::Dispatch | Moment::Visit | Moment::Tick { .. } => {
                now_ns.saturating_sub(self.full_ns.get()) >= ladder::LATE_NS
            }
            Moment::QueueEmpty => true,
            _ => false,
        }
    }

    /// `n` events were dispatched.
    pub(crate) fn note_dispatched(&self, n: usize, now_ns: u64) {
        let is_full = n >= ladder::BATCH as usize;
        self.full_ns.set(if is_full { now_ns } else { 0 });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const NOW_NS: u64 = 1_000_000_000;
    const TICK: Moment = Moment::Tick { waited_ns: 0 };
    const DRY: Moment = Moment::Dry { alone: false };
    const ALONE: Moment = Moment::Dry { alone: true };

    fn enters(at: Moment, pending: u32, has_kernel_work: bool) -> bool {
        at.enters(pending, || has_kernel_work)
    }

    #[test]
    fn every_32nd_dispatch_is_a_visit() {
        let is_visit = |n: &u64| Moment::before_dispatch(*n) == Moment::Visit;
        let visits: Vec<_> = (1..100).filter(is_visit).collect();
        assert_eq!(visits, [32, 64, 96]);
    }

    #[test]
    fn kernel_work_is_fetched_on_visits_and_before_sleep() {
        for at in [Moment::Visit, TICK, DRY, ALONE, Moment::Search] {
            assert!(enters(at, 0, true), "{at:?}");
            assert!(!enters(at, 0, false), "{at:?}");
        }
        for at in [
            Moment::Queued,
            Moment::Dispatch,
            Moment::QueueEmpty,
            Moment::Dispatched,
        ] {
            assert!(!enters(at, 0, true), "{at:?}");
        }
    }

    #[test]
    fn queued_entries_wait_for_a_batch() {
        assert!(!enters(Moment::Queued, ladder::BATCH - 1, false));
        assert!(enters(Moment::Queued, ladder::BATCH, false));
        assert!(!enters(Moment::Dispatch, ladder::BATCH, true));
        assert!(!enters(Moment::Search, 1, false));
    }

    #[test]
    fn queued_entries_wait_for_a_visit_and_not_for_long() {
        let old = |waited_ns| Moment::Tick { waited_ns };
        assert!(enters(Moment::Visit, 1, false));
        assert!(!enters(old(ladder::GRACE_NS - 1), 1, false));
        assert!(enters(old(ladder::GRACE_NS), 1, false));
        // Nothing is queued: the age means nothing.
        assert!(!enters(old(ladder::GRACE_NS), 0, false));
    }

    #[test]
    fn queued_entries_go_before_events_and_sleep() {
        for at in [Moment::QueueEmpty, Moment::Dispatched, DRY] {
            assert!(enters(at, 1, false), "{at:?}");
        }
        // The sleep submits them.
        assert!(!enters(ALONE, 1, false));
    }

    #[test]
    fn completions_wait_while_the_queue_is_long() {
        assert!(Moment::Dispatch.reaps(runq::HALF));
        assert!(!Moment::Dispatch.reaps(runq::HALF + 1));
        assert!(Moment::Visit.reaps(runq::HALF + 1));
        assert!(Moment::QueueEmpty.reaps(0));
        for at in [
            Moment::Queued,
            TICK,
            Moment::Dispatched,
            DRY,
            Moment::Search,
        ] {
            assert!(!at.reaps(0), "{at:?}");
        }
    }

    #[test]
    fn events_wait_for_a_visit_where_batches_pay() {
        let visits = Visits::default();
        assert!(!visits.dispatches(Moment::Dispatch, true, NOW_NS));
        for at in [Moment::Visit, TICK, Moment::QueueEmpty] {
            assert!(visits.dispatches(at, true, NOW_NS), "{at:?}");
        }
        assert!(visits.dispatches(Moment::Dispatch, false, NOW_NS));
        for at in [Moment::Queued, Moment::Dispatched, DRY, Moment::Search] {
            assert!(!visits.dispatches(at, false, NOW_NS), "{at:?}");
        }
    }

    #[test]
    fn after_a_full_batch_events_are_deferred_but_not_for_long() {
        const FULL: usize = ladder::BATCH as usize;
        let visits = Visits::default();
        visits.note_dispatched(FULL, NOW_NS);
        for at in [Moment::Dispatch, Moment::Visit, TICK] {
            assert!(!visits.dispatches(at, false, NOW_NS + ladder::LATE_NS - 1));
            assert!(visits.dispatches(at, false, NOW_NS + ladder::LATE_NS));
        }
        assert!(visits.dispatches(Moment::QueueEmpty, false, NOW_NS));
        visits.note_dispatched(FULL - 1, NOW_NS);
        assert!(visits.dispatches(Moment::Dispatch, false, NOW_NS));
    }
}

//! How long a chain of goroutines that hand over through runnext may keep a P while others wait.
//!
//! [`ladder::SLICE_NS`]; or [`ladder::TICK_NS`] beside operations in flight of which none completes: the queue
//! may hold the goroutine that would complete them.

use std::cell::Cell;

use crate::util::ladder;

/// The time slice of the current chain of a P.
#[derive(Debug)]
pub(crate) struct Slice {
    /// When the chain began.
    start_ns: Cell<u64>,
    /// After completions a tick longer than a slice, so that the next tick leaves a slice.
    limit_ns: Cell<u64>,
}

impl Slice {
    pub(crate) fn new() -> Slice {
        Slice {
            start_ns: Cell::new(0),
            limit_ns: Cell::new(ladder::SLICE_NS),
        }
    }

    /// A goroutine that did not come from runnext is dispatched, or nothing is left to run: the next one begins a chain.
    #[inline(always)]
    pub(crate) fn begin(&self, now_ns: u64) {
        self.start_ns.set(now_ns);
    }

    /// Whether the chain has used it up.
    #[inline(always)]
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        now_ns > self.start_ns.get() + self.limit_ns.get()
    }

    /// Operations have completed: the chain that their goroutines join may last longer.
    #[inline]
    pub(crate) fn note_completions(&self) {
        self.limit_ns.set(ladder::SLICE_NS + ladder::TICK_NS);
    }

    /// Decides at a tick how long chains may last, until the next one.
    #[inline]
    pub(crate) fn adapt(&self, is_any_in_flight: bool) {
        let has_completions = self.limit_ns.get() > ladder::SLICE_NS;
        let is_short = is_any_in_flight && !has_completions;
        self.limit_ns.set(match is_short {
            true => ladder::TICK_NS,
            false => ladder::SLICE_NS,
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// While operations complete.
    const COMPLETED_NS: u64 = ladder::SLICE_NS + ladder::TICK_NS;

    /// How long a chain may last.
    fn limit_ns(slice: &Slice) -> u64 {
        slice.begin(1_000);
        let lasts = |ns: &u64| !slice.is_over(1_000 + ns);
        let all = [COMPLETED_NS, ladder::SLICE_NS, ladder::TICK_NS];
        let ns = all.into_iter().find(lasts).unwrap();
        assert!(slice.is_over(1_000 + ns + 1));
        ns
    }

    #[test]
    fn a_chain_is_short_beside_operations_that_do_not_complete() {
        let slice = Slice::new();
        assert_eq!(limit_ns(&slice), ladder::SLICE_NS);
        slice.adapt(true);
        assert_eq!(limit_ns(&slice), ladder::TICK_NS);
        slice.note_completions();
        assert_eq!(limit_ns(&slice), COMPLETED_NS);
        slice.adapt(true);
        assert_eq!(limit_ns(&slice), ladder::SLICE_NS);
        slice.adapt(true);
        assert_eq!(limit_ns(&slice), ladder::TICK_NS);
        slice.adapt(false);
        assert_eq!(limit_ns(&slice), ladder::SLICE_NS);
    }
}

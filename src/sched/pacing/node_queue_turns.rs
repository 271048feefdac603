//! When a P that has goroutines of its own takes from its node's queue, and how many, so that nothing starves there.

use std::cell::Cell;

use crate::util::ladder;

/// Go's fairness tick: one dispatch in this many tries the node queue first.
const EVERY: u32 = 61;

/// From this time between two looks at the node queue on, a share of it costs little beside what
/// the dispatches in between took.
const SHARE_AFTER_NS: u64 = 5 * ladder::TICK_NS;

/// The turns of a node's queue on one P.
#[derive(Debug, Default)]
pub(crate) struct NodeQueueTurns {
    /// Dispatches since the last turn.
    since: Cell<u32>,
    /// When that was.
    seen_ns: Cell<u64>,
}

/// One turn of the node's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// How many goroutines to take however long the local queue is.
    pub(crate) share: usize,
    /// Whether the first of them may run ahead of the local queue.
    pub(crate) is_first: bool,
}

impl NodeQueueTurns {
    /// Counts dispatches.
    #[inline]
    pub(crate) fn count(&self, dispatches: u32) {
        self.since.set(self.since.get() + dispatches);
    }

    /// Whether there were enough dispatches for a turn.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.since.get() >= EVERY
    }

    /// Whether the last turn was too long ago. Beside goroutines that run for milliseconds each, 61 dispatches take
    /// most of a second (they do in Go).
    #[inline]
    pub(crate) fn is_late(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.seen_ns.get()) >= ladder::LATE_NS
    }

    /// Begins a turn.
    pub(crate) fn begin(&self, now_ns: u64) -> Turn {
        let since = self.since.replace(0);
        let since_ns = now_ns.saturating_sub(self.seen_ns.replace(now_ns));
        Turn {
            share: share(since, since_ns),
            // Before the 61st dispatch it must not overtake the local queue: otherwise CPU hogs that come
            // back through the node queue would always run first.
            is_first: since >= EVERY,
        }
    }

    /// Puts the next turn off, as if this had been one: what is due on this P comes first, and then the local queue. Also
    /// for sysmon, while no M holds the P.
    pub(crate) fn put_off(&self, now_ns: u64) {
        self.since.set(0);
        self.seen_ns.set(now_ns);
    }
}

/// How many goroutines to take from the node queue however long the local queue is, after `since`
/// dispatches in `since_ns`: as many as were dispatched. Then the local queue overflows into the node
/// queue as fast as it takes from there, and all take turns. With one goroutine a look, those in the
/// node queue waited for dozens of rounds of those in the local queue. Fast dispatches do not
/// pay for that: there dozens of rounds are a few milliseconds.
fn share(since: u32, since_ns: u64) -> usize {
    match since_ns >= SHARE_AFTER_NS {
        true => since as usize,
        false => 1,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slow_dispatches_take_as_many_from_the_node_queue() {
        assert_eq!(share(61, 3_000), 1);
        assert_eq!(share(61, 49_999), 1);
        assert_eq!(share(61, 50_000), 61);
        assert_eq!(share(1, 1_000_000), 1);
        assert_eq!(share(10, 1_000_000), 10);
    }

    #[test]
    fn a_turn_comes_every_61st_dispatch_or_when_it_is_late() {
        let turns = NodeQueueTurns::default();
        turns.count(60);
        assert!(!turns.is_due());
        turns.count(1);
        assert!(turns.is_due());
        let turn = |share, is_first| Turn { share, is_first };
        assert_eq!(turns.begin(3_000), turn(1, true));
        assert!(!turns.is_due());
        assert!(!turns.is_late(1_002_999));
        assert!(turns.is_late(1_003_000));
        turns.count(10);
        assert_eq!(turns.begin(1_003_000), turn(10, false));
        turns.count(61);
        turns.put_off(9_000_000);
        assert!(!turns.is_due() && !turns.is_late(9_999_999));
    }
}

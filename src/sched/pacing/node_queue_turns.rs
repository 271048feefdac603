//! When a P that has goroutines of its own takes from its node's queue, and how many, so that nothing starves there.

use std::cell::Cell;

use super::pace::Pace;

/// Go's fairness tick: one dispatch in this many tries the node queue first.
const EVERY: u64 = 61;

/// The turns of a node's queue on one P.
#[derive(Debug, Default)]
pub(crate) struct NodeQueueTurns {
    /// The number of the last dispatch before the last turn.
    at: Cell<u64>,
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
    /// Begins a turn after the `n`th dispatch, if one is due: after 61 dispatches, after as many as take a slice on
    /// average, or when those that were just measured were `long`, which is a slice, too. Beside goroutines that run for milliseconds each, 61 dispatches take most of a second (they do in Go).
    ///
    /// Fast dispatches leave one goroutine a turn. Slow ones leave as many as were dispatched: then the local
    /// queue overflows into the node queue as fast as it takes from there, and all take turns. With one goroutine
    /// a turn, those in the node queue waited for dozens of rounds of those in the local queue. Fast dispatches do
    /// not pay for that: there dozens of rounds are a few milliseconds.
    #[inline]
    pub(crate) fn begin(&self, n: u64, long: bool, pace: &Pace) -> Option<Turn> {
        let since = n - self.at.get();
        // Before the 61st dispatch it must not overtake the local queue: otherwise CPU hogs that
        // come back through the node queue would always run first.
        let is_first = since >= EVERY;
        let is_late = since > 0 && long || pace.take_a_slice(since);
        if !is_first && !is_late {
            return None;
        }
        self.at.set(n);
        let share = if pace.is_fast() { 1 } else { since as usize };
        Some(Turn { share, is_first })
    }

    /// Puts the next turn off, as if this had been one: what is due on this P comes first, and then the local queue. Also
    /// for sysmon, while no M holds the P.
    pub(crate) fn put_off(&self, n: u64) {
        self.at.set(n);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const TICK: u64 = 30_000;

    /// The turn of a P that has made many dispatches, of so many ticks each: after `since` more.
    fn turn_after(ticks: u64, since: u64, long: bool) -> Option<Turn> {
        const N: u64 = 200;
        let (turns, pace) = (NodeQueueTurns::default(), Pace::new(TICK));
        for n in 1..=N {
            pace.measure(n * ticks * TICK, n);
        }
        turns.put_off(N);
        let turn = turns.begin(N + since, long, &pace);
        let again = || turns.begin(N + since, long, &pace);
        assert_eq!(turn.and_then(|_| again()), None);
        turn
    }

    fn turn(share: usize, is_first: bool) -> Option<Turn> {
        Some(Turn { share, is_first })
    }

    #[test]
    fn a_turn_comes_every_61st_fast_dispatch_for_one() {
        assert_eq!(turn_after(0, 60, false), None);
        assert_eq!(turn_after(0, 61, false), turn(1, true));
    }

    /// Beside more yielders of 20 µs than the local queue holds, a goroutine from outside would wait for dozens of their
    /// rounds.
    #[test]
    fn slow_dispatches_take_as_many_from_the_node_queue() {
        assert_eq!(turn_after(2, 9, false), None);
        assert_eq!(turn_after(2, 11, false), turn(11, false));
        assert_eq!(turn_after(2, 61, false), turn(61, true));
    }

    /// A goroutine in the node queue would wait for 61 of them, which may take most of a second.
    #[test]
    fn beside_long_dispatches_a_turn_comes_at_once_and_overtakes_nobody() {
        assert_eq!(turn_after(1_000, 1, true), turn(1, false));
        assert_eq!(turn_after(0, 1, true), turn(1, false));
        // Put off after the long one.
        assert_eq!(turn_after(1_000, 0, true), None);
    }
}

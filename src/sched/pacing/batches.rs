//! Whether goroutines send and receive in batches of the ring. Beside goroutines that compute they do not:
//! what is queued would wait until those are done.
//!
//! A P's goroutines compute if two dispatches of [`ladder::SLICE_NS`] or longer are close together. One alone may be
//! an accident: a thread that is preempted by the kernel runs many short ones in between.

use std::cell::Cell;

use windlass_ground::counter::Counter;

use crate::util::ladder;

/// At most so many dispatches lie between two long ones of goroutines that compute.
const LONG_WITHIN: u64 = 16;
/// For so many dispatches after that nothing is queued for a batch.
const AT_ONCE_FOR: u64 = 64;

/// The long dispatches of one P.
#[derive(Debug)]
pub(crate) struct Batches {
    /// The CPU's counter when dispatches were last looked at, or the M woke or left the kernel.
    running_from: Cell<u64>,
    /// The number of the last long dispatch.
    long_at: Cell<Option<u64>>,
    /// The dispatch until which operations are made at once. Ordering: as any counter's.
    at_once_until: Counter,
}

impl Batches {
    /// With the CPU's counter at `counter`.
    pub(crate) fn new(counter: u64) -> Batches {
        Batches {
            running_from: Cell::new(counter),
            long_at: Cell::new(None),
            at_once_until: Counter::default(),
        }
    }

    /// No goroutine has run up to now.
    #[inline]
    pub(crate) fn run_from(&self, counter: u64) {
        self.running_from.set(counter);
    }

    /// Goroutines have run until now, and `dispatches` is the number of the last one. `tick` is
    /// [`ladder::TICK_NS`] in units of the counter.
    #[inline]
    pub(crate) fn note_run(&self, counter: u64, tick: u64, dispatches: &Counter) {
        let elapsed = counter.wrapping_sub(self.running_from.replace(counter));
        if is_long(elapsed, tick) {
            self.note_long(dispatches.get());
        }
    }

    #[cold]
    #[inline(never)]
    fn note_long(&self, n: u64) {
        if let Some(until) = at_once_until(self.long_at.replace(Some(n)), n) {
            self.at_once_until.set(until);
        }
    }

    /// Whether operations may wait for a batch, at the dispatch `n`. Any thread.
    #[inline]
    pub(crate) fn are_made(&self, n: u64) -> bool {
        n >= self.at_once_until.get()
    }
}

/// Whether dispatches that took `elapsed` hold a long one; [`ladder::TICK_NS`] are `tick`.
#[inline]
fn is_long(elapsed: u64, tick: u64) -> bool {
    elapsed >= ladder::SLICE_NS / ladder::TICK_NS * tick
}

/// Until which dispatch sends and receives are made at once, if the long ones before this, the
/// `n`th, ended with dispatch `last`.
fn at_once_until(last: Option<u64>, n: u64) -> Option<u64> {
    let is_near = last.is_some_and(|last| (1..=LONG_WITHIN).contains(&(n - last)));
    is_near.then_some(n + AT_ONCE_FOR)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const TICK: u64 = 30_000;

    #[test]
    fn a_dispatch_is_long_from_twenty_ticks_on() {
        assert!(!is_long(20 * TICK - 1, TICK));
        assert!(is_long(20 * TICK, TICK));
    }

    #[test]
    fn two_long_dispatches_close_together_are_needed() {
        assert_eq!(at_once_until(None, 0), None);
        assert_eq!(at_once_until(Some(100), 117), None);
        assert_eq!(at_once_until(Some(100), 116), Some(180));
        assert_eq!(at_once_until(Some(100), 101), Some(165));
        // One dispatch, noted twice.
        assert_eq!(at_once_until(Some(100), 100), None);
    }

    #[test]
    fn batches_end_with_the_second_long_dispatch_and_come_back() {
        let (batches, dispatches) = (Batches::new(0), Counter::default());
        let mut counter = 0;
        let mut run = |n: u64, ticks: u64| {
            dispatches.add(n);
            counter += ticks * TICK;
            batches.note_run(counter, TICK, &dispatches);
            batches.are_made(dispatches.get())
        };
        assert!(run(1, 20));
        assert!(!run(1, 20));
        assert!(!run(63, 1));
        assert!(run(1, 1));
        // Time in the kernel or asleep is no dispatch's.
        batches.run_from(1_000 * TICK);
        assert!(run(1, 1));
    }
}

//! What other nodes may know of a node at the price of one cache line.
//!
//! A thief that finds nothing on its own node asks whether another has something to
//! give. To look at every P there would touch a remote line for each (Go's sweep over all Ps
//! is 41 % of the samples on large machines: golang/go#28808). So every node keeps a line
//! of numbers, and a failed search reads that line and no other.
//!
//! The numbers are a little old. A P *publishes* the length of its queue when it reads the
//! clock anyway (every 10 µs), when its queue runs dry, and when work is left there while
//! some P is idle; sysmon does it for Ps whose goroutine does not come back. They decide
//! where to look, never whether a P may sleep on its own node: that is `idle`'s protocol.

use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering};

use super::policy::NodeView;

/// The line of a node.
///
/// Ordering: all relaxed but `queued`; hints, each read by itself.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    /// Goroutines in the node's queue. Ordering: stored sequentially consistent under the
    /// queue's lock and loaded so: it is the "work" side of the idle protocol.
    pub(crate) queued: AtomicUsize,
    /// Goroutines in the queues of its Ps, as published.
    in_rings: AtomicIsize,
    /// Ps that sleep, or look for work. Kept only where there are several nodes.
    idle: AtomicUsize,
    /// Since when the one at the head of the node's queue waits, as sysmon saw it, and what
    /// `n_taken` was then: if it has changed, that one has gone.
    queue_waits_since_ns: AtomicU64,
    n_taken_then: AtomicUsize,
    /// Since when the one at the head of a P's queue waits. Set by sysmon if it still did at
    /// a second look; back to 0, for not known, when that P moves on.
    ring_waits_since_ns: AtomicU64,
    /// See [`NodeView::is_stuck`]. Sysmon's.
    is_stuck: AtomicBool,
    /// Goroutines that left the queue, to see whether it moves.
    pub(crate) n_taken: AtomicUsize,
}

impl Summary {
    /// The node as a thief sees it.
    pub(crate) fn view(&self, now_ns: u64) -> NodeView {
        let known = [
            self.queue_waits_since_ns(),
            self.ring_waits_since_ns.load(Ordering::Relaxed),
        ];
        let oldest_ns = known.into_iter().filter(|&ns| ns != 0).min();
        NodeView {
            runnable: self.runnable(),
            idle: self.idle.load(Ordering::Relaxed),
            oldest_wait_ns: oldest_ns.map_or(0, |ns| now_ns.saturating_sub(ns).max(1)),
            is_stuck: self.is_stuck.load(Ordering::Relaxed),
        }
    }

    fn queue_waits_since_ns(&self) -> u64 {
        let then = self.n_taken_then.load(Ordering::Relaxed);
        match self.n_taken.load(Ordering::Relaxed) == then {
            true => self.queue_waits_since_ns.load(Ordering::Relaxed),
            false => 0,
        }
    }

    /// Goroutines that wait in queues of the node.
    pub(crate) fn runnable(&self) -> usize {
        let in_rings = self.in_rings.load(Ordering::Relaxed);
        // What one has published and another not yet may be below what was there.
        self.queued.load(Ordering::SeqCst) + usize::try_from(in_rings).unwrap_or(0)
    }

    /// Ps of the node that sleep or look for work.
    pub(crate) fn n_idle(&self) -> usize {
        self.idle.load(Ordering::Relaxed)
    }

    pub(crate) fn begin_idle(&self) {
        self.idle.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_idle(&self) {
        self.idle.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sysmon's part of the line: since when the heads of queues wait, 0 for not known.
    pub(crate) fn set_waiting(&self, queue: (u64, usize), ring_ns: u64, is_stuck: bool) {
        let (since_ns, n_taken) = queue;
        self.queue_waits_since_ns.store(since_ns, Ordering::Relaxed);
        self.n_taken_then.store(n_taken, Ordering::Relaxed);
        self.ring_waits_since_ns.store(ring_ns, Ordering::Relaxed);
        self.is_stuck.store(is_stuck, Ordering::Relaxed);
    }
}

/// What others know of a P's queue.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// Its length. Ordering: relaxed swaps, so that the sum of all differences is what the Ps
    /// have published last, whoever did it.
    len: AtomicUsize,
    /// Sysmon has said that it stands still. Ordering: relaxed; the P's holder takes it back.
    stands_still: AtomicBool,
}

impl Published {
    /// Says that the P's queue has `len` goroutines now. By anyone who has just looked.
    #[inline]
    pub(crate) fn publish(&self, len: usize, node: &Summary) {
        if self.len.load(Ordering::Relaxed) != len {
            let before = self.len.swap(len, Ordering::Relaxed);
            node.in_rings
                .fetch_add(len as isize - before as isize, Ordering::Relaxed);
        }
    }

    /// By sysmon: its head has not moved for a while.
    pub(crate) fn stands_still(&self) {
        self.stands_still.store(true, Ordering::Relaxed);
    }

    /// By the P's holder: it does move. Should it stand still for another P as well, sysmon will
    /// say so again.
    #[inline]
    pub(crate) fn moves_on(&self, node: &Summary) {
        if self.stands_still.load(Ordering::Relaxed) {
            self.stands_still.store(false, Ordering::Relaxed);
            node.ring_waits_since_ns.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_line_fits_into_a_line() {
        assert!(size_of::<Summary>() <= 64);
    }

    #[test]
    fn publishing_again_replaces_what_was_published() {
        let node = Summary::default();
        let (a, b) = (Published::default(), Published::default());
        a.publish(5, &node);
        b.publish(3, &node);
        a.publish(1, &node);
        a.publish(1, &node);
        assert_eq!(node.runnable(), 4);
        node.queued.store(2, Ordering::SeqCst);
        assert_eq!(node.view(0).runnable, 6);
        b.publish(0, &node);
        a.publish(0, &node);
        assert_eq!(node.view(0).runnable, 2);
    }

    #[test]
    fn a_wait_is_counted_from_when_it_was_seen() {
        let node = Summary::default();
        assert_eq!(node.view(100).oldest_wait_ns, 0);
        node.set_waiting((120, 7), 100, true);
        // Of the queue's head nothing is known: others were taken since.
        assert_eq!(node.view(150).oldest_wait_ns, 50);
        node.n_taken.store(7, Ordering::Relaxed);
        node.set_waiting((80, 7), 100, true);
        assert_eq!(node.view(150).oldest_wait_ns, 70);
        // Two clocks' readings of one moment may differ, but it does wait.
        assert_eq!(node.view(70).oldest_wait_ns, 1);
        assert!(node.view(70).is_stuck);
    }

    #[test]
    fn a_p_that_moves_on_says_so() {
        let (node, p) = (Summary::default(), Published::default());
        node.set_waiting((0, 0), 100, false);
        p.moves_on(&node);
        assert_eq!(node.view(150).oldest_wait_ns, 50);
        p.stands_still();
        p.moves_on(&node);
        assert_eq!(node.view(150).oldest_wait_ns, 0);
    }
}

//! A node's load, as other nodes see it, in one cache line.
//!
//! A thief that finds no work on its own node checks the other nodes. Checking every P there would
//! touch a remote line for each (Go's sweep over all Ps is 41 % of the samples on large machines:
//! golang/go#28808). So every node keeps its numbers in one line, and a search that finds no work there reads that
//! line and no other. How many Ps are idle is not in it, as that changes all the time: a thief reads it from the
//! node's idle set where there is work.
//!
//! That line has a bit for each P that says whether its queue has work, so a permitted thief
//! goes straight to a P with work. If bits are stale, it has read the line and the queues that have
//! run dry since. It never reads any other queue.
//!
//! The numbers are slightly stale. A P *publishes* the length of its queue when it reads the clock
//! anyway (every 10 µs), when its queue runs dry, and when it queues work while some P is idle and
//! the length has passed a power of two: a goroutine that spawns thousands would else take the line
//! from the thieves at each of them. Sysmon publishes for Ps stuck in one goroutine. The numbers
//! decide where to search, never whether a P may sleep on its own node: that is `idle`'s protocol.
//!
//! There are two races, both modelled with loom. In the first, two threads publish for one P: its
//! holder, and a thief that has found its queue empty. Each changes the length and then the bit,
//! and these steps may interleave. So a thread that has written the bit reads the length again,
//! until both agree: the last thread to write the bit has read the last length.
//!
//! In the second, a P of another node falls asleep while a P publishes. Both sides are sequentially
//! consistent:
//!
//! | publisher                          | thief of another node              |
//! |------------------------------------|------------------------------------|
//! | 1. publish the longer queue        | 1. insert its P into the idle set  |
//! | 2. check for sleepers, and wake    | 2. read the summary; if it permits |
//! |    one if `policy` says so         |    a steal, do not sleep           |

use windlass_topology::placement::MAX_PS;

use super::policy::NodeView;
use crate::loom::native::atomic::AtomicBool;
use crate::loom::{AtomicU32, AtomicU64, Ordering, after_seq_cst};

/// Words of the bit set for the maximum number of Ps.
const WORDS: usize = MAX_PS.div_ceil(64);

/// The summary of a node: one cache line, continued on the next ones for a node with more than 192
/// Ps.
///
/// Ordering: all relaxed unless noted; hints, each read by itself.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Summary {
    /// Goroutines in the node's queue. Ordering: stored and loaded sequentially consistent, stored
    /// under the queue's lock: it is the "work" side of the idle protocol.
    queued: AtomicU32,
    /// Goroutines in the queues of its Ps, as published; may be negative for a moment, as two's
    /// complement. Ordering: sequentially consistent; see the second race.
    in_rings: AtomicU32,
    /// Goroutines that have left the queue, to detect whether it moves.
    n_taken: AtomicU32,
    /// Since when the goroutine at the head of the node's queue has waited, as sysmon saw it, and
    /// `n_taken` at that time: if that has changed, the goroutine has left.
    queue_waits_since_ns: AtomicU64,
    n_taken_then: AtomicU32,
    /// See [`NodeView::is_stuck`]: one more than the index of such a P in its node, or 0. Written
    /// by sysmon.
    stuck: AtomicU32,
    /// Since when the goroutine at the head of a P's queue has waited. Set by sysmon if it was
    /// still there in a second round; reset to 0, for unknown, when that P moves on.
    ring_waits_since_ns: AtomicU64,
    /// A bit for each P, by its index in the node: it has published a queue that is not empty.
    /// Ordering: sequentially consistent against `Published::len`.
    with_work: [AtomicU64; WORDS],
}

impl Default for Summary {
    fn default() -> Summary {
        let zero = || AtomicU32::new(0);
        Summary {
            queued: zero(),
            in_rings: zero(),
            n_taken: zero(),
            queue_waits_since_ns: AtomicU64::new(0),
            n_taken_then: zero(),
            stuck: zero(),
            ring_waits_since_ns: AtomicU64::new(0),
            with_work: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// The Ps of a node that had work when a thief read the summary.
#[derive(Debug)]
pub(crate) struct WithWork([u64; WORDS]);

impl WithWork {
    /// Whether the P with this index in its node had work.
    pub(crate) fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 != 0
    }
}

impl Summary {
    /// The node as a thief sees it. If it has work, `idle` counts its Ps that sleep or spin, from other lines.
    pub(crate) fn view(&self, now_ns: u64, idle: impl FnOnce() -> usize) -> NodeView {
        let known = [
            self.queue_waits_since_ns(),
            self.ring_waits_since_ns.load(Ordering::Relaxed),
        ];
        let oldest_ns = known.into_iter().filter(|&ns| ns != 0).min();
        let runnable = self.runnable();
        let is_stuck = self.stuck_at().is_some();
        NodeView {
            runnable,
            idle: match runnable > 0 || is_stuck {
                true => idle(),
                false => 0,
            },
            oldest_wait_ns: oldest_ns.map_or(0, |ns| now_ns.saturating_sub(ns).max(1)),
            is_stuck,
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
        let in_rings = self.in_rings.load(Ordering::SeqCst).cast_signed();
        // The sum may be negative for a moment, while one P has published and another has not.
        self.n_queued() + usize::try_from(in_rings).unwrap_or(0)
    }

    /// Goroutines in the node's queue.
    #[inline]
    pub(crate) fn n_queued(&self) -> usize {
        self.queued.load(Ordering::SeqCst) as usize
    }

    /// Called with the queue's lock held: records its length, and how many goroutines have left it
    /// since.
    pub(crate) fn note_queue(&self, len: usize, n_left: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.queued.store(len, Ordering::SeqCst);
        if n_left != 0 {
            let before = self.n_taken.load(Ordering::Relaxed);
            let after = before.wrapping_add(n_left as u32);
            self.n_taken.store(after, Ordering::Relaxed);
        }
    }

    /// How many goroutines have left the queue, modulo 2^32.
    pub(crate) fn n_taken(&self) -> u32 {
        self.n_taken.load(Ordering::Relaxed)
    }

    /// A P of the node, by its index there, whose goroutine does not switch out though work waits
    /// behind it.
    pub(crate) fn stuck_at(&self) -> Option<usize> {
        (self.stuck.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// Which of the node's `n` Ps have published a queue that is not empty.
    pub(crate) fn with_work(&self, n: usize) -> WithWork {
        let mut all = WithWork([0; WORDS]);
        for (copy, word) in all.0.iter_mut().zip(&self.with_work).take(n.div_ceil(64)) {
            *copy = word.load(Ordering::Relaxed);
        }
        all
    }

    /// Called by sysmon: since when the heads of queues have waited, 0 for unknown.
    pub(crate) fn set_waiting(&self, queue: (u64, u32), ring_ns: u64, stuck_at: Option<usize>) {
        let (since_ns, n_taken) = queue;
        self.queue_waits_since_ns.store(since_ns, Ordering::Relaxed);
        self.n_taken_then.store(n_taken, Ordering::Relaxed);
        self.ring_waits_since_ns.store(ring_ns, Ordering::Relaxed);
        let stuck = stuck_at.map_or(0, |at| at as u32 + 1);
        self.stuck.store(stuck, Ordering::Relaxed);
    }
}

/// The length of a P's queue as other nodes see it.
#[derive(Debug)]
pub(crate) struct Published {
    /// The length. Ordering: swaps, so that the sum of all differences equals the lengths last
    /// published, whichever thread published them; sequentially consistent against the P's bit.
    len: AtomicU32,
    /// Sysmon has reported that the queue's head does not move. Ordering: relaxed; the P's holder
    /// resets it.
    stands_still: AtomicBool,
}

impl Default for Published {
    fn default() -> Published {
        Published {
            len: AtomicU32::new(0),
            stands_still: AtomicBool::new(false),
        }
    }
}

impl Published {
    /// Publishes `len` for the queue of the P with this index in its node. Called by any thread
    /// that has just read the length. `true` if the published length has grown.
    #[inline]
    pub(crate) fn publish(&self, at: usize, len: usize, node: &Summary) -> bool {
        let len = len as u32;
        self.len.load(Ordering::Relaxed) != len && self.change(at, len, node)
    }

    /// Whether a power of two lies between `len` and the published length.
    #[inline]
    pub(crate) fn is_far_from(&self, len: usize) -> bool {
        let published = self.len.load(Ordering::Relaxed);
        published.leading_zeros() != (len as u32).leading_zeros()
    }

    #[cold]
    #[inline(never)]
    fn change(&self, at: usize, len: u32, node: &Summary) -> bool {
        let before = self.len.swap(len, Ordering::SeqCst);
        let more = len.wrapping_sub(before);
        node.in_rings.fetch_add(more, Ordering::SeqCst);
        after_seq_cst();
        if (before == 0) != (len == 0) {
            self.show(at, node);
        }
        len > before
    }

    /// Sets the P's bit to match its length.
    fn show(&self, at: usize, node: &Summary) {
        let (word, bit) = (&node.with_work[at / 64], 1 << (at % 64));
        let mut has_work = self.len.load(Ordering::SeqCst) != 0;
        loop {
            match has_work {
                true => word.fetch_or(bit, Ordering::SeqCst),
                false => word.fetch_and(!bit, Ordering::SeqCst),
            };
            after_seq_cst();
            let now = self.len.load(Ordering::SeqCst) != 0;
            if now == has_work {
                return;
            }
            has_work = now;
        }
    }

    /// Records that the head of the P's queue has not moved for a while. Called by sysmon.
    pub(crate) fn stands_still(&self) {
        self.stands_still.store(true, Ordering::Relaxed);
    }

    /// Records that the head moves again. If the head of another P's queue stands still as well, sysmon will report
    /// that one anew. Called by the P's holder.
    #[inline]
    pub(crate) fn moves_on(&self, node: &Summary) {
        if self.stands_still.load(Ordering::Relaxed) {
            self.stands_still.store(false, Ordering::Relaxed);
            node.ring_waits_since_ns.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, any(loom, miri)))]
#[path = "summary_loom_tests.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Including the bits of 192 Ps.
    #[test]
    fn the_line_fits_into_a_line() {
        assert!(std::mem::offset_of!(Summary, with_work) + 3 * size_of::<u64>() <= 64);
    }

    fn with_work(node: &Summary) -> Vec<usize> {
        let all = node.with_work(MAX_PS);
        (0..MAX_PS).filter(|&at| all.has(at)).collect()
    }

    #[test]
    fn publishing_again_replaces_what_was_published() {
        let node = Summary::default();
        let (a, b) = (Published::default(), Published::default());
        assert!(a.publish(0, 5, &node));
        assert!(b.publish(70, 3, &node));
        assert!(!a.publish(0, 1, &node));
        assert!(!a.publish(0, 1, &node));
        assert_eq!(node.runnable(), 4);
        assert_eq!(with_work(&node), [0, 70]);
        node.note_queue(2, 0);
        assert_eq!(node.view(0, || 0).runnable, 6);
        b.publish(70, 0, &node);
        assert_eq!(with_work(&node), [0]);
        a.publish(0, 0, &node);
        assert_eq!(node.view(0, || 0).runnable, 2);
        assert_eq!(with_work(&node), [0; 0]);
    }

    #[test]
    fn every_p_that_there_may_be_has_a_bit() {
        let node = Summary::default();
        let p = Published::default();
        p.publish(MAX_PS - 1, 1, &node);
        assert_eq!(with_work(&node), [MAX_PS - 1]);
    }

    #[test]
    fn what_is_below_nothing_for_a_moment_is_nothing() {
        let node = Summary::default();
        node.in_rings.fetch_sub(3, Ordering::Relaxed);
        assert_eq!(node.runnable(), 0);
        node.note_queue(1, 0);
        assert_eq!(node.runnable(), 1);
    }

    #[test]
    fn a_wait_is_counted_from_when_it_was_seen() {
        let node = Summary::default();
        assert_eq!(node.view(100, || 0).oldest_wait_ns, 0);
        node.set_waiting((120, 7), 100, Some(0));
        // The wait of the queue's head is unknown: goroutines were taken since.
        assert_eq!(node.view(150, || 0).oldest_wait_ns, 50);
        node.note_queue(0, 7);
        node.set_waiting((80, 7), 100, Some(2));
        assert_eq!(node.view(150, || 0).oldest_wait_ns, 70);
        // Two clocks may differ about the same moment, but the goroutine does wait.
        assert_eq!(node.view(70, || 0).oldest_wait_ns, 1);
        assert!(node.view(70, || 0).is_stuck);
        assert_eq!(node.stuck_at(), Some(2));
    }

    #[test]
    fn a_p_that_moves_on_says_so() {
        let (node, p) = (Summary::default(), Published::default());
        node.set_waiting((0, 0), 100, None);
        p.moves_on(&node);
        assert_eq!(node.view(150, || 0).oldest_wait_ns, 50);
        assert!(!node.view(150, || 0).is_stuck);
        p.stands_still();
        p.moves_on(&node);
        assert_eq!(node.view(150, || 0).oldest_wait_ns, 0);
    }
}

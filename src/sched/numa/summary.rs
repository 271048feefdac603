//! What other nodes may know of a node at the price of one cache line.
//!
//! A thief that finds nothing on its own node asks whether another has something to
//! give. To look at every P there would touch a remote line for each (Go's sweep over all Ps
//! is 41 % of the samples on large machines: golang/go#28808). So every node keeps a line
//! of numbers, and a failed search reads that line and no other.
//!
//! On the same line a bit for each P says whether its queue has something, so that a thief that
//! was let in goes to a P that has, and one whose news were old has read the line and the queues
//! that have run dry since. The others it never looks at.
//!
//! The numbers are a little old. A P *publishes* the length of its queue when it reads the
//! clock anyway (every 10 µs), when its queue runs dry, and when work is left there while
//! some P is idle; sysmon does it for Ps whose goroutine does not come back. They decide
//! where to look, never whether a P may sleep on its own node: that is `idle`'s protocol.
//!
//! Two races, both modelled with loom. Two that publish for one P (its holder, and a thief that
//! has found its queue empty) each change its length and then its bit, and their steps may mix;
//! so whoever has written the bit looks at the length again, until they agree: the last one to
//! write the bit has seen the last length. And a P of another node may fall asleep while a P
//! publishes, both sequentially consistent:
//!
//! | publisher                          | thief of another node              |
//! |------------------------------------|------------------------------------|
//! | 1. publish that there is more      | 1. insert its P into the idle set  |
//! | 2. look for sleepers, and wake one | 2. look at the line; if it may be  |
//! |    if `policy` says so             |    let in, do not sleep            |

use windlass_topology::placement::MAX_PS;

use super::policy::NodeView;
use crate::loom::native::atomic::AtomicBool;
use crate::loom::{AtomicU32, AtomicU64, Ordering, after_seq_cst};

/// For as many Ps as there may be.
const WORDS: usize = MAX_PS.div_ceil(64);

/// The line of a node, and where it has more Ps than there is room for, the one behind it.
///
/// Ordering: all relaxed but where it is said; hints, each read by itself.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Summary {
    /// Goroutines in the node's queue. Ordering: stored sequentially consistent under the
    /// queue's lock and loaded so: it is the "work" side of the idle protocol.
    queued: AtomicU32,
    /// Goroutines in the queues of its Ps, as published; below 0 for a moment, as two's complement.
    /// Ordering: sequentially consistent; see the second table.
    in_rings: AtomicU32,
    /// Ps that sleep, or look for work. Kept only where there are several nodes.
    idle: AtomicU32,
    /// Goroutines that left the queue, to see whether it moves.
    n_taken: AtomicU32,
    /// Since when the one at the head of the node's queue waits, as sysmon saw it, and what
    /// `n_taken` was then: if it has changed, that one has gone.
    queue_waits_since_ns: AtomicU64,
    n_taken_then: AtomicU32,
    /// See [`NodeView::is_stuck`]: one more than the number of such a P in its node, or 0.
    /// Sysmon's.
    stuck: AtomicU32,
    /// Since when the one at the head of a P's queue waits. Set by sysmon if it still did at
    /// a second look; back to 0, for not known, when that P moves on.
    ring_waits_since_ns: AtomicU64,
    /// A bit for each P, by its number in the node: it has published that its queue has something.
    /// Ordering: sequentially consistent against `Published::len`.
    with_work: [AtomicU64; WORDS],
}

impl Default for Summary {
    fn default() -> Summary {
        let zero = || AtomicU32::new(0);
        Summary {
            queued: zero(),
            in_rings: zero(),
            idle: zero(),
            n_taken: zero(),
            queue_waits_since_ns: AtomicU64::new(0),
            n_taken_then: zero(),
            stuck: zero(),
            ring_waits_since_ns: AtomicU64::new(0),
            with_work: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// Which Ps of a node had something when a thief looked.
#[derive(Debug)]
pub(crate) struct WithWork([u64; WORDS]);

impl WithWork {
    /// Whether the P with this number in its node had.
    pub(crate) fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 != 0
    }

    pub(crate) fn remove(&mut self, at: usize) {
        self.0[at / 64] &= !(1 << (at % 64));
    }
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
            idle: self.n_idle(),
            oldest_wait_ns: oldest_ns.map_or(0, |ns| now_ns.saturating_sub(ns).max(1)),
            is_stuck: self.stuck_at().is_some(),
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
        // What one has published and another not yet may be below what was there.
        self.n_queued() + usize::try_from(in_rings).unwrap_or(0)
    }

    /// Goroutines in the node's queue.
    #[inline]
    pub(crate) fn n_queued(&self) -> usize {
        self.queued.load(Ordering::SeqCst) as usize
    }

    /// By the holder of the queue's lock: its length, and how many have left it since.
    pub(crate) fn note_queue(&self, len: usize, n_left: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.queued.store(len, Ordering::SeqCst);
        if n_left != 0 {
            let before = self.n_taken.load(Ordering::Relaxed);
            let after = before.wrapping_add(n_left as u32);
            self.n_taken.store(after, Ordering::Relaxed);
        }
    }

    /// How many have left the queue, modulo 2^32.
    pub(crate) fn n_taken(&self) -> u32 {
        self.n_taken.load(Ordering::Relaxed)
    }

    /// A P of the node, by its number there, whose goroutine does not come back though something
    /// waits behind it.
    pub(crate) fn stuck_at(&self) -> Option<usize> {
        (self.stuck.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// Which of the node's `n` Ps have published that their queues have something.
    pub(crate) fn with_work(&self, n: usize) -> WithWork {
        let mut all = WithWork([0; WORDS]);
        for (copy, word) in all.0.iter_mut().zip(&self.with_work).take(n.div_ceil(64)) {
            *copy = word.load(Ordering::Relaxed);
        }
        all
    }

    /// Ps of the node that sleep or look for work.
    pub(crate) fn n_idle(&self) -> usize {
        self.idle.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn begin_idle(&self) {
        self.idle.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_idle(&self) {
        self.idle.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sysmon's part of the line: since when the heads of queues wait, 0 for not known.
    pub(crate) fn set_waiting(&self, queue: (u64, u32), ring_ns: u64, stuck_at: Option<usize>) {
        let (since_ns, n_taken) = queue;
        self.queue_waits_since_ns.store(since_ns, Ordering::Relaxed);
        self.n_taken_then.store(n_taken, Ordering::Relaxed);
        self.ring_waits_since_ns.store(ring_ns, Ordering::Relaxed);
        let stuck = stuck_at.map_or(0, |at| at as u32 + 1);
        self.stuck.store(stuck, Ordering::Relaxed);
    }
}

/// What others know of a P's queue.
#[derive(Debug)]
pub(crate) struct Published {
    /// Its length. Ordering: swaps, so that the sum of all differences is what the Ps have
    /// published last, whoever did it; sequentially consistent against the P's bit.
    len: AtomicU32,
    /// Sysmon has said that it stands still. Ordering: relaxed; the P's holder takes it back.
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
    /// Says that the queue of the P with this number in its node has `len` goroutines now. By
    /// anyone who has just looked. `true` if that is more than was said before.
    #[inline]
    pub(crate) fn publish(&self, at: usize, len: usize, node: &Summary) -> bool {
        let len = len as u32;
        self.len.load(Ordering::Relaxed) != len && self.change(at, len, node)
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

    /// Makes the P's bit say what its length does.
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

#[cfg(all(test, loom))]
#[path = "summary_loom_tests.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// With the bits of 192 Ps.
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
        assert_eq!(node.view(0).runnable, 6);
        b.publish(70, 0, &node);
        assert_eq!(with_work(&node), [0]);
        a.publish(0, 0, &node);
        assert_eq!(node.view(0).runnable, 2);
        assert_eq!(with_work(&node), [0; 0]);
    }

    #[test]
    fn every_p_that_there_may_be_has_a_bit() {
        let node = Summary::default();
        let p = Published::default();
        p.publish(MAX_PS - 1, 1, &node);
        assert_eq!(with_work(&node), [MAX_PS - 1]);
        let mut all = node.with_work(MAX_PS);
        all.remove(MAX_PS - 1);
        assert!(!all.has(MAX_PS - 1));
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
        assert_eq!(node.view(100).oldest_wait_ns, 0);
        node.set_waiting((120, 7), 100, Some(0));
        // Of the queue's head nothing is known: others were taken since.
        assert_eq!(node.view(150).oldest_wait_ns, 50);
        node.note_queue(0, 7);
        node.set_waiting((80, 7), 100, Some(2));
        assert_eq!(node.view(150).oldest_wait_ns, 70);
        // Two clocks' readings of one moment may differ, but it does wait.
        assert_eq!(node.view(70).oldest_wait_ns, 1);
        assert!(node.view(70).is_stuck);
        assert_eq!(node.stuck_at(), Some(2));
    }

    #[test]
    fn a_p_that_moves_on_says_so() {
        let (node, p) = (Summary::default(), Published::default());
        node.set_waiting((0, 0), 100, None);
        p.moves_on(&node);
        assert_eq!(node.view(150).oldest_wait_ns, 50);
        assert!(!node.view(150).is_stuck);
        p.stands_still();
        p.moves_on(&node);
        assert_eq!(node.view(150).oldest_wait_ns, 0);
    }
}

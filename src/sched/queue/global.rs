//! The queue of a node: overflow from its Ps, goroutines readied from outside the runtime, and
//! goroutines whose P was retaken.
//!
//! An intrusive list under a lock, taken from in batches. crossbeam's `Injector` was rejected: it
//! costs 29 to 35 ns an item where the list costs a lock per batch, and it allocates
//! (docs/decisions/scheduler.md).

use windlass_ground::padded::Padded;

use super::runq;
use crate::g::header::GRef;
use crate::g::list::GList;
use crate::lock::{Guard, Lock, rank};
use crate::sched::numa::summary::Summary;

/// A first-in first-out queue that any thread may use.
#[derive(Debug)]
pub(crate) struct NodeQueue {
    list: Lock<GList>,
    /// The length, readable without the lock, and the rest of the node's load as other nodes see
    /// it.
    pub(crate) summary: Padded<Summary>,
}

/// Goroutines taken by a thief of another node.
#[derive(Debug, Default)]
pub(crate) struct StolenBatch {
    pub(crate) gs: GList,
    /// The queue was not empty, but all that were looked at are bound to their node.
    pub(crate) all_bound: bool,
    /// Some were out of the queue for a moment, and Ps of the node may not have seen them: the caller wakes one.
    pub(crate) gave_back: bool,
}

impl NodeQueue {
    pub(crate) fn new() -> NodeQueue {
        NodeQueue {
            list: Lock::new(rank::NODE_QUEUE, GList::new()),
            summary: Padded(Summary::default()),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.summary.n_queued()
    }

    fn note_len(&self, list: &Guard<'_, GList>) {
        self.summary.note_queue(list.len(), 0);
    }

    fn note_taken(&self, list: &Guard<'_, GList>, n: usize) {
        self.summary.note_queue(list.len(), n);
    }

    pub(crate) fn push(&self, g: GRef) {
        let mut list = self.list.lock();
        list.push(g);
        self.note_len(&list);
    }

    pub(crate) fn push_all(&self, gs: GList) {
        if gs.is_empty() {
            return;
        }
        let mut list = self.list.lock();
        list.append(gs);
        self.note_len(&list);
    }

    /// Takes one goroutine.
    pub(crate) fn pop(&self) -> Option<GRef> {
        if self.len() == 0 {
            return None;
        }
        let mut list = self.list.lock();
        let g = list.pop();
        self.note_taken(&list, usize::from(g.is_some()));
        g
    }

    /// Takes a P's share: `min(max, len, len / n_ps + 1)`, Go's batch.
    pub(crate) fn pop_batch(&self, n_ps: usize, max: usize) -> GList {
        let mut out = GList::new();
        if self.len() == 0 {
            return out;
        }
        let mut list = self.list.lock();
        let n = (list.len() / n_ps + 1).min(max).min(list.len());
        for _ in 0..n {
            out.extend_one(list.pop());
        }
        self.note_taken(&list, n);
        out
    }

    /// Takes `batch(len)` goroutines for another node, where `len` is the queue's length. Goroutines
    /// bound to this node go back, and if there were no others, the first 128 are looked at.
    pub(crate) fn take_for_others(&self, batch: impl FnOnce(usize) -> usize) -> StolenBatch {
        if self.len() == 0 {
            return StolenBatch::default();
        }
        let (mut taken, max) = {
            let mut list = self.list.lock();
            let max = batch(list.len());
            let taken = pick(&mut list, max, max, |_| true);
            self.note_taken(&list, taken.len());
            (taken, max)
        };
        // Without the lock: each header is a line of another node, and the node's own Ps would wait.
        let n = taken.len();
        let gs = pick(&mut taken, n, n, |g| !g.is_bound());
        match taken.is_empty() {
            true => StolenBatch {
                gs,
                ..StolenBatch::default()
            },
            false => self.give_back(taken, gs, max),
        }
    }

    /// Puts bound goroutines back to the head of the queue. If `gs` is empty, takes up to `max` others.
    #[cold]
    fn give_back(&self, mut bound: GList, mut gs: GList, max: usize) -> StolenBatch {
        let n_bound = bound.len();
        let mut list = self.list.lock();
        bound.append(std::mem::take(&mut *list));
        *list = bound;
        let mut n_left = 0;
        if gs.is_empty() {
            gs = pick(&mut list, max, runq::HALF, |g| !g.is_bound());
            n_left = gs.len();
        }
        // Goroutines that are back have not left.
        self.note_taken(&list, n_left.wrapping_sub(n_bound));
        StolenBatch {
            all_bound: gs.is_empty(),
            gs,
            gave_back: true,
        }
    }
}

/// Takes up to `max` wanted goroutines out of the first `n` of a list; the others keep their order.
fn pick(list: &mut GList, max: usize, n: usize, is_wanted: impl Fn(GRef) -> bool) -> GList {
    let (mut picked, mut kept) = (GList::new(), GList::new());
    for _ in 0..n.min(list.len()) {
        if picked.len() == max {
            break;
        }
        if let Some(g) = list.pop() {
            let to = if is_wanted(g) { &mut picked } else { &mut kept };
            to.push(g);
        }
    }
    kept.append(std::mem::take(list));
    *list = kept;
    picked
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::g::slab;

    /// Goroutines, of which those are bound to their node for which `is_bound` has a 1.
    fn queue(is_bound: &[usize]) -> (NodeQueue, Vec<GRef>) {
        let mut gs = Vec::new();
        slab::take(slab::DepotId::ANY, 0, is_bound.len(), |g| gs.push(g));
        let queue = NodeQueue::new();
        for (&g, bit) in gs.iter().zip(is_bound) {
            g.status.set_new(*bit == 1);
            assert_eq!(g.is_bound(), *bit == 1);
            queue.push(g);
        }
        (queue, gs)
    }

    fn drain(mut list: GList) -> Vec<GRef> {
        std::iter::from_fn(|| list.pop()).collect()
    }

    #[test]
    fn the_oldest_go_to_another_node_and_the_bound_return_to_the_head() {
        let (queue, gs) = queue(&[1, 0, 1, 0]);
        let taken = queue.take_for_others(|_| 3);
        assert!(taken.gave_back && !taken.all_bound);
        assert_eq!(drain(taken.gs), [gs[1]]);
        assert_eq!((queue.len(), queue.summary.n_taken()), (3, 1));
        assert_eq!(drain(queue.pop_batch(1, 9)), [gs[0], gs[2], gs[3]]);
    }

    #[test]
    fn those_behind_bound_ones_are_found() {
        let (queue, gs) = queue(&[1, 1, 1, 0, 1]);
        let taken = queue.take_for_others(|_| 2);
        assert!(taken.gave_back && !taken.all_bound);
        assert_eq!(drain(taken.gs), [gs[3]]);
        assert_eq!((queue.len(), queue.summary.n_taken()), (4, 1));
    }

    #[test]
    fn a_queue_of_bound_ones_stays_as_it_is() {
        let (queue, gs) = queue(&[1, 1]);
        let taken = queue.take_for_others(|_| 1);
        assert!(taken.gave_back && taken.all_bound && taken.gs.is_empty());
        assert_eq!((queue.len(), queue.summary.n_taken()), (2, 0));
        assert_eq!(drain(queue.pop_batch(1, 9)), gs);
    }
}

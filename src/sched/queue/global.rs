//! The queue of a node: overflow from its Ps, goroutines readied from outside the runtime, and
//! goroutines whose P was retaken.
//!
//! An intrusive list under a lock, taken from in batches. crossbeam's `Injector` was rejected: it
//! costs 29 to 35 ns an item where the list costs a lock per batch, and it allocates
//! (docs/decisions/scheduler.md).

use super::runq;
use crate::g::header::GRef;
use crate::g::list::GList;
use crate::lock::{Guard, Lock, Rank};
use crate::sched::numa::summary::Summary;
use crate::util::padded::Padded;

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
    /// The queue was not empty, but all of its goroutines are bound to their node.
    pub(crate) all_bound: bool,
}

impl NodeQueue {
    pub(crate) fn new() -> NodeQueue {
        NodeQueue {
            list: Lock::new(Rank::NodeQueue, GList::new()),
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

    /// Takes `batch(len)` goroutines for another node, where `len` is the queue's length. Skips
    /// those bound to this node. Of the first 128, takes those that have never run before those
    /// that have, whose stacks stay here.
    pub(crate) fn take_for_others(&self, batch: impl FnOnce(usize) -> usize) -> StolenBatch {
        if self.len() == 0 {
            return StolenBatch::default();
        }
        let mut list = self.list.lock();
        let len = list.len();
        let max = batch(len);
        let fresh = pick(&mut list, max, |g| !g.is_bound() && g.is_fresh());
        let others = pick(&mut list, max - fresh.len(), |g| !g.is_bound());
        let mut gs = fresh;
        gs.append(others);
        self.note_taken(&list, gs.len());
        StolenBatch {
            all_bound: gs.is_empty() && len > 0,
            gs,
        }
    }
}

/// Takes up to `max` wanted goroutines out of the first 128 of a list; the others keep their order.
fn pick(list: &mut GList, max: usize, is_wanted: impl Fn(GRef) -> bool) -> GList {
    let (mut picked, mut kept) = (GList::new(), GList::new());
    for _ in 0..runq::HALF.min(list.len()) {
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

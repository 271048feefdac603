//! The queue of a node: what overflows from its Ps, what comes from outside the
//! runtime, and goroutines whose P was taken.
//!
//! An intrusive list under a lock, taken from in batches. crossbeam's `Injector`
//! was turned down: it costs 29 to 35 ns an item where the list costs a lock per
//! batch, and it allocates (docs/ARCHITECTURE.md).

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::g::header::GRef;
use crate::g::list::GList;
use crate::lock::{Lock, Rank};

/// A first-in first-out queue that any thread may use.
#[derive(Debug)]
pub(crate) struct NodeQueue {
    list: Lock<GList>,
    /// Length, to look without the lock.
    /// Ordering: stored sequentially consistent under the lock and loaded so: it is
    /// the "work" side of the idle protocol (`sched::idle`).
    len: AtomicUsize,
}

impl NodeQueue {
    pub(crate) fn new() -> NodeQueue {
        NodeQueue {
            list: Lock::new(Rank::NodeQueue, GList::new()),
            len: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }

    pub(crate) fn push(&self, g: GRef) {
        let mut list = self.list.lock();
        list.push(g);
        self.len.store(list.len(), Ordering::SeqCst);
    }

    pub(crate) fn push_all(&self, gs: GList) {
        if gs.is_empty() {
            return;
        }
        let mut list = self.list.lock();
        list.append(gs);
        self.len.store(list.len(), Ordering::SeqCst);
    }

    /// Takes one.
    pub(crate) fn pop(&self) -> Option<GRef> {
        if self.len() == 0 {
            return None;
        }
        let mut list = self.list.lock();
        let g = list.pop();
        self.len.store(list.len(), Ordering::SeqCst);
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
        self.len.store(list.len(), Ordering::SeqCst);
        out
    }
}

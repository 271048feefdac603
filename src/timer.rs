//! The timers of one P: a 4-ary min-heap by time, under a short lock.
//!
//! A timer is an entry `(when, G, wait)`. It names one wait of one goroutine, so it needs no
//! allocation and no removal. If the goroutine wakes for another reason, its entry stays in the
//! heap and is stale: the status word has another wait number. A stale entry is dropped when its
//! time comes, or when stale entries make up a quarter of the heap. (This is Go's lazy deletion;
//! the wait number in the status word replaces Go's timer states.)
//!
//! This module schedules nothing: [`Timers::expire`] takes the wake tokens and returns the Gs that
//! are now runnable, and the waits whose operation must be cancelled.

use crate::g::header::GRef;
use crate::g::list::GList;
use crate::g::status::{Reason, Status, WaitId};
use crate::lock::{Lock, Rank};
use crate::loom::native::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sys::clock::NEVER;
use crate::util::placed::PageVec;

#[derive(Clone, Copy, Debug)]
struct Entry {
    when_ns: u64,
    g: GRef,
    wait: WaitId,
}

impl Entry {
    fn is_stale(&self) -> bool {
        Status::wait_of(self.g.status.load()) != Some(self.wait)
    }
}

/// The result of [`Timers::expire`].
#[derive(Debug, Default)]
pub(crate) struct Expired {
    /// Goroutines whose wake token was taken. The caller queues them.
    pub(crate) ready: GList,
    /// Waits for an operation past its deadline. The caller cancels the operation.
    pub(crate) cancel: Vec<(GRef, WaitId)>,
}

/// Timers that move from one P to another.
#[derive(Debug)]
pub(crate) struct Moved(Vec<Entry>);

/// The timers of a P.
#[derive(Debug)]
pub(crate) struct Timers {
    heap: Lock<PageVec<Entry>>,
    /// When the earliest entry is due, `NEVER` for none. Read without the lock.
    /// Ordering: release and acquire with the re-check before a P goes idle. A stealing P that
    /// reads an old value runs the timers a moment later.
    next_ns: AtomicU64,
    /// The number of stale entries. Ordering: relaxed, an estimate.
    n_stale: AtomicUsize,
}

impl Timers {
    /// Creates an empty heap. Its memory is on `node`, if one is given.
    pub(crate) fn new(node: Option<u32>) -> Timers {
        Timers {
            heap: Lock::new(Rank::Timers, PageVec::new(node)),
            next_ns: AtomicU64::new(NEVER),
            n_stale: AtomicUsize::new(0),
        }
    }

    /// Returns when the earliest entry is due, or `NEVER`.
    #[inline(always)]
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns.load(Ordering::Acquire)
    }

    /// Arms a timer for a wait that has begun.
    pub(crate) fn add(&self, when_ns: u64, g: GRef, wait: WaitId) {
        let mut heap = self.heap.lock();
        let n_stale = self.n_stale.load(Ordering::Relaxed);
        if n_stale > 64 && n_stale > heap.len() / 4 {
            heap.retain(|e| !e.is_stale());
            rebuild(&mut heap);
            self.n_stale.store(0, Ordering::Relaxed);
        }
        heap.push(Entry { when_ns, g, wait });
        let last = heap.len() - 1;
        sift_up(&mut heap, last);
        self.publish(&heap);
    }

    /// Counts an entry of this heap as stale: its goroutine woke for another reason.
    pub(crate) fn note_stale(&self) {
        self.n_stale.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes all entries that are due at `now_ns`.
    #[cold]
    pub(crate) fn expire(&self, now_ns: u64) -> Expired {
        let mut expired = Expired::default();
        let mut heap = self.heap.lock();
        while heap.first().is_some_and(|e| e.when_ns <= now_ns) {
            let e = pop(&mut heap);
            for later in heap.iter().take(5) {
                // One of these is the next.
                later.g.prefetch_status();
            }
            let status = e.g.status.load();
            if Status::wait_of(status) != Some(e.wait) {
                let n = self.n_stale.load(Ordering::Relaxed);
                self.n_stale.store(n.saturating_sub(1), Ordering::Relaxed);
            } else if status.reason() == Reason::Io {
                expired.cancel.push((e.g, e.wait));
            } else if e.g.status.wake(e.wait) {
                expired.ready.push(e.g);
            }
        }
        self.publish(&heap);
        expired
    }

    /// Removes all entries, for another P.
    pub(crate) fn take_all(&self) -> Moved {
        let mut heap = self.heap.lock();
        self.n_stale.store(0, Ordering::Relaxed);
        self.next_ns.store(NEVER, Ordering::Release);
        let moved = Moved(heap.to_vec());
        heap.clear();
        moved
    }

    /// Adds the entries of another P.
    pub(crate) fn adopt(&self, moved: Moved) {
        let mut heap = self.heap.lock();
        heap.extend(moved.0.into_iter().filter(|e| !e.is_stale()));
        rebuild(&mut heap);
        self.publish(&heap);
    }

    /// Removes the stale entries.
    pub(crate) fn drop_stale(&self) {
        let mut heap = self.heap.lock();
        heap.retain(|e| !e.is_stale());
        rebuild(&mut heap);
        self.n_stale.store(0, Ordering::Relaxed);
        self.publish(&heap);
    }

    /// Returns the number of entries, including stale ones.
    pub(crate) fn len(&self) -> usize {
        self.heap.lock().len()
    }

    /// Returns the address range of the heap's pages.
    pub(crate) fn span(&self) -> std::ops::Range<usize> {
        self.heap.lock().span()
    }

    fn publish(&self, heap: &[Entry]) {
        self.next_ns
            .store(heap.first().map_or(NEVER, |e| e.when_ns), Ordering::Release);
    }
}

fn sift_up(heap: &mut [Entry], mut i: usize) {
    while i > 0 {
        let parent = (i - 1) / 4;
        if heap[parent].when_ns <= heap[i].when_ns {
            break;
        }
        heap.swap(parent, i);
        i = parent;
    }
}

fn sift_down(heap: &mut [Entry], mut i: usize) {
    loop {
        let children = (4 * i + 1)..(4 * i + 5).min(heap.len());
        let Some(least) = children.min_by_key(|&c| heap[c].when_ns) else {
            break;
        };
        if heap[i].when_ns <= heap[least].when_ns {
            break;
        }
        heap.swap(i, least);
        i = least;
    }
}

fn pop(heap: &mut PageVec<Entry>) -> Entry {
    let entry = heap.swap_remove(0);
    sift_down(heap, 0);
    entry
}

fn rebuild(heap: &mut [Entry]) {
    for i in (0..heap.len().div_ceil(4)).rev() {
        sift_down(heap, i);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::g::slab;
    use crate::util::random::Random;

    fn waiting_g(reason: Reason) -> (GRef, WaitId) {
        let mut g = None;
        slab::take(slab::DepotId::ANY, 0, 1, |slot| g = Some(slot));
        let g = g.unwrap();
        g.status.set_new();
        g.status.set_runnable();
        g.status.set_running();
        (g, g.status.set_waiting(reason, 0))
    }

    #[test]
    fn comes_due_in_order_of_time() {
        let timers = Timers::new(None);
        let random = Random::new(3);
        let mut whens = Vec::new();
        for _ in 0..500 {
            let (g, wait) = waiting_g(Reason::Sleep);
            let when = random.below(1000) as u64;
            whens.push(when);
            timers.add(when, g, wait);
        }
        whens.sort_unstable();
        assert_eq!(timers.next_ns(), whens[0]);
        for now in 0..1000 {
            let due = whens.iter().filter(|&&w| w == now).count();
            assert_eq!(timers.expire(now).ready.len(), due);
        }
        assert_eq!(timers.next_ns(), NEVER);
    }

    #[test]
    fn a_stale_timer_wakes_nobody() {
        let timers = Timers::new(None);
        let (g, wait) = waiting_g(Reason::Park);
        timers.add(5, g, wait);
        assert!(g.status.wake(wait));
        timers.note_stale();
        assert!(timers.expire(9).ready.is_empty());
    }

    #[test]
    fn an_operation_is_cancelled_not_woken() {
        let timers = Timers::new(None);
        let (g, wait) = waiting_g(Reason::Io);
        timers.add(5, g, wait);
        let expired = timers.expire(5);
        assert!(expired.ready.is_empty());
        assert_eq!(expired.cancel, [(g, wait)]);
        assert!(g.status.wake(wait));
    }

    #[test]
    fn a_million_of_which_few_last() {
        let timers = Timers::new(None);
        let random = Random::new(5);
        let (often, mut wait) = waiting_g(Reason::Park);
        let mut n_live = 0;
        for i in 0..1_000_000_u64 {
            let when_ns = 1_000_000 + random.below(1 << 30) as u64;
            if i % 100 == 0 {
                let (g, wait) = waiting_g(Reason::Sleep);
                timers.add(when_ns, g, wait);
                n_live += 1;
            } else {
                timers.add(when_ns, often, wait);
                assert!(often.status.wake(wait));
                timers.note_stale();
                often.status.set_running();
                wait = often.status.set_waiting(Reason::Park, 0);
            }
            let len = timers.len();
            assert!(len <= n_live * 4 / 3 + 100, "{len} for {n_live}");
        }
        let (mut n_woken, mut now_ns) = (0, 0);
        while timers.next_ns() != NEVER {
            assert!(timers.next_ns() > now_ns);
            now_ns = timers.next_ns();
            n_woken += timers.expire(now_ns).ready.len();
        }
        assert_eq!(n_woken, n_live);
    }

    #[test]
    fn stale_entries_are_purged() {
        let timers = Timers::new(None);
        for i in 0..10_000 {
            let (g, wait) = waiting_g(Reason::Park);
            timers.add(1_000_000 + i, g, wait);
            assert!(g.status.wake(wait));
            timers.note_stale();
        }
        assert!(timers.len() < 200, "{} entries left", timers.len());
    }
}

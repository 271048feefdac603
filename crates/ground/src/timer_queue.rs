//! Values that come due: a 4-ary min-heap by time of those that are due soon, and unsorted buckets of the others
//! (`later`). If there are few, all are in the heap.
//!
//! Nothing is removed but in the order of time: a user who needs a value no more leaves it, and counts.

mod entry;
mod later;

use std::ops::Range;

use windlass_sys::clock::{self, NEVER};

use crate::placed::PageVec;
pub use entry::Entry;
use later::Later;

/// Up to this length the heap takes every entry, whenever it is due.
const HEAP_ENTRIES: usize = 256;

/// Entries, of which the earliest comes first.
#[derive(Debug)]
pub struct TimerQueue<T: Copy> {
    heap: PageVec<Entry<T>>,
    later: Later<T>,
}

impl<T: Copy> TimerQueue<T> {
    /// A queue without entries. Their memory will be on `node`, if one is given.
    pub fn new(node: Option<u32>) -> TimerQueue<T> {
        TimerQueue {
            heap: PageVec::new(node),
            later: Later::new(node),
        }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.heap.len() + self.later.len()
    }

    /// When the earliest entry is due, `NEVER` for none.
    #[inline]
    pub fn first_ns(&self) -> u64 {
        let heap = self.heap.first().map_or(NEVER, |e| e.when_ns);
        heap.min(self.later.first_ns())
    }

    /// Adds an entry.
    #[inline]
    pub fn add(&mut self, entry: Entry<T>) {
        if self.heap.len() < HEAP_ENTRIES {
            return push(&mut self.heap, entry);
        }
        if self.later.len() == 0 {
            self.later.advance(clock::now_ns(), |_| {});
        }
        if let Err(entry) = self.later.add(entry) {
            push(&mut self.heap, entry);
        }
    }

    /// Brings what is due at `now_ns`, or soon after it, into the heap.
    #[inline]
    pub fn advance(&mut self, now_ns: u64) {
        let heap = &mut self.heap;
        self.later.advance(now_ns, |entry| push(heap, entry));
    }

    /// Removes the earliest value, if it is due at `now_ns`; behind an [`advance`](TimerQueue::advance) to that time.
    #[inline]
    pub fn pop_due(&mut self, now_ns: u64) -> Option<T> {
        self.heap.first().filter(|e| e.when_ns <= now_ns)?;
        Some(pop(&mut self.heap).value)
    }

    /// Values of which one is the next, to be prefetched.
    #[inline]
    pub fn next_ones(&self) -> impl Iterator<Item = T> {
        self.heap.iter().take(5).map(|e| e.value)
    }

    /// Removes all entries.
    pub fn take_all(&mut self) -> Vec<Entry<T>> {
        let all = self.iter().copied().collect();
        self.retain(|_| false);
        all
    }

    /// Keeps the entries of some values.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        let keep = |e: &Entry<T>| keep(&e.value);
        self.heap.retain(keep);
        rebuild(&mut self.heap);
        self.later.retain(keep);
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Entry<T>> {
        self.heap.iter().chain(self.later.iter())
    }

    /// The address ranges of the entries' pages: those of the heap, then of the buckets.
    pub fn spans(&self) -> impl Iterator<Item = Range<usize>> {
        let heap = std::iter::once(self.heap.span());
        heap.chain(self.later.spans())
    }
}

fn push<T: Copy>(heap: &mut PageVec<Entry<T>>, entry: Entry<T>) {
    heap.push(entry);
    let last = heap.len() - 1;
    sift_up(heap, last);
}

fn sift_up<T>(heap: &mut [Entry<T>], mut i: usize) {
    while i > 0 {
        let parent = (i - 1) / 4;
        if heap[parent].when_ns <= heap[i].when_ns {
            break;
        }
        heap.swap(parent, i);
        i = parent;
    }
}

fn sift_down<T>(heap: &mut [Entry<T>], mut i: usize) {
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

fn pop<T: Copy>(heap: &mut PageVec<Entry<T>>) -> Entry<T> {
    let entry = heap.swap_remove(0);
    sift_down(heap, 0);
    entry
}

fn rebuild<T>(heap: &mut [Entry<T>]) {
    for i in (0..heap.len().div_ceil(4)).rev() {
        sift_down(heap, i);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn values_come_in_the_order_of_their_times_and_some_are_left_out() {
        let mut queue = TimerQueue::new(None);
        let random = Random::new(7);
        let now_ns = clock::now_ns();
        let whens = (0..2_000).map(|i| now_ns + ((random.below(1 << 20) as u64) << (i % 24)));
        let mut whens: Vec<u64> = whens.collect();
        for &when_ns in &whens {
            let value = when_ns;
            queue.add(Entry { when_ns, value });
        }
        queue.retain(|when_ns| when_ns % 3 != 0);
        whens.retain(|when_ns| when_ns % 3 != 0);
        whens.sort_unstable();
        assert_eq!((queue.len(), queue.first_ns()), (whens.len(), whens[0]));
        for when_ns in whens {
            queue.advance(when_ns - 1);
            assert_eq!(queue.first_ns(), when_ns);
            queue.advance(when_ns);
            assert_eq!(queue.pop_due(when_ns), Some(when_ns));
        }
        assert_eq!((queue.len(), queue.first_ns()), (0, NEVER));
        assert_eq!(queue.pop_due(NEVER), None);
    }
}

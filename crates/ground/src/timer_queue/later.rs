//! The entries that do not come due soon: in buckets by their time, unsorted.
//!
//! ```text
//! now ──► the heap │ level 0: 64 buckets of 1 ms │ level 1: 64 of 67 ms │ level 2: 64 of 4.3 s │ ..
//! ```
//!
//! An entry is in the level of the highest digit (to base 64) in which its tick differs from the current
//! one, in the bucket of that digit. So it moves down at most once for each level until the heap takes
//! it, and adding one sorts nothing. (These are the hierarchical timing wheels of Varghese and Lauck,
//! 1987, scheme 7. The heap behind them keeps nanoseconds.)

use windlass_sys::clock::NEVER;

use super::entry::Entry;
use crate::placed::PageVec;

/// A bucket of level 0 spans 2^20 ns, about a millisecond.
const TICK_BITS: u32 = 20;
/// Each level has 64 buckets, each as wide as the whole level below.
const DIGIT_BITS: u32 = 6;
const BUCKETS: usize = 1 << DIGIT_BITS;
/// Enough for every time.
const LEVELS: usize = (u64::BITS - TICK_BITS).div_ceil(DIGIT_BITS) as usize;
/// An empty bucket keeps its pages for the next entries if they are no more than this. Larger ones come
/// from a burst, which would leave its pages on each level.
const KEPT_BYTES: usize = 64 << 10;

#[derive(Debug)]
struct Bucket<T: Copy> {
    entries: PageVec<Entry<T>>,
    /// When the earliest entry is due.
    first_ns: u64,
}

/// The entries of later ticks than the current one.
#[derive(Debug)]
pub(super) struct Later<T: Copy> {
    /// The current tick. It may lie behind the clock, and never passes a bucket that is not empty.
    tick: u64,
    len: usize,
    /// For each level a bit for each bucket that is not empty.
    occupied: [u64; LEVELS],
    /// The buckets of each level; none until the first entry comes.
    buckets: Vec<[Bucket<T>; BUCKETS]>,
    node: Option<u32>,
}

impl<T: Copy> Later<T> {
    pub(super) fn new(node: Option<u32>) -> Later<T> {
        Later {
            tick: 0,
            len: 0,
            occupied: [0; LEVELS],
            buckets: Vec::new(),
            node,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// When the earliest entry is due, `NEVER` for none.
    #[inline]
    pub(super) fn first_ns(&self) -> u64 {
        let first = self.first();
        first.map_or(NEVER, |(level, digit)| self.buckets[level][digit].first_ns)
    }

    /// Takes an entry, or gives it back if it is none of a later tick.
    #[inline]
    pub(super) fn add(&mut self, entry: Entry<T>) -> Result<(), Entry<T>> {
        let tick = entry.when_ns >> TICK_BITS;
        if tick <= self.tick {
            return Err(entry);
        }
        if self.buckets.is_empty() {
            self.make_buckets();
        }
        let level = (self.tick ^ tick).ilog2() / DIGIT_BITS;
        let digit = (tick >> (level * DIGIT_BITS)) as usize % BUCKETS;
        let level = level as usize;
        let bucket = &mut self.buckets[level][digit];
        bucket.first_ns = bucket.first_ns.min(entry.when_ns);
        bucket.entries.push(entry);
        self.occupied[level] |= 1 << digit;
        self.len += 1;
        Ok(())
    }

    #[cold]
    fn make_buckets(&mut self) {
        let node = self.node;
        let empty = |_| Bucket {
            entries: PageVec::new(node),
            first_ns: NEVER,
        };
        self.buckets
            .resize_with(LEVELS, || std::array::from_fn(empty));
    }

    /// Goes on to the tick of `now_ns`, and hands out the entries until then.
    pub(super) fn advance(&mut self, now_ns: u64, mut take: impl FnMut(Entry<T>)) {
        let now = now_ns >> TICK_BITS;
        while let Some((level, digit)) = self.first() {
            let shift = level as u32 * DIGIT_BITS;
            // The digits above are those of the current tick, and those below are 0.
            let above = self.tick >> shift >> DIGIT_BITS << DIGIT_BITS;
            let begin = (above | digit as u64) << shift;
            if begin > now {
                break;
            }
            self.tick = begin;
            self.occupied[level] &= !(1 << digit);
            let bucket = &mut self.buckets[level][digit];
            bucket.first_ns = NEVER;
            let mut entries = std::mem::replace(&mut bucket.entries, PageVec::new(self.node));
            self.len -= entries.len();
            for &entry in entries.iter() {
                if let Err(entry) = self.add(entry) {
                    take(entry);
                }
            }
            // They have gone to lower levels or to the heap, so the bucket is still empty.
            if entries.span().len() <= KEPT_BYTES {
                entries.clear();
                self.buckets[level][digit].entries = entries;
            }
        }
        self.tick = self.tick.max(now);
    }

    /// Keeps some entries.
    pub(super) fn retain(&mut self, keep: impl Fn(&Entry<T>) -> bool) {
        for level in 0..LEVELS {
            let mut left = self.occupied[level];
            while left != 0 {
                let digit = left.trailing_zeros() as usize;
                left &= left - 1;
                let bucket = &mut self.buckets[level][digit];
                self.len -= bucket.entries.len();
                bucket.entries.retain(&keep);
                self.len += bucket.entries.len();
                let whens = bucket.entries.iter().map(|e| e.when_ns);
                bucket.first_ns = whens.min().unwrap_or(NEVER);
                if bucket.entries.is_empty() {
                    self.occupied[level] &= !(1 << digit);
                }
            }
        }
    }

    /// All entries, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<T>> {
        let buckets = self.buckets.iter().flatten();
        buckets.flat_map(|bucket| bucket.entries.iter())
    }

    /// The address ranges of the pages.
    pub(super) fn spans(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let buckets = self.buckets.iter().flatten();
        buckets.map(|bucket| bucket.entries.span())
    }

    /// The bucket of the earliest entries: the first one of the lowest level that has any.
    #[inline]
    fn first(&self) -> Option<(usize, usize)> {
        let level = self.occupied.iter().position(|&bits| bits != 0)?;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }
}

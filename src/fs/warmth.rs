//! What the last reads of a file say of the next one: whether the page cache has its data.
//!
//! - Some reads in a row were **hits**: the next one does not ask. `pread` takes 0.15 µs less than `preadv2`, which
//!   can say "not now". If the data is not there after all, the thread waits for the disk, so it takes many hits
//!   ([`WARM`]) until no more is asked.
//! - Such a read took **long**: it waited for the disk, or its thread for a CPU. The next ones ask again, but few if
//!   all are hits ([`ASK_AGAIN`]), as on a busy machine threads often wait for a CPU.
//! - A read was a **miss**: the next few go to the ring without asking ([`COLD`]), and the count begins anew.

use crate::loom::native::atomic::{AtomicI32, Ordering};

/// How many reads are not tried in place after a miss.
const COLD: i32 = 7;
/// After so many hits in a row, a read does not ask.
const WARM: i32 = 512;
/// How many reads ask again after one that did not and took long.
const ASK_AGAIN: i32 = 64;

/// How to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Through the ring.
    Ring,
    /// In place, if the data is in the page cache.
    Ask,
    /// In place.
    InPlace,
}

/// Of one open file, which several goroutines may read at the same time: what some of them note may be lost.
///
/// Below 0, how many of the next reads are not tried in place; else how many hits in a row there were, up to [`WARM`].
/// Ordering: relaxed, a hint.
#[derive(Debug, Default)]
pub(super) struct Warmth(AtomicI32);

impl Warmth {
    /// How to make the next read.
    #[inline]
    pub(super) fn next_read(&self) -> Way {
        match self.get() {
            WARM => Way::InPlace,
            0.. => Way::Ask,
            cold => {
                self.set(cold + 1);
                Way::Ring
            }
        }
    }

    /// How to make a read that the ring cannot make.
    #[inline]
    pub(super) fn next_in_place(&self) -> Way {
        match self.get() {
            WARM => Way::InPlace,
            _ => Way::Ask,
        }
    }

    /// The page cache had the data, or the read took as long as if it had.
    #[inline]
    pub(super) fn note_hit(&self) {
        let hits = self.get();
        // A file that many read at a time is not written to all the time.
        if hits < WARM {
            self.set(hits.max(0) + 1);
        }
    }

    /// A read in place that did not ask took long.
    #[cold]
    pub(super) fn note_long(&self) {
        self.set((self.get() - ASK_AGAIN).max(0));
    }

    /// The page cache did not have the data.
    pub(super) fn note_miss(&self) {
        self.set(-COLD);
    }

    fn get(&self) -> i32 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, value: i32) {
        self.0.store(value, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// How many reads ask until one does not, if all are hits.
    fn hits_until_in_place(warmth: &Warmth) -> i32 {
        let asks = |_: &i32| warmth.next_read() == Way::Ask;
        (0..10 * WARM)
            .take_while(asks)
            .inspect(|_| warmth.note_hit())
            .count() as i32
    }

    #[test]
    fn many_hits_in_a_row_end_the_questions() {
        let warmth = Warmth::default();
        assert_eq!(hits_until_in_place(&warmth), WARM);
        warmth.note_hit();
        assert_eq!(warmth.next_read(), Way::InPlace);
        assert_eq!(warmth.next_in_place(), Way::InPlace);
    }

    #[test]
    fn a_miss_sends_the_next_reads_to_the_ring_and_the_count_begins_anew() {
        let warmth = Warmth::default();
        hits_until_in_place(&warmth);
        warmth.note_miss();
        assert_eq!(warmth.next_in_place(), Way::Ask);
        for _ in 0..COLD {
            assert_eq!(warmth.next_read(), Way::Ring);
        }
        assert_eq!(hits_until_in_place(&warmth), WARM);
    }

    #[test]
    fn a_long_read_takes_few_questions_and_long_ones_in_a_row_take_all() {
        let warmth = Warmth::default();
        hits_until_in_place(&warmth);
        warmth.note_long();
        assert_eq!(hits_until_in_place(&warmth), ASK_AGAIN);
        (0..WARM / ASK_AGAIN + 1).for_each(|_| warmth.note_long());
        assert_eq!(hits_until_in_place(&warmth), WARM);
    }
}

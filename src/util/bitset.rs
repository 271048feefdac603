//! A concurrent set of small numbers, for the idle Ps of a node.

use crate::loom::{AtomicU64, Ordering};

/// A set of numbers below a bound, one bit each.
///
/// Ordering: `insert` and `remove` are sequentially consistent read-modify-write
/// operations, because the idle protocol (`sched::queue::idle`) needs them ordered with
/// the queue checks around them; `any` and `first` are hints and re-checked by
/// the `remove` that acts on them.
#[derive(Debug)]
pub(crate) struct BitSet(Box<[AtomicU64]>);

impl BitSet {
    pub(crate) fn new(n: usize) -> BitSet {
        BitSet(
            (0..n.div_ceil(64).max(1))
                .map(|_| AtomicU64::new(0))
                .collect(),
        )
    }

    /// Adds `i`; `true` if it was not there.
    pub(crate) fn insert(&self, i: usize) -> bool {
        let bit = 1 << (i % 64);
        self.0[i / 64].fetch_or(bit, Ordering::SeqCst) & bit == 0
    }

    /// Removes `i`. Of several concurrent callers exactly one gets `true`.
    pub(crate) fn remove(&self, i: usize) -> bool {
        let bit = 1 << (i % 64);
        self.0[i / 64].fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    #[inline]
    pub(crate) fn contains(&self, i: usize) -> bool {
        self.0[i / 64].load(Ordering::SeqCst) & (1 << (i % 64)) != 0
    }

    /// The number of elements now.
    pub(crate) fn len(&self) -> usize {
        self.0
            .iter()
            .map(|w| w.load(Ordering::SeqCst).count_ones() as usize)
            .sum()
    }

    /// The elements in rising order. Each word is read when the iterator reaches it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(i, word)| {
            let mut left = word.load(Ordering::SeqCst);
            std::iter::from_fn(move || {
                let at = left.trailing_zeros() as usize;
                left &= left.wrapping_sub(1);
                (at < 64).then_some(64 * i + at)
            })
        })
    }

    /// Whether the set is not empty.
    pub(crate) fn any(&self) -> bool {
        self.0.iter().any(|w| w.load(Ordering::SeqCst) != 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn crosses_words() {
        let s = BitSet::new(130);
        assert!(!s.any());
        for i in [0, 63, 64, 129] {
            assert!(s.insert(i));
            assert!(!s.insert(i));
            assert!(s.contains(i));
        }
        assert!(s.iter().eq([0, 63, 64, 129]));
        for i in [0, 63, 64, 129] {
            assert!(s.remove(i));
            assert!(!s.remove(i));
        }
        assert_eq!(s.iter().next(), None);
        assert!(!s.any());
    }

    const ROUNDS: usize = if cfg!(miri) { 50 } else { 100_000 };

    #[test]
    fn neighbours_lose_nothing() {
        let s = BitSet::new(2);
        std::thread::scope(|scope| {
            for i in 0..2 {
                let s = &s;
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        assert!(s.insert(i) && s.contains(i));
                        assert!(s.remove(i) && !s.contains(i));
                    }
                });
            }
        });
    }

    #[test]
    fn one_of_two_removes() {
        let s = BitSet::new(1);
        let n_left = std::sync::atomic::AtomicUsize::new(ROUNDS);
        let removes = || {
            let mut n = 0;
            while n_left.load(Ordering::SeqCst) > 0 {
                n += usize::from(s.remove(0));
            }
            n + usize::from(s.remove(0))
        };
        let n = std::thread::scope(|scope| {
            let others = [scope.spawn(removes), scope.spawn(removes)];
            let mut n_inserted = 0;
            while n_left.load(Ordering::SeqCst) > 0 {
                n_inserted += usize::from(s.insert(0));
                n_left.fetch_sub(1, Ordering::SeqCst);
            }
            let n: usize = others.into_iter().map(|it| it.join().unwrap()).sum();
            n.wrapping_sub(n_inserted)
        });
        assert_eq!(n, 0, "each that was there is removed once");
    }
}

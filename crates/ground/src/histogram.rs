//! A histogram whose buckets are powers of two. One thread writes, any thread reads.

use super::counter::Counter;

/// `N` buckets. The first counts values below `2^SHIFT`. The bound of each further bucket is twice
/// the previous one. The last bucket counts all larger values.
#[derive(Debug)]
pub struct Histogram<const N: usize, const SHIFT: u32>([Counter; N]);

/// For times in nanoseconds: from 64 ns to half a minute.
pub type Times = Histogram<30, 6>;

/// For small numbers: 0, 1, 2-3, 4-7 and so on, to 4096 and more.
pub type Sizes = Histogram<14, 0>;

impl<const N: usize, const SHIFT: u32> Default for Histogram<N, SHIFT> {
    fn default() -> Self {
        Histogram(std::array::from_fn(|_| Counter::default()))
    }
}

impl<const N: usize, const SHIFT: u32> Histogram<N, SHIFT> {
    /// Counts a value. Called only by the writer.
    pub fn record(&self, value: u64) {
        let bits = (u64::BITS - (value >> SHIFT).leading_zeros()) as usize;
        self.0[bits.min(N - 1)].add(1);
    }

    /// The counts, in rising order of values.
    pub fn counts(&self) -> Vec<u64> {
        self.0.iter().map(Counter::get).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_bucket() {
        let h = Histogram::<5, 2>::default();
        for value in [0, 3, 4, 7, 8, 15, 16, 31, 32, u64::MAX] {
            h.record(value);
        }
        assert_eq!(h.counts(), [2, 2, 2, 2, 2]);
    }
}

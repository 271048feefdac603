//! A small fast generator for victim order: xorshift64*, see Vigna, "An
//! experimental exploration of Marsaglia's xorshift generators" (2016).

use std::cell::Cell;

/// Owner-only random numbers; not for secrets.
#[derive(Debug)]
pub(crate) struct Random(Cell<u64>);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(Cell::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1))
    }

    /// A number below `n`, which is not 0.
    #[inline]
    pub(crate) fn below(&self, n: usize) -> usize {
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        let high = x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        ((high * n as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_below_and_reaches_all() {
        let r = Random::new(7);
        let mut seen = [false; 5];
        for _ in 0..1000 {
            seen[r.below(5)] = true;
        }
        assert_eq!(seen, [true; 5]);
    }
}

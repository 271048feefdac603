//! A small fast generator for victim order: xorshift64*, see Vigna, "An
//! experimental exploration of Marsaglia's xorshift generators" (2016).

use std::cell::Cell;

use crate::loom::native::atomic::{AtomicU64, Ordering};

/// Owner-only random numbers; not for secrets.
#[derive(Debug)]
pub struct Random(Cell<u64>);

impl Random {
    /// A generator that draws the same numbers for the same seed.
    pub fn new(seed: u64) -> Random {
        Random(Cell::new(seed.wrapping_mul(STEP) | 1))
    }

    /// A number below `n`, which is not 0.
    #[inline]
    pub fn below(&self, n: usize) -> usize {
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        let high = x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        ((high * n as u64) >> 32) as usize
    }
}

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A number below `n`, which is not 0, for threads without a generator: splitmix64 (Steele, Lea,
/// Flood, "Fast splittable pseudorandom number generators", 2014).
#[inline]
pub fn shared_below(n: usize) -> usize {
    /// Ordering: relaxed; it publishes nothing.
    static STATE: AtomicU64 = AtomicU64::new(STEP);
    let x = mix(STATE.fetch_add(STEP, Ordering::Relaxed));
    (((x >> 32) * n as u64) >> 32) as usize
}

/// The finalizer of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators", 2014).
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(STEP);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
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
        let mut hits = [0; 5];
        for _ in 0..50_000 {
            hits[shared_below(5)] += 1;
        }
        // 10 standard deviations.
        assert!(hits.iter().all(|n| (9_100..10_900).contains(n)), "{hits:?}");
    }
}

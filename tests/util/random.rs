//! Bytes from a generator with a fixed seed: what fails once fails again.
#![allow(dead_code, reason = "each test file uses a part of it")]

/// Marsaglia's xorshift.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random(88_172_645_463_325_252 ^ (seed << 32))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn byte(&mut self) -> u8 {
        (self.next() >> 32) as u8
    }

    /// One to three of the `sound` samples, one after the other, with a few bytes changed,
    /// taken out or, from `letters`, put in.
    pub(crate) fn nearly(&mut self, sound: &[&[u8]], letters: &[u8]) -> Vec<u8> {
        let n = 1 + self.below(3);
        let mut bytes: Vec<_> = (0..n)
            .flat_map(|_| sound[self.below(sound.len())])
            .copied()
            .collect();
        for _ in 0..self.below(6) {
            if bytes.is_empty() {
                break;
            }
            let at = self.below(bytes.len());
            match self.below(4) {
                0 => bytes[at] = self.byte(),
                1 => drop(bytes.remove(at)),
                2 => bytes.truncate(at),
                _ => bytes.insert(at, letters[self.below(letters.len())]),
            }
        }
        bytes
    }
}

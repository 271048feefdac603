//! Disorder on purpose: how often which of `N` points of a program is perturbed.

use windlass_sys::clock;

use crate::loom::native::atomic::{AtomicU64, Ordering};
use crate::random::mix;

/// How often each point is perturbed under a seed.
#[derive(Debug)]
pub struct ChaosPlan<const N: usize> {
    seed: u64,
    /// One in so many times, 0 for never.
    odds: [u64; N],
    /// Ordering: relaxed, and updates may be lost: draws need not be exact.
    count: AtomicU64,
}

impl<const N: usize> ChaosPlan<N> {
    /// The plan of a seed.
    pub fn new(seed: u64) -> ChaosPlan<N> {
        let odds = std::array::from_fn(|at| [0, 4, 16, 64][(mix(seed ^ salt(at)) % 4) as usize]);
        ChaosPlan {
            seed,
            odds,
            count: AtomicU64::new(0),
        }
    }

    /// How often each point is perturbed: one in so many times, 0 for never.
    pub fn odds(&self) -> &[u64; N] {
        &self.odds
    }

    /// A random number if the point is to be perturbed this time.
    pub fn roll(&self, at: usize) -> Option<u64> {
        let odds = self.odds[at];
        if odds == 0 {
            return None;
        }
        let n = self.count.load(Ordering::Relaxed);
        self.count.store(n.wrapping_add(1), Ordering::Relaxed);
        let random = mix(self.seed.wrapping_add(n) ^ salt(at));
        random.is_multiple_of(odds).then_some(random >> 8)
    }
}

/// Makes the draws of different points independent.
fn salt(at: usize) -> u64 {
    (at as u64 + 1) << 48
}

/// Holds the thread up, by some PAUSE instructions or up to a short sleep.
#[cold]
pub fn hold_up(random: u64) {
    let pauses = |n: u64| (0..n).for_each(|_| crate::loom::spin_loop());
    match random % 16 {
        0..8 => pauses(random >> 4 & 0x3f),
        8..12 => pauses(random >> 4 & 0x7ff),
        #[expect(
            clippy::disallowed_methods,
            reason = "a thread is held up, not a goroutine"
        )]
        12..15 => crate::loom::thread::yield_now(),
        _ => clock::nap(random >> 4 & 0xffff),
    }
}

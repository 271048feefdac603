//! The priorities of probabilistic concurrency testing (Burckhardt and others, "A randomized
//! scheduler with probabilistic guarantees of finding bugs", ASPLOS 2010).
//!
//! Each thread or goroutine draws a priority when it is first seen, and the highest runs. At a few
//! steps, drawn beforehand, the running one falls below all others.

use super::draw::Rng;

/// The highest priority that is drawn.
pub const HIGHEST: u64 = 1 << 32;

/// Priorities by the number of the thread or goroutine. Higher runs first.
#[derive(Clone, Debug, Default)]
pub struct Priorities {
    drawn: Vec<i64>,
    lowest: i64,
}

impl Priorities {
    /// The priority of `who`, drawn when it is first asked for, after those of lower numbers.
    pub fn of(&mut self, who: usize, rng: &mut Rng) -> i64 {
        while self.drawn.len() <= who {
            self.drawn.push(1 + rng.below(HIGHEST).cast_signed());
        }
        self.drawn[who]
    }

    /// Puts `who` below all others, and returns its priority.
    pub fn demote(&mut self, who: usize, rng: &mut Rng) -> i64 {
        self.of(who, rng);
        self.lowest -= 2;
        self.drawn[who] = self.lowest;
        self.lowest
    }

    /// Puts `who` above all others.
    pub fn promote(&mut self, who: usize, rng: &mut Rng) {
        self.of(who, rng);
        let top = self.drawn.iter().max().copied().unwrap_or(0);
        self.drawn[who] = top + 1;
    }

    /// How many have a priority: those with lower numbers.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks for that")]
    pub fn len(&self) -> usize {
        self.drawn.len()
    }
}

/// The steps at which the running thread or goroutine is demoted.
#[derive(Clone, Debug)]
pub struct ChangePoints(Vec<u64>);

impl ChangePoints {
    /// Draws `n` steps of the first `length`.
    pub fn draw(n: u64, length: u64, rng: &mut Rng) -> ChangePoints {
        let mut steps: Vec<u64> = (0..n).map(|_| rng.below(length)).collect();
        steps.sort_unstable_by(|a, b| b.cmp(a));
        ChangePoints(steps)
    }

    /// Whether a change is due at `step`. Each is due once.
    pub fn take(&mut self, step: u64) -> bool {
        let due = self.0.last().is_some_and(|&at| step >= at);
        if due {
            self.0.pop();
        }
        due
    }
}

//! Which goroutine runs next in a bubble.
//!
//! - [`Walk`]: any that can run, with equal probability.
//! - [`Pct`]: the one with the highest priority (`priorities`). A bug that needs `d` orders is found
//!   with a probability that is known, however many goroutines there are.
//! - [`RoundRobin`]: each in its turn. Draws nothing.
//!
//! A [`Script`] takes the place of a strategy, and of all other draws: it has the choices of a run
//! as numbers. Replay and exhaustive search use it.

use super::draw::Rng;
use super::priorities::{ChangePoints, Priorities};

/// The choices of a strategy.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The number of steps so far.
    pub step: u64,
    /// The goroutine that is at a switch point, and could go on.
    pub current: Option<u64>,
    /// The goroutine that has just yielded; it is one of `runnable`.
    pub yielded: Option<u64>,
    /// The goroutines that can run, without `current`, in the order in which they became runnable.
    /// Not empty.
    pub runnable: &'a [u64],
}

/// The place in [`Options::runnable`] of the goroutine to run; `None` for the current one.
pub type Pick = Option<usize>;

/// Makes the choices of one run.
pub trait Strategy: std::fmt::Debug {
    /// The goroutine that runs next.
    fn pick(&mut self, options: &Options<'_>) -> Pick;
}

/// Any goroutine that can run.
#[derive(Debug)]
pub struct Walk(Rng);

impl Walk {
    /// With these numbers.
    pub fn new(rng: Rng) -> Walk {
        Walk(rng)
    }
}

impl Strategy for Walk {
    fn pick(&mut self, options: &Options<'_>) -> Pick {
        let n = options.runnable.len();
        let all = n + usize::from(options.current.is_some());
        let at = self.0.below(all as u64) as usize;
        (at < n).then_some(at)
    }
}

/// Switch points that a goroutine may pass in a row before it counts as one that waits in a loop
/// for another: code that tries until another goroutine has gone on must not try for ever.
const PASSES_IN_A_ROW: u64 = 1_000;

/// Probabilistic concurrency testing.
#[derive(Debug)]
pub struct Pct {
    rng: Rng,
    priorities: Priorities,
    changes: ChangePoints,
    /// The goroutine that ran last, and how many points it has passed.
    last: u64,
    n_passes: u64,
}

impl Pct {
    /// With `depth` orders, of which one is the first choice of priorities.
    pub fn new(mut rng: Rng, depth: u32) -> Pct {
        // How long a run is, is known only afterwards: from 8 to 8,192 steps, and rather short.
        let length = 8 << rng.below(11).min(rng.below(11));
        Pct {
            changes: ChangePoints::draw(u64::from(depth).clamp(1, length) - 1, length, &mut rng),
            priorities: Priorities::default(),
            last: 0,
            n_passes: 0,
            rng,
        }
    }

    fn demote(&mut self, who: u64) {
        self.priorities.demote(who as usize, &mut self.rng);
        self.n_passes = 0;
    }
}

impl Strategy for Pct {
    fn pick(&mut self, options: &Options<'_>) -> Pick {
        if let Some(yielded) = options.yielded {
            self.demote(yielded);
        }
        if let Some(current) = options.current {
            let same = self.last == current;
            self.n_passes = if same { self.n_passes + 1 } else { 0 };
            self.last = current;
            if self.changes.take(options.step) || self.n_passes > PASSES_IN_A_ROW {
                self.demote(current);
            }
        }
        let Pct {
            priorities, rng, ..
        } = self;
        let newest = options.runnable.iter().chain(&options.current).max()?;
        let all = priorities.up_to(*newest as usize, rng);
        let of = |id: u64| all[id as usize];
        // Thousands may be runnable. Of two with the same priority, the later one.
        let (mut at, mut highest) = (0, i64::MIN);
        for (place, &id) in options.runnable.iter().enumerate() {
            let priority = of(id);
            if priority >= highest {
                (at, highest) = (place, priority);
            }
        }
        match options.current {
            Some(current) if of(current) > highest => None,
            _ => Some(at),
        }
    }
}

/// Each goroutine in its turn, by its number.
#[derive(Debug, Default)]
pub struct RoundRobin {
    last: u64,
}

impl Strategy for RoundRobin {
    fn pick(&mut self, options: &Options<'_>) -> Pick {
        // The next number above the last one, or else the lowest.
        let after = options.current.unwrap_or(self.last);
        let turn = |id: u64| id.wrapping_sub(after + 1);
        let all = options.runnable.iter().enumerate();
        let (at, &id) = all.min_by_key(|&(_, &id)| turn(id))?;
        self.last = id;
        Some(at)
    }
}

/// A choice that a run has made, from more than one possibility. 0 is what happens if nothing is
/// drawn: the current goroutine goes on, or the one that has been runnable for the longest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The choice that was made.
    pub picked: u32,
    pub(crate) of: u32,
}

/// The choices of a run, in order. Those after the end of the list are 0.
#[derive(Clone, Debug, Default)]
pub struct Script {
    choices: Vec<u32>,
    at: usize,
    /// How often a goroutine that could go on may still be left for another.
    preemptions: Option<u32>,
}

impl Script {
    /// These choices, and how often a goroutine that could go on may be left for another, if that is bounded.
    pub fn new(choices: Vec<u32>, preemptions: Option<u32>) -> Script {
        Script {
            choices,
            at: 0,
            preemptions,
        }
    }

    /// The next choice, from `of` possibilities.
    pub(crate) fn take(&mut self, of: u32) -> u32 {
        let picked = self.choices.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        picked.min(of - 1)
    }

    /// Whether it is one of an exhaustive search, in which a goroutine that yields lets others run.
    pub(crate) fn is_search(&self) -> bool {
        self.preemptions.is_some()
    }

    /// Whether the goroutine at a switch point may be left for another.
    pub(crate) fn may_preempt(&self) -> bool {
        self.preemptions != Some(0)
    }

    /// It was left for another.
    pub(crate) fn preempted(&mut self) {
        if let Some(left) = &mut self.preemptions {
            *left -= 1;
        }
    }
}

/// The script of the run that comes after one with these choices, in the order of a depth-first
/// search: the last choice that has another possibility takes it. `None` if there is none.
pub fn next_script(mut made: Vec<Choice>) -> Option<Vec<u32>> {
    while let Some(mut last) = made.pop() {
        if last.picked + 1 < last.of {
            last.picked += 1;
            made.push(last);
            return Some(made.into_iter().map(|choice| choice.picked).collect());
        }
    }
    None
}

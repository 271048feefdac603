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
use super::runnable::Runnable;

/// The choices of a strategy.
#[derive(Debug)]
pub struct Options<'a> {
    /// The number of steps so far.
    pub step: u64,
    /// The goroutine that is at a switch point, and could go on.
    pub current: Option<u64>,
    /// The goroutine that has just yielded; it is one of `runnable`.
    pub yielded: Option<u64>,
    /// The goroutines that can run, without `current`, with the priorities that the strategy gave them. Not empty.
    pub runnable: &'a mut Runnable,
}

/// The place in [`Options::runnable`] of the goroutine to run; `None` for the current one.
pub type Pick = Option<usize>;

/// Makes the choices of one run.
pub trait Strategy: std::fmt::Debug {
    /// The priority with which a goroutine joins those that can run.
    fn priority(&mut self, _id: u64) -> i64 {
        0
    }

    /// The goroutine that runs next.
    fn pick(&mut self, options: &mut Options<'_>) -> Pick;
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
    fn pick(&mut self, options: &mut Options<'_>) -> Pick {
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

    fn demote(&mut self, who: u64) -> i64 {
        self.n_passes = 0;
        self.priorities.demote(who as usize, &mut self.rng)
    }
}

impl Strategy for Pct {
    fn priority(&mut self, id: u64) -> i64 {
        self.priorities.of(id as usize, &mut self.rng)
    }

    fn pick(&mut self, options: &mut Options<'_>) -> Pick {
        if let Some(yielded) = options.yielded {
            let lowest = self.demote(yielded);
            options.runnable.set_priority(yielded, lowest);
        }
        if let Some(current) = options.current {
            let same = self.last == current;
            self.n_passes = if same { self.n_passes + 1 } else { 0 };
            self.last = current;
            if self.changes.take(options.step) || self.n_passes > PASSES_IN_A_ROW {
                self.demote(current);
            }
        }
        let (at, _, highest) = options.runnable.best()?;
        match options.current {
            Some(current) if self.priority(current) > highest => None,
            _ => Some(at),
        }
    }
}

/// Each goroutine in its turn, by its number: the next number above the last one, or else the lowest.
#[derive(Debug, Default)]
pub struct RoundRobin {
    last: u64,
    /// How often the turn has come to its end.
    n_rounds: i64,
}

/// The numbers of goroutines are below this.
const ROUND: i64 = 1 << 32;

impl Strategy for RoundRobin {
    fn priority(&mut self, id: u64) -> i64 {
        let round = self.n_rounds + i64::from(id <= self.last);
        -(round * ROUND + id.cast_signed())
    }

    fn pick(&mut self, options: &mut Options<'_>) -> Pick {
        let (at, id, _) = options.runnable.best()?;
        self.n_rounds += i64::from(id <= self.last);
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
    /// The first choice that could not be made: its place, and how many possibilities there were.
    too_large: Option<(usize, u32)>,
    /// How often a goroutine that could go on may still be left for another.
    preemptions: Option<u32>,
}

impl Script {
    /// These choices, and how often a goroutine that could go on may be left for another, if that is bounded.
    pub fn new(choices: Vec<u32>, preemptions: Option<u32>) -> Script {
        Script {
            choices,
            at: 0,
            too_large: None,
            preemptions,
        }
    }

    /// The next choice, from `of` possibilities.
    pub(crate) fn take(&mut self, of: u32) -> u32 {
        let picked = self.choices.get(self.at).copied().unwrap_or(0);
        if picked >= of && self.too_large.is_none() {
            self.too_large = Some((self.at, of));
        }
        self.at += 1;
        picked.min(of - 1)
    }

    /// Says where the run, which has ended, could not make its choices, if it could not make them all.
    pub(crate) fn misfit(&self) -> Option<String> {
        let n = self.choices.len();
        match self.too_large {
            Some((at, of)) => Some(format!(
                "choice {} of its {n} is {}, where only {of} things could happen",
                at + 1,
                self.choices[at]
            )),
            None if self.at < n => Some(format!(
                "the run ended after {} of its {n} choices",
                self.at
            )),
            None => None,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A choice by a look at all that can run: in order, with their priorities.
    trait Plain: Strategy {
        fn plain(&mut self, step: u64, who: (Option<u64>, Option<u64>), ids: &[u64]) -> Pick;
    }

    impl Plain for Pct {
        fn plain(
            &mut self,
            step: u64,
            (current, yielded): (Option<u64>, Option<u64>),
            ids: &[u64],
        ) -> Pick {
            if let Some(yielded) = yielded {
                self.demote(yielded);
            }
            if let Some(current) = current {
                let same = self.last == current;
                self.n_passes = if same { self.n_passes + 1 } else { 0 };
                self.last = current;
                if self.changes.take(step) || self.n_passes > PASSES_IN_A_ROW {
                    self.demote(current);
                }
            }
            let places = 0..ids.len();
            let at = places.max_by_key(|&at| self.priority(ids[at])).unwrap();
            match current {
                Some(current) if self.priority(current) > self.priority(ids[at]) => None,
                _ => Some(at),
            }
        }
    }

    impl Plain for RoundRobin {
        fn plain(&mut self, _: u64, (current, _): (Option<u64>, Option<u64>), ids: &[u64]) -> Pick {
            let after = current.unwrap_or(self.last);
            let turn = |id: u64| id.wrapping_sub(after + 1);
            let at = (0..ids.len()).min_by_key(|&at| turn(ids[at])).unwrap();
            self.last = ids[at];
            Some(at)
        }
    }

    /// The goroutines of a drawn run, for a strategy and for one that looks at all.
    struct Run<S> {
        tree: S,
        plain: S,
        list: Runnable,
        ids: Vec<u64>,
        step: u64,
    }

    impl<S: Plain> Run<S> {
        fn push(&mut self, id: u64) {
            let priority = self.tree.priority(id);
            self.list.push(id, priority);
            self.ids.push(id);
        }

        /// The goroutine that runs next; `None` if the current one goes on.
        fn next(&mut self, current: Option<u64>, yielded: Option<u64>) -> Option<u64> {
            self.step += 1;
            let pick = self.tree.pick(&mut Options {
                step: self.step,
                current,
                yielded,
                runnable: &mut self.list,
            });
            let plain = self.plain.plain(self.step, (current, yielded), &self.ids);
            assert_eq!(pick, plain, "step {}", self.step);
            let id = self.ids.remove(pick?);
            assert_eq!(self.list.remove(pick?), id);
            Some(id)
        }
    }

    /// Goroutines pass switch points, yield, wait, wake others and begin.
    fn choices_are_equal<S: Plain>(seed: u64, tree: S, plain: S) {
        let mut rng = Rng::new(seed);
        let mut run = Run {
            tree,
            plain,
            list: Runnable::default(),
            ids: Vec::new(),
            step: 0,
        };
        let (mut waiting, mut newest) = (Vec::new(), 1);
        run.push(1);
        let mut running = run.next(None, None).unwrap();
        for _ in 0..4_000 {
            match rng.below(8) {
                0 if newest < 300 => {
                    newest += 1;
                    run.push(newest);
                }
                1 if !waiting.is_empty() => {
                    let nth = rng.below(waiting.len() as u64) as usize;
                    run.push(waiting.swap_remove(nth));
                }
                2 => {
                    run.push(running);
                    running = run.next(None, Some(running)).unwrap();
                }
                3 if !run.ids.is_empty() => {
                    waiting.push(running);
                    running = run.next(None, None).unwrap();
                }
                _ if !run.ids.is_empty() => {
                    if let Some(next) = run.next(Some(running), None) {
                        run.push(running);
                        running = next;
                    }
                }
                _ => {}
            }
        }
    }

    #[test]
    fn choices_are_those_of_a_look_at_all() {
        for seed in 0..20 {
            let pct = || Pct::new(Rng::new(seed), 1 + seed as u32 % 4);
            choices_are_equal(seed, pct(), pct());
            choices_are_equal(seed, RoundRobin::default(), RoundRobin::default());
        }
    }
}

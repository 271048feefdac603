//! The strategies, which choose the next thread.
//!
//! - [`Pct`]: probabilistic concurrency testing (Burckhardt and others, 2010). Threads have
//!   random priorities, the highest runs; at a few points drawn at random the running thread
//!   falls below all others. A bug that takes `d` such orders is found with a probability
//!   that is known.
//! - PCT with places instead of times: the changes happen at lines of the source that the
//!   seed draws, so that a line which runs once counts as much as one that runs a thousand times.
//! - [`Walk`]: at each point, with a probability drawn once, any thread that can run.
//! - [`Replay`]: what was recorded.
//!
//! Time is a choice as well: a thread may be preempted while milliseconds pass.

use std::collections::BTreeMap;
use std::panic::Location;

pub(super) use windlass_world::draw::Rng;

use windlass_world::draw::mix;
use windlass_world::priorities::{self, ChangePoints, Priorities};

/// The choices of a strategy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) step: u64,
    /// The thread that is at a point, if it can go on.
    pub(super) current: Option<usize>,
    /// The threads that can run, one bit each; not empty.
    pub(super) runnable: u64,
    /// The current thread waits in a loop for another.
    pub(super) yields: bool,
    /// Some thread sleeps until a deadline.
    pub(super) has_sleepers: bool,
    /// Some operation is in the simulated kernel.
    pub(super) has_operations: bool,
    pub(super) at: &'static Location<'static>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    Thread(usize),
    /// Time jumps to the next deadline; then the strategy is asked again.
    Clock,
    /// The kernel completes an operation, if it can; then the strategy is asked again.
    Kernel,
}

pub(super) trait Strategy: Send {
    fn pick(&mut self, options: &Options) -> Pick;
}

/// The strategy that a seed stands for.
pub(super) fn of_seed(seed: u64) -> (Box<dyn Strategy>, &'static str) {
    let rng = Rng::new(mix(seed ^ 0x5EED));
    match seed % 4 {
        0 => (Box::new(Pct::new(rng, Changes::Steps)), "pct"),
        1 | 2 => (Box::new(Pct::new(rng, Changes::Places)), "pct-places"),
        _ => (Box::new(Walk::new(rng)), "walk"),
    }
}

/// Where priorities change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Changes {
    /// At points counted from the beginning.
    Steps,
    /// At lines of the source.
    Places,
}

/// Points after which a thread that could run all the while goes before all others: code that
/// tries until another thread has gone on must not try for ever.
const STARVED_AFTER: u64 = 2_000;

/// Probabilistic concurrency testing. See the top.
#[derive(Debug)]
pub(super) struct Pct {
    rng: Rng,
    changes: Changes,
    priorities: Priorities,
    /// The steps of the changes; or how many are left.
    steps: ChangePoints,
    n_left: u64,
    /// One place in so many is one of changes, and which.
    one_in: u64,
    salt: u64,
    /// From which point on: else the beginning of a runtime would have them all.
    places_from: u64,
    /// How often time may jump, and below which priority it does so instead of letting run.
    jumps: u64,
    clock: i64,
    /// The kernel's priority.
    kernel: i64,
    /// When each thread was last seen to wait or to run.
    seen: [u64; 64],
}

impl Pct {
    fn new(mut rng: Rng, changes: Changes) -> Pct {
        let depth = 1 + rng.below(5);
        // How long a schedule is, is known only afterwards: from 256 to 16,384 points.
        let length = 256 << rng.below(7);
        let steps = ChangePoints::draw(depth, length, &mut rng);
        Pct {
            changes,
            priorities: Priorities::default(),
            steps,
            n_left: depth + 2,
            one_in: [8, 32, 128, 512][rng.below(4) as usize],
            salt: rng.next(),
            places_from: rng.below(length),
            jumps: 0,
            clock: i64::MIN,
            kernel: rng.below(priorities::HIGHEST).cast_signed(),
            seen: [0; 64],
            rng,
        }
    }

    /// A thread that has been passed over for long.
    fn starved(&mut self, options: &Options) -> Option<usize> {
        if !options.step.is_multiple_of(64) {
            return None;
        }
        for thread in 0..self.priorities.len() {
            if options.runnable >> thread & 1 == 0 || options.current == Some(thread) {
                self.seen[thread] = options.step;
            }
        }
        threads(options.runnable)
            .find(|&thread| options.step.saturating_sub(self.seen[thread]) > STARVED_AFTER)
    }

    fn priority(&mut self, thread: usize) -> i64 {
        self.priorities.of(thread, &mut self.rng)
    }

    /// Returns the new priority.
    fn demote(&mut self, thread: usize) -> i64 {
        self.priorities.demote(thread, &mut self.rng)
    }

    fn changes_now(&mut self, options: &Options) -> bool {
        match self.changes {
            Changes::Steps => self.steps.take(options.step),
            Changes::Places => {
                let place = u64::from(options.at.line()) << 32 | options.at.file().len() as u64;
                let chosen = mix(place ^ self.salt).is_multiple_of(self.one_in);
                let may = self.n_left > 0 && options.step >= self.places_from;
                let now = chosen && may && self.rng.one_in(2);
                if now {
                    self.n_left -= 1;
                }
                now
            }
        }
    }
}

impl Strategy for Pct {
    fn pick(&mut self, options: &Options) -> Pick {
        if let Some(thread) = self.starved(options) {
            // Others fall below it as they wait for it, or in their turn.
            self.priorities.promote(thread, &mut self.rng);
            self.seen[thread] = options.step;
        }
        if let Some(current) = options.current {
            if options.yields {
                self.demote(current);
            } else if self.changes_now(options) {
                let lowest = self.demote(current);
                // Preempted for some time, perhaps.
                self.jumps = [0, 1, 16, 300][self.rng.below(4) as usize];
                self.clock = lowest + 1;
            }
        }
        if options.has_operations && self.rng.one_in(16) {
            let best = threads(options.runnable)
                .map(|t| self.priority(t))
                .max()
                .unwrap_or(i64::MIN);
            if self.kernel > best || self.rng.one_in(16) {
                return Pick::Kernel;
            }
        }
        let (best, thread) = threads(options.runnable)
            .map(|t| (self.priority(t), t))
            .max_by_key(|&(priority, thread)| (priority, std::cmp::Reverse(thread)))
            .expect("somebody can run");
        if self.jumps > 0 && options.has_sleepers && best < self.clock {
            self.jumps -= 1;
            return Pick::Clock;
        }
        Pick::Thread(thread)
    }
}

fn threads(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let first = mask.trailing_zeros() as usize;
        (mask != 0).then(|| {
            mask &= mask - 1;
            first
        })
    })
}

/// Switches to any thread, at each point with a probability drawn once.
#[derive(Debug)]
pub(super) struct Walk {
    rng: Rng,
    switch_one_in: u64,
    clock_one_in: u64,
}

impl Walk {
    fn new(mut rng: Rng) -> Walk {
        Walk {
            switch_one_in: [2, 8, 32, 128][rng.below(4) as usize],
            clock_one_in: [64, 512, 4096, u64::MAX][rng.below(4) as usize],
            rng,
        }
    }
}

impl Strategy for Walk {
    fn pick(&mut self, options: &Options) -> Pick {
        if options.has_sleepers && self.rng.one_in(self.clock_one_in) {
            return Pick::Clock;
        }
        if options.has_operations && self.rng.one_in(32) {
            return Pick::Kernel;
        }
        let stays = !options.yields && !self.rng.one_in(self.switch_one_in);
        if let Some(current) = options.current
            && stays
        {
            return Pick::Thread(current);
        }
        let others = match options.current {
            Some(current) if options.yields => options.runnable & !(1 << current),
            _ => options.runnable,
        };
        let from = if others == 0 {
            options.runnable
        } else {
            others
        };
        let n = self.rng.below(u64::from(from.count_ones())) as usize;
        Pick::Thread(threads(from).nth(n).expect("one of them"))
    }
}

/// The recorded picks, each with its decision, where that was not the current thread.
#[derive(Debug)]
pub(super) struct Replay {
    picks: BTreeMap<u64, Vec<Pick>>,
}

impl Replay {
    /// Reads what [`Recorded::line`] wrote.
    pub(super) fn parse(line: &str) -> Option<Replay> {
        let mut picks: BTreeMap<u64, Vec<Pick>> = BTreeMap::new();
        for word in line.split(',').filter(|w| !w.is_empty()) {
            let (step, who) = word.split_once(':')?;
            let pick = match who {
                "c" => Pick::Clock,
                "k" => Pick::Kernel,
                n => Pick::Thread(n.parse().ok()?),
            };
            picks.entry(step.parse().ok()?).or_default().push(pick);
        }
        for list in picks.values_mut() {
            list.reverse();
        }
        Some(Replay { picks })
    }
}

impl Strategy for Replay {
    fn pick(&mut self, options: &Options) -> Pick {
        let next = self.picks.get_mut(&options.step).and_then(Vec::pop);
        match (next, options.current) {
            (Some(Pick::Thread(t)), _) if options.runnable >> t & 1 == 0 => {
                Pick::Thread(options.runnable.trailing_zeros() as usize)
            }
            (Some(pick), _) => pick,
            (None, Some(current)) => Pick::Thread(current),
            (None, None) => Pick::Thread(options.runnable.trailing_zeros() as usize),
        }
    }
}

/// The picks of a schedule that did not let the current thread go on.
#[derive(Debug, Default)]
pub(super) struct Recorded(Vec<(u64, Pick)>);

impl Recorded {
    pub(super) fn add(&mut self, step: u64, current: Option<usize>, pick: Pick) {
        if current.map(Pick::Thread) != Some(pick) {
            self.0.push((step, pick));
        }
    }

    /// A line that [`Replay::parse`] reads.
    pub(super) fn line(&self) -> String {
        let word = |(step, pick): &(u64, Pick)| match pick {
            Pick::Thread(t) => format!("{step}:{t}"),
            Pick::Clock => format!("{step}:c"),
            Pick::Kernel => format!("{step}:k"),
        };
        self.0.iter().map(word).collect::<Vec<_>>().join(",")
    }
}

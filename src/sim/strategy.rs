//! Which strategy a run has.

use crate::bubble::draw::{Rng, mix};
use crate::bubble::strategy;

/// How the next goroutine is chosen at a switch point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// Half of the seeds a random walk, the other half PCT with depths from 1 to 4.
    #[default]
    Mixed,
    /// Any goroutine that can run, with equal probability.
    RandomWalk,
    /// Probabilistic concurrency testing (Burckhardt and others, 2010): goroutines have random
    /// priorities, and the highest runs. At `depth - 1` steps, drawn beforehand, the running one
    /// falls below all others. Finds a bug that needs `depth` orders with a known probability, also
    /// among many goroutines.
    Pct {
        /// How many orders the bug needs; at least 1.
        depth: u32,
    },
    /// At each switch point the next goroutine by its number. The seed decides only the rest, such
    /// as the branch of a `select!`.
    RoundRobin,
    /// All schedules with at most `preemptions` switches away from a goroutine that could go on,
    /// one after another; for small programs. Seeds play no part. The number of runs is bounded by
    /// [`Sim::seeds`](super::Sim::seeds), here 100,000 unless it is set, and
    /// [`Report::is_complete`](super::Report::is_complete) says whether that was enough.
    ///
    /// A loop that tries until another goroutine has gone on must call `yield_now`, or it runs into
    /// the limit of steps.
    Exhaustive {
        /// The most such switches in a run.
        preemptions: u32,
    },
}

impl Strategy {
    /// The strategy of one run, and its name.
    pub(super) fn of_seed(self, seed: u64) -> (Box<dyn strategy::Strategy>, String) {
        let mut rng = Rng::new(mix(seed ^ 0x57A7_E617));
        let walk = |rng| Box::new(strategy::Walk::new(rng));
        match self {
            Strategy::Mixed if mix(seed).is_multiple_of(2) => (walk(rng), "random walk".to_owned()),
            Strategy::Mixed => {
                let depth = 1 + rng.below(4) as u32;
                Strategy::Pct { depth }.of_seed(seed)
            }
            Strategy::RandomWalk => (walk(rng), "random walk".to_owned()),
            Strategy::Pct { depth } => (
                Box::new(strategy::Pct::new(rng, depth)),
                format!("PCT of depth {depth}"),
            ),
            Strategy::RoundRobin => (
                Box::<strategy::RoundRobin>::default(),
                "round robin".to_owned(),
            ),
            Strategy::Exhaustive { preemptions } => (
                walk(rng),
                format!("exhaustive search, {preemptions} preemptions"),
            ),
        }
    }
}

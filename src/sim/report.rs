//! Reports of runs that did not fail.

use std::time::Duration;

/// One simulated run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// The seed. With it, the run can be repeated.
    pub seed: u64,
    /// How many choices of the next goroutine there were.
    pub steps: u64,
    /// A hash of all choices and all movements of the clock. Two runs with the same number had the
    /// same schedule.
    pub schedule: u64,
    /// The virtual time that passed.
    pub elapsed: Duration,
}

/// The runs of a simulation in which nothing failed. Returned by [`Sim::run`](super::Sim::run).
///
/// # Examples
///
/// ```
/// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
/// let report = windlass::sim::Sim::new(PROMISE).seed(1).seeds(3).run(|| {
///     windlass::spawn(|| ()).join().unwrap();
/// });
/// # if std::env::var_os("WINDLASS_SIM_SEED").is_some() { return }
/// # if std::env::var_os("WINDLASS_SIM_SEEDS").is_some() { return }
/// let report = report.unwrap();
/// let seeds: Vec<u64> = report.runs.iter().map(|run| run.seed).collect();
/// assert_eq!(seeds, [1, 2, 3]);
/// assert!(report.steps() >= 6);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The runs, in order. A seed that was run twice is here once.
    pub runs: Vec<Run>,
    /// Whether an exhaustive search has tried all schedules within its bound. `false` for other
    /// strategies.
    pub is_complete: bool,
}

impl Report {
    /// The steps of all runs.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.runs.iter().map(|run| run.steps).sum()
    }
}

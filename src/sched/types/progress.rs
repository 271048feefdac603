//! How far a run has come, for another thread to read.

use crate::loom::native::atomic::{AtomicU64, Ordering};

/// Numbers of the current run of a simulation. Ordering: relaxed; each is only printed, or compared
/// with what it was a second ago.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Counts the steps of all runs, and their beginnings and ends.
    moves: AtomicU64,
    seed: AtomicU64,
    step: AtomicU64,
    /// The goroutine that runs.
    id: AtomicU64,
}

impl Progress {
    pub(crate) fn begin(&self, seed: u64) {
        self.seed.store(seed, Ordering::Relaxed);
        self.step(0, 0);
    }

    /// A goroutine runs. Only the thread of the run calls this.
    pub(crate) fn step(&self, step: u64, id: u64) {
        let moves = self.moves.load(Ordering::Relaxed);
        self.moves.store(moves + 1, Ordering::Relaxed);
        self.step.store(step, Ordering::Relaxed);
        self.id.store(id, Ordering::Relaxed);
    }

    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// The seed, the step, and the goroutine that runs.
    pub(crate) fn now(&self) -> (u64, u64, u64) {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        (read(&self.seed), read(&self.step), read(&self.id))
    }
}

//! Requests to stop the world. `monitor::world` serves them.

use std::io;

use windlass_ground::std_traits::debug_fields;

use super::state::Sched;
use crate::loom::native::atomic::{AtomicUsize, Ordering};
use crate::loom::native::{Mutex, MutexGuard, PoisonError};

/// A function that runs in a stopped world. It receives an error if the world did not stop.
pub(crate) type StoppedWorldJob = Box<dyn FnOnce(&Sched, io::Result<()>) + Send>;

/// The requests to stop the world.
#[derive(Default)]
pub(crate) struct StopRequests {
    jobs: Mutex<Vec<StoppedWorldJob>>,
    /// Number of waiting jobs, read without the lock. Ordering: relaxed, a hint; the note wakes
    /// sysmon.
    n_jobs: AtomicUsize,
    /// Held while the number of Ps is changed without a run, and while a run begins.
    shape: Mutex<()>,
}

debug_fields!(StopRequests, |this| n_jobs: this.n_jobs, ..);

impl StopRequests {
    pub(crate) fn jobs(&self) -> MutexGuard<'_, Vec<StoppedWorldJob>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps runs from beginning while it is held.
    pub(crate) fn shape(&self) -> MutexGuard<'_, ()> {
        self.shape.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody waits for the world to be stopped.
    pub(crate) fn has_jobs(&self) -> bool {
        self.n_jobs.load(Ordering::SeqCst) != 0
    }

    /// Counts a job that was added to [`StopRequests::jobs`].
    pub(crate) fn note_job(&self) {
        self.n_jobs.fetch_add(1, Ordering::Relaxed);
    }

    /// Drops all jobs: their callers get no answer.
    pub(crate) fn clear(&self) {
        self.jobs().clear();
        self.n_jobs.store(0, Ordering::Relaxed);
    }

    /// Sysmon's part: what it was asked for.
    pub(crate) fn take_jobs(&self) -> Vec<StoppedWorldJob> {
        if self.n_jobs.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut jobs = self.jobs();
        self.n_jobs.store(0, Ordering::Relaxed);
        std::mem::take(&mut *jobs)
    }
}

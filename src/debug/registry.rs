//! A list of runtimes that one thread of the process serves. The first runtime starts the thread.

use std::io;

use crate::loom::native::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use crate::sched::types::state::Sched;

/// The runtimes, in the order in which they were built.
#[derive(Debug)]
pub(crate) struct Registry(Mutex<Known>);

#[derive(Debug)]
struct Known {
    /// The thread has been started.
    is_watched: bool,
    runtimes: Vec<Weak<Sched>>,
}

impl Registry {
    pub(crate) const fn new() -> Registry {
        Registry(Mutex::new(Known {
            is_watched: false,
            runtimes: Vec::new(),
        }))
    }

    /// Adds a runtime until it is dropped. For the first one, calls `start` to start the thread.
    ///
    /// # Errors
    ///
    /// The errors of `start`. Then nothing has changed.
    pub(crate) fn add(
        &self,
        sched: &Arc<Sched>,
        start: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut known = self.lock();
        if !known.is_watched {
            start()?;
            known.is_watched = true;
        }
        known.runtimes.retain(|known| known.strong_count() > 0);
        known.runtimes.push(Arc::downgrade(sched));
        Ok(())
    }

    /// The runtimes that still exist.
    pub(crate) fn runtimes(&self) -> Vec<Arc<Sched>> {
        let known = self.lock().runtimes.clone();
        known.iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

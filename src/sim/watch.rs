//! A thread that says when a simulation hangs: a goroutine has kept the only thread for long, which
//! the simulation itself cannot notice.

use std::time::Duration;

use crate::loom::native::thread;
use crate::loom::native::{Arc, Mutex, PoisonError, Weak};
use crate::sched::types::progress::Progress;
use crate::sys::signal;

/// How often it looks, and after how many looks without a step it reports.
const EVERY: Duration = Duration::from_secs(1);
const PATIENCE: u32 = 5;

/// A simulation that is under way.
#[derive(Debug)]
struct Watched {
    progress: Weak<Progress>,
    moves: u64,
    n_still: u32,
}

/// The simulations of this process. The thread ends when there are none.
#[derive(Debug)]
struct All {
    list: Vec<Watched>,
    has_thread: bool,
}

static ALL: Mutex<All> = Mutex::new(All {
    list: Vec::new(),
    has_thread: false,
});

/// The progress of a new simulation, watched until it is dropped.
pub(super) fn watched() -> Arc<Progress> {
    let progress = Arc::new(Progress::default());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.list.push(Watched {
        progress: Arc::downgrade(&progress),
        moves: 0,
        n_still: 0,
    });
    if !all.has_thread {
        let thread = thread::Builder::new().name("windlass-sim".to_owned());
        // Without the thread nothing is reported.
        all.has_thread = thread.spawn(watch).is_ok();
    }
    progress
}

#[expect(
    clippy::disallowed_methods,
    reason = "a thread of its own sleeps, no goroutine"
)]
fn watch() {
    loop {
        thread::sleep(EVERY);
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.list.retain_mut(look);
        if all.list.is_empty() {
            all.has_thread = false;
            return;
        }
    }
}

/// Reports a simulation that stands still. `false` if it has ended.
fn look(watched: &mut Watched) -> bool {
    let Some(progress) = watched.progress.upgrade() else {
        return false;
    };
    let moves = progress.moves();
    if moves != watched.moves {
        (watched.moves, watched.n_still) = (moves, 0);
        return true;
    }
    watched.n_still = watched.n_still.saturating_add(1);
    if watched.n_still == PATIENCE {
        let (seed, step, id) = progress.now();
        let text = format!(
            "windlass: goroutine {id} of a simulation has run for {PATIENCE} s without a switch \
             point (seed {seed}, step {step}): it computes, or reads an atomic of std in a loop, or \
             waits for a lock of std that another goroutine holds: docs/guide/simulation.md\n"
        );
        signal::write_stderr(text.as_bytes());
    }
    true
}

//! The twin: the runtime on a machine of any size, in the machine's own time.
//!
//! It is the explorer with other answers to two questions. *Who goes on?* Not a strategy says so, but the
//! clocks (`clock`): the thread that is furthest behind. *How long does a step take?* As long as its
//! price says (`machine`), and an access to memory as long as its cache line takes (`lines`). Threads are
//! fibers of one thread of the host (`fiber`), so that a hand-over takes nanoseconds.
//!
//! Nothing is drawn and no clock of the host is read, so a run gives the same numbers each time.

use std::sync::{Arc, Mutex, PoisonError};

use super::control::{self, Control, with};
use super::fiber;
use super::lines::{LineCost, Thefts};
use super::machine::{LEVELS, Machine};
use super::strategy;

/// What a run has cost since it began, or since [`forget_costs`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Transfers of lines between CPUs, by [`Level`](super::machine::Level).
    pub by_level: [u64; LEVELS.len()],
    /// Lines, the dearest first.
    pub lines: Vec<LineCost>,
}

/// The costs so far. For programs that run in a twin.
pub fn report() -> Report {
    with(|c| {
        let lines = c.twin.as_ref().map(|twin| &twin.lines);
        Report {
            by_level: lines.map_or_else(Default::default, |lines| lines.by_level),
            lines: lines.map_or_else(Vec::new, super::lines::Lines::costs),
        }
    })
}

/// Forgets the costs so far, and keeps who has which line.
pub fn forget_costs() {
    with(|c| {
        if let Some(twin) = &mut c.twin {
            twin.lines.forget_costs();
        }
    });
}

/// The attempts so far to bring work from another node.
pub fn thefts() -> Thefts {
    with(|c| (c.twin.as_ref()).map_or_else(Thefts::default, |twin| twin.thefts.clone()))
}

/// The threads so far, by name, and for how many nanoseconds each has had a CPU.
pub fn cpu_times() -> Vec<(String, u64)> {
    with(Control::cpu_times)
}

/// Nanoseconds of the calling thread's clock.
pub fn now_ns() -> u64 {
    control::now_ns()
}

/// The CPU on which the calling thread runs; 0 outside of a twin.
pub fn current_cpu() -> usize {
    let cpu = |me| with(|c| c.twin.as_ref().map_or(0, |twin| twin.clocks.cpu(me)));
    control::me().map_or(0, cpu)
}

/// Runs `f` on a machine, and gives its value, the number of points and their hash.
///
/// # Panics
///
/// With the panic of `f`, and if the machine has more CPUs than lines know.
pub fn simulate<T: Send + 'static>(
    machine: Machine,
    f: impl FnOnce() -> T + Send + 'static,
) -> (T, u64, u64) {
    assert!(
        machine.cpus.len() <= super::lines::MOST_CPUS,
        "too many CPUs"
    );
    control::begin_twin(strategy::of_seed(0).0, 0, machine);
    let outcome = Arc::new(Mutex::new(None));
    let result = Arc::clone(&outcome);
    let made = fiber::make(0, move || {
        let value = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        control::leave(0);
    });
    assert!(made, "there is memory for a stack");
    control::started(0, None);
    while let Some(next) = with(Control::next_of_twin) {
        control::resume(next);
    }
    let (n_points, hash, _) = control::end();
    let value = outcome
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    match value.expect("the first thread has ended") {
        Ok(value) => (value, n_points, hash),
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

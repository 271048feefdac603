//! What happens in a run, told by the switches between its goroutines, and by what happens to
//! simulated hosts and links.

use std::cell::RefCell;
use std::rc::Rc;

use crate::bubble;
use crate::debug::dump::Stacks;
use crate::debug::goroutines::{self, Goroutine, State};
use crate::debug::stack;
use crate::sched::types::state::Sched;

/// A longer run is not told.
pub(super) const MOST_STEPS: u64 = 2_000;
/// How many lines a failure prints: the last ones.
const MOST_LINES: usize = 40;

/// The lines, while the run goes on.
pub(super) type Lines = Rc<RefCell<Vec<String>>>;

/// A callback for `Simulation::on_switch` that adds a line for each switch.
pub(super) fn tell(lines: &Lines) -> impl Fn(&Sched, u64) + use<> {
    let lines = Rc::clone(lines);
    let stacks = RefCell::new(Stacks::new());
    move |sched, left| {
        // Only this one takes notes.
        if let Some(bubble) = bubble::current() {
            let notes = bubble.net(|net, _| net.take_notes()).into_iter();
            let told = notes.map(|(ns, text)| format!("{text}, at {:?}", bubble.elapsed_at(ns)));
            lines.borrow_mut().extend(told);
        }
        // Before the first goroutine nothing ran.
        if left != 0 {
            let line = line(sched, left, &mut stacks.borrow_mut());
            lines.borrow_mut().push(line);
        }
    }
}

/// What goroutine `id`, which has just been left, has done.
fn line(sched: &Sched, id: u64, stacks: &mut Stacks) -> String {
    let mut found = None;
    goroutines::for_each(sched, |mut goroutine, task| {
        if goroutine.id == id {
            stacks.add(sched, &mut goroutine, task.g());
            found = Some(goroutine);
        }
    });
    let Some(goroutine) = found else {
        return format!("goroutine {id} ends");
    };
    let at = place(&goroutine);
    match goroutine.state {
        State::Waiting => format!("goroutine {id} waits{at} ({})", goroutine.status()),
        _ => format!("goroutine {id} is interrupted{at}"),
    }
}

/// Where it is. Without the feature `backtrace` that is not known.
fn place(goroutine: &Goroutine) -> String {
    let frame = stack::program_frame(&goroutine.stack);
    match frame.map(|frame| (&frame.file, frame.line)) {
        Some((Some(file), Some(line))) => format!(" at {file}:{line}"),
        _ => format!(", spawned at {}", goroutine.spawned_at),
    }
}

/// The lines that are printed.
pub(super) fn shown(lines: &Lines) -> Vec<String> {
    let mut lines = lines.take();
    if let Some(n) = lines.len().checked_sub(MOST_LINES).filter(|&n| n > 0) {
        lines.drain(..n);
        lines.insert(0, format!("({n} switches before)"));
    }
    lines
}

//! Events of a run in words: switches between its goroutines, and incidents of simulated hosts, links and
//! disks. A failure prints the last ones.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::bubble;
use crate::debug::dump::Stacks;
use crate::debug::goroutines::{self, Goroutine, State};
use crate::debug::stack;
use crate::sched::types::current;
use crate::sched::types::m::Carrier;
use crate::sched::types::state::Sched;

/// The most steps of a run whose events are listed.
pub(super) const MOST_STEPS: u64 = 2_000;
/// How many lines a failure prints: the last ones.
const MOST_LINES: usize = 40;

/// The lines, while the run goes on.
pub(super) type Lines = Rc<RefCell<Vec<String>>>;

/// A callback for `Simulation::on_switch` that adds a line for each switch.
pub(super) fn recorder(lines: &Lines) -> impl Fn(&Sched, u64, u64) + use<> {
    let lines = Rc::clone(lines);
    let stacks = RefCell::new(Stacks::new());
    let n_notes = Cell::new(0);
    move |sched, left, step| {
        if let Some(bubble) = bubble::current() {
            bubble.net(|net, _| {
                let notes = net.notes(n_notes.get());
                n_notes.set(n_notes.get() + notes.len());
                let incidents = notes.iter().filter_map(|note| {
                    let at = bubble.elapsed_at(note.at_ns);
                    Some(format!("{}, at {at:?}", net.describe(note.incident)?))
                });
                lines.borrow_mut().extend(incidents);
            });
        }
        // Before the first goroutine nothing ran.
        if left != 0 {
            let found = find(sched, left, &mut stacks.borrow_mut());
            note_place(left, found.as_ref());
            let line = line(left, found);
            lines.borrow_mut().push(format!("step {step}: {line}"));
        }
    }
}

/// Records the line at which a goroutine stopped running, if the run is recorded.
fn note_place(id: u64, found: Option<&Goroutine>) {
    let sim = current::m().and_then(Carrier::simulation);
    if let Some(recording) = sim.and_then(|sim| sim.recording.as_ref())
        && let Some(place) = found.and_then(line_of)
    {
        recording.add_place(id, place);
    }
}

/// A goroutine that has just been left, unless it has ended.
fn find(sched: &Sched, id: u64, stacks: &mut Stacks) -> Option<Goroutine> {
    let mut found = None;
    goroutines::for_each(sched, |mut goroutine, task| {
        if goroutine.id == id {
            stacks.add(sched, &mut goroutine, task.g());
            found = Some(goroutine);
        }
    });
    found
}

/// The last act of goroutine `id`, which has just been left.
fn line(id: u64, found: Option<Goroutine>) -> String {
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
    match line_of(goroutine) {
        Some(place) => format!(" at {place}"),
        None => format!(", spawned at {}", goroutine.spawned_at),
    }
}

/// The line at which it is, if that is known.
fn line_of(goroutine: &Goroutine) -> Option<String> {
    let frame = stack::program_frame(&goroutine.stack)?;
    let (file, line) = (frame.file.as_ref()?, frame.line?);
    Some(format!("{file}:{line}"))
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

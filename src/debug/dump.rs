//! All goroutines of a runtime with their stacks, in the form of Go's dumps.

use std::fmt;
use std::ops::Range;

use windlass_leaks::joins::{self, Joins};

use super::goroutines::{self, Goroutine, State, is_off_stack, reason_text};
use super::stack;
use crate::g::header::GRef;
use crate::g::snapshot::StackCopy;
use crate::g::status::Reason;
use crate::sched::monitor::freeze_stack;
use crate::sched::types::state::Sched;
use crate::sched::wait::completion;

/// The goroutines of a runtime. Made by [`Runtime::dump`](crate::Runtime::dump).
///
/// The runtime is not stopped for a dump, so each goroutine is described as of a different moment.
///
/// `Display` prints the form of Go's dumps, which tools for those can read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Dump {
    /// The name of the runtime.
    pub runtime: String,
    /// Every goroutine that has not ended, the oldest first.
    pub goroutines: Vec<Goroutine>,
}

impl Dump {
    /// Takes a dump. A goroutine cannot resume while its stack is copied.
    pub(crate) fn take(sched: &Sched) -> Dump {
        let mut stacks = Stacks::new();
        let mut goroutines = Vec::new();
        let mut joins = Joins::default();
        goroutines::for_each(sched, |mut goroutine, task| {
            stacks.add(sched, &mut goroutine, task.g());
            note_join(&mut joins, &goroutine, task.g(), stacks.span_of(&goroutine));
            goroutines.push(goroutine);
        });
        goroutines.sort_by_key(|g| g.id);
        tell_joins(joins, goroutines.iter_mut());
        Dump {
            runtime: sched.config.name.clone(),
            goroutines,
        }
    }
}

impl Dump {
    /// The rings of goroutines each of which waits for the next, by [`Goroutine::waits_for`], as their numbers: nothing
    /// that the others do ends these waits. If the runtime was not at rest, the waits may be of different moments.
    #[must_use]
    pub fn cycles(&self) -> Vec<Vec<u64>> {
        let waits: Vec<_> = self
            .goroutines
            .iter()
            .map(|g| (g.id, g.waits_for))
            .collect();
        joins::rings(&waits)
    }
}

/// Notes for whom a goroutine may wait.
pub(super) fn note_join(joins: &mut Joins, goroutine: &Goroutine, g: GRef, stack: Range<usize>) {
    joins.add_word(completion::waiter(&g.join), goroutine.id);
    if goroutine.wait_reason == reason_text(Reason::Join) {
        joins.add_joiner(stack, goroutine.id);
    }
}

/// Adds to the descriptions who joins whom.
pub(super) fn tell_joins<'a>(joins: Joins, goroutines: impl Iterator<Item = &'a mut Goroutine>) {
    let joined = joins.joined();
    for goroutine in goroutines {
        goroutine.waits_for = joined.get(&goroutine.id).copied().or(goroutine.waits_for);
    }
}

#[cfg(feature = "backtrace")]
use stack::Walker;

/// Copies the stacks of goroutines, and finds their frames.
pub(crate) struct Stacks {
    copy: StackCopy,
    /// The goroutine whose stack it is.
    of: u64,
    walker: Walker,
}

impl Stacks {
    pub(crate) fn new() -> Stacks {
        Stacks {
            copy: StackCopy::new(),
            of: 0,
            walker: Walker::new(),
        }
    }

    /// Adds its stack to a description of `g`, if it can be copied now.
    pub(crate) fn add(&mut self, sched: &Sched, goroutine: &mut Goroutine, g: GRef) {
        let may_rest = matches!(goroutine.state, State::Waiting | State::Runnable);
        if may_rest && freeze_stack::copy_stack(sched, g, &mut self.copy) {
            let node = self.copy.node().and_then(|idx| sched.nodes.get(idx));
            goroutine.node = node.map(|n| n.os_id);
            goroutine.waits_for = Some(self.copy.owner()).filter(|&id| id != 0);
            goroutine.stack = self.walker.frames(&self.copy);
            self.of = goroutine.id;
        }
    }

    /// The stack of the goroutine, if that was copied last.
    fn span_of(&self, goroutine: &Goroutine) -> Range<usize> {
        match self.of == goroutine.id {
            true => self.copy.span(),
            false => 0..0,
        }
    }
}

/// The frames of a stack, the innermost first; none without the feature `backtrace`.
pub(crate) fn frames_of(copy: &StackCopy) -> Vec<stack::Frame> {
    Walker::new().frames(copy)
}

/// Stands in for the walker in builds without the feature.
#[cfg(not(feature = "backtrace"))]
struct Walker;

#[cfg(not(feature = "backtrace"))]
impl Walker {
    fn new() -> Walker {
        Walker
    }

    fn frames(&mut self, _: &StackCopy) -> Vec<stack::Frame> {
        Vec::new()
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runtime = self.runtime.escape_debug();
        writeln!(f, "{runtime}: {} goroutines", self.goroutines.len())?;
        f.write_str(NO_STACKS)?;
        for cycle in self.cycles() {
            write!(f, "cycle: goroutine {}", cycle[0])?;
            for other in cycle[1..].iter().chain(&cycle[..1]) {
                write!(f, " waits for goroutine {other}")?;
                f.write_str(if *other == cycle[0] { "\n" } else { ", which" })?;
            }
        }
        for goroutine in &self.goroutines {
            writeln!(f)?;
            entry(f, goroutine)?;
        }
        Ok(())
    }
}

/// Stands in a dump for the stack of a goroutine that runs, and in a report of a stall for one that could not be had.
pub(super) const NO_STACK_OF_RUNNING: &str = "\tgoroutine running on a thread; stack unavailable\n";

/// In place of stacks.
#[cfg(not(feature = "backtrace"))]
pub(super) const NO_STACKS: &str =
    "(no stacks: windlass was built without its feature `backtrace`)\n";
#[cfg(feature = "backtrace")]
pub(super) const NO_STACKS: &str = "";

/// A goroutine's part of a dump.
pub(super) fn entry(f: &mut fmt::Formatter<'_>, g: &Goroutine) -> fmt::Result {
    writeln!(f, "{g}:")?;
    for frame in stack::shown_frames(&g.stack) {
        writeln!(f, "{frame}")?;
    }
    match g.state {
        State::Running | State::WithoutP | State::Blocked => f.write_str(NO_STACK_OF_RUNNING)?,
        State::Runnable if g.stack.is_empty() => {
            writeln!(f, "\tgoroutine in a queue; stack unavailable")?
        }
        State::Waiting if g.wait_reason.is_some_and(is_off_stack) => {}
        State::Waiting if g.stack.is_empty() && cfg!(feature = "backtrace") => {
            writeln!(f, "\tgoroutine went on just then; stack unavailable")?;
        }
        State::Waiting | State::Runnable => {}
    }
    origin(f, g)
}

/// Prints where a goroutine was spawned.
pub(crate) fn origin(f: &mut fmt::Formatter<'_>, g: &Goroutine) -> fmt::Result {
    match g.parent {
        0 => writeln!(f, "created outside the runtime")?,
        parent => writeln!(f, "created in goroutine {parent}")?,
    }
    writeln!(f, "\t{}", g.spawned_at)
}

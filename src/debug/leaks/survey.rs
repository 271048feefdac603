//! What goroutines wait for at some moment, as far as the leak profile asks.

use std::collections::HashSet;
use std::ops::Range;

use windlass_leaks::holders::Map;
use windlass_leaks::joins::Joins;

use super::super::dump::{note_join, tell_joins};
use super::super::goroutines::{self, Goroutine};
use crate::g::header::{GRef, SLOT_BYTES};
use crate::g::slab;
use crate::g::snapshot::Rest;
use crate::g::status::{GKind, Reason, Snapshot, Status};
use crate::loom::native::atomic::Ordering;
use crate::sched::monitor::freeze_stack;
use crate::sched::types::state::Sched;

/// A goroutine at some moment.
pub(super) struct Known {
    pub(super) goroutine: Goroutine,
    pub(super) g: GRef,
    pub(super) status: Snapshot,
    /// Nobody has a reference to it, so that nobody can unpark it.
    pub(super) is_unreferenced: bool,
    /// The handles that may end its wait: see `sync::tag`.
    pub(super) wanted: Vec<usize>,
    /// Where its frames are; `None` if that cannot be known.
    pub(super) stack: Option<Range<usize>>,
}

/// All goroutines, the oldest first. `here` is the stack pointer of the caller.
pub(super) fn all(sched: &Sched, here: usize) -> Vec<Known> {
    let mut all = Vec::new();
    let mut joins = Joins::default();
    let mut rest = Rest::new();
    goroutines::for_each(sched, |goroutine, task| {
        let g = task.g();
        let status = g.status.load();
        // The count is read between two readings of the status that agree. So the goroutine did not run meanwhile and gave
        // no reference away, and a waker that has woken it had its own until then.
        let refs = g.refs();
        let waits = status.kind() == GKind::Waiting;
        let is_at_rest = (waits || sched.config.is_simulated())
            && freeze_stack::read_rest(sched, g, &mut rest)
            && g.status.load() == status;
        let (stack, wanted) = match is_at_rest {
            true => (Some(rest.stack.clone()), rest.wanted.clone()),
            false => (g.stack_hint(), Vec::new()),
        };
        let is_unreferenced = is_at_rest && has_no_handle(status.reason(), refs, rest.n_polling);
        let stack = stack.map(|s| if s.contains(&here) { here..s.end } else { s });
        // While a wait begins, its timer may not be armed yet.
        let joiner = stack.clone().filter(|_| is_at_rest);
        note_join(&mut joins, &goroutine, g, joiner.unwrap_or(0..0));
        all.push(Known {
            goroutine,
            g,
            status,
            is_unreferenced,
            wanted,
            stack,
        });
    });
    all.sort_by_key(|known| known.goroutine.id);
    tell_joins(joins, all.iter_mut().map(|known| &mut known.goroutine));
    all
}

/// Whether nobody can wake a goroutine that parks or waits for a future, by the number of references to it, and of polls on its
/// stack.
fn has_no_handle(reason: Reason, refs: u32, n_polling: u32) -> bool {
    // The runtime's own, and that of this look.
    let others = refs.saturating_sub(2);
    match (reason, n_polling) {
        // The waker of `block_on`. No call that it is lent to goes on beside a wait between two polls.
        (Reason::Future, 1) => others == 1,
        (_, 0) => others == 0,
        // In a poll that waits, the waker of the poll may be lent to others. That of a goroutine for a future is not counted.
        _ => false,
    }
}

/// The goroutines whose waits end by time; `None` if timers go from P to P again and again.
pub(super) fn with_timers(sched: &Sched) -> Option<HashSet<usize>> {
    const TRIES: usize = 100;
    (0..TRIES).find_map(|_| timers_at_once(sched))
}

/// As [`with_timers`], unless timers went from one P to another meanwhile.
fn timers_at_once(sched: &Sched) -> Option<HashSet<usize>> {
    let [begun, ended] = &sched.timer_moves;
    let n_before = ended.load(Ordering::SeqCst);
    let mut timed = HashSet::new();
    for p in &sched.ps {
        p.timers.for_each(|g, wait| {
            if Status::wait_of(g.status.load()) == Some(wait) {
                timed.insert(g.as_ptr().addr());
            }
        });
    }
    (begun.load(Ordering::SeqCst) == n_before).then_some(timed)
}

/// The memory of goroutines: their frames and slots; slots without a goroutine, and without the result of one, belong
/// to none.
pub(super) fn memory(sched: &Sched, all: &[Known]) -> Map {
    let mut own: Vec<_> = all
        .iter()
        .flat_map(|known| {
            let stack = known.stack.clone().filter(|stack| !stack.is_empty());
            let both = [stack, Some(slot(known.g))].into_iter().flatten();
            both.map(|range| (range, Some(known.goroutine.id)))
        })
        .collect();
    slab::all().for_each(|g| {
        if g.status.load().kind() == GKind::Free {
            own.push((slot(g), None));
        }
    });
    // A free stack is not told from one that cannot be known.
    let stacks_are_known = all.iter().all(|known| known.stack.is_some());
    let stacks = sched.nodes.iter().filter(|_| stacks_are_known);
    Map::new(own, stacks.flat_map(|node| node.stacks.arenas()).collect())
}

fn slot(g: GRef) -> Range<usize> {
    let at = g.as_ptr().addr();
    at..at + SLOT_BYTES[g.slot_class()]
}

//! What goroutines wait for at some moment, as far as the leak profile asks.

use std::collections::HashSet;
use std::ops::Range;

use super::super::dump::Joins;
use super::super::goroutines::{self, Goroutine};
use crate::g::header::GRef;
use crate::g::snapshot::Rest;
use crate::g::status::{GKind, Snapshot, Status};
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
    #[cfg_attr(
        not(feature = "leaks"),
        expect(dead_code, reason = "only the search for handles needs it")
    )]
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
        // Between two readings of the status: the goroutine gives no reference away meanwhile, and who has woken it kept one until then.
        let refs = g.refs();
        let waits = status.kind() == GKind::Waiting;
        let is_at_rest = (waits || sched.config.is_simulated())
            && freeze_stack::read_rest(sched, g, &mut rest)
            && g.status.load() == status;
        let (stack, wanted) = match is_at_rest {
            true => (Some(rest.stack.clone()), rest.wanted.clone()),
            false => (g.stack_hint(), Vec::new()),
        };
        // The runtime's own, and that of this look.
        let is_unreferenced = is_at_rest && refs == 2 + rest.n_own_refs;
        let stack = stack.map(|s| if s.contains(&here) { here..s.end } else { s });
        joins.add(&goroutine, g, stack.clone().unwrap_or(0..0));
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
    joins.tell(all.iter_mut().map(|known| &mut known.goroutine));
    all
}

/// The goroutines whose waits end by time.
pub(super) fn with_timers(sched: &Sched) -> HashSet<usize> {
    let mut timed = HashSet::new();
    for p in &sched.ps {
        p.timers.for_each(|g, wait| {
            if Status::wait_of(g.status.load()) == Some(wait) {
                timed.insert(g.as_ptr().addr());
            }
        });
    }
    timed
}

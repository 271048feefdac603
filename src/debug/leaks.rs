//! Goroutines that wait for what cannot happen any more: Go's goroutine leak profile, without a garbage collector.
//!
//! Go marks from the goroutines that run; one that waits for an object that is not reached is leaked. Here nothing knows which
//! memory belongs to what. There are two sources instead:
//!
//! - *Counts and joins.* A goroutine that is parked, and to which nobody has a reference, is never unparked. One that joins it, or that
//!   is in a ring of joins, waits for ever, too. This is certain.
//! - *Marks*, with the feature `leaks`. Each sender, receiver, guard, permit and wait group has a word that says to what it belongs
//!   (`sync::tag`), and a wait has the list of the words that may end it. All private memory of the process is searched for these
//!   words. A word on the stack or in the slot of a goroutine is a handle that this goroutine holds. One anywhere else, on the heap,
//!   in a static or on the stack of a thread, may be used by anybody.
//!
//! The leaked goroutines are the greatest set of waits in which each can be ended by members of the set only. It begins with all
//! waits that no deadline and no context ends. A goroutine leaves it whose wait may be ended by a handle outside the set; this
//! repeats until none leaves.
//!
//! A word that is left where a handle was moved away from hides a leak. It does so only in live frames and in memory that was freed:
//! a handle erases its word when it is dropped, and unused stacks and the unused parts of stacks do not count. A handle that is
//! moved while the memory is searched may be missed, so what marks say is a suspicion; it is looked for twice.

use std::collections::HashMap;
use std::fmt;
use std::io;

use windlass_leaks::holders::{self, Holders};
use windlass_leaks::waits::{End, Waits};

use super::dump::{self, Stacks};
use super::goroutines::Goroutine;
use crate::g::header::GRef;
use crate::g::status::{GKind, Reason, Snapshot};
use crate::loom::native::{Mutex, PoisonError};
use crate::sched::types::state::Sched;
use crate::sys::clock;

use survey::Known;

mod survey;

/// The time between the two looks.
const PAUSE_NS: u64 = 1_000_000;

/// How sure it is that a goroutine is leaked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Nothing but the end of the run ends the wait: reference counts and joins say so.
    Proved,
    /// No handle was found by which anything but leaked goroutines could end the wait. It was looked for while the program
    /// ran, so a handle that was being moved may have been missed.
    Suspected,
}

/// A goroutine that waits for what cannot happen any more. Part of [`Leaks`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Leak {
    /// The goroutine: its number and name, what it waits for and since when, where it was spawned, its stack.
    pub goroutine: Goroutine,
    /// How sure it is.
    pub verdict: Verdict,
    /// Why nothing ends the wait, in words.
    pub reason: String,
}

/// The leaked goroutines of a runtime. Made by [`Handle::leaks`](crate::Handle::leaks).
///
/// `Display` prints them as dumps print goroutines, each with its verdict.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Leaks {
    /// The name of the runtime.
    pub runtime: String,
    /// The leaked goroutines, the oldest first.
    pub leaks: Vec<Leak>,
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Proved => "leaked",
            Verdict::Suspected => "leaked, as it seems",
        };
        writeln!(f, "{verdict}: {}", self.reason)?;
        dump::entry(f, &self.goroutine)
    }
}

impl fmt::Display for Leaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runtime = self.runtime.escape_debug();
        writeln!(f, "{runtime}: {} leaked goroutines", self.leaks.len())?;
        self.leaks.iter().try_for_each(|leak| write!(f, "\n{leak}"))
    }
}

/// Finds the leaked goroutines of a runtime. `here` is the stack pointer of the caller, whose frames are those above.
///
/// # Errors
///
/// If the process may not read its own memory, or cannot list it.
pub(crate) fn find(sched: &Sched, here: usize) -> io::Result<Leaks> {
    // What one search has copied is not to be found by another.
    static SEARCHING: Mutex<()> = Mutex::new(());
    let _searching = SEARCHING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut found = look(sched, here)?;
    if found.iter().any(|f| f.verdict == Verdict::Suspected) {
        if !sched.config.is_simulated() {
            clock::nap(PAUSE_NS);
        }
        let again = look(sched, here)?;
        let is_there = |f: &Found| again.iter().any(|other| other.is_same_wait(f));
        found.retain(|f| f.verdict == Verdict::Proved || is_there(f));
    }
    let mut stacks = None;
    let leaks = found.into_iter().map(|f| {
        let mut goroutine = f.goroutine;
        let joined = goroutine.waits_for;
        let stacks = stacks.get_or_insert_with(Stacks::new);
        stacks.add(sched, &mut goroutine, f.g);
        goroutine.waits_for = goroutine.waits_for.or(joined);
        Leak {
            goroutine,
            verdict: f.verdict,
            reason: f.reason,
        }
    });
    Ok(Leaks {
        runtime: sched.config.name.clone(),
        leaks: leaks.collect(),
    })
}

/// A leaked goroutine.
struct Found {
    goroutine: Goroutine,
    g: GRef,
    status: Snapshot,
    verdict: Verdict,
    reason: String,
}

impl Found {
    fn is_same_wait(&self, other: &Found) -> bool {
        (self.g, self.status) == (other.g, other.status)
    }
}

/// What may end the wait of a goroutine. `None` if something may that is not known here.
fn end_of(known: &Known) -> Option<End> {
    let (status, goroutine) = (known.status, &known.goroutine);
    if status.kind() != GKind::Waiting || status.is_cancellable() || known.g.is_off_stack() {
        return None;
    }
    match status.reason() {
        Reason::Park if known.is_unreferenced => {
            Some(End::Nothing("nobody has a handle by which to unpark it"))
        }
        Reason::Future if known.is_unreferenced => Some(End::Nothing("no waker for it is left")),
        Reason::Join => goroutine.waits_for.map(End::Join),
        _ if known.wanted.is_empty() || known.wanted.contains(&0) => None,
        _ => Some(End::Handles(known.wanted.clone())),
    }
}

/// Finds the leaked goroutines once, the oldest first.
fn look(sched: &Sched, here: usize) -> io::Result<Vec<Found>> {
    let before = survey::all(sched, here);
    // A wait that was at rest has its timer by now, until it ends.
    let Some(timed) = survey::with_timers(sched) else {
        return Ok(Vec::new());
    };
    let ends = |all: &[Known]| {
        let untimed = all
            .iter()
            .filter(|known| !timed.contains(&known.g.as_ptr().addr()));
        let ends = untimed.filter_map(|known| Some((known.goroutine.id, end_of(known)?)));
        Waits(ends.collect())
    };
    let mut first = ends(&before);
    // Without those that join one that is not in the set, there may be less to search for.
    first.shrink(&Holders::not_searched());
    let places = holders::search(first.handles())?;
    // Each wait that counts began before this survey, and ends after it: what the survey says of these waits was so at one
    // moment.
    let after = survey::all(sched, here);
    let statuses: HashMap<u64, Snapshot> = before
        .iter()
        .map(|known| (known.goroutine.id, known.status))
        .collect();
    let mut set = ends(&after);
    for known in &after {
        let id = known.goroutine.id;
        let has_waited = statuses.get(&id) == Some(&known.status);
        if !has_waited || known.g.status.load() != known.status || !first.0.contains_key(&id) {
            set.0.remove(&id);
        }
    }
    let holders = places.holders(|| survey::memory(sched, &after));
    set.shrink(&holders);
    let proved = set.proved(&holders);
    let found = after.into_iter().filter_map(|known| {
        let id = known.goroutine.id;
        let reason = set.reason(id, &holders)?;
        Some(Found {
            verdict: match proved.0.contains_key(&id) {
                true => Verdict::Proved,
                false => Verdict::Suspected,
            },
            reason,
            goroutine: known.goroutine,
            g: known.g,
            status: known.status,
        })
    });
    Ok(found.collect())
}

#[cfg(all(test, not(loom)))]
#[path = "leaks_tests.rs"]
mod tests;

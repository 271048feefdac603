//! Goroutines that wait for what cannot happen any more: Go's goroutine leak profile, without a garbage collector.
//!
//! Go marks from the goroutines that run; one that waits for an object that is not reached is leaked. Here nothing knows which
//! memory belongs to what. There are two sources instead:
//!
//! - *Counts and joins.* A goroutine that is parked, and to which nobody has a reference, is never unparked. One that joins it, or that
//!   is in a ring of joins, waits for ever, too. This is certain.
//! - *Marks*, with the feature `leaks`. Each sender, receiver, guard, permit and wait group has a word that says to what it belongs
//!   (`sync::tag`), and a wait has the list of the words that may end it. All writable memory of the process is searched for these
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

use super::dump::{self, Stacks};
use super::goroutines::Goroutine;
use crate::g::header::GRef;
use crate::g::status::{GKind, Reason, Snapshot};
use crate::loom::native::{Mutex, PoisonError};
use crate::sched::types::state::Sched;
use crate::sys::clock;

use handles::Holders;
use survey::{Known, SAID_AT_MOST};

mod survey;
#[cfg(feature = "leaks")]
mod handles;
#[cfg(not(feature = "leaks"))]
#[path = "leaks/no_handles.rs"]
mod handles;

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

/// What may end the wait of a goroutine that may be leaked.
enum End {
    /// Nothing.
    Nothing,
    /// The end of a goroutine.
    Join(u64),
    /// One of these handles.
    Handles(Vec<usize>),
}

impl End {
    /// `None` if something may end it that is not known here.
    fn of(known: &Known) -> Option<End> {
        let (status, goroutine) = (known.status, &known.goroutine);
        if status.kind() != GKind::Waiting || status.is_cancellable() || known.g.is_off_stack() {
            return None;
        }
        match status.reason() {
            Reason::Park | Reason::Future if known.is_unreferenced => Some(End::Nothing),
            Reason::Join => goroutine.waits_for.map(End::Join),
            _ if known.wanted.is_empty() || known.wanted.contains(&0) => None,
            _ => Some(End::Handles(known.wanted.clone())),
        }
    }

    /// Says why nothing ends the wait of goroutine `id`.
    fn reason(&self, id: u64, reason: Reason, holders: &Holders) -> String {
        match self {
            End::Nothing if reason == Reason::Future => "no waker for it is left".to_owned(),
            End::Nothing => "nobody has a handle by which to unpark it".to_owned(),
            End::Join(other) if *other == id => "it joins itself".to_owned(),
            End::Join(other) => format!("goroutine {other}, which it joins, is leaked"),
            End::Handles(wanted) => {
                let said = wanted.iter().take(SAID_AT_MOST);
                let mut parts: Vec<_> = said.map(|&h| holders.describe(h, id)).collect();
                parts.dedup();
                match wanted.len().checked_sub(SAID_AT_MOST) {
                    None | Some(0) => parts.join("; "),
                    Some(n) => format!("{}; and {n} others", parts.join("; ")),
                }
            }
        }
    }
}

/// What may end the wait of a goroutine: another, or the holder of a handle.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    Goroutine(u64),
    Handle(usize),
}

/// Removes those whose wait may be ended from outside, until there are none. Each goroutine and each handle is looked at once, so that
/// long chains and handles with many holders take no longer than others.
fn shrink(set: &mut HashMap<u64, End>, holders: &Holders) {
    let mut ends: HashMap<Source, Vec<u64>> = HashMap::new();
    for (&id, end) in &*set {
        let sources = match end {
            End::Nothing => Vec::new(),
            End::Join(other) => vec![Source::Goroutine(*other)],
            End::Handles(wanted) => wanted.iter().map(|&h| Source::Handle(h)).collect(),
        };
        for source in sources {
            ends.entry(source).or_default().push(id);
        }
    }
    let mut holds: HashMap<u64, Vec<usize>> = HashMap::new();
    let mut free: Vec<Source> = Vec::new();
    for &source in ends.keys() {
        match source {
            Source::Goroutine(id) if !set.contains_key(&id) => free.push(source),
            Source::Goroutine(_) => {}
            Source::Handle(handle) => match holders.of(handle) {
                Some(by) => by
                    .into_iter()
                    .for_each(|id| holds.entry(id).or_default().push(handle)),
                None => free.push(source),
            },
        }
    }
    free.extend(
        holds
            .keys()
            .filter(|id| !set.contains_key(id))
            .map(|&id| Source::Goroutine(id)),
    );
    while let Some(source) = free.pop() {
        if let Source::Goroutine(id) = source {
            let handles = holds.remove(&id).into_iter().flatten();
            free.extend(handles.map(Source::Handle));
        }
        for id in ends.remove(&source).into_iter().flatten() {
            if set.remove(&id).is_some() {
                free.push(Source::Goroutine(id));
            }
        }
    }
}

/// Finds the leaked goroutines once, the oldest first.
fn look(sched: &Sched, here: usize) -> io::Result<Vec<Found>> {
    let before = survey::all(sched, here);
    // A wait that was at rest has its timer by now, until it ends.
    let Some(timed) = survey::with_timers(sched) else {
        return Ok(Vec::new());
    };
    let ends = |all: &[Known]| -> HashMap<u64, End> {
        all.iter()
            .filter(|known| !timed.contains(&known.g.as_ptr().addr()))
            .filter_map(|known| Some((known.goroutine.id, End::of(known)?)))
            .collect()
    };
    let mut first = ends(&before);
    // Without those that join one that is not in the set, there may be less to search for.
    shrink(&mut first, &Holders::not_searched());
    let wanted = first.values().flat_map(|end| match end {
        End::Handles(wanted) => &wanted[..],
        End::Nothing | End::Join(_) => &[],
    });
    let places = handles::search(wanted.copied())?;
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
        if !has_waited || known.g.status.load() != known.status || !first.contains_key(&id) {
            set.remove(&id);
        }
    }
    let holders = places.holders(sched, &after);
    shrink(&mut set, &holders);
    let mut proved: HashMap<u64, End> = set
        .iter()
        .filter_map(|(&id, end)| match end {
            End::Nothing => Some((id, End::Nothing)),
            End::Join(other) => Some((id, End::Join(*other))),
            End::Handles(_) => None,
        })
        .collect();
    shrink(&mut proved, &holders);
    let found = after.into_iter().filter_map(|known| {
        let id = known.goroutine.id;
        let end = set.get(&id)?;
        Some(Found {
            verdict: match proved.contains_key(&id) {
                true => Verdict::Proved,
                false => Verdict::Suspected,
            },
            reason: end.reason(id, known.status.reason(), &holders),
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

//! Finds who holds a handle: see `debug::leaks`. A handle is named by the complement of its word, so that what is written down here
//! is not found in its stead.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::ops::Range;

use super::super::memory;
use super::survey::{Known, SAID_AT_MOST};
use crate::g::header::{GRef, SLOT_BYTES};
use crate::g::slab;
use crate::g::status::GKind;
use crate::sched::types::state::Sched;
use crate::sync::tag::{self, Handle};

/// Where the words of handles are.
pub(super) struct Places(Vec<(usize, usize)>);

/// Finds the handles in the memory of the process.
///
/// # Errors
///
/// As [`memory::search`].
pub(super) fn search(wanted: impl Iterator<Item = usize>) -> io::Result<Places> {
    let mut wanted: Vec<usize> = wanted.collect();
    wanted.sort_unstable();
    wanted.dedup();
    let mut places = Vec::new();
    if !wanted.is_empty() {
        let is_wanted =
            |word: usize| Handle::of_word(word).is_some() && wanted.binary_search(&!word).is_ok();
        memory::search(is_wanted, |place, word| places.push((place, !word)))?;
    }
    Ok(Places(places))
}

/// Where a word is.
enum Place {
    Of(u64),
    /// In memory that is not in use.
    Unused,
    Elsewhere,
}

/// The memory of goroutines.
struct Map {
    /// The frames and the slots of goroutines, by address, with the numbers of these; slots without a goroutine, and without the
    /// result of one, with none.
    own: Vec<(Range<usize>, Option<u64>)>,
    /// Memory that is in use only where it is listed above.
    stacks: Vec<Range<usize>>,
}

impl Map {
    fn new(sched: &Sched, all: &[Known]) -> Map {
        let mut own: Vec<_> = all
            .iter()
            .flat_map(|known| {
                let stack = known.stack.clone().filter(|stack| !stack.is_empty());
                let both = [stack, Some(slot(known.g))].into_iter().flatten();
                both.map(|range| (range, Some(known.goroutine.id)))
            })
            .collect();
        slab::for_each(|g| {
            if g.status.load().kind() == GKind::Free {
                own.push((slot(g), None));
            }
        });
        // A goroutine may have ended meanwhile: its slot is its own still.
        own.sort_unstable_by_key(|(range, id)| (range.start, id.is_none()));
        own.dedup_by_key(|(range, _)| range.start);
        // A free stack is not told from one that cannot be known.
        let stacks_are_known = all.iter().all(|known| known.stack.is_some());
        let stacks = sched.nodes.iter().filter(|_| stacks_are_known);
        Map {
            own,
            stacks: stacks.flat_map(|node| node.stacks.arenas()).collect(),
        }
    }

    fn place(&self, at: usize) -> Place {
        let idx = self.own.partition_point(|(range, _)| range.start <= at);
        if let Some((range, id)) = idx.checked_sub(1).map(|idx| &self.own[idx])
            && range.contains(&at)
        {
            return id.map_or(Place::Unused, Place::Of);
        }
        match self.stacks.iter().any(|range| range.contains(&at)) {
            true => Place::Unused,
            false => Place::Elsewhere,
        }
    }
}

fn slot(g: GRef) -> Range<usize> {
    let at = g.as_ptr().addr();
    at..at + SLOT_BYTES[g.slot_class()]
}

/// The holders of handles of one kind to one thing.
#[derive(Default)]
struct Held {
    by: BTreeSet<u64>,
    elsewhere: bool,
}

/// The holders of each handle; `None` before it was searched for them.
pub(super) struct Holders(Option<HashMap<usize, Held>>);

impl Places {
    pub(super) fn holders(&self, sched: &Sched, all: &[Known]) -> Holders {
        let mut holders: HashMap<usize, Held> = HashMap::new();
        if self.0.is_empty() {
            return Holders(Some(holders));
        }
        let map = Map::new(sched, all);
        for &(place, handle) in &self.0 {
            let held = holders.entry(handle).or_default();
            match map.place(place) {
                Place::Of(id) => _ = held.by.insert(id),
                Place::Unused => {}
                Place::Elsewhere => held.elsewhere = true,
            }
        }
        Holders(Some(holders))
    }
}

impl Holders {
    pub(super) fn not_searched() -> Holders {
        Holders(None)
    }

    /// The goroutines that alone may use the handle; `None` if others may.
    pub(super) fn of(&self, handle: usize) -> Option<Vec<u64>> {
        let Some(holders) = &self.0 else {
            return Some(Vec::new());
        };
        match holders.get(&handle) {
            Some(held) if held.elsewhere => None,
            Some(held) if !held.by.is_empty() => Some(held.by.iter().copied().collect()),
            // It was forgotten. But permits may be added to a semaphore that nobody has taken one of.
            _ => (Handle::of_wanted(handle) != Some(Handle::Permit)).then(Vec::new),
        }
    }

    /// Says where the handle is that goroutine `id` waits for.
    pub(super) fn describe(&self, handle: usize, id: u64) -> String {
        let [one, all] = match Handle::of_wanted(handle) {
            Some(Handle::Sender) => ["sender of the channel", "senders of the channel"],
            Some(Handle::Receiver) => ["receiver of the channel", "receivers of the channel"],
            Some(Handle::Guard) => ["guard of the lock", "guards of the lock"],
            Some(Handle::Permit) => ["permit of the semaphore", "permits of the semaphore"],
            Some(Handle::Member) | None => ["handle to the group", "handles to the group"],
        };
        let held = self.0.as_ref().and_then(|holders| holders.get(&handle));
        let is_own = held.is_some_and(|held| held.by.contains(&id));
        let by = held.into_iter().flat_map(|held| &held.by);
        let mut others: Vec<String> = by
            .filter(|&&other| other != id)
            .take(SAID_AT_MOST)
            .map(|other| format!("goroutine {other}"))
            .collect();
        let n_others = held.map_or(0, |held| held.by.len()) - usize::from(is_own);
        if n_others > others.len() {
            others.push(format!("{} others", n_others - others.len()));
        }
        match (is_own, others.is_empty()) {
            (true, true) => format!("it holds the {all} itself"),
            (true, false) => format!(
                "the {all} are held by itself and {}, leaked",
                others.join(", ")
            ),
            (false, false) => format!("the {all} are held by {}, leaked", others.join(", ")),
            (false, true) if tag::is_nameless(handle) => "it waits for nothing".to_owned(),
            (false, true) => format!("there is no {one} any more: it was forgotten"),
        }
    }
}

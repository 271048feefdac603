//! Finds who holds a handle. A handle is named by the complement of its word, so that what is written down here
//! is not found in its stead.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::ops::Range;

use crate::memory;
use crate::words::{self, Handle};

/// The most handles of a wait, and holders of a handle, that a reason names: of many leaked goroutines, each may wait for
/// all others.
pub(crate) const SAID_AT_MOST: usize = 5;

/// Where the words of handles are.
#[derive(Debug)]
pub struct Places(Vec<(usize, usize)>);

/// Finds the handles in the memory of the process.
///
/// # Errors
///
/// If the kernel does not let the process read its memory.
pub fn search(wanted: impl Iterator<Item = usize>) -> io::Result<Places> {
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
#[derive(Debug)]
pub struct Map {
    /// The frames and the slots of goroutines, by address, with the numbers of these; slots without a goroutine, and
    /// without the result of one, with none.
    own: Vec<(Range<usize>, Option<u64>)>,
    /// Memory that is in use only where it is listed above.
    stacks: Vec<Range<usize>>,
}

impl Map {
    /// Memory of goroutines, and memory that is in use only where the former lists it.
    #[must_use]
    pub fn new(mut own: Vec<(Range<usize>, Option<u64>)>, stacks: Vec<Range<usize>>) -> Map {
        // A goroutine may have ended meanwhile: its slot is its own still.
        own.sort_unstable_by_key(|(range, id)| (range.start, id.is_none()));
        own.dedup_by_key(|(range, _)| range.start);
        Map { own, stacks }
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

/// The holders of handles of one kind to one thing.
#[derive(Debug, Default)]
struct Held {
    by: BTreeSet<u64>,
    elsewhere: bool,
}

/// The holders of each handle; `None` before it was searched for them.
#[derive(Debug)]
pub struct Holders(Option<HashMap<usize, Held>>);

impl Places {
    /// Who holds the handles. `map` is asked for if there are any.
    #[must_use]
    pub fn holders(&self, map: impl FnOnce() -> Map) -> Holders {
        let mut holders: HashMap<usize, Held> = HashMap::new();
        if self.0.is_empty() {
            return Holders(Some(holders));
        }
        let map = map();
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
    /// Before the search.
    #[must_use]
    pub fn not_searched() -> Holders {
        Holders(None)
    }

    /// The goroutines that alone may use the handle; `None` if others may.
    pub(crate) fn of(&self, handle: usize) -> Option<Vec<u64>> {
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
    pub(crate) fn describe(&self, handle: usize, id: u64) -> String {
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
            (false, true) if words::is_nameless(handle) => "it waits for nothing".to_owned(),
            (false, true) => format!("there is no {one} any more: it was forgotten"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holders(places: Vec<(usize, usize)>) -> Holders {
        let own = vec![(100..200, Some(1)), (200..300, Some(2)), (300..400, None)];
        Places(places).holders(|| {
            Map::new(
                own,
                vec![Range {
                    start: 0,
                    end: 1000,
                }],
            )
        })
    }

    #[test]
    fn a_handle_belongs_to_the_goroutine_whose_memory_has_its_word() {
        let handle = !Handle::Sender.word(7);
        let of_two = holders(vec![
            (120, handle),
            (208, handle),
            (304, handle),
            (504, handle),
        ]);
        assert_eq!(of_two.of(handle), Some(vec![1, 2]));
        let text = "the senders of the channel are held by itself and goroutine 2, leaked";
        assert_eq!(of_two.describe(handle, 1), text);
    }

    #[test]
    fn a_handle_elsewhere_may_be_used_by_anybody() {
        let handle = !Handle::Guard.word(7);
        assert_eq!(holders(vec![(2000, handle)]).of(handle), None);
    }

    #[test]
    fn a_handle_that_is_nowhere_was_forgotten_but_permits_may_be_added() {
        for (kind, by) in [(Handle::Member, Some(Vec::new())), (Handle::Permit, None)] {
            let handle = !kind.word(7);
            assert_eq!(holders(Vec::new()).of(handle), by);
            assert_eq!(Handle::of_word(!handle), Some(kind));
        }
        let text = holders(Vec::new()).describe(!Handle::Receiver.word(7), 1);
        assert_eq!(
            text,
            "there is no receiver of the channel any more: it was forgotten"
        );
    }
}

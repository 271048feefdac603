//! The record of a simulated run, for its trace: the events, each with the number of its step, and the goroutines'
//! names. `simulated` draws it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

use crate::events::Event;

/// The number of entries that are kept: the newest ones.
const MOST_ENTRIES: usize = 500_000;

/// A goroutine of the run.
#[derive(Clone, Debug)]
pub struct Known {
    /// The number of the goroutine that spawned it.
    pub parent: u64,
    /// Its name.
    pub name: Option<String>,
}

/// Something that has happened.
#[derive(Clone, Debug)]
pub enum Entry {
    /// An event.
    Event {
        /// The number of the step.
        step: u64,
        /// The event.
        event: Event,
    },
    /// Where a goroutine was when it was left for another one.
    Place {
        /// Its number.
        g: u64,
        /// The line at which it was.
        text: String,
    },
}

/// The recording of one run.
#[derive(Debug, Default)]
pub struct Recording {
    entries: RefCell<VecDeque<Entry>>,
    n_lost: Cell<u64>,
    goroutines: RefCell<BTreeMap<u64, Known>>,
}

impl Recording {
    /// Adds an event of a step.
    pub fn add(&self, step: u64, event: Event) {
        self.push(Entry::Event { step, event });
    }

    /// Adds where a goroutine is that was left.
    pub fn add_place(&self, g: u64, text: String) {
        self.push(Entry::Place { g, text });
    }

    fn push(&self, entry: Entry) {
        let mut entries = self.entries.borrow_mut();
        if entries.len() == MOST_ENTRIES {
            entries.pop_front();
            self.n_lost.set(self.n_lost.get() + 1);
        }
        entries.push_back(entry);
    }

    /// Notes what a goroutine is called. Its number is new, or it is the same goroutine.
    pub fn introduce(&self, g: u64, known: impl FnOnce() -> Known) {
        let mut goroutines = self.goroutines.borrow_mut();
        goroutines.entry(g).or_insert_with(known);
    }

    /// The entries in order, and how many older ones are lost.
    #[must_use]
    pub fn take_entries(&self) -> (VecDeque<Entry>, u64) {
        (self.entries.take(), self.n_lost.get())
    }

    /// The goroutines by their numbers.
    #[must_use]
    pub fn take_goroutines(&self) -> BTreeMap<u64, Known> {
        self.goroutines.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_entries_are_kept() {
        let recording = Recording::default();
        let n = MOST_ENTRIES as u64 + 3;
        (0..n).for_each(|g| recording.add_place(g, String::new()));
        let (entries, n_lost) = recording.take_entries();
        let first = |entry: &Entry| matches!(entry, Entry::Place { g: 3, .. });
        assert_eq!((entries.len(), n_lost), (MOST_ENTRIES, 3));
        assert!(entries.front().is_some_and(first));
    }
}

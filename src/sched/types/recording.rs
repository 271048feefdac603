//! The record of a simulated run, for its trace: the events of `trace`, each with the number of
//! its step, and the goroutines' names. `sim::trace` draws it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

use super::events::Event;
use crate::bubble::Bubble;
use crate::g::header::GRef;

/// The number of entries that are kept: the newest ones.
const MOST_ENTRIES: usize = 500_000;

/// A goroutine of the run.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) parent: u64,
    pub(crate) name: Option<String>,
}

/// Something that has happened.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Event {
        step: u64,
        event: Event,
    },
    /// Where a goroutine was when it was left for another one.
    Place {
        g: u64,
        text: String,
    },
}

/// The recording of one run.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    entries: RefCell<VecDeque<Entry>>,
    n_lost: Cell<u64>,
    goroutines: RefCell<BTreeMap<u64, Known>>,
}

impl Recording {
    /// Adds an event, unless the run is over.
    pub(crate) fn add(&self, bubble: &Bubble, event: Event) {
        if !bubble.is_over() {
            let step = bubble.step();
            self.push(Entry::Event { step, event });
        }
    }

    /// Adds where a goroutine is that was left.
    pub(crate) fn add_place(&self, g: u64, text: String) {
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
    pub(crate) fn introduce(&self, g: GRef) {
        let mut goroutines = self.goroutines.borrow_mut();
        goroutines.entry(g.id()).or_insert_with(|| Known {
            parent: g.parent(),
            name: g.name().map(str::to_owned),
        });
    }

    /// The entries in order, and how many older ones are lost.
    pub(crate) fn take_entries(&self) -> (VecDeque<Entry>, u64) {
        (self.entries.take(), self.n_lost.get())
    }

    /// The goroutines by their numbers.
    pub(crate) fn take_goroutines(&self) -> BTreeMap<u64, Known> {
        self.goroutines.take()
    }
}

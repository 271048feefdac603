//! The story of a run, as a hash of all events, and on request as a list.

use std::cell::{Cell, RefCell};

use super::draw::mix;

/// Something that is the same in two runs with the same seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A goroutine runs, chosen from so many.
    Run {
        /// Its number.
        id: u64,
        /// How many there were.
        of: u64,
    },
    /// The clock moves.
    Clock {
        /// The new time.
        ns: u64,
    },
    /// Something else was drawn, from so many.
    Draw {
        /// The number that was drawn.
        picked: u64,
        /// How many there were.
        of: u64,
    },
}

/// Hashes the events of a run.
#[derive(Debug, Default)]
pub(crate) struct Log {
    hash: Cell<u64>,
    list: RefCell<Option<Vec<Event>>>,
}

impl Log {
    /// A log that also keeps the list, if `keeps`.
    pub(crate) fn new(keeps: bool) -> Log {
        Log {
            hash: Cell::new(0),
            list: RefCell::new(keeps.then(Vec::new)),
        }
    }

    pub(crate) fn add(&self, event: Event) {
        let (kind, a, b) = match event {
            Event::Run { id, of } => (1, id, of),
            Event::Clock { ns } => (2, ns, 0),
            Event::Draw { picked, of } => (3, picked, of),
        };
        let head = mix(self.hash.get() ^ (b << 8 | kind));
        self.hash.set(mix(head.wrapping_add(a)));
        if let Some(list) = &mut *self.list.borrow_mut() {
            list.push(event);
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.get()
    }

    /// The events; empty if the log does not keep them.
    pub(crate) fn take_list(&self) -> Vec<Event> {
        self.list.take().unwrap_or_default()
    }
}

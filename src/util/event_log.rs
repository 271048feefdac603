//! A ring buffer of events: the newest overwrite the oldest. One thread writes. Any thread may copy
//! the contents at any moment, without blocking the writer.
//!
//! | writer                                | reader                                    |
//! |---------------------------------------|-------------------------------------------|
//! | 1. begun = i + 1                      | 1. n = written                            |
//! | 2. release fence                      | 2. copy the slots of the last `cap` of n  |
//! | 3. the words of slot i                | 3. acquire fence                          |
//! | 4. written = i + 1 (release)          | 4. b = begun: slots of events up to b may |
//! |                                       |    be overwritten: drop the copies of     |
//! |                                       |    events n' < b - cap                    |
//!
//! If the reader's copy contains a word of a later event, the reader has read a store that follows
//! the writer's fence. Then the reader's own fence makes it see that event in `begun` (Boehm, "Can
//! seqlocks get along with programming language memory models?", 2012).

use crate::loom::{AtomicU64, Ordering, fence};

/// Words of an event.
pub(crate) const WORDS: usize = 3;

/// An event, as opaque words.
pub(crate) type Event = [u64; WORDS];

/// The log. Its pages are allocated when they are first written, so they are on the writer's node.
#[derive(Debug)]
pub(crate) struct EventLog {
    words: Box<[AtomicU64]>,
    /// Ordering: see the table.
    begun: AtomicU64,
    written: AtomicU64,
}

impl EventLog {
    /// A log for as many events as fit into `bytes`, at least one.
    pub(crate) fn new(bytes: usize) -> EventLog {
        let n = (bytes / size_of::<Event>()).max(1);
        EventLog {
            words: zeroed(n * WORDS),
            begun: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    fn cap(&self) -> u64 {
        (self.words.len() / WORDS) as u64
    }

    fn slot(&self, i: u64) -> &[AtomicU64] {
        let at = (i % self.cap()) as usize * WORDS;
        &self.words[at..at + WORDS]
    }

    /// Appends an event. Called only by the writer.
    pub(crate) fn push(&self, event: Event) {
        let i = self.written.load(Ordering::Relaxed);
        self.begun.store(i + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (slot, word) in self.slot(i).iter().zip(event) {
            slot.store(word, Ordering::Relaxed);
        }
        self.written.store(i + 1, Ordering::Release);
    }

    /// Copies the events, the oldest first.
    pub(crate) fn copy(&self) -> Vec<Event> {
        let n = self.written.load(Ordering::Acquire);
        let first = n.saturating_sub(self.cap());
        let mut events: Vec<Event> = (first..n)
            .map(|i| {
                let slot = self.slot(i);
                std::array::from_fn(|w| slot[w].load(Ordering::Relaxed))
            })
            .collect();
        fence(Ordering::Acquire);
        let begun = self.begun.load(Ordering::Relaxed);
        let n_torn = begun.saturating_sub(self.cap()).saturating_sub(first);
        events.drain(..(n_torn as usize).min(events.len()));
        events
    }
}

#[cfg(not(loom))]
#[allow(unsafe_code)]
fn zeroed(n: usize) -> Box<[AtomicU64]> {
    const { assert!(align_of::<AtomicU64>() == align_of::<u64>()) }
    // The allocator gives zeroed memory: no page of it is touched.
    let words = Box::into_raw(vec![0_u64; n].into_boxed_slice());
    // SAFETY: the slice comes from a box, and an atomic integer has the size, the valid values and here
    // also the alignment of the plain one.
    unsafe { Box::from_raw(words as *mut [AtomicU64]) }
}

#[cfg(loom)]
fn zeroed(n: usize) -> Box<[AtomicU64]> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}

#[cfg(all(test, any(loom, miri)))]
#[path = "event_log_loom_tests.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest() {
        let log = EventLog::new(3 * size_of::<Event>());
        assert!(log.copy().is_empty());
        for i in 1..=2 {
            log.push([i, i, i]);
        }
        assert_eq!(log.copy(), [[1; 3], [2; 3]]);
        for i in 3..=7 {
            log.push([i, i, i]);
        }
        assert_eq!(log.copy(), [[5; 3], [6; 3], [7; 3]]);
    }

    #[test]
    fn a_copy_of_a_log_being_written_is_whole() {
        let log = EventLog::new(64 * size_of::<Event>());
        let last = if cfg!(miri) { 300 } else { 200_000 };
        std::thread::scope(|s| {
            s.spawn(|| (1..=last).for_each(|i| log.push([i, i + 1, i + 2])));
            let mut newest = 0;
            while newest < last {
                let events = log.copy();
                for (a, b) in events.iter().zip(events.iter().skip(1)) {
                    assert_eq!(a[0] + 1, b[0]);
                }
                for e in &events {
                    assert_eq!([e[1], e[2]], [e[0] + 1, e[0] + 2]);
                }
                newest = events.last().map_or(newest, |e| e[0]);
            }
        });
    }
}

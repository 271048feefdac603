//! The oracle's knowledge of Ms, goroutines and operations: data of the controller.
#![allow(unsafe_code)]

use std::collections::BTreeMap;

/// The state that an M reports of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    /// The P that it takes for its own, 0 for none.
    pub(super) p: usize,
    /// Its word of access, an `AtomicU32`, which says whether it may use that.
    pub(super) access: *const (),
    /// The goroutine that it runs, and that whose park it commits; 0 for none.
    pub(super) runs: usize,
    pub(super) commits: usize,
}

// SAFETY: the word is an M's, which is forgotten before it is freed.
unsafe impl Send for Machine {}

/// All Ms, and what is counted.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) machines: BTreeMap<usize, Machine>,
    /// Stacks and G slots that were taken and not given back.
    pub(super) n_stacks: isize,
    pub(super) n_slots: isize,
    /// The names of operations in a ring, by address: a number of its own for each, as
    /// another one may come to lie at the same place.
    pub(super) living: BTreeMap<usize, u64>,
    pub(super) n_lived: u64,
}

impl Ledger {
    /// The leftovers at the end of a schedule.
    pub(super) fn leak(&self) -> Option<String> {
        let n_ms = self.machines.len();
        match (self.n_stacks, self.n_slots, n_ms, self.living.len()) {
            (0, 0, 0, 0) => None,
            (stacks, slots, ms, operations) => Some(format!(
                "left at the end: {stacks} stacks, {slots} slots of goroutines, {ms} Ms, \
                 {operations} operations"
            )),
        }
    }

    /// The number of what lives at an address.
    pub(super) fn number_of(&self, at: usize) -> Option<u64> {
        self.living.get(&at).copied()
    }

    pub(super) fn describe(&self) -> String {
        let run = self.machines.values().filter(|m| m.runs != 0).count();
        let commit = self.machines.values().filter(|m| m.commits != 0).count();
        let hold = self.machines.values().filter(|m| m.p != 0).count();
        format!(
            "of {} Ms, {hold} take a P for theirs, {run} run a goroutine, {commit} are in a commit\n",
            self.machines.len()
        )
    }
}

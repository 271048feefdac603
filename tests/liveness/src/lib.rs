//! Work that waits is run, though nobody pushes again: a check of the protocol by which Ps fall asleep, spin and are woken.
//!
//! `model.rs` has the protocol, `check.rs` the checker. loom sees what a thread may read; it cannot see that something happens at
//! last.

#![cfg(test)]

mod check;
mod model;

use model::{Fault, State};

/// Pushes of the goroutine on the busy P, and of the thread outside.
const PUSHES: [[u8; 2]; 3] = [[1, 1], [2, 0], [0, 2]];

#[test]
fn work_that_waits_is_run() {
    for fault in [Fault::None, Fault::LowersSpinnersFirst] {
        for pushes in PUSHES {
            let stuck = check::check(State::first(pushes), fault);
            let way = stuck.unwrap_or_default();
            assert!(
                way.is_empty(),
                "{fault:?}: work waits for ever after\n{way}"
            );
        }
    }
}

#[test]
fn each_fault_lets_work_wait() {
    for fault in [
        Fault::SleepsWithoutLook,
        Fault::SetsBitLate,
        Fault::BecomesIdleLate,
        Fault::PreparesLate,
        Fault::LastSpinnerDoesNotLook,
        Fault::LastSpinnerLooksEarly,
        Fault::FindsWorkInVain,
        Fault::WakerGivesUp,
        Fault::TakesBackBlindly,
        Fault::SetsAgainInSilence,
        Fault::TakesTwoInSilence,
    ] {
        let mut firsts = PUSHES.into_iter().map(State::first);
        let is_found = firsts.any(|first| check::check(first, fault).is_some());
        assert!(is_found, "{fault:?} was not found");
    }
}

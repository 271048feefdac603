//! The fate of a P, in one word: whether it is in use, and whether its holder shall stop.
//!
//! | bits      | the P is                                      | held by               |
//! |-----------|-----------------------------------------------|-----------------------|
//! | none      | in use                                        | an M, or sysmon       |
//! | `LEAVING` | not in use; operations of it may still be in  | an M, or sysmon       |
//! |           | flight                                        |                       |
//! | `DEAD`    | not in use, and empty                         | nobody                |
//! | + `STOP`  | asked to stop before its next dispatch        | as above              |
//! | + `STOPPED` | stopped: its M sleeps on this word          | an M                  |
//!
//! Who makes which step, and when:
//!
//! | step              | by      | when                                                 |
//! |-------------------|---------|------------------------------------------------------|
//! | + `STOP`          | sysmon  | any time, but not for a dead P                       |
//! | + `STOPPED`       | its M   | by a CAS, while `STOP` is set                        |
//! | - both            | sysmon  | when the world goes on                               |
//! | none → `LEAVING`  | sysmon  | the world is stopped                                 |
//! | `LEAVING` → none  | sysmon  | the world is stopped; its holder keeps it            |
//! | `LEAVING` → `DEAD`| its holder | any time, by a CAS, which `STOP` makes fail       |
//! | `DEAD` → none     | sysmon  | the world is stopped; sysmon then holds it           |
//!
//! Without a run, whoever changes the number of Ps is sysmon to this table.
//!
//! Both CASes are what makes it safe. Should the world go on just when an M is about to
//! say that it has stopped, it does not say so, and the next stop does not take it for
//! stopped. And a P is dead before a stop or after it, never in its middle.

use crate::loom::{self, AtomicU32, Ordering, after_seq_cst};
use crate::sys::clock::NEVER;
use crate::util::chaos::{self, Point};

const STOP: u32 = 1;
const STOPPED: u32 = 2;
const LEAVING: u32 = 4;
const DEAD: u32 = 8;

/// See the tables above.
///
/// Ordering: sequentially consistent: against falling asleep as in `idle`, and whoever
/// stops, lets go on, or leaves a P passes on what it did with it.
#[derive(Debug)]
pub(crate) struct PStatus(AtomicU32);

impl PStatus {
    pub(crate) fn new() -> PStatus {
        PStatus(AtomicU32::new(DEAD))
    }

    #[inline(always)]
    fn bits(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Whether the holder has something to see to before its next dispatch.
    #[inline(always)]
    pub(crate) fn wants_attention(&self) -> bool {
        self.bits() != 0
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.bits() & (LEAVING | DEAD) == 0
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.bits() & LEAVING != 0
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.bits() & DEAD != 0
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.bits() & STOPPED != 0
    }

    // Sysmon's steps.

    /// `false` for a dead P: there is nobody to ask.
    #[must_use]
    pub(crate) fn ask_to_stop(&self) -> bool {
        let asked = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |bits| {
                (bits & DEAD == 0).then_some(bits | STOP)
            });
        after_seq_cst();
        asked.is_ok()
    }

    pub(crate) fn go_on(&self) {
        if self.0.fetch_and(!(STOP | STOPPED), Ordering::SeqCst) & STOPPED != 0 {
            loom::futex_wake_one(&raw const self.0);
        }
    }

    /// In a stopped world: the P is in use from now on, or again.
    pub(crate) fn come_into_use(&self) {
        self.0.fetch_and(!(LEAVING | DEAD), Ordering::SeqCst);
    }

    /// In a stopped world: the P is in use no more.
    pub(crate) fn begin_leaving(&self) {
        if !self.is_dead() {
            self.0.fetch_or(LEAVING, Ordering::SeqCst);
        }
    }

    // The holder's steps.

    /// Waits until the world goes on, if it is stopping.
    pub(crate) fn wait_while_stopped(&self) {
        loop {
            let bits = self.bits();
            if bits & STOP == 0 {
                return;
            }
            chaos::pause(Point::Stop);
            let stopped = bits | STOPPED;
            let is_said = bits == stopped
                || self
                    .0
                    .compare_exchange(bits, stopped, Ordering::SeqCst, Ordering::SeqCst)
                    .is_ok();
            if is_said {
                loom::futex_wait(&self.0, stopped, NEVER);
            }
        }
    }

    /// Lets go of a leaving P that is empty. `false` if the holder has to keep it: it
    /// shall stop first, or is in use again.
    #[must_use]
    pub(crate) fn end(&self) -> bool {
        self.0
            .compare_exchange(LEAVING, DEAD, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}

#[cfg(all(test, loom))]
#[path = "p_status_loom_tests.rs"]
mod loom_tests;

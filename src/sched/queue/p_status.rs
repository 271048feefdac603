//! The status of a P, in one word: whether it is in use, and whether its holder must stop.
//!
//! | bits        | the P is                                    | held by               |
//! |-------------|---------------------------------------------|-----------------------|
//! | none        | in use                                      | an M, or sysmon       |
//! | `LEAVING`   | not in use; operations of it may still be   | an M, or sysmon       |
//! |             | in flight                                   |                       |
//! | `DEAD`      | not in use, and empty                       | no thread             |
//! | + `STOP`    | requested to stop before its next dispatch  | as above              |
//! | + `STOPPED` | stopped: its M sleeps on this word          | an M                  |
//!
//! The transitions:
//!
//! | step               | by         | when                                               |
//! |--------------------|------------|----------------------------------------------------|
//! | + `STOP`           | sysmon     | any time, but not for a dead P                     |
//! | + `STOPPED`        | its M      | by a CAS, while `STOP` is set                      |
//! | - both             | sysmon     | when the world restarts                            |
//! | none → `LEAVING`   | sysmon     | the world is stopped                               |
//! | `LEAVING` → none   | sysmon     | the world is stopped; its holder keeps it          |
//! | `LEAVING` → `DEAD` | its holder | any time, by a CAS, which fails if `STOP` is set   |
//! | `DEAD` → none      | sysmon     | the world is stopped; sysmon then holds it         |
//!
//! Without a run, the thread that changes the number of Ps takes sysmon's part in this table.
//!
//! Safety rests on both CASes. If the world restarts just before an M sets `STOPPED`, the CAS
//! fails, so the next stop does not mistake the P for stopped. And a P dies before a stop or after
//! it, never during one.

use crate::loom::{self, AtomicU32, Ordering, after_seq_cst};
use crate::sys::clock::NEVER;
use crate::util::chaos::{self, Point};

const STOP: u32 = 1;
const STOPPED: u32 = 2;
const LEAVING: u32 = 4;
const DEAD: u32 = 8;

/// See the tables above.
///
/// Ordering: sequentially consistent, against falling asleep as in `idle`. It also publishes the
/// accesses to the P by the thread that stops it, restarts it, or leaves it.
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

    /// Whether the holder must handle the status before its next dispatch.
    #[inline(always)]
    pub(crate) fn has_request(&self) -> bool {
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

    /// `false` for a dead P, which has no holder.
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

    /// In a stopped world: the P is no longer in use.
    pub(crate) fn begin_leaving(&self) {
        if !self.is_dead() {
            self.0.fetch_or(LEAVING, Ordering::SeqCst);
        }
    }

    // The holder's steps.

    /// Waits until the world restarts, if it is stopping.
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

    /// Releases a leaving P that is empty. `false` if the holder has to keep it: it must stop
    /// first, or is in use again.
    #[must_use]
    pub(crate) fn end(&self) -> bool {
        self.0
            .compare_exchange(LEAVING, DEAD, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}

#[cfg(all(test, any(loom, miri)))]
#[path = "p_status_loom_tests.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_p_dies_before_a_stop_or_after_it() {
        let status = PStatus::new();
        assert!(!status.ask_to_stop(), "it is dead");
        status.come_into_use();
        assert!(!status.end(), "it is in use");
        status.begin_leaving();
        assert!(status.ask_to_stop());
        assert!(!status.end(), "the world is to stop");
        status.go_on();
        assert!(status.end() && status.is_dead());
        status.begin_leaving();
        assert!(status.is_dead() && !status.is_leaving());
    }
}

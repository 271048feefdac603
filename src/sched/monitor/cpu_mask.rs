//! Following the CPUs that the process may use: sysmon checks them once a second.
//!
//! One system call detects a change (`place` explains which thread's mask is read). A second one
//! checks whether the M of one P is still pinned to its CPU, of another P each time: a tool that
//! changes the masks of all threads from outside unpins them, even if the CPUs are the same as
//! before, and so does the kernel when a CPU was offline for a moment. Such tools change one thread
//! after the other, so Ms that were pinned for a new plan are pinned again a second later.

use windlass_ground::usable_cpus::Now;

use super::resize;
use super::retake::owner_of;
use crate::loom::Ordering;
use crate::sched::types::state::Sched;
use crate::sys::affinity::{self, Mask};

/// Interval of the checks.
const EVERY_NS: u64 = 1_000_000_000;

/// Sysmon's state for this.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    looked_ns: u64,
    /// The P whose M is checked next, by its position among those in use.
    witness: usize,
    /// The last check made a new plan.
    is_new: bool,
}

/// A change to apply in a stopped world.
#[derive(Debug)]
pub(crate) enum Change {
    /// A plan for other CPUs, with this number of Ps.
    Replan(Now, usize),
    /// A new number of Ps.
    Resize(usize),
    /// Threads are not pinned to their CPUs.
    Pin,
}

impl Follower {
    /// Checks, if it is time to: a change that cannot be applied now is found again in a second.
    pub(crate) fn find_change(&mut self, sched: &Sched, now_ns: u64) -> Option<Change> {
        if now_ns < self.looked_ns + EVERY_NS {
            return None;
        }
        self.looked_ns = now_ns;
        let place = &sched.place;
        let n_before = sched.n_procs();
        let is_default = place.is_default.load(Ordering::Relaxed);
        let number = |machine| match is_default {
            true => place.default_processors(machine).min(sched.ps.len()),
            false => n_before,
        };
        if let Some(mask) = changed_mask(sched)
            && let Some(now) = place.with_mask(mask)
        {
            let n = number(&now.topology);
            self.is_new = true;
            return Some(Change::Replan(now, n));
        }
        let n = match is_default {
            true => number(&place.machine()),
            false => n_before,
        };
        if n != n_before {
            return Some(Change::Resize(n));
        }
        let pins_again = std::mem::take(&mut self.is_new);
        (place.follows_cpus() && (pins_again || !self.is_pinned(sched))).then_some(Change::Pin)
    }

    /// Whether the M of the next P may run on the CPU that it was pinned to, and on no other.
    fn is_pinned(&mut self, sched: &Sched) -> bool {
        self.witness = (self.witness + 1) % sched.n_procs();
        let p = sched.ps_in_use().nth(self.witness);
        let Some(m) = p.and_then(owner_of) else {
            return true;
        };
        let (tid, cpu) = (m.tid.load(Ordering::Relaxed), m.cpu());
        let (Some(cpu), true) = (cpu, tid != 0 && !m.is_locked()) else {
            return true;
        };
        let is_just = affinity::of_thread(tid).is_none_or(|mask| mask.is_just(cpu));
        // It may just have taken another P, locked or ended its thread, or be starting one.
        is_just
            || m.cpu() != Some(cpu)
            || m.is_locked()
            || m.is_widened.load(Ordering::SeqCst)
            || m.tid.load(Ordering::Relaxed) != tid
    }
}

/// This thread's mask, if it differs from that of the last plan.
fn changed_mask(sched: &Sched) -> Option<Mask> {
    let before = sched.place.now()?.mask;
    affinity::current().filter(|mask| *mask != before)
}

/// Applies a change, in a stopped world.
pub(crate) fn apply(sched: &Sched, change: Change) {
    // A change that fails now is found again in a second.
    let _ = match change {
        Change::Replan(now, n) => resize::replan(sched, now, n),
        Change::Resize(n) => resize::resize(sched, n),
        Change::Pin => {
            resize::pin_owners(sched);
            Ok(())
        }
    };
}

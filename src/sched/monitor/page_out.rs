//! Gives the stacks of goroutines that have waited for long to swap, where a program asks for it
//! ([`Builder::page_out_after`](crate::Builder::page_out_after)).
//!
//! Sysmon walks over all goroutines, a part in each round, and asks the kernel to page out the stacks of those
//! that have waited for so long. It is asked once in each wait: a pass leaves out the waits that were long enough at the
//! pass before. A goroutine notices only that its first accesses take longer when it goes on.

use super::freeze_stack::read_rest;
use super::scavenge::{AT_ONCE, PAUSE_NS, ROUND_NS};
use crate::g::header::GRef;
use crate::g::slab::{self, Slots};
use crate::g::snapshot::Rest;
use crate::g::status::{GKind, Snapshot};
use crate::loom::Ordering;
use crate::sched::types::caches::AGE_NS;
use crate::sched::types::state::Sched;
use crate::sys::clock::{self, NEVER};
use crate::sys::mmap;

/// A walk over all goroutines.
#[derive(Debug)]
struct Pass {
    slots: Slots,
    began_ns: u64,
    /// When the pass before it began; 0 for the first.
    last_ns: u64,
    /// Some wait has yet to become long enough.
    leaves_some: bool,
}

/// Sysmon's state for this.
#[derive(Debug)]
pub(crate) struct PageOut {
    /// [`NEVER`] if nobody asked for it.
    after_ns: u64,
    /// When the next round is due.
    next_ns: u64,
    pass: Option<Pass>,
    /// When the last pass began.
    last_ns: u64,
    /// The last pass left nothing to do, and all has been idle since it ended.
    is_done: bool,
    rest: Rest,
}

impl PageOut {
    pub(crate) fn new(sched: &Sched) -> PageOut {
        let after = sched.config.page_out_after;
        PageOut {
            after_ns: after.map_or(NEVER, |d| u64::try_from(d.as_nanos()).unwrap_or(NEVER)),
            next_ns: 0,
            pass: None,
            last_ns: 0,
            is_done: false,
            rest: Rest::new(),
        }
    }

    /// Runs a round if one is due.
    #[inline]
    pub(crate) fn serve(&mut self, sched: &Sched, now_ns: u64) {
        if self.after_ns != NEVER && now_ns >= self.next_ns {
            self.round(sched, now_ns);
        }
    }

    #[cold]
    fn round(&mut self, sched: &Sched, now_ns: u64) {
        let mut pass = match self.pass.take() {
            Some(pass) => pass,
            None if !mmap::has_swap() => return self.end(now_ns, true),
            None => Pass {
                slots: slab::all(),
                began_ns: now_ns,
                last_ns: std::mem::replace(&mut self.last_ns, now_ns),
                leaves_some: false,
            },
        };
        let until_ns = now_ns + ROUND_NS;
        let mut n_seen = 0;
        while let Some(g) = pass.slots.next() {
            let is_asked = self.look(sched, &mut pass, g);
            n_seen += 1;
            if (is_asked || n_seen % AT_ONCE == 0) && clock::now_ns() >= until_ns {
                self.next_ns = now_ns + PAUSE_NS;
                self.pass = Some(pass);
                return;
            }
        }
        self.end(now_ns, !pass.leaves_some);
    }

    fn end(&mut self, now_ns: u64, is_done: bool) {
        self.is_done = is_done;
        self.next_ns = now_ns + AGE_NS.min(self.after_ns);
    }

    /// Pages the stack of `g` out, if it has waited for long enough only since the last pass. `true` if it did.
    fn look(&mut self, sched: &Sched, pass: &mut Pass, g: GRef) -> bool {
        let status = g.status.load();
        if status.kind() != GKind::Waiting
            || !std::ptr::eq(g.sched(), std::ptr::from_ref(sched).cast())
        {
            return false;
        }
        match turn(status, pass.began_ns, pass.last_ns, self.after_ns) {
            Turn::Later => pass.leaves_some = true,
            Turn::Now if read_rest(sched, g, &mut self.rest) => {
                // The goroutine may run again by now, or another one on this stack.
                mmap::page_out(self.rest.span.clone());
                sched.n_paged_out.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            Turn::Now | Turn::Earlier => {}
        }
        false
    }

    /// Not all is idle: others may wait from now on.
    pub(crate) fn note_busy(&mut self) {
        self.is_done = false;
    }

    /// How long sysmon may sleep while every P is idle.
    pub(crate) fn longest_sleep_ns(&self, now_ns: u64) -> u64 {
        match self.after_ns == NEVER || self.is_done && self.pass.is_none() {
            true => NEVER,
            false => self.next_ns.saturating_sub(now_ns),
        }
    }
}

/// When the stack of a goroutine that waits is to be paged out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// An earlier pass did it.
    Earlier,
    Now,
    Later,
}

/// For a wait that has this status, in a pass that began at `began_ns`, after one that began at `last_ns` (0 for none).
fn turn(status: Snapshot, began_ns: u64, last_ns: u64, after_ns: u64) -> Turn {
    if status.waited_ns(began_ns) < after_ns {
        Turn::Later
    } else if last_ns != 0 && status.waited_ns(last_ns) >= after_ns {
        Turn::Earlier
    } else {
        Turn::Now
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::g::status::{Reason, Status};

    const S: u64 = 1 << 30;

    #[test]
    fn each_wait_has_one_turn() {
        let status = Status::running();
        status.set_waiting(Reason::Park, 100 * S);
        let passes: Vec<u64> = (0..30).map(|i| (95 + 3 * i) * S).collect();
        let turns: Vec<Turn> = passes
            .iter()
            .enumerate()
            .map(|(i, &at)| {
                turn(
                    status.load(),
                    at,
                    if i == 0 { 0 } else { passes[i - 1] },
                    10 * S,
                )
            })
            .collect();
        let n_now = turns.iter().filter(|&&t| t == Turn::Now).count();
        assert_eq!(n_now, 1, "{turns:?}");
        assert!(turns.is_sorted_by_key(|t| match t {
            Turn::Later => 0,
            Turn::Now => 1,
            Turn::Earlier => 2,
        }));
        // At the pass of 110 s it has waited for 10.
        assert_eq!(turns.iter().position(|&t| t == Turn::Now), Some(5));
    }

    /// All may wait by then for the first time, also without a wake of sysmon.
    #[test]
    fn after_a_busy_time_there_is_another_pass() {
        let mut page_out = PageOut {
            after_ns: 2 * S,
            next_ns: 0,
            pass: None,
            last_ns: 0,
            is_done: false,
            rest: Rest::new(),
        };
        page_out.end(0, true);
        assert_eq!(page_out.longest_sleep_ns(0), NEVER);
        page_out.note_busy();
        assert_eq!(page_out.longest_sleep_ns(S), S);
        page_out.end(2 * S, false);
        assert_eq!(page_out.longest_sleep_ns(2 * S), 2 * S);
    }

    #[test]
    fn the_first_pass_takes_all_old_waits() {
        let status = Status::running();
        status.set_waiting(Reason::Park, 100 * S);
        assert_eq!(turn(status.load(), 5_000 * S, 0, 10 * S), Turn::Now);
    }
}

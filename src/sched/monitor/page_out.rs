//! Gives the stacks of goroutines that have waited for long to swap, where a program asks for it
//! ([`Builder::page_out_after`](crate::Builder::page_out_after)).
//!
//! Sysmon walks over all goroutines, a part in each round, and asks the kernel to page out the stacks of those
//! that have waited for so long. It is asked once in each wait: a pass leaves out the waits that were long enough at the
//! pass before. The next accesses take longer: those of the goroutine when it goes on, and those of its waker, whose
//! lists lead through the frames of waiters.

use std::ops::Range;

use super::freeze_stack::span_in_wait;
use super::scavenge::{AT_ONCE, PAUSE_NS, ROUND_NS};
use crate::g::header::GRef;
use crate::g::slab::{self, Slots};
use crate::g::status::{GKind, Reason, STEP_NS, Snapshot, Status};
use crate::loom::Ordering;
use crate::sched::types::caches::AGE_NS;
use crate::sched::types::state::Sched;
use crate::sys::clock::{self, NEVER};
use crate::sys::mmap;

/// What the kernel is asked for between two readings of the clock.
const PIECE_BYTES: usize = 64 * 1024;
/// A status word tells ages up to so much: later it begins anew.
const OLDEST_NS: u64 = 1 << 51;

/// A walk over all goroutines.
#[derive(Debug)]
struct Pass {
    slots: Slots,
    began_ns: u64,
    /// When the pass before it began; 0 for the first.
    last_ns: u64,
    /// After what time the next wait is long enough, as far as is known; [`NEVER`] if none will be.
    ripe_in_ns: u64,
    /// The part of a stack that is yet to be paged out.
    left: Range<usize>,
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
    /// The last pass found no wait that will be long enough.
    is_done: bool,
    /// Not all was idle since that pass began: other waits may have begun.
    is_busy: bool,
}

impl PageOut {
    pub(crate) fn new(sched: &Sched) -> PageOut {
        let after = sched.config.page_out_after;
        PageOut::after(after.map_or(NEVER, |d| u64::try_from(d.as_nanos()).unwrap_or(NEVER)))
    }

    fn after(ns: u64) -> PageOut {
        PageOut {
            // An age of some steps means more than one step less.
            after_ns: match ns {
                0..OLDEST_NS => ns + STEP_NS,
                _ => NEVER,
            },
            next_ns: 0,
            pass: None,
            last_ns: 0,
            is_done: false,
            is_busy: true,
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
            None => self.begin(now_ns),
        };
        // Other duties of this round have taken their time.
        let until_ns = clock::now_ns() + ROUND_NS;
        let mut n_seen = 0;
        loop {
            if !pass.left.is_empty() {
                page_out_piece(sched, &mut pass.left);
            } else if let Some(g) = pass.slots.next() {
                self.look(sched, &mut pass, g);
                n_seen += 1;
                if n_seen % AT_ONCE != 0 {
                    continue;
                }
            } else {
                break;
            }
            if clock::now_ns() >= until_ns {
                self.next_ns = now_ns + PAUSE_NS;
                self.pass = Some(pass);
                return;
            }
        }
        self.end(now_ns, pass.ripe_in_ns);
    }

    /// A pass; one that ends at once where there is no swap.
    fn begin(&mut self, now_ns: u64) -> Pass {
        let (has_swap, was_busy) = (mmap::has_swap(), std::mem::take(&mut self.is_busy));
        Pass {
            slots: match has_swap {
                true => slab::all(),
                false => Slots::default(),
            },
            began_ns: now_ns,
            last_ns: std::mem::replace(&mut self.last_ns, now_ns),
            ripe_in_ns: match has_swap && was_busy {
                true => self.after_ns,
                false => NEVER,
            },
            left: 0..0,
        }
    }

    fn end(&mut self, now_ns: u64, ripe_in_ns: u64) {
        self.is_done = ripe_in_ns == NEVER;
        let pause_ns = match self.is_done {
            true => 0,
            false => ripe_in_ns,
        };
        self.next_ns = now_ns + pause_ns.max(AGE_NS.min(self.after_ns));
    }

    /// Notes the stack of `g` for [`Pass::left`], if it has waited for long enough only since the last pass.
    fn look(&self, sched: &Sched, pass: &mut Pass, g: GRef) {
        let status = g.status.load();
        let is_cold = status.kind() == GKind::Waiting
            // Others use the frames of the goroutine meanwhile.
            && !matches!(status.reason(), Reason::Scope | Reason::Offload)
            && sched.owns(g)
            && !g.is_off_stack();
        if !is_cold {
            return;
        }
        match turn(status, pass.began_ns, pass.last_ns, self.after_ns) {
            Turn::Later => {
                let ripe_in_ns = self.after_ns - status.waited_ns(pass.began_ns);
                pass.ripe_in_ns = pass.ripe_in_ns.min(ripe_in_ns);
            }
            // The goroutine may run again by the time that its stack is paged out, or another one on that stack.
            Turn::Now => {
                let wait = Status::wait_of(status);
                let span = wait.and_then(|wait| span_in_wait(sched, g, wait));
                pass.left = span.unwrap_or_default();
            }
            Turn::Earlier => {}
        }
    }

    /// Not all is idle: other waits may begin from now on.
    pub(crate) fn note_busy(&mut self) {
        self.is_busy = true;
    }

    /// How long sysmon may sleep while every P is idle.
    pub(crate) fn longest_sleep_ns(&self, now_ns: u64) -> u64 {
        let is_done = self.is_done && !self.is_busy && self.pass.is_none();
        match self.after_ns == NEVER || is_done {
            true => NEVER,
            false => self.next_ns.saturating_sub(now_ns),
        }
    }
}

/// Pages the first part of a stack out. After the last one the stack counts, if the kernel did not refuse it.
fn page_out_piece(sched: &Sched, left: &mut Range<usize>) {
    let end = left.end.min(left.start + PIECE_BYTES);
    let is_done = mmap::page_out(left.start..end);
    left.start = end;
    if is_done && left.start == left.end {
        sched.n_paged_out.fetch_add(1, Ordering::Relaxed);
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

    #[test]
    fn a_wait_that_is_about_to_be_long_enough_is_not() {
        let page_out = PageOut::after(1_000_000_000);
        let status = Status::running();
        status.set_waiting(Reason::Park, 100 * S - 1);
        let turn_at = |ns| turn(status.load(), ns, 0, page_out.after_ns);
        assert_eq!(turn_at(100 * S), Turn::Later);
        assert_eq!(turn_at(101 * S - 1), Turn::Later);
        assert_eq!(turn_at(101 * S), Turn::Now);
    }

    #[test]
    fn while_all_is_idle_there_is_no_pass_but_one_after_it_was_not() {
        let mut page_out = PageOut::after(2 * S);
        let after_ns = 3 * S;
        assert_eq!(page_out.longest_sleep_ns(0), 0);
        // Goroutines ran before the first pass: those that it did not see waiting may wait from then on.
        page_out.is_busy = false;
        page_out.end(0, after_ns);
        assert_eq!(page_out.longest_sleep_ns(S), 2 * S);
        page_out.end(after_ns, NEVER);
        assert_eq!(page_out.longest_sleep_ns(after_ns), NEVER);
        // Also if that was during the pass.
        page_out.note_busy();
        page_out.end(2 * after_ns, NEVER);
        assert_eq!(page_out.longest_sleep_ns(2 * after_ns), after_ns);
    }

    #[test]
    fn ages_that_a_status_word_does_not_tell_are_never_reached() {
        for ns in [OLDEST_NS, NEVER] {
            assert_eq!(PageOut::after(ns).longest_sleep_ns(0), NEVER);
        }
        assert_ne!(PageOut::after(OLDEST_NS - 1).longest_sleep_ns(0), NEVER);
    }

    #[test]
    fn the_first_pass_takes_all_old_waits() {
        let status = Status::running();
        status.set_waiting(Reason::Park, 100 * S);
        assert_eq!(turn(status.load(), 5_000 * S, 0, 10 * S), Turn::Now);
    }
}

//! `task::checkpoint`: a point where a goroutine that computes yields if necessary.
//!
//! Most calls only count down and check whether the P was retaken. The countdown is chosen so that
//! the clock is read about every 20 µs, however often the goroutine calls. Then, if a timer is due, or the goroutine
//! has used up a time slice and others wait, it goes to the tail of the queue, as with `yield_now`. A call of `join` now and
//! then does the same (`fork`).

use super::handoff::Section;
use super::park::{self, Caller};
use super::points::{self, Cancelled};
use crate::g::coro::Switch;
use crate::loom::Ordering;
use crate::sched::types::current;
use crate::sched::types::m::{Checks, HAS_P, M};
use crate::sched::types::p::P;
use crate::sys::clock;
use crate::util::ladder;

/// Maximum number of calls between two readings: the goroutine may call less often later.
const MOST_CALLS: u32 = 1024;

/// Yields if the calling goroutine has used up its time slice, or its P was retaken.
///
/// # Errors
///
/// [`Cancelled`], only while unwinding.
#[inline]
pub(crate) fn checkpoint() -> Result<(), Cancelled> {
    points::switch_point();
    let Some(m) = current::m() else { return Ok(()) };
    if m.access.load(Ordering::Relaxed) == HAS_P && !m.checks.count_down() {
        return Ok(());
    }
    check_now()
}

#[cold]
#[inline(never)]
fn check_now() -> Result<(), Cancelled> {
    // In a blocking section, or while unwinding, a goroutine does not keep a P from others.
    if let Caller::Goroutine(_) = park::caller()
        && let Some(section) = Section::enter()
    {
        give_way(section);
    }
    points::cancel_point()
}

/// Yields if a timer is due, or the calling goroutine has used up its slice and others wait. Restarts the countdown.
pub(crate) fn give_way(section: Section<'_>) {
    let (m, now_ns) = (section.m(), clock::now_ns());
    let is_over = slice_is_over(&m.checks, m.p(), now_ns);
    if m.p().timers.next_ns() <= now_ns || is_over && others_wait(m, m.p()) {
        section.switch_out_with_forks(Switch::YIELD);
    }
}

/// Whether this P would have other work if the goroutine yielded, besides timers.
fn others_wait(m: &M, p: &P) -> bool {
    let poller = &p.poller;
    !p.runq.is_empty()
        || p.status.has_request()
        || poller.inflight() > 0
            && (poller.has_completions() || poller.pending() > 0 || poller.wants_enter())
        || m.sched().node_of(p).queue.len() > 0
}

/// Restarts the countdown. `true` if the running goroutine has used up its slice.
fn slice_is_over(checks: &Checks, p: &P, now_ns: u64) -> bool {
    let interval = checks.interval.get().max(1);
    let elapsed_ns = now_ns
        .saturating_sub(checks.looked_ns.replace(now_ns))
        .max(1);
    let fits = u64::from(interval) * ladder::GRACE_NS / elapsed_ns;
    let next = fits.clamp(1, u64::from(interval.saturating_mul(2).min(MOST_CALLS)));
    checks.interval.set(next as u32);
    checks.left.store(next as u32 - 1, Ordering::Relaxed);
    let dispatches = p.stats.dispatches.get();
    if checks.dispatches.replace(dispatches) != dispatches {
        // Another goroutine than at the last reading, or the same one dispatched again.
        checks.since_ns.set(now_ns);
    }
    now_ns - checks.since_ns.get() >= ladder::SLICE_NS
}

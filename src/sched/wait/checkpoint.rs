//! `task::checkpoint`: where a goroutine that computes gives way if it has to.
//!
//! A call counts down, and looks at whether its P was taken; that is all, most of the
//! time. The countdown is chosen so that the clock is read about every 20 µs, however
//! often the goroutine calls. Then, if it has run for a slice and somebody waits, it goes
//! to the tail of the queue, as it would by `yield_now`.

use super::handoff::Section;
use super::park::{self, Caller, Cancelled};
use crate::config::RUNNEXT_SLICE_NS;
use crate::g::coro::Switch;
use crate::loom::Ordering;
use crate::sched::types::current;
use crate::sched::types::m::{Checks, HAS_P, M};
use crate::sched::types::p::P;
use crate::sys::clock;

/// How often the clock is looked at, roughly.
const LOOK_EVERY_NS: u64 = 20_000;
/// The most calls between two looks: the goroutine may call less often from now on.
const MOST_CALLS: u32 = 1024;

/// Gives way if the calling goroutine has had its share, or its P was taken.
///
/// # Errors
///
/// [`Cancelled`], only while unwinding.
#[inline]
pub(crate) fn checkpoint() -> Result<(), Cancelled> {
    let Some(m) = current::m() else { return Ok(()) };
    let left = m.checks.left.load(Ordering::Relaxed);
    if left != 0 && m.access.load(Ordering::Relaxed) == HAS_P {
        m.checks.left.store(left - 1, Ordering::Relaxed);
        return Ok(());
    }
    check_now()
}

#[cold]
#[inline(never)]
fn check_now() -> Result<(), Cancelled> {
    // In a blocking section, or while it unwinds, a goroutine keeps nobody from anything.
    if let Caller::Goroutine(_) = park::caller()
        && let Some(section) = Section::enter()
    {
        let (m, now_ns) = (section.m(), clock::now_ns());
        if m.checks.slice_is_over(m.p(), now_ns) && others_wait(m, m.p(), now_ns) {
            section.switch_out(Switch::YIELD);
        }
    }
    park::cancel_point()
}

/// Whether there is anything that this P would do if the goroutine gave way.
fn others_wait(m: &M, p: &P, now_ns: u64) -> bool {
    let poller = &p.poller;
    !p.runq.is_empty()
        || p.status.wants_attention()
        || p.timers.next_ns() <= now_ns
        || poller.inflight() > 0
            && (poller.has_completions() || poller.pending() > 0 || poller.wants_enter())
        || m.sched().node_of(p).queue.len() > 0
}

impl Checks {
    /// Reads the countdown anew, and says whether the running goroutine has had its slice.
    fn slice_is_over(&self, p: &P, now_ns: u64) -> bool {
        let interval = self.interval.get().max(1);
        let elapsed_ns = now_ns.saturating_sub(self.looked_ns.replace(now_ns)).max(1);
        let fits = u64::from(interval) * LOOK_EVERY_NS / elapsed_ns;
        let next = fits.clamp(1, u64::from(interval.saturating_mul(2).min(MOST_CALLS)));
        self.interval.set(next as u32);
        self.left.store(next as u32 - 1, Ordering::Relaxed);
        let dispatches = p.stats.dispatches.get();
        if self.dispatches.replace(dispatches) != dispatches {
            // Another goroutine than at the last look, or the same one anew.
            self.since_ns.set(now_ns);
        }
        now_ns - self.since_ns.get() >= RUNNEXT_SLICE_NS
    }
}

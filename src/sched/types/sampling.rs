//! Sampled statistics of the scheduler: times and sizes, measured where the clock has been read
//! anyway or where time is not critical.
//!
//! - *Queue delay*: at every eighth tick (every 80 µs) the last goroutine in the local queue is
//!   stamped with the time, and so is one in eight that come from outside. The P that dispatches
//!   it, here or after a theft, records how long it waited. A goroutine may have been queued up to
//!   a tick before its stamp, so short delays look a little shorter.
//! - *Poll gap*: the time between two checks of the ring, while operations are in flight. Measured
//!   once per tick: for the first dispatch after it.
//! - *Idle time*: measured when an M falls asleep and wakes up.

use super::m::M;
use super::p::P;
use super::trace::{self, EventKind};
use crate::g::header::GRef;
use crate::g::status::Reason;
use crate::sys::clock;

/// States of `Local::gap`: no gap is being measured; the next check begins one; the next check ends
/// it.
const GAP_NONE: u8 = 0;
const GAP_BEGINS: u8 = 1;
const GAP_ENDS: u8 = 2;

/// A stamp's unit is 64 ns, so that 32 bits last for minutes.
const STAMP_SHIFT: u32 = 6;

fn stamp_of(now_ns: u64) -> u32 {
    (now_ns >> STAMP_SHIFT) as u32
}

impl P {
    /// Called at a tick, `elapsed_ns` and `interval` dispatches after the last one.
    pub(crate) fn count_tick(&self, now_ns: u64, elapsed_ns: u64, interval: u32) {
        let n = self.local.ticks.get().wrapping_add(1);
        self.local.ticks.set(n);
        if n & 7 == 0
            && let Some(g) = self.runq.peek_last()
        {
            g.set_queued_at(stamp_of(now_ns));
            g.status.stamp();
        }
        if self.local.slept.replace(false) || self.poller.inflight() == 0 {
            self.local.gap.set(GAP_NONE);
        } else if interval == 1 {
            self.stats.poll_gaps.record(elapsed_ns);
        } else {
            self.local.gap.set(GAP_BEGINS);
        }
    }

    /// Called at a check of the ring.
    #[inline(always)]
    pub(crate) fn count_look(&self) {
        if self.local.gap.get() != GAP_NONE {
            self.count_gap();
        }
    }

    #[cold]
    fn count_gap(&self) {
        let local = &self.local;
        if local.gap.get() == GAP_BEGINS {
            // The tick that requested it read the clock a moment ago.
            local.gap_from_ns.set(local.now_ns.get());
            local.gap.set(GAP_ENDS);
        } else {
            let gap_ns = clock::now_ns().saturating_sub(local.gap_from_ns.get());
            self.stats.poll_gaps.record(gap_ns);
            local.gap.set(GAP_NONE);
        }
    }

    /// Its M is about to sleep.
    pub(crate) fn count_asleep(&self) {
        self.trace_if(EventKind::Sleep);
        let stats = &self.stats;
        stats.idles.add(1);
        if self.local.woken_at.replace(u64::MAX) == stats.dispatches.get() {
            stats.wakes_useless.add(1);
        }
        self.local.gap.set(GAP_NONE);
        self.local.slept.set(true);
        stats.asleep_since_ns.set(clock::now_ns());
    }

    /// Its M is awake again. Returns how long it has slept.
    pub(crate) fn count_awake(&self) -> u64 {
        self.trace_if(EventKind::Awake);
        let stats = &self.stats;
        let slept_ns = clock::now_ns().saturating_sub(stats.asleep_since_ns.get());
        stats.idle_ns.add(slept_ns);
        stats.asleep_since_ns.set(0);
        self.local.runs_from_now();
        slept_ns
    }

    /// Another thread woke its M, which now looks for work.
    pub(crate) fn count_notified(&self) {
        self.stats.wakes_received.add(1);
        self.local.woken_at.set(self.stats.dispatches.get());
    }
}

/// `g` runs from now on. Traced, if that is on.
#[cold]
#[inline(never)]
pub(crate) fn trace_start(m: &M, g: GRef) {
    if m.p().is_traced() {
        trace::introduce(g);
        m.p().trace(EventKind::Start, Reason::None, 0, g.id());
    }
}

/// Called when a stamped goroutine is dispatched, or any goroutine while tracing.
#[cold]
#[inline(never)]
pub(crate) fn dispatch(m: &M, g: GRef) {
    trace_start(m, g);
    if !g.status.is_stamped() {
        return;
    }
    let waited = stamp_of(clock::now_ns()).wrapping_sub(g.queued_at());
    // Two clocks may differ about the same moment.
    let waited = if waited > u32::MAX / 2 { 0 } else { waited };
    m.p()
        .stats
        .queue_delays
        .record(u64::from(waited) << STAMP_SHIFT);
}

/// Stamps one in eight of the goroutines that come from outside. The caller owns `g`.
pub(crate) fn stamp_injected(g: GRef) {
    if g.status.number().wrapping_add(g.id()) & 7 == 0 {
        g.set_queued_at(stamp_of(clock::now_ns()));
        g.status.stamp();
    }
}

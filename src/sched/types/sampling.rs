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

use super::events::EventKind;
use super::m::M;
use super::p::P;
use super::trace;
use crate::g::header::GRef;
use crate::g::status::Reason;
use crate::sys::clock;

/// A stamp's unit is 64 ns, so that 32 bits last for minutes.
const STAMP_SHIFT: u32 = 6;

fn stamp_of(now_ns: u64) -> u32 {
    (now_ns >> STAMP_SHIFT) as u32
}

impl P {
    /// Takes the samples of a tick, which comes `elapsed_ns` after the last one: stamps a queued goroutine at some
    /// ticks, and records a gap that ends here.
    pub(crate) fn count_tick(&self, now_ns: u64, elapsed_ns: u64) {
        let samples = &self.local.samples;
        if samples.count_tick()
            && let Some(g) = self.runq.peek_last()
        {
            g.set_queued_at(stamp_of(now_ns));
            g.status.stamp();
        }
        let dispatches = self.stats.dispatches.get();
        let is_any_in_flight = self.poller.inflight() > 0;
        if let Some(gap_ns) = samples.gap_at_tick(is_any_in_flight, elapsed_ns, dispatches) {
            self.stats.poll_gaps.record(gap_ns);
        }
    }

    /// Takes the samples of a check of the ring: one end of a gap, if a tick has requested that.
    #[inline(always)]
    pub(crate) fn count_check(&self) {
        if self.local.samples.has_gap() {
            self.count_gap();
        }
    }

    #[cold]
    fn count_gap(&self) {
        let (samples, tick_ns) = (&self.local.samples, self.local.pace.now_ns());
        if let Some(gap_ns) = samples.gap_at_check(tick_ns, clock::now_ns) {
            self.stats.poll_gaps.record(gap_ns);
        }
    }

    /// Its M is about to sleep.
    pub(crate) fn count_asleep(&self) {
        self.trace_if(EventKind::Sleep);
        let stats = &self.stats;
        stats.idles.add(1);
        if self.local.samples.note_sleep(stats.dispatches.get()) {
            stats.wakes_useless.add(1);
        }
        let now_ns = clock::now_ns();
        stats.slept.begin(now_ns);
        stats.asleep_since_ns.set(now_ns);
    }

    /// Its M is awake again. Returns how long it has slept.
    pub(crate) fn count_awake(&self) -> u64 {
        self.trace_if(EventKind::Awake);
        let stats = &self.stats;
        let now_ns = clock::now_ns();
        // No slice lasts through a sleep.
        self.local.pace.set_now_ns(now_ns);
        self.local.slice.begin(now_ns);
        let slept_ns = now_ns.saturating_sub(stats.asleep_since_ns.get());
        stats.slept.end(now_ns);
        stats.asleep_since_ns.set(0);
        slept_ns
    }

    /// Another thread woke its M, which now looks for work.
    pub(crate) fn count_notified(&self) {
        self.stats.wakes_received.add(1);
        self.local.samples.note_wake(self.stats.dispatches.get());
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

//! How an M finds a runnable goroutine: the places, in order.
//!
//! On every dispatch, from memory alone: the ring's completion queue (two loads), runnext, the
//! local queue. When the local queue is empty: buffered events of multishot polls.
//!
//! Every 10 µs (`pace`), or after each dispatch that takes longer: expired timers, ring entries
//! that have waited too long for submission, and task work that the kernel has queued for this
//! thread.
//!
//! About every 61st dispatch: the node queue, so that nothing starves there.
//!
//! When all of these are empty: submit to the ring, take a batch from the node queue, steal, try
//! other nodes' queues, spin, sleep.

use super::check_ring::{check_ring, finish_or_dispatch};
use super::due_timers::run_timers_of;
use super::leave::{is_called, is_called_away};
use super::node_batch::{take_any_batch, take_batch};
use super::remote;
use super::sleep::{sleep, stop_spinning};
use super::steal;
use super::tick;
use crate::g::header::GRef;
use crate::sched::numa::policy::LOCAL_SWEEPS;
use crate::sched::pacing::kernel_visits::Moment;
use crate::sched::queue::runq;
use crate::sched::types::events::EventKind;
use crate::sched::types::m::M;
use crate::sched::types::p::P;
use crate::sched::types::state::Phase;
use crate::sched::wait::wake;
use crate::sys::clock;
use crate::util::chaos::{self, Point};
use crate::util::ladder;

/// Finds the next goroutine for `m` to run; sleeps until there is one. `None` when the run is over,
/// or when somebody has a request to the P (`leave::serve_request`).
#[inline]
pub(crate) fn find(m: &M) -> Option<GRef> {
    if let Some(sim) = m.simulation() {
        return super::simulate::find(m, sim);
    }
    let g = find_runnable(m)?;
    if m.spinning.get() {
        stop_spinning(m);
    }
    Some(g)
}

#[inline]
fn find_runnable(m: &M) -> Option<GRef> {
    let p = m.p();
    loop {
        let pace = &p.local.pace;
        if !pace.count_dispatch() {
            if p.status.has_request() || is_called_away(m) {
                return None;
            }
            if let Some(g) = tick::measure(m, p) {
                return Some(begin_slice(p, g));
            }
        }
        if p.poller.inflight() > 0 {
            check_ring(m, p);
        }
        if let Some(g) = p.runq.take_runnext() {
            if !p.slice_is_over() {
                p.stats.runnext_dispatches.add(1);
                pace.lengthen_chain();
                return Some(g);
            }
            wake::push_local(m, g);
        }
        if let Some(g) = p.runq.pop() {
            prefetch_next(p);
            return Some(begin_slice(p, g));
        }
        if p.poller.has_pending_events() {
            finish_or_dispatch(m, p);
            continue;
        }
        match find_runnable_slow(m, p) {
            SlowFind::Run(g) => return Some(begin_slice(p, g)),
            SlowFind::Retry => {}
            SlowFind::Stop => return None,
        }
    }
}

/// Prefetches memory of the next goroutines while this one runs: with many goroutines, none of it
/// is still in the caches.
#[inline(always)]
fn prefetch_next(p: &P) {
    let [next, second] = p.runq.peek_two();
    if let Some(second) = second {
        second.prefetch();
    }
    if let Some(next) = next
        && !next.prefetch_stack()
        && p.local.timers.has_many()
    {
        next.prefetch_frame();
    }
}

/// Starts a time slice, for a goroutine that did not come from runnext.
#[inline(always)]
fn begin_slice(p: &P, g: GRef) -> GRef {
    p.local.slice.begin(p.local.pace.now_ns());
    p.local.pace.begin_chain();
    g
}

enum SlowFind {
    Run(GRef),
    /// The fast paths may find something now.
    Retry,
    /// The run is over, or another P needs this M.
    Stop,
}

/// The fast paths found nothing.
#[cold]
#[inline(never)]
fn find_runnable_slow(m: &M, p: &P) -> SlowFind {
    let sched = m.sched();
    if sched.phase() == Phase::Stopping {
        return SlowFind::Stop;
    }
    p.trace_if(EventKind::Dry);
    if p.is_numa() {
        sched.publish_own(p);
    }
    let now_ns = clock::now_ns();
    let pace = &p.local.pace;
    pace.charge(clock::ticks(), p.stats.dispatches.get());
    pace.measure_next();
    pace.set_now_ns(now_ns);
    // The last chain has ended. A goroutine that becomes runnable from now on begins another, also in runnext.
    p.local.slice.begin(now_ns);
    if let Some(g) = m.handed_work.take() {
        return SlowFind::Run(g);
    }
    if p.timers.next_ns() <= now_ns {
        run_timers_of(m, p);
        return SlowFind::Retry;
    }
    let alone = sched.is_alone(p);
    let has_kernel_work = || p.poller.inflight() > 0 && p.poller.has_task_work();
    if (Moment::Dry { alone }).enters(p.poller.pending(), has_kernel_work) {
        p.submit_and_poll();
        if p.poller.has_completions() {
            return SlowFind::Retry;
        }
    }
    if let Some(g) = take_batch(m, p.node_idx, runq::HALF) {
        return SlowFind::Run(g);
    }
    if (!alone || sched.nodes.len() > 1)
        && let Some(found) = search(m, p, now_ns)
    {
        // It is no dispatch.
        pace.charge(clock::ticks(), p.stats.dispatches.get());
        return found;
    }
    if is_called(m, p) {
        return SlowFind::Stop;
    }
    sleep(m, p);
    SlowFind::Retry
}

/// Steals, and tries other nodes' queues; repeatedly, if this M may spin.
fn search(m: &M, p: &P, now_ns: u64) -> Option<SlowFind> {
    let sched = m.sched();
    let node = sched.node_of(p);
    if !m.spinning.get() {
        if !node.idle.begin_spinning(node.n_busy()) {
            return None;
        }
        m.spinning.set(true);
    }
    loop {
        if let Some(g) = steal_near_and_far(m, p) {
            return Some(SlowFind::Run(g));
        }
        if let Some(g) = take_any_batch(m, p) {
            return Some(SlowFind::Run(g));
        }
        if p.poller.inflight() > 0 {
            p.visit_kernel(Moment::Search);
            if p.poller.has_completions() {
                return Some(SlowFind::Retry);
            }
        }
        let now = clock::now_ns();
        let is_over = now >= now_ns + ladder::GRACE_NS || chaos::coin(Point::Search);
        if is_over || sched.is_alone(p) || p.status.has_request() {
            return None;
        }
        if p.timers.next_ns() <= now || m.handed_work.is_there() {
            return Some(SlowFind::Retry);
        }
        for _ in 0..32 {
            crate::loom::spin_loop();
        }
    }
}

/// Sweeps its own node, then other nodes if the gate permits, then its own once more.
fn steal_near_and_far(m: &M, p: &P) -> Option<GRef> {
    let found = steal::sweep(m, 0..LOCAL_SWEEPS);
    if found.is_some() || steal::ring_has_work(p) {
        return found;
    }
    let is_gated = p.is_numa() && !m.sched().config.numa.is_flat();
    let found = is_gated
        .then(|| remote::steal(m, LOCAL_SWEEPS))
        .flatten()
        .or_else(|| steal::sweep(m, LOCAL_SWEEPS..steal::PASSES));
    if found.is_none() && !steal::ring_has_work(p) {
        p.stats.steal_failures.add(1);
    }
    found
}

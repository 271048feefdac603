//! The duties of a P that computing goroutines must not put off: it measures dispatches and, about every 10 µs, has a
//! *tick*.

use super::check_ring::dispatch_events;
use super::due_timers::run_timers_of;
use super::node_batch::take_batch;
use crate::g::header::GRef;
use crate::sched::pacing::kernel_visits::Moment;
use crate::sched::pacing::node_queue_turns::Turn;
use crate::sched::queue::runq;
use crate::sched::types::m::M;
use crate::sched::types::p::P;
use crate::sched::wait::wake;
use crate::sys::clock;

/// Measures how long the last dispatches took. Runs a [`tick`] if it is due, and takes from the node
/// queue if it is that queue's turn.
#[inline(never)]
pub(super) fn measure(m: &M, p: &P) -> Option<GRef> {
    // An M that has just been given a P begins here, with the goroutine handed over with it.
    if let Some(g) = m.handed_work.take() {
        return Some(g);
    }
    let (local, counter) = (&p.local, clock::ticks());
    let dispatches = p.stats.dispatches.get();
    let long = local.pace.measure(counter, dispatches);
    if local.pace.begin_tick(counter) {
        tick(m, p);
    }
    let turn = local.node_queue.begin(dispatches, long, &local.pace)?;
    take_turn(m, p, turn)
}

/// Periodic duties of a P, however busy it is.
#[inline(never)]
fn tick(m: &M, p: &P) {
    let local = &p.local;
    let now_ns = clock::now_ns();
    p.count_tick(now_ns, local.pace.note_tick(now_ns));
    if p.timers.next_ns() <= now_ns {
        run_timers_of(m, p);
    }
    if p.is_numa() && m.sched().publish_own(p) {
        wake::wake_for_published(m.sched(), p);
    }
    let poller = &p.poller;
    local.slice.adapt(poller.inflight() > 0);
    if poller.inflight() > 0 {
        let waited_ns = now_ns.saturating_sub(poller.pending_since_ns());
        let at = Moment::Tick { waited_ns };
        p.visit_kernel(at);
        if poller.has_pending_events()
            && local.visits.dispatches(at, p.batches_operations(), now_ns)
        {
            dispatch_events(m, p);
        }
    }
}

/// It is the turn of the node's queue: takes a batch from it.
#[inline(never)]
fn take_turn(m: &M, p: &P, turn: Turn) -> Option<GRef> {
    // A batch, not a single goroutine: overflow must not wait until the local queue runs dry.
    let room = runq::HALF.saturating_sub(p.runq.len()).max(1);
    let share = turn.share.min(p.runq.room());
    let g = take_batch(m, p.node_idx, room.max(share))?;
    if turn.is_first {
        return Some(g);
    }
    // As in `take_batch`: for a moment it was in no queue.
    wake::push_and_wake(m, g);
    None
}

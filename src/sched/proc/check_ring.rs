//! How an M serves the ring of its P between two dispatches: it reaps completions and dispatches events of multishot
//! polls, and enters the kernel now and then (`kernel_visits`).

use crate::g::list::GList;
use crate::g::status::Reason;
use crate::sched::pacing::kernel_visits::Moment;
use crate::sched::types::events::EventKind;
use crate::sched::types::m::M;
use crate::sched::types::p::P;
use crate::sched::wait::wake;
use crate::util::ladder;

/// Operations are in flight: reaps completions, from memory alone. Now and then enters the kernel,
/// to submit queued entries and to let it post more completions (`kernel_visits`).
#[inline]
pub(super) fn check_ring(m: &M, p: &P) {
    p.count_check();
    let at = Moment::before_dispatch(p.stats.dispatches.get());
    p.visit_kernel(at);
    if p.poller.has_unread() && at.reaps(p.runq.len()) {
        reap(m, p);
    }
    if p.poller.has_pending_events() && are_events_due(p, at) {
        dispatch_events(m, p);
    }
}

/// Whether buffered events are to be dispatched now.
#[inline(always)]
fn are_events_due(p: &P, at: Moment) -> bool {
    let (visits, now_ns) = (&p.local.visits, p.local.pace.now_ns());
    visits.dispatches(at, p.batches_operations(), now_ns)
}

/// Reaps completions. Returns the number of completed operations.
#[inline(never)]
pub(crate) fn reap(m: &M, p: &P) -> usize {
    let mut ready = GList::new();
    // No more than the queue has room for: overflow would wait behind goroutines that became
    // runnable later.
    let room = p.runq.room().max(1);
    let n = p.poller.reap_some(room, &mut ready);
    if p.is_traced() {
        p.trace(EventKind::Ring, Reason::None, n as u32, 0);
    }
    wake::ready_completed(m, ready);
    n
}

/// Submits queued operations and reaps completions before dispatching new poll events: what those
/// goroutines use is still in the CPU's caches.
#[inline(never)]
pub(super) fn finish_or_dispatch(m: &M, p: &P) {
    let at = Moment::QueueEmpty;
    p.visit_kernel(at);
    // Poll events could fill the queue, ahead of goroutines whose operations have completed.
    if p.poller.has_unread() && at.reaps(p.runq.len()) && reap(m, p) > 0 {
        return;
    }
    if are_events_due(p, at) {
        dispatch_events(m, p);
    }
}

/// Dispatches buffered events of multishot polls, and submits the receives that this queues: they
/// complete at once. Without batches the waiting goroutines are made runnable and receive
/// for themselves.
#[inline(never)]
pub(super) fn dispatch_events(m: &M, p: &P) {
    // Idle Ps can steal runnable goroutines, but not events buffered here.
    let at_most = match m.sched().idle_nodes.any() {
        // Enough for a batch of receives and of the sends that follow, and few enough that all memory they
        // touch fits the caches.
        false => ladder::BATCH as usize,
        true => p.runq.room().max(ladder::BATCH as usize),
    };
    let mut ready = GList::new();
    let now_ns = p.local.pace.now_ns();
    let begins_ns = p.batches_operations().then_some(now_ns);
    let n = p.poller.dispatch_events(at_most, begins_ns, &mut ready);
    p.local.visits.note_dispatched(n, now_ns);
    wake::ready_completed(m, ready);
    p.visit_kernel(Moment::Dispatched);
}

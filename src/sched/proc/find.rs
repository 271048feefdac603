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

use super::due_timers::run_timers_of;
use super::kernel_visits::{Due, Events, Moment};
use super::remote;
use super::steal;
use crate::g::header::GRef;
use crate::g::list::GList;
use crate::g::stack::AGE_NS;
use crate::g::status::Reason;
use crate::loom::Ordering;
use crate::loom::after_seq_cst;
use crate::loom::native::futex;
use crate::sched::numa::policy::LOCAL_SWEEPS;
use crate::sched::queue::idle;
use crate::sched::queue::runq;
use crate::sched::types::m::M;
use crate::sched::types::p::P;
use crate::sched::types::pace;
use crate::sched::types::state::Phase;
use crate::sched::types::trace::EventKind;
use crate::sched::wait::wake;
use crate::sys::clock::{self, NEVER};
use crate::util::chaos::{self, Point};
use crate::util::ladder;

/// Go's fairness tick: one dispatch in this many tries the node queue first.
const NODE_QUEUE_EVERY: u32 = 61;

/// Finds the next goroutine for `m` to run; sleeps until there is one. `None` when the run is over,
/// or when the P's status requires attention (`world::attend`).
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
        let local = &p.local;
        match local.budget() {
            0 if p.status.wants_attention() => return None,
            0 => {
                if let Some(g) = tick(m, p) {
                    return Some(begin_slice(p, g));
                }
            }
            n => local.set_budget(n - 1),
        }
        if p.poller.inflight() > 0 {
            look_at_ring(m, p);
        }
        if let Some(g) = p.runq.take_runnext() {
            if !p.slice_is_over() {
                p.stats.runnext_dispatches.add(1);
                if local.handed_on.get() < pace::MEASURE_CHAIN_AT {
                    local.lengthen_chain();
                }
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
            Dry::Run(g) => return Some(begin_slice(p, g)),
            Dry::LookAgain => {}
            Dry::Stop => return None,
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
        && p.local.woken_by_timers.get() >= pace::MANY_SLEEPERS
    {
        next.prefetch_frame();
    }
}

/// Starts a time slice, for a goroutine that did not come from runnext.
#[inline(always)]
fn begin_slice(p: &P, g: GRef) -> GRef {
    p.local.slice_start_ns.set(p.local.now_ns.get());
    p.local.handed_on.set(0);
    g
}

/// The dispatch budget is used up: measures how long the last dispatches took. Runs [`attend_to`]
/// if it is due, and takes from the node queue if it is that queue's turn.
#[inline(never)]
fn tick(m: &M, p: &P) -> Option<GRef> {
    // An M that has just been given a P begins here, with the goroutine handed over with it.
    if let Some(g) = m.handed_work.take() {
        return Some(g);
    }
    let local = &p.local;
    let ticks = p.note_run();
    let elapsed = ticks.wrapping_sub(local.measured_ticks.replace(ticks));
    let (interval, measured) = (local.interval.get(), local.measured_from.get() + 1);
    let next = pace::interval_after(interval, measured, elapsed, local.attend_after);
    local.interval.set(next);
    local.measured_from.set(next - 1);
    local.set_budget(next - 1);
    local
        .since_attended
        .set(local.since_attended.get() + interval);
    let since = local.since_node_queue.get() + interval;
    local.since_node_queue.set(since);
    let is_late = ticks.wrapping_sub(local.attended_ticks.get()) >= local.attend_after && {
        local.attended_ticks.set(ticks);
        attend_to(m, p)
    };
    if since < NODE_QUEUE_EVERY && !is_late {
        return None;
    }
    look_at_node_queue(m, p, since)
}

/// Periodic duties of a P, however busy it is. `true` if it has not tried its node's queue for
/// long.
#[inline(never)]
fn attend_to(m: &M, p: &P) -> bool {
    let local = &p.local;
    let now_ns = clock::now_ns();
    let elapsed_ns = now_ns.saturating_sub(local.now_ns.get()).max(1);
    p.count_tick(now_ns, elapsed_ns, local.since_attended.replace(0));
    local.now_ns.set(now_ns);
    if p.timers.next_ns() <= now_ns {
        run_timers_of(m, p);
    }
    if p.is_numa() && m.sched().publish_own(p) {
        m.sched().wake_for_published(p);
    }
    let poller = &p.poller;
    p.adapt_slice();
    if poller.inflight() > 0 {
        let waited_ns = now_ns.saturating_sub(poller.pending_since_ns());
        let at = Moment::Tick { waited_ns };
        if at.enters(poller.pending(), || poller.wants_enter()) {
            p.submit_and_poll();
        }
        if poller.has_pending_events() && at.dispatches(events(p, now_ns)) == Due::Yes {
            dispatch_events(m, p);
        }
    }
    // Beside goroutines that run for milliseconds each, 61 dispatches take most of a second (they do in Go).
    now_ns.saturating_sub(local.node_queue_seen_ns.get()) >= ladder::LATE_NS
}

/// Takes a batch from the node queue, after `since` dispatches without one.
#[inline(never)]
fn look_at_node_queue(m: &M, p: &P, since: u32) -> Option<GRef> {
    let local = &p.local;
    local.since_node_queue.set(0);
    let now_ns = local.now_ns.get();
    let since_ns = now_ns.saturating_sub(local.node_queue_seen_ns.replace(now_ns));
    // A batch, not a single goroutine: overflow must not wait until the local queue runs dry.
    let room = runq::HALF.saturating_sub(p.runq.len()).max(1);
    let share = pace::share_of_node_queue(since, since_ns).min(p.runq.room());
    let g = take_batch(m, p.node_idx, room.max(share))?;
    if since >= NODE_QUEUE_EVERY {
        return Some(g);
    }
    // Before the 61st dispatch it must not overtake the local queue: otherwise CPU hogs that come
    // back through the node queue would always run first.
    wake::push_local(m, g);
    None
}

/// Operations are in flight: reaps completions, from memory alone. Now and then enters the kernel,
/// to submit queued entries and to let it post more completions (`kernel_visits`).
#[inline]
fn look_at_ring(m: &M, p: &P) {
    p.count_look();
    let since = p.local.since_enter.get() + 1;
    p.local.since_enter.set(since);
    let at = Moment::before_dispatch(since);
    if at == Moment::Visit {
        p.local.since_enter.set(0);
        if at.enters(p.poller.pending(), || p.poller.wants_enter()) {
            p.submit_and_poll();
        }
    }
    if p.poller.has_unread() && at.reaps(p.runq.len()) {
        reap(m, p);
    }
    if p.poller.has_pending_events() {
        match at.dispatches(events(p, p.local.now_ns.get())) {
            Due::No => {}
            Due::Deferred => p.local.n_deferred.set(p.local.n_deferred.get() + 1),
            Due::Yes => dispatch_events(m, p),
        }
    }
}

/// The state of `p` that decides about its buffered events.
#[inline(always)]
fn events(p: &P, now_ns: u64) -> Events {
    Events {
        has_batches: p.has_batches(),
        was_full: p.local.dispatched_many.get(),
        n_deferred: p.local.n_deferred.get(),
        since_ns: now_ns.saturating_sub(p.local.dispatched_ns.get()),
    }
}

/// Reaps completions. Returns the number of completed operations.
#[inline(never)]
fn reap(m: &M, p: &P) -> usize {
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

/// Submits queued operations and reaps completions before dispatching new poll events: their memory
/// is still in the caches.
#[inline(never)]
fn finish_or_dispatch(m: &M, p: &P) {
    let at = Moment::QueueEmpty;
    if at.enters(p.poller.pending(), || p.poller.wants_enter()) {
        p.submit_and_poll();
    }
    // Poll events could fill the queue, ahead of goroutines whose operations have completed.
    if p.poller.has_unread() && at.reaps(p.runq.len()) && reap(m, p) > 0 {
        return;
    }
    if at.dispatches(events(p, p.local.now_ns.get())) == Due::Yes {
        dispatch_events(m, p);
    }
}

/// Dispatches buffered events of multishot polls, and submits the receives that this queues: they
/// complete at once. Without batches the waiting goroutines are made runnable and receive
/// for themselves.
#[inline(never)]
fn dispatch_events(m: &M, p: &P) {
    // Idle Ps can steal runnable goroutines, but not events buffered here.
    let at_most = match m.sched().n_idle.load(Ordering::Relaxed) {
        // Enough for a batch of receives and of the sends that follow, and few enough that all memory they
        // touch fits the caches.
        0 => ladder::BATCH as usize,
        _ => p.runq.room().max(ladder::BATCH as usize),
    };
    let mut ready = GList::new();
    let local = &p.local;
    let now_ns = local.now_ns.get();
    let begins_ns = p.has_batches().then_some(now_ns);
    let n = p.poller.dispatch_events(at_most, begins_ns, &mut ready);
    local.dispatched_many.set(n >= ladder::BATCH as usize);
    local.n_deferred.set(0);
    local.dispatched_ns.set(now_ns);
    wake::ready_completed(m, ready);
    if Moment::Dispatched.enters(p.poller.pending(), || p.poller.wants_enter()) {
        p.submit_and_poll();
    }
}

enum Dry {
    Run(GRef),
    LookAgain,
    Stop,
}

/// The fast paths found nothing.
#[cold]
#[inline(never)]
fn find_runnable_slow(m: &M, p: &P) -> Dry {
    let sched = m.sched();
    if sched.phase() == Phase::Stopping {
        return Dry::Stop;
    }
    p.trace_if(EventKind::Dry);
    if p.is_numa() {
        sched.publish_own(p);
    }
    let now_ns = clock::now_ns();
    p.note_run();
    p.local.set_budget(0);
    p.local.measure_from(now_ns);
    if let Some(g) = m.handed_work.take() {
        return Dry::Run(g);
    }
    if p.timers.next_ns() <= now_ns {
        run_timers_of(m, p);
        return Dry::LookAgain;
    }
    let alone = sched.n_idle.load(Ordering::Relaxed) + 1 == sched.n_procs();
    let has_kernel_work = || p.poller.inflight() > 0 && p.poller.has_task_work();
    if (Moment::Dry { alone }).enters(p.poller.pending(), has_kernel_work) {
        p.submit_and_poll();
        if p.poller.has_completions() {
            return Dry::LookAgain;
        }
    }
    if let Some(g) = take_batch(m, p.node_idx, runq::HALF) {
        return Dry::Run(g);
    }
    if (!alone || sched.nodes.len() > 1)
        && let Some(found) = search(m, p, now_ns)
    {
        return found;
    }
    sleep(m, p);
    Dry::LookAgain
}

/// Steals, and tries other nodes' queues; repeatedly, if this M may spin.
fn search(m: &M, p: &P, now_ns: u64) -> Option<Dry> {
    let sched = m.sched();
    let node = sched.node_of(p);
    if !m.spinning.get() {
        let n_busy = node
            .n_live
            .load(Ordering::Relaxed)
            .saturating_sub(node.idle.n_idle());
        if !node.idle.begin_spinning(n_busy) {
            return None;
        }
        if sched.is_numa() {
            node.queue.summary.begin_idle();
        }
        m.spinning.set(true);
    }
    loop {
        if let Some(g) = steal_near_and_far(m, p) {
            return Some(Dry::Run(g));
        }
        if let Some(g) = take_any_batch(m, p) {
            return Some(Dry::Run(g));
        }
        if p.poller.inflight() > 0 {
            if Moment::Search.enters(p.poller.pending(), || p.poller.wants_enter()) {
                p.submit_and_poll();
            }
            if p.poller.has_completions() {
                return Some(Dry::LookAgain);
            }
        }
        let now = clock::now_ns();
        let others_busy = sched.n_idle.load(Ordering::Relaxed) + 1 < sched.n_procs();
        let is_over = now >= now_ns + ladder::GRACE_NS || chaos::coin(Point::Search);
        if is_over || !others_busy || p.status.wants_attention() {
            return None;
        }
        if p.timers.next_ns() <= now || m.handed_work.is_there() {
            return Some(Dry::LookAgain);
        }
        for _ in 0..32 {
            crate::loom::spin_loop();
        }
    }
}

/// An M that found work stops spinning; the last one to do so wakes another if there is more work.
#[cold]
pub(crate) fn stop_spinning(m: &M) {
    if !m.spinning.replace(false) {
        return;
    }
    let (sched, p) = (m.sched(), m.p());
    let node = sched.node_of(p);
    if sched.is_numa() {
        node.queue.summary.end_idle();
    }
    let was_last = node.idle.stop_spinning();
    chaos::pause(Point::Unspin);
    if was_last && (!p.runq.is_ring_empty() || sched.has_work_for(p)) {
        sched.wake_in(node, Some(p));
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

/// Takes a batch from its own node's queue or, without a gate, from any node's.
fn take_any_batch(m: &M, p: &P) -> Option<GRef> {
    let own = take_batch(m, p.node_idx, runq::HALF);
    if own.is_some() || !m.sched().config.numa.is_flat() {
        return own;
    }
    let others = &m.sched().node_of(p).remote_peers.neighbours;
    others.iter().find_map(|other| {
        let batch = |n: usize| n.div_ceil(2).min(runq::HALF);
        let queue = &m.sched().nodes[other.node_idx].queue;
        run_first(m, queue.take_for_others(batch).gs)
    })
}

/// Takes this P's share of a node's queue.
fn take_batch(m: &M, node_idx: usize, max: usize) -> Option<GRef> {
    let node = &m.sched().nodes[node_idx];
    let n_live = node.n_live.load(Ordering::Relaxed).max(1);
    run_first(m, node.queue.pop_batch(n_live, max))
}

/// Returns the first goroutine, and pushes the rest to the local queue.
fn run_first(m: &M, mut gs: GList) -> Option<GRef> {
    let first = gs.pop()?;
    debug_assert!(m.sched().owns(first), "a goroutine of another runtime");
    while let Some(g) = gs.pop() {
        wake::push_local(m, g);
    }
    Some(first)
}

/// Sleeps until there may be work. See `idle` for the protocol.
fn sleep(m: &M, p: &P) {
    let sched = m.sched();
    let node = sched.node_of(p);
    let how = if p.poller.inflight() > 0 {
        idle::IN_RING
    } else {
        idle::ON_FUTEX
    };
    p.word.prepare(how);
    let was_spinning = m.spinning.replace(false);
    chaos::pause(Point::Idle);
    node.idle.go_idle(p.at_in_node, was_spinning);
    sched.n_idle.fetch_add(1, Ordering::SeqCst);
    // A pusher reads `n_idle` first, so the checks below must come after the increment.
    after_seq_cst();
    chaos::pause(Point::Idle);
    if sched.is_numa() && !was_spinning {
        node.queue.summary.begin_idle();
    }
    let is_wanted = m.handed_work.is_there() || p.status.wants_attention();
    let may_sleep = !sched.has_work_for(p) && !is_wanted && sched.phase() != Phase::Stopping;
    let mut slept_ns = 0;
    if may_sleep && !chaos::coin(Point::Sleep) {
        p.count_asleep();
        sleep_as(p, how);
        slept_ns = p.count_awake();
    }
    if node.idle.claim(p.at_in_node) {
        p.word.awake();
    } else {
        // Claimed by a notifier, which has counted this M as spinning and is about to notify it. If
        // that notifier has stopped the world, it notifies when the world restarts.
        while !p.word.is_notified() {
            p.status.wait_while_stopped();
            crate::loom::spin_loop();
        }
        p.word.awake();
        p.count_notified();
        m.spinning.set(true);
    }
    sched.n_idle.fetch_sub(1, Ordering::SeqCst);
    if slept_ns >= AGE_NS {
        p.give_stacks(&node.stacks);
    }
    if sched.is_numa() && !m.spinning.get() {
        node.queue.summary.end_idle();
    }
    if sched.sysmon.deep.load(Ordering::SeqCst) {
        sched.sysmon.note.wake();
    }
}

/// Sleeps until it is notified or the next timer is due ([`pace::earliest_wake`]).
fn sleep_as(p: &P, how: u32) {
    let woken = p.local.woken_by_timers.replace(0);
    let earliest_ns = pace::earliest_wake(woken, clock::now_ns);
    // A notification may have cut the last sleep short.
    let earliest_ns = earliest_ns.max(p.local.earliest_wake_ns.get());
    p.local.earliest_wake_ns.set(earliest_ns);
    while !p.word.is_notified() {
        let deadline_ns = p.timers.next_ns().max(earliest_ns);
        if how == idle::IN_RING {
            p.poller.wait(deadline_ns);
            if p.poller.has_completions() {
                return;
            }
        } else if deadline_ns == NEVER {
            futex::wait(p.word.futex(), how, NEVER);
        } else {
            let now_ns = clock::now_ns();
            futex::wait(p.word.futex(), how, deadline_ns.saturating_sub(now_ns));
        }
        if deadline_ns != NEVER && deadline_ns <= clock::now_ns() {
            return;
        }
    }
}

impl crate::sched::types::state::Sched {
    /// The last check before sleep: whether any queue that `p` may take from has work. Runnext does
    /// not count, because its owner will run it. Neither does an event in the poller without an
    /// operation in flight (a late wake-up, an event that no goroutine waits for any more): no code
    /// would consume it.
    ///
    /// With a gate, other nodes are judged by their summaries; sysmon notices work that is queued
    /// there a moment later (`rebalance`).
    fn has_work_for(&self, p: &P) -> bool {
        let is_gated = !self.config.numa.is_flat();
        let near = match is_gated {
            true => self.node_of(p).ps.clone(),
            false => 0..self.ps.len(),
        };
        let is_near = |other: &usize| near.contains(other) && *other != p.idx;
        let mut others = self.in_use.iter().filter(is_near);
        let in_queues = match is_gated {
            true => self.node_of(p).queue.len() > 0,
            false => self.nodes.iter().any(|n| n.queue.len() > 0),
        };
        in_queues
            || others.any(|other| !self.ps[other].runq.is_ring_empty())
            || p.poller.inflight() > 0 && p.poller.has_completions()
            || is_gated && self.is_numa() && remote::may_steal(self, p)
    }
}

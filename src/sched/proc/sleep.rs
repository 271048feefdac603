//! How an M that finds no goroutine falls asleep, and how one that has found some stops spinning. `queue::idle` has the
//! protocol.

use super::remote;
use crate::loom::Ordering;
use crate::loom::native::futex;
use crate::sched::numa::policy;
use crate::sched::queue::idle;
use crate::sched::types::caches::AGE_NS;
use crate::sched::types::m::M;
use crate::sched::types::p::P;
use crate::sched::types::state::{Phase, Sched};
use crate::sched::wait::wake;
use crate::sys::clock::{self, NEVER};
use crate::util::chaos::{self, Point};

/// An M that found work stops spinning. The last one to do so wakes another if there is more work; each wakes two if
/// it leaves several goroutines beside many idle Ps.
#[cold]
pub(crate) fn stop_spinning(m: &M) {
    if !m.spinning.replace(false) {
        return;
    }
    let (sched, p) = (m.sched(), m.p());
    let node = sched.node_of(p);
    let was_last = node.idle.stop_spinning();
    chaos::pause(Point::Unspin);
    let n_waiting = p.runq.len() + node.queue.len();
    if policy::wakes_two(n_waiting, || node.idle.n_idle()) {
        for _ in 0..2 {
            wake::wake_spinner(sched, node, Some(p), n_waiting as u32);
        }
    } else if was_last && (n_waiting != 0 || has_queued_work_for(sched, p) || has_own_work(p)) {
        wake::wake_in(sched, node, Some(p));
    }
}

/// Sleeps until there may be work. See `idle` for the protocol.
pub(super) fn sleep(m: &M, p: &P) {
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
    sched.idle_nodes.add(&node.idle);
    chaos::pause(Point::Idle);
    let is_wanted = m.handed_work.is_there() || p.status.has_request();
    let has_queued = has_queued_work_for(sched, p);
    let may_sleep =
        !has_queued && !has_own_work(p) && !is_wanted && sched.phase() != Phase::Stopping;
    let mut slept_ns = 0;
    if may_sleep && !chaos::coin(Point::Sleep) {
        p.count_asleep();
        sleep_as(p, how);
        slept_ns = p.count_awake();
    }
    if node.idle.claim(p.at_in_node) {
        p.word.awake();
        if has_queued {
            // There may be more: pushers left theirs to this M while it was spinning.
            node.idle.add_spinner();
            m.spinning.set(true);
        }
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
    if slept_ns >= AGE_NS {
        p.local.caches.give_stacks(&node.stacks);
    }
    if sched.sysmon.deep.load(Ordering::SeqCst) {
        sched.sysmon.note.wake();
    }
}

/// Sleeps until it is notified or the next timer is due (`timer_pace`).
fn sleep_as(p: &P, how: u32) {
    let earliest_ns = p.local.timers.begin_sleep(clock::now_ns);
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

/// Whether the poller of `p` has completions. An event without an operation in flight (a late wake-up, an
/// event that no goroutine waits for any more) does not count: no code would consume it.
fn has_own_work(p: &P) -> bool {
    p.poller.inflight() > 0 && p.poller.has_completions()
}

/// The last check before sleep: whether any queue that `p` may take from has work. Runnext does
/// not count, because its owner will run it.
///
/// With a gate, other nodes are judged by their summaries; sysmon notices work that is queued
/// there a moment later (`rebalance`).
fn has_queued_work_for(sched: &Sched, p: &P) -> bool {
    let is_gated = !sched.config.numa.is_flat();
    let near = match is_gated {
        true => sched.node_of(p).ps.clone(),
        false => 0..sched.ps.len(),
    };
    let is_near = |other: &usize| near.contains(other) && *other != p.idx;
    let mut others = sched.in_use.iter().filter(is_near);
    let in_queues = match is_gated {
        true => sched.node_of(p).queue.len() > 0,
        false => sched.nodes.iter().any(|n| n.queue.len() > 0),
    };
    in_queues
        || others.any(|other| !sched.ps[other].runq.is_ring_empty())
        || is_gated && sched.is_numa() && remote::may_steal(sched, p)
}

#[cfg(all(test, not(loom)))]
#[path = "sleep_tests.rs"]
mod tests;

//! Stealing from other Ps of the node, nearest first.
//!
//! The levels come from the topology: SMT sibling, shared L2, shared L3, same node. Between levels
//! the order is strict. Within a level a sweep begins with the victim of the last successful steal
//! (TooManyCooks: a P that had too much work still has), and continues at a random place, so that
//! thieves do not herd on one victim. There are four passes, as in Go; between the second and the
//! third, the thief tries other nodes (`remote`).
//!
//! The last pass also runs a victim's expired timers and may take its runnext. The goroutine in
//! runnext will most likely run there in a moment, with its data in that core's cache, so it is
//! taken only if the victim has dispatched nothing for a while.
//!
//! [`NumaPolicy::Flat`] has no gate, and ignores levels.
//!
//! [`NumaPolicy::Flat`]: crate::config::NumaPolicy::Flat

use std::ops::Range;

use windlass_topology::LevelKind;

use super::due_timers::run_timers_of;
use crate::g::header::GRef;
use crate::g::list::GList;
use crate::g::status::Reason;
use crate::sched::types::events::EventKind;
use crate::sched::types::m::M;
use crate::sched::types::p::P;
use crate::sched::types::steal_levels::{StealLevel, level_idx};
use crate::sched::wait::wake;
use crate::sys::clock;
use crate::util::chaos::{self, Point};

pub(crate) const PASSES: u32 = 4;
/// How long a goroutine must have stayed in runnext, while its owner runs another one.
const STUCK_AFTER_NS: u64 = 3_000;

/// Runs some of the [`PASSES`] over the victims.
pub(crate) fn sweep(m: &M, passes: Range<u32>) -> Option<GRef> {
    let p = m.p();
    for pass in passes {
        let is_last = pass == PASSES - 1;
        if m.sched().config.numa.is_flat() {
            let found = sweep_flat(m, p, is_last);
            if found.is_some() {
                return found;
            }
        } else {
            let is_near = |level: &&StealLevel| level.kind != LevelKind::Remote;
            for level in p.levels.iter().take_while(is_near) {
                let found = sweep_level(m, p, level, is_last);
                if found.is_some() {
                    return found;
                }
            }
        }
        // Completions in the own ring end the search: they are nearer than any victim.
        if ring_has_work(p) {
            return None;
        }
    }
    None
}

pub(crate) fn ring_has_work(p: &P) -> bool {
    p.poller.inflight() > 0 && (p.poller.has_completions() || p.poller.has_task_work())
}

fn sweep_level(m: &M, p: &P, level: &StealLevel, is_last: bool) -> Option<GRef> {
    let n = level.victims.len();
    let start = p.local.random.below(n);
    let last_one = Some(level.last.get()).filter(|&i| i != usize::MAX);
    let backwards = chaos::coin(Point::Victims);
    let all = (0..n).map(|i| level.victims[(start + if backwards { n - i } else { i }) % n]);
    for victim in last_one.into_iter().chain(all) {
        let found = steal_from(m, p, &m.sched().ps[victim], level.kind, is_last);
        if found.is_some() {
            level.last.set(victim);
            return found;
        }
    }
    None
}

/// Sweeps all Ps of the runtime, on all nodes.
fn sweep_flat(m: &M, p: &P, is_last: bool) -> Option<GRef> {
    let (ps, in_use) = (&m.sched().ps, &m.sched().in_use);
    let start = p.local.random.below(ps.len());
    (0..ps.len())
        .map(|i| (start + i) % ps.len())
        .filter(|&victim| victim != p.idx && in_use.contains(victim))
        .map(|victim| &ps[victim])
        .find_map(|victim| steal_from(m, p, victim, kind_of(p, victim), is_last))
}

fn kind_of(p: &P, victim: &P) -> LevelKind {
    if victim.node_idx != p.node_idx {
        return LevelKind::Remote;
    }
    let level = p.levels.iter().find(|l| l.victims.contains(&victim.idx));
    level.map_or(LevelKind::Node, |l| l.kind)
}

fn steal_from(m: &M, p: &P, victim: &P, kind: LevelKind, is_last: bool) -> Option<GRef> {
    if !victim.runq.is_ring_empty() {
        let found = if kind == LevelKind::Remote {
            steal_far(m, p, victim)
        } else {
            victim.runq.steal_into(&p.runq, u32::MAX)
        };
        if let Some((g, n)) = found {
            debug_assert!(m.sched().owns(g), "a goroutine of another runtime");
            count(p, victim, kind, n);
            if p.is_numa() {
                m.sched().publish(victim);
            }
            return Some(g);
        }
    }
    if is_last {
        take_last(m, p, victim, kind)
    } else {
        None
    }
}

/// Without a gate: takes half of a queue of another node, except goroutines bound to that node.
fn steal_far(m: &M, p: &P, victim: &P) -> Option<(GRef, u32)> {
    if victim.runq.peek_oldest(u32::MAX).all(GRef::is_bound) {
        return None;
    }
    let mut gs = take_unbound(m, victim, u32::MAX);
    let n = gs.len() as u32;
    let first = gs.pop()?;
    debug_assert!(p.runq.is_ring_empty(), "a thief has nothing of its own");
    while let Some(g) = gs.pop() {
        wake::push_local(m, g);
    }
    Some((first, n))
}

/// Takes from a queue of another node. Bound goroutines among them go to that node's queue.
pub(crate) fn take_unbound(m: &M, victim: &P, max: u32) -> GList {
    let mut all = victim.runq.steal_list(max);
    let (mut free, mut bound) = (GList::new(), GList::new());
    while let Some(g) = all.pop() {
        let to = if g.is_bound() { &mut bound } else { &mut free };
        to.push(g);
        if !g.is_bound() && !g.is_fresh() {
            m.p().stats.stolen_started.add(1);
        }
    }
    if !bound.is_empty() {
        let node = m.sched().node_of(victim);
        node.queue.push_all(bound);
        wake::wake_in(m.sched(), node, None);
    }
    free
}

/// The last pass: takes expired timers, and a goroutine that stays in runnext.
pub(crate) fn take_last(m: &M, p: &P, victim: &P, kind: LevelKind) -> Option<GRef> {
    if victim.timers.next_ns() <= clock::now_ns() {
        run_timers_of(m, victim);
        if let Some(g) = p.runq.take_runnext().or_else(|| p.runq.pop()) {
            return Some(g);
        }
    }
    if !victim.runq.has_runnext() || !may_take_runnext(victim, kind) || !runnext_is_stuck(victim) {
        return None;
    }
    let g = victim.runq.steal_runnext()?;
    if kind == LevelKind::Remote && g.is_bound() {
        // Not the goroutine that was checked before.
        wake::send_to(m.sched(), victim.node_idx, g);
        return None;
    }
    count(p, victim, kind, 1);
    Some(g)
}

/// From another node never a goroutine bound to that node.
fn may_take_runnext(victim: &P, kind: LevelKind) -> bool {
    kind != LevelKind::Remote || !victim.runq.is_runnext_bound()
}

/// Whether the goroutine in a victim's runnext is not about to run: polls it for a moment with
/// PAUSE, never with a sleep (Go's `usleep(3)` lasts 18 to 82 µs).
fn runnext_is_stuck(victim: &P) -> bool {
    let g = victim.runq.peek_runnext();
    let dispatches = victim.stats.dispatches.get();
    let until_ns = clock::now_ns() + STUCK_AFTER_NS;
    while clock::now_ns() < until_ns {
        for _ in 0..16 {
            crate::loom::spin_loop();
        }
        if victim.runq.peek_runnext() != g || victim.stats.dispatches.get() != dispatches {
            return false;
        }
    }
    !g.is_null()
}

fn count(p: &P, victim: &P, kind: LevelKind, n: u32) {
    if p.is_traced() {
        p.trace(EventKind::Steal, Reason::None, n, victim.idx as u64);
    }
    p.stats.steals[level_idx(kind)].add(1);
    p.stats.stolen[level_idx(kind)].add(u64::from(n));
}

//! Stealing from another node.
//!
//! A remote steal follows two dry sweeps of the thief's own node. `policy` decides every step:
//! whether to consider other nodes, whether a node's summary (`summary`) permits the steal, how
//! much to take. A search that is denied everywhere has read one cache line of each other node. A
//! search that is permitted somewhere probes only the Ps whose bits in the summary say that they
//! have work. If a bit is stale, the search has also read that P's line, and corrects the bit.
//!
//! The node's queue comes first: it costs one lock, and its goroutines overflowed or came from
//! outside; the oldest are taken. If it is empty, a visit goes from one local queue with work to the next, and takes
//! the older half of each, until it has as many as the thief's node can run: queues that Ps steal from are short, and
//! the visit costs more than a further queue. Goroutines bound to their node stay: a local queue from which only bound
//! goroutines would be taken is skipped, and a bound one taken with others goes to its node's queue.
//!
//! The thief runs one goroutine. The others go to its own node's queue, for the other Ps of the
//! node: when the thief stops spinning it wakes one of them, and so on.

use windlass_topology::LevelKind;

use super::steal;
use crate::g::header::GRef;
use crate::g::list::GList;
use crate::g::status::Reason;
use crate::loom::oracle;
use crate::sched::numa::policy::{self, OwnView, StealDenied, Verdict};
use crate::sched::queue::global::StolenBatch;
use crate::sched::types::events::{EventKind, FROM_NODE};
use crate::sched::types::m::M;
use crate::sched::types::p::P;
use crate::sched::types::state::{Node, Sched};
use crate::sched::types::steal_levels::{StealLevel, level_idx};
use crate::sched::wait::wake;
use crate::sys::clock;

/// Tries other nodes, nearest first.
pub(crate) fn steal(m: &M, dry_sweeps: u32) -> Option<GRef> {
    let (sched, p) = (m.sched(), m.p());
    let node = sched.node_of(p);
    let own = OwnView {
        dry_sweeps,
        ring_has_work: steal::ring_has_work(p),
        queued: node.queue.len(),
    };
    if !policy::may_look_away(own) {
        return None;
    }
    p.stats.remote_searches.add(1);
    p.local.came_back_empty.set(false);
    let now_ns = clock::now_ns();
    for level in remote_levels(p) {
        let n = level.nodes.len();
        let start = p.local.random.below(n);
        for i in 0..n {
            let victim = level.nodes[(start + i) % n];
            let found = oracle::theft(|| try_remote_steal(m, p, victim, level.distance, now_ns));
            if found.is_some() {
                node.remote_peers.end_starvation();
                return found;
            }
        }
    }
    None
}

/// The last check before sleep: whether a thief from `p` would pass a gate. Not if it has just
/// passed one in vain: the goroutines left there are bound to their node.
pub(crate) fn may_steal(sched: &Sched, p: &P) -> bool {
    if p.local.came_back_empty.get() {
        return false;
    }
    let node = sched.node_of(p);
    let now_ns = clock::now_ns();
    let is_starved = node.remote_peers.is_starved(now_ns);
    node.remote_peers.neighbours.iter().any(|neighbour| {
        let view = sched.nodes[neighbour.node_idx].view(now_ns);
        policy::may_steal_remote(view, neighbour.distance, is_starved) == Verdict::Pass
    })
}

fn remote_levels(p: &P) -> impl Iterator<Item = &StealLevel> {
    p.levels.iter().filter(|l| l.kind == LevelKind::Remote)
}

/// Checks the gate of one node and, if it permits, takes goroutines there.
fn try_remote_steal(m: &M, p: &P, victim_idx: usize, distance: u32, now_ns: u64) -> Option<GRef> {
    let sched = m.sched();
    let (own, victim) = (sched.node_of(p), &sched.nodes[victim_idx]);
    let is_starved = own.remote_peers.is_starved(now_ns);
    p.stats.remote_probes.add(1);
    match policy::may_steal_remote(victim.view(now_ns), distance, is_starved) {
        Verdict::Pass => {}
        Verdict::Nothing => return None,
        Verdict::Denied(why) => return deny(p, why),
    }
    let Some(_theft) = own.remote_peers.begin_remote_steal(victim_idx) else {
        return deny(p, StealDenied::PairBusy);
    };
    let taken = take(m, p, victim);
    let found = match taken.gs {
        gs if !gs.is_empty() => share(m, p, victim_idx, gs),
        _ if is_starved => take_stuck(m, p, victim),
        _ => None,
    };
    if found.is_none() {
        p.local.came_back_empty.set(true);
        if taken.all_bound {
            return deny(p, StealDenied::Bound);
        }
    }
    found
}

fn deny(p: &P, why: StealDenied) -> Option<GRef> {
    p.stats.gate_denials[why as usize].add(1);
    None
}

/// Takes a batch out of the node's queue, or out of local queues.
fn take(m: &M, p: &P, victim: &Node) -> StolenBatch {
    // The idle Ps include the thief.
    let own = m.sched().node_of(p);
    let n_idle = own.idle.n_without_work().clamp(1, policy::REMOTE_MAX);
    let n_beside = n_idle - 1;
    let batch = |available| policy::remote_batch(available, n_beside);
    let mut taken = take_queued(m.sched(), victim, batch);
    if !taken.gs.is_empty() {
        return taken;
    }
    let n = victim.ps.len();
    let start = p.local.random.below(n);
    let summary = &victim.queue.summary;
    let with_work = summary.with_work(n);
    for at in (start..n).chain(0..start).filter(|&at| with_work.has(at)) {
        let from = &m.sched().ps[victim.ps.start + at];
        p.stats.remote_probes.add(1);
        let n_more = n_beside - taken.gs.len();
        let mut oldest = from.runq.peek_oldest(n_more as u32 + 1);
        if oldest.any(|g| !g.is_bound()) {
            let max = policy::remote_batch(from.runq.len(), n_more);
            taken.gs.append(steal::take_unbound(m, from, max as u32));
        }
        let left = from.runq.len();
        from.runq.published.publish(at, left, summary);
        taken.all_bound |= left != 0;
        if taken.gs.len() > n_beside {
            break;
        }
    }
    taken
}

/// Takes a batch out of the queue of another node.
pub(super) fn take_queued(
    sched: &Sched,
    victim: &Node,
    batch: impl FnOnce(usize) -> usize,
) -> StolenBatch {
    let taken = victim.queue.take_for_others(batch);
    if taken.gave_back {
        wake::wake_in(sched, victim, None);
    }
    taken
}

/// Takes work that is otherwise not taken remotely: expired timers, and a goroutine stuck in
/// runnext.
fn take_stuck(m: &M, p: &P, victim: &Node) -> Option<GRef> {
    let at = victim.queue.summary.stuck_at()?;
    p.stats.remote_probes.add(1);
    let from = &m.sched().ps[victim.ps.start + at];
    steal::take_last(m, p, from, LevelKind::Remote)
}

/// Returns the first goroutine for the thief, and queues the others for the other Ps of its node.
fn share(m: &M, p: &P, victim_idx: usize, mut gs: GList) -> Option<GRef> {
    let n = gs.len();
    let level = level_idx(LevelKind::Remote);
    p.stats.steals[level].add(1);
    p.stats.stolen[level].add(n as u64);
    if p.is_traced() {
        let from = FROM_NODE + u64::from(m.sched().nodes[victim_idx].os_id);
        p.trace(EventKind::Steal, Reason::None, n as u32, from);
    }
    let first = gs.pop();
    if n > 1 {
        p.stats.surplus_pushes.add(n as u64 - 1);
        if p.is_traced() {
            p.trace(EventKind::Surplus, Reason::None, n as u32 - 1, 0);
        }
        m.sched().node_of(p).queue.push_all(gs);
    }
    first
}

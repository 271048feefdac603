//! Batches from the queues of nodes.

use super::remote::take_queued;
use crate::g::header::GRef;
use crate::g::list::GList;
use crate::loom::Ordering;
use crate::sched::queue::runq;
use crate::sched::types::m::M;
use crate::sched::types::p::P;
use crate::sched::wait::wake;

/// Takes a batch from its own node's queue or, without a gate, from any node's.
pub(super) fn take_any_batch(m: &M, p: &P) -> Option<GRef> {
    let own = take_batch(m, p.node_idx, runq::HALF);
    if own.is_some() || !m.sched().config.numa.is_flat() {
        return own;
    }
    let others = &m.sched().node_of(p).remote_peers.neighbours;
    others.iter().find_map(|other| {
        let batch = |n: usize| n.div_ceil(2).min(runq::HALF);
        let node = &m.sched().nodes[other.node_idx];
        take_first(m, take_queued(m.sched(), node, batch).gs)
    })
}

/// Takes this P's share of a node's queue.
pub(super) fn take_batch(m: &M, node_idx: usize, max: usize) -> Option<GRef> {
    let node = &m.sched().nodes[node_idx];
    let n_live = node.n_live.load(Ordering::Relaxed).max(1);
    take_first(m, node.queue.pop_batch(n_live, max))
}

/// Returns the first goroutine, and pushes the rest to the local queue. An M may have gone to sleep while they were in no
/// queue, and who pushed them have left them to that M. One that spins wakes another when it stops.
fn take_first(m: &M, mut gs: GList) -> Option<GRef> {
    let first = gs.pop()?;
    debug_assert!(m.sched().owns(first), "a goroutine of another runtime");
    if !gs.is_empty() {
        while let Some(g) = gs.pop() {
            wake::push_local(m, g);
        }
        if !m.spinning.get() {
            wake::wake_for_surplus(m.sched(), m.p());
        }
    }
    Some(first)
}

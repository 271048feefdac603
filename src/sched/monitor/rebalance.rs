//! Sysmon's check of the nodes, while some P is idle. It refreshes the load summaries of Ps stuck
//! in one goroutine, and makes sure that no node is idle for long while another is overloaded.
//!
//! A push wakes a P of another node only for a large backlog, and a thief is denied at the gate
//! while a node's own Ps are expected to take the work. Work that slips through both is found here,
//! at most a millisecond later: for a node without an idle P, the nearest node with one is woken. A
//! node that has been idle for a millisecond may pass the gate. It may then also take work that is
//! otherwise not taken remotely: a goroutine that stays in runnext, and the timers of a P that does
//! not run them.

use crate::loom::Ordering;
use crate::sched::numa::policy::{self, NodeView};
use crate::sched::types::p::P;
use crate::sched::types::state::{Node, Sched};
use crate::sched::wait::wake;
use crate::sys::clock;

/// The counts of sysmon's last round.
#[derive(Debug, Default)]
pub(crate) struct Rebalance {
    at_ns: u64,
    queues: Vec<QueueHead>,
    ps: Vec<SeenP>,
}

/// The head of a queue.
#[derive(Clone, Copy, Debug, Default)]
struct QueueHead {
    n_left: u32,
    /// Since when no goroutine has left the non-empty queue; 0 if it is empty.
    since_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct SeenP {
    ring: QueueHead,
    dispatches: u64,
    had_runnext: bool,
}

impl QueueHead {
    /// Since when the goroutine at the head has waited, if it was already there in the last round.
    fn look(&mut self, n_left: u32, len: usize, now_ns: u64) -> Option<u64> {
        let stands_still = self.since_ns != 0 && self.n_left == n_left;
        self.n_left = n_left;
        if len == 0 {
            self.since_ns = 0;
        } else if !stands_still {
            self.since_ns = now_ns;
        }
        (len != 0 && stands_still).then_some(self.since_ns)
    }
}

impl Rebalance {
    /// Sysmon's part of work conservation: wakes an idle node for one that needs help, if no
    /// push did.
    pub(crate) fn wake_idle_nodes(&mut self, sched: &Sched) {
        let now_ns = clock::now_ns();
        self.queues.resize(sched.nodes.len(), QueueHead::default());
        self.ps.resize(sched.ps.len(), SeenP::default());
        for (i, node) in sched.nodes.iter().enumerate() {
            self.look_at(sched, i, node, now_ns);
        }
        let round_ns = now_ns - std::mem::replace(&mut self.at_ns, now_ns).min(now_ns);
        for node in &sched.nodes {
            let view = node.view(now_ns);
            if policy::needs_help(view) {
                find_help(sched, node, view, now_ns, round_ns);
            }
        }
    }
}

/// Wakes a P for each waiting goroutine, on as many nodes, nearest first; lets nodes that have
/// been idle for long pass the gate.
fn find_help(sched: &Sched, node: &Node, view: NodeView, now_ns: u64, round_ns: u64) {
    let mut wanted = view.runnable.max(1);
    for neighbour in &node.remote_peers.neighbours {
        let other = &sched.nodes[neighbour.node_idx];
        if wanted == 0 {
            break;
        }
        let idle_ns = idle_ns(sched, other, now_ns);
        other
            .remote_peers
            .idle_while_needed_ns
            .fetch_add(idle_ns.min(round_ns), Ordering::Relaxed);
        if other.idle.n_spinning() != 0 || !other.idle.any_idle() {
            continue;
        }
        if policy::is_starved(idle_ns, true) {
            other.remote_peers.set_starved(now_ns);
        } else if view.runnable == 0 {
            // It would find nothing that it may take.
            continue;
        }
        wake::wake_spinner(sched, other, Some(&sched.ps[node.ps.start]), 1);
        wanted -= 1;
    }
}

/// How long all Ps of a node have slept; 0 if one is awake.
fn idle_ns(sched: &Sched, node: &Node, now_ns: u64) -> u64 {
    let mut latest_ns = 0;
    for p in sched.ps.range(node.ps.clone()) {
        if !p.status.is_in_use() {
            continue;
        }
        match p.stats.asleep_since_ns.get() {
            0 => return 0,
            since_ns => latest_ns = since_ns.max(latest_ns),
        }
    }
    match latest_ns {
        0 => 0,
        _ => now_ns.saturating_sub(latest_ns),
    }
}

impl Rebalance {
    fn look_at(&mut self, sched: &Sched, node_idx: usize, node: &Node, now_ns: u64) {
        let summary = &node.queue.summary;
        let n_taken = summary.n_taken();
        let queue = &mut self.queues[node_idx];
        let queue_ns = queue.look(n_taken, node.queue.len(), now_ns);
        let mut ring_ns = None;
        // If several Ps are stuck, reports them in turn: a thief may be unable to use the first.
        let last = summary.stuck_at();
        let (mut first, mut next) = (None, None);
        for p in sched.ps.range(node.ps.clone()) {
            let len = p.runq.len();
            p.runq.published.publish(p.at_in_node, len, summary);
            let seen = &mut self.ps[p.idx];
            let since_ns = seen.ring.look(p.runq.n_left(), len, now_ns);
            if since_ns.is_some() {
                p.runq.published.stands_still();
            }
            ring_ns = ring_ns.into_iter().chain(since_ns).min();
            if seen.is_stuck(p, now_ns) {
                first = first.or(Some(p.at_in_node));
                let is_behind = last.is_none_or(|last| p.at_in_node > last);
                next = next.or(is_behind.then_some(p.at_in_node));
            }
        }
        let queue = (queue_ns.unwrap_or(0), n_taken);
        summary.set_waiting(queue, ring_ns.unwrap_or(0), next.or(first));
    }
}

impl SeenP {
    /// Whether work waits behind a goroutine that was already running here in the last round.
    fn is_stuck(&mut self, p: &P, now_ns: u64) -> bool {
        let dispatches = p.stats.dispatches.get();
        let moves_on = std::mem::replace(&mut self.dispatches, dispatches) != dispatches;
        let has_runnext = p.runq.has_runnext();
        let had_runnext = std::mem::replace(&mut self.had_runnext, has_runnext);
        let due = p.timers.next_ns() <= now_ns;
        let is_awake = p.stats.asleep_since_ns.get() == 0;
        is_awake && !moves_on && (has_runnext && had_runnext || due)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_wait_begins_when_the_head_stands_still() {
        let mut queue = QueueHead::default();
        assert_eq!(queue.look(7, 0, 10), None);
        assert_eq!(queue.look(7, 2, 20), None);
        assert_eq!(queue.look(7, 5, 30), Some(20));
        assert_eq!(queue.look(8, 4, 40), None);
        assert_eq!(queue.look(8, 4, 50), Some(40));
        assert_eq!(queue.look(8, 4, 60), Some(40));
        assert_eq!(queue.look(12, 0, 70), None);
        assert_eq!(queue.look(12, 1, 80), None);
    }
}

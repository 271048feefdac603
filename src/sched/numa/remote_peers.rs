//! Per-node state for remote stealing. Used by the node's own Ps and by sysmon.

use crate::loom::native::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::util::ladder;

/// How long a node that was found to be starved may pass the gate: long enough for its P to wake up
/// and search.
const PASS_NS: u64 = 2 * ladder::LATE_NS;

/// Another node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neighbour {
    pub(crate) node_idx: usize,
    pub(crate) distance: u32,
}

/// A node's view of the other nodes.
#[derive(Debug)]
pub(crate) struct RemotePeers {
    /// The other nodes, nearest first.
    pub(crate) neighbours: Vec<Neighbour>,
    /// For each node of the runtime: a P of this node is stealing there. Ordering: set with acquire
    /// and cleared with release; it guards no data.
    thieves: Box<[AtomicBool]>,
    /// When the node was last found to be starved; 0 if it was not, or has found work since.
    /// Ordering: relaxed.
    starved_at_ns: AtomicU64,
    /// How often it was starved, and how long it was idle while another node needed help. Ordering:
    /// relaxed, statistics; written by sysmon.
    pub(crate) starvations: AtomicU64,
    pub(crate) idle_while_needed_ns: AtomicU64,
}

impl RemotePeers {
    /// The peers of node `own`, from its distances to all nodes.
    pub(crate) fn new(own: usize, distances: &[u32]) -> RemotePeers {
        let all = distances.iter().enumerate();
        let mut neighbours: Vec<_> = all
            .filter(|&(node_idx, _)| node_idx != own)
            .map(|(node_idx, &distance)| Neighbour { node_idx, distance })
            .collect();
        // Ties are ordered from the own index on, cyclically, so that nodes do not all prefer the
        // same one.
        let way = |n: &Neighbour| (n.node_idx + distances.len() - own) % distances.len();
        neighbours.sort_by_key(|n| (n.distance, way(n)));
        RemotePeers {
            neighbours,
            thieves: distances.iter().map(|_| AtomicBool::new(false)).collect(),
            starved_at_ns: AtomicU64::new(0),
            starvations: AtomicU64::new(0),
            idle_while_needed_ns: AtomicU64::new(0),
        }
    }

    /// Acquires the exclusive right to steal from a node; `None` if another P of this node has it.
    pub(crate) fn begin_remote_steal(&self, from: usize) -> Option<RemoteStealGuard<'_>> {
        let flag = &self.thieves[from];
        let is_mine = !flag.load(Ordering::Relaxed) && !flag.swap(true, Ordering::Acquire);
        is_mine.then_some(RemoteStealGuard(flag))
    }

    pub(crate) fn is_starved(&self, now_ns: u64) -> bool {
        match self.starved_at_ns.load(Ordering::Relaxed) {
            0 => false,
            at_ns => now_ns.saturating_sub(at_ns) < PASS_NS,
        }
    }

    /// Sysmon has found it idle for long while another node needs help.
    pub(crate) fn set_starved(&self, now_ns: u64) {
        self.starved_at_ns.store(now_ns, Ordering::Relaxed);
        self.starvations.fetch_add(1, Ordering::Relaxed);
    }

    /// The node has found work.
    pub(crate) fn end_starvation(&self) {
        if self.starved_at_ns.load(Ordering::Relaxed) != 0 {
            self.starved_at_ns.store(0, Ordering::Relaxed);
        }
    }
}

/// The right to steal from one node, released on drop.
#[derive(Debug)]
pub(crate) struct RemoteStealGuard<'a>(&'a AtomicBool);

impl Drop for RemoteStealGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn neighbours_come_by_their_distance() {
        let border = RemotePeers::new(1, &[21, 10, 16, 21]);
        let order: Vec<_> = border.neighbours.iter().map(|n| n.node_idx).collect();
        assert_eq!(order, [2, 3, 0]);
    }

    #[test]
    fn one_thief_for_a_pair_of_nodes() {
        let border = RemotePeers::new(0, &[10, 21, 21]);
        let theft = border.begin_remote_steal(1);
        assert!(theft.is_some());
        assert!(border.begin_remote_steal(1).is_none());
        assert!(border.begin_remote_steal(2).is_some());
        drop(theft);
        assert!(border.begin_remote_steal(1).is_some());
    }

    #[test]
    fn starvation_ends_with_help_or_with_time() {
        let border = RemotePeers::new(0, &[10, 21]);
        assert!(!border.is_starved(PASS_NS));
        border.set_starved(5);
        assert!(border.is_starved(5));
        assert!(!border.is_starved(5 + PASS_NS));
        border.end_starvation();
        assert!(!border.is_starved(5));
        assert_eq!(border.starvations.load(Ordering::Relaxed), 1);
    }
}

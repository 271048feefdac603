//! Whom each P steals from.

use std::collections::BTreeMap;

use super::types::{Level, LevelKind, Plan, PlannedP};
use crate::Topology;

/// With more level 3 caches than this besides one's own, a node's level is split.
const MAX_FLAT_L3S: usize = 8;

/// For each node how many level 3 caches its Ps are under, and for each P which of them is its own.
pub(super) struct L3Positions {
    n_in_node: Vec<usize>,
    of_p: Vec<usize>,
}

pub(super) fn l3_positions(plan: &Plan) -> L3Positions {
    let mut n_in_node = vec![0; plan.nodes.len()];
    let mut of_p = Vec::with_capacity(plan.ps.len());
    for (index, p) in plan.ps.iter().enumerate() {
        let is_first = index == plan.nodes[p.node].ps[0];
        if is_first || plan.ps[index - 1].l3 != p.l3 {
            n_in_node[p.node] += 1;
        }
        of_p.push(n_in_node[p.node] - 1);
    }
    L3Positions { n_in_node, of_p }
}

pub(super) fn levels(
    topology: &Topology,
    plan: &Plan,
    l3s: &L3Positions,
    index: usize,
) -> Vec<Level> {
    let n_ps = plan.ps.len();
    let own_node = plan.nodes[plan.ps[index].node].index;
    // Kind, then rank among the levels of that kind.
    let mut levels: BTreeMap<(LevelKind, u32), Level> = BTreeMap::new();
    for victim in (index + 1..n_ps).chain(0..index) {
        let distance = topology.distance(own_node, plan.nodes[plan.ps[victim].node].index);
        let kind = kind(&plan.ps[index], &plan.ps[victim]);
        let rank = match kind {
            LevelKind::Node => halving_rank(plan, l3s, index, victim),
            LevelKind::Remote => distance,
            LevelKind::Smt | LevelKind::L2 | LevelKind::L3 => 0,
        };
        let new = || Level {
            kind,
            distance,
            victims: Vec::new(),
        };
        levels
            .entry((kind, rank))
            .or_insert_with(new)
            .victims
            .push(victim);
    }
    levels.into_values().collect()
}

fn kind(thief: &PlannedP, victim: &PlannedP) -> LevelKind {
    let shared = |a: Option<usize>, b| a.is_some() && a == b;
    if thief.node != victim.node {
        LevelKind::Remote
    } else if thief.core == victim.core {
        LevelKind::Smt
    } else if shared(thief.l2, victim.l2) {
        LevelKind::L2
    } else if shared(thief.l3, victim.l3) {
        LevelKind::L3
    } else {
        LevelKind::Node
    }
}

/// 0 for the nearest victims. All the same unless the node has many level 3 caches; then the later
/// a recursive halving of their list parts the two, the nearer they are.
fn halving_rank(plan: &Plan, l3s: &L3Positions, thief: usize, victim: usize) -> u32 {
    let n_l3s = l3s.n_in_node[plan.ps[thief].node];
    if n_l3s <= MAX_FLAT_L3S + 1 {
        return 0;
    }
    let (thief, victim) = (l3s.of_p[thief], l3s.of_p[victim]);
    let (mut start, mut end) = (0, n_l3s);
    let mut rank = u32::MAX;
    while end - start > 1 {
        let middle = start + (end - start) / 2;
        match (thief < middle, victim < middle) {
            (true, true) => end = middle,
            (false, false) => start = middle,
            _ => break,
        }
        rank -= 1;
    }
    rank
}

//! The steal levels of each P: which other Ps it steals from, nearest first.

use std::collections::BTreeMap;

use super::types::{Level, LevelKind, Plan, PlannedP};
use crate::Topology;

/// A package with more level 3 caches in a node than this and the thief's own is split into levels.
const MAX_FLAT_L3S: usize = 8;

/// The rank of victims in other packages of the node, after all of the thief's package.
const OTHER_PACKAGE: u32 = u32::MAX;

/// For each P: its level 3 cache among those of its package in its node.
pub(super) struct L3Positions {
    /// How many there are.
    count: Vec<usize>,
    /// Which of them is its own.
    own: Vec<usize>,
}

/// The Ps are numbered by node, then by package, then by level 3 cache.
pub(super) fn l3_positions(plan: &Plan) -> L3Positions {
    let mut counts: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let mut own = Vec::with_capacity(plan.ps.len());
    for (index, p) in plan.ps.iter().enumerate() {
        let count = counts.entry((p.node, p.package)).or_default();
        if *count == 0 || plan.ps[index - 1].l3 != p.l3 {
            *count += 1;
        }
        own.push(*count - 1);
    }
    let count = plan.ps.iter().map(|p| counts[&(p.node, p.package)]);
    L3Positions {
        count: count.collect(),
        own,
    }
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
            LevelKind::Node => rank_in_node(plan, l3s, index, victim),
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

/// How far a victim is that shares the thief's node and no cache with it; 0 is the nearest.
///
/// Victims in the thief's package come first: a node has several packages where the firmware or the
/// kernel hides them (`numa=off`, node interleaving). Inside the package the rank is 0, unless it has
/// many level 3 caches: then their list is halved again and again, and a victim is the nearer the
/// later it is separated from the thief.
fn rank_in_node(plan: &Plan, l3s: &L3Positions, thief: usize, victim: usize) -> u32 {
    let (from, to) = (&plan.ps[thief], &plan.ps[victim]);
    if from.package != to.package {
        return OTHER_PACKAGE;
    }
    let n_l3s = l3s.count[thief];
    if n_l3s <= MAX_FLAT_L3S + 1 {
        return 0;
    }
    let (thief, victim) = (l3s.own[thief], l3s.own[victim]);
    let (mut start, mut end) = (0, n_l3s);
    let mut rank = OTHER_PACKAGE - 1;
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

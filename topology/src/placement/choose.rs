//! Chooses the CPUs that get Ps.

use std::cmp::Reverse;

use super::types::{DropReason, DroppedCpu, PlanError, Request, Threads};
use crate::{Pu, Topology};

/// OS ids of the CPUs that Ps may be put on by this request, ascending; [`plan`](super::plan) puts one on each
/// unless the request says how many.
///
/// # Errors
///
/// As [`plan`](super::plan).
///
/// # Examples
///
/// ```
/// use windlass_topology::{Request, Threads, Topology, placement::usable_cpus};
///
/// let machine = Topology::synthetic("core:2 pu:2")?;
/// let per_core = Request { threads: Threads::Never, ..Request::default() };
/// assert_eq!(usable_cpus(&machine, &per_core)?, [0, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn usable_cpus(topology: &Topology, request: &Request) -> Result<Vec<usize>, PlanError> {
    let pus = usable_pus(topology, request, &mut Vec::new())?;
    Ok(pus.into_iter().map(|pu| pu.cpu).collect())
}

/// These CPUs without isolated ones; all of them if they are all isolated.
pub(crate) fn without_isolated(cpus: &[usize], isolated: &[usize]) -> Vec<usize> {
    let others = cpus.iter().filter(|cpu| !isolated.contains(cpu));
    let others: Vec<usize> = others.copied().collect();
    if others.is_empty() {
        cpus.to_vec()
    } else {
        others
    }
}

pub(super) fn offline(topology: &Topology) -> Vec<DroppedCpu> {
    let reason = DropReason::Offline;
    let cpus = topology.offline_cpus().iter();
    cpus.map(|&cpu| DroppedCpu { cpu, reason }).collect()
}

/// Moves the CPUs that `is_dropped` selects to `dropped`, with this reason, and returns the others.
pub(super) fn drop_all<'a>(
    dropped: &mut Vec<DroppedCpu>,
    pus: &[&'a Pu],
    reason: DropReason,
    is_dropped: impl Fn(&Pu) -> bool,
) -> Vec<&'a Pu> {
    let (gone, kept): (Vec<&Pu>, Vec<&Pu>) = pus.iter().partition(|pu| is_dropped(pu));
    let cpus = gone.into_iter().map(|pu| pu.cpu);
    dropped.extend(cpus.map(|cpu| DroppedCpu { cpu, reason }));
    kept
}

/// The CPUs that Ps may be put on, ascending; the others go to `dropped`.
pub(super) fn usable_pus<'a>(
    topology: &'a Topology,
    request: &Request,
    dropped: &mut Vec<DroppedCpu>,
) -> Result<Vec<&'a Pu>, PlanError> {
    let all: Vec<&Pu> = topology.pus().iter().collect();
    let mut pus = drop_all(dropped, &all, DropReason::NotAllowed, |pu| !pu.allowed);
    if let Some(os_ids) = &request.nodes {
        let is_chosen = chosen_nodes(topology, os_ids)?;
        pus = drop_all(dropped, &pus, DropReason::OtherNode, |pu| {
            !is_chosen[pu.node]
        });
    } else if pus.is_empty() {
        return Err(PlanError::NoAllowedCpu);
    }
    if !request.isolated {
        let cpus: Vec<usize> = pus.iter().map(|pu| pu.cpu).collect();
        let kept = without_isolated(&cpus, topology.isolated_cpus());
        pus = drop_all(dropped, &pus, DropReason::Isolated, |pu| {
            !kept.contains(&pu.cpu)
        });
    }
    if request.threads == Threads::Never {
        let first_of = |core| pus.iter().find(|pu| pu.core == core).map(|pu| pu.cpu);
        let kept: Vec<usize> = pus.iter().filter_map(|pu| first_of(pu.core)).collect();
        pus = drop_all(dropped, &pus, DropReason::Sibling, |pu| {
            !kept.contains(&pu.cpu)
        });
    }
    Ok(pus)
}

/// For each node of the machine whether it is in the list.
fn chosen_nodes(topology: &Topology, os_ids: &[u32]) -> Result<Vec<bool>, PlanError> {
    if os_ids.is_empty() {
        return Err(PlanError::NoNodes);
    }
    let nodes = topology.nodes();
    let mut is_chosen = vec![false; nodes.len()];
    for &os_id in os_ids {
        let Some(position) = nodes.iter().position(|node| node.os_id == os_id) else {
            let known = nodes.iter().map(|node| node.os_id).collect();
            return Err(PlanError::UnknownNode { os_id, known });
        };
        if nodes[position].cpus.is_empty() {
            return Err(PlanError::NodeWithoutCpus(os_id));
        }
        if !topology
            .pus()
            .iter()
            .any(|pu| pu.node == position && pu.allowed)
        {
            return Err(PlanError::NodeNotAllowed(os_id));
        }
        is_chosen[position] = true;
    }
    Ok(is_chosen)
}

/// The CPUs of `n_ps` Ps; one CPU more than once where there are too few.
pub(super) fn spread<'a>(
    topology: &Topology,
    pus: &[&'a Pu],
    n_ps: usize,
    threads: Threads,
) -> Vec<&'a Pu> {
    let mut on_pu = vec![0_usize; pus.len()];
    let mut on_core = Counts::default();
    let mut on_node = Counts::default();
    let mut on_l3 = Counts::default();
    let mut on_l2 = Counts::default();
    let mut chosen = Vec::with_capacity(n_ps);
    for _ in 0..n_ps {
        let cost = |&(position, pu): &(usize, &&Pu)| {
            let (on_core, on_node) = (on_core.of(pu.core), on_node.of(pu.node));
            let together = threads == Threads::Together;
            (
                on_pu[position],
                if together { 0 } else { on_core },
                Reverse(topology.cores()[pu.core].performance),
                on_node,
                // A core in use, with a thread to spare, before an unused one.
                together && on_core == 0,
                pu.l3.map_or(0, |l3| on_l3.of(l3)),
                pu.l2.map_or(0, |l2| on_l2.of(l2)),
                (pu.node, pu.package, pu.l3, pu.l2, pu.core, pu.cpu),
            )
        };
        let best = pus.iter().enumerate().min_by_key(cost);
        let (position, &pu) = best.expect("there is a usable CPU");
        on_pu[position] += 1;
        on_core.add(pu.core);
        on_node.add(pu.node);
        pu.l3.into_iter().for_each(|l3| on_l3.add(l3));
        pu.l2.into_iter().for_each(|l2| on_l2.add(l2));
        chosen.push(pu);
    }
    chosen
}

/// How many Ps are in each group of a kind.
#[derive(Default)]
struct Counts(Vec<usize>);

impl Counts {
    fn of(&self, group: usize) -> usize {
        self.0.get(group).copied().unwrap_or(0)
    }

    fn add(&mut self, group: usize) {
        if self.0.len() <= group {
            self.0.resize(group + 1, 0);
        }
        self.0[group] += 1;
    }
}

/// As [`spread`], but node after node.
pub(super) fn pack<'a>(
    topology: &Topology,
    pus: &[&'a Pu],
    n_ps: usize,
    threads: Threads,
) -> Vec<&'a Pu> {
    let node_order = nearest_first(topology, pus);
    let rank = |node| node_order.iter().position(|&other| other == node);
    let mut siblings = Counts::default();
    let mut ordered = Vec::with_capacity(pus.len());
    for &pu in pus {
        // How many CPUs of its core come before it.
        let sibling = match threads {
            Threads::Last | Threads::Never => siblings.of(pu.core),
            Threads::Together => 0,
        };
        siblings.add(pu.core);
        let slower = Reverse(topology.cores()[pu.core].performance);
        let place = (pu.package, pu.l3, pu.l2, pu.core, pu.cpu);
        ordered.push(((rank(pu.node), sibling, slower, place), pu));
    }
    ordered.sort_by_key(|&(key, _)| key);
    ordered
        .into_iter()
        .map(|(_, pu)| pu)
        .cycle()
        .take(n_ps)
        .collect()
}

/// The nodes of these CPUs: the first, then always the one with the least distance to all before.
fn nearest_first(topology: &Topology, pus: &[&Pu]) -> Vec<usize> {
    let mut left: Vec<usize> = pus.iter().map(|pu| pu.node).collect();
    left.sort_unstable();
    left.dedup();
    let mut order = vec![left.remove(0)];
    while !left.is_empty() {
        let far = |node: usize| {
            order
                .iter()
                .map(|&used| topology.distance(used, node))
                .sum::<u32>()
        };
        let next = (0..left.len())
            .min_by_key(|&i| far(left[i]))
            .expect("a node is left");
        order.push(left.remove(next));
    }
    order
}

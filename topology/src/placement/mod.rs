//! Decides on which CPUs the Ps go, and in which order each steals from the others.
//!
//! Pure functions of a [`Topology`]: no I/O, no randomness.
//!
//! **Which CPUs.** Ps are handed out one at a time, each to the best CPU that is left. *Best* is,
//! in this order ([`Policy::Spread`]): a CPU with the fewest Ps; a core with the fewest; a core of
//! the fastest kind; a node with the fewest; a level 3 cache, then a level 2 cache with the fewest;
//! the lowest. So every core has a P before any core has two, nodes fill evenly, and where there are
//! more Ps than CPUs they wrap round. [`Policy::Pack`] fills node after node instead, the next one
//! being the nearest to those in use. Isolated CPUs are not used unless there are no others,
//! because an administrator isolates CPUs to place threads there by hand. [`Plan::dropped`] lists the
//! CPUs without a P, with the reason.
//!
//! **Numbers of the Ps.** Ps of a node have consecutive numbers; in a node those of a package, then of
//! a level 3 cache, then of a level 2 cache, then of a core.
//!
//! **Steal order.** The other Ps form levels, nearest first: the core, the level 2 cache, the level 3
//! cache, the rest of the node, and then remote nodes by their distance *from* the thief's node;
//! nodes at the same distance are one level. A P of another node is remote even where a cache is
//! shared across nodes (sub-NUMA clustering).
//!
//! The rest of the node may be several levels:
//!
//! - One node may have several packages: the firmware interleaves their memory, or the kernel was
//!   started with `numa=off`. Then Ps of the thief's package come before those of the others.
//! - A package with many level 3 caches (EPYC with one node per socket) does not say which of them
//!   are close to one another, but such machines give close caches consecutive numbers. With more
//!   than nine, the list of the package's caches is halved recursively, and the half that holds the
//!   thief comes first, as in TooManyCooks.

mod choose;
mod levels;
mod types;

pub use choose::usable_cpus;
pub(crate) use choose::without_isolated;
pub use types::{
    DropReason, DroppedCpu, Level, LevelKind, MAX_PS, Plan, PlanError, PlanNode, PlannedP, Policy,
    Request, Threads,
};

use crate::{Pu, Topology};
use choose::{drop_all, offline, pack, spread, usable_pus};
use levels::{l3_positions, levels};

/// Decides on which CPUs the Ps go, and in which order each steals from the others.
///
/// # Errors
///
/// If no CPU is allowed, if `n_ps` is 0 or above [`MAX_PS`], or if a node in the request is not
/// there or has no CPU to use.
///
/// # Examples
///
/// ```
/// use windlass_topology::{Request, Topology, plan};
///
/// let machine = Topology::synthetic("pack:2 [numa] core:4 pu:1")?;
/// let plan = plan(&machine, &Request { n_ps: Some(4), ..Request::default() })?;
///
/// let cpus: Vec<usize> = plan.ps.iter().map(|p| p.cpu).collect();
/// assert_eq!(cpus, [0, 1, 4, 5]);
/// assert_eq!(plan.nodes[1].ps, [2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan(topology: &Topology, request: &Request) -> Result<Plan, PlanError> {
    let mut dropped = offline(topology);
    let pus = usable_pus(topology, request, &mut dropped)?;
    let n_ps = request.n_ps.unwrap_or(pus.len().min(MAX_PS));
    if n_ps == 0 {
        return Err(PlanError::NoPs);
    }
    if n_ps > MAX_PS {
        return Err(PlanError::TooManyPs(n_ps));
    }
    let mut chosen = match request.policy {
        Policy::Spread => spread(topology, &pus, n_ps, request.threads),
        Policy::Pack => pack(topology, &pus, n_ps, request.threads),
    };
    chosen.sort_by_key(|pu| (pu.node, pu.package, pu.l3, pu.l2, pu.core, pu.cpu));

    let mut plan = number(topology, &chosen);
    drop_all(&mut dropped, &pus, DropReason::FewerPs, |pu| {
        plan.ps.iter().all(|p| p.cpu != pu.cpu)
    });
    dropped.sort_by_key(|dropped| dropped.cpu);
    plan.dropped = dropped;
    let groups = l3_positions(&plan);
    for index in 0..plan.ps.len() {
        plan.ps[index].levels = levels(topology, &plan, &groups, index);
    }
    Ok(plan)
}

/// Makes Ps of the chosen CPUs, which are in the order of the Ps; levels come later.
fn number(topology: &Topology, chosen: &[&Pu]) -> Plan {
    let mut plan = Plan {
        nodes: Vec::new(),
        ps: Vec::with_capacity(chosen.len()),
        dropped: Vec::new(),
    };
    let memory_nodes = memory_nodes(topology);
    for (index, pu) in chosen.iter().enumerate() {
        if plan.nodes.last().is_none_or(|node| node.index != pu.node) {
            let os_id = topology.nodes()[pu.node].os_id;
            plan.nodes.push(PlanNode {
                os_id,
                index: pu.node,
                ps: Vec::new(),
                memory_node: memory_nodes[pu.node].map(|node| topology.nodes()[node].os_id),
            });
        }
        let node = plan.nodes.len() - 1;
        plan.nodes[node].ps.push(index);
        plan.ps.push(PlannedP {
            index,
            cpu: pu.cpu,
            node,
            core: pu.core,
            l2: pu.l2,
            l3: pu.l3,
            package: pu.package,
            levels: Vec::new(),
        });
    }
    plan
}

/// For each node of the machine the position of the node whose memory its CPUs should use.
///
/// A node with memory uses its own. Others use the nearest, one with CPUs before one without (which is
/// slower memory as a rule), one of the same package before others. Of equally near ones each gets
/// as many users as the next, so that all nodes without memory do not crowd on one.
fn memory_nodes(topology: &Topology) -> Vec<Option<usize>> {
    let nodes = topology.nodes();
    let package = |node: usize| {
        let cpu = nodes[node].cpus.first()?;
        topology.pu(*cpu).map(|pu| pu.package)
    };
    let own = |node: usize| Some(node).filter(|&node| nodes[node].has_memory);
    let mut chosen: Vec<Option<usize>> = (0..nodes.len()).map(own).collect();
    let mut n_users: Vec<usize> = nodes.iter().map(|n| n.cpus.len().min(1)).collect();
    for node in 0..nodes.len() {
        if nodes[node].has_memory || nodes[node].cpus.is_empty() {
            continue;
        }
        let cost = |&other: &usize| {
            let memory_only = nodes[other].cpus.is_empty();
            let distance = topology.distance(node, other);
            (
                memory_only,
                distance,
                package(other) != package(node),
                n_users[other],
            )
        };
        let with_memory = (0..nodes.len()).filter(|&other| nodes[other].has_memory);
        chosen[node] = with_memory.min_by_key(cost);
        if let Some(other) = chosen[node] {
            n_users[other] += 1;
        }
    }
    chosen
}

//! Makes a [`Topology`] from the facts that a reader collected.
//!
//! hwloc and sysfs give separate facts about CPUs and nodes. [`Facts::assemble`] numbers the groups and
//! fills gaps by one set of rules, so that both readers give equal results for one machine. Groups are in the order of their lowest CPU, nodes in the order of their OS ids.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
};

use crate::{
    Cache, Core, Device, Error, Node, Package, Pu, SCHEMA, Source, Topology, devices, distances,
    limits::{CpuLimits, cpu_limits, cpu_limits_below},
    machine::Machine,
};

/// The facts of a reader, before groups are numbered and gaps are filled.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) source: Source,
    pub(crate) pus: Vec<PuFacts>,
    pub(crate) offline_cpus: Vec<usize>,
    pub(crate) isolated_cpus: Vec<usize>,
    pub(crate) limits: Option<CpuLimits>,
    pub(crate) nodes: Vec<NodeFacts>,
    /// One row and one column per node, in the order of `nodes` as given, with 0 for a value that
    /// is missing. Not checked yet: [`distances::settle`] does.
    pub(crate) distances: Option<Vec<Vec<u32>>>,
    /// Not checked yet: [`devices::settle`] does.
    pub(crate) devices: Vec<Device>,
}

/// One online CPU.
#[derive(Clone, Debug)]
pub(crate) struct PuFacts {
    pub(crate) cpu: usize,
    pub(crate) core: GroupFacts,
    pub(crate) package: GroupFacts,
    pub(crate) l2: Option<GroupFacts>,
    pub(crate) l3: Option<GroupFacts>,
    /// OS ids of its nodes; the lowest counts. hwloc gives none for a node without memory.
    pub(crate) nodes: Vec<u32>,
    pub(crate) allowed: bool,
    /// How fast its kind of core is: any scale, higher is faster.
    pub(crate) performance: u32,
    /// The sizes of its core's level 1 caches, for data and for instructions.
    pub(crate) l1d_bytes: Option<u64>,
    pub(crate) l1i_bytes: Option<u64>,
    /// The name that the maker of its package gives it.
    pub(crate) model: Option<String>,
}

/// One group a CPU is in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupFacts {
    /// CPUs with the same key are in the same group; keys of different kinds have nothing in common.
    pub(crate) key: u64,
    pub(crate) os_id: Option<u32>,
    pub(crate) size_bytes: Option<u64>,
}

/// One node, with or without CPUs.
#[derive(Clone, Debug)]
pub(crate) struct NodeFacts {
    pub(crate) os_id: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) free_bytes: Option<u64>,
    pub(crate) has_memory: bool,
}

impl Facts {
    /// Records the limits of this process, and disallows the CPUs that the calling thread may not run on.
    pub(crate) fn apply_own_limits(&mut self) {
        let limits = cpu_limits();
        // Without the system call (a sandbox) the cpuset alone has to do.
        let mask = limits.affinity.as_ref().or(limits.cpuset.as_ref());
        if let Some(mask) = mask {
            let mask: BTreeSet<usize> = mask.iter().copied().collect();
            self.pus
                .iter_mut()
                .for_each(|pu| pu.allowed &= mask.contains(&pu.cpu));
        }
        self.limits = Some(limits);
    }

    /// Records the limits of the process that made a copy of `/proc` and `/sys`, and disallows the CPUs
    /// outside of its cpuset. The copy has no affinity mask.
    pub(crate) fn apply_recorded_limits(&mut self, root: &Path) {
        let limits = cpu_limits_below(root, None);
        if limits.cpuset.is_none() && limits.quota.is_none() && limits.memory_bytes.is_none() {
            return; // no groups in this copy
        }
        let allowed: BTreeSet<usize> = limits.allowed().into_iter().collect();
        // A cpuset without any of the CPUs is not that of this machine.
        if self.pus.iter().any(|pu| allowed.contains(&pu.cpu)) {
            for pu in &mut self.pus {
                pu.allowed &= allowed.contains(&pu.cpu);
            }
            self.limits = Some(limits);
        }
    }

    /// Numbers the groups, finds a node for every CPU, and fills in missing distances.
    pub(crate) fn assemble(mut self) -> Result<Topology, Error> {
        self.pus.sort_by_key(|pu| pu.cpu);
        let nodes_of_pus = self.settle_nodes();

        let mut packages = Groups::default();
        let mut l3s = Groups::default();
        let mut l2s = Groups::default();
        let mut cores = Groups::default();
        let mut pus = Vec::with_capacity(self.pus.len());
        for (facts, node) in self.pus.iter().zip(nodes_of_pus) {
            let cpu = facts.cpu;
            let package = packages.add(0, facts.package, cpu);
            pus.push(Pu {
                cpu,
                // Should a core be said to be in two packages, it becomes two cores.
                core: cores.add(package, facts.core, cpu),
                package,
                l2: facts.l2.map(|l2| l2s.add(0, l2, cpu)),
                l3: facts.l3.map(|l3| l3s.add(0, l3, cpu)),
                node,
                allowed: facts.allowed,
            });
        }
        let package_of_core: BTreeMap<usize, usize> =
            pus.iter().map(|pu| (pu.core, pu.package)).collect();
        let mut performance_of_core = BTreeMap::new();
        for (pu, facts) in pus.iter().zip(&self.pus) {
            let fastest: &mut u32 = performance_of_core.entry(pu.core).or_default();
            *fastest = (*fastest).max(facts.performance);
        }
        let kinds: BTreeSet<u32> = performance_of_core.values().copied().collect();
        let online: BTreeSet<usize> = pus.iter().map(|pu| pu.cpu).collect();
        self.isolated_cpus.retain(|cpu| online.contains(cpu));
        let nodes = nodes(&self.nodes, &pus);
        let facts_of: BTreeMap<usize, &PuFacts> =
            self.pus.iter().map(|facts| (facts.cpu, facts)).collect();
        let packages = packages.finish(|_, facts, cpus| Package {
            os_id: facts.os_id,
            model: cpus.iter().find_map(|cpu| facts_of[cpu].model.clone()),
            cpus,
        });
        let derived = match self.source {
            Source::Synthetic { .. } => distances::by_package(&nodes, &packages),
            _ => None,
        };
        let distances = derived.unwrap_or_else(|| distances::settle(self.distances, &nodes));
        let devices = devices::settle(self.devices, &nodes, &pus);

        let machine = Machine {
            schema: SCHEMA,
            source: self.source,
            nodes,
            packages,
            l3s: l3s.finish(cache),
            l2s: l2s.finish(cache),
            cores: cores.finish(|position, facts, cpus| Core {
                os_id: facts.os_id,
                package: package_of_core[&position],
                performance: kinds.range(..performance_of_core[&position]).count() as u32,
                l1d_bytes: facts_of[&cpus[0]].l1d_bytes,
                l1i_bytes: facts_of[&cpus[0]].l1i_bytes,
                cpus,
            }),
            pus,
            offline_cpus: self.offline_cpus,
            isolated_cpus: self.isolated_cpus,
            limits: self.limits,
            distances,
            devices,
        };
        Topology::new(machine)
    }

    /// Sorts the nodes and returns the position of each CPU's node: the lowest of its own, else the
    /// node of most CPUs of its package, else the first.
    fn settle_nodes(&mut self) -> Vec<usize> {
        let said: BTreeSet<u32> = self
            .pus
            .iter()
            .filter_map(|pu| pu.nodes.iter().min().copied())
            .collect();
        for &os_id in &said {
            if !self.nodes.iter().any(|node| node.os_id == os_id) {
                if let Some(rows) = &mut self.distances {
                    rows.iter_mut().for_each(|row| row.push(0));
                    rows.push(vec![0; self.nodes.len() + 1]);
                }
                self.nodes.push(NodeFacts::unknown(os_id));
            }
        }
        if self.nodes.is_empty() {
            self.nodes.push(NodeFacts::unknown(0));
        }
        self.sort_nodes();

        let position = |os_id: u32| self.nodes.iter().position(|node| node.os_id == os_id);
        let certain: Vec<Option<usize>> = self
            .pus
            .iter()
            .map(|pu| pu.nodes.iter().min().and_then(|&id| position(id)))
            .collect();
        let mut votes: HashMap<u64, BTreeMap<usize, usize>> = HashMap::new();
        for (pu, node) in self.pus.iter().zip(&certain) {
            if let Some(node) = node {
                *votes
                    .entry(pu.package.key)
                    .or_default()
                    .entry(*node)
                    .or_default() += 1;
            }
        }
        let guess = |pu: &PuFacts| {
            let votes = votes.get(&pu.package.key)?;
            // The most votes; the lowest node among equals.
            votes
                .iter()
                .rev()
                .max_by_key(|&(_, votes)| votes)
                .map(|(&node, _)| node)
        };
        let settle =
            |(pu, node): (&PuFacts, Option<usize>)| node.or_else(|| guess(pu)).unwrap_or(0);
        self.pus.iter().zip(certain).map(settle).collect()
    }

    /// Puts the nodes in the order of their OS ids, and the distances with them.
    fn sort_nodes(&mut self) {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|&position| self.nodes[position].os_id);
        let is_square = |rows: &Vec<Vec<u32>>| {
            rows.len() == order.len() && rows.iter().all(|row| row.len() == order.len())
        };
        // A matrix of another shape is refused later, in whatever order it is.
        if let Some(rows) = self.distances.as_mut().filter(|rows| is_square(rows)) {
            let row = |&from: &usize| order.iter().map(|&to| rows[from][to]).collect();
            *rows = order.iter().map(row).collect();
        }
        self.nodes.sort_by_key(|node| node.os_id);
    }
}

impl NodeFacts {
    /// A node that is named by its CPUs, and about which the reader has nothing else.
    fn unknown(os_id: u32) -> Self {
        Self {
            os_id,
            memory_bytes: 0,
            free_bytes: None,
            has_memory: true,
        }
    }
}

/// Numbers groups in the order in which their first CPU comes.
#[derive(Default)]
struct Groups {
    /// By the group it is inside of (0 where that does not matter) and its key.
    positions: HashMap<(usize, u64), usize>,
    groups: Vec<(GroupFacts, Vec<usize>)>,
}

impl Groups {
    fn add(&mut self, inside: usize, facts: GroupFacts, cpu: usize) -> usize {
        let position = *self
            .positions
            .entry((inside, facts.key))
            .or_insert(self.groups.len());
        if position == self.groups.len() {
            self.groups.push((facts, Vec::new()));
        }
        self.groups[position].1.push(cpu);
        position
    }

    fn finish<T>(self, make: impl Fn(usize, GroupFacts, Vec<usize>) -> T) -> Vec<T> {
        let groups = self.groups.into_iter().enumerate();
        groups
            .map(|(position, (facts, cpus))| make(position, facts, cpus))
            .collect()
    }
}

fn cache(_position: usize, facts: GroupFacts, cpus: Vec<usize>) -> Cache {
    Cache {
        os_id: facts.os_id,
        size_bytes: facts.size_bytes,
        cpus,
    }
}

fn nodes(facts: &[NodeFacts], pus: &[Pu]) -> Vec<Node> {
    let mut nodes: Vec<Node> = facts
        .iter()
        .map(|node| Node {
            os_id: node.os_id,
            cpus: Vec::new(),
            memory_bytes: node.memory_bytes,
            free_bytes: node.free_bytes,
            has_memory: node.has_memory,
        })
        .collect();
    for pu in pus {
        nodes[pu.node].cpus.push(pu.cpu);
    }
    nodes
}

//! Where the Ps go, and whom each of them steals from.
//!
//! Pure functions of a [`Topology`]: no I/O, no randomness.
//!
//! **Which CPUs.** Ps are handed out one at a time, each to the best CPU that is left. *Best* is,
//! in this order ([`Policy::Spread`]): a CPU with the fewest Ps; a core with the fewest; a core of
//! the fastest kind; a node with the fewest; a level 3 cache, then a level 2 cache with the fewest;
//! the lowest. So every core has a P before any core has two, nodes fill evenly, and where there are
//! more Ps than CPUs they wrap round. [`Policy::Pack`] fills node after node instead, the next one
//! being the nearest to those in use. Isolated CPUs are left alone unless there are no others:
//! whoever isolated them wants to place threads there by hand. [`Plan::dropped`] says of each CPU
//! without a P why it has none.
//!
//! **Which number.** Ps of a node are neighbours, in a node those of a level 3 cache, then of a
//! level 2 cache, then of a core.
//!
//! **Whom to steal from.** The others fall into levels, nearest first: the core, the level 2 cache,
//! the level 3 cache, the node, and then remote nodes by their distance *from* the thief's, nodes
//! at the same distance being one level. What another node holds is remote also where a cache is
//! shared across nodes (sub-NUMA clustering). Machines with many level 3 caches in a node hide how
//! these are grouped (EPYC in its one-node mode), but number neighbours alike: beyond 8 others
//! the node's level is split by recursive halving of the list, the half nearest the thief first, as
//! TooManyCooks does.

use std::{cmp::Reverse, collections::BTreeMap, error, fmt};

use serde::{Deserialize, Serialize};

use crate::{Pu, Topology, format_cpu_list};

/// The most Ps a plan can have; every P lists every other.
pub const MAX_PS: usize = 4096;

/// With more level 3 caches than this besides one's own, a node's level is split.
const MAX_FLAT_L3S: usize = 8;

/// What the caller wants.
///
/// # Examples
///
/// ```
/// use windlass_topology::{Policy, Request};
///
/// let request = Request { n_ps: Some(4), policy: Policy::Pack, ..Request::default() };
/// assert_eq!(request.nodes, None);
/// assert!(!request.isolated);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// How many Ps; by default one for each allowed CPU of the chosen nodes.
    pub n_ps: Option<usize>,
    /// Only these nodes, by OS id and in any order; by default all that have allowed CPUs.
    pub nodes: Option<Vec<u32>>,
    /// How to choose where there are fewer Ps than CPUs.
    pub policy: Policy,
    /// What to do with the second and further hardware threads of a core.
    #[serde(default)]
    pub threads: Threads,
    /// Whether to use also CPUs that were isolated at boot (`isolcpus`). Without it they are used only
    /// where no other CPU is allowed.
    #[serde(default)]
    pub isolated: bool,
}

/// How to choose CPUs where there are fewer Ps than CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Over all nodes evenly, in a node over its caches: most cache and memory bandwidth per P.
    #[default]
    Spread,
    /// In as few nodes as possible, each first with one P per core, then with SMT siblings: short
    /// ways between the Ps.
    Pack,
}

/// What to do with the second and further hardware threads of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Threads {
    /// They come last: every core has a P before any core has two.
    #[default]
    Last,
    /// They get none: one P for each core. More Ps than cores share the first threads.
    Never,
    /// A core that has a P is filled before the next one: Ps that hand work to one another share
    /// caches, and other cores may sleep.
    Together,
}

/// Where the Ps go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The nodes that have Ps, by OS id.
    pub nodes: Vec<PlanNode>,
    /// The Ps; those of a node are neighbours.
    pub ps: Vec<PlannedP>,
    /// The CPUs of the machine that have no P, by OS id, and why.
    #[serde(default)]
    pub dropped: Vec<DroppedCpu>,
}

/// A CPU without a P.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedCpu {
    /// Its OS id.
    pub cpu: usize,
    /// Why it has no P.
    pub reason: DropReason,
}

/// Why a CPU has no P.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropReason {
    /// It is offline.
    Offline,
    /// The affinity mask or the cgroup's cpuset lacks it.
    NotAllowed,
    /// The request names other nodes.
    OtherNode,
    /// It was isolated at boot, and the request does not ask for such.
    Isolated,
    /// It is a further thread of a core, and the request asks for one P per core.
    Sibling,
    /// There are fewer Ps than CPUs, by the request or by the quota.
    FewerPs,
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Offline => "offline",
            Self::NotAllowed => "not in the affinity mask or the cpuset",
            Self::OtherNode => "on a node that was not asked for",
            Self::Isolated => "isolated at boot (isolcpus)",
            Self::Sibling => "a further thread of its core",
            Self::FewerPs => "fewer Ps than CPUs",
        })
    }
}

/// A node that has Ps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanNode {
    /// The kernel's number for it.
    pub os_id: u32,
    /// Position in [`Topology::nodes`].
    pub index: usize,
    /// Positions in [`Plan::ps`], ascending and without a gap.
    pub ps: Vec<usize>,
    /// OS id of the node whose memory its Ps should use: the node itself, or if it has no memory the
    /// nearest that has, those with CPUs first (one without is slower memory, as a rule). `None`
    /// where no node has memory.
    #[serde(default)]
    pub memory_node: Option<u32>,
}

/// A P and its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedP {
    /// Position in [`Plan::ps`].
    pub index: usize,
    /// OS id of its CPU.
    pub cpu: usize,
    /// Position in [`Plan::nodes`], not in [`Topology::nodes`].
    pub node: usize,
    /// Position in [`Topology::cores`].
    pub core: usize,
    /// Position in [`Topology::l2s`].
    pub l2: Option<usize>,
    /// Position in [`Topology::l3s`].
    pub l3: Option<usize>,
    /// Position in [`Topology::packages`].
    pub package: usize,
    /// Whom to steal from, nearest first: every other P is in exactly one level, and no level is
    /// empty.
    pub levels: Vec<Level>,
}

/// Ps that are equally near to a P.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// What they share with it.
    pub kind: LevelKind,
    /// Distance from its node to theirs, as in [`Topology::distance`]; 10 is local.
    pub distance: u32,
    /// Positions in [`Plan::ps`], upwards from the P's own and round the end, so that without a
    /// random start thieves still begin at different victims.
    pub victims: Vec<usize>,
}

/// What the Ps of a [`Level`] share with the thief, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LevelKind {
    /// The core, or even the CPU.
    Smt,
    /// The level 2 cache.
    L2,
    /// The level 3 cache.
    L3,
    /// The node; there are several such levels where it has many level 3 caches.
    Node,
    /// Nothing but the machine; one level per distance.
    Remote,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// No CPU of the machine is allowed.
    NoAllowedCpu,
    /// Zero Ps were asked for.
    NoPs,
    /// More than [`MAX_PS`] Ps were asked for.
    TooManyPs(usize),
    /// The list of nodes is empty.
    NoNodes,
    /// The machine has no node with this OS id.
    UnknownNode {
        /// The OS id asked for.
        os_id: u32,
        /// The OS ids there are.
        known: Vec<u32>,
    },
    /// This node has memory only.
    NodeWithoutCpus(u32),
    /// This node has CPUs, but none that the process may use.
    NodeNotAllowed(u32),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAllowedCpu => write!(
                f,
                "no CPU is allowed to this process; look at its affinity mask (taskset -p) and at \
                 cpuset.cpus of its cgroup"
            ),
            Self::NoPs => write!(f, "0 processors asked for; ask for 1 or more"),
            Self::TooManyPs(n) => {
                write!(f, "{n} processors asked for; ask for {MAX_PS} or fewer")
            }
            Self::NoNodes => write!(f, "the list of nodes is empty; name one, or give no list"),
            Self::UnknownNode { os_id, known } => {
                let known: Vec<usize> = known.iter().map(|&id| id as usize).collect();
                write!(f, "no node {os_id}; there are {}", format_cpu_list(&known))
            }
            Self::NodeWithoutCpus(os_id) => {
                write!(
                    f,
                    "node {os_id} has memory but no CPUs; choose a node with CPUs"
                )
            }
            Self::NodeNotAllowed(os_id) => write!(
                f,
                "no CPU of node {os_id} is allowed to this process; choose another node, or look \
                 at the affinity mask (taskset -p) and at cpuset.cpus of the cgroup"
            ),
        }
    }
}

impl error::Error for PlanError {}

/// Decides where the Ps go and whom each of them steals from.
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
    chosen.sort_by_key(|pu| (pu.node, pu.l3, pu.l2, pu.core, pu.cpu));

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

/// OS ids of the CPUs that Ps may be put on by this request, ascending; [`plan`] puts one on each
/// unless the request says how many.
///
/// # Errors
///
/// As [`plan`].
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

fn offline(topology: &Topology) -> Vec<DroppedCpu> {
    let reason = DropReason::Offline;
    let cpus = topology.offline_cpus().iter();
    cpus.map(|&cpu| DroppedCpu { cpu, reason }).collect()
}

/// Notes why some CPUs have no P, and gives back the others.
fn drop_all<'a>(
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
fn usable_pus<'a>(
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
fn spread<'a>(topology: &Topology, pus: &[&'a Pu], n_ps: usize, threads: Threads) -> Vec<&'a Pu> {
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
                (pu.node, pu.l3, pu.l2, pu.core, pu.cpu),
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
fn pack<'a>(topology: &Topology, pus: &[&'a Pu], n_ps: usize, threads: Threads) -> Vec<&'a Pu> {
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
        let place = (pu.l3, pu.l2, pu.core, pu.cpu);
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

/// Makes Ps of the chosen CPUs, which are in the order of the Ps; levels come later.
fn number(topology: &Topology, chosen: &[&Pu]) -> Plan {
    let mut plan = Plan {
        nodes: Vec::new(),
        ps: Vec::with_capacity(chosen.len()),
        dropped: Vec::new(),
    };
    for (index, pu) in chosen.iter().enumerate() {
        if plan.nodes.last().is_none_or(|node| node.index != pu.node) {
            let os_id = topology.nodes()[pu.node].os_id;
            plan.nodes.push(PlanNode {
                os_id,
                index: pu.node,
                ps: Vec::new(),
                memory_node: memory_node(topology, pu.node),
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

/// OS id of the node whose memory the CPUs of a node should use.
fn memory_node(topology: &Topology, node: usize) -> Option<u32> {
    let nodes = topology.nodes();
    let with_memory = (0..nodes.len()).filter(|&other| nodes[other].has_memory);
    // A node is the nearest to itself, though another may be as near.
    let far = |&other: &usize| {
        let memory_only = nodes[other].cpus.is_empty();
        (memory_only, topology.distance(node, other), other != node)
    };
    with_memory.min_by_key(far).map(|node| nodes[node].os_id)
}

/// For each node how many level 3 caches its Ps are under, and for each P which of them is its own.
struct L3Positions {
    n_in_node: Vec<usize>,
    of_p: Vec<usize>,
}

fn l3_positions(plan: &Plan) -> L3Positions {
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

fn levels(topology: &Topology, plan: &Plan, l3s: &L3Positions, index: usize) -> Vec<Level> {
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

//! Input and output of planning.

use std::{error, fmt};

#[cfg(feature = "json")]
use serde::{Deserialize, Serialize};

use crate::format_cpu_list;

/// The most Ps a plan can have; every P lists every other.
pub const MAX_PS: usize = 4096;

/// A plan that is asked for: how many Ps, and on which CPUs.
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub struct Request {
    /// How many Ps; by default one for each allowed CPU of the chosen nodes.
    pub n_ps: Option<usize>,
    /// Only these nodes, by OS id and in any order; by default all that have allowed CPUs.
    pub nodes: Option<Vec<u32>>,
    /// How to choose where there are fewer Ps than CPUs.
    pub policy: Policy,
    /// How the second and further hardware threads of a core are used.
    #[cfg_attr(feature = "json", serde(default))]
    pub threads: Threads,
    /// Whether to use also CPUs that were isolated at boot (`isolcpus`). Without it they are used only
    /// where no other CPU is allowed.
    #[cfg_attr(feature = "json", serde(default))]
    pub isolated: bool,
}

/// How to choose CPUs where there are fewer Ps than CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "kebab-case"))]
pub enum Policy {
    /// Over all nodes evenly, in a node over its caches: most cache and memory bandwidth per P.
    #[default]
    Spread,
    /// In as few nodes as possible, each first with one P per core, then with SMT siblings: short
    /// ways between the Ps.
    Pack,
}

/// The use of the second and further hardware threads of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "kebab-case"))]
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub struct Plan {
    /// The nodes that have Ps, by OS id.
    pub nodes: Vec<PlanNode>,
    /// The Ps. Those of a node have consecutive numbers, and in a node those of a package.
    pub ps: Vec<PlannedP>,
    /// The CPUs of the machine that have no P, by OS id, and why.
    #[cfg_attr(feature = "json", serde(default))]
    pub dropped: Vec<DroppedCpu>,
}

/// A CPU without a P.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub struct DroppedCpu {
    /// Its OS id.
    pub cpu: usize,
    /// Why it has no P.
    pub reason: DropReason,
}

/// Why a CPU has no P.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "kebab-case"))]
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub struct PlanNode {
    /// The kernel's number for it.
    pub os_id: u32,
    /// Position in [`Topology::nodes`](crate::Topology::nodes).
    pub index: usize,
    /// Positions in [`Plan::ps`], ascending and without a gap.
    pub ps: Vec<usize>,
    /// OS id of the node whose memory its Ps should use: the node itself, or if it has no memory the
    /// nearest that has some, those with CPUs first (one without is slower memory, as a rule). Nodes
    /// without memory are shared out among equally near ones. `None` where no node has memory.
    #[cfg_attr(feature = "json", serde(default))]
    pub memory_node: Option<u32>,
}

/// A P and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub struct PlannedP {
    /// Position in [`Plan::ps`].
    pub index: usize,
    /// OS id of its CPU.
    pub cpu: usize,
    /// Position in [`Plan::nodes`], not in [`Topology::nodes`](crate::Topology::nodes).
    pub node: usize,
    /// Position in [`Topology::cores`](crate::Topology::cores).
    pub core: usize,
    /// Position in [`Topology::l2s`](crate::Topology::l2s).
    pub l2: Option<usize>,
    /// Position in [`Topology::l3s`](crate::Topology::l3s).
    pub l3: Option<usize>,
    /// Position in [`Topology::packages`](crate::Topology::packages).
    pub package: usize,
    /// The Ps to steal from, nearest first: every other P is in exactly one level, and no level is
    /// empty.
    pub levels: Vec<Level>,
}

/// Ps that are equally near to a P.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub struct Level {
    /// The nearest thing that they share with it.
    pub kind: LevelKind,
    /// Distance from its node to theirs, as in [`Topology::distance`](crate::Topology::distance);
    /// 10 is local.
    pub distance: u32,
    /// Positions in [`Plan::ps`], upwards from the P's own and round the end, so that without a
    /// random start thieves still begin at different victims.
    pub victims: Vec<usize>,
}

/// The nearest thing that the Ps of a [`Level`] share with the thief; nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "kebab-case"))]
pub enum LevelKind {
    /// The core, or even the CPU.
    Smt,
    /// The level 2 cache.
    L2,
    /// The level 3 cache.
    L3,
    /// The node; there are several such levels where it has several packages, or many level 3 caches.
    Node,
    /// The machine: they are on other nodes. One level per distance.
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

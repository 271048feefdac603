//! The machine as plain values.
//!
//! A group (a node, a cache, a core) is named by its position in a `Vec`.
//!
//! Invariant: a [`Topology`] that exists is consistent (see [`Machine::check`]), so the code
//! that uses it may index without asking.

use std::path::Path;

#[cfg(feature = "json")]
use serde::{Deserialize, Serialize};

#[cfg(feature = "hwloc")]
use crate::hwloc;
#[cfg(feature = "json")]
use crate::pretty;
use crate::{Device, Error, Near, devices, limits::CpuLimits, sysfs};

/// Above the number of any CPU and node: kernels are built for up to 8,192 CPUs. A mask has a bit for each
/// number up to its last one.
const ID_LIMIT: usize = 1 << 14;

/// Version of the JSON form of a machine.
pub const SCHEMA: u32 = 1;

/// A machine: its NUMA nodes, packages, caches, cores and CPUs.
///
/// A plain value that can be cloned, compared, sent, and written as JSON. It cannot be changed in
/// place; [`restrict_to_cpus`](Self::restrict_to_cpus) and its kin give a new one.
///
/// # Examples
///
/// ```
/// use windlass_topology::Topology;
///
/// let machine = Topology::synthetic("pack:2 [numa] core:4 pu:1")?;
/// assert_eq!(machine.nodes().len(), 2);
/// assert_eq!(machine.nodes()[1].cpus, [4, 5, 6, 7]);
/// assert_eq!(machine.distance(0, 1), 20);
/// # Ok::<(), windlass_topology::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "json", serde(try_from = "Machine", into = "Machine"))]
pub struct Topology(Machine);

/// Where a [`Topology`] comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "kebab-case"))]
pub enum Source {
    /// The machine this program runs on: threads can be pinned to its CPUs.
    ThisMachine,
    /// Made from a description.
    Synthetic {
        /// The description, in hwloc's words.
        description: String,
    },
    /// Read from a file that was recorded on some machine.
    Recorded,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub struct Node {
    /// The kernel's number for it.
    pub os_id: u32,
    /// OS ids of its online CPUs, ascending; empty for a node that is memory only.
    pub cpus: Vec<usize>,
    /// Its memory; 0 where there is none, or where the size is unknown.
    pub memory_bytes: u64,
    /// Its free memory at the time of reading, where known.
    pub free_bytes: Option<u64>,
    /// Whether memory can be had from it. Binding memory to a node without any is an error.
    pub has_memory: bool,
}

/// A physical package: what goes into a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub struct Package {
    /// The kernel's number for it, where it has one.
    pub os_id: Option<u32>,
    /// The maker's name for it, where the kernel says so.
    #[cfg_attr(
        feature = "json",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub model: Option<String>,
    /// OS ids of its online CPUs, ascending.
    pub cpus: Vec<usize>,
}

/// A level 2 or level 3 cache, and the CPUs that share it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub struct Cache {
    /// The kernel's number for it, where it has one.
    pub os_id: Option<u32>,
    /// Its size, where known.
    pub size_bytes: Option<u64>,
    /// OS ids of the online CPUs that share it, ascending.
    pub cpus: Vec<usize>,
}

/// A core: one CPU, or several hardware threads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub struct Core {
    /// The kernel's number for it, where it has one; only unique inside its package.
    pub os_id: Option<u32>,
    /// Position in [`Topology::packages`].
    pub package: usize,
    /// How fast its kind of core is among the kinds of this machine: 0 for the slowest. All 0 on a
    /// machine of one kind; on a hybrid one 0 for efficiency cores and 1 for performance cores.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "is_zero"))]
    pub performance: u32,
    /// The size of its level 1 cache for data, where known.
    #[cfg_attr(
        feature = "json",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub l1d_bytes: Option<u64>,
    /// The size of its level 1 cache for instructions, where known.
    #[cfg_attr(
        feature = "json",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub l1i_bytes: Option<u64>,
    /// OS ids of its online CPUs, ascending.
    pub cpus: Vec<usize>,
}

/// A processing unit: what the kernel calls a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub struct Pu {
    /// The kernel's number for it.
    pub cpu: usize,
    /// Position in [`Topology::cores`].
    pub core: usize,
    /// Position in [`Topology::packages`].
    pub package: usize,
    /// Position in [`Topology::l2s`]; `None` where the machine does not say.
    pub l2: Option<usize>,
    /// Position in [`Topology::l3s`]; `None` where there is no such cache.
    pub l3: Option<usize>,
    /// Position in [`Topology::nodes`].
    pub node: usize,
    /// Whether this process may run on it (affinity mask and cgroup cpuset).
    pub allowed: bool,
}

/// How far the nodes are from one another, on the scale of ACPI's SLIT: 10 is local, 255 means that
/// there is no path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub struct Distances {
    /// The source of the numbers.
    pub origin: DistanceOrigin,
    /// Row-major: `rows[from][to]`, by position in [`Topology::nodes`]. May be asymmetric.
    pub rows: Vec<Vec<u32>>,
    /// Faults of the matrix of the firmware: why it was refused (then
    /// [`origin`](Self::origin) is [`Assumed`](DistanceOrigin::Assumed)), or which values were
    /// replaced. Of a described machine: how the distances were derived. `None` where there is nothing
    /// to say.
    #[cfg_attr(
        feature = "json",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub note: Option<String>,
}

/// The source of the distances between the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "kebab-case"))]
pub enum DistanceOrigin {
    /// The machine's firmware, through the kernel or a recording.
    Firmware,
    /// The caller, through [`Topology::with_distances`].
    Given,
    /// No source: 10 inside a node and 20 between any two, for a described machine 12 between nodes of one
    /// package.
    Assumed,
}

impl Topology {
    /// Reads the machine this program runs on.
    ///
    /// Objects come from hwloc; nodes, their memory and their distances come from
    /// `/sys/devices/system/node`, which also knows the nodes hwloc leaves out. Where hwloc fails, or without
    /// the feature `hwloc`, all of it comes from sysfs. A CPU is [allowed](Pu::allowed) if the calling thread
    /// may run on it **and** the cgroup's cpuset contains it.
    ///
    /// hwloc obeys its environment variables: with `HWLOC_XMLFILE` or `HWLOC_SYNTHETIC` set the
    /// answer is that other machine, and its source says [`Source::Recorded`].
    ///
    /// # Errors
    ///
    /// If neither hwloc nor sysfs lists the CPUs.
    pub fn detect() -> Result<Self, Error> {
        #[cfg(feature = "hwloc")]
        if let Ok(topology) = Self::detect_with_hwloc() {
            return Ok(topology);
        }
        Self::from_sysfs("/")
    }

    #[cfg(feature = "hwloc")]
    fn detect_with_hwloc() -> Result<Self, Error> {
        let mut facts = hwloc::detect()?;
        if facts.source == Source::ThisMachine {
            facts.apply_own_limits();
            sysfs::complete(Path::new("/"), &mut facts);
        }
        facts.assemble()
    }

    /// Makes a machine from hwloc's synthetic description, such as
    /// `pack:2 [numa] l3:2 core:4 pu:2` (feature `hwloc`).
    ///
    /// Every CPU is allowed. There is no distance matrix in such a description: where packages have
    /// several nodes, nodes of one package are 12 apart and others 20, else all are 20 apart.
    /// [`with_distances`](Self::with_distances) gives others.
    ///
    /// # Errors
    ///
    /// If hwloc does not understand the description, or it means more than 8,192 CPUs.
    #[cfg(feature = "hwloc")]
    pub fn synthetic(description: &str) -> Result<Self, Error> {
        hwloc::synthetic(description)?.assemble()
    }

    /// Reads a machine recorded by hwloc, `lstopo --of xml machine.xml` (feature `hwloc`).
    ///
    /// CPUs that were not allowed to the recording process are present but not allowed.
    ///
    /// libhwloc trusts the file: a damaged one can crash this process (hwloc 2.9 does not survive an
    /// object without `complete_cpuset`). The command `windlass-topology` reads files of others in a
    /// child process for that reason.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or hwloc does not understand it.
    #[cfg(feature = "hwloc")]
    pub fn from_xml_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        hwloc::xml_file(path.as_ref())?.assemble()
    }

    /// Reads a machine from a copy of `/sys` (and `/proc/meminfo`) below `root`, without hwloc.
    ///
    /// With `root` = `/` it is this machine. Elsewhere the CPUs of the recorder's cpuset are allowed
    /// where the copy has one (`/proc/self/cgroup` or `/proc/self/cpuset`, the mounts, and the
    /// group's files), else every online CPU. Folders made by `hwloc-gather-topology` fit.
    ///
    /// # Errors
    ///
    /// If there is no `sys/devices/system/cpu` with online CPUs below `root`.
    pub fn from_sysfs(root: impl AsRef<Path>) -> Result<Self, Error> {
        let mut facts = sysfs::read(root.as_ref())?;
        if facts.source == Source::ThisMachine {
            facts.apply_own_limits();
        } else {
            facts.apply_recorded_limits(root.as_ref());
        }
        facts.assemble()
    }

    /// Reads a machine written by [`to_json`](Self::to_json) (feature `json`).
    ///
    /// A machine that was [`Source::ThisMachine`] when it was written is [`Source::Recorded`] when it
    /// is read: it may be read anywhere. Fields that this version does not know are ignored.
    ///
    /// # Errors
    ///
    /// If the text is not JSON, not a machine of this [`SCHEMA`], or contradicts itself.
    #[cfg(feature = "json")]
    pub fn from_json(json: &str) -> Result<Self, Error> {
        serde_json::from_str(json).map_err(Error::Json)
    }

    /// Writes the machine as JSON, to be read by [`from_json`](Self::from_json) (feature `json`).
    ///
    /// There is nothing private in it: no names of the host, of users or of groups, and no serial
    /// numbers.
    ///
    /// # Panics
    ///
    /// Never: a machine is numbers and strings.
    #[cfg(feature = "json")]
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut machine = self.0.clone();
        machine.limits = machine.limits.map(CpuLimits::anonymous);
        machine.devices = machine.devices.into_iter().map(Device::anonymous).collect();
        pretty::to_json(&machine)
    }

    /// A copy of the machine with these distances, `rows[from][to]` by position in
    /// [`nodes`](Self::nodes).
    ///
    /// # Errors
    ///
    /// Unless there is one row and one column per node, every value is in 10..=255, and no node is
    /// nearer to a node than that node itself. Rows need not equal columns.
    pub fn with_distances(&self, rows: &[Vec<u32>]) -> Result<Self, Error> {
        check_distances(rows, self.0.nodes.len()).map_err(Error::Distances)?;
        let distances = Distances {
            origin: DistanceOrigin::Given,
            rows: rows.to_vec(),
            note: None,
        };
        Ok(Self(Machine {
            distances,
            ..self.0.clone()
        }))
    }

    /// A copy of the machine as seen from a cpuset: only these CPUs are allowed, and of them only those
    /// that were allowed before.
    ///
    /// # Errors
    ///
    /// If the machine has no such CPU, or no CPU remains allowed.
    pub fn restrict_to_cpus(&self, cpus: &[usize]) -> Result<Self, Error> {
        for &cpu in cpus {
            if self.pu(cpu).is_none() {
                let known = self.0.pus.iter().map(|pu| pu.cpu).collect::<Vec<_>>();
                let known = crate::format_cpu_list(&known);
                return Err(Error::Restrict(format!("no CPU {cpu}; there are {known}")));
            }
        }
        let mut machine = self.0.clone();
        machine
            .pus
            .iter_mut()
            .for_each(|pu| pu.allowed &= cpus.contains(&pu.cpu));
        if !machine.pus.iter().any(|pu| pu.allowed) {
            return Err(Error::Restrict(format!(
                "no allowed CPU would remain; allowed are {}",
                crate::format_cpu_list(&self.allowed_cpus())
            )));
        }
        Ok(Self(machine))
    }

    /// A copy of the machine with exactly these CPUs allowed, also those that were not allowed before: what
    /// a process sees after its affinity mask or its cpuset has changed. CPUs that the machine
    /// does not have are ignored.
    ///
    /// # Errors
    ///
    /// If no CPU of the machine is among them.
    pub fn with_allowed_cpus(&self, cpus: &[usize]) -> Result<Self, Error> {
        let mut machine = self.0.clone();
        machine
            .pus
            .iter_mut()
            .for_each(|pu| pu.allowed = cpus.contains(&pu.cpu));
        if !machine.pus.iter().any(|pu| pu.allowed) {
            return Err(Error::Restrict(format!(
                "none of the CPUs {} is online",
                crate::format_cpu_list(cpus)
            )));
        }
        Ok(Self(machine))
    }

    /// A copy of the machine as seen from a cpuset that holds the CPUs of these nodes, by OS id.
    ///
    /// # Errors
    ///
    /// If the machine has no such node, or no CPU remains allowed.
    pub fn restrict_to_nodes(&self, os_ids: &[u32]) -> Result<Self, Error> {
        let mut cpus = Vec::new();
        for &os_id in os_ids {
            let Some(node) = self.0.nodes.iter().find(|node| node.os_id == os_id) else {
                let known: Vec<_> = self
                    .0
                    .nodes
                    .iter()
                    .map(|node| node.os_id as usize)
                    .collect();
                let known = crate::format_cpu_list(&known);
                return Err(Error::Restrict(format!(
                    "no node {os_id}; there are {known}"
                )));
            };
            cpus.extend_from_slice(&node.cpus);
        }
        self.restrict_to_cpus(&cpus)
    }

    /// The only way to make one from parts.
    pub(crate) fn new(mut machine: Machine) -> Result<Self, Error> {
        machine.tame_texts();
        machine.check().map_err(Error::Invalid)?;
        Ok(Self(machine))
    }

    /// Where the machine comes from.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.0.source
    }

    /// The NUMA nodes, by OS id; there is at least one.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.0.nodes
    }

    /// The packages; there is at least one.
    #[must_use]
    pub fn packages(&self) -> &[Package] {
        &self.0.packages
    }

    /// The level 3 caches; empty where the machine has none or does not say.
    #[must_use]
    pub fn l3s(&self) -> &[Cache] {
        &self.0.l3s
    }

    /// The level 2 caches; empty where the machine has none or does not say.
    #[must_use]
    pub fn l2s(&self) -> &[Cache] {
        &self.0.l2s
    }

    /// The cores.
    #[must_use]
    pub fn cores(&self) -> &[Core] {
        &self.0.cores
    }

    /// The online CPUs by OS id, also those this process may not use; there is at least one.
    #[must_use]
    pub fn pus(&self) -> &[Pu] {
        &self.0.pus
    }

    /// OS ids of the CPUs that are present but offline.
    #[must_use]
    pub fn offline_cpus(&self) -> &[usize] {
        &self.0.offline_cpus
    }

    /// OS ids of the online CPUs that the kernel keeps its load balancer away from (`isolcpus`).
    #[must_use]
    pub fn isolated_cpus(&self) -> &[usize] {
        &self.0.isolated_cpus
    }

    /// The limits of the process that read the machine; `None` for a machine that was described, and
    /// for a recording that does not say.
    #[must_use]
    pub fn limits(&self) -> Option<&CpuLimits> {
        self.0.limits.as_ref()
    }

    /// How far the nodes are from one another.
    #[must_use]
    pub fn distances(&self) -> &Distances {
        &self.0.distances
    }

    /// Distance from one node to another, by position in [`nodes`](Self::nodes).
    ///
    /// # Panics
    ///
    /// If there is no such node.
    #[must_use]
    pub fn distance(&self, from: usize, to: usize) -> u32 {
        self.0.distances.rows[from][to]
    }

    /// Its network cards, disks, GPUs and accelerators, by kind and PCI address. Empty for a machine that was
    /// described, and for one that was recorded by hwloc.
    ///
    /// Devices that exist in software only, such as `lo`, bridges and RAIDs, are not among them.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.0.devices
    }

    /// The device with this name, or the first with this PCI address.
    #[must_use]
    pub fn device(&self, name: &str) -> Option<&Device> {
        let mut devices = self.0.devices.iter();
        let named = devices.clone().find(|device| device.name == name);
        named.or_else(|| devices.find(|device| device.pci.as_deref() == Some(name)))
    }

    /// The nearest node to a device with CPUs that this process may use, and these CPUs, of which the device's own
    /// come alone where there are any. `None` where the node of the device is unknown. Of equally near nodes it is the one with the lowest number.
    ///
    /// A goroutine that works with the device's memory (packets, blocks of a file) is best there:
    /// `windlass::task::Builder::node` takes the number.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass_topology::Topology;
    ///
    /// let machine = Topology::detect()?;
    /// for device in machine.devices() {
    ///     match machine.near(device) {
    ///         Some(near) => println!("{}: node {}, CPUs {:?}", device.name, near.node, near.cpus),
    ///         None => println!("{}: the machine does not say", device.name),
    ///     }
    /// }
    /// # Ok::<(), windlass_topology::Error>(())
    /// ```
    #[must_use]
    pub fn near(&self, device: &Device) -> Option<Near> {
        let nodes = &self.0.nodes;
        let from = nodes
            .iter()
            .position(|node| Some(node.os_id) == device.node)?;
        let usable = |to: usize| {
            self.0
                .pus
                .iter()
                .filter(move |pu| pu.node == to && pu.allowed)
        };
        let candidates = (0..nodes.len()).filter(|&to| usable(to).next().is_some());
        let to = candidates.min_by_key(|&to| self.distance(from, to))?;
        let all: Vec<usize> = usable(to).map(|pu| pu.cpu).collect();
        let is_local = |cpu: &usize| device.cpus.contains(cpu);
        let local: Vec<usize> = all.iter().copied().filter(is_local).collect();
        Some(Near {
            node: nodes[to].os_id,
            distance: self.distance(from, to),
            cpus: if local.is_empty() { all } else { local },
        })
    }

    /// The online CPU with this OS id.
    #[must_use]
    pub fn pu(&self, cpu: usize) -> Option<&Pu> {
        let position = self.0.pus.binary_search_by_key(&cpu, |pu| pu.cpu).ok()?;
        Some(&self.0.pus[position])
    }

    /// OS ids of the CPUs this process may use, ascending.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass_topology::Topology;
    ///
    /// let half = Topology::synthetic("core:4 pu:1")?.restrict_to_cpus(&[0, 2])?;
    /// assert_eq!(half.allowed_cpus(), [0, 2]);
    /// # Ok::<(), windlass_topology::Error>(())
    /// ```
    #[must_use]
    pub fn allowed_cpus(&self) -> Vec<usize> {
        self.0
            .pus
            .iter()
            .filter(|pu| pu.allowed)
            .map(|pu| pu.cpu)
            .collect()
    }
}

/// The fields of a [`Topology`], as written in JSON, not yet known to be consistent.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub(crate) struct Machine {
    pub(crate) schema: u32,
    pub(crate) source: Source,
    pub(crate) nodes: Vec<Node>,
    pub(crate) packages: Vec<Package>,
    pub(crate) l3s: Vec<Cache>,
    pub(crate) l2s: Vec<Cache>,
    pub(crate) cores: Vec<Core>,
    pub(crate) pus: Vec<Pu>,
    pub(crate) offline_cpus: Vec<usize>,
    #[cfg_attr(
        feature = "json",
        serde(default, skip_serializing_if = "Vec::is_empty")
    )]
    pub(crate) isolated_cpus: Vec<usize>,
    #[cfg_attr(
        feature = "json",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub(crate) limits: Option<CpuLimits>,
    pub(crate) distances: Distances,
    #[cfg_attr(
        feature = "json",
        serde(default, skip_serializing_if = "Vec::is_empty")
    )]
    pub(crate) devices: Vec<Device>,
}

#[cfg(feature = "json")]
impl From<Topology> for Machine {
    fn from(topology: Topology) -> Self {
        topology.0
    }
}

#[cfg(feature = "json")]
impl TryFrom<Machine> for Topology {
    type Error = Error;

    fn try_from(mut machine: Machine) -> Result<Self, Error> {
        if machine.schema != SCHEMA {
            return Err(Error::Invalid(format!(
                "schema {} is not the one this program reads, {SCHEMA}",
                machine.schema
            )));
        }
        if machine.source == Source::ThisMachine {
            machine.source = Source::Recorded;
        }
        Self::new(machine)
    }
}

impl Machine {
    /// Texts come from files of strangers and go to terminals: none has control characters.
    fn tame_texts(&mut self) {
        let models = self.packages.iter_mut().map(|package| &mut package.model);
        let groups = self.limits.iter_mut();
        let groups = groups.flat_map(|limits| [&mut limits.cpuset_group, &mut limits.quota_group]);
        let described = match &mut self.source {
            Source::Synthetic { description } => Some(description),
            Source::ThisMachine | Source::Recorded => None,
        };
        let noted = std::iter::once(&mut self.distances.note);
        let optional = models.chain(groups).chain(noted).filter_map(Option::as_mut);
        let devices = self.devices.iter_mut();
        let names = devices.flat_map(|device| device.pci.iter_mut().chain([&mut device.name]));
        for text in optional.chain(described).chain(names) {
            *text = text.replace(char::is_control, "\u{fffd}");
        }
    }

    /// Says what is inconsistent.
    ///
    /// - At least one CPU and one node; CPUs and nodes ascend by OS id, which is one that a kernel may use.
    /// - Each position a CPU names exists, and the CPU lists of all groups are those of the CPUs that
    ///   name them; only a node may be without CPUs.
    /// - A core is in the package of its CPUs.
    /// - An isolated CPU is online.
    /// - A device is on a node that exists, and its CPUs are online.
    /// - The distances are a SLIT over the nodes.
    fn check(&self) -> Result<(), String> {
        if self.pus.is_empty() {
            return Err("no CPUs".into());
        }
        if !self.pus.is_sorted_by(|a, b| a.cpu < b.cpu) {
            return Err("the CPUs do not ascend".into());
        }
        if !self.nodes.is_sorted_by(|a, b| a.os_id < b.os_id) {
            return Err("the nodes do not ascend".into());
        }
        let last_node = self.nodes.last().map_or(0, |node| node.os_id as usize);
        let last_cpu = self.pus.last().map_or(0, |pu| pu.cpu);
        let last_offline = self.offline_cpus.iter().max().copied().unwrap_or(0);
        for (kind, id) in [("node", last_node), ("CPU", last_cpu.max(last_offline))] {
            if id >= ID_LIMIT {
                return Err(format!(
                    "{kind} {id}: no kernel numbers them beyond {ID_LIMIT}"
                ));
            }
        }
        if let Some(cpu) = self
            .offline_cpus
            .iter()
            .find(|&&cpu| self.pus.binary_search_by_key(&cpu, |pu| pu.cpu).is_ok())
        {
            return Err(format!("CPU {cpu} is both online and offline"));
        }
        if let Some(cpu) = self
            .isolated_cpus
            .iter()
            .find(|&&cpu| self.pus.binary_search_by_key(&cpu, |pu| pu.cpu).is_err())
        {
            return Err(format!("CPU {cpu} is isolated but not online"));
        }
        self.check_group(
            "node",
            self.nodes.iter().map(|node| &node.cpus),
            true,
            |pu| Some(pu.node),
        )?;
        self.check_group(
            "package",
            self.packages.iter().map(|package| &package.cpus),
            false,
            |pu| Some(pu.package),
        )?;
        self.check_group("l3", self.l3s.iter().map(|l3| &l3.cpus), false, |pu| pu.l3)?;
        self.check_group("l2", self.l2s.iter().map(|l2| &l2.cpus), false, |pu| pu.l2)?;
        self.check_group(
            "core",
            self.cores.iter().map(|core| &core.cpus),
            false,
            |pu| Some(pu.core),
        )?;
        for pu in &self.pus {
            if self.cores[pu.core].package != pu.package {
                return Err(format!(
                    "CPU {} is in another package than its core",
                    pu.cpu
                ));
            }
        }
        devices::check(&self.devices, &self.nodes, &self.pus)?;
        check_distances(&self.distances.rows, self.nodes.len())
    }

    fn check_group<'a>(
        &self,
        kind: &str,
        lists: impl ExactSizeIterator<Item = &'a Vec<usize>>,
        may_be_empty: bool,
        position: impl Fn(&Pu) -> Option<usize>,
    ) -> Result<(), String> {
        let mut members = vec![Vec::new(); lists.len()];
        for pu in &self.pus {
            if let Some(position) = position(pu) {
                let Some(member) = members.get_mut(position) else {
                    return Err(format!(
                        "CPU {} is in {kind} {position}, which is missing",
                        pu.cpu
                    ));
                };
                member.push(pu.cpu);
            }
        }
        for (position, (listed, members)) in lists.zip(members).enumerate() {
            if *listed != members {
                return Err(format!(
                    "{kind} {position} lists other CPUs than those that are in it"
                ));
            }
            if members.is_empty() && !may_be_empty {
                return Err(format!("{kind} {position} has no CPUs"));
            }
        }
        Ok(())
    }
}

#[cfg(feature = "json")]
#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// Whether a SLIT may hold this value. 255 is valid: ACPI writes it where there is no path, such as
/// between the memories of two GPUs.
pub(crate) fn is_distance(value: u32) -> bool {
    (10..=255).contains(&value)
}

/// Says why this is no SLIT over `n_nodes` nodes.
pub(crate) fn check_distances(rows: &[Vec<u32>], n_nodes: usize) -> Result<(), String> {
    if rows.len() != n_nodes {
        return Err(format!(
            "{} rows for {n_nodes} nodes; give one row per node",
            rows.len()
        ));
    }
    for (from, row) in rows.iter().enumerate() {
        if row.len() != n_nodes {
            return Err(format!(
                "row {from} has {} values for {n_nodes} nodes; give one value per node",
                row.len()
            ));
        }
        if let Some(value) = row.iter().find(|&&value| !is_distance(value)) {
            return Err(format!(
                "{value} in row {from} is not in 10..=255; 10 means local, 255 no path"
            ));
        }
        if let Some(to) = (0..n_nodes).find(|&to| row[to] < row[from]) {
            return Err(format!(
                "row {from} has {} to itself but {} to node {to}; no node is nearer than itself",
                row[from], row[to]
            ));
        }
    }
    Ok(())
}

//! Network cards, disks, GPUs and accelerators, and the node that each is attached to.
//!
//! All of it comes from sysfs. hwloc knows devices too, but the crate `hwloc2` does not: it declares neither the filter that
//! makes hwloc look for them nor the attributes that say what they are. And a copy of `/sys` can be read
//! where there is no hwloc.
//!
//! An entry of `/sys/class` that has a `device` is a piece of hardware; others (`lo`, bridges, loop
//! devices) are the kernel's inventions. The folders above that device are what it is behind, and the
//! nearest one that speaks of nodes or CPUs decides. PCI devices that no class names (their driver
//! is in user space, as for DPDK, or not there at all) are found on the bus.

use std::{
    collections::BTreeSet,
    fmt, fs,
    path::{Path, PathBuf},
};

#[cfg(feature = "json")]
use serde::{Deserialize, Serialize};

use crate::{
    Node, Pu,
    files::{read_list, read_text},
};

/// A device that goroutines may want to be near.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub struct Device {
    /// The kernel's name for it, such as `eth0`, `nvme0n1` or `card0`. Of one without a driver that names
    /// it, its PCI address.
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    /// The PCI address of the device, or of the one it is behind, such as `0000:3b:00.0`.
    #[cfg_attr(
        feature = "json",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub pci: Option<String>,
    /// The kernel's number of its node; `None` where the machine has several and does not say which.
    pub node: Option<u32>,
    /// OS ids of the online CPUs that the kernel calls local to it, ascending; empty where it does not say.
    pub cpus: Vec<usize>,
}

/// What a [`Device`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum DeviceKind {
    /// A port of a network card.
    Network,
    /// A disk, or a controller of NVMe whose disks are not seen.
    Storage,
    /// A graphics card, also one that shows a console and computes nothing.
    Gpu,
    /// A device that computes: for neural networks, compression, encryption.
    Accelerator,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network => "network",
            Self::Storage => "storage",
            Self::Gpu => "GPU",
            Self::Accelerator => "accelerator",
        })
    }
}

/// Where to run what uses a device: the answer of [`Topology::near`](crate::Topology::near).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Near {
    /// The kernel's number of the node.
    pub node: u32,
    /// From the device's own node to this one: equal to that node's distance to itself if they are one.
    pub distance: u32,
    /// OS ids of the CPUs there that this process may use, ascending; at least one.
    pub cpus: Vec<usize>,
}

#[cfg(feature = "json")]
impl Device {
    /// Its name, without the hardware address that udev makes a part of the names of some interfaces.
    pub(crate) fn public_name(&self) -> &str {
        let is_address = |digits: &str| {
            digits.len() == 12 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        };
        match self.name.split_at_checked(3) {
            Some((prefix @ ("enx" | "wlx" | "wwx"), digits)) if is_address(digits) => prefix,
            _ => &self.name,
        }
    }

    /// The device without what names this very piece of hardware.
    pub(crate) fn anonymous(self) -> Self {
        Self {
            name: self.public_name().to_owned(),
            ..self
        }
    }
}

/// Classes of devices below `/sys/class`. Disks come before controllers, which are left out where
/// their disks are there.
const CLASSES: [(&str, DeviceKind); 5] = [
    ("net", DeviceKind::Network),
    ("block", DeviceKind::Storage),
    ("nvme", DeviceKind::Storage),
    ("drm", DeviceKind::Gpu),
    ("accel", DeviceKind::Accelerator),
];

/// The devices below `root`, not yet compared with the nodes and CPUs of the machine.
pub(crate) fn read(root: &Path) -> Vec<Device> {
    let Ok(sys) = fs::canonicalize(root.join("sys")) else {
        return Vec::new();
    };
    let mut devices: Vec<Device> = Vec::new();
    for (class, kind) in CLASSES {
        let dir = sys.join("class").join(class);
        for name in entries(&dir) {
            if !is_hardware(class, &name, &dir.join(&name)) {
                continue;
            }
            let device = device_at(&sys, name, kind, &dir);
            let is_seen = |seen: &Device| class == "nvme" && seen.pci == device.pci;
            if !devices.iter().any(is_seen) {
                devices.push(device);
            }
        }
    }
    let unnamed = on_the_bus(&sys, &devices);
    devices.extend(unnamed);
    devices.sort_by(|a, b| (a.kind, &a.pci, &a.name).cmp(&(b.kind, &b.pci, &b.name)));
    devices
}

/// The names in a folder, sorted.
fn entries(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let names: BTreeSet<String> = names.collect();
    names.into_iter().collect()
}

/// Whether an entry of a class is a device of its own: no partition, no connector of a screen, no path of a
/// disk that has several, and nothing without hardware.
fn is_hardware(class: &str, name: &str, entry: &Path) -> bool {
    let is_numbered = |prefix| {
        let digits = name.strip_prefix(prefix);
        digits.is_some_and(|digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit()))
    };
    let is_whole = match class {
        "block" => {
            let is_hidden = read_text(&entry.join("hidden")).as_deref() == Some("1");
            !is_hidden && !entry.join("partition").exists()
        }
        "nvme" => is_numbered("nvme"),
        "drm" => is_numbered("card"),
        _ => true,
    };
    is_whole && entry.join("device").exists()
}

fn device_at(sys: &Path, name: String, kind: DeviceKind, class: &Path) -> Device {
    let hardware = fs::canonicalize(class.join(&name).join("device")).unwrap_or_default();
    let above = || folders_above(sys, &hardware);
    let pci = above().find_map(|folder| pci_address(&folder));
    let (node, cpus) = above()
        .find_map(|folder| locality(&folder))
        .unwrap_or_default();
    Device {
        name,
        kind,
        pci,
        node,
        cpus,
    }
}

/// A device's folder and those that it is in, up to `/sys`.
fn folders_above<'a>(sys: &'a Path, hardware: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
    let folders = hardware.ancestors();
    let inside = folders.take_while(move |folder| folder.starts_with(sys) && *folder != sys);
    inside.map(Path::to_owned)
}

/// The node and the CPUs that a folder speaks of; `None` where it speaks of neither.
fn locality(folder: &Path) -> Option<(Option<u32>, Vec<usize>)> {
    let node = read_text(&folder.join("numa_node"));
    let cpus = read_list(&folder.join("local_cpulist"));
    if node.is_none() && cpus.is_none() {
        return None;
    }
    // The kernel writes -1 where it does not know.
    let node = node.and_then(|node| node.parse().ok());
    Some((node, cpus.unwrap_or_default()))
}

/// `0000:3b:00.0`, if that is the folder's name.
fn pci_address(folder: &Path) -> Option<String> {
    let name = folder.file_name()?.to_str()?;
    let (domain_to_slot, function) = name.rsplit_once('.')?;
    let parts: Vec<&str> = domain_to_slot.split(':').collect();
    let is_hex = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_hexdigit());
    let is_address = parts.len() == 3 && parts.iter().all(is_hex) && is_hex(&function);
    is_address.then(|| name.to_owned())
}

/// PCI devices of these kinds that no class has named; of a card that is split into virtual ones, the card.
fn on_the_bus(sys: &Path, named: &[Device]) -> Vec<Device> {
    let bus = sys.join("bus/pci/devices");
    let mut devices = Vec::new();
    for address in entries(&bus) {
        let folder = bus.join(&address);
        let is_named = |device: &Device| device.pci.as_ref() == Some(&address);
        if named.iter().any(is_named) || folder.join("physfn").exists() {
            continue;
        }
        let class = read_text(&folder.join("class")).unwrap_or_default();
        if let Some(kind) = kind_of_class(&class) {
            let (node, cpus) = locality(&folder).unwrap_or_default();
            devices.push(Device {
                name: address.clone(),
                kind,
                pci: Some(address),
                node,
                cpus,
            });
        }
    }
    devices
}

/// What a PCI device is by its class, such as `0x020000`.
fn kind_of_class(class: &str) -> Option<DeviceKind> {
    let digits = class.strip_prefix("0x")?;
    match (digits.get(..2)?, digits.get(2..4)?) {
        ("01", "08") => Some(DeviceKind::Storage),
        ("02", _) => Some(DeviceKind::Network),
        ("03", _) => Some(DeviceKind::Gpu),
        ("12", _) | ("0b", "40") => Some(DeviceKind::Accelerator),
        _ => None,
    }
}

/// Makes devices fit the machine: their CPUs are online, and their node is one that it has. Where the
/// kernel names no node, the node that has all of its CPUs, and on a machine of one node that one.
pub(crate) fn settle(devices: Vec<Device>, nodes: &[Node], pus: &[Pu]) -> Vec<Device> {
    let node_of = |cpu: usize| {
        let position = pus.binary_search_by_key(&cpu, |pu| pu.cpu).ok()?;
        Some(nodes[pus[position].node].os_id)
    };
    let settle = |mut device: Device| {
        device.cpus.retain(|&cpu| node_of(cpu).is_some());
        let of_cpus: BTreeSet<Option<u32>> = device.cpus.iter().map(|&cpu| node_of(cpu)).collect();
        let said = device
            .node
            .filter(|id| nodes.iter().any(|node| node.os_id == *id));
        device.node = match (said, nodes, of_cpus.len()) {
            (Some(said), ..) => Some(said),
            (None, [only], _) => Some(only.os_id),
            (None, _, 1) => of_cpus.first().copied().flatten(),
            (None, ..) => None,
        };
        device
    };
    devices.into_iter().map(settle).collect()
}

/// Says what contradicts the machine.
pub(crate) fn check(devices: &[Device], nodes: &[Node], pus: &[Pu]) -> Result<(), String> {
    for Device {
        name, node, cpus, ..
    } in devices
    {
        if let Some(id) = node.filter(|id| nodes.iter().all(|node| node.os_id != *id)) {
            return Err(format!("device {name} is on node {id}, which is missing"));
        }
        let is_online = |cpu: &usize| pus.binary_search_by_key(cpu, |pu| pu.cpu).is_ok();
        if !cpus.is_sorted_by(|a, b| a < b) || !cpus.iter().all(is_online) {
            return Err(format!("device {name} names CPUs that are not online"));
        }
    }
    Ok(())
}

//! Names and units, the same in every format.

use crate::{Cache, Core, Device, LevelKind, Node, Pu, Source, Topology};

/// `3 nodes`.
pub(crate) fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// `1.5 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = [
        (1_u64 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

/// The kernel's number, or the position with a `#` before it.
pub(crate) fn name(os_id: Option<u32>, position: usize) -> String {
    os_id.map_or_else(|| format!("#{position}"), |id| id.to_string())
}

pub(crate) fn package_name(topology: &Topology, package: usize) -> String {
    name(topology.packages()[package].os_id, package)
}

pub(crate) fn cache_title(kind: &str, cache: &Cache, position: usize) -> String {
    let size = cache.size_bytes.map(|size| format!(": {}", bytes(size)));
    format!(
        "{kind} {}{}",
        name(cache.os_id, position),
        size.unwrap_or_default()
    )
}

/// `core 3`, on a hybrid machine with its kind.
pub(crate) fn core_title(topology: &Topology, position: usize) -> String {
    let core = &topology.cores()[position];
    let kind = core_kind(topology, core).map(|kind| format!(" ({kind})"));
    format!(
        "core {}{}",
        name(core.os_id, position),
        kind.unwrap_or_default()
    )
}

/// The kind of this core; `None` where all are alike.
pub(crate) fn core_kind(topology: &Topology, core: &Core) -> Option<&'static str> {
    let fastest = topology.cores().iter().map(|core| core.performance).max()?;
    match (fastest, core.performance) {
        (0, _) => None,
        (fastest, own) if own == fastest => Some("fast"),
        (_, 0) => Some("slow"),
        _ => Some("middle"),
    }
}

pub(crate) fn memory(node: &Node) -> String {
    let free = node
        .free_bytes
        .map(|free| format!(", {} free", bytes(free)))
        .unwrap_or_default();
    match (node.has_memory, node.memory_bytes) {
        (false, _) => "no memory".to_owned(),
        (true, 0) => "memory of unknown size".to_owned(),
        (true, total) => format!("{}{free}", bytes(total)),
    }
}

pub(crate) fn node_title(node: &Node) -> String {
    format!("node {}: {}", node.os_id, memory(node))
}

/// `eth0: network, PCI 0000:3b:00.0`.
pub(crate) fn device_title(device: &Device) -> String {
    let Device {
        name, kind, pci, ..
    } = device;
    match pci.as_ref().filter(|pci| *pci != name) {
        Some(pci) => format!("{name}: {kind}, PCI {pci}"),
        None => format!("{name}: {kind}"),
    }
}

/// The devices of a node, or those of which no node is known.
pub(crate) fn devices_of(topology: &Topology, node: Option<u32>) -> impl Iterator<Item = &Device> {
    let devices = topology.devices().iter();
    devices.filter(move |device| device.node == node)
}

/// A note about a special CPU: not allowed, isolated.
pub(crate) fn cpu_note(topology: &Topology, pu: &Pu) -> Option<&'static str> {
    if !pu.allowed {
        Some("not allowed")
    } else if topology.isolated_cpus().contains(&pu.cpu) {
        Some("isolated")
    } else {
        None
    }
}

pub(crate) fn level_name(kind: LevelKind) -> &'static str {
    match kind {
        LevelKind::Smt => "core",
        LevelKind::L2 => "L2",
        LevelKind::L3 => "L3",
        LevelKind::Node => "node",
        LevelKind::Remote => "remote",
    }
}

pub(crate) fn source(topology: &Topology) -> String {
    match topology.source() {
        Source::ThisMachine => "this machine".to_owned(),
        Source::Synthetic { description } => format!("synthetic {description:?}"),
        Source::Recorded => "recorded".to_owned(),
    }
}

/// `2 nodes, 2 packages, 8 cores, 16 CPUs, 12 of them allowed`.
pub(crate) fn summary(topology: &Topology) -> String {
    let n_cpus = topology.pus().len();
    let n_allowed = topology.allowed_cpus().len();
    let allowed = if n_allowed == n_cpus {
        String::new()
    } else {
        format!(", {n_allowed} of them allowed")
    };
    format!(
        "{}, {}, {}, {}{allowed}",
        count(topology.nodes().len(), "node"),
        count(topology.packages().len(), "package"),
        count(topology.cores().len(), "core"),
        count(n_cpus, "CPU"),
    )
}

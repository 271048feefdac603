//! Differences between two machines.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Request, Topology, default_processors, format_cpu_list, plan, render};

/// One thing that two machines do not have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The part of the machine, such as `node 1: memory`.
    pub what: String,
    /// How it is in the first machine; `None` if the first has no such thing.
    pub a: Option<String>,
    /// How it is in the second machine.
    pub b: Option<String>,
}

/// Everything that differs, by what it is about. Free memory does not count, nor where a machine
/// comes from.
///
/// # Examples
///
/// ```
/// use windlass_topology::{Topology, diff::diff};
///
/// let a = Topology::synthetic("core:2 pu:1")?;
/// let b = Topology::synthetic("core:2 pu:2")?;
/// assert!(diff(&a, &a).is_empty());
/// assert!(diff(&a, &b).iter().any(|change| change.what == "CPUs"));
/// # Ok::<(), windlass_topology::Error>(())
/// ```
#[must_use]
pub fn diff(a: &Topology, b: &Topology) -> Vec<Change> {
    let (mut a, mut b) = (facts(a), facts(b));
    let mut names: Vec<Name> = a.keys().chain(b.keys()).cloned().collect();
    names.sort();
    names.dedup();
    let changes = names.into_iter().map(|name| Change {
        a: a.remove(&name),
        b: b.remove(&name),
        what: name.2,
    });
    changes.filter(|change| change.a != change.b).collect()
}

/// The rank of its kind, its number, then what it is about.
type Name = (usize, usize, String);

/// A machine as names and values.
fn facts(topology: &Topology) -> BTreeMap<Name, String> {
    let mut facts = BTreeMap::new();
    let mut add = |rank: usize, number: usize, what: String, value: String| {
        facts.insert((rank, number, what), value);
    };
    let online: Vec<usize> = topology.pus().iter().map(|pu| pu.cpu).collect();
    for (nth, (what, cpus)) in [
        ("CPUs", online),
        ("allowed CPUs", topology.allowed_cpus()),
        ("offline CPUs", topology.offline_cpus().to_vec()),
        ("isolated CPUs", topology.isolated_cpus().to_vec()),
    ]
    .into_iter()
    .enumerate()
    {
        add(0, nth, what.to_owned(), cpu_list(&cpus));
    }
    add(
        0,
        4,
        "default processors".to_owned(),
        default_processors(topology).to_string(),
    );
    let quota = topology.limits().and_then(|limits| limits.quota);
    let quota = quota.map_or("none".to_owned(), render::two_digits);
    add(0, 5, "CPU quota".to_owned(), quota);
    for (position, node) in topology.nodes().iter().enumerate() {
        let number = node.os_id as usize;
        let name = |what: &str| format!("node {number}: {what}");
        add(1, number, name("CPUs"), cpu_list(&node.cpus));
        let memory = match (node.has_memory, node.memory_bytes) {
            (false, _) => "none".to_owned(),
            (true, 0) => "unknown".to_owned(),
            (true, bytes) => render::bytes(bytes),
        };
        add(1, number, name("memory"), memory);
        for (other, target) in topology.nodes().iter().enumerate() {
            let what = name(&format!("distance to node {}", target.os_id));
            add(
                1,
                number,
                what,
                topology.distance(position, other).to_string(),
            );
        }
    }
    for (position, package) in topology.packages().iter().enumerate() {
        let number = package.os_id.map_or(position, |id| id as usize);
        let what = format!("package {number}: CPUs");
        add(2, number, what, cpu_list(&package.cpus));
    }
    for (rank, kind, caches) in [(3, "L3", topology.l3s()), (4, "L2", topology.l2s())] {
        for (position, cache) in caches.iter().enumerate() {
            let size = cache
                .size_bytes
                .map_or("unknown size".to_owned(), render::bytes);
            let value = format!("{size}, CPU {}", format_cpu_list(&cache.cpus));
            add(rank, position, format!("{kind} #{position}"), value);
        }
    }
    for (position, core) in topology.cores().iter().enumerate() {
        let kind = match core.performance {
            0 => String::new(),
            rank => format!(", speed rank {rank}"),
        };
        let value = format!("CPU {}{kind}", format_cpu_list(&core.cpus));
        add(5, position, format!("core #{position}"), value);
    }
    for device in topology.devices() {
        let node = device.node.map_or("?".to_owned(), |id| id.to_string());
        let what = format!("device {}", device.public_name());
        add(6, 0, what, format!("{}, node {node}", device.kind));
    }
    if let Ok(plan) = plan(topology, &Request::default()) {
        for node in &plan.nodes {
            let number = node.os_id as usize;
            let what = format!("Ps on node {number}");
            add(7, number, what, node.ps.len().to_string());
        }
    }
    facts
}

fn cpu_list(cpus: &[usize]) -> String {
    if cpus.is_empty() {
        "none".to_owned()
    } else {
        format_cpu_list(cpus)
    }
}

//! The machine and the plan as text for people and as JSON for programs.
//!
//! Text ends with a newline and holds nothing but what is in the values, so that equal values give
//! equal text. All numbers of CPUs and nodes are the kernel's; a group without such a number, as an
//! L3 of a synthetic machine, is shown by its position with a `#` before it.

use std::fmt::{Display, Write as _};

use serde::Serialize;

use crate::{
    DistanceOrigin, LevelKind, Node, Plan, PlannedP, Pu, SCHEMA, Source, Topology, format_cpu_list,
};

/// The machine as a tree: package, node, L3, L2, core, CPU.
///
/// A group that spans two branches (a node of two packages, say) is shown in both, each time with
/// the CPUs of that branch. Nodes without CPUs come last.
///
/// # Examples
///
/// ```
/// use windlass_topology::{Topology, render};
///
/// let machine = Topology::synthetic("pack:1 core:2 pu:2")?;
/// assert_eq!(
///     render::tree(&machine),
///     "\
/// machine (synthetic \"pack:1 core:2 pu:2\"): 1 node, 1 package, 2 cores, 4 CPUs
/// package 0
///   node 0: 1.0 GiB
///     core 0: CPU 0, CPU 1
///     core 1: CPU 2, CPU 3
/// "
/// );
/// # Ok::<(), windlass_topology::Error>(())
/// ```
#[must_use]
pub fn tree(topology: &Topology) -> String {
    let mut out = headline(topology);
    let pus: Vec<&Pu> = topology.pus().iter().collect();
    branch(&mut out, topology, &pus, 0);
    for node in topology.nodes().iter().filter(|node| node.cpus.is_empty()) {
        line(
            &mut out,
            0,
            format_args!("node {}: {}, no CPUs", node.os_id, memory(node)),
        );
    }
    if !topology.offline_cpus().is_empty() {
        line(
            &mut out,
            0,
            format_args!("offline: CPU {}", format_cpu_list(topology.offline_cpus())),
        );
    }
    out
}

/// The distances between the nodes as a table, `from` down and `to` across.
///
/// # Examples
///
/// ```
/// use windlass_topology::{Topology, render};
///
/// let machine = Topology::synthetic("[numa] pack:1 pu:1")?;
/// assert_eq!(render::distances(&machine), "\
/// distances (assumed)
///   node    0
///      0   10
/// ");
/// # Ok::<(), windlass_topology::Error>(())
/// ```
#[must_use]
pub fn distances(topology: &Topology) -> String {
    let origin = match topology.distances().origin {
        DistanceOrigin::Firmware => "from the firmware",
        DistanceOrigin::Given => "given",
        DistanceOrigin::Assumed => "assumed",
    };
    let mut out = format!("distances ({origin})\n  node");
    for node in topology.nodes() {
        cell(&mut out, node.os_id);
    }
    for (node, row) in topology.nodes().iter().zip(&topology.distances().rows) {
        let _ = write!(out, "\n  {:>4}", node.os_id);
        row.iter().for_each(|distance| cell(&mut out, distance));
    }
    out.push('\n');
    out
}

/// Which P is where, as a table.
#[must_use]
pub fn placement(topology: &Topology, plan: &Plan) -> String {
    let mut out = format!("{}\n", count(plan.ps.len(), "P"));
    out.push_str("     P   CPU  core    L2    L3  pack  node\n");
    for p in &plan.ps {
        let dash = |position: Option<usize>| position.map_or("-".to_owned(), |n| format!("#{n}"));
        let _ = writeln!(
            out,
            "{:>6}{:>6}{:>6}{:>6}{:>6}{:>6}{:>6}",
            p.index,
            p.cpu,
            format!("#{}", p.core),
            dash(p.l2),
            dash(p.l3),
            package_name(topology, p.package),
            plan.nodes[p.node].os_id
        );
    }
    out
}

/// Whom each P steals from, a line per level, nearest first.
///
/// Victims are listed in the plan's order; a scheduler starts at a random one of each level.
#[must_use]
pub fn steal_order(plan: &Plan) -> String {
    let mut out = String::from("steal order\n");
    for p in &plan.ps {
        line(
            &mut out,
            1,
            format_args!("P {} (CPU {}, node {})", p.index, p.cpu, node_of(plan, p)),
        );
        if p.levels.is_empty() {
            line(&mut out, 2, "nobody");
        }
        for level in &p.levels {
            let victims: Vec<String> = level.victims.iter().map(usize::to_string).collect();
            let name = level_name(level.kind);
            let _ = writeln!(
                out,
                "    {name:<6} {:>3}: {}",
                level.distance,
                victims.join(" ")
            );
        }
    }
    out
}

/// Machine, plan and quota as JSON, with [`SCHEMA`] as its version.
///
/// # Panics
///
/// Never: all of it is numbers and strings.
#[must_use]
pub fn json(topology: &Topology, plan: &Plan, quota: Option<f64>) -> String {
    let report = Report {
        schema: SCHEMA,
        machine: topology,
        cpu_quota: quota,
        plan,
    };
    let mut json = serde_json::to_string_pretty(&report).expect("plain values are JSON");
    json.push('\n');
    json
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    machine: &'a Topology,
    cpu_quota: Option<f64>,
    plan: &'a Plan,
}

fn headline(topology: &Topology) -> String {
    let source = match topology.source() {
        Source::ThisMachine => "this machine".to_owned(),
        Source::Synthetic { description } => format!("synthetic {description:?}"),
        Source::Recorded => "recorded".to_owned(),
    };
    let n_cpus = topology.pus().len();
    let n_allowed = topology.allowed_cpus().len();
    let allowed = if n_allowed == n_cpus {
        String::new()
    } else {
        format!(", {n_allowed} of them allowed")
    };
    format!(
        "machine ({source}): {}, {}, {}, {}{allowed}\n",
        count(topology.nodes().len(), "node"),
        count(topology.packages().len(), "package"),
        count(topology.cores().len(), "core"),
        count(n_cpus, "CPU"),
    )
}

/// What a level of the tree asks of a CPU: the position of its group, if it has one.
type GroupOf = fn(&Pu) -> Option<usize>;
/// The title of that group.
type Title = fn(&Topology, usize) -> String;

const LEVELS: [(GroupOf, Title); 4] = [
    (
        |pu| Some(pu.package),
        |topology, package| format!("package {}", package_name(topology, package)),
    ),
    (
        |pu| Some(pu.node),
        |topology, node| {
            let node = &topology.nodes()[node];
            format!("node {}: {}", node.os_id, memory(node))
        },
    ),
    (
        |pu| pu.l3,
        |topology, l3| {
            let cache = &topology.l3s()[l3];
            format!("L3 {}{}", name(cache.os_id, l3), size(cache.size_bytes))
        },
    ),
    (
        |pu| pu.l2,
        |topology, l2| {
            let cache = &topology.l2s()[l2];
            format!("L2 {}{}", name(cache.os_id, l2), size(cache.size_bytes))
        },
    ),
];

/// The tree of some CPUs, from a level on; `depth` counts the levels that have a line.
fn branch(out: &mut String, topology: &Topology, pus: &[&Pu], depth: usize) {
    branch_from(out, topology, pus, &LEVELS, depth);
}

fn branch_from(
    out: &mut String,
    topology: &Topology,
    pus: &[&Pu],
    levels: &[(GroupOf, Title)],
    depth: usize,
) {
    let Some(((group_of, title), deeper)) = levels.split_first() else {
        return cores(out, topology, pus, depth);
    };
    for (group, members) in grouped(pus, group_of) {
        match group {
            Some(group) => {
                line(out, depth, title(topology, group));
                branch_from(out, topology, &members, deeper, depth + 1);
            }
            None => branch_from(out, topology, &members, deeper, depth),
        }
    }
}

fn cores(out: &mut String, topology: &Topology, pus: &[&Pu], depth: usize) {
    for (core, members) in grouped(pus, &|pu| Some(pu.core)) {
        let core = core.expect("every CPU has a core");
        let members: Vec<String> = members.iter().map(|pu| cpu(pu)).collect();
        let name = name(topology.cores()[core].os_id, core);
        line(
            out,
            depth,
            format_args!("core {name}: {}", members.join(", ")),
        );
    }
}

/// Parts CPUs by group; groups by position, those without first.
fn grouped<'a>(
    pus: &[&'a Pu],
    group_of: &dyn Fn(&Pu) -> Option<usize>,
) -> Vec<(Option<usize>, Vec<&'a Pu>)> {
    let mut groups = std::collections::BTreeMap::<_, Vec<&Pu>>::new();
    for &pu in pus {
        groups.entry(group_of(pu)).or_default().push(pu);
    }
    groups.into_iter().collect()
}

fn cpu(pu: &Pu) -> String {
    format!(
        "CPU {}{}",
        pu.cpu,
        if pu.allowed { "" } else { " (not allowed)" }
    )
}

fn node_of(plan: &Plan, p: &PlannedP) -> u32 {
    plan.nodes[p.node].os_id
}

fn package_name(topology: &Topology, package: usize) -> String {
    name(topology.packages()[package].os_id, package)
}

fn name(os_id: Option<u32>, position: usize) -> String {
    os_id.map_or_else(|| format!("#{position}"), |id| id.to_string())
}

fn level_name(kind: LevelKind) -> &'static str {
    match kind {
        LevelKind::Smt => "core",
        LevelKind::L2 => "L2",
        LevelKind::L3 => "L3",
        LevelKind::Node => "node",
        LevelKind::Remote => "remote",
    }
}

fn memory(node: &Node) -> String {
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

fn size(size_bytes: Option<u64>) -> String {
    size_bytes
        .map(|size| format!(": {}", bytes(size)))
        .unwrap_or_default()
}

fn bytes(bytes: u64) -> String {
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

fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

fn line(out: &mut String, depth: usize, text: impl Display) {
    let _ = writeln!(out, "{:1$}{text}", "", depth * 2);
}

fn cell(out: &mut String, value: impl Display) {
    let _ = write!(out, "{value:>5}");
}

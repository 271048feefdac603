//! Distances, places of the Ps, steal order and limits as tables.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    paint::{Ink, Paint},
    words::{bytes, core_kind, count, level_name, package_name},
};
use crate::{
    CpuLimits, DistanceOrigin, LevelKind, Plan, PlannedP, Topology, format_cpu_list, limits::Cap,
    measure::Measured, steal,
};

/// The distances between the nodes as a table, `from` down and `to` across.
///
/// # Examples
///
/// ```
/// use windlass_topology::{Topology, render::{self, Paint}};
///
/// let machine = Topology::synthetic("[numa] pack:1 pu:1")?;
/// assert_eq!(render::distances(&machine, Paint::Plain), "\
/// distances (assumed)
///   node    0
///      0   10
/// ");
/// # Ok::<(), windlass_topology::Error>(())
/// ```
#[must_use]
pub fn distances(topology: &Topology, paint: Paint) -> String {
    let title = format!("distances ({})", origin(topology));
    let mut steps: Vec<u32> = topology.distances().rows.concat();
    steps.sort_unstable();
    steps.dedup();
    let names: Vec<String> = topology
        .nodes()
        .iter()
        .map(|n| n.os_id.to_string())
        .collect();
    let rows = &topology.distances().rows;
    let cell = |from: usize, to: usize| {
        let distance: u32 = rows[from][to];
        let rank = steps.iter().position(|step| *step == distance).unwrap_or(0);
        let ink = match rank {
            0 => Ink::Good,
            rank => Ink::of_rank(rank, steps.len() - 1),
        };
        (distance.to_string(), ink)
    };
    let table = matrix("node", &names, cell, paint);
    let note = topology.distances().note.as_deref();
    let note = note.map(|note| format!("{}\n", paint.fair(note)));
    format!(
        "{}\n{table}{}",
        paint.title(title),
        note.unwrap_or_default()
    )
}

pub(crate) fn origin(topology: &Topology) -> &'static str {
    match topology.distances().origin {
        DistanceOrigin::Firmware => "from the firmware",
        DistanceOrigin::Given => "given",
        DistanceOrigin::Assumed => "assumed",
    }
}

/// How long a cache line takes from one CPU to another, between nodes and between level 3 caches.
///
/// # Examples
///
/// ```no_run
/// use windlass_topology::{Topology, measure, render::{self, Paint}};
///
/// let machine = Topology::detect()?;
/// let measured = measure::measure(&machine, |_done, _all| ());
/// print!("{}", render::measured(&measured, Paint::Plain));
/// # Ok::<(), windlass_topology::Error>(())
/// ```
#[must_use]
pub fn measured(measured: &Measured, paint: Paint) -> String {
    let mut parts = Vec::new();
    for (what, table) in [
        ("nodes", &measured.nodes),
        ("level 3 caches", &measured.l3s),
    ] {
        if table.groups.is_empty() {
            continue;
        }
        let flat = table.ns.iter().flatten().flatten();
        let least = flat.clone().copied().fold(f64::INFINITY, f64::min);
        let most = flat.copied().fold(0.0, f64::max);
        let cell = |from: usize, to: usize| match table.ns[from][to] {
            Some(ns) => {
                let third = (most - least) / 3.0;
                let ink = match ns {
                    ns if ns <= least + third => Ink::Good,
                    ns if ns <= least + 2.0 * third => Ink::Fair,
                    _ => Ink::Bad,
                };
                (format!("{ns:.0}"), ink)
            }
            None => ("-".to_owned(), Ink::Dim),
        };
        let names: Vec<String> = table
            .groups
            .iter()
            .map(|group| group.name.clone())
            .collect();
        let title = paint.title(format_args!(
            "a cache line between {what}, ns one way (measured)"
        ));
        let head = if what == "nodes" { "node" } else { "L3" };
        parts.push(format!("{title}\n{}", matrix(head, &names, cell, paint)));
    }
    parts.join("\n")
}

/// A square table.
fn matrix(
    head: &str,
    names: &[String],
    cell: impl Fn(usize, usize) -> (String, Ink),
    paint: Paint,
) -> String {
    let n = names.len();
    let cells: Vec<Vec<(String, Ink)>> = (0..n)
        .map(|from| (0..n).map(|to| cell(from, to)).collect())
        .collect();
    let texts = cells.iter().flatten().map(|(text, _)| text.len());
    let width = texts
        .chain(names.iter().map(String::len))
        .max()
        .unwrap_or(0);
    let width = width.max(3) + 2;
    let first = names
        .iter()
        .map(String::len)
        .max()
        .unwrap_or(0)
        .max(head.len());
    let mut out = format!("  {head:>first$}");
    for name in names {
        let _ = write!(out, "{name:>width$}");
    }
    for (name, row) in names.iter().zip(&cells) {
        let _ = write!(out, "\n  {name:>first$}");
        for (text, ink) in row {
            let _ = write!(out, "{}", paint.ink(*ink, format_args!("{text:>width$}")));
        }
    }
    out.push('\n');
    out
}

/// The CPU of each P, and the CPUs without a P with the reason.
///
/// # Examples
///
/// ```
/// use windlass_topology::{Request, Topology, plan, render::{self, Paint}};
///
/// let machine = Topology::synthetic("core:2 pu:2")?;
/// let plan = plan(&machine, &Request { n_ps: Some(2), ..Request::default() })?;
/// assert_eq!(render::placement(&machine, &plan, Paint::Plain), "\
/// 2 Ps
///      P   CPU  core    L2    L3  pack  node
///      0     0    #0     -     -    #0     0
///      1     2    #1     -     -    #0     0
/// without a P: CPU 1,3 (fewer Ps than CPUs)
/// ");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn placement(topology: &Topology, plan: &Plan, paint: Paint) -> String {
    let is_hybrid = topology.cores().iter().any(|core| core.performance > 0);
    let mut out = format!("{}\n", paint.title(count(plan.ps.len(), "P")));
    out.push_str("     P   CPU  core    L2    L3  pack  node");
    out.push_str(if is_hybrid { "  kind\n" } else { "\n" });
    for p in &plan.ps {
        let dash = |position: Option<usize>| position.map_or("-".to_owned(), |n| format!("#{n}"));
        let _ = write!(
            out,
            "{}{:>6}{:>6}{:>6}{:>6}{:>6}{}",
            paint.ink(Ink::P, format_args!("{:>6}", p.index)),
            p.cpu,
            format!("#{}", p.core),
            dash(p.l2),
            dash(p.l3),
            package_name(topology, p.package),
            paint.ink(Ink::Node, format_args!("{:>6}", plan.nodes[p.node].os_id))
        );
        if let Some(kind) = core_kind(topology, &topology.cores()[p.core]) {
            let _ = write!(out, "  {kind}");
        }
        out.push('\n');
    }
    for node in plan.nodes.iter().filter(|n| n.memory_node != Some(n.os_id)) {
        let instead = match node.memory_node {
            Some(other) => format!("its Ps use that of node {other}"),
            None => "and nor has any other".to_owned(),
        };
        let _ = writeln!(out, "node {} has no memory: {instead}", node.os_id);
    }
    for line in dropped(plan) {
        let _ = writeln!(out, "{}", paint.dim(line));
    }
    out
}

/// A line for each reason.
pub(crate) fn dropped(plan: &Plan) -> Vec<String> {
    let mut reasons = BTreeMap::<_, Vec<usize>>::new();
    for dropped in &plan.dropped {
        reasons.entry(dropped.reason).or_default().push(dropped.cpu);
    }
    let line = |(reason, cpus): (_, Vec<usize>)| {
        format!("without a P: CPU {} ({reason})", format_cpu_list(&cpus))
    };
    reasons.into_iter().map(line).collect()
}

/// The steal order and the wake order of all Ps, or of one; nearest first.
///
/// Victims are listed in the plan's order; a scheduler starts at a random one of each level.
#[must_use]
pub fn steal_order(plan: &Plan, only: Option<usize>, paint: Paint) -> String {
    let mut out = format!("{}\n", paint.title("steal order"));
    let chosen = |p: &&PlannedP| only.is_none_or(|only| only == p.index);
    for p in plan.ps.iter().filter(chosen) {
        let name = paint.ink(Ink::P, format_args!("P {}", p.index));
        let node = plan.nodes[p.node].os_id;
        let _ = writeln!(out, "  {name} (CPU {}, node {node})", p.cpu);
        if p.levels.is_empty() {
            out.push_str("    nobody\n");
            continue;
        }
        let mut has_gate = false;
        for (rank, level) in p.levels.iter().enumerate() {
            let is_remote = level.kind == LevelKind::Remote;
            if is_remote && !has_gate {
                let _ = writeln!(out, "    {}", paint.dim("-- gate --"));
                has_gate = true;
            }
            let ink = Ink::of_rank(rank + 1, p.levels.len());
            let head = format!("{:<6} {:>3}", level_name(level.kind), level.distance);
            let _ = writeln!(
                out,
                "    {}: {}",
                paint.ink(ink, head),
                list(&level.victims)
            );
        }
        let wakes = wakes(plan, p.index, list);
        let _ = writeln!(out, "    {:<10}: {wakes}", "wakes");
    }
    out.push_str(&gate(plan, only, paint));
    out
}

/// The wake order of a P, in groups of equal rank; after `||` come other nodes.
pub(crate) fn wakes(plan: &Plan, waker: usize, list: impl Fn(&[usize]) -> String) -> String {
    let groups = steal::wake_order(plan, waker);
    let (near, far): (Vec<_>, Vec<_>) = groups
        .iter()
        .partition(|group| group.kind != LevelKind::Remote);
    let join = |groups: Vec<&steal::WakeGroup>| {
        let lists: Vec<String> = groups.iter().map(|group| list(&group.ps)).collect();
        lists.join(" | ")
    };
    let is_local = far.is_empty();
    let wakes = format!("{} || {}", join(near), join(far));
    let wakes = if is_local {
        wakes.trim_end_matches(" || ")
    } else {
        wakes.trim_start()
    };
    wakes.to_owned()
}

/// The conditions for stealing from another node; empty on a machine of one node.
fn gate(plan: &Plan, only: Option<usize>, paint: Paint) -> String {
    let levels = plan
        .ps
        .iter()
        .filter(|p| only.is_none_or(|only| only == p.index))
        .flat_map(|p| &p.levels);
    let mut distances: Vec<u32> = levels
        .filter(|level| level.kind == LevelKind::Remote)
        .map(|level| level.distance)
        .collect();
    distances.sort_unstable();
    distances.dedup();
    if distances.is_empty() {
        return String::new();
    }
    let waits: Vec<String> = distances
        .iter()
        .map(|&d| format!("{} µs at {d}", steal::patience(d).as_micros()))
        .collect();
    format!(
        "{}: two sweeps of the own node found nothing, the own ring is reaped and the own node\n  \
         queue empty, no other P steals between the two nodes, and the victim's node has more\n  \
         runnable goroutines than idle Ps, or its oldest has waited {}\n\
         {}: beyond || only where the own node has no idle P, and more work than Ps\n",
        paint.title("gate"),
        waits.join(", "),
        paint.title("wakes")
    )
}

/// The steal order of all Ps as a square: row by thief, column by victim, 1 for the nearest level.
#[must_use]
pub fn steal_matrix(plan: &Plan, paint: Paint) -> String {
    let names: Vec<String> = plan.ps.iter().map(|p| p.index.to_string()).collect();
    let ranks: Vec<Vec<usize>> = (0..plan.ps.len()).map(|p| steal::ranks(plan, p)).collect();
    let most = ranks.iter().flatten().copied().max().unwrap_or(0);
    let cell = |thief: usize, victim: usize| match ranks[thief][victim] {
        0 => (".".to_owned(), Ink::Dim),
        rank => (rank.to_string(), Ink::of_rank(rank, most)),
    };
    let title = paint.title("steal matrix (thief down, victim across, 1 is the nearest level)");
    format!("{title}\n{}", matrix("P", &names, cell, paint))
}

/// Ps in their order, a run of three or more as `64-127`.
fn list(ps: &[usize]) -> String {
    let runs = ps.chunk_by(|a, b| a + 1 == *b);
    let run = |run: &[usize]| match run {
        [first, _, .., last] => format!("{first}-{last}"),
        few => few
            .iter()
            .map(usize::to_string)
            .collect::<Vec<_>>()
            .join(" "),
    };
    runs.map(run).collect::<Vec<_>>().join(" ")
}

/// The limits on the number of processors, in the order in which they apply, and the one that binds.
///
/// # Examples
///
/// ```
/// use windlass_topology::{CpuLimits, render::{self, Paint}};
///
/// let limits = CpuLimits { online: vec![0, 1, 2, 3], quota: Some(2.5), ..CpuLimits::default() };
/// assert_eq!(render::limits(&limits, Paint::Plain), "\
/// limits
///   online     4 CPUs     0-3
///   cpuset     -
///   affinity   -
///   isolated   -
///   quota      2.5 CPUs
///   memory     -
/// processors: 3, capped by the quota
/// ");
/// ```
#[must_use]
pub fn limits(limits: &CpuLimits, paint: Paint) -> String {
    let mut out = format!("{}\n", paint.title("limits"));
    let mut row = |name: &str, amount: String, detail: String| {
        let line = format!("  {name:<9}  {amount:<9}  {detail}");
        let _ = writeln!(out, "{}", line.trim_end());
    };
    let cpus = |list: &[usize]| (count(list.len(), "CPU"), format_cpu_list(list));
    let none = || ("-".to_owned(), String::new());
    let group = |name: &Option<String>| {
        let name = name.as_deref();
        name.map_or(String::new(), |name| format!("  group {name}"))
    };
    let (amount, detail) = cpus(&limits.online);
    row("online", amount, detail);
    let (amount, detail) = limits.cpuset.as_deref().map_or_else(none, cpus);
    row("cpuset", amount, detail + &group(&limits.cpuset_group));
    let (amount, detail) = limits.affinity.as_deref().map_or_else(none, cpus);
    row("affinity", amount, detail);
    let isolated = Some(limits.isolated.as_slice()).filter(|list| !list.is_empty());
    let (amount, detail) = isolated.map_or_else(none, cpus);
    row("isolated", amount, detail);
    let quota = limits
        .quota
        .map(|quota| format!("{} CPUs", two_digits(quota)));
    let quota_group = group(&limits.quota_group).trim_start().to_owned();
    row("quota", quota.unwrap_or_else(|| "-".into()), quota_group);
    let memory = limits.memory_bytes.map(bytes);
    row(
        "memory",
        memory.unwrap_or_else(|| "-".into()),
        String::new(),
    );
    let _ = writeln!(
        out,
        "{}: {}",
        paint.title("processors"),
        verdict(limits, paint)
    );
    out
}

/// `3, capped by the quota`.
pub(crate) fn verdict(limits: &CpuLimits, paint: Paint) -> String {
    let cap = match limits.cap() {
        Cap::Online => return format!("{}, one for each CPU online", limits.processors()),
        Cap::Cpuset => "the cpuset of the cgroup",
        Cap::Affinity => "the affinity mask",
        Cap::Isolated => "the isolation of CPUs at boot",
        Cap::Quota => "the quota",
        Cap::MaxPs => "the most that a runtime can have",
    };
    let capped = paint.fair(format_args!("capped by {cap}"));
    format!("{}, {capped}", limits.processors())
}

/// `2.5`, `0.33`, `4`.
pub(crate) fn two_digits(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

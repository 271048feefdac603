//! The one-screen summary, and what the doctor found, as text.

use std::{collections::BTreeMap, fmt::Write as _};

use windlass_topology::{
    Cache, Plan, Topology,
    diff::Change,
    doctor::{Finding, Host, Status},
    format_cpu_list,
    render::{self, Paint},
};

/// Nodes, CPUs, memory, caches, distances, limits, kernel.
pub(crate) fn summary(
    topology: &Topology,
    plan: &Plan,
    host: Option<&Host>,
    paint: Paint,
) -> String {
    let mut out = String::new();
    let mut row = |name: &str, text: &str| {
        let _ = writeln!(out, "{} {text}", paint.title(format_args!("{name:<10}")));
    };
    let packages = topology.packages().len();
    row("machine", &render::headline(topology));
    if let Some(host) = host {
        let verdict = host.uring.verdict();
        let verdict = match host.uring.error {
            None => paint.good(verdict),
            Some(_) => paint.bad(verdict),
        };
        row(
            "kernel",
            &format!("Linux {}; io_uring {verdict}", host.kernel),
        );
    }
    let caches = [("L2", topology.l2s()), ("L3", topology.l3s())];
    let caches: Vec<String> = caches
        .iter()
        .filter(|(_, caches)| !caches.is_empty())
        .map(|(kind, caches)| format!("{} {kind}{}", caches.len(), sizes(caches)))
        .collect();
    if !caches.is_empty() {
        row("caches", &caches.join(", "));
    }
    if !topology.devices().is_empty() {
        row("devices", &devices(topology));
    }
    if !topology.offline_cpus().is_empty() {
        row(
            "offline",
            &format!("CPU {}", format_cpu_list(topology.offline_cpus())),
        );
    }
    if !topology.isolated_cpus().is_empty() {
        row(
            "isolated",
            &format!("CPU {}", format_cpu_list(topology.isolated_cpus())),
        );
    }
    row("processors", &processors(topology, plan, paint));
    out.push('\n');
    out += &nodes(topology, plan, paint);
    if topology.nodes().len() > 1 {
        out.push('\n');
        out += &render::distances(topology, paint);
    } else if packages > 1 {
        out += "one node: no distances\n";
    }
    out
}

/// `eth0, nvme0n1 on node 0; card0 on an unknown node`.
fn devices(topology: &Topology) -> String {
    let mut by_node = BTreeMap::<_, Vec<&str>>::new();
    for device in topology.devices() {
        // Those without a node last.
        let place = (device.node.is_none(), device.node);
        by_node.entry(place).or_default().push(&device.name);
    }
    let part = |((_, node), names): ((bool, Option<u32>), Vec<&str>)| {
        let node = node.map_or("an unknown node".to_owned(), |id| format!("node {id}"));
        format!("{} on {node}", names.join(", "))
    };
    let parts: Vec<String> = by_node.into_iter().map(part).collect();
    parts.join("; ")
}

/// How many Ps, and why not more.
fn processors(topology: &Topology, plan: &Plan, paint: Paint) -> String {
    let n_ps = plan.ps.len();
    let limits = topology.limits();
    match limits.filter(|limits| limits.processors() == n_ps) {
        Some(limits) => render::verdict(limits, paint),
        None => {
            let dropped = render::dropped(plan);
            let why = dropped.first().map(|why| format!(", {why}"));
            format!("{n_ps}{}", why.unwrap_or_default())
        }
    }
}

/// ` of 1.0 MiB`, if all are alike.
fn sizes(caches: &[Cache]) -> String {
    let mut sizes: Vec<String> = caches
        .iter()
        .filter_map(|cache| cache.size_bytes)
        .map(render::bytes)
        .collect();
    sizes.sort();
    sizes.dedup();
    match sizes.len() {
        0 => String::new(),
        _ => format!(" of {}", sizes.join(" or ")),
    }
}

/// A line for each node.
fn nodes(topology: &Topology, plan: &Plan, paint: Paint) -> String {
    let mut rows = vec![["node", "memory", "free", "cores", "Ps", "CPUs"].map(str::to_owned)];
    for (position, node) in topology.nodes().iter().enumerate() {
        let mut cores: Vec<usize> = topology
            .pus()
            .iter()
            .filter(|pu| pu.node == position)
            .map(|pu| pu.core)
            .collect();
        cores.sort_unstable();
        cores.dedup();
        let n_ps = plan
            .ps
            .iter()
            .filter(|p| plan.nodes[p.node].index == position)
            .count();
        let dash = "-".to_owned();
        rows.push([
            node.os_id.to_string(),
            match (node.has_memory, node.memory_bytes) {
                (false, _) => "none".to_owned(),
                (true, 0) => "?".to_owned(),
                (true, bytes) => render::bytes(bytes),
            },
            node.free_bytes
                .filter(|_| node.has_memory)
                .map_or(dash.clone(), render::bytes),
            cores.len().to_string(),
            n_ps.to_string(),
            if node.cpus.is_empty() {
                dash
            } else {
                format_cpu_list(&node.cpus)
            },
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    let mut out = String::new();
    for (nth, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match column {
                5 => write!(line, "  {cell}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        let _ = match nth {
            0 => writeln!(out, "{}", paint.title(line)),
            _ => writeln!(out, "{line}"),
        };
    }
    out
}

/// A line for each finding, and one for its cure; one line for all that is unknown.
pub(crate) fn findings(findings: &[Finding], paint: Paint) -> String {
    let mut out = String::new();
    let is_unknown = |finding: &&Finding| finding.status == Status::Unknown;
    let (unknown, known): (Vec<_>, Vec<_>) = findings.iter().partition(is_unknown);
    for finding in known {
        let status = match finding.status {
            Status::Good => paint.good("ok  "),
            Status::Unknown => paint.dim("?   "),
            Status::Note => paint.dim("note"),
            Status::Warning => paint.fair("warn"),
            Status::Failure => paint.bad("FAIL"),
        };
        let _ = writeln!(out, "{status}  {:<16}{}", finding.check, finding.found);
        if let Some(cure) = &finding.cure {
            let _ = writeln!(out, "{:22}{} {cure}", "", paint.title("cure:"));
        }
    }
    if !unknown.is_empty() {
        let names: Vec<&str> = unknown.iter().map(|finding| finding.check).collect();
        let _ = writeln!(out, "{}  {}", paint.dim("?   "), names.join(", "));
        let cure = "run windlass-topology doctor there: only that host can say";
        let _ = writeln!(out, "{:22}{} {cure}", "", paint.title("cure:"));
    }
    let count = |status| {
        findings
            .iter()
            .filter(|finding| finding.status == status)
            .count()
    };
    let _ = writeln!(
        out,
        "{} ok, {} to know, {} to improve, {} to repair{}",
        count(Status::Good),
        count(Status::Note),
        count(Status::Warning),
        count(Status::Failure),
        match unknown.len() {
            0 => String::new(),
            n => format!(", {n} unknown"),
        }
    );
    out
}

/// A line for each change, as patches have them.
pub(crate) fn changes(changes: &[Change], paint: Paint) -> String {
    let mut out = String::new();
    for Change { what, a, b } in changes {
        let _ = match (a, b) {
            (Some(a), Some(b)) => {
                let (a, b) = (paint.bad(a), paint.good(b));
                writeln!(out, "~ {what}: {a} -> {b}")
            }
            (Some(a), None) => writeln!(out, "- {what}: {}", paint.bad(a)),
            (None, Some(b)) => writeln!(out, "+ {what}: {}", paint.good(b)),
            (None, None) => Ok(()),
        };
    }
    out
}

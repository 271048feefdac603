//! Graphs for Graphviz.

use std::fmt::Write as _;

use super::words::{
    cache_title, core_title, count, cpu_note, device_title, level_name, memory, node_title,
    package_name, source, summary,
};
use crate::{LevelKind, Plan, Topology, measure::Measured, steal};

/// The machine as a tree; draw it with `dot -Tsvg`.
///
/// # Examples
///
/// ```
/// use windlass_topology::{Topology, render::dot};
///
/// let graph = dot::tree(&Topology::synthetic("core:2 pu:1")?);
/// assert!(graph.contains("core1 -> cpu1;"));
/// # Ok::<(), windlass_topology::Error>(())
/// ```
#[must_use]
pub fn tree(topology: &Topology) -> String {
    let mut graph = Graph::new("digraph", "machine");
    let title = format!("{}\n{}", source(topology), summary(topology));
    graph.node("machine", &title, "shape=box, style=bold");
    let mut seen = std::collections::BTreeSet::new();
    for pu in topology.pus() {
        let mut steps = vec![
            (
                format!("package{}", pu.package),
                format!("package {}", package_name(topology, pu.package)),
            ),
            (
                format!("node{}", pu.node),
                node_title(&topology.nodes()[pu.node]),
            ),
        ];
        if let Some(l3) = pu.l3 {
            let title = cache_title("L3", &topology.l3s()[l3], l3);
            steps.push((format!("l3_{l3}"), title));
        }
        if let Some(l2) = pu.l2 {
            let title = cache_title("L2", &topology.l2s()[l2], l2);
            steps.push((format!("l2_{l2}"), title));
        }
        steps.push((format!("core{}", pu.core), core_title(topology, pu.core)));
        let note = cpu_note(topology, pu).map(|note| format!("\n{note}"));
        let title = format!("CPU {}{}", pu.cpu, note.unwrap_or_default());
        steps.push((format!("cpu{}", pu.cpu), title));
        let mut above = "machine".to_owned();
        for (id, title) in steps {
            if seen.insert(id.clone()) {
                graph.node(&id, &title, "shape=box");
            }
            if seen.insert(format!("{above} {id}")) {
                graph.line(format_args!("{above} -> {id};"));
            }
            above = id;
        }
    }
    for (position, node) in topology.nodes().iter().enumerate() {
        if node.cpus.is_empty() {
            let id = format!("node{position}");
            let title = format!("{}\nno CPUs", node_title(node));
            graph.node(&id, &title, "shape=box, style=dashed");
            graph.line(format_args!("machine -> {id};"));
        }
    }
    for (position, device) in topology.devices().iter().enumerate() {
        let id = format!("device{position}");
        graph.node(&id, &device_title(device), "shape=box, style=rounded");
        let mut nodes = topology.nodes().iter();
        let node = nodes.position(|node| Some(node.os_id) == device.node);
        let above = node.map_or("machine".to_owned(), |node| format!("node{node}"));
        graph.line(format_args!("{above} -> {id};"));
    }
    graph.finish()
}

/// The Ps in clusters: nodes, and in them level 3 caches.
#[must_use]
pub fn placement(topology: &Topology, plan: &Plan) -> String {
    let mut graph = Graph::new("digraph", "ps");
    graph.line("rankdir=LR;");
    clusters(&mut graph, topology, plan, |p| {
        let p = &plan.ps[p];
        format!(
            "P{}\nCPU {}, {}",
            p.index,
            p.cpu,
            core_title(topology, p.core)
        )
    });
    for line in super::tables::dropped(plan) {
        let id = format!("dropped{}", graph.next());
        graph.node(&id, &line, "shape=note, color=gray");
    }
    graph.finish()
}

/// The steal order: of one P every level, of all Ps their nearest level and the links between nodes.
#[must_use]
pub fn steal(topology: &Topology, plan: &Plan, only: Option<usize>) -> String {
    let mut graph = Graph::new("digraph", "steal");
    graph.line("rankdir=LR;");
    clusters(&mut graph, topology, plan, |p| {
        format!("P{p}\nCPU {}", plan.ps[p].cpu)
    });
    match only {
        Some(thief) => one_thief(&mut graph, plan, thief),
        None => all_thieves(&mut graph, plan),
    }
    graph.finish()
}

fn one_thief(graph: &mut Graph, plan: &Plan, thief: usize) {
    graph.line(format_args!(
        "p{thief} [style=filled, fillcolor=lightgray];"
    ));
    for (rank, level) in plan.ps[thief].levels.iter().enumerate() {
        let gate = match level.kind {
            LevelKind::Remote => format!(
                ", style=dashed, tooltip=\"gate, or {} µs\"",
                steal::patience(level.distance).as_micros()
            ),
            _ => String::new(),
        };
        for victim in &level.victims {
            let label = format!("{} {}", rank + 1, level_name(level.kind));
            graph.line(format_args!(
                "p{thief} -> p{victim} [label=\"{label}\", weight={}{gate}];",
                100 / (rank + 1)
            ));
        }
    }
}

/// A link that is the same in both directions is one line.
fn all_thieves(graph: &mut Graph, plan: &Plan) {
    let nearest = |p: usize| {
        let levels = plan.ps[p].levels.first();
        levels.filter(|level| level.kind != LevelKind::Remote)
    };
    for p in 0..plan.ps.len() {
        let Some(level) = nearest(p) else { continue };
        for &victim in &level.victims {
            let is_mutual = nearest(victim).is_some_and(|level| level.victims.contains(&p));
            if is_mutual && victim < p {
                continue;
            }
            let label = level_name(level.kind);
            let ends = if is_mutual { "both" } else { "forward" };
            graph.line(format_args!(
                "p{p} -> p{victim} [label=\"{label}\", dir={ends}];"
            ));
        }
    }
    let distance = |from: usize, to: usize| {
        let mut levels = plan.ps[plan.nodes[from].ps[0]].levels.iter();
        let level = levels.find(|level| level.victims.contains(&plan.nodes[to].ps[0]));
        level.map_or(0, |level| level.distance)
    };
    for (from, a) in plan.nodes.iter().enumerate() {
        for (to, b) in plan.nodes.iter().enumerate() {
            let (there, back) = (distance(from, to), distance(to, from));
            if from == to || (there == back && to < from) {
                continue;
            }
            let ends = if there == back { "both" } else { "forward" };
            graph.line(format_args!(
                "p{} -> p{} [label=\"remote {there}\", style=dashed, dir={ends}, \
                 ltail=cluster_node{}, lhead=cluster_node{}];",
                a.ps[0], b.ps[0], a.index, b.index
            ));
        }
    }
}

/// The nodes and the ways between them; draw it with `neato` or `dot`.
#[must_use]
pub fn distances(topology: &Topology, measured: Option<&Measured>) -> String {
    let mut graph = Graph::new("digraph", "distances");
    for (position, node) in topology.nodes().iter().enumerate() {
        let cpus = count(node.cpus.len(), "CPU");
        let title = format!("node {}\n{cpus}, {}", node.os_id, memory(node));
        graph.node(&format!("node{position}"), &title, "shape=box");
    }
    let time = |from: u32, to: u32| {
        let table = &measured?.nodes;
        let position = |os_id: u32| {
            let name = os_id.to_string();
            table.groups.iter().position(|group| group.name == name)
        };
        table.ns[position(from)?][position(to)?]
    };
    let nodes = topology.nodes();
    for from in 0..nodes.len() {
        for to in 0..nodes.len() {
            let (there, back) = (topology.distance(from, to), topology.distance(to, from));
            // One line for both ways, unless they differ.
            if from == to || (there == back && to < from) {
                continue;
            }
            let ns = time(nodes[from].os_id, nodes[to].os_id);
            let ns = ns.map(|ns| format!("\\n{ns:.0} ns")).unwrap_or_default();
            let both = if there == back { "both" } else { "forward" };
            graph.line(format_args!(
                "node{from} -> node{to} [label=\"{there}{ns}\", len={:.1}, dir={both}];",
                f64::from(there) / 8.0
            ));
        }
    }
    graph.finish()
}

fn clusters(graph: &mut Graph, topology: &Topology, plan: &Plan, title: impl Fn(usize) -> String) {
    for node in &plan.nodes {
        graph.line(format_args!("subgraph cluster_node{} {{", node.index));
        graph.line(format_args!("label=\"node {}\";", node.os_id));
        for ps in node.ps.chunk_by(|&a, &b| plan.ps[a].l3 == plan.ps[b].l3) {
            let l3 = plan.ps[ps[0]].l3;
            if let Some(l3) = l3 {
                let title = cache_title("L3", &topology.l3s()[l3], l3);
                graph.line(format_args!(
                    "subgraph cluster_node{}_l3_{l3} {{",
                    node.index
                ));
                graph.line(format_args!("label=\"{title}\"; style=dashed;"));
            }
            for &p in ps {
                graph.node(&format!("p{p}"), &title(p), "shape=box");
            }
            if l3.is_some() {
                graph.line("}");
            }
        }
        graph.line("}");
    }
}

struct Graph {
    text: String,
    n_ids: usize,
}

impl Graph {
    fn new(kind: &str, name: &str) -> Self {
        Self {
            text: format!(
                "{kind} {name} {{\ncompound=true;\ngraph [fontname=Helvetica];\n\
                 node [fontname=Helvetica];\nedge [fontname=Helvetica];\n"
            ),
            n_ids: 0,
        }
    }

    fn next(&mut self) -> usize {
        self.n_ids += 1;
        self.n_ids
    }

    fn node(&mut self, id: &str, title: &str, style: &str) {
        let title = title
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        self.line(format_args!("{id} [label=\"{title}\", {style}];"));
    }

    fn line(&mut self, line: impl std::fmt::Display) {
        let _ = writeln!(self.text, "{line}");
    }

    fn finish(mut self) -> String {
        self.text.push_str("}\n");
        self.text
    }
}

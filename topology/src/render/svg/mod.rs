//! Pictures: floor plans of the machine, and squares of numbers, as SVG without any library.
//!
//! A picture brings its own white ground and dark letters, so that it can be read on a page of any
//! colour. No information is in a colour alone: it is also written.

mod draw;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    tables::{dropped, origin, wakes},
    words::{count, cpu_note, level_name, source, summary},
};
use crate::{Level, LevelKind, Plan, PlanNode, Pu, Topology, measure::Measured, steal};
use draw::{Cell, N_HEATS, Note, Square, floor_plan, heat, node_colour, squares};

/// The machine as boxes in boxes, a cell for each CPU, a box for each device.
///
/// # Examples
///
/// ```
/// use windlass_topology::{Topology, render::svg};
///
/// let picture = svg::tree(&Topology::synthetic("pack:2 [numa] core:2 pu:2")?);
/// assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
/// # Ok::<(), windlass_topology::Error>(())
/// ```
#[must_use]
pub fn tree(topology: &Topology) -> String {
    let cell = |pu: &Pu| match cpu_note(topology, pu) {
        Some(note) => Cell::pale(&pu.cpu.to_string(), note),
        None => Cell::new(&pu.cpu.to_string(), "", node_colour(pu.node)),
    };
    let mut notes = Vec::new();
    if !topology.offline_cpus().is_empty() {
        let cpus = crate::format_cpu_list(topology.offline_cpus());
        notes.push(Note::plain(format!("offline: CPU {cpus}")));
    }
    let title = format!("The machine ({})", source(topology));
    floor_plan(topology, &title, &summary(topology), &cell, &notes)
}

/// The machine with the P of each CPU.
#[must_use]
pub fn placement(topology: &Topology, plan: &Plan) -> String {
    let mut on_cpu = BTreeMap::<usize, Vec<usize>>::new();
    for p in &plan.ps {
        on_cpu.entry(p.cpu).or_default().push(p.index);
    }
    let cell = |&Pu { cpu, .. }: &Pu| match on_cpu.get(&cpu).map(Vec::as_slice) {
        Some(&[p, ref more @ ..]) => {
            let more = if more.is_empty() {
                String::new()
            } else {
                format!("+{}", more.len())
            };
            let node = plan.nodes[plan.ps[p].node].index;
            Cell::new(&format!("P{p}{more}"), &cpu.to_string(), node_colour(node))
        }
        _ => Cell::pale("–", &cpu.to_string()),
    };
    let notes: Vec<Note> = dropped(plan).into_iter().map(Note::plain).collect();
    let title = format!("Where the Ps are ({})", source(topology));
    let subtitle = format!(
        "{} on {}; below each P its CPU",
        count(plan.ps.len(), "P"),
        summary(topology)
    );
    floor_plan(topology, &title, &subtitle, &cell, &notes)
}

/// The machine as one P sees it: its own cell dark, every other by the level it is in.
///
/// # Panics
///
/// If the plan has no such P.
#[must_use]
pub fn steal(topology: &Topology, plan: &Plan, thief: usize) -> String {
    let ranks = steal::ranks(plan, thief);
    let levels = &plan.ps[thief].levels;
    let mut on_cpu = BTreeMap::<usize, Vec<usize>>::new();
    for p in &plan.ps {
        on_cpu.entry(p.cpu).or_default().push(p.index);
    }
    let cell = |&Pu { cpu, .. }: &Pu| {
        let Some(ps) = on_cpu.get(&cpu) else {
            return Cell::pale("–", &cpu.to_string());
        };
        let nearest = *ps.iter().min_by_key(|&&p| ranks[p]).expect("a P is on it");
        match ranks[nearest] {
            0 => Cell::dark(&format!("P{nearest}"), &cpu.to_string()),
            rank => Cell::new(
                &format!("P{nearest}"),
                &cpu.to_string(),
                heat(rank - 1, levels.len()),
            ),
        }
    };
    let note = |(rank, level): (usize, &Level)| {
        let victims = list(&level.victims, 12);
        let text = match level.kind {
            LevelKind::Remote => format!(
                "{}. remote, distance {}: {victims}; only past the gate, or after {} µs",
                rank + 1,
                level.distance,
                steal::patience(level.distance).as_micros()
            ),
            kind => format!("{}. same {}: {victims}", rank + 1, level_name(kind)),
        };
        Note {
            colour: Some(heat(rank, levels.len())),
            text,
        }
    };
    let mut notes: Vec<Note> = levels.iter().enumerate().map(note).collect();
    let wakes = wakes(plan, thief, |ps| list(ps, 6));
    let beyond = match wakes.contains("||") {
        true => "; beyond || only where its node has no idle P",
        false => "",
    };
    notes.push(Note::plain(format!("wakes: {wakes}{beyond}")));
    let title = format!("Whom P{thief} steals from ({})", source(topology));
    let subtitle = "from near to far; a random start inside each level";
    floor_plan(topology, &title, subtitle, &cell, &notes)
}

/// The steal order of all Ps as a square: row by thief, column by victim.
#[must_use]
pub fn steal_matrix(plan: &Plan) -> String {
    let names: Vec<String> = plan.ps.iter().map(|p| p.index.to_string()).collect();
    let ranks: Vec<Vec<usize>> = (0..plan.ps.len()).map(|p| steal::ranks(plan, p)).collect();
    let most = ranks.iter().flatten().copied().max().unwrap_or(0);
    let node = |node: &PlanNode| (format!("node {}", node.os_id), node.ps.len());
    let square = Square {
        title: "Steal order: thief down, victim across, 1 is the nearest level".to_owned(),
        names,
        cell: &|thief, victim| match ranks[thief][victim] {
            0 => Cell::dark("", ""),
            rank => Cell::new(&rank.to_string(), "", heat(rank - 1, most)),
        },
        groups: plan.nodes.iter().map(node).collect(),
        notes: (0..most).map(|rank| level_note(plan, rank, most)).collect(),
    };
    squares(&[square])
}

/// The things that a thief shares with its victims of one rank, where Ps differ all that occur.
fn level_note(plan: &Plan, rank: usize, n_ranks: usize) -> Note {
    let levels = plan.ps.iter().filter_map(|p| p.levels.get(rank));
    let shared: BTreeSet<(LevelKind, u32)> = levels.map(|l| (l.kind, l.distance)).collect();
    let text = |(kind, distance): &(LevelKind, u32)| match kind {
        LevelKind::Remote => format!("another node at distance {distance}, past the gate"),
        kind => format!("same {}", level_name(*kind)),
    };
    let texts: BTreeSet<String> = shared.iter().map(text).collect();
    let texts: Vec<String> = texts.into_iter().collect();
    Note {
        colour: Some(heat(rank, n_ranks)),
        text: format!("{}. {}", rank + 1, texts.join(", or ")),
    }
}

/// The distances between the nodes, and beside them the measured times.
#[must_use]
pub fn distances(topology: &Topology, measured: Option<&Measured>) -> String {
    let rows = &topology.distances().rows;
    let mut steps: Vec<u32> = rows.concat();
    steps.sort_unstable();
    steps.dedup();
    let slit = |from: usize, to: usize| {
        let value: u32 = rows[from][to];
        let rank = steps.iter().position(|&step| step == value).unwrap_or(0);
        Cell::new(&value.to_string(), "", heat(rank, steps.len()))
    };
    let node_names = topology.nodes().iter().map(|node| node.os_id.to_string());
    let mut parts = vec![Square {
        title: format!("Distances between nodes ({})", origin(topology)),
        names: node_names.collect(),
        cell: &slit,
        groups: Vec::new(),
        notes: Vec::new(),
    }];
    let ns_cells: Vec<_> = measured
        .into_iter()
        .flat_map(|measured| {
            [
                ("nodes", &measured.nodes),
                ("level 3 caches", &measured.l3s),
            ]
        })
        .filter(|(_, table)| !table.groups.is_empty())
        .map(|(what, table)| {
            let all = table.ns.iter().flatten().flatten().copied();
            let least = all.clone().fold(f64::INFINITY, f64::min);
            let most = all.fold(least, f64::max);
            let cell = move |from: usize, to: usize| match table.ns[from][to] {
                Some(ns) => {
                    let share = (ns - least) / (most - least).max(1.0);
                    let rank = (share * (N_HEATS - 1) as f64).round() as usize;
                    Cell::new(&format!("{ns:.0}"), "", heat(rank, N_HEATS))
                }
                None => Cell::pale("–", ""),
            };
            (what, table, cell)
        })
        .collect();
    parts.extend(ns_cells.iter().map(|(what, table, cell)| {
        Square {
            title: format!("A cache line between {what}, ns one way (measured)"),
            names: table
                .groups
                .iter()
                .map(|group| group.name.clone())
                .collect(),
            cell,
            groups: Vec::new(),
            notes: Vec::new(),
        }
    }));
    squares(&parts)
}

/// `P1 P2 P3 ..`.
fn list(ps: &[usize], most: usize) -> String {
    let mut names: Vec<String> = ps.iter().take(most).map(|p| format!("P{p}")).collect();
    if ps.len() > most {
        names.push(format!("and {} more", ps.len() - most));
    }
    names.join(" ")
}

//! Pictures: floor plans of the machine, and squares of numbers, as SVG without any library.
//!
//! A picture brings its own white ground and dark letters, so that it can be read on a page of any
//! colour. Colours never say anything alone: what they show is also written.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    blocks::{BlockKind, Metrics, Placed, blocks, longest_core_title, place},
    tables::{dropped, origin, wakes},
    words::{count, cpu_note, level_name, source, summary},
};
use crate::{Level, LevelKind, Plan, Pu, Topology, measure::Measured, steal};

const INK: &str = "#1c2430";
const PALE_INK: &str = "#6b7686";
/// Of the ground, and of boxes in boxes.
const WHITE: &str = "#ffffff";
/// Grounds for CPUs: nodes in turn.
const NODES: [&str; 8] = [
    "#cfe3f7", "#d5efd2", "#fde3c1", "#e6d8f2", "#fbd5d5", "#d3efee", "#f4efc0", "#e3ddd3",
];
/// From near to far.
const HEAT: [&str; 6] = [
    "#2f6fb0", "#6fa8d6", "#b9d9ee", "#fbe3b0", "#f3ab72", "#d9634c",
];
const NOBODY: &str = "#eceef1";
/// The most that a row of a floor plan may be wide; small machines need no more than the first.
const WIDTHS: [usize; 5] = [1160, 1700, 2400, 3400, 4800];
const MARGIN: usize = 16;
const LINE: usize = 17;

/// The machine as boxes in boxes, a cell for each CPU.
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
        None => Cell::new(&pu.cpu.to_string(), "", NODES[pu.node % NODES.len()]),
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
            Cell::new(
                &format!("P{p}{more}"),
                &cpu.to_string(),
                NODES[node % NODES.len()],
            )
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
        let victims = list(&level.victims, 24);
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
    let square = Square {
        title: "Steal order: thief down, victim across, 1 is the nearest level".to_owned(),
        names,
        cell: &|thief, victim| match ranks[thief][victim] {
            0 => Cell::dark("", ""),
            rank => Cell::new(&rank.to_string(), "", heat(rank - 1, most)),
        },
    };
    squares(&[square])
}

/// The distances between the nodes, and beside them what was measured.
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
                    let rank = (share * (HEAT.len() - 1) as f64).round() as usize;
                    Cell::new(&format!("{ns:.0}"), "", heat(rank, HEAT.len()))
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
        }
    }));
    squares(&parts)
}

/// The colour of one of `n` ranks.
fn heat(rank: usize, n: usize) -> &'static str {
    let last = HEAT.len() - 1;
    let position = if n <= 1 { 1 } else { rank * last / (n - 1) };
    HEAT[position.min(last)]
}

/// `P1 P2 P3 ..`.
fn list(ps: &[usize], most: usize) -> String {
    let mut names: Vec<String> = ps.iter().take(most).map(|p| format!("P{p}")).collect();
    if ps.len() > most {
        names.push(format!("and {} more", ps.len() - most));
    }
    names.join(" ")
}

/// A small box with one or two lines.
struct Cell {
    text: String,
    below: String,
    fill: &'static str,
    ink: &'static str,
}

impl Cell {
    fn new(text: &str, below: &str, fill: &'static str) -> Self {
        let ink = if fill == HEAT[0] || fill == HEAT[5] {
            WHITE
        } else {
            INK
        };
        Self {
            text: text.to_owned(),
            below: below.to_owned(),
            fill,
            ink,
        }
    }

    fn dark(text: &str, below: &str) -> Self {
        Self {
            ink: WHITE,
            ..Self::new(text, below, INK)
        }
    }

    fn pale(text: &str, below: &str) -> Self {
        Self {
            ink: PALE_INK,
            ..Self::new(text, below, NOBODY)
        }
    }
}

/// A line below the picture, with a sample of a colour.
struct Note {
    colour: Option<&'static str>,
    text: String,
}

impl Note {
    fn plain(text: String) -> Self {
        Self { colour: None, text }
    }
}

fn floor_plan(
    topology: &Topology,
    title: &str,
    subtitle: &str,
    cell: &dyn Fn(&Pu) -> Cell,
    notes: &[Note],
) -> String {
    let cells: BTreeMap<usize, Cell> = topology.pus().iter().map(|pu| (pu.cpu, cell(pu))).collect();
    let texts = cells.values();
    let widest = texts.map(|cell| bold_width(&cell.text, 13).max(text_width(&cell.below, 10)));
    let has_below = cells.values().any(|cell| !cell.below.is_empty());
    let cell_width = widest.max().unwrap_or(0).max(24) + 10;
    let metrics = |max_width| Metrics {
        cell: (cell_width, if has_below { 34 } else { 24 }),
        gap: (8, 8),
        side: 8,
        top: 24,
        bottom: 8,
        title_width: |n| n * 15 / 2 + 16,
        core_title: longest_core_title(topology),
        max_width,
    };
    let blocks = blocks(topology);
    // A large machine makes a wide picture rather than an endless one.
    let tried = WIDTHS.map(|max_width| place(&blocks, &metrics(max_width)));
    let looks_well = |(_, width, height): &&(_, usize, usize)| height <= width;
    let best = tried.iter().find(looks_well).or(tried.last());
    let (placed, width, height) = best.expect("there are widths to try");
    let (width, height, metrics) = (*width, *height, metrics(0));
    let top = MARGIN + 2 * LINE + 10;
    let texts = notes.iter().map(|note| text_width(&note.text, 12) + 22);
    let texts = texts.chain([bold_width(title, 16), text_width(subtitle, 12)]);
    let width = texts.chain([width]).max().unwrap_or(0) + 2 * MARGIN;
    let notes_top = top + height + LINE;
    let total = notes_top + notes.len() * LINE + if notes.is_empty() { 0 } else { MARGIN };

    let mut svg = Svg::new(width, total, title);
    svg.text(MARGIN, MARGIN + 14, 16, INK, "start", true, title);
    svg.text(
        MARGIN,
        MARGIN + 14 + LINE,
        12,
        PALE_INK,
        "start",
        false,
        subtitle,
    );
    for placed in placed {
        svg.block(placed, (MARGIN, top), &metrics, &cells);
    }
    for (nth, note) in notes.iter().enumerate() {
        let y = notes_top + nth * LINE + 10;
        let mut x = MARGIN;
        if let Some(colour) = note.colour {
            svg.rect((x, y - 11), (14, 14), colour, PALE_INK, 2);
            x += 22;
        }
        svg.text(x, y, 12, INK, "start", false, &note.text);
    }
    svg.finish()
}

/// A square of numbers.
struct Square<'a> {
    title: String,
    names: Vec<String>,
    cell: &'a dyn Fn(usize, usize) -> Cell,
}

/// Squares side by side.
fn squares(squares: &[Square<'_>]) -> String {
    let side = |square: &Square<'_>| match square.names.len() {
        ..=16 => 38,
        17..=40 => 26,
        41..=96 => 14,
        _ => 6,
    };
    let head = 34;
    let width_of = |square: &Square<'_>| {
        (head + square.names.len() * side(square)).max(bold_width(&square.title, 14))
    };
    let width: usize = squares
        .iter()
        .map(|square| width_of(square) + 2 * MARGIN)
        .sum();
    let heights = squares
        .iter()
        .map(|square| square.names.len() * side(square));
    let height = heights.max().unwrap_or(0) + head + LINE + 2 * MARGIN;
    let title = squares.first().map_or("", |square| square.title.as_str());
    let mut svg = Svg::new(width, height, title);
    let mut left = MARGIN;
    for square in squares {
        let (side, top) = (side(square), MARGIN + LINE + head);
        svg.text(left, MARGIN + 12, 14, INK, "start", true, &square.title);
        let size = if side >= 26 { 11 } else { 8 };
        for (nth, name) in square.names.iter().enumerate() {
            // Where there is no room for all names, every eighth has to do.
            if side >= 14 || nth % 8 == 0 {
                let middle = nth * side + side / 2;
                svg.text(
                    left + head + middle,
                    top - 6,
                    size,
                    PALE_INK,
                    "middle",
                    false,
                    name,
                );
                svg.text(
                    left + head - 6,
                    top + middle + 4,
                    size,
                    PALE_INK,
                    "end",
                    false,
                    name,
                );
            }
        }
        for from in 0..square.names.len() {
            let cells: Vec<Cell> = (0..square.names.len())
                .map(|to| (square.cell)(from, to))
                .collect();
            let (mut x, y) = (left + head, top + from * side);
            // Small cells of one colour are one stripe, large ones have a number each.
            for run in cells.chunk_by(|a, b| side < 14 && a.fill == b.fill) {
                let (width, fill) = (run.len() * side, run[0].fill);
                svg.rect(
                    (x, y),
                    (width, side),
                    fill,
                    if side < 14 { fill } else { WHITE },
                    0,
                );
                if side >= 14 {
                    let size = if side >= 26 { 12 } else { 8 };
                    let middle = (x + side / 2, y + side / 2 + size / 3);
                    svg.text(
                        middle.0,
                        middle.1,
                        size,
                        run[0].ink,
                        "middle",
                        false,
                        &run[0].text,
                    );
                }
                x += width;
            }
        }
        left += width_of(square) + 2 * MARGIN;
    }
    svg.finish()
}

/// About how wide letters are; nobody but the viewer knows better.
fn text_width(text: &str, size: usize) -> usize {
    text.chars().count() * size * 12 / 20
}

fn bold_width(text: &str, size: usize) -> usize {
    text.chars().count() * size * 14 / 20
}

struct Svg(String);

impl Svg {
    fn new(width: usize, height: usize, title: &str) -> Self {
        let mut svg = Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" \
             font-family=\"Helvetica, Arial, 'Liberation Sans', sans-serif\">\n\
             <title>{}</title>\n",
            escaped(title)
        ));
        svg.rect((0, 0), (width, height), WHITE, WHITE, 0);
        svg
    }

    fn rect(
        &mut self,
        (x, y): (usize, usize),
        (width, height): (usize, usize),
        fill: &str,
        stroke: &str,
        radius: usize,
    ) {
        let _ = writeln!(
            self.0,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{radius}\" \
             fill=\"{fill}\" stroke=\"{stroke}\"/>"
        );
    }

    #[allow(clippy::too_many_arguments)] // a place, a look and the words
    fn text(
        &mut self,
        x: usize,
        y: usize,
        size: usize,
        fill: &str,
        anchor: &str,
        is_bold: bool,
        text: &str,
    ) {
        if text.is_empty() {
            return;
        }
        let weight = if is_bold { " font-weight=\"bold\"" } else { "" };
        let _ = writeln!(
            self.0,
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\"{weight} fill=\"{fill}\" \
             text-anchor=\"{anchor}\">{}</text>",
            escaped(text)
        );
    }

    fn block(
        &mut self,
        placed: &Placed<'_>,
        offset: (usize, usize),
        metrics: &Metrics,
        cells: &BTreeMap<usize, Cell>,
    ) {
        let (fill, is_bold) = match placed.block.kind {
            BlockKind::Package => ("#f3f4f6", true),
            BlockKind::Node => (WHITE, true),
            BlockKind::Memory => ("#fbf7ea", true),
            BlockKind::Cache => ("#f6f9fc", false),
            BlockKind::Core => (WHITE, false),
        };
        let (x, y) = (placed.x + offset.0, placed.y + offset.1);
        self.rect((x, y), (placed.width, placed.height), fill, "#9aa4b2", 4);
        self.text(
            x + 8,
            y + 16,
            11,
            INK,
            "start",
            is_bold,
            &placed.block.title,
        );
        for (&(x, y), cpu) in placed.cells.iter().zip(&placed.block.cpus) {
            let cell = &cells[cpu];
            let (x, y) = (x + offset.0, y + offset.1);
            self.rect((x, y), metrics.cell, cell.fill, "#7d8896", 3);
            let middle = x + metrics.cell.0 / 2;
            // In the middle of a cell that could have had a second line.
            let down = if cell.below.is_empty() {
                metrics.cell.1 / 2 + 5
            } else {
                16
            };
            self.text(middle, y + down, 13, cell.ink, "middle", true, &cell.text);
            self.text(middle, y + 29, 10, cell.ink, "middle", false, &cell.below);
        }
        for inner in &placed.inside {
            self.block(inner, offset, metrics, cells);
        }
    }

    fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

//! Boxes, squares and letters.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{
    Pu, Topology,
    render::blocks::{BlockKind, Metrics, Placed, blocks, longest_core_title, place},
};

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
/// How many colours there are from near to far.
pub(super) const N_HEATS: usize = HEAT.len();

/// The colour of one of `n` ranks.
pub(super) fn heat(rank: usize, n: usize) -> &'static str {
    let last = HEAT.len() - 1;
    let position = if n <= 1 { 1 } else { rank * last / (n - 1) };
    HEAT[position.min(last)]
}

/// The ground of a node's CPUs.
pub(super) fn node_colour(node: usize) -> &'static str {
    NODES[node % NODES.len()]
}

/// A small box with one or two lines.
pub(super) struct Cell {
    text: String,
    below: String,
    fill: &'static str,
    ink: &'static str,
}

impl Cell {
    pub(super) fn new(text: &str, below: &str, fill: &'static str) -> Self {
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

    pub(super) fn dark(text: &str, below: &str) -> Self {
        Self {
            ink: WHITE,
            ..Self::new(text, below, INK)
        }
    }

    pub(super) fn pale(text: &str, below: &str) -> Self {
        Self {
            ink: PALE_INK,
            ..Self::new(text, below, NOBODY)
        }
    }
}

/// A line below the picture, with a sample of a colour.
pub(super) struct Note {
    pub(super) colour: Option<&'static str>,
    pub(super) text: String,
}

impl Note {
    pub(super) fn plain(text: String) -> Self {
        Self { colour: None, text }
    }
}

pub(super) fn floor_plan(
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
pub(super) struct Square<'a> {
    pub(super) title: String,
    pub(super) names: Vec<String>,
    pub(super) cell: &'a dyn Fn(usize, usize) -> Cell,
}

/// Squares side by side.
pub(super) fn squares(squares: &[Square<'_>]) -> String {
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

/// The approximate width of letters; the exact one depends on the viewer's font.
fn text_width(text: &str, size: usize) -> usize {
    text.chars().count() * size * 12 / 20
}

fn bold_width(text: &str, size: usize) -> usize {
    text.chars().count() * size * 14 / 20
}

struct Svg(String);

impl Svg {
    pub(super) fn new(width: usize, height: usize, title: &str) -> Self {
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
            BlockKind::Device => ("#e9f6ee", false),
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

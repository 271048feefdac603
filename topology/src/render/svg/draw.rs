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
/// The most that a square may be wide, unless its cells would be invisible.
const LARGEST: usize = 1600;
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

    fn width(&self) -> usize {
        text_width(&self.text, 12) + 22
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
    let texts = notes.iter().map(Note::width);
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
    svg.notes(notes, (MARGIN, notes_top));
    svg.finish()
}

/// A square of numbers.
pub(super) struct Square<'a> {
    pub(super) title: String,
    pub(super) names: Vec<String>,
    pub(super) cell: &'a dyn Fn(usize, usize) -> Cell,
    /// Names of neighbours that belong together, and how many these are: the axes of a square that is too
    /// large for all names. Empty where there are none.
    pub(super) groups: Vec<(String, usize)>,
    pub(super) notes: Vec<Note>,
}

impl Square<'_> {
    /// The sides of a cell.
    fn side(&self) -> usize {
        match self.names.len() {
            ..=16 => 38,
            17..=40 => 26,
            41..=96 => 14,
            n => (LARGEST / n).clamp(2, 6),
        }
    }

    /// Whether cells are too small for numbers, and the axes for all names.
    fn is_coarse(&self) -> bool {
        self.side() < 14
    }

    /// The room for the axes, to the left and above.
    fn heads(&self) -> (usize, usize) {
        match self.is_coarse() {
            true => (100, 50),
            false => (34, 34),
        }
    }

    fn length(&self) -> usize {
        self.names.len() * self.side()
    }

    fn width(&self) -> usize {
        let notes = self.notes.iter().map(Note::width);
        let widths = notes.chain([bold_width(&self.title, 14), self.heads().0 + self.length()]);
        widths.max().unwrap_or(0)
    }

    fn height(&self) -> usize {
        let notes = match self.notes.len() {
            0 => 0,
            n => (n + 1) * LINE,
        };
        LINE + self.heads().1 + self.length() + notes
    }
}

/// Squares side by side.
pub(super) fn squares(squares: &[Square<'_>]) -> String {
    let width: usize = squares
        .iter()
        .map(|square| square.width() + 2 * MARGIN)
        .sum();
    let height = squares.iter().map(Square::height).max().unwrap_or(0) + 2 * MARGIN;
    let title = squares.first().map_or("", |square| square.title.as_str());
    let mut svg = Svg::new(width, height, title);
    let mut left = MARGIN;
    for square in squares {
        svg.square(square, left);
        left += square.width() + 2 * MARGIN;
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

    fn notes(&mut self, notes: &[Note], (left, top): (usize, usize)) {
        for (nth, note) in notes.iter().enumerate() {
            let y = top + nth * LINE + 10;
            let mut x = left;
            if let Some(colour) = note.colour {
                self.rect((x, y - 11), (14, 14), colour, PALE_INK, 2);
                x += 22;
            }
            self.text(x, y, 12, INK, "start", false, &note.text);
        }
    }

    fn square(&mut self, square: &Square<'_>, left: usize) {
        let (head, above) = square.heads();
        let corner = (left + head, MARGIN + LINE + above);
        self.text(left, MARGIN + 12, 14, INK, "start", true, &square.title);
        match square.is_coarse() {
            true => self.coarse_axes(square, left, corner),
            false => self.all_names(square, corner),
        }
        for from in 0..square.names.len() {
            self.row(square, from, (corner.0, corner.1 + from * square.side()));
        }
        let below = corner.1 + square.length() + LINE;
        self.notes(&square.notes, (left, below));
    }

    fn all_names(&mut self, square: &Square<'_>, (left, top): (usize, usize)) {
        let side = square.side();
        let size = if side >= 26 { 11 } else { 8 };
        for (nth, name) in square.names.iter().enumerate() {
            let middle = nth * side + side / 2;
            let (x, y) = (left + middle, top + middle + 4);
            self.text(x, top - 6, size, PALE_INK, "middle", false, name);
            self.text(left - 6, y, size, PALE_INK, "end", false, name);
        }
    }

    /// Some of the names, and beyond them the groups, with a line where one ends.
    fn coarse_axes(&mut self, square: &Square<'_>, edge: usize, (left, top): (usize, usize)) {
        let side = square.side();
        let step = (side * 8..).step_by(side * 8).find(|length| *length >= 40);
        let step = step.map_or(1, |length| length / side);
        for (nth, name) in square.names.iter().enumerate().step_by(step) {
            let start = nth * side;
            self.text(left + start, top - 6, 10, PALE_INK, "start", false, name);
            self.text(left - 6, top + start + 10, 10, PALE_INK, "end", false, name);
        }
        let mut first = 0;
        let mut free = (0, 0);
        for (name, n) in &square.groups {
            let (start, length) = (first * side, n * side);
            // A name that does not fit beside the one before is left out.
            if start >= free.0 {
                self.text(left + start, top - 22, 12, INK, "start", true, name);
                free.0 = start + bold_width(name, 12) + 8;
            }
            if start >= free.1 {
                self.text(edge, top + start + 11, 12, INK, "start", true, name);
                free.1 = start + LINE;
            }
            self.rect(
                (left + start, top - 19),
                (length.saturating_sub(4), 2),
                INK,
                INK,
                0,
            );
            self.rect(
                (left - 40, top + start),
                (2, length.saturating_sub(4)),
                INK,
                INK,
                0,
            );
            first += n;
        }
    }

    /// A row of cells: small ones of one colour are one stripe, large ones have a number each.
    fn row(&mut self, square: &Square<'_>, from: usize, (left, y): (usize, usize)) {
        let side = square.side();
        let cells = (0..square.names.len()).map(|to| (square.cell)(from, to));
        let cells: Vec<Cell> = cells.collect();
        let mut x = left;
        for run in cells.chunk_by(|a, b| square.is_coarse() && a.fill == b.fill) {
            let (width, fill) = (run.len() * side, run[0].fill);
            let stroke = if square.is_coarse() { fill } else { WHITE };
            self.rect((x, y), (width, side), fill, stroke, 0);
            if !square.is_coarse() {
                let size = if side >= 26 { 12 } else { 8 };
                let (x, y) = (x + side / 2, y + side / 2 + size / 3);
                self.text(x, y, size, run[0].ink, "middle", false, &run[0].text);
            }
            x += width;
        }
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

//! The machine as boxes of line-drawing characters.

use super::{
    blocks::{BlockKind, Metrics, Placed, blocks, longest_core_title, place},
    paint::{Ink, Paint},
    words::{source, summary},
};
use crate::{Topology, format_cpu_list};

/// The characters of a box: left upper corner, right upper, left lower, right lower, horizontal,
/// vertical.
type Lines = [char; 6];
const UNICODE: Lines = ['┌', '┐', '└', '┘', '─', '│'];
const ASCII: Lines = ['+', '+', '+', '+', '-', '|'];

/// The machine as nested boxes, a number for each CPU, in at most `width` columns where that can be.
///
/// A CPU that is not allowed has an `x` after its number, an isolated one an `i`. Devices are boxes without
/// numbers.
///
/// # Examples
///
/// ```
/// use windlass_topology::{Topology, render::{self, Paint}};
///
/// let machine = Topology::synthetic("pack:1 [numa(memory=1GiB)] l3:1(size=32MiB) core:2 pu:2")?;
/// let art = render::art(&machine, 80, false, Paint::Plain);
/// assert_eq!(art.lines().skip(1).collect::<Vec<_>>(), [
///     "┌ package 0 ────────────────────┐",
///     "│ ┌ node 0 · 1.0 GiB ─────────┐ │",
///     "│ │ ┌ L3 #0 · 32.0 MiB ─────┐ │ │",
///     "│ │ │ ┌ core 0 ┐ ┌ core 1 ┐ │ │ │",
///     "│ │ │ │ 0  1   │ │ 2  3   │ │ │ │",
///     "│ │ │ └────────┘ └────────┘ │ │ │",
///     "│ │ └───────────────────────┘ │ │",
///     "│ └───────────────────────────┘ │",
///     "└───────────────────────────────┘",
/// ]);
/// # Ok::<(), windlass_topology::Error>(())
/// ```
#[must_use]
pub fn art(topology: &Topology, width: usize, ascii: bool, paint: Paint) -> String {
    let label = |cpu: usize| {
        let is_allowed = topology.pu(cpu).is_some_and(|pu| pu.allowed);
        match (is_allowed, topology.isolated_cpus().contains(&cpu)) {
            (false, _) => (format!("{cpu}x"), Ink::Dim),
            (true, true) => (format!("{cpu}i"), Ink::Fair),
            (true, false) => (cpu.to_string(), Ink::P),
        }
    };
    let widest = topology.pus().iter().map(|pu| label(pu.cpu).0.len());
    let metrics = Metrics {
        cell: (widest.max().unwrap_or(1).max(2), 1),
        gap: (1, 0),
        side: 2,
        top: 1,
        bottom: 1,
        title_width: |n| n + 4,
        core_title: longest_core_title(topology),
        max_width: width,
    };
    let blocks = blocks(topology);
    let (placed, width, height) = place(&blocks, &metrics);
    let mut canvas = Canvas::new(width, height, if ascii { ASCII } else { UNICODE });
    placed.iter().for_each(|placed| canvas.draw(placed, &label));
    let mut out = format!(
        "{}: {}\n{}",
        paint.title(format_args!("machine ({})", source(topology))),
        summary(topology),
        canvas.text(paint)
    );
    if !topology.offline_cpus().is_empty() {
        let cpus = format_cpu_list(topology.offline_cpus());
        out += &paint.dim(format_args!("offline: CPU {cpus}"));
        out.push('\n');
    }
    if ascii {
        out = out.replace('·', "-");
    }
    out
}

struct Canvas {
    rows: Vec<Vec<(char, Ink)>>,
    lines: Lines,
}

impl Canvas {
    fn new(width: usize, height: usize, lines: Lines) -> Self {
        Self {
            rows: vec![vec![(' ', Ink::None); width]; height],
            lines,
        }
    }

    fn draw(&mut self, placed: &Placed<'_>, label: &impl Fn(usize) -> (String, Ink)) {
        let (left, right) = (placed.x, placed.x + placed.width - 1);
        let (top, bottom) = (placed.y, placed.y + placed.height - 1);
        let [left_up, right_up, left_down, right_down, across, down] = self.lines;
        for x in left..=right {
            self.rows[top][x].0 = across;
            self.rows[bottom][x].0 = across;
        }
        for y in top..=bottom {
            self.rows[y][left].0 = down;
            self.rows[y][right].0 = down;
        }
        self.rows[top][left].0 = left_up;
        self.rows[top][right].0 = right_up;
        self.rows[bottom][left].0 = left_down;
        self.rows[bottom][right].0 = right_down;
        let ink = match placed.block.kind {
            BlockKind::Package => Ink::Title,
            BlockKind::Node | BlockKind::Memory => Ink::Node,
            BlockKind::Cache | BlockKind::Core | BlockKind::Device => Ink::None,
        };
        self.write(left + 1, top, " ", Ink::None);
        self.write(left + 2, top, &placed.block.title, ink);
        let end = left + 2 + placed.block.title.chars().count();
        if end < right {
            self.write(end, top, " ", Ink::None);
        }
        for (&(x, y), &cpu) in placed.cells.iter().zip(&placed.block.cpus) {
            let (text, ink) = label(cpu);
            self.write(x, y, &text, ink);
        }
        placed
            .inside
            .iter()
            .for_each(|inner| self.draw(inner, label));
    }

    fn write(&mut self, x: usize, y: usize, text: &str, ink: Ink) {
        for (place, c) in self.rows[y][x..].iter_mut().zip(text.chars()) {
            *place = (c, ink);
        }
    }

    fn text(&self, paint: Paint) -> String {
        let mut out = String::new();
        for row in &self.rows {
            let end = row
                .iter()
                .rposition(|&(c, _)| c != ' ')
                .map_or(0, |end| end + 1);
            for run in row[..end].chunk_by(|a, b| a.1 == b.1) {
                let text: String = run.iter().map(|&(c, _)| c).collect();
                out += &paint.ink(run[0].1, text);
            }
            out.push('\n');
        }
        out
    }
}

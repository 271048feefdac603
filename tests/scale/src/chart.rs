//! Curves as SVG: a panel for each workload, efficiency over Ps, a curve for each machine, and a dashed one for an older
//! tree.

use std::fmt::Write as _;

/// Efficiency on some numbers of Ps of a machine.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) machine: &'static str,
    pub(crate) points: Vec<(usize, f64)>,
    /// As it was, if that is known.
    pub(crate) before: Vec<(usize, f64)>,
}

/// A workload, and its curve on each machine.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    pub(crate) curves: Vec<Curve>,
}

const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 150.0;
/// Panels side by side.
const COLUMNS: usize = 2;
/// Around each panel: what stands left of it, above, and below; and above all of them.
const LEFT: f64 = 56.0;
const TOP: f64 = 30.0;
const FOOT: f64 = 34.0;
const HEAD: f64 = 30.0;
const COLORS: [&str; 4] = ["#0B6B8F", "#C06B1F", "#1A7F37", "#7B3FA0"];
/// Panels begin at one P, and end at 2 to the power of that.
const MOST_DOUBLINGS: f64 = 9.0;

/// The whole picture.
pub(crate) fn svg(panels: &[Panel]) -> String {
    let width = COLUMNS as f64 * (LEFT + WIDTH) + 20.0;
    let n_rows = panels.len().div_ceil(COLUMNS) as f64;
    let height = HEAD + n_rows * (TOP + HEIGHT + FOOT);
    let mut out = format!(
        "<svg width=\"{width}\" height=\"{height}\" xmlns=\"http://www.w3.org/2000/svg\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#FFFFFF\"/>\n"
    );
    for (at, panel) in panels.iter().enumerate() {
        let (column, row) = (at % COLUMNS, at / COLUMNS);
        let left = LEFT + column as f64 * (LEFT + WIDTH);
        let top = HEAD + row as f64 * (TOP + HEIGHT + FOOT) + TOP;
        draw_panel(&mut out, panel, (left, top));
    }
    let machines = panels.first().map_or(&[][..], |panel| &panel.curves);
    for (at, curve) in machines.iter().enumerate() {
        let x = LEFT + 80.0 * at as f64;
        text(&mut out, (x, 20.0), "start", COLORS[at], curve.machine);
    }
    let x = LEFT + 80.0 * machines.len() as f64;
    text(&mut out, (x, 20.0), "start", "#59636E", "dashed: before");
    out + "</svg>\n"
}

/// `left` and `top` are those of its curves.
fn draw_panel(out: &mut String, panel: &Panel, (left, top): (f64, f64)) {
    let all = panel
        .curves
        .iter()
        .flat_map(|c| c.points.iter().chain(&c.before));
    let most = all.map(|p| p.1).fold(1.0, f64::max);
    let y = |part: f64| top + HEIGHT * (1.0 - part / most);
    let x = |n_ps: usize| left + WIDTH * (n_ps as f64).log2() / MOST_DOUBLINGS;
    text(out, (left, top - 12.0), "start", "#1F2328", panel.title);
    for percent in [0, 50, 80, 100] {
        let at = y(f64::from(percent) / 100.0);
        let right = left + WIDTH;
        line(out, ("#D1D9E0", 1.0, ""), &[(left, at), (right, at)]);
        let label = format!("{percent} %");
        text(out, (left - 6.0, at + 4.0), "end", "#59636E", &label);
    }
    for n_ps in [1, 8, 64, 512] {
        let at = (x(n_ps), top + HEIGHT + 18.0);
        text(out, at, "middle", "#59636E", &n_ps.to_string());
    }
    for (curve, color) in panel.curves.iter().zip(COLORS) {
        for (points, width, dashes) in [(&curve.before, 1.0, "4 3"), (&curve.points, 2.0, "")] {
            let points: Vec<_> = points.iter().map(|&(n, e)| (x(n), y(e))).collect();
            line(out, (color, width, dashes), &points);
        }
    }
}

fn line(out: &mut String, (color, width, dashes): (&str, f64, &str), points: &[(f64, f64)]) {
    if points.is_empty() {
        return;
    }
    let dashes = match dashes {
        "" => String::new(),
        _ => format!(" stroke-dasharray=\"{dashes}\""),
    };
    let points: String = points
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1} "))
        .collect();
    writeln!(
        out,
        "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"{dashes} points=\"{}\"/>",
        points.trim_end()
    )
    .expect("a string takes it");
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, color: &str, words: &str) {
    writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{color}\">{words}</text>"
    )
    .expect("a string takes it");
}

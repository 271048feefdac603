//! Curves as SVG: a panel for each workload, efficiency over Ps, a curve for each machine.

use std::fmt::Write as _;

/// Efficiency on some numbers of Ps of a machine.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) machine: &'static str,
    pub(crate) points: Vec<(usize, f64)>,
}

/// A workload, and its curve on each machine.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    pub(crate) curves: Vec<Curve>,
}

const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 150.0;
/// Around each panel: what stands left of it, and above.
const LEFT: f64 = 56.0;
const TOP: f64 = 60.0;
const FOOT: f64 = 30.0;
const COLORS: [&str; 4] = ["#0B6B8F", "#C06B1F", "#1A7F37", "#7B3FA0"];
/// Panels begin at one P, and end at 2 to the power of that.
const MOST_DOUBLINGS: f64 = 9.0;

/// The whole picture.
pub(crate) fn svg(panels: &[Panel]) -> String {
    let width = panels.len() as f64 * (LEFT + WIDTH) + 20.0;
    let height = TOP + HEIGHT + FOOT;
    let mut out = format!(
        "<svg width=\"{width}\" height=\"{height}\" xmlns=\"http://www.w3.org/2000/svg\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#FFFFFF\"/>\n"
    );
    for (at, panel) in panels.iter().enumerate() {
        draw_panel(&mut out, panel, LEFT + at as f64 * (LEFT + WIDTH));
    }
    let machines = panels.first().map_or(&[][..], |panel| &panel.curves);
    for (at, curve) in machines.iter().enumerate() {
        let x = LEFT + 80.0 * at as f64;
        text(&mut out, (x, 20.0), "start", COLORS[at], curve.machine);
    }
    out + "</svg>\n"
}

fn draw_panel(out: &mut String, panel: &Panel, left: f64) {
    let all = panel.curves.iter().flat_map(|c| &c.points);
    let most = all.map(|p| p.1).fold(1.0, f64::max);
    let y = |part: f64| TOP + HEIGHT * (1.0 - part / most);
    let x = |n_ps: usize| left + WIDTH * (n_ps as f64).log2() / MOST_DOUBLINGS;
    text(out, (left, TOP - 14.0), "start", "#1F2328", panel.title);
    for percent in [0, 50, 80, 100] {
        let at = y(f64::from(percent) / 100.0);
        let right = left + WIDTH;
        line(out, "#D1D9E0", 1.0, &[(left, at), (right, at)]);
        let label = format!("{percent} %");
        text(out, (left - 6.0, at + 4.0), "end", "#59636E", &label);
    }
    for n_ps in [1, 8, 64, 512] {
        let at = (x(n_ps), TOP + HEIGHT + 18.0);
        text(out, at, "middle", "#59636E", &n_ps.to_string());
    }
    for (curve, color) in panel.curves.iter().zip(COLORS) {
        let points: Vec<_> = curve.points.iter().map(|&(n, e)| (x(n), y(e))).collect();
        line(out, color, 2.0, &points);
    }
}

fn line(out: &mut String, color: &str, width: f64, points: &[(f64, f64)]) {
    let points: String = points
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1} "))
        .collect();
    writeln!(
        out,
        "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\" points=\"{}\"/>",
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

//! Scaling curves as SVG: a panel for each workload, throughput over CPUs, a curve for each contender.

use plotters::backend::{DrawingBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Rectangle};
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, RGBColor, ShapeStyle, WHITE};

use super::chart::{
    AHEAD, COLUMNS, Drawn, FAINT, FRAME, HEAD, INFALLIBLE, INK, OURS, OURS_TOO, PADDING, WIDTH,
    text,
};
use super::verdict::{display, figure};

const TOKIO: RGBColor = RGBColor(0xc0, 0x6b, 0x1f);

/// Above the panels: what the curves are.
const LEGEND: i32 = 60;
const HEIGHT: i32 = 150;
/// Below a panel: the numbers of CPUs.
const FOOT: i32 = 46;
/// Left of a panel: figures.
const FIGURES: i32 = 60;

/// Throughput on some numbers of CPUs.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Whose.
    pub contender: &'static str,
    /// Whether CPUs were spread over sockets.
    pub is_spread: bool,
    /// CPUs, and operations in a second.
    pub points: Vec<(usize, f64)>,
}

/// A workload.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Its name.
    pub title: String,
    /// What is counted.
    pub unit: String,
    /// All of its curves; the first is the one that the ideal goes by.
    pub curves: Vec<Curve>,
}

fn color(contender: &str) -> RGBColor {
    match contender {
        "windlass" => OURS,
        "flat" => OURS_TOO,
        "go" => AHEAD,
        _ => TOKIO,
    }
}

/// The whole picture.
///
/// # Panics
///
/// Never: a string takes all that is drawn.
pub fn chart(panels: &[Panel]) -> String {
    let lines = panels.len().div_ceil(COLUMNS) as i32;
    let total = LEGEND + lines * (HEAD + HEIGHT + FOOT) + PADDING;
    let mut svg = String::new();
    {
        let size = (WIDTH as u32, total as u32);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&area, panels, total).expect(INFALLIBLE);
        area.present().expect(INFALLIBLE);
    }
    svg
}

fn draw<B: DrawingBackend>(area: &DrawingArea<B, Shift>, panels: &[Panel], total: i32) -> Drawn<B> {
    area.fill(&WHITE)?;
    area.draw(&Rectangle::new([(0, 0), (WIDTH - 1, total - 1)], FRAME))?;
    draw_legend(area, panels)?;
    let width = (WIDTH - PADDING * (COLUMNS as i32 + 1)) / COLUMNS as i32;
    for (i, panel) in panels.iter().enumerate() {
        let left = PADDING + (i % COLUMNS) as i32 * (width + PADDING);
        let top = LEGEND + (i / COLUMNS) as i32 * (HEAD + HEIGHT + FOOT);
        draw_panel(area, panel, (left, top), width)?;
    }
    Ok(())
}

fn draw_legend<B: DrawingBackend>(area: &DrawingArea<B, Shift>, panels: &[Panel]) -> Drawn<B> {
    let mut names: Vec<&str> = Vec::new();
    for curve in panels.iter().flat_map(|panel| &panel.curves) {
        if !names.contains(&curve.contender) {
            names.push(curve.contender);
        }
    }
    for (i, name) in names.iter().enumerate() {
        let x = PADDING + i as i32 * 120;
        let style = color(name).stroke_width(3);
        area.draw(&PathElement::new([(x, 22), (x + 24, 22)], style))?;
        text(
            area,
            display(name),
            (x + 32, 22),
            13.0,
            INK,
            HPos::Left,
            false,
        )?;
    }
    let words =
        "dots: nearest CPUs first; rings: spread over sockets; grey: as on one CPU, times the CPUs";
    text(area, words, (PADDING, 44), 12.0, FAINT, HPos::Left, false)
}

fn draw_panel<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    panel: &Panel,
    (left, top): (i32, i32),
    width: i32,
) -> Drawn<B> {
    text(
        area,
        &panel.title,
        (left, top + 8),
        14.0,
        INK,
        HPos::Left,
        true,
    )?;
    text(
        area,
        &panel.unit,
        (left, top + 27),
        12.0,
        FAINT,
        HPos::Left,
        false,
    )?;
    let scale = Scale::of(panel, (left + FIGURES, top + HEAD), width - FIGURES);
    for part in [0.0, 0.5, 1.0] {
        let y = scale.y(scale.most * part);
        let ends = [(left + FIGURES, y), (left + width, y)];
        area.draw(&PathElement::new(ends, FRAME))?;
        let value = figure(scale.most * part);
        text(
            area,
            &value,
            (left + FIGURES - 6, y),
            12.0,
            FAINT,
            HPos::Right,
            false,
        )?;
    }
    for n in scale.counts() {
        let at = (scale.x(n), top + HEAD + HEIGHT + 14);
        text(area, &n.to_string(), at, 12.0, FAINT, HPos::Center, false)?;
    }
    if let Some(&(n, one)) = panel.curves.first().and_then(|curve| curve.points.first()) {
        // Doublings are equally far apart, so what is proportional is bent.
        let ideal = scale
            .counts()
            .into_iter()
            .map(|cpus| (cpus, one * cpus as f64 / n as f64));
        let ideal: Vec<_> = ideal.filter(|(_, rate)| *rate <= scale.most).collect();
        path(area, &scale, &ideal, FRAME.stroke_width(2))?;
    }
    for curve in &panel.curves {
        draw_curve(area, &scale, curve)?;
    }
    Ok(())
}

fn draw_curve<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    scale: &Scale,
    curve: &Curve,
) -> Drawn<B> {
    let color = color(curve.contender);
    path(area, scale, &curve.points, color.stroke_width(2))?;
    for &(n, rate) in &curve.points {
        let at = (scale.x(n), scale.y(rate));
        if curve.is_spread {
            area.draw(&Circle::new(at, 4, WHITE.filled()))?;
            area.draw(&Circle::new(at, 4, color.stroke_width(1)))?;
        } else {
            area.draw(&Circle::new(at, 3, color.filled()))?;
        }
    }
    Ok(())
}

fn path<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    scale: &Scale,
    points: &[(usize, f64)],
    style: ShapeStyle,
) -> Drawn<B> {
    let points: Vec<_> = points
        .iter()
        .map(|&(n, rate)| (scale.x(n), scale.y(rate)))
        .collect();
    area.draw(&PathElement::new(points, style))
}

/// Where a panel has its points.
struct Scale {
    left: i32,
    top: i32,
    width: i32,
    /// The most CPUs.
    cpus: usize,
    /// The highest figure.
    most: f64,
}

impl Scale {
    fn of(panel: &Panel, (left, top): (i32, i32), width: i32) -> Scale {
        let points = || panel.curves.iter().flat_map(|curve| &curve.points);
        Scale {
            left,
            top,
            width,
            cpus: points().map(|(n, _)| *n).max().unwrap_or(1),
            most: points()
                .map(|(_, rate)| *rate)
                .fold(f64::MIN_POSITIVE, f64::max),
        }
    }

    /// Doublings are equally far apart.
    fn x(&self, n: usize) -> i32 {
        const MARGIN: i32 = 12;
        let all = (self.cpus as f64).log2().max(1.0);
        let part = (n as f64).log2() / all;
        self.left + MARGIN + (part * f64::from(self.width - 2 * MARGIN)).round() as i32
    }

    fn y(&self, rate: f64) -> i32 {
        self.top + HEIGHT - (rate / self.most * f64::from(HEIGHT)).round() as i32
    }

    /// The numbers of CPUs below the panel.
    fn counts(&self) -> Vec<usize> {
        let powers = (0..).map(|i| 1 << i).take_while(|n| *n < self.cpus);
        powers.chain([self.cpus]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panel_has_a_curve_for_each_contender_and_its_scales() {
        let curve = |contender, is_spread, rates: [f64; 3]| Curve {
            contender,
            is_spread,
            points: [1, 2, 4].into_iter().zip(rates).collect(),
        };
        let svg = chart(&[Panel {
            title: "skynet".into(),
            unit: "leaves a second".into(),
            curves: vec![
                curve("windlass", false, [1e3, 1.9e3, 3.5e3]),
                curve("windlass", true, [1e3, 1.5e3, 3.5e3]),
                curve("go", false, [5e2, 6e2, 7e2]),
            ],
        }]);
        for part in [
            "skynet",
            "leaves a second",
            "windlass",
            "Go",
            "3,500",
            "1,750",
        ] {
            assert!(svg.contains(part), "{part} is missing:\n{svg}");
        }
        assert!(!svg.contains("tokio") && !svg.contains("NaN"));
        // Three of the frame, one each of legend and curves, and the ideal.
        assert_eq!(svg.matches("<polyline").count(), 3 + 2 + 3 + 1);
    }

    #[test]
    fn one_cpu_and_no_figure_can_be_drawn() {
        let panel = Panel {
            title: "skynet".into(),
            unit: "leaves".into(),
            curves: Vec::new(),
        };
        assert!(!chart(&[panel]).contains("NaN"));
    }
}

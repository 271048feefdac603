//! Bar charts as SVG: a panel for each figure, a bar for each contender.
//!
//! The background is opaque, so that a chart reads the same on a dark page. plotters draws them;
//! its own charts have one scale for all bars, so only its shapes and texts are used. No font is
//! measured: texts have places that are wide enough.

use plotters::backend::{DrawingBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{PathElement, Polygon, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontFamily, FontStyle, IntoFont, RGBColor, TextStyle, WHITE};

use serde_json::Value;

use super::page::POLICIES;
use super::topics::{self, TOPICS};
use super::verdict::{Better, Verdict, WINDLASS, display, figure, is_ours};
use super::{Input, Results};
use crate::results::{Row, Summary};

pub(super) const INK: RGBColor = RGBColor(0x1f, 0x23, 0x28);
pub(super) const FAINT: RGBColor = RGBColor(0x59, 0x63, 0x6e);
pub(super) const FRAME: RGBColor = RGBColor(0xd1, 0xd9, 0xe0);
pub(super) const OURS: RGBColor = RGBColor(0x0b, 0x6b, 0x8f);
pub(super) const OURS_TOO: RGBColor = RGBColor(0x6f, 0xb1, 0xc9);
const PEER: RGBColor = RGBColor(0xb4, 0xbc, 0xc6);
const RANGE: RGBColor = RGBColor(0x3d, 0x44, 0x4d);
pub(super) const AHEAD: RGBColor = RGBColor(0x1a, 0x7f, 0x37);
const BEHIND: RGBColor = RGBColor(0xc0, 0x39, 0x2b);

pub(super) const WIDTH: i32 = 920;
pub(super) const PADDING: i32 = 18;
pub(super) const COLUMNS: usize = 2;
const TITLE: i32 = 44;
/// A panel's two lines of text.
pub(super) const HEAD: i32 = 46;
const BAR: i32 = 17;
const STEP: i32 = 24;
/// Below the last bar of a panel.
const GAP: i32 = 22;
/// Room for names on the left and figures on the right of the bars.
const NAMES: i32 = 78;
const FIGURES: i32 = 74;
/// A bar that is longer than so many times windlass' is broken off.
const LONGEST: f64 = 6.0;

/// One figure, and its bars from the top.
struct Panel {
    title: String,
    unit: String,
    better: Better,
    /// The words, and whether windlass is ahead of what they compare it with.
    verdict: Option<(String, RGBColor)>,
    bars: Vec<(String, Summary)>,
    /// The bar that the scale goes by.
    ours: usize,
}

/// All charts that the results are enough for, by name.
pub fn charts(input: &Input) -> Vec<(String, String)> {
    let mut charts = Vec::new();
    if let Some(compare) = &input.compare {
        let headline = headline(compare);
        if !headline.is_empty() {
            let svg = draw("windlass beside its peers", &headline);
            charts.push(("headline".to_owned(), svg));
        }
        for topic in TOPICS {
            let panels = panels(topic, compare);
            if !panels.is_empty() {
                charts.push((topic.name.to_owned(), draw("", &panels)));
            }
        }
    }
    for (i, results) in input.numa.iter().enumerate() {
        let of_row = |(row, run): &(Row, usize)| policies(row, &results.runs[*run]);
        let panels: Vec<_> = results.rows.iter().map(of_row).collect();
        if !panels.is_empty() {
            charts.push((numa_name(i), draw("", &panels)));
        }
    }
    charts
}

/// The chart of the bench `numa` on one of the machines.
pub fn numa_name(machine: usize) -> String {
    match machine {
        0 => "numa".to_owned(),
        more => format!("numa-{}", more + 1),
    }
}

/// A panel for each row, with all its cells; `None` if windlass has none.
pub fn of_rows(rows: &[&Row]) -> Option<String> {
    let of_row = |row: &&Row| {
        let contenders: Vec<_> = row.cells.iter().map(|(name, _)| name.as_str()).collect();
        panel(row, &row.experiment, &row.key, &contenders)
    };
    let panels: Vec<_> = rows.iter().filter_map(of_row).collect();
    (!panels.is_empty()).then(|| draw("", &panels))
}

fn headline(compare: &Results) -> Vec<Panel> {
    let topic = |experiment: &str| {
        let has = |topic: &&topics::Topic| topic.experiments().contains(&experiment);
        TOPICS.iter().find(has)
    };
    let panel = |&(experiment, key): &(&str, &str)| {
        let figure = topics::figure(experiment, key)?;
        let (row, _) = compare.row(experiment, key)?;
        let contenders = topic(experiment)?.contenders.iter().copied();
        let contenders: Vec<_> = contenders
            .filter(|name| *name != "windlass-epoll")
            .collect();
        panel(row, figure.label, figure.unit, &contenders)
    };
    topics::HEADLINE.iter().filter_map(panel).collect()
}

fn panels(topic: &topics::Topic, compare: &Results) -> Vec<Panel> {
    let drawn = topic.figures().filter(|figure| figure.is_drawn);
    drawn
        .filter_map(|figure| {
            let (row, _) = compare.row(figure.experiment, figure.key)?;
            panel(row, figure.label, figure.unit, topic.contenders)
        })
        .collect()
}

/// A panel; `None` without a bar for windlass.
fn panel(row: &Row, title: &str, unit: &str, contenders: &[&str]) -> Option<Panel> {
    let bar = |name: &&str| row.cells.iter().find(|(contender, _)| contender == *name);
    let bars: Vec<_> = contenders.iter().filter_map(bar).cloned().collect();
    let ours = bars.iter().position(|(name, _)| name == WINDLASS)?;
    let mut shown = row.clone();
    shown.cells = bars.clone();
    let verdict = Verdict::of(&shown);
    let color = match verdict {
        Verdict::First { .. } => AHEAD,
        Verdict::Loses { .. } => BEHIND,
        Verdict::Level { .. } | Verdict::Alone => FAINT,
    };
    Some(Panel {
        title: title.to_owned(),
        unit: unit.to_owned(),
        better: Better::of(&row.key),
        verdict: (verdict != Verdict::Alone).then(|| (verdict.words(), color)),
        bars,
        ours,
    })
}

/// A workload of `numa` under each policy. The last one is the default, and has the verdict.
fn policies(row: &Row, run: &Value) -> Panel {
    let bars = POLICIES.iter().filter_map(|(policy, _)| {
        let (_, cell) = row.cells.iter().find(|(name, _)| name == policy)?;
        let name = if *policy == "+home wake" {
            DEFAULT
        } else {
            *policy
        };
        Some((name.to_owned(), *cell))
    });
    let bars: Vec<_> = bars.collect();
    Panel {
        title: row.experiment.clone(),
        unit: row.unit.replace('/', " a "),
        better: Better::Lower,
        verdict: default_verdict(&row.experiment, run),
        ours: bars.len().saturating_sub(1),
        bars,
    }
}

const DEFAULT: &str = "default";

/// Of the line `skynet: default is slower than flat by 4.1 %: medians ..: TOO SLOW`. In earlier results
/// the figures come first: `default is 1.2 % slower than flat: ok`.
fn default_verdict(workload: &str, run: &Value) -> Option<(String, RGBColor)> {
    let begin = format!("{workload}: {DEFAULT} is ");
    let lines = run["verdicts"].as_array()?.iter();
    let verdict = lines
        .filter_map(Value::as_str)
        .find_map(|line| line.strip_prefix(&begin))?;
    let (cost, rest) = verdict.split_once(": ")?;
    Some(match rest {
        _ if rest.ends_with("TOO SLOW") => (format!("{cost}: TOO SLOW"), BEHIND),
        _ if rest.starts_with("unclear") => (format!("{cost}: unclear"), FAINT),
        _ => (cost.to_owned(), FAINT),
    })
}

/// The whole picture.
fn draw(title: &str, panels: &[Panel]) -> String {
    let columns = COLUMNS.min(panels.len());
    let most = |row: &[Panel]| row.iter().map(|panel| panel.bars.len()).max().unwrap_or(0);
    let height = |row: &[Panel]| HEAD + most(row) as i32 * STEP + GAP;
    let top = if title.is_empty() {
        PADDING
    } else {
        TITLE + PADDING
    };
    let heights: Vec<_> = panels.chunks(columns).map(height).collect();
    let total = top + heights.iter().sum::<i32>();
    let mut svg = String::new();
    {
        let size = (WIDTH as u32, total as u32);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let mut at = top;
        draw_frame(&area, title, total).expect(INFALLIBLE);
        for (row, height) in panels.chunks(columns).zip(heights) {
            let width = (WIDTH - PADDING * (columns as i32 + 1)) / columns as i32;
            for (i, panel) in row.iter().enumerate() {
                let left = PADDING + i as i32 * (width + PADDING);
                draw_panel(&area, panel, (left, at), width).expect(INFALLIBLE);
            }
            at += height;
        }
        area.present().expect(INFALLIBLE);
    }
    svg
}

pub(super) const INFALLIBLE: &str = "writing to a string";

pub(super) type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

fn draw_frame<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    title: &str,
    height: i32,
) -> Drawn<B> {
    area.fill(&WHITE)?;
    area.draw(&Rectangle::new([(0, 0), (WIDTH - 1, height - 1)], FRAME))?;
    if !title.is_empty() {
        text(area, title, (PADDING, 30), 20.0, INK, HPos::Left, true)?;
        let scales = "medians; the line is the range of the rounds";
        text(
            area,
            scales,
            (WIDTH - PADDING, 30),
            12.0,
            FAINT,
            HPos::Right,
            false,
        )?;
    }
    Ok(())
}

fn draw_panel<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    panel: &Panel,
    (left, top): (i32, i32),
    width: i32,
) -> Drawn<B> {
    let right = left + width;
    text(
        area,
        &panel.title,
        (left, top + 8),
        14.0,
        INK,
        HPos::Left,
        true,
    )?;
    let unit = format!("{}, {}", panel.unit, panel.better.words());
    text(
        area,
        &unit,
        (left, top + 27),
        12.0,
        FAINT,
        HPos::Left,
        false,
    )?;
    if let Some((words, color)) = &panel.verdict {
        text(
            area,
            words,
            (right, top + 27),
            12.0,
            *color,
            HPos::Right,
            true,
        )?;
    }
    let (begin, most) = (left + NAMES, width - NAMES - FIGURES);
    let scale = scale(panel);
    for (i, (name, cell)) in panel.bars.iter().enumerate() {
        let y = top + HEAD + i as i32 * STEP;
        let middle = y + BAR / 2;
        let is_ours_itself = i == panel.ours;
        let color = match () {
            () if is_ours_itself => OURS,
            () if is_ours(name) => OURS_TOO,
            () => PEER,
        };
        let name = match display(name) {
            "windlass over epoll" => "– epoll",
            name => name,
        };
        text(
            area,
            name,
            (begin - 8, middle),
            13.0,
            INK,
            HPos::Right,
            is_ours_itself,
        )?;
        let is_broken = cell.median > scale;
        let long = |value: f64| (value.min(scale) / scale * f64::from(most)).round() as i32;
        let end = begin + long(cell.median).max(2);
        area.draw(&Rectangle::new(
            [(begin, y), (end, y + BAR)],
            color.filled(),
        ))?;
        let mut past = end;
        if is_broken {
            // A slanted cut near the end: the bar is longer than there is room for.
            let cut = [
                (end - 22, y + BAR),
                (end - 14, y),
                (end - 8, y),
                (end - 16, y + BAR),
            ];
            area.draw(&Polygon::new(cut, WHITE))?;
        } else if cell.max > cell.min {
            let (low, high) = (begin + long(cell.min), begin + long(cell.max));
            // Light on windlass' own bar, as dark would not show there.
            let inside = if is_ours_itself { WHITE } else { RANGE };
            area.draw(&PathElement::new([(low, middle), (end, middle)], inside))?;
            area.draw(&PathElement::new([(end, middle), (high, middle)], RANGE))?;
            area.draw(&PathElement::new(
                [(low, middle - 3), (low, middle + 3)],
                inside,
            ))?;
            // A range that goes on beyond the scale has no end.
            if cell.max <= scale {
                area.draw(&PathElement::new(
                    [(high, middle - 3), (high, middle + 3)],
                    RANGE,
                ))?;
            }
            past = past.max(high);
        }
        let figure = figure(cell.median);
        text(
            area,
            &figure,
            (past + 8, middle),
            13.0,
            INK,
            HPos::Left,
            is_ours_itself,
        )?;
    }
    Ok(())
}

/// The figure of the longest bar.
fn scale(panel: &Panel) -> f64 {
    let cells = || panel.bars.iter().map(|(_, cell)| cell);
    let ours = panel.bars.get(panel.ours).map(|(_, cell)| cell.median);
    // Where windlass never answered, the least is what there is to go by.
    let least = cells()
        .map(|cell| cell.median)
        .fold(f64::INFINITY, f64::min);
    let base = ours.filter(|ours| ours.is_finite()).unwrap_or(least);
    let most = base * LONGEST;
    let longest = cells().map(|cell| cell.max).fold(0.0, f64::max);
    longest.min(most).max(f64::MIN_POSITIVE)
}

pub(super) fn text<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    words: &str,
    at: (i32, i32),
    size: f64,
    color: RGBColor,
    from: HPos,
    is_bold: bool,
) -> Drawn<B> {
    let style = if is_bold {
        FontStyle::Bold
    } else {
        FontStyle::Normal
    };
    // The backend divides by this, which is what a font's box is higher than its size.
    let font = (FontFamily::SansSerif, size * 1.24)
        .into_font()
        .style(style);
    let style = TextStyle::from(font).color(&color);
    let style = style.pos(Pos::new(from, VPos::Center));
    area.draw(&Text::new(words.to_owned(), at, style))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(cells: &[(&str, &[f64])]) -> Input {
        let compare = Results {
            machine: serde_json::json!({}),
            runs: vec![serde_json::json!({})],
            rows: vec![(Row::of("yield", "ns", cells), 0)],
        };
        Input {
            compare: Some(compare),
            numa: Vec::new(),
        }
    }

    #[test]
    fn a_chart_has_a_bar_and_a_figure_for_each_contender() {
        let charts = charts(&input(&[("windlass", &[6.0, 6.5, 7.0]), ("go", &[454.0])]));
        let (name, svg) = &charts[0];
        assert_eq!((charts.len(), name.as_str()), (1, "tasks"));
        for word in [
            "windlass",
            "Go",
            "6.50",
            "454",
            "lower is better",
            "ahead of Go",
        ] {
            assert!(svg.contains(word), "{word} is missing:\n{svg}");
        }
        assert!(!svg.contains("tokio"));
        assert!(svg.contains("polygon"), "Go's bar is broken off");
    }

    #[test]
    fn what_never_came_is_drawn_as_long_as_can_be() {
        let never: &[(&str, &[f64])] = &[("windlass", &[2.0]), ("may", &[f64::INFINITY])];
        assert!(charts(&input(never))[0].1.contains("never"));
        let ours: &[(&str, &[f64])] = &[("windlass", &[f64::INFINITY]), ("may", &[3.0])];
        let svg = &charts(&input(ours))[0].1;
        assert!(svg.contains("never") && !svg.contains("NaN"));
    }

    #[test]
    fn the_default_policy_has_its_verdict() {
        let run = serde_json::json!({ "verdicts": [
            "yield: levels is 9.0 % slower than flat: TOO SLOW",
            "yield: default is 4.0 % slower than flat: TOO SLOW",
        ] });
        let numa = Results {
            machine: serde_json::json!({}),
            runs: vec![run],
            rows: vec![(
                Row::of("yield", "ns", &[("flat", &[1.0]), ("+home wake", &[2.0])]),
                0,
            )],
        };
        let input = Input {
            compare: None,
            numa: vec![numa],
        };
        let (name, svg) = &charts(&input)[0];
        assert_eq!(name, "numa");
        assert!(svg.contains("4.0 % slower than flat: TOO SLOW") && !svg.contains("9.0 %"));
        assert!(svg.contains("default"));
    }

    #[test]
    fn verdicts_of_now_and_of_earlier_results_are_read() {
        let words = |line: &str| {
            let run = serde_json::json!({ "verdicts": [format!("scan: default is {line}")] });
            default_verdict("scan", &run).unwrap().0
        };
        assert_eq!(
            words("level with flat: medians 1.00 and 1.01 ms"),
            "level with flat"
        );
        let slow = words("slower than flat by 9.0 %: medians 1.09 and 1.00 ms: TOO SLOW");
        assert_eq!(slow, "slower than flat by 9.0 %: TOO SLOW");
        assert_eq!(
            words("1.2 % slower than flat: ok"),
            "1.2 % slower than flat"
        );
        let unclear = words("9.0 % slower than flat: unclear, the rounds differ");
        assert_eq!(unclear, "9.0 % slower than flat: unclear");
    }

    #[test]
    fn a_figure_without_windlass_has_no_panel() {
        assert!(charts(&input(&[("go", &[1.0])])).is_empty());
    }
}

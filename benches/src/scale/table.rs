//! The tables, verdicts and curves of the figures.

use std::fmt::Write;

use super::loads::Load;
use super::{CONTENDERS, cpus, is_a_curve};
use crate::report::curve::{Curve, Panel};
use crate::report::verdict::{display, figure};
use crate::results::Row;

/// Where a row was measured: its workload, the order of CPUs and how many.
fn place(row: &Row) -> Option<(&str, &str, usize)> {
    let mut words = row.experiment.split('/');
    Some((words.next()?, words.next()?, words.next()?.parse().ok()?))
}

fn throughput(row: &Row, contender: &str) -> Option<f64> {
    let cell = row.cells.iter().find(|(name, _)| name == contender);
    cell.map(|(_, summary)| summary.median)
}

/// The throughput on so many CPUs, as a part of that on one, times so many.
fn efficiency(rows: &[Row], row: &Row, contender: &str) -> Option<f64> {
    let (load, _, n) = place(row)?;
    let is_one = |row: &&Row| place(row).is_some_and(|(l, _, n)| l == load && n == 1);
    let one = throughput(rows.iter().find(is_one)?, contender)?;
    Some(throughput(row, contender)? / one / n as f64)
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

/// The rows of one workload.
pub fn of_load(load: &Load, rows: &[Row]) -> String {
    let contenders: Vec<_> = CONTENDERS
        .into_iter()
        .filter(|name| is_there(rows, name))
        .collect();
    let mut text = format!("{}: {} a second, and efficiency\n", load.title, load.unit);
    let _ = write!(text, "{:>5} {:<7}", "CPUs", "order");
    for name in &contenders {
        let _ = write!(text, " {:>20}", display(name));
    }
    for row in rows {
        let Some((_, order, n)) = place(row) else {
            continue;
        };
        let _ = write!(text, "\n{n:>5} {order:<7}");
        for name in &contenders {
            let all = throughput(row, name).map_or_else(|| "-".to_owned(), figure);
            let part = efficiency(rows, row, name).filter(|_| n > 1);
            let _ = write!(
                text,
                " {all:>12} {:>7}",
                part.map(percent).unwrap_or_default()
            );
        }
    }
    text
}

fn is_there(rows: &[Row], contender: &str) -> bool {
    rows.iter().any(|row| throughput(row, contender).is_some())
}

/// A line for each workload: what all CPUs give. Before them, what is to be known of a small machine.
pub fn verdicts(loads: &[&Load], rows: &[Row]) -> Vec<String> {
    lines(loads, rows, cpus())
}

fn lines(loads: &[&Load], rows: &[Row], cpus: usize) -> Vec<String> {
    let mut lines = Vec::new();
    if !is_a_curve(cpus) {
        let points = if cpus == 1 { "one point" } else { "two points" };
        lines.push(format!(
            "a curve has {points} on this machine of {cpus} CPUs, and says nothing about larger ones"
        ));
    }
    lines.extend(loads.iter().filter_map(|load| line(load, rows)));
    lines
}

/// `echo: efficiency on 8 CPUs: windlass 91 %, flat 88 %, tokio 70 %`
fn line(load: &Load, rows: &[Row]) -> Option<String> {
    let of_load = |row: &&Row| {
        place(row).is_some_and(|(name, order, _)| name == load.name && order == "near")
    };
    let last = rows
        .iter()
        .filter(of_load)
        .max_by_key(|row| place(row).map(|(.., n)| n))?;
    let (.., n) = place(last).filter(|(.., n)| *n > 1)?;
    let part = |name: &str| {
        Some(format!(
            "{} {}",
            display(name),
            percent(efficiency(rows, last, name)?)
        ))
    };
    let parts: Vec<_> = CONTENDERS.into_iter().filter_map(part).collect();
    Some(format!(
        "{}: efficiency on {n} CPUs: {}",
        load.name,
        parts.join(", ")
    ))
}

/// A panel for each workload, and in it a curve for each contender and order.
pub fn curves(loads: &[&Load], rows: &[Row]) -> Vec<Panel> {
    loads.iter().map(|load| panel(load, rows)).collect()
}

fn panel(load: &Load, rows: &[Row]) -> Panel {
    let curve = |contender: &'static str, order: &str| {
        let point = |row: &Row| {
            let (name, of_order, n) = place(row)?;
            // Both orders begin with one CPU.
            let is_ours = name == load.name && (of_order == order || n == 1);
            is_ours.then(|| Some((n, throughput(row, contender)?)))?
        };
        Curve {
            contender,
            is_spread: order == "spread",
            points: rows.iter().filter_map(point).collect(),
        }
    };
    let orders = ["near", "spread"];
    let all = CONTENDERS
        .iter()
        .flat_map(|name| orders.map(|order| curve(name, order)));
    Panel {
        title: load.title.to_owned(),
        unit: format!("{} a second", load.unit),
        curves: all.filter(|curve| curve.points.len() > 1).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::loads::LOADS;
    use super::*;

    fn rows() -> Vec<Row> {
        let row = |place: &str, ours: f64, theirs: f64| {
            let cells: &[(&str, &[f64])] = &[("windlass", &[ours]), ("tokio", &[theirs])];
            Row::of(&format!("skynet/{place}"), "per_second", cells)
        };
        vec![
            row("near/1", 1_000.0, 800.0),
            row("near/2", 1_900.0, 1_000.0),
            row("near/4", 3_000.0, 1_100.0),
            row("spread/2", 1_700.0, 900.0),
        ]
    }

    fn skynet() -> &'static Load {
        LOADS.iter().find(|load| load.name == "skynet").unwrap()
    }

    #[test]
    fn efficiency_is_against_one_cpu_whichever_the_order() {
        let rows = rows();
        assert_eq!(efficiency(&rows, &rows[2], "windlass"), Some(0.75));
        assert_eq!(efficiency(&rows, &rows[3], "windlass"), Some(0.85));
        assert_eq!(efficiency(&rows, &rows[3], "go"), None);
    }

    #[test]
    fn a_table_has_throughput_and_efficiency() {
        let text = of_load(skynet(), &rows());
        let lines: Vec<Vec<_>> = text
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(lines[1], ["CPUs", "order", "windlass", "tokio"]);
        assert_eq!(lines[2], ["1", "near", "1,000", "800"]);
        assert_eq!(
            lines[3],
            ["2", "near", "1,900", "95", "%", "1,000", "62", "%"]
        );
        assert_eq!(
            lines[5],
            ["2", "spread", "1,700", "85", "%", "900", "56", "%"]
        );
    }

    #[test]
    fn two_cpus_are_said_to_be_two_points() {
        let lines = lines(&[skynet()], &rows()[..2], 2);
        assert_eq!(
            lines,
            [
                "a curve has two points on this machine of 2 CPUs, and says nothing about larger ones",
                "skynet: efficiency on 2 CPUs: windlass 95 %, tokio 62 %",
            ]
        );
        assert_eq!(super::lines(&[skynet()], &rows(), 4).len(), 1);
    }

    #[test]
    fn both_orders_begin_at_one_cpu() {
        let panel = panel(skynet(), &rows());
        let points: Vec<_> = panel.curves.iter().map(|curve| &curve.points[..]).collect();
        assert_eq!(points[0], [(1, 1_000.0), (2, 1_900.0), (4, 3_000.0)]);
        assert_eq!(points[1], [(1, 1_000.0), (2, 1_700.0)]);
        assert_eq!(points.len(), 4, "Go and flat were not measured");
    }
}

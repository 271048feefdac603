//! What a run prints in the end: the machine, the table, a verdict for each topic, and where the
//! files are.

use std::fmt::Write;
use std::path::PathBuf;

use serde_json::Value;

use super::topic;
use crate::report::page::describe;
use crate::report::verdict::{Verdict, WINDLASS};
use crate::results::{Row, Summary};

/// Other programs disturb a run if they take more than this part of the CPU time.
const BUSY: f64 = 0.05;
/// The columns that come first; others follow in the order in which they come.
const FIRST: [&str; 3] = [WINDLASS, "tokio", "may"];

/// The results of a run.
#[derive(Debug)]
pub struct Report {
    /// The machine and the versions.
    pub machine: Value,
    /// The part of the CPU time that other programs took.
    pub others: f64,
    /// What criterion has measured: intervals of times in ns.
    pub rows: Vec<Row>,
    /// The verdicts of the other benches: the topic and its lines.
    pub verdicts: Vec<(String, Vec<String>)>,
    /// Charts of the other benches, as SVG.
    pub pictures: Vec<String>,
    /// Where the files lie.
    pub folder: PathBuf,
}

impl Report {
    /// The page for a browser.
    pub fn page(&self) -> PathBuf {
        self.folder.join("windlass.html")
    }

    /// The figures.
    pub fn json(&self) -> PathBuf {
        self.folder.join("windlass.json")
    }

    /// The topics of the rows, in their order.
    pub fn topics(&self) -> Vec<&'static str> {
        let mut topics: Vec<_> = self.rows.iter().map(|row| topic(&row.experiment)).collect();
        let mut seen = Vec::new();
        topics.retain(|topic| {
            !seen.contains(topic) && {
                seen.push(*topic);
                true
            }
        });
        topics
    }

    /// The rows of a topic.
    pub fn rows_of(&self, name: &str) -> Vec<&Row> {
        let is_of = |row: &&Row| topic(&row.experiment) == name;
        self.rows.iter().filter(is_of).collect()
    }
}

/// All of the screen.
pub fn closing(report: &Report) -> String {
    let mut text = format!("\n{}", describe(&report.machine));
    if let Some(warning) = busy(report.others) {
        let _ = writeln!(text, "{warning}");
    }
    if !report.rows.is_empty() {
        let _ = writeln!(text, "\n{ABOUT}\n\n{}", aligned(&cells(&report.rows)));
    }
    for line in verdicts(report) {
        let _ = writeln!(text, "{line}");
    }
    let (page, json) = (report.page(), report.json());
    let _ = write!(text, "\nPage: {}\nJSON: {}", page.display(), json.display());
    text
}

/// What the figures of the table are.
pub const ABOUT: &str = "Time of one operation: a yield, a message, a round trip. *: the best, or several whose 95 % confidence \
    intervals overlap.";

/// That the machine was busy, if it was.
pub fn busy(others: f64) -> Option<String> {
    let percent = others * 100.0;
    (others > BUSY).then(|| {
        format!(
            "Other programs took {percent:.0} % of the CPU time meanwhile: the times are rough."
        )
    })
}

/// A line for each topic; more for those of benches that say more.
pub fn verdicts(report: &Report) -> Vec<String> {
    let mut lines: Vec<_> = report
        .topics()
        .into_iter()
        .map(|topic| of_topic(topic, &report.rows_of(topic)))
        .collect();
    for (topic, of_bench) in &report.verdicts {
        lines.extend(of_bench.iter().map(|line| format!("{topic}: {line}")));
    }
    lines
}

/// `Tasks: ahead of all peers in 3 of 5 rows, level in 1, behind in 1 (yield loses to may by 30 %).`
fn of_topic(topic: &str, rows: &[&Row]) -> String {
    let verdicts: Vec<_> = rows.iter().map(|row| (row, Verdict::of(row))).collect();
    let count = |is: fn(&Verdict) -> bool| verdicts.iter().filter(|(_, v)| is(v)).count();
    let losses: Vec<_> = verdicts
        .iter()
        .filter(|(_, verdict)| matches!(verdict, Verdict::Loses { .. }))
        .map(|(row, verdict)| format!("{} {}", row.experiment, verdict.words()))
        .collect();
    let losses = if losses.is_empty() {
        String::new()
    } else {
        format!(" ({})", losses.join("; "))
    };
    format!(
        "{topic}: ahead of all peers in {} of {} rows, level in {}, behind in {}{losses}.",
        count(|v| matches!(v, Verdict::First { .. })),
        rows.len(),
        count(|v| matches!(v, Verdict::Level { .. })),
        count(|v| matches!(v, Verdict::Loses { .. })),
    )
}

/// The names of the columns for runtimes.
pub fn columns(rows: &[Row]) -> Vec<&str> {
    let all = || rows.iter().flat_map(|row| &row.cells);
    let is_there = |name: &&str| all().any(|(function, _)| function == name);
    let mut columns: Vec<_> = FIRST.into_iter().filter(is_there).collect();
    for (name, _) in all() {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    columns
}

/// The table: the head, and a line for each row.
pub fn cells(rows: &[Row]) -> Vec<Vec<String>> {
    let columns = columns(rows);
    let mut head = vec!["bench".to_owned()];
    head.extend(columns.iter().map(ToString::to_string));
    head.push(format!("{WINDLASS} is"));
    let line = |row: &Row| {
        let mut line = vec![row.experiment.clone()];
        line.extend(columns.iter().map(|&name| cell(row, name)));
        line.push(Verdict::of(row).words());
        line
    };
    [head].into_iter().chain(rows.iter().map(line)).collect()
}

fn cell(row: &Row, name: &str) -> String {
    let time = |name: &str| row.cells.iter().find(|(function, _)| function == name);
    let fastest = row
        .cells
        .iter()
        .min_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
    let (Some((_, time)), Some((_, best))) = (time(name), fastest) else {
        return "-".to_owned();
    };
    // With nobody beside it, nobody is the fastest.
    let wins = row.cells.len() > 1 && overlap(time, best);
    format!("{}{}", if wins { "*" } else { "" }, short(time.median))
}

fn overlap(a: &Summary, b: &Summary) -> bool {
    a.min <= b.max && b.min <= a.max
}

/// Columns under one another: the first and the last begin on the left.
fn aligned(lines: &[Vec<String>]) -> String {
    let last = lines.first().map_or(0, |line| line.len().saturating_sub(1));
    let width = |i: usize| {
        lines
            .iter()
            .map(|line| line[i].chars().count())
            .max()
            .unwrap_or(0)
    };
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (i, cell) in line.iter().enumerate() {
            let width = width(i);
            // Writing to a string does not fail.
            let _ = match i {
                0 => write!(row, "{cell:<width$}"),
                _ if i == last => write!(row, "   {cell}"),
                _ => write!(row, "  {cell:>width$}"),
            };
        }
        let _ = writeln!(text, "{}", row.trim_end());
    }
    text
}

/// Three digits and a unit.
fn short(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns >= 1e9 => (ns / 1e9, "s"),
        ns if ns >= 1e6 => (ns / 1e6, "ms"),
        ns if ns >= 1e3 => (ns / 1e3, "us"),
        ns => (ns, "ns"),
    };
    let decimals = match value {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let three = |w: f64, t: f64, m: f64| {
            let cells = [("windlass", w), ("tokio", t), ("may", m)];
            cells.map(|(name, ns)| (name, [ns * 0.99, ns, ns * 1.01]))
        };
        let row = |name: &str, cells: &[(&str, [f64; 3])]| {
            let cells: Vec<_> = cells.iter().map(|(name, ns)| (*name, &ns[..])).collect();
            Row::of(name, "ns", &cells)
        };
        Report {
            machine: serde_json::json!({ "cpu": "Some CPU", "cpus": 2, "nodes": 1 }),
            others: 0.4,
            rows: vec![
                row("yield", &three(42.0, 84.0, 84.5)),
                row("skynet/1k", &three(300.0, 200.0, 100.0)),
                row("stream/512", &three(2_500.0, 2_510.0, 4_000.0)),
                row(
                    "mutex/alone",
                    &[("windlass", [8.0, 8.0, 8.0]), ("std", [9.0, 9.0, 9.0])],
                ),
            ],
            verdicts: vec![(
                "NUMA policies".into(),
                vec!["scan: default is level with flat".into()],
            )],
            pictures: Vec::new(),
            folder: "/target/criterion".into(),
        }
    }

    #[test]
    fn the_screen_has_machine_table_verdicts_and_files() {
        let expected = "
Some CPU, 2 CPUs, 1 NUMA node.
Other programs took 40 % of the CPU time meanwhile: the times are rough.

Time of one operation: a yield, a message, a round trip. *: the best, or several whose 95 % confidence \
intervals overlap.

bench         windlass    tokio      may      std   windlass is
yield         *42.0 ns  84.0 ns  84.5 ns        -   ahead of tokio by a factor of 2.0
skynet/1k       300 ns   200 ns  *100 ns        -   loses to may by a factor of 3.0
stream/512    *2.50 us *2.51 us  4.00 us        -   level with tokio
mutex/alone   *8.00 ns        -        -  9.00 ns   ahead of std by 12 %

Tasks: ahead of all peers in 1 of 2 rows, level in 0, behind in 1 (skynet/1k loses to may by a factor of 3.0).
Network: ahead of all peers in 0 of 1 rows, level in 1, behind in 0.
Locks and channels: ahead of all peers in 1 of 1 rows, level in 0, behind in 0.
NUMA policies: scan: default is level with flat

Page: /target/criterion/windlass.html
JSON: /target/criterion/windlass.json";
        let squeeze = |text: &str| {
            let lines = text.lines();
            let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
            words.collect::<Vec<_>>()
        };
        assert_eq!(squeeze(&closing(&report())), squeeze(expected));
    }

    #[test]
    fn columns_are_aligned() {
        let text = aligned(&cells(&report().rows));
        let ends: Vec<_> = text
            .lines()
            .map(|line| line.find("   ").unwrap_or(0) > 0)
            .collect();
        assert_eq!(ends.len(), 5);
        let place = |line: &str, word: &str| line.find(word).map(|at| at + word.len());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(place(lines[0], "tokio"), place(lines[1], "84.0 ns"));
    }

    #[test]
    fn a_quiet_machine_needs_no_word_and_a_lone_figure_no_star() {
        assert_eq!(busy(0.01), None);
        let row = Row::of("yield", "ns", &[("windlass", &[42.0])]);
        assert_eq!(cells(&[row])[1], ["yield", "42.0 ns", "–"]);
    }
}

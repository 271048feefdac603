//! The tables of docs/SCALE.md and its chart. `--page` measures each figure that they show in a process of its own, and
//! writes it into docs/scale; `--render` draws it. docs/scale/before.txt has the figures of an older tree.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::chart::{self, Curve, Panel};
use crate::short::{self, Figures};

/// Work of which no part needs another P, and the machines on which its curves are drawn.
const LOCAL: [&str; 4] = ["spawn", "pairs", "sleepers", "echo"];
const LARGE: [(&str, usize); 4] = [("1x72", 72), ("2x32smt", 64), ("4x28", 112), ("8x64", 512)];
/// Workloads that are measured on one P and on all.
const OTHERS: [(&str, &str, usize); 10] = [
    ("yield", "1x72", 72),
    ("yield", "4x28", 112),
    ("yield", "8x64", 512),
    ("mutex", "1x8", 8),
    ("mutex", "1x72", 72),
    ("mutex", "4x28", 112),
    ("one-to-all", "1x8", 8),
    ("one-to-all", "1x72", 72),
    ("one-to-all", "4x28", 112),
    ("one-to-all", "8x64", 512),
];
/// Events, and the machines on which they are shown.
const EVENTS: [(&str, &[&str]); 9] = [
    ("burst", &["1x8", "1x72", "2x32smt", "4x28", "8x64"]),
    ("stop", &["8x64"]),
    ("set_processors", &["8x64"]),
    ("end", &["1x72", "8x64"]),
    ("sections", &["8x64"]),
    ("idle", &["8x64"]),
    ("hogs", &["8x64"]),
    ("producer", &["2x32smt", "4x28", "8x64"]),
    ("wakes", &["2x32smt", "4x28", "8x64"]),
];

/// A line of docs/scale/now.txt: `workload machine Ps ns inside between share field hash`.
#[derive(Clone, Debug)]
struct Row {
    workload: String,
    machine: String,
    n_ps: usize,
    figures: Figures,
    /// The dearest line: its share of all time in percent, and its field.
    share: f64,
    field: String,
}

impl Row {
    fn parse(line: &str) -> Option<Row> {
        let mut words = line.split_whitespace();
        let mut word = || words.next();
        let (workload, machine) = (word()?.to_owned(), word()?.to_owned());
        let n_ps = word()?.parse().ok()?;
        let mut number = || word()?.parse::<f64>().ok();
        Some(Row {
            workload,
            machine,
            n_ps,
            figures: Figures {
                ns: number()?,
                inside: number()?,
                between: number()?,
            },
            share: number()?,
            field: word()?.to_owned(),
        })
    }
}

/// The figures of one tree.
#[derive(Debug, Default)]
struct Rows(Vec<Row>);

impl Rows {
    fn read(file: &str) -> Rows {
        let text = fs::read_to_string(docs("scale").join(file)).unwrap_or_default();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Rows(lines.map(|line| Row::parse(line).expect("a row")).collect())
    }

    fn of(&self, workload: &str, machine: &str, n_ps: usize) -> Option<&Row> {
        let is_it =
            |row: &&Row| (&*row.workload, &*row.machine, row.n_ps) == (workload, machine, n_ps);
        self.0.iter().find(is_it)
    }

    /// The throughput of each of so many Ps, compared with that of one.
    fn efficiency(&self, workload: &str, machine: &str, n_ps: usize) -> Option<f64> {
        let one = self.of(workload, machine, 1)?.figures.ns;
        let all = self.of(workload, machine, n_ps)?.figures.ns;
        Some(one / all / n_ps as f64)
    }

    fn curve(&self, workload: &str, (machine, n_cpus): (&str, usize)) -> Vec<(usize, f64)> {
        let counts = counts(n_cpus).into_iter();
        let point = |n| Some((n, self.efficiency(workload, machine, n)?));
        counts.filter_map(point).collect()
    }
}

fn docs(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(file)
}

/// 1, 2, 4, .. and all.
pub(crate) fn counts(n_cpus: usize) -> Vec<usize> {
    let powers = (0..).map(|i| 1 << i).take_while(|&n| n < n_cpus);
    powers.chain([n_cpus]).collect()
}

/// The rows that the page needs.
fn wanted() -> Vec<(&'static str, &'static str, usize)> {
    let of_machine = |workload| {
        let all = LARGE.into_iter();
        all.flat_map(move |(machine, n)| counts(n).into_iter().map(move |n| (workload, machine, n)))
    };
    let curves = LOCAL.into_iter().flat_map(of_machine);
    let others = OTHERS
        .into_iter()
        .flat_map(|(workload, machine, n)| [1, n].map(|n| (workload, machine, n)));
    curves.chain(others).collect()
}

/// Measures what is missing in docs/scale, and draws all.
pub(crate) fn measure() -> ExitCode {
    let now = docs("scale").join("now.txt");
    let known = Rows::read("now.txt");
    for (workload, machine, n_ps) in wanted() {
        if known.of(workload, machine, n_ps).is_some() {
            continue;
        }
        let n = n_ps.to_string();
        let figures = short::output(&["--row", machine, workload, &n]);
        let row = format!("{workload} {machine} {n_ps} {}", figures.trim());
        let row = row.split_whitespace().collect::<Vec<_>>().join(" ");
        println!("{row}");
        append(&now, &(row + "\n"));
    }
    let events = docs("scale").join("events.txt");
    let known = fs::read_to_string(&events).unwrap_or_default();
    for (event, machines) in EVENTS {
        for machine in machines {
            let head = format!("$ scale --machine {machine} --workload {event}\n");
            if known.contains(&head) {
                continue;
            }
            let text = short::output(&["--machine", machine, "--workload", event]);
            println!("{head}{}", text.trim());
            append(&events, &format!("{head}{}\n\n", text.trim()));
        }
    }
    render()
}

fn append(file: &Path, text: &str) {
    let before = fs::read_to_string(file).unwrap_or_default();
    fs::write(file, before + text).expect("docs/scale can be written");
}

/// Draws the chart and the tables.
pub(crate) fn render() -> ExitCode {
    for (file, text) in drawn() {
        fs::write(file, text).expect("docs can be written");
    }
    ExitCode::SUCCESS
}

/// Whether the docs have what docs/scale has.
pub(crate) fn is_drawn() -> bool {
    let is_there =
        |(file, text): (PathBuf, String)| fs::read_to_string(file).is_ok_and(|now| now == text);
    drawn().into_iter().all(is_there)
}

/// The chart and the page, with the tables of what was measured.
fn drawn() -> [(PathBuf, String); 2] {
    let (now, before) = (Rows::read("now.txt"), Rows::read("before.txt"));
    let panel = |workload| Panel {
        title: workload,
        curves: LARGE
            .map(|large| Curve {
                machine: large.0,
                points: now.curve(workload, large),
                before: before.curve(workload, large),
            })
            .to_vec(),
    };
    let events = fs::read_to_string(docs("scale").join("events.txt")).unwrap_or_default();
    let mut page = fs::read_to_string(docs("SCALE.md")).expect("docs has the page");
    for (name, table) in [
        ("efficiency", efficiency(&now, &before)),
        ("others", others(&now)),
        ("lines", lines(&now, &before)),
        ("events", format!("```text\n{}\n```\n", events.trim())),
    ] {
        page = replaced(&page, name, &table);
    }
    let chart = chart::svg(&LOCAL.map(panel));
    [(docs("img/scale.svg"), chart), (docs("SCALE.md"), page)]
}

/// `page` with `table` between the marks of that name.
fn replaced(page: &str, name: &str, table: &str) -> String {
    let (begin, end) = (
        format!("<!-- {name}: written by `make scale-page` -->\n"),
        "<!-- to here -->",
    );
    let (head, rest) = page.split_once(&begin).expect("the page has the marks");
    let (_, tail) = rest.split_once(end).expect("a table ends");
    format!("{head}{begin}\n{table}\n{end}{tail}")
}

fn percent(part: Option<f64>) -> String {
    part.map_or("–".to_owned(), |part| format!("{:.0} %", 100.0 * part))
}

/// With three digits, or all of those before the point.
fn short_number(n: f64) -> String {
    match n {
        1_000.0.. => format!("{},{:03}", n as u64 / 1_000, n as u64 % 1_000),
        100.0.. => format!("{n:.0}"),
        10.0.. => format!("{n:.1}"),
        _ => format!("{n:.2}"),
    }
}

fn efficiency(now: &Rows, before: &Rows) -> String {
    let mut table = "| efficiency | ns on one P | 8 Ps | 64 Ps | all Ps | all Ps, before |\n|---|---|---|---|---|---|\n".to_owned();
    for workload in LOCAL {
        for (machine, n_cpus) in LARGE {
            let Some(one) = now.of(workload, machine, 1) else {
                continue;
            };
            let on = |n| percent(now.efficiency(workload, machine, n));
            writeln!(
                table,
                "| {workload}, {machine} | {} | {} | {} | {} | {} |",
                short_number(one.figures.ns),
                on(8),
                on(64),
                on(n_cpus),
                percent(before.efficiency(workload, machine, n_cpus))
            )
            .expect("a string takes it");
        }
    }
    table
}

fn others(now: &Rows) -> String {
    let mut table = "| workload | machine | 1 P | all Ps | transfers inside of nodes | between them |\n|---|---|---|---|---|---|\n".to_owned();
    let local = LOCAL
        .into_iter()
        .flat_map(|w| LARGE.map(|(machine, n)| (w, machine, n)));
    for (workload, machine, n_cpus) in local.chain(OTHERS) {
        let (Some(one), Some(all)) = (
            now.of(workload, machine, 1),
            now.of(workload, machine, n_cpus),
        ) else {
            continue;
        };
        let Figures {
            ns,
            inside,
            between,
        } = all.figures;
        writeln!(
            table,
            "| {workload} | {machine} | {} | {} | {inside:.2} | {between:.2} |",
            short_number(one.figures.ns),
            short_number(ns)
        )
        .expect("a string takes it");
    }
    table
}

fn lines(now: &Rows, before: &Rows) -> String {
    let mut table =
        "| workload | its dearest line | share of all time | before |\n|---|---|---|---|\n"
            .to_owned();
    let local = LOCAL
        .into_iter()
        .flat_map(|w| LARGE.map(|(machine, n)| (w, machine, n)));
    for (workload, machine, n_cpus) in local.chain(OTHERS) {
        let Some(row) = now.of(workload, machine, n_cpus) else {
            continue;
        };
        let before = before.of(workload, machine, n_cpus);
        let before = before.map_or("–".to_owned(), |row| {
            format!("`{}` {:.1} %", row.field, row.share)
        });
        writeln!(
            table,
            "| {workload}, {machine} | `{}` | {:.2} % | {before} |",
            row.field, row.share
        )
        .expect("a string takes it");
    }
    table
}

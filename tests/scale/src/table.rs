//! The tables: what each workload does on a machine, and which lines cost most.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use windlass::Builder;
use windlass::explore::lines::LineCost;
use windlass::explore::twin::{Report, simulate};

use crate::clock::take_costs;
use crate::events::{self, Event};
use crate::known;
use crate::machines::{self, Model};
use crate::page::{self, counts};
use crate::short::{self, Figures};
use crate::workloads::{self, Workload, build, burst};

const USAGE: &str = "\
usage: scale [--machine NAME] [--workload NAME] [--ps N] [--lines N]
       scale --check [--update] | --page | --render | --known
  without a name, all; without a number of Ps, 1, 2, 4, .. all CPUs of the machine
  --check: does a run give the same numbers twice, and those on record? --update records them
  --page: measures what docs/scale lacks, and draws the tables and the chart of docs/SCALE.md; --render: draws them
  --known: do results of others come out?";

#[derive(Clone, Debug, Default)]
struct Settings {
    machine: Option<String>,
    workload: Option<String>,
    ps: Option<usize>,
    lines: usize,
}

fn settings(mut args: impl Iterator<Item = String>) -> Option<Settings> {
    let mut settings = Settings {
        lines: 3,
        ..Settings::default()
    };
    while let Some(arg) = args.next() {
        let value = args.next()?;
        match arg.as_str() {
            "--machine" => settings.machine = Some(value),
            "--workload" => settings.workload = Some(value),
            "--ps" => settings.ps = Some(value.parse().ok()?),
            "--lines" => settings.lines = value.parse().ok()?,
            _ => return None,
        }
    }
    Some(settings)
}

pub(crate) fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["--check"] => short::check(false),
        ["--check", "--update"] => short::check(true),
        ["--row", machine, workload, n_ps] => row([machine, workload, n_ps]),
        ["--page"] => page::measure(),
        ["--render"] => page::render(),
        ["--known"] => known(),
        _ => settings(args.into_iter()).map_or_else(usage, |settings| chosen(&settings)),
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn known() -> ExitCode {
    windlass::explore::fix_addresses();
    match known::show() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn chosen(settings: &Settings) -> ExitCode {
    windlass::explore::fix_addresses();
    let is_wanted =
        |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|w| w == name);
    for model in machines::ALL {
        if is_wanted(&settings.machine, model.name) {
            for workload in workloads::ALL {
                if is_wanted(&settings.workload, workload.name) {
                    curve(model, workload, settings);
                }
            }
            if is_wanted(&settings.workload, "burst") {
                show_burst(model, settings.lines);
            }
            for event in events::ALL {
                if is_wanted(&settings.workload, event.name) {
                    show_event(model, event, settings);
                }
            }
        }
    }
    ExitCode::SUCCESS
}

/// Prints the figures of one row of [`short`] or [`page`], the dearest line, and the hash of all points.
fn row([machine, workload, n_ps]: [&str; 3]) -> ExitCode {
    windlass::explore::fix_addresses();
    let model = machines::ALL.iter().find(|m| m.name == machine);
    let workload = workloads::ALL.iter().find(|w| w.name == workload);
    let (Some(model), Some(workload), Ok(n_ps)) = (model, workload, n_ps.parse()) else {
        return usage();
    };
    let run = run(model, *workload, n_ps);
    let all_ps = run.span_ns * n_ps as f64 * 1e3;
    let dearest = run.report.lines.first();
    let share = dearest.map_or(0.0, |line| 100.0 * line.cost.total_ps() as f64 / all_ps);
    let place = dearest.and_then(|line| by_cost(line).first().copied());
    let field = place.map_or("?".to_owned(), named);
    println!("{} {share:7.3} {field} {:x}", run.figures(), run.hash);
    ExitCode::SUCCESS
}

/// The field at a place; with its file if that is a number, or no field.
fn named((file, line, column): (&str, u32, u32)) -> String {
    let field = receiver(file, line, column);
    match field.chars().all(char::is_numeric) {
        true => format!("{}:{field}", file.rsplit('/').next().unwrap_or(file)),
        false => field,
    }
}

/// A run of the twin.
struct Run {
    /// Operations of all Ps together for each ns.
    per_ns: f64,
    /// How long it was measured.
    span_ns: f64,
    /// CPUs that had work then.
    n_busy: usize,
    report: Report,
    n_points: u64,
    hash: u64,
    host_s: f64,
}

impl Run {
    fn figures(&self) -> Figures {
        let [core, l3, node, remote] = self.transfers();
        Figures {
            ns: 1.0 / self.per_ns,
            inside: core + l3 + node,
            between: remote,
        }
    }

    /// Transfers of lines for an operation, by level.
    fn transfers(&self) -> [f64; 4] {
        let n_ops = self.per_ns * self.span_ns;
        self.report.by_level.map(|n| n as f64 / n_ops)
    }
}

fn run(model: &Model, workload: Workload, n_ps: usize) -> Run {
    let topology = model.topology();
    let machine = model.machine(&topology);
    let begin = Instant::now();
    let program = move || {
        let rt = build(Builder::new().processors(n_ps).topology(topology));
        workload.run(&rt, n_ps as u32)
    };
    let (per_ns, n_points, hash) = simulate(machine, program);
    let costs = take_costs();
    Run {
        per_ns,
        span_ns: workload.span_on(n_ps as u32).as_nanos() as f64,
        n_busy: costs.cpus.len(),
        report: costs.report(),
        n_points,
        hash,
        host_s: begin.elapsed().as_secs_f64(),
    }
}

/// Prints the curve.
fn curve(model: &Model, workload: &Workload, settings: &Settings) {
    let n_cpus = model.topology().pus().len();
    println!("\n{} on {}: {}", workload.name, model.name, workload.what);
    println!(
        "{:>4} {:>5} {:>12} {:>10} {:>6} {:>9} {:>9} {:>9} {:>9} {:>10} {:>17}",
        "Ps",
        "busy",
        "ns each",
        "M/s",
        "eff",
        "core/op",
        "L3/op",
        "node/op",
        "remote/op",
        "M points/s",
        "hash"
    );
    let mut one = None;
    let mut last = None;
    for n_ps in settings.ps.map_or_else(|| counts(n_cpus), |n| vec![n]) {
        let run = run(model, *workload, n_ps);
        let per_ns = run.per_ns;
        let first = *one.get_or_insert(per_ns / n_ps as f64);
        let [core, l3, node, remote] = run.transfers();
        println!(
            "{n_ps:>4} {:>5} {:>12.1} {:>10.2} {:>5.0}% {core:>9.2} {l3:>9.2} {node:>9.2} {remote:>9.2} {:>9} {:>17x}",
            run.n_busy,
            1.0 / per_ns,
            per_ns * 1e3,
            100.0 * per_ns / n_ps as f64 / first,
            run.n_points,
            run.hash,
        );
        eprintln!(
            "{:.2} M points a second of the host",
            run.n_points as f64 / run.host_s / 1e6
        );
        last = Some((n_ps, run));
    }
    if let Some((n_ps, run)) = last {
        show_lines(
            &run.report,
            run.span_ns as u64 * n_ps as u64,
            settings.lines,
        );
    }
}

fn show_burst(model: &Model, n_lines: usize) {
    let topology = model.topology();
    let n_ps = topology.pus().len();
    let machine = model.machine(&topology);
    let program = move || burst(&build(Builder::new().processors(n_ps).topology(topology)));
    let (burst, ..) = simulate(machine, program);
    let report = take_costs().report();
    let us = |ns: u64| ns as f64 / 1e3;
    let at_work = |part: usize| burst.begun_ns.get(n_ps * part / 4 - 1);
    let at_work =
        |part| at_work(part).map_or("never".to_owned(), |&ns| format!("{:.0} µs", us(ns)));
    println!(
        "\nburst on {}: a half, three quarters and all of {n_ps} Ps are at work after {}, {}, {}; {} at last; \
         spawned after {:.0} µs, ended after {:.0}",
        model.name,
        at_work(2),
        at_work(3),
        at_work(4),
        burst.begun_ns.len(),
        us(burst.spawned_ns),
        us(burst.ended_ns)
    );
    for figure in burst.searches {
        println!("  {figure}");
    }
    show_lines(&report, burst.ended_ns * n_ps as u64, n_lines);
}

fn show_event(model: &Model, event: &Event, settings: &Settings) {
    let topology = model.topology();
    let n_ps = settings.ps.unwrap_or(topology.pus().len());
    let machine = model.machine(&topology);
    let run = event.run;
    let program = move || run(Builder::new().processors(n_ps).topology(topology));
    println!(
        "\n{} on {n_ps} Ps of {}: {}",
        event.name, model.name, event.what
    );
    let (figures, n_points, hash) = simulate(machine, program);
    let costs = take_costs();
    for figure in figures {
        println!("  {figure}");
    }
    println!("  {n_points} points, hash {hash:x}");
    show_lines(
        &costs.report(),
        costs.span_ns() * n_ps as u64,
        settings.lines,
    );
}

/// The dearest lines, and the dearest places in the source: of many lines that one field has, each may be cheap.
fn show_lines(report: &Report, all_ns: u64, n: usize) {
    let all_ps = all_ns as f64 * 1e3;
    let share = |ps: u64| 100.0 * ps as f64 / all_ps;
    for (at, line) in report.lines.iter().take(n).enumerate() {
        println!(
            "  line {}: {:>5.2} % of all time, {} transfers, {:.0} µs of waiting: {}",
            at + 1,
            share(line.cost.total_ps()),
            line.cost.transfers,
            line.cost.waited_ps as f64 / 1e6,
            names(line)
        );
    }
    for ((file, line, column), ps, transfers) in places(report).into_iter().take(n) {
        println!(
            "  field {}: {:>5.2} % of all time, {transfers} transfers at {file}:{line}",
            receiver(file, line, column),
            share(ps)
        );
    }
}

/// The places where a line is accessed, the dearest first.
fn by_cost(line: &LineCost) -> Vec<(&'static str, u32, u32)> {
    let mut places = line.places.clone();
    places.sort_by_key(|(_, cost)| std::cmp::Reverse(cost.total_ps()));
    places.into_iter().map(|(at, _)| at).collect()
}

/// Some of its fields, with their places.
fn names(line: &LineCost) -> String {
    let name = |(file, line, column)| format!("{} ({file}:{line})", receiver(file, line, column));
    let names: Vec<_> = by_cost(line).into_iter().take(3).map(name).collect();
    names.join(", ")
}

/// Costs by place in the source, the dearest first.
fn places(report: &Report) -> Vec<((&'static str, u32, u32), u64, u64)> {
    let mut all = BTreeMap::<_, (u64, u64)>::new();
    for (place, cost) in report.lines.iter().flat_map(|l| &l.places) {
        let entry = all.entry(*place).or_default();
        entry.0 += cost.total_ps();
        entry.1 += cost.transfers;
    }
    let mut list: Vec<_> = all.into_iter().map(|(at, (ps, n))| (at, ps, n)).collect();
    list.sort_by_key(|(_, ps, _)| std::cmp::Reverse(*ps));
    list
}

/// The name of what the call at a place in the source is made on: `head` of `self.head.load(..)`.
pub(crate) fn receiver(file: &str, line: u32, column: u32) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let Ok(text) = std::fs::read_to_string(format!("{root}{file}")) else {
        return "?".to_owned();
    };
    let before: String = text
        .lines()
        .take(line as usize - 1)
        .map(|l| l.to_owned() + "\n")
        .collect();
    let here = text.lines().nth(line as usize - 1).unwrap_or("");
    let until: String = here.chars().take(column as usize - 1).collect();
    let whole = before + &until;
    let path = whole.trim_end().trim_end_matches('.').trim_end();
    let path = path.trim_end_matches("()");
    let from = path
        .rfind(|c: char| !c.is_alphanumeric() && c != '_')
        .map_or(0, |at| at + 1);
    path[from..].to_owned()
}

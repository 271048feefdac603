//! The tables: what each workload does on a machine, and which lines cost most.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use windlass::Builder;
use windlass::explore::lines::LineCost;
use windlass::explore::twin::{Report, report, simulate};

use crate::known;
use crate::machines::{self, Model};
use crate::workloads::{self, Outcome, Workload, build, burst};

const USAGE: &str = "\
usage: scale [--machine NAME] [--workload NAME] [--ps N] [--lines N]
       scale --check | --known
  without a name, all; without a number of Ps, 1, 2, 4, .. all CPUs of the machine
  --check: does a run give the same numbers twice?
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
    match std::env::args().nth(1).as_deref() {
        Some("--check") => check(),
        Some("--known") => known(),
        _ => chosen(),
    }
}

fn known() -> ExitCode {
    windlass::explore::fix_addresses();
    match known::show() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn chosen() -> ExitCode {
    let Some(settings) = settings(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    windlass::explore::fix_addresses();
    let is_wanted =
        |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|w| w == name);
    for model in machines::ALL {
        if is_wanted(&settings.machine, model.name) {
            for workload in workloads::ALL {
                if is_wanted(&settings.workload, workload.name) {
                    curve(model, workload, &settings);
                }
            }
            if is_wanted(&settings.workload, "burst") {
                show_burst(model, settings.lines);
            }
        }
    }
    ExitCode::SUCCESS
}

/// Runs of which the numbers are compared: with many spawns, with a lock, and on several nodes.
const CHECKED: [[&str; 3]; 3] = [
    ["1x8", "spawn", "8"],
    ["1x8", "mutex", "8"],
    ["2x32smt", "pairs", "64"],
];

/// Runs some workloads in two processes each, which must print the same.
fn check() -> ExitCode {
    let print = |[machine, workload, ps]: [&str; 3]| {
        let args = ["--machine", machine, "--workload", workload, "--ps", ps];
        let program = std::env::current_exe().expect("this program has a file");
        let output = std::process::Command::new(program).args(args).output();
        let output = output.expect("it starts");
        output.status.success().then_some(output.stdout)
    };
    for run in CHECKED {
        let name = run.join(" ");
        match (print(run), print(run)) {
            (Some(one), Some(other)) if one == other => println!("the same twice: {name}"),
            (Some(_), Some(_)) => {
                println!("NOT THE SAME: {name}");
                return ExitCode::FAILURE;
            }
            _ => {
                println!("FAILED: {name}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// A run of the twin.
struct Run {
    outcome: Outcome,
    report: Report,
    n_points: u64,
    hash: u64,
    host_s: f64,
}

fn run(model: &Model, workload: Workload, n_ps: usize) -> Run {
    let topology = model.topology();
    let machine = model.machine(&topology);
    let begin = Instant::now();
    let program = move || {
        let rt = build(Builder::new().processors(n_ps).topology(topology));
        let outcome = workload.run(&rt, n_ps);
        (outcome, report())
    };
    let ((outcome, report), n_points, hash) = simulate(machine, program);
    Run {
        outcome,
        report,
        n_points,
        hash,
        host_s: begin.elapsed().as_secs_f64(),
    }
}

/// 1, 2, 4, .. and all.
fn counts(n_cpus: usize) -> Vec<usize> {
    let powers = (0..).map(|i| 1 << i).take_while(|&n| n < n_cpus);
    powers.chain([n_cpus]).collect()
}

fn curve(model: &Model, workload: &Workload, settings: &Settings) {
    let n_cpus = model.topology().pus().len();
    println!("\n{} on {}: {}", workload.name, model.name, workload.what);
    println!(
        "{:>4} {:>12} {:>10} {:>6} {:>9} {:>9} {:>9} {:>9} {:>10} {:>17}",
        "Ps",
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
        let Outcome { n_ops, ns } = run.outcome;
        let per_ns = n_ops as f64 / ns as f64;
        let first = *one.get_or_insert(per_ns / n_ps as f64);
        let [core, l3, node, remote] = run.report.by_level.map(|n| n as f64 / n_ops as f64);
        println!(
            "{n_ps:>4} {:>12.1} {:>10.2} {:>5.0}% {core:>9.2} {l3:>9.2} {node:>9.2} {remote:>9.2} {:>9} {:>17x}",
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
        show_lines(&run.report, run.outcome.ns * n_ps as u64, settings.lines);
    }
}

fn show_burst(model: &Model, n_lines: usize) {
    let topology = model.topology();
    let n_ps = topology.pus().len();
    let machine = model.machine(&topology);
    let program = move || {
        let burst = burst(&build(Builder::new().processors(n_ps).topology(topology)));
        (burst, report())
    };
    let ((burst, report), ..) = simulate(machine, program);
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
    show_lines(&report, burst.ended_ns * n_ps as u64, n_lines);
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

/// The fields that are accessed in a line, the dearest first.
fn names(line: &LineCost) -> String {
    let mut places = line.places.clone();
    places.sort_by_key(|(_, cost)| std::cmp::Reverse(cost.total_ps()));
    let name = |((file, line, column), _): &((&str, u32, u32), _)| {
        format!("{} ({file}:{line})", receiver(file, *line, *column))
    };
    places
        .iter()
        .take(3)
        .map(name)
        .collect::<Vec<_>>()
        .join(", ")
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
fn receiver(file: &str, line: u32, column: u32) -> String {
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
    let from = path
        .rfind(|c: char| !c.is_alphanumeric() && c != '_')
        .map_or(0, |at| at + 1);
    path[from..].to_owned()
}

//! Runs whose figures are on record, so that a line that more CPUs write is seen in the change that makes it so.
//!
//! The figures of a run are the same on each machine. They differ a little between builds, as the lines on which data
//! lies do, so they have a tolerance.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::page;

/// A run: a machine, a workload, a number of Ps.
type Row = [&'static str; 3];

/// On a machine of one node, and on one of two. Not a lock that all take, nor a channel of 64 Ps: their rates change by 4
/// to 7 % with the lines on which data lies. Nor `echo`, whose transfers are 1.8 to 3 for an exchange in different builds.
const ROWS: &[Row] = &[
    ["1x8", "spawn", "8"],
    ["1x8", "yield", "8"],
    ["1x8", "pairs", "8"],
    ["1x8", "one-to-all", "8"],
    ["2x32smt", "spawn", "64"],
    ["2x32smt", "pairs", "64"],
];

/// How much the time may grow, and how much the transfers, of which so many an operation are nothing. The compiler and
/// its settings place statics on other lines, which changes transfers by up to 18 % and times by 0.7 %.
const MOST_GROWTH: f64 = 0.03;
const MOST_MORE_TRANSFERS: f64 = 0.25;
const NO_TRANSFERS: f64 = 0.02;

/// What a run has cost for each operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figures {
    pub(crate) ns: f64,
    /// Transfers of lines inside of nodes, and between them.
    pub(crate) inside: f64,
    pub(crate) between: f64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:9.3} {:7.3} {:7.3}",
            self.ns, self.inside, self.between
        )
    }
}

impl Figures {
    fn parse(text: &str) -> Option<Figures> {
        let mut numbers = text.split_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Figures {
            ns: next()?,
            inside: next()?,
            between: next()?,
        })
    }

    /// Whether it costs more than is on record.
    fn is_worse_than(self, recorded: Figures) -> bool {
        let grows = |now: f64, then: f64| now > then * (1.0 + MOST_MORE_TRANSFERS) + NO_TRANSFERS;
        self.ns > recorded.ns * (1.0 + MOST_GROWTH)
            || grows(self.inside, recorded.inside)
            || grows(self.between, recorded.between)
    }
}

fn record() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("recorded.txt")
}

/// The output of this program with other arguments, of a process without an environment: what others have left in
/// memory does not count.
pub(crate) fn output(args: &[&str]) -> String {
    let program = std::env::current_exe().expect("this program has a file");
    let mut command = Command::new(program);
    let output = command.args(args).env_clear().output();
    let output = output.expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", args.join(" "));
    String::from_utf8(output.stdout).expect("it prints text")
}

/// The figures of a row, and the hash of all points.
fn print([machine, workload, n_ps]: Row) -> String {
    output(&["--row", machine, workload, n_ps])
}

/// Compares all rows with those on record, or records them.
pub(crate) fn check(update: bool) -> ExitCode {
    let twice = [print(ROWS[0]), print(ROWS[0])];
    assert_eq!(twice[0], twice[1], "equal runs give equal numbers");
    let before = std::fs::read_to_string(record()).unwrap_or_default();
    let mut after = String::new();
    let mut worse = Vec::new();
    println!(
        "{:24} {:>9} {:>7} {:>7}   {:>9} {:>7} {:>7}",
        "an operation", "ns", "inside", "between", "recorded", "", ""
    );
    for row in ROWS {
        let name = row.join(" ");
        let now = Figures::parse(&print(*row)).expect("figures");
        after += &format!("{name:24} {now}\n");
        let line = before.lines().find_map(|line| line.strip_prefix(&name));
        let Some(recorded) = line.and_then(Figures::parse) else {
            println!("{name:24} {now}   not on record");
            worse.push(name);
            continue;
        };
        let verdict = match () {
            () if now.is_worse_than(recorded) => "  TOO MUCH",
            () if recorded.is_worse_than(now) => "  less: record it with --update",
            () => "",
        };
        println!("{name:24} {now}   {recorded}{verdict}");
        if now.is_worse_than(recorded) {
            worse.push(name);
        }
    }
    if update {
        std::fs::write(record(), after).expect("the record can be written");
        return ExitCode::SUCCESS;
    }
    if !page::is_drawn() {
        eprintln!("scale: docs/SCALE.md has not what docs/scale has: make scale SCALE=--render");
        return ExitCode::FAILURE;
    }
    if worse.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!(
        "scale: more than on record: {}. If that is meant, say why and record it: make scale-check SCALE=--update",
        worse.join("; ")
    );
    ExitCode::FAILURE
}

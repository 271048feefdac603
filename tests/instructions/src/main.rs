//! Counts the instructions of windlass's hot paths by callgrind, and compares them with those on
//! record, so that a slower path is seen in the change that makes it so.
//!
//! Times on a busy machine say nothing about two percent; instructions do, and the same program has
//! almost the same count. Each row runs in two lengths, and the difference is divided: what starts
//! and ends the runtime is not in it. Work of the kernel is not in it either, and neither is the
//! work of a P about every 10 µs ([`PERIODIC`]): under callgrind 10 µs are a few dispatches.
//!
//! ```text
//! instructions             compares, and fails if a row has grown
//! instructions --update    writes the record anew
//! ```
#![expect(clippy::print_stdout, reason = "the table is the result")]

mod rows;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use rows::{ROWS, Row};

/// How often each row runs at most, in either length.
const MOST_RUNS: u32 = 6;

/// How many seconds a run may take. It takes about one, and more on a busy machine.
const LONGEST_RUN_S: &str = "60";

/// The function in which nothing is counted, with what it calls.
const PERIODIC: &str = "windlass::sched::proc::tick::measure";

/// The status of a program that `timeout` has killed.
const KILLED: i32 = 137;

/// The status that says that something cannot be had here.
const SKIPPED: u8 = 77;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["--row", name, times] => {
            let row = ROWS.iter().find(|row| row.name == name).expect("a row");
            rows::run(row, times.parse().expect("a number"));
            ExitCode::SUCCESS
        }
        [] => compare(false),
        ["--update"] => compare(true),
        _ => {
            eprintln!("usage: instructions [--update]");
            ExitCode::from(2)
        }
    }
}

/// The file with the record: a line for each row. An architecture has its own.
fn record() -> PathBuf {
    let name = format!("{}.txt", env::consts::ARCH);
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn compare(update: bool) -> ExitCode {
    if !Command::new("valgrind")
        .arg("--version")
        .output()
        .is_ok_and(|o| o.status.success())
    {
        eprintln!("instructions: valgrind is not here");
        return ExitCode::from(SKIPPED);
    }
    let before = match fs::read_to_string(record()) {
        Ok(text) => text,
        Err(_) if update => String::new(),
        Err(e) => {
            eprintln!("instructions: {}: {e}", record().display());
            return ExitCode::from(SKIPPED);
        }
    };
    println!(
        "{:36} {:>9} {:>9} {:>7}",
        "path", "recorded", "now", "change"
    );
    let mut after = String::new();
    let mut worse = Vec::new();
    for row in ROWS {
        let recorded = recorded(&before, row.name);
        let percent = |now: f64| recorded.map(|recorded| (now / recorded - 1.0) * 100.0);
        let now = per_time(row, |now| {
            !update && percent(now).is_some_and(|change| change.abs() <= row.tolerance)
        });
        writeln!(after, "{:36} {now:9.1}", row.name).expect("a string takes it");
        let (Some(recorded), Some(change)) = (recorded, percent(now)) else {
            println!("{:36} {:>9} {now:9.1}", row.name, "-");
            continue;
        };
        let verdict = match change {
            c if c > row.tolerance => "  TOO MANY",
            c if c < -row.tolerance => "  fewer: record it with --update",
            _ => "",
        };
        println!(
            "{:36} {recorded:9.1} {now:9.1} {change:+6.1}%{verdict}",
            row.name
        );
        if change > row.tolerance {
            worse.push(row.name);
        }
    }
    if update {
        fs::write(record(), after).expect("the record can be written");
        return ExitCode::SUCCESS;
    }
    if worse.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!(
        "instructions: more than on record: {}. If that is meant, say why and record it: make instructions ARGS=--update",
        worse.join("; ")
    );
    ExitCode::FAILURE
}

fn recorded(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| {
        let count = line.strip_prefix(name)?;
        count.trim().parse().ok()
    })
}

/// The instructions of one repetition. What sysmon does meanwhile depends on time and only adds to a
/// run, so that the least of several runs counts. `enough` ends them early.
fn per_time(row: &Row, enough: impl Fn(f64) -> bool) -> f64 {
    let (mut short, mut long) = (None, None);
    let mut now = f64::NAN;
    for n in 1..=MOST_RUNS {
        short = least(short, count(row, row.times));
        long = least(long, count(row, 3 * row.times));
        let (Some(short), Some(long)) = (short, long) else {
            continue;
        };
        now = (long as f64 - short as f64) / (2 * row.times) as f64;
        if n >= 2 && enough(now) {
            break;
        }
    }
    assert!(!now.is_nan(), "{} never ended under valgrind", row.name);
    now
}

fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

/// The instructions of a process that repeats the row so often; `None` if it does not end. valgrind
/// runs one thread at a time, and its 3.19 does not let another one run while a thread waits in
/// io_uring_enter. If only another thread can end that wait, the process stands still.
fn count(row: &Row, times: u64) -> Option<u64> {
    let output = Command::new("timeout")
        .args(["--signal=KILL", LONGEST_RUN_S, "valgrind"])
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        // In this order: the first would leave nothing counted at the start.
        .arg(format!("--toggle-collect={PERIODIC}"))
        .arg("--collect-atstart=yes")
        .arg(env::current_exe().expect("this program has a path"))
        .args(["--row", row.name, &times.to_string()])
        .env_remove("WINDLASS_IO")
        .output()
        .expect("timeout starts");
    if output.status.code().is_none_or(|code| code == KILLED) {
        return None;
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let collected = stderr.lines().find_map(|line| {
        let (_, count) = line.split_once("Collected : ")?;
        count.trim().parse().ok()
    });
    match collected {
        Some(count) if output.status.success() => Some(count),
        _ => panic!("{} under valgrind: {}\n{stderr}", row.name, output.status),
    }
}

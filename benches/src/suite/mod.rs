//! `cargo bench`: its arguments, the benches in their order, and how they are run.
//!
//! All benches are one program. It starts itself anew for each of them, so that none finds the memory
//! and the threads that another has left. Criterion's own lines go to a file; on the screen there is a
//! line of progress ([`progress`]), and in the end the machine, the table and the verdicts
//! ([`screen`]), of which there is a page as well ([`page`]).
#![expect(clippy::print_stdout, reason = "the result")]

pub mod page;
pub mod progress;
pub mod screen;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};
use std::{env, thread};

use clap::Parser;
use serde_json::{Value, json};

use crate::machine_time::MachineTime;
use crate::{arguments, results, scale, summary};
use progress::Progress;
use screen::Report;

/// The arguments, after `cargo bench --`.
#[derive(Debug, Parser)]
#[command(
    name = "bench",
    about = "The speed of windlass beside tokio and may",
    override_usage = "cargo bench -- [NAME]... [--full] [--list]"
)]
pub struct Args {
    /// Benches to run, by name or by a part of it; by default all but `scale`.
    pub names: Vec<String>,
    /// All benches, `scale` too, and 8 seconds for each figure instead of 4.
    #[arg(long)]
    pub full: bool,
    /// Only says which benches there are and how long they take.
    #[arg(long)]
    pub list: bool,
    /// Run this bench in this process.
    #[arg(long, hide = true)]
    pub one: Option<String>,
    /// Cargo says so.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A bench.
#[derive(Debug)]
pub struct Bench {
    /// Its name on the command line.
    pub name: &'static str,
    /// For the reader of the progress.
    pub about: &'static str,
    /// Where its verdict is.
    pub topic: &'static str,
    kind: Kind,
}

#[derive(Debug, PartialEq)]
enum Kind {
    /// Criterion measures so many figures.
    Criterion(u32),
    Numa,
    Scale,
}

const fn criterion(
    name: &'static str,
    topic: &'static str,
    figures: u32,
    about: &'static str,
) -> Bench {
    Bench {
        name,
        about,
        topic,
        kind: Kind::Criterion(figures),
    }
}

/// All benches, in the order in which they run. Those that need much memory are last.
pub const BENCHES: [Bench; 11] = [
    criterion("yield", "Tasks", 3, "giving way with full run queues"),
    criterion(
        "spawn_join",
        "Tasks",
        6,
        "starting a task and hearing of its end",
    ),
    criterion("ping_pong", "Tasks", 3, "two tasks that wake each other"),
    criterion(
        "mutex",
        "Locks and channels",
        7,
        "a lock, alone and with 64 tasks at it",
    ),
    criterion(
        "channel",
        "Locks and channels",
        13,
        "messages from task to task",
    ),
    criterion("echo", "Network", 6, "small requests over TCP"),
    criterion("stream", "Network", 6, "much data over TCP"),
    criterion("sleepers", "Timers", 3, "10,000 tasks that sleep"),
    criterion("skynet", "Tasks", 6, "a burst of tasks, joined again"),
    Bench {
        name: "numa",
        about: "the policies for NUMA nodes",
        topic: "NUMA policies",
        kind: Kind::Numa,
    },
    Bench {
        name: "scale",
        about: "throughput on 1, 2, 4, .. CPUs",
        topic: "Scaling",
        kind: Kind::Scale,
    },
];

/// How long criterion takes for a figure.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Before it measures.
    pub warm_up: Duration,
    /// Measuring.
    pub measurement: Duration,
}

impl Times {
    /// By default and with `--full`.
    pub fn of(full: bool) -> Times {
        let (warm_up, measurement) = if full { (3, 5) } else { (1, 3) };
        Times {
            warm_up: Duration::from_secs(warm_up),
            measurement: Duration::from_secs(measurement),
        }
    }

    fn figure(self) -> Duration {
        const EVALUATION: Duration = Duration::from_millis(300);
        self.warm_up + self.measurement + EVALUATION
    }
}

impl Bench {
    /// How long it will take, about.
    pub fn takes(&self, full: bool) -> Duration {
        match self.kind {
            Kind::Criterion(figures) => Times::of(full).figure() * figures,
            Kind::Numa => Duration::from_secs(5),
            Kind::Scale => scale::takes(),
        }
    }
}

/// The benches that the arguments ask for, in their order.
///
/// # Errors
///
/// A line that says which name is none.
pub fn chosen(args: &Args) -> Result<Vec<&'static Bench>, String> {
    let is_meant = |bench: &Bench, name: &str| {
        let is_whole = BENCHES.iter().any(|bench| bench.name == name);
        if is_whole {
            bench.name == name
        } else {
            bench.name.contains(name)
        }
    };
    let unknown = |name: &&String| !BENCHES.iter().any(|bench| is_meant(bench, name));
    if let Some(name) = args.names.iter().find(unknown) {
        let all = BENCHES.map(|bench| bench.name).join(", ");
        return Err(format!("there is no bench `{name}`; there are: {all}"));
    }
    let is_chosen = |bench: &&Bench| match &args.names[..] {
        [] => args.full || bench.kind != Kind::Scale,
        names => names.iter().any(|name| is_meant(bench, name)),
    };
    Ok(BENCHES.iter().filter(is_chosen).collect())
}

/// Runs the benches that were asked for, each in a process of its own, and prints the closing screen.
///
/// # Errors
///
/// Those of starting this program anew, and of writing the results. Names the benches that failed.
///
/// # Panics
///
/// Without proc(5).
pub fn run(args: &Args) -> io::Result<()> {
    let benches = chosen(args).unwrap_or_else(|why| arguments::refuse(&why));
    if args.list {
        list(&benches, args.full);
        return Ok(());
    }
    let folder = summary::directory();
    fs::create_dir_all(&folder)?;
    let output = File::create(folder.join("output.txt"))?;
    let (began, date) = (SystemTime::now(), results::date());
    let before = MachineTime::now()?;
    let takes: Vec<_> = benches.iter().map(|bench| bench.takes(args.full)).collect();
    let mut progress = Progress::new(&takes);
    let mut failed = Vec::new();
    for bench in &benches {
        progress.begin(bench);
        if !run_one(bench, args.full, &output, &progress)?.success() {
            failed.push(bench.name);
        }
    }
    progress.end();
    let shares = MachineTime::now()?.since(before);
    let rows = summary::measured(began);
    let run = json!({
        "program": "bench", "date": date, "full": args.full,
        "steal": shares.steal, "other_work": shares.others,
    });
    let report = Report {
        machine: results::machine(),
        others: shares.others,
        rows,
        verdicts: verdicts(&benches, began),
        pictures: pictures(&benches, began),
        folder: folder.clone(),
    };
    let document = results::document(report.machine.clone(), run, &report.rows);
    results::write(&report.json(), &document)?;
    fs::write(report.page(), page::html(&report))?;
    println!("{}", screen::closing(&report));
    if failed.is_empty() {
        return Ok(());
    }
    let output = folder.join("output.txt");
    let failed = failed.join(", ");
    Err(io::Error::other(format!(
        "failed: {failed}; see {}",
        output.display()
    )))
}

fn list(benches: &[&Bench], full: bool) {
    for bench in benches {
        let seconds = bench.takes(full).as_secs();
        println!("{:<11} {:>4} s  {}", bench.name, seconds, bench.about);
    }
    let all: Duration = benches.iter().map(|bench| bench.takes(full)).sum();
    println!("{:<11} {:>4} s", "in all", all.as_secs());
}

/// This program with one bench. What it prints goes to a file.
fn run_one(
    bench: &Bench,
    full: bool,
    output: &File,
    progress: &Progress,
) -> io::Result<ExitStatus> {
    let mut command = Command::new(env::current_exe()?);
    command
        .args(["--one", bench.name])
        .args(full.then_some("--full"));
    command
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?);
    let limit = 3 * bench.takes(full) + Duration::from_secs(60);
    let status = status_of(command.stdin(Stdio::null()), limit, || progress.draw())?;
    if status.signal().is_some() {
        writeln!(
            &*output,
            "{} ended by a signal; more than {} s are not waited for",
            bench.name,
            limit.as_secs()
        )?;
    }
    Ok(status)
}

/// Runs a command, and ends it after `limit`: peers may hang, as may did in its channels. Calls `look` meanwhile.
fn status_of(command: &mut Command, limit: Duration, look: impl Fn()) -> io::Result<ExitStatus> {
    let (mut child, began) = (command.spawn()?, Instant::now());
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if began.elapsed() > limit {
            child.kill()?;
        }
        look();
        thread::sleep(Duration::from_millis(100));
    }
}

/// The file that a bench without criterion writes.
pub fn own_json(name: &str) -> PathBuf {
    summary::directory().join(name).with_extension("json")
}

/// The verdicts of the benches that make their own.
fn verdicts(benches: &[&Bench], began: SystemTime) -> Vec<(String, Vec<String>)> {
    let of = |bench: &&&Bench| {
        let document = fresh(&own_json(bench.name), began)?;
        let lines = document["runs"][0]["verdicts"].as_array()?.iter();
        let lines = lines.filter_map(Value::as_str).map(str::to_owned).collect();
        Some((bench.topic.to_owned(), lines))
    };
    let own = benches
        .iter()
        .filter(|b| !matches!(b.kind, Kind::Criterion(_)));
    own.filter_map(|bench| of(&bench)).collect()
}

/// A document that was written since then.
fn fresh(path: &Path, began: SystemTime) -> Option<Value> {
    let written = fs::metadata(path).ok()?.modified().ok()?;
    (written >= began)
        .then(|| results::read(path).ok())
        .flatten()
}

/// The charts that `scale` has drawn.
fn pictures(benches: &[&Bench], began: SystemTime) -> Vec<String> {
    let scale = benches.iter().filter(|bench| bench.kind == Kind::Scale);
    let path = own_json("scale");
    let svg = scale.filter_map(|_| {
        fresh(&path, began)?;
        fs::read_to_string(path.with_extension("svg")).ok()
    });
    svg.collect()
}

/// The topic of a group of criterion's, by the bench that has measured it.
pub fn topic(group: &str) -> &'static str {
    let name = group.split('/').next().unwrap_or(group);
    let name = if name.starts_with("chan_") {
        "channel"
    } else {
        name
    };
    let bench = BENCHES.iter().find(|bench| bench.name == name);
    bench.map_or("Others", |bench| bench.topic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> Args {
        Args::try_parse_from(["bench"].iter().chain(words)).unwrap()
    }

    fn names(words: &[&str]) -> Vec<&'static str> {
        let benches = chosen(&args(words)).unwrap();
        benches.into_iter().map(|bench| bench.name).collect()
    }

    #[test]
    fn a_name_chooses_and_full_is_all() {
        assert_eq!(names(&["spawn"]), ["spawn_join"]);
        assert_eq!(names(&["stream", "yield", "--bench"]), ["yield", "stream"]);
        assert_eq!(names(&["scale"]), ["scale"]);
        assert_eq!(names(&["--full"]).len(), BENCHES.len());
        assert_eq!(names(&[]).len(), BENCHES.len() - 1, "without scale");
    }

    #[test]
    fn a_name_that_is_none_gets_one_line() {
        let why = chosen(&args(&["yield", "spwan"])).unwrap_err();
        assert!(why.starts_with("there is no bench `spwan`; there are: yield, spawn_join, "));
        assert_eq!(why.lines().count(), 1);
    }

    #[test]
    fn a_run_without_arguments_takes_less_than_8_minutes() {
        let benches = chosen(&args(&[])).unwrap();
        let all: Duration = benches.iter().map(|bench| bench.takes(false)).sum();
        assert!(all < Duration::from_secs(8 * 60), "{all:?}");
        assert!(BENCHES[0].takes(true) > BENCHES[0].takes(false));
    }

    #[test]
    fn a_bench_that_hangs_is_ended() {
        let mut hangs = Command::new("sleep");
        let status = status_of(hangs.arg("600"), Duration::ZERO, || {}).unwrap();
        assert!(status.signal().is_some());
        let ends = status_of(&mut Command::new("true"), Duration::from_secs(600), || {});
        assert!(ends.unwrap().success());
    }

    #[test]
    fn groups_have_the_topic_of_their_bench() {
        assert_eq!(topic("skynet/1M"), "Tasks");
        assert_eq!(topic("chan_mpmc_4x4"), "Locks and channels");
        assert_eq!(topic("yield"), "Tasks");
    }
}

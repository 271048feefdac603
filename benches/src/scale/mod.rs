//! Throughput on 1, 2, 4, .. all CPUs: how well do windlass, tokio and Go use more of them?
//!
//! - workloads: [`loads`]; places: [`mod@places`], the nearest CPUs first and spread over sockets
//! - contenders: windlass by default and flat, tokio, and Go where `go` is on the PATH; each has as many
//!   workers as CPUs
//! - a point is a process of its own, whose affinity has these CPUs alone; the contenders take turns,
//!   and the figure is the median of the rounds
//! - efficiency: throughput as a part of that on one CPU, times the CPUs
//!
//! `cargo bench --bench scale -- --help` has the arguments. It prints a table for each workload, and
//! writes a chart and the figures.
#![expect(clippy::print_stdout, reason = "the result")]

pub mod loads;
pub mod places;
pub mod table;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, thread};

use clap::Parser;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::json;
use windlass::NumaPolicy;
use windlass::topology::{Topology, format_cpu_list, parse_cpu_list};

use crate::machine_time::MachineTime;
use crate::report::curve;
use crate::results::{self, Row, Summary};
use crate::suite::progress::{bar, redraw};
use crate::suite::screen;
use crate::{arguments, go, runtimes, summary};
use loads::{LOADS, Load, Round};
use places::{Place, places};

const FLAT: &str = "flat";
const TOKIO: &str = "tokio";
const GO: &str = "go";
/// The contenders, in the order of the table.
pub const CONTENDERS: [&str; 4] = ["windlass", FLAT, TOKIO, GO];

#[derive(Debug, Parser)]
#[command(name = "scale", about = "Throughput on 1, 2, 4, .. all CPUs")]
struct Args {
    /// Workloads, by name; by default all.
    names: Vec<String>,
    #[arg(long, default_value_t = ROUNDS)]
    rounds: usize,
    /// How long a point is measured in a round.
    #[arg(long, default_value_t = SECONDS)]
    seconds: f64,
    /// Where the figures go; the chart lies beside it.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Cargo says so.
    #[arg(long, hide = true)]
    bench: bool,
}

const ROUNDS: usize = 3;
const SECONDS: f64 = 0.3;
/// What a point takes beside its time: a process, a runtime, and the round that warms up.
const START: f64 = 0.3;

/// The bench by itself.
pub fn main() {
    if is_asked_for_a_point() {
        return;
    }
    let args = arguments::parse::<Args>();
    let json = args.json.clone();
    let json = json.unwrap_or_else(|| summary::directory().join("scale.json"));
    run(&args, &json).unwrap_or_else(|e| arguments::refuse(&e.to_string()));
}

/// As a part of `cargo bench`.
///
/// # Errors
///
/// Those of the programs that measure the points, and of the files.
pub fn write(json: &Path) -> io::Result<()> {
    run(&Args::parse_from(["scale"]), json)
}

/// How long all of it takes here.
pub fn takes() -> Duration {
    let places = Topology::detect().map_or(1, |machine| places(&machine).map_or(1, |p| p.len()));
    takes_on(places, LOADS.len(), ROUNDS, SECONDS)
}

fn takes_on(places: usize, loads: usize, rounds: usize, seconds: f64) -> Duration {
    let contenders = CONTENDERS.len() - usize::from(!go::is_there());
    let points = places * loads * rounds * contenders;
    Duration::from_secs_f64(points as f64 * (seconds + START))
}

fn run(args: &Args, json: &Path) -> io::Result<()> {
    let loads = chosen(&args.names).map_err(io::Error::other)?;
    let machine = Topology::detect().map_err(io::Error::other)?;
    let places = places(&machine).map_err(io::Error::other)?;
    let folder = json.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let has_go = go::build(folder)?;
    let contenders: Vec<_> = CONTENDERS
        .into_iter()
        .filter(|name| *name != GO || has_go)
        .collect();
    let takes = takes_on(places.len(), loads.len(), args.rounds, args.seconds);
    println!(
        "{} places, {} rounds: about {} s{}",
        places.len(),
        args.rounds,
        takes.as_secs(),
        if has_go {
            ""
        } else {
            "; without Go, which is not on the PATH"
        }
    );
    let (date, load_before) = (results::date(), results::load_average());
    let before = MachineTime::now()?;
    let mut rows = Vec::new();
    let (begin, all) = (Instant::now(), loads.len() * places.len());
    for load in &loads {
        let first = rows.len();
        for place in &places {
            let done = rows.len() as f64 / all as f64;
            let text = format!(
                "{}, {} CPUs {}",
                load.name,
                place.cpus.len(),
                place.order.word()
            );
            let left = takes.saturating_sub(begin.elapsed()).as_secs();
            progress(done, &format!("{text}; about {left} s left"));
            rows.push(row(args, load, place, &contenders, folder)?);
        }
        progress(1.0, "");
        println!("\n{}", table::of_load(load, &rows[first..]));
    }
    let verdicts = table::verdicts(&loads, &rows);
    let shares = MachineTime::now()?.since(before);
    println!();
    screen::busy(shares.others)
        .iter()
        .for_each(|line| println!("{line}"));
    verdicts.iter().for_each(|line| println!("{line}"));
    let run = json!({
        "program": "scale", "date": date, "rounds": args.rounds, "seconds": args.seconds,
        "load_average_before": load_before, "steal": shares.steal, "other_work": shares.others,
        "verdicts": verdicts,
    });
    results::write(json, &results::document(results::machine(), run, &rows))?;
    let chart = json.with_extension("svg");
    fs::write(&chart, curve::chart(&table::curves(&loads, &rows)))?;
    println!("\nChart: {}\nJSON: {}", chart.display(), json.display());
    Ok(())
}

fn progress(part: f64, text: &str) {
    if io::IsTerminal::is_terminal(&io::stderr()) {
        redraw(&if text.is_empty() {
            String::new()
        } else {
            bar(part, text)
        });
    }
}

/// The workloads of these names.
fn chosen(names: &[String]) -> Result<Vec<&'static Load>, String> {
    if let Some(name) = names.iter().find(|name| load(name).is_none()) {
        let all = LOADS.map(|load| load.name).join(", ");
        return Err(format!("there is no workload `{name}`; there are: {all}"));
    }
    let is_chosen = |load: &&Load| names.is_empty() || names.iter().any(|name| name == load.name);
    Ok(LOADS.iter().filter(is_chosen).collect())
}

fn load(name: &str) -> Option<&'static Load> {
    LOADS.iter().find(|load| load.name == name)
}

/// The throughput of each contender at a place.
fn row(
    args: &Args,
    load: &Load,
    place: &Place,
    contenders: &[&str],
    folder: &Path,
) -> io::Result<Row> {
    let mut samples = vec![Vec::new(); contenders.len()];
    for round in 0..args.rounds {
        for i in 0..contenders.len() {
            let i = (i + round) % contenders.len();
            samples[i].push(measure(args.seconds, load, place, contenders[i], folder)?);
        }
    }
    let cells = contenders.iter().zip(&samples);
    let cells =
        cells.filter_map(|(name, samples)| Some(((*name).to_owned(), Summary::of(samples)?)));
    Ok(Row {
        experiment: format!("{}/{}/{}", load.name, place.order.word(), place.cpus.len()),
        key: "per_second".into(),
        unit: format!("{}/s", load.unit),
        cells: cells.collect(),
    })
}

const POINT: &str = "WINDLASS_BENCH_POINT";

/// Operations in a second, by a process on these CPUs.
fn measure(
    seconds: f64,
    load: &Load,
    place: &Place,
    contender: &str,
    folder: &Path,
) -> io::Result<f64> {
    let cpus = format_cpu_list(&place.cpus);
    let workers = place.cpus.len().to_string();
    let mut command;
    if contender == GO {
        command = Command::new("taskset");
        command
            .args(["--cpu-list", &cpus])
            .arg(folder.join(go::PROGRAM));
        command
            .arg(format!("scale-{}", load.name))
            .arg(seconds.to_string());
        command.env("WINDLASS_BENCH_WORKERS", workers);
    } else {
        command = Command::new(env::current_exe()?);
        let folder = folder.display();
        command.env(
            POINT,
            format!("{} {contender} {cpus} {seconds} {folder}", load.name),
        );
    }
    let output = command.stderr(std::process::Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figure = text
        .trim()
        .strip_prefix("per_second=")
        .and_then(|text| text.parse().ok());
    let name = load.name;
    let failed = || io::Error::other(format!("{contender} failed at {name} on {cpus}: {text}"));
    figure
        .filter(|_| output.status.success())
        .ok_or_else(failed)
}

/// If this process is to measure a point, does so.
pub fn is_asked_for_a_point() -> bool {
    let Some(point) = env::var_os(POINT) else {
        return false;
    };
    match point
        .to_str()
        .and_then(Point::of)
        .map(|point| point.measure())
    {
        Some(Ok(per_second)) => println!("per_second={per_second:.1}"),
        Some(Err(e)) => arguments::refuse(&e.to_string()),
        None => arguments::refuse(&format!("{POINT} is no point: {}", point.display())),
    }
    true
}

/// What a process is to measure.
struct Point<'a> {
    load: &'static Load,
    contender: &'a str,
    cpus: Vec<usize>,
    seconds: f64,
    folder: &'a Path,
}

impl<'a> Point<'a> {
    fn of(text: &'a str) -> Option<Point<'a>> {
        let mut words = text.splitn(5, ' ');
        Some(Point {
            load: load(words.next()?)?,
            contender: words.next().filter(|name| CONTENDERS.contains(name))?,
            cpus: parse_cpu_list(words.next()?)?,
            seconds: words.next()?.parse().ok()?,
            folder: Path::new(OsStr::new(words.next()?)),
        })
    }

    fn measure(&self) -> io::Result<f64> {
        let mut set = CpuSet::new();
        self.cpus.iter().for_each(|&cpu| set.set(cpu));
        // The threads of the runtimes are started later, and have the same CPUs.
        sched_setaffinity(None, &set)?;
        let file = crate::workloads::reads::prepare(self.folder)?;
        let round = Round {
            workers: self.cpus.len(),
            file: &file,
        };
        Ok(match self.contender {
            TOKIO => {
                let tokio = runtimes::tokio(round.workers);
                self.repeat(|| (self.load.tokio)(&tokio, round))
            }
            name => {
                let policy = if name == FLAT {
                    NumaPolicy::Flat
                } else {
                    NumaPolicy::Levels
                };
                let windlass = runtimes::windlass_numa(round.workers, policy, None);
                self.repeat(|| (self.load.windlass)(&windlass, round))
            }
        })
    }

    /// Rounds until the time is over, after one to warm up.
    fn repeat(&self, round: impl Fn() -> Duration) -> f64 {
        round();
        let (mut took, mut operations) = (Duration::ZERO, 0);
        loop {
            took += round();
            operations += (self.load.operations)(self.cpus.len() as u64);
            if took.as_secs_f64() >= self.seconds {
                break;
            }
        }
        operations as f64 / took.as_secs_f64()
    }
}

/// Whether there are CPUs enough for a curve.
pub fn is_a_curve(cpus: usize) -> bool {
    cpus > 2
}

/// The CPUs that this process may use.
pub fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_chosen_by_name() {
        let names = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            chosen(&names).map(|loads| loads.iter().map(|load| load.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["echo", "spawn"]), Ok(vec!["spawn", "echo"]));
        assert_eq!(names(&[]).unwrap().len(), LOADS.len());
        let why = names(&["ecko"]).unwrap_err();
        assert!(
            why.starts_with("there is no workload `ecko`; there are: spawn, "),
            "{why}"
        );
    }

    #[test]
    fn a_point_is_read_as_it_was_written() {
        let point = Point::of("echo tokio 0-1,4 0.5 /a folder").unwrap();
        assert_eq!((point.load.name, point.contender), ("echo", "tokio"));
        assert_eq!((&point.cpus[..], point.seconds), (&[0, 1, 4][..], 0.5));
        assert_eq!(point.folder, Path::new("/a folder"));
        assert!(Point::of("echo nobody 0 0.5 /").is_none());
        assert!(Point::of("echo tokio 0").is_none());
    }

    /// Every workload on every contender in Rust, on one CPU.
    #[test]
    fn all_points_can_be_measured() {
        let folder = env::temp_dir();
        let cpu = Topology::detect().unwrap().allowed_cpus()[0];
        for load in &LOADS {
            for contender in [FLAT, TOKIO] {
                let point = Point {
                    load,
                    contender,
                    cpus: vec![cpu],
                    seconds: 0.0,
                    folder: &folder,
                };
                // The affinity of the thread goes with it.
                let measured = thread::scope(|s| s.spawn(|| point.measure()).join().unwrap());
                let name = load.name;
                assert!(measured.unwrap() > 0.0, "{contender} did nothing of {name}");
            }
        }
    }

    #[test]
    fn the_time_is_that_of_all_points() {
        let one = takes_on(1, 1, 1, 0.3);
        assert_eq!(takes_on(2, 11, 3, 0.3), one * 66);
    }
}

//! What is the policy for NUMA nodes worth, and what does it cost where there is one node?
//!
//! - workloads: `skynet`, a tree of goroutines; `scan`, goroutines that read memory which
//!   they have written first, in steps with a yield between; `pipes`, producers and consumers
//!   in pairs over channels; `echo`, connections over loopback; `feed`, nodes that feed
//!   themselves: on each, goroutines that are bound there spawn as much as on the others
//! - policies: `flat`, all Ps are alike; `default`, which is `NumaPolicy::Levels`: nearest first, a gate
//!   before other nodes, stacks where goroutines first run, and goroutines that wake at home
//! - policies take turns, round by round, so that what else the machine does hits them all;
//!   times are medians of the rounds, far loads (from memory of other nodes) are for one round
//!
//! `cargo bench --bench numa`. The default gets a verdict for each workload: slower or faster than flat,
//! or level with it where the difference is within the noise ([`crate::pairs`] decides that).
//! Slower by more than 3 % is TOO SLOW. On several nodes the bench also compares the default's far loads
//! with flat's, and for `feed` it checks that
//! remote steals stay below 5 %. `--synthetic DESCRIPTION` plans for a machine that is not there:
//! the counts are then right, and the times are not.
//!
//! Far loads are counted by the CPU, for all threads of this process, outside the kernel: by
//! perf's `node-load-misses`, or on AMD by the event for demand fills from memory of another node.
//! Where neither is to be had (no counters in a virtual machine, `perf_event_paranoid`, a
//! filter), the bench says so and goes on without.
#![expect(clippy::print_stdout, reason = "the result")]

use std::ffi::OsStr;
use std::hint::black_box;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Parser;
use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Raw};
use serde_json::json;
use windlass::channel::bounded;
use windlass::metrics::PMetrics;
use windlass::topology::Topology;
use windlass::{NumaPolicy, Runtime, spawn, task};

use crate::arguments;
use crate::machine_time::MachineTime;
use crate::pairs::Pairs;
use crate::results::{self, Row, Summary};
use crate::runtimes;
use crate::suite::progress;
use crate::workloads::{echo, scan, skynet};

const FLAT: &str = "flat";
const DEFAULT: &str = "default";
const POLICIES: [(&str, NumaPolicy); 2] = [(FLAT, NumaPolicy::Flat), (DEFAULT, NumaPolicy::Levels)];

const LEAVES: u64 = 100_000;
const SCANNERS_PER_P: usize = 4;
const PAIRS_PER_P: usize = 8;
const MESSAGES: u64 = 2_000;
const CONNECTIONS: usize = 16;
const ROUND_TRIPS: u64 = 50;
const FEEDERS_PER_P: usize = 2;
const MEALS: usize = 400;
const CHILDREN: usize = 8;
const CHILD_WORDS: u64 = 1 << 10;

/// The most that the default may cost against flat, as a part.
const MOST_COST: f64 = 0.03;
/// The largest part that may come from other nodes.
const MOST_REMOTE: f64 = 0.05;

/// The arguments.
#[derive(Debug, Parser)]
#[command(name = "numa", about = "What is the policy for NUMA nodes worth?")]
pub struct Args {
    #[arg(long, default_value_t = runtimes::workers())]
    workers: usize,
    #[arg(long, default_value_t = 31)]
    rounds: usize,
    /// A machine by its hwloc description, for example "pack:2 [numa] core:4 pu:1".
    #[arg(long)]
    synthetic: Option<String>,
    /// Also write the times to this file, as JSON, with the machine and the commit.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Cargo says so.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A workload: its name, and one round of it.
type Workload = (&'static str, fn(&Runtime) -> Duration);

/// Where all nodes have as much to do from the beginning.
const BALANCED: &str = "feed";

const WORKLOADS: [Workload; 5] = [
    ("skynet", |rt| skynet::windlass(rt, LEAVES)),
    ("scan", |rt| {
        scan::windlass(rt, SCANNERS_PER_P * rt.processors())
    }),
    ("pipes", pipes),
    ("echo", |rt| echo::windlass(rt, CONNECTIONS, ROUND_TRIPS)),
    (BALANCED, feed),
];

/// Pairs that each hand messages on, and compute a little for each.
fn pipes(rt: &Runtime) -> Duration {
    let n = PAIRS_PER_P * rt.processors();
    rt.run(move || {
        let begin = Instant::now();
        let all: Vec<_> = (0..n)
            .map(|_| {
                let (send, recv) = bounded::<u64>(4);
                let producer = spawn(move || {
                    (0..MESSAGES).for_each(|i| send.send(black_box(i)).unwrap());
                });
                let consumer = spawn(move || recv.iter().map(|i| i.rotate_left(7)).sum::<u64>());
                (producer, consumer)
            })
            .collect();
        for (producer, consumer) in all {
            producer.join().unwrap();
            black_box(consumer.join().unwrap());
        }
        begin.elapsed()
    })
}

/// On each node goroutines that are bound there spawn others, which any P may run.
fn feed(rt: &Runtime) -> Duration {
    let n = (FEEDERS_PER_P * rt.processors()).div_ceil(rt.plan().nodes.len());
    rt.run(move || {
        let begin = Instant::now();
        let nodes = task::spawn_on_each_node(move |_node| {
            let feeder = |_| task::Builder::new().bound(true).spawn(serve_meals).unwrap();
            let feeders: Vec<_> = (0..n).map(feeder).collect();
            feeders.into_iter().for_each(|f| f.join().unwrap());
        });
        nodes.into_iter().for_each(|node| node.join().unwrap());
        begin.elapsed()
    })
}

fn serve_meals() {
    for _ in 0..MEALS {
        let child = |i| {
            spawn(move || {
                let words: Vec<u64> = (i..i + CHILD_WORDS).collect();
                black_box(&words).iter().copied().fold(0, u64::wrapping_add)
            })
        };
        let children: Vec<_> = (0..CHILDREN as u64).map(child).collect();
        for child in children {
            black_box(child.join().unwrap());
        }
    }
}

/// Counts what this thread, and those that it starts from now on, load from memory of other
/// nodes.
struct FarLoads {
    counter: perf_event::Counter,
    what: &'static str,
}

impl FarLoads {
    fn count() -> Result<FarLoads, String> {
        let by_name = Cache {
            which: CacheId::NODE,
            operation: CacheOp::READ,
            result: CacheResult::MISS,
        };
        let open = |builder: &mut perf_event::Builder<'_>| {
            // Before the runtimes are made: a thread is counted if it was started later.
            builder.inherit(true).enabled(true).build()
        };
        let e = match open(&mut perf_event::Builder::new(by_name)) {
            Ok(counter) => {
                let what = "node-load-misses";
                return Ok(FarLoads { counter, what });
            }
            Err(e) => e,
        };
        if !is_amd_zen() {
            return Err(format!("node-load-misses: {e}"));
        }
        match open(&mut perf_event::Builder::new(ZEN_FAR_FILLS)) {
            Ok(counter) => {
                let what = "ls_dmnd_fills_from_sys, far memory";
                Ok(FarLoads { counter, what })
            }
            Err(raw) => Err(format!("node-load-misses: {e}; AMD's own event: {raw}")),
        }
    }

    fn read(&mut self) -> u64 {
        self.counter
            .read()
            .expect("a counter that was opened is readable")
    }
}

/// PMCx043, "demand data cache fills by data source", of memory on another node (bit 6): the same
/// in all Zen generations' manuals.
const ZEN_FAR_FILLS: Raw = Raw::new(0x43 | 0x40 << 8);

fn is_amd_zen() -> bool {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |name| {
        let line = info.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let family = value("cpu family").and_then(|f| f.parse::<u32>().ok());
    value("vendor_id").as_deref() == Some("AuthenticAMD") && family >= Some(0x17)
}

/// The results of one policy with one workload.
struct Outcome {
    times: Vec<Duration>,
    /// For all rounds that are in `times`, if they can be counted.
    far_loads: Option<u64>,
    total: PMetrics,
}

impl Outcome {
    fn ms(&self) -> Vec<f64> {
        self.times.iter().map(|t| t.as_secs_f64() * 1e3).collect()
    }

    fn far_loads_a_round(&self) -> Option<u64> {
        self.far_loads.map(|n| n / self.times.len() as u64)
    }
}

fn measure(
    args: &Args,
    machine: Option<&Topology>,
    (name, run): Workload,
    counter: &mut Option<FarLoads>,
    progress: &mut Progress,
) -> Vec<Outcome> {
    progress.workload(name);
    let start = |(_, policy)| runtimes::windlass_numa(args.workers, policy, machine.cloned());
    let runtimes = POLICIES.map(start);
    let mut times = vec![Vec::new(); POLICIES.len()];
    let mut far_loads = vec![counter.as_ref().map(|_| 0); POLICIES.len()];
    for round in 0..=args.rounds {
        progress.round(name);
        for i in 0..POLICIES.len() {
            // Not always the same one after the same other one.
            let i = (i + round) % POLICIES.len();
            let before = counter.as_mut().map(FarLoads::read);
            let took = run(&runtimes[i]);
            // The first round warms up.
            if round > 0 {
                times[i].push(took);
                if let (Some(counter), Some(before)) = (counter.as_mut(), before) {
                    *far_loads[i].get_or_insert(0) += counter.read() - before;
                }
            }
        }
    }
    progress.clear();
    let of = |((times, far_loads), rt): (_, &Runtime)| Outcome {
        times,
        far_loads,
        total: rt.metrics().total(),
    };
    let counts = times.into_iter().zip(far_loads);
    counts.zip(&runtimes).map(of).collect()
}

/// How far the bench is, on the standard error: a bar in a terminal, elsewhere a line for each
/// workload.
struct Progress {
    begin: Instant,
    done: usize,
    /// The rounds of all workloads.
    all: usize,
    in_terminal: bool,
}

impl Progress {
    fn new(rounds: usize) -> Progress {
        Progress {
            begin: Instant::now(),
            done: 0,
            all: rounds * WORKLOADS.len(),
            in_terminal: io::stderr().is_terminal(),
        }
    }

    /// A workload begins.
    fn workload(&self, name: &str) {
        if !self.in_terminal {
            let number = 1 + self.done * WORKLOADS.len() / self.all;
            let seconds = self.begin.elapsed().as_secs();
            eprintln!(
                "numa: {name}, workload {number} of {}, after {seconds} s",
                WORKLOADS.len()
            );
        }
    }

    /// A round of a workload begins.
    fn round(&mut self, name: &str) {
        if self.in_terminal {
            progress::redraw(&self.line(name));
        }
        self.done += 1;
    }

    /// The table can be printed where the bar was.
    fn clear(&self) {
        if self.in_terminal {
            progress::redraw("");
        }
    }

    fn line(&self, name: &str) -> String {
        let part = self.done as f64 / self.all as f64;
        let left = self.begin.elapsed().as_secs_f64() * (1.0 - part) / part;
        let left = if self.done == 0 {
            String::new()
        } else {
            format!(", about {left:.0} s left")
        };
        progress::bar(part, &format!("{name}{left}"))
    }
}

fn print(workload: &str, outcomes: &[Outcome]) {
    for ((policy, _), outcome) in POLICIES.iter().zip(outcomes) {
        let total = &outcome.total;
        println!(
            "{workload:<8} {policy:<11} {:>10.2} {:>9} {:>8.1} {:>8} {:>8} {:>8} {:>8} {:>10}",
            Summary::of(&outcome.ms()).map_or(f64::NAN, |ms| ms.median),
            total.stolen.total(),
            total.remote_share() * 100.0,
            total.gate_denials.total(),
            total.home_wakes,
            total.rehomes,
            total.runs_away,
            outcome
                .far_loads_a_round()
                .map_or_else(|| "-".to_owned(), |n| n.to_string()),
        );
    }
}

/// The times of one workload under each policy.
fn row(workload: &str, outcomes: &[Outcome]) -> Row {
    let cell = |((policy, _), outcome): (&(&str, _), &Outcome)| {
        Some(((*policy).to_owned(), Summary::of(&outcome.ms())?))
    };
    Row {
        experiment: workload.to_owned(),
        key: "ms".into(),
        unit: "ms/round".into(),
        cells: POLICIES.iter().zip(outcomes).filter_map(cell).collect(),
    }
}

/// The bench.
///
/// # Panics
///
/// If the machine of `--synthetic` is none, or a runtime does not start.
pub fn main() {
    run(&arguments::parse());
}

/// As a part of `cargo bench`, which reads the file.
///
/// # Panics
///
/// As [`main`].
pub fn write(json: &Path) {
    let words = [OsStr::new("numa"), OsStr::new("--json"), json.as_os_str()];
    run(&Args::parse_from(words));
}

fn run(args: &Args) {
    let machine = args.synthetic.as_deref().map(|text| {
        let machine = Topology::synthetic(text);
        machine.unwrap_or_else(|e| arguments::refuse(&format!("--synthetic {text:?}: {e}")))
    });
    let probe = runtimes::windlass_numa(args.workers, NumaPolicy::Levels, machine.clone());
    let n_nodes = probe.plan().nodes.len();
    drop(probe);
    let mut counter = print_head(args, n_nodes);
    let (load_before, date) = (results::load_average(), results::date());
    let machine_before = MachineTime::now().expect("proc(5) is there");
    let (mut verdicts, mut rows) = (Vec::new(), Vec::new());
    // The first round of each workload warms up.
    let mut progress = Progress::new(args.rounds + 1);
    for workload @ (name, _) in WORKLOADS {
        let outcomes = measure(
            args,
            machine.as_ref(),
            workload,
            &mut counter,
            &mut progress,
        );
        print(name, &outcomes);
        rows.push(row(name, &outcomes));
        verdicts.extend(verdicts_of(name, n_nodes, &outcomes));
    }
    println!("\n{HOW}");
    if let Some(words) = of_one_node(n_nodes) {
        println!("{words}");
    }
    verdicts.iter().for_each(|line| println!("{line}"));
    if let Some(path) = &args.json {
        let shares = MachineTime::now().expect("as before").since(machine_before);
        let run = json!({
            "program": "numa",
            "date": date,
            "rounds": args.rounds,
            "workers": args.workers,
            "nodes": n_nodes,
            "synthetic": args.synthetic,
            "load_average_before": load_before,
            "steal": shares.steal,
            "other_work": shares.others,
            "verdicts": verdicts,
        });
        let document = results::document(results::machine(), run, &rows);
        results::write(path, &document)
            .unwrap_or_else(|e| arguments::refuse(&format!("--json {}: {e}", path.display())));
    }
}

/// Says what is measured on what, and begins the table.
fn print_head(args: &Args, n_nodes: usize) -> Option<FarLoads> {
    let counter = FarLoads::count();
    match &counter {
        Ok(counter) => println!("far loads are counted ({})", counter.what),
        Err(why) => println!("far loads cannot be counted here: {why}"),
    }
    let nodes = if n_nodes == 1 { "node" } else { "nodes" };
    println!(
        "{} Ps on {n_nodes} {nodes}, {} rounds",
        args.workers, args.rounds
    );
    println!(
        "{:<8} {:<11} {:>10} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}",
        "workload",
        "policy",
        "median ms",
        "stolen",
        "remote %",
        "denied",
        "home",
        "rehomed",
        "away",
        "far loads"
    );
    counter.ok()
}

/// How a verdict comes about.
const HOW: &str = "Verdicts: the default beside flat, as the median of the differences of each round. 99 % interval: by\n\
    the sign test. Level: the interval holds 0, so the difference is within the noise.";

/// For the reader of a run on one node.
fn of_one_node(n_nodes: usize) -> Option<&'static str> {
    (n_nodes == 1).then_some(
        "One node: the policies do the same here, but that flat gives a goroutine its stack when it is spawned. \
         A difference\nis of that, or chance.",
    )
}

/// A line on the default's time beside flat's; on several nodes one more, on remote steals and far loads.
fn verdicts_of(name: &str, n_nodes: usize, outcomes: &[Outcome]) -> Vec<String> {
    let (flat, default) = (&outcomes[0], &outcomes[POLICIES.len() - 1]);
    let mut lines = Vec::new();
    lines.extend(Pairs::of(&default.ms(), &flat.ms()).map(|pairs| verdict(name, &pairs)));
    if n_nodes > 1 {
        lines.push(locality(name, flat, default));
    }
    lines
}

/// `scan: default is level with flat: medians .. and .. ms, ..`
fn verdict(workload: &str, pairs: &Pairs) -> String {
    let too_slow = if pairs.is_slower_by(MOST_COST) {
        ": TOO SLOW"
    } else {
        ""
    };
    format!(
        "{workload}: {DEFAULT} is {}: {pairs}{too_slow}",
        pairs.words(FLAT)
    )
}

/// Where the default's steals and loads came from, beside flat's.
fn locality(name: &str, flat: &Outcome, default: &Outcome) -> String {
    let remote = |outcome: &Outcome| outcome.total.remote_share();
    let word = match () {
        // All work begins on one node: to leave it is right.
        () if name != BALANCED => "",
        () if remote(default) < MOST_REMOTE => ": ok",
        () => ": MUCH",
    };
    let far_loads = match (flat.far_loads, default.far_loads) {
        (Some(flat), Some(default)) if flat > 0 => {
            let percent = (default as f64 / flat as f64 - 1.0) * 100.0;
            format!(", with {percent:+.1} % far loads")
        }
        _ => String::new(),
    };
    format!(
        "{name}: {:.1} % of the default's steals came from other nodes (flat: {:.1} %){far_loads}{word}",
        remote(default) * 100.0,
        remote(flat) * 100.0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines on rounds whose default takes so many ms, beside 10 ms of flat.
    fn lines(n_nodes: usize, default_ms: impl Fn(usize) -> f64) -> Vec<String> {
        let outcome = |ms: &dyn Fn(usize) -> f64| Outcome {
            times: (0..15)
                .map(|i| Duration::from_secs_f64(ms(i) / 1e3))
                .collect(),
            far_loads: None,
            total: PMetrics::default(),
        };
        verdicts_of("scan", n_nodes, &[outcome(&|_| 10.0), outcome(&default_ms)])
    }

    fn noise(round: usize) -> f64 {
        [9.0, 10.8, 9.7, 10.1, 10.6][round % 5]
    }

    #[test]
    fn a_win_is_faster_and_a_loss_is_too_slow() {
        let win = "scan: default is faster than flat by 20.0 %: medians 8.00 and 10.00 ms, -20.0 % by 15 pairs \
            (99 % interval -20.0 to -20.0)";
        assert_eq!(lines(1, |_| 8.0), [win]);
        let loss = "scan: default is slower than flat by 20.0 %: medians 12.00 and 10.00 ms, +20.0 % by 15 pairs \
            (99 % interval +20.0 to +20.0): TOO SLOW";
        assert_eq!(lines(1, |_| 12.0), [loss]);
    }

    #[test]
    fn a_loss_that_is_small_is_not_too_slow() {
        let line = &lines(1, |_| 10.2)[0];
        assert!(line.starts_with("scan: default is slower than flat by 2.0 %: "));
        assert!(!line.contains("TOO SLOW"));
    }

    #[test]
    fn noise_is_level_whichever_median_is_the_smaller() {
        for shift in [-0.2, 0.0, 0.2] {
            let line = &lines(1, |i| noise(i) + shift)[0];
            assert!(
                line.starts_with("scan: default is level with flat: "),
                "{line}"
            );
            assert!(!line.contains("ok") && !line.contains("TOO SLOW"));
        }
    }

    #[test]
    fn one_node_is_said_and_has_no_line_on_other_nodes() {
        assert!(of_one_node(1).unwrap().contains("the policies do the same"));
        assert_eq!(of_one_node(2), None);
        assert_eq!(lines(1, noise).len(), 1);
        let two = lines(2, noise);
        assert!(two[1].starts_with("scan: 0.0 % of the default's steals came from other nodes"));
    }

    /// A reader finds in the table what the verdicts speak of.
    #[test]
    fn rows_and_verdicts_have_the_same_names() {
        let outcome = || Outcome {
            times: vec![Duration::from_millis(1); 15],
            far_loads: None,
            total: PMetrics::default(),
        };
        let row = row("scan", &[outcome(), outcome()]);
        let line = &lines(1, noise)[0];
        for (policy, _) in &row.cells {
            assert!(line.contains(policy), "{policy} is not in {line}");
        }
    }
}

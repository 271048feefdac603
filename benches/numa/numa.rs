//! What is the policy for NUMA nodes worth, and what does it cost where there is one node?
//!
//! - workloads: `skynet`, a tree of goroutines; `scan`, goroutines that read memory which
//!   they have written first, in steps with a yield between; `pipes`, producers and consumers
//!   in pairs over channels; `echo`, connections over loopback; `feed`, nodes that feed
//!   themselves: on each, goroutines that are bound there spawn as much as on the others
//! - policies: `flat`, all Ps are alike; `+home wake`, the default: nearest first, a gate before other
//!   nodes, stacks where goroutines first run, and goroutines that wake at home
//! - policies take turns, round by round, so that what else the machine does hits them all;
//!   times are medians of the rounds, far loads (from memory of other nodes) are for one round
//!
//! `cargo bench --bench numa`. Each policy gets a verdict for each workload,
//! on any number of nodes: TOO SLOW if it takes more than 3 % longer than flat. On several nodes
//! the bench also compares the default's far loads with flat's, and for `feed` it checks that
//! remote steals stay below 5 %. `--synthetic DESCRIPTION` plans for a machine that is not there:
//! the counts are then right, and the times are not.
//!
//! Far loads are counted by the CPU, for all threads of this process, outside the kernel: by
//! perf's `node-load-misses`, or on AMD by the event for demand fills from memory of another node.
//! Where neither is to be had (no counters in a virtual machine, `perf_event_paranoid`, a
//! filter), the bench says so and goes on without.
#![expect(clippy::print_stdout, reason = "the result")]

use std::hint::black_box;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Parser;
use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Raw};
use serde_json::json;
use windlass::channel::bounded;
use windlass::metrics::PMetrics;
use windlass::topology::Topology;
use windlass::{NumaPolicy, Runtime, spawn, task, yield_now};
use windlass_benches::machine_time::MachineTime;
use windlass_benches::results::{self, Row, Summary};
use windlass_benches::runtimes;
use windlass_benches::workloads::{echo, skynet};

/// The default is the last, by the name that it has in docs/benchmarks.
const POLICIES: [(&str, NumaPolicy); 2] = [
    ("flat", NumaPolicy::Flat),
    ("+home wake", NumaPolicy::Levels),
];

const LEAVES: u64 = 100_000;
const SCANNERS_PER_P: usize = 4;
const SCAN_WORDS: usize = 1 << 17;
const SCAN_STEPS: usize = 64;
const PAIRS_PER_P: usize = 8;
const MESSAGES: u64 = 2_000;
const CONNECTIONS: usize = 16;
const ROUND_TRIPS: u64 = 50;
const FEEDERS_PER_P: usize = 2;
const MEALS: usize = 400;
const CHILDREN: usize = 8;
const CHILD_WORDS: u64 = 1 << 10;

/// The most that a policy may cost against flat, as a part.
const MOST_COST: f64 = 0.03;
/// The largest part that may come from other nodes.
const MOST_REMOTE: f64 = 0.05;

#[derive(Parser)]
struct Args {
    #[arg(long, default_value_t = runtimes::workers())]
    workers: usize,
    #[arg(long, default_value_t = 15)]
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
    ("scan", scan),
    ("pipes", pipes),
    ("echo", |rt| echo::windlass(rt, CONNECTIONS, ROUND_TRIPS)),
    (BALANCED, feed),
];

/// Every goroutine fills a buffer of its own and reads it again and again.
fn scan(rt: &Runtime) -> Duration {
    let n = SCANNERS_PER_P * rt.processors();
    rt.run(move || {
        let begin = Instant::now();
        let all: Vec<_> = (0..n)
            .map(|i| {
                spawn(move || {
                    let words: Vec<u64> = (0..SCAN_WORDS).map(|w| (w ^ i) as u64).collect();
                    let chunk = SCAN_WORDS / SCAN_STEPS;
                    let mut sum = 0_u64;
                    for words in words.chunks(chunk) {
                        sum = words.iter().fold(sum, |sum, word| sum.wrapping_add(*word));
                        yield_now();
                    }
                    sum
                })
            })
            .collect();
        for scanner in all {
            black_box(scanner.join().unwrap());
        }
        begin.elapsed()
    })
}

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
    fn median(&self) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        times[times.len() / 2]
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
            // A failed write loses only the bar.
            let _ = write!(io::stderr(), "\r\x1b[K{}", self.bar(name));
        }
        self.done += 1;
    }

    /// The table can be printed where the bar was.
    fn clear(&self) {
        if self.in_terminal {
            // As above.
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    fn bar(&self, name: &str) -> String {
        const WIDTH: usize = 30;
        let filled = WIDTH * self.done / self.all;
        let left = match self.done {
            0 => String::new(),
            done => {
                let to_do = (self.all - done) as f64 / done as f64;
                let left = self.begin.elapsed().as_secs_f64() * to_do;
                format!(", about {left:.0} s left")
            }
        };
        format!(
            "[{}{}] {:3} % {name}{left}",
            "#".repeat(filled),
            "-".repeat(WIDTH - filled),
            100 * self.done / self.all
        )
    }
}

fn print(workload: &str, outcomes: &[Outcome]) {
    for ((policy, _), outcome) in POLICIES.iter().zip(outcomes) {
        let total = &outcome.total;
        println!(
            "{workload:<8} {policy:<11} {:>10.2} {:>9} {:>8.1} {:>8} {:>8} {:>8} {:>8} {:>10}",
            outcome.median().as_secs_f64() * 1e3,
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

/// How much longer a policy takes than flat.
struct Cost {
    median: f64,
    /// A quarter of the rounds took less than this more.
    lower: f64,
}

impl Cost {
    /// By pairs of the same round: a disturbance of the machine hits both.
    fn of(policy: &Outcome, flat: &Outcome) -> Cost {
        let mut ratios: Vec<f64> = flat
            .times
            .iter()
            .zip(&policy.times)
            .map(|(flat, policy)| policy.as_secs_f64() / flat.as_secs_f64())
            .collect();
        ratios.sort_unstable_by(f64::total_cmp);
        Cost {
            median: ratios[ratios.len() / 2] - 1.0,
            lower: ratios[ratios.len() / 4] - 1.0,
        }
    }

    fn word(&self) -> &'static str {
        match () {
            () if self.median <= MOST_COST => "ok",
            // Some rounds are slow and others are not: the machine is busy.
            () if self.lower <= MOST_COST => {
                "unclear, the rounds differ: run it on a quiet machine"
            }
            () => "TOO SLOW",
        }
    }

    fn verdict(&self, workload: &str, policy: &str) -> String {
        let percent = self.median.abs() * 100.0;
        let than_flat = if self.median > 0.0 {
            "slower"
        } else {
            "faster"
        };
        let word = self.word();
        format!("{workload}: {policy} is {percent:.1} % {than_flat} than flat: {word}")
    }
}

/// The times of one workload under each policy.
fn row(workload: &str, outcomes: &[Outcome]) -> Row {
    let cell = |((policy, _), outcome): (&(&str, _), &Outcome)| {
        let ms: Vec<_> = outcome
            .times
            .iter()
            .map(|t| t.as_secs_f64() * 1e3)
            .collect();
        Some(((*policy).to_owned(), Summary::of(&ms)?))
    };
    Row {
        experiment: workload.to_owned(),
        key: "ms".into(),
        unit: "ms/round".into(),
        cells: POLICIES.iter().zip(outcomes).filter_map(cell).collect(),
    }
}

fn main() {
    let args = Args::parse();
    let machine = args.synthetic.as_deref().map(|text| {
        Topology::synthetic(text).unwrap_or_else(|e| panic!("--synthetic {text:?}: {e}"))
    });
    let counter = FarLoads::count();
    match &counter {
        Ok(counter) => println!("far loads are counted ({})", counter.what),
        Err(why) => println!("far loads cannot be counted here: {why}"),
    }
    let probe = runtimes::windlass_numa(args.workers, NumaPolicy::Levels, machine.clone());
    let n_nodes = probe.plan().nodes.len();
    drop(probe);
    println!(
        "{} Ps on {n_nodes} nodes, {} rounds",
        args.workers, args.rounds
    );
    let mut counter = counter.ok();
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
    let (load_before, date) = (results::load_average(), results::date());
    let machine_before = MachineTime::now().expect("proc(5) is there");
    let (mut verdicts, mut rows) = (Vec::new(), Vec::new());
    // The first round of each workload warms up.
    let mut progress = Progress::new(args.rounds + 1);
    for workload @ (name, _) in WORKLOADS {
        let outcomes = measure(
            &args,
            machine.as_ref(),
            workload,
            &mut counter,
            &mut progress,
        );
        print(name, &outcomes);
        rows.push(row(name, &outcomes));
        verdicts.extend(verdicts_of(name, n_nodes, &outcomes));
    }
    println!();
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
            .unwrap_or_else(|e| panic!("--json {}: {e}", path.display()));
    }
}

/// A line for each policy but flat; on several nodes one more, on remote steals and far loads.
fn verdicts_of(name: &str, n_nodes: usize, outcomes: &[Outcome]) -> Vec<String> {
    let (flat, default) = (&outcomes[0], &outcomes[POLICIES.len() - 1]);
    let label = |i: usize| {
        if i + 1 == POLICIES.len() {
            "default"
        } else {
            POLICIES[i].0
        }
    };
    let mut lines: Vec<_> = (1..POLICIES.len())
        .map(|i| Cost::of(&outcomes[i], flat).verdict(name, label(i)))
        .collect();
    if n_nodes > 1 {
        lines.push(locality(name, flat, default));
    }
    lines
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

//! What is the policy for NUMA nodes worth, and what does it cost where there is one node?
//!
//! - workloads: `skynet`, a tree of goroutines; `scan`, goroutines that read memory which
//!   they have written first, in steps with a yield between; `pipes`, producers and consumers
//!   in pairs over channels; `echo`, connections over loopback
//! - policies, each adding to the one before: `flat`, all Ps are alike; `order`, nearest
//!   first; `+gate`, a gate before other nodes; `+home`, goroutines wake at home (the default)
//! - policies take turns, round by round, so that what else the machine does hits them all;
//!   times are medians of the rounds
//!
//! `cargo bench -p windlass-benches --bench numa`. On a machine with several nodes the verdict
//! is how much faster the default is than flat, and whether remote steals stay below 5 %. On a
//! machine with one it is whether the default costs more than 3 %. `--synthetic DESCRIPTION`
//! plans for a machine that is not there: the counts are then right, and the times are not.
#![expect(clippy::print_stdout, reason = "the result")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use clap::Parser;
use windlass::channel::bounded;
use windlass::metrics::PMetrics;
use windlass::topology::Topology;
use windlass::{NumaPolicy, Runtime, spawn, yield_now};
use windlass_benches::runtimes;
use windlass_benches::workloads::{echo, skynet};

const POLICIES: [(&str, NumaPolicy); 4] = [
    ("flat", NumaPolicy::Flat),
    ("order", NumaPolicy::OrderOnly),
    ("+gate", NumaPolicy::OrderAndGate),
    ("+home", NumaPolicy::Levels),
];

const LEAVES: u64 = 100_000;
const SCANNERS_PER_P: usize = 4;
const SCAN_WORDS: usize = 1 << 17;
const SCAN_STEPS: usize = 64;
const PAIRS_PER_P: usize = 8;
const MESSAGES: u64 = 2_000;
const CONNECTIONS: usize = 16;
const ROUND_TRIPS: u64 = 50;

/// What the default may cost on one node.
const MOST_COST: f64 = 0.03;
/// What may come from other nodes.
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
    /// Cargo says so.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A workload: its name, and one round of it.
type Workload = (&'static str, fn(&Runtime) -> Duration);

const WORKLOADS: [Workload; 4] = [
    ("skynet", |rt| skynet::windlass(rt, LEAVES)),
    ("scan", scan),
    ("pipes", pipes),
    ("echo", |rt| echo::windlass(rt, CONNECTIONS, ROUND_TRIPS)),
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

/// What one policy did with one workload.
struct Outcome {
    times: Vec<Duration>,
    total: PMetrics,
}

impl Outcome {
    fn median(&self) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        times[times.len() / 2]
    }
}

fn measure(args: &Args, machine: Option<&Topology>, run: fn(&Runtime) -> Duration) -> Vec<Outcome> {
    let start = |(_, policy)| runtimes::windlass_numa(args.workers, policy, machine.cloned());
    let runtimes = POLICIES.map(start);
    let mut times = vec![Vec::new(); POLICIES.len()];
    for round in 0..=args.rounds {
        for i in 0..POLICIES.len() {
            // Not always the same one after the same other one.
            let i = (i + round) % POLICIES.len();
            let took = run(&runtimes[i]);
            // The first round warms up.
            if round > 0 {
                times[i].push(took);
            }
        }
    }
    let of = |(times, rt): (_, &Runtime)| Outcome {
        times,
        total: rt.metrics().total(),
    };
    times.into_iter().zip(&runtimes).map(of).collect()
}

fn print(workload: &str, outcomes: &[Outcome]) {
    for ((policy, _), outcome) in POLICIES.iter().zip(outcomes) {
        let total = &outcome.total;
        println!(
            "{workload:<8} {policy:<7} {:>10.2} {:>9} {:>8.1} {:>8} {:>8} {:>8} {:>8}",
            outcome.median().as_secs_f64() * 1e3,
            total.stolen.total(),
            total.remote_share() * 100.0,
            total.gate_denials.total(),
            total.home_wakes,
            total.rehomes,
            total.runs_away,
        );
    }
}

/// How much longer the default takes than flat.
struct Cost {
    median: f64,
    /// A quarter of the rounds took less than this more.
    lower: f64,
}

/// By pairs of the same round: what the machine did beside hits both.
fn cost(outcomes: &[Outcome]) -> Cost {
    let (flat, default) = (&outcomes[0].times, &outcomes[POLICIES.len() - 1].times);
    let mut ratios: Vec<f64> = flat
        .iter()
        .zip(default)
        .map(|(flat, default)| default.as_secs_f64() / flat.as_secs_f64())
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    Cost {
        median: ratios[ratios.len() / 2] - 1.0,
        lower: ratios[ratios.len() / 4] - 1.0,
    }
}

fn main() {
    let args = Args::parse();
    let machine = args.synthetic.as_deref().map(|text| {
        Topology::synthetic(text).unwrap_or_else(|e| panic!("--synthetic {text:?}: {e}"))
    });
    let probe = runtimes::windlass_numa(args.workers, NumaPolicy::Levels, machine.clone());
    let n_nodes = probe.plan().nodes.len();
    drop(probe);
    println!(
        "{} Ps on {n_nodes} nodes, {} rounds",
        args.workers, args.rounds
    );
    println!(
        "{:<8} {:<7} {:>10} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "workload",
        "policy",
        "median ms",
        "stolen",
        "remote %",
        "denied",
        "home",
        "rehomed",
        "away"
    );
    let mut verdicts = Vec::new();
    for (name, run) in WORKLOADS {
        let outcomes = measure(&args, machine.as_ref(), run);
        print(name, &outcomes);
        let cost = cost(&outcomes);
        let remote = outcomes[POLICIES.len() - 1].total.remote_share();
        verdicts.push(verdict(name, n_nodes, cost, remote));
    }
    verdicts.iter().for_each(|line| println!("{line}"));
}

fn verdict(name: &str, n_nodes: usize, cost: Cost, remote: f64) -> String {
    let percent = cost.median * 100.0;
    if n_nodes == 1 {
        let word = match () {
            () if cost.median <= MOST_COST => "ok",
            // Then some rounds say so and others do not: the machine has other things to do.
            () if cost.lower <= MOST_COST => {
                "unclear, the rounds differ: run it on a quiet machine"
            }
            () => "TOO SLOW",
        };
        return format!("{name}: the default takes {percent:+.1} % against flat: {word}");
    }
    let word = if remote < MOST_REMOTE { "ok" } else { "MUCH" };
    let share = remote * 100.0;
    format!(
        "{name}: the default takes {percent:+.1} % against flat; {share:.1} % of what was stolen \
         came from other nodes: {word}"
    )
}

//! Simulated runs: what does a step cost, what does a run cost, and how many hosts can there be?
//!
//! ```text
//! simulation [WORKLOAD..] [--rounds N]
//! ```
//!
//! Workloads:
//!
//! - `channels`: 8 goroutines pass messages over 4 channels of one place. Steps in a second, under a
//!   random walk, PCT of depth 3 and the default mixture.
//! - `locks`: 8 goroutines take one mutex in turn. Steps in a second, as above.
//! - `yields`: 10,000 goroutines that can run all the time. Steps in a second, as above.
//! - `empty`: runs whose closure does nothing. Microseconds for each.
//! - `hosts`: 1,000 hosts, each with a server. Each asks 10 others over TCP, by name. Seconds, steps
//!   and connections.
//!
//! One seed in 16 is run twice, as in tests: the second run is part of the time, and its steps are
//! not counted. The table has the median and the range of `--rounds` rounds (5).
#![allow(clippy::print_stdout)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use windlass::channel::bounded;
use windlass::io::{self, Read, Write};
use windlass::net::{TcpListener, TcpStream};
use windlass::sim::{self, Report, Sim, Strategy};
use windlass::sync::{Arc, Mutex};
use windlass::time::{Duration, sleep};

// SAFETY: nothing of a thread is kept across a call into windlass.
#[allow(unsafe_code)]
const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };

const WORKLOADS: [&str; 5] = ["channels", "locks", "yields", "empty", "hosts"];

/// Goroutines of a run of `channels` and `locks`.
const GOROUTINES: usize = 8;
/// Messages of each pair of them, and turns of each with the lock.
const TURNS: usize = 2_000;
/// Runs of a round.
const RUNS: u64 = 32;
const EMPTY_RUNS: u64 = 20_000;
/// Goroutines of a run of `yields`, the turns of each, and runs of a round.
const CROWD: usize = 10_000;
const YIELDS: usize = 10;
const CROWD_RUNS: u64 = 4;
const HOSTS: usize = 1_000;
const QUESTIONS: usize = 10;

fn main() -> ExitCode {
    let mut rounds = 5;
    let mut chosen = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--rounds" => match args.next().and_then(|n| n.parse().ok()) {
                Some(n) if n > 0 => rounds = n,
                _ => return usage(),
            },
            name if WORKLOADS.contains(&name) => chosen.push(arg),
            _ => return usage(),
        }
    }
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|other| other == name);
    println!("{:<34} {:>10} {:>10} {:>10}", "", "median", "least", "most");
    for (name, f, runs) in [
        ("channels", channels as fn(), RUNS),
        ("locks", locks, RUNS),
        ("yields", yields, CROWD_RUNS),
    ] {
        if !is_chosen(name) {
            continue;
        }
        for (strategy, label) in [
            (Strategy::RandomWalk, "random walk"),
            (Strategy::Pct { depth: 3 }, "PCT of depth 3"),
            (Strategy::Mixed, "default"),
        ] {
            let sim = || Sim::new(PROMISE).seed(1).seeds(runs).strategy(strategy);
            let steps = (0..rounds).map(|_| {
                let (report, seconds) = timed(sim(), f);
                report.steps() as f64 / seconds / 1e6
            });
            row(&format!("{name}, {label}"), "M steps/s", steps.collect());
        }
    }
    if is_chosen("empty") {
        let us = (0..rounds).map(|_| {
            let (report, seconds) = timed(Sim::new(PROMISE).seed(1).seeds(EMPTY_RUNS), || ());
            seconds * 1e6 / report.runs.len() as f64
        });
        row("empty run", "us", us.collect());
    }
    if is_chosen("hosts") {
        let (mut seconds, mut rates) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (report, time) =
                timed(Sim::new(PROMISE).seed(1).seeds(1).steps(100_000_000), hosts);
            seconds.push(time);
            rates.push(report.steps() as f64 / time / 1e6);
        }
        let name = format!("{HOSTS} hosts, {} connections", HOSTS * QUESTIONS);
        row(&name, "s", seconds);
        row(&name, "M steps/s", rates);
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("simulation [{}] [--rounds N]", WORKLOADS.join("] ["));
    ExitCode::FAILURE
}

fn timed(sim: Sim, f: impl Fn()) -> (Report, f64) {
    let begin = Instant::now();
    let report = sim.run(f).unwrap_or_else(|failure| panic!("{failure}"));
    (report, begin.elapsed().as_secs_f64())
}

fn row(name: &str, unit: &str, mut values: Vec<f64>) {
    values.sort_by(f64::total_cmp);
    let (least, most) = (values[0], values[values.len() - 1]);
    let median = values[values.len() / 2];
    println!("{name:<34} {median:>10.3} {least:>10.3} {most:>10.3} {unit}");
}

fn yields() {
    windlass::scope(|s| {
        for _ in 0..CROWD {
            s.spawn(|| (0..YIELDS).for_each(|_| windlass::yield_now()));
        }
    });
}

fn channels() {
    let pairs: Vec<_> = (0..GOROUTINES / 2)
        .flat_map(|_| {
            let (sender, receiver) = bounded(1);
            let sends = windlass::spawn(move || {
                for n in 0..TURNS {
                    sender.send(n).unwrap();
                }
            });
            let receives = windlass::spawn(move || assert_eq!(receiver.iter().count(), TURNS));
            [sends, receives]
        })
        .collect();
    pairs.into_iter().for_each(|one| one.join().unwrap());
}

fn locks() {
    let n = Arc::new(Mutex::new(0));
    let all: Vec<_> = (0..GOROUTINES)
        .map(|_| {
            let n = Arc::clone(&n);
            windlass::spawn(move || (0..TURNS).for_each(|_| *n.lock().unwrap() += 1))
        })
        .collect();
    all.into_iter().for_each(|one| one.join().unwrap());
    assert_eq!(*n.lock().unwrap(), GOROUTINES * TURNS);
}

fn serve() -> io::Result<()> {
    let listener = TcpListener::bind("0.0.0.0:80")?;
    windlass::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream?;
            let mut number = [0; 4];
            stream.read_exact(&mut number)?;
            let doubled = 2 * u32::from_be_bytes(number);
            stream.write_all(&doubled.to_be_bytes())?;
        }
        io::Result::Ok(())
    });
    Ok(())
}

fn ask(host: usize, number: u32) -> io::Result<u32> {
    let mut stream = TcpStream::connect((format!("host{host}").as_str(), 80))?;
    stream.write_all(&number.to_be_bytes())?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer)?;
    Ok(u32::from_be_bytes(answer))
}

fn hosts() {
    let n_done = Arc::new(AtomicUsize::new(0));
    for n in 0..HOSTS {
        let n_done = Arc::clone(&n_done);
        let [_, _, high, low] = (n as u32).to_be_bytes();
        sim::host(&format!("host{n}"), [10, 0, high, low], move || {
            serve().unwrap();
            // By then all listen.
            sleep(Duration::from_secs(1));
            for k in 1..=QUESTIONS {
                let other = (n + k * k * 31) % HOSTS;
                assert_eq!(ask(other, k as u32).unwrap(), 2 * k as u32);
            }
            n_done.fetch_add(1, Ordering::Relaxed);
        });
    }
    sleep(Duration::from_secs(60));
    assert_eq!(n_done.load(Ordering::Relaxed), HOSTS);
}

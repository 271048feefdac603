//! How late does a sleeper wake when nothing else is going on?
//!
//! One task sleeps 50 µs at a time; what is printed is how much longer than that
//! it took, `p50_us=.. p99_us=..`. tokio's clock has a grain of a millisecond, so
//! for it the figure is that grain.
//!
//! `sleep_overshoot windlass`
#![expect(clippy::print_stdout, reason = "the result")]

use std::time::{Duration, Instant};

use clap::Parser;
use windlass_benches::latencies::Latencies;
use windlass_benches::runtimes::{self, Name};

const SLEEP: Duration = Duration::from_micros(50);

#[derive(Parser)]
struct Args {
    runtime: Name,
    #[arg(long, default_value_t = runtimes::workers())]
    workers: usize,
    #[arg(long, default_value_t = 2_000)]
    sleeps: usize,
}

fn main() {
    let Args {
        runtime,
        workers,
        sleeps,
    } = Args::parse();
    let latencies =
        match runtime {
            Name::Windlass => runtimes::windlass(workers)
                .run(move || overshoots(sleeps, || windlass::sleep(SLEEP))),
            Name::Tokio => runtimes::tokio(workers).run(async move {
                let mut latencies = Latencies::new();
                for _ in 0..sleeps {
                    let start = Instant::now();
                    tokio::time::sleep(SLEEP).await;
                    latencies.record(start.elapsed().saturating_sub(SLEEP));
                }
                latencies
            }),
            Name::May => runtimes::may(workers)
                .run(move || overshoots(sleeps, || may::coroutine::sleep(SLEEP))),
            other => other.has_no_twin(),
        };
    println!(
        "p50_us={:.1} p99_us={:.1}",
        latencies.quantile_us(0.50),
        latencies.quantile_us(0.99),
    );
}

fn overshoots(sleeps: usize, sleep: impl Fn()) -> Latencies {
    let mut latencies = Latencies::new();
    for _ in 0..sleeps {
        let start = Instant::now();
        sleep();
        latencies.record(start.elapsed().saturating_sub(SLEEP));
    }
    latencies
}

//! What does a small request over TCP cost, all things of a server taken together?
//!
//! - messages: 64 bytes over loopback, each sent when the last has come back
//! - connections: 1, where every message waits for a wake, and 64, where they queue
//! - client and server tasks share one runtime, so nothing but it is measured
//! - one iteration: a round trip on every connection; the time per element is one
//!   round trip's

use criterion::{Criterion, Throughput};
use windlass_benches::workloads::echo;
use windlass_benches::{runtimes, summary};

const CONNECTIONS: [usize; 2] = [1, 64];

fn main() {
    let workers = runtimes::workers();
    let windlass = runtimes::windlass(workers);
    let tokio = runtimes::tokio(workers);
    let may = runtimes::may(workers);

    let mut criterion = Criterion::default()
        .output_directory(&summary::directory())
        .configure_from_args();
    for connections in CONNECTIONS {
        let mut group = criterion.benchmark_group(format!("echo/{connections}"));
        group.throughput(Throughput::Elements(connections as u64));
        group.bench_function("windlass", |b| {
            b.iter_custom(|round_trips| echo::windlass(&windlass, connections, round_trips));
        });
        group.bench_function("tokio", |b| {
            b.iter_custom(|round_trips| echo::tokio(&tokio, connections, round_trips));
        });
        group.bench_function("may", |b| {
            b.iter_custom(|round_trips| echo::may(&may, connections, round_trips));
        });
        group.finish();
    }
    criterion.final_summary();
    summary::after_bench();
}

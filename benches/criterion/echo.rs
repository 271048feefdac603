//! What does a small request over TCP cost, all things of a server taken together?
//!
//! - messages: 64 bytes over loopback, each sent when the last has come back
//! - connections: 1, where every message waits for a wake, and 64, where they queue
//! - client and server tasks share one runtime, so nothing but it is measured
//! - one iteration: a round trip on every connection; the time per element is one
//!   round trip's

use criterion::{Criterion, Throughput};
use windlass_benches::runtimes::Runtimes;
use windlass_benches::workloads::echo;

const CONNECTIONS: [usize; 2] = [1, 64];

pub(crate) fn bench(criterion: &mut Criterion, on: &Runtimes) {
    for connections in CONNECTIONS {
        let mut group = criterion.benchmark_group(format!("echo/{connections}"));
        group.throughput(Throughput::Elements(connections as u64));
        group.bench_function("windlass", |b| {
            b.iter_custom(|round_trips| echo::windlass(&on.windlass, connections, round_trips));
        });
        group.bench_function("tokio", |b| {
            b.iter_custom(|round_trips| echo::tokio(&on.tokio, connections, round_trips));
        });
        group.bench_function("may", |b| {
            b.iter_custom(|round_trips| echo::may(&on.may, connections, round_trips));
        });
        group.finish();
    }
}

//! How fast do messages go from task to task?
//!
//! - ping-pong: pairs of tasks send a `u64` there and back, through two channels of
//!   capacity 0 (tokio: 1; may: no limit) or 1; one iteration is a round trip of each pair
//! - pairs: 1, and 1,000
//! - mpmc: 4 senders and 4 receivers on one channel of capacity 128 (may: no limit;
//!   tokio: async-channel; crossbeam: threads); one iteration is 4 messages, one of each
//!   sender

use criterion::{Criterion, Throughput};
use windlass_benches::workloads::chan_ping_pong::{self, Shape};
use windlass_benches::workloads::mpmc;
use windlass_benches::{runtimes, summary};

fn main() {
    let workers = runtimes::workers();
    let windlass = runtimes::windlass(workers);
    let tokio = runtimes::tokio(workers);
    let may = runtimes::may(workers);

    let mut criterion = Criterion::default()
        .output_directory(&summary::directory())
        .configure_from_args();
    for (name, cap, pairs) in [
        ("chan_ping_pong_unbuffered", 0, 1),
        ("chan_ping_pong_buffered", 1, 1),
        ("chan_ping_pong_1000_pairs", 0, 1_000),
    ] {
        let shape = Shape { cap, pairs };
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(pairs as u64));
        group.bench_function("windlass", |b| {
            b.iter_custom(|n| chan_ping_pong::windlass(&windlass, shape, n));
        });
        group.bench_function("tokio", |b| {
            b.iter_custom(|n| chan_ping_pong::tokio(&tokio, shape, n));
        });
        group.bench_function("may", |b| {
            b.iter_custom(|n| chan_ping_pong::may(&may, shape, n));
        });
        group.finish();
    }

    let mut group = criterion.benchmark_group("chan_mpmc_4x4");
    group.throughput(Throughput::Elements(mpmc::SIDE));
    group.bench_function("windlass", |b| {
        b.iter_custom(|n| mpmc::windlass(&windlass, n));
    });
    group.bench_function("tokio", |b| {
        b.iter_custom(|n| mpmc::tokio(&tokio, n));
    });
    group.bench_function("may", |b| {
        b.iter_custom(|n| mpmc::may(&may, n));
    });
    group.bench_function("crossbeam", |b| {
        b.iter_custom(mpmc::crossbeam);
    });
    group.finish();
    criterion.final_summary();
    summary::after_bench();
}

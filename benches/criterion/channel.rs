//! How fast do messages go from task to task?
//!
//! - ping-pong: pairs of tasks send a `u64` there and back, through two channels of
//!   capacity 0 (tokio: 1; may: no limit) or 1; one iteration is a round trip of each pair
//! - pairs: 1, and 1,000
//! - mpmc: 4 senders and 4 receivers on one channel of capacity 128 (may: no limit;
//!   tokio: async-channel; crossbeam: threads); one iteration is 4 messages, one of each
//!   sender

use criterion::{Criterion, Throughput};
use windlass_benches::runtimes::Runtimes;
use windlass_benches::workloads::chan_ping_pong::{self, Shape};
use windlass_benches::workloads::mpmc;

pub(crate) fn bench(criterion: &mut Criterion, on: &Runtimes) {
    for (name, cap, pairs) in [
        ("chan_ping_pong_unbuffered", 0, 1),
        ("chan_ping_pong_buffered", 1, 1),
        ("chan_ping_pong_1000_pairs", 0, 1_000),
    ] {
        let shape = Shape { cap, pairs };
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(pairs as u64));
        group.bench_function("windlass", |b| {
            b.iter_custom(|n| chan_ping_pong::windlass(&on.windlass, shape, n));
        });
        group.bench_function("tokio", |b| {
            b.iter_custom(|n| chan_ping_pong::tokio(&on.tokio, shape, n));
        });
        group.bench_function("may", |b| {
            b.iter_custom(|n| chan_ping_pong::may(&on.may, shape, n));
        });
        group.finish();
    }

    let mut group = criterion.benchmark_group("chan_mpmc_4x4");
    group.throughput(Throughput::Elements(mpmc::SIDE));
    group.bench_function("windlass", |b| {
        b.iter_custom(|n| mpmc::windlass(&on.windlass, n));
    });
    group.bench_function("tokio", |b| {
        b.iter_custom(|n| mpmc::tokio(&on.tokio, n));
    });
    group.bench_function("may", |b| {
        b.iter_custom(|n| mpmc::may(&on.may, n));
    });
    group.bench_function("crossbeam", |b| {
        b.iter_custom(mpmc::crossbeam);
    });
    group.finish();
}

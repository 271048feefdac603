//! What does a sleep cost, when very many sleep at the same time?
//!
//! - tasks: 10,000; 100,000 take too long for a sample (`micro sleepers` has those)
//! - one iteration: every task sleeps once, 1 to 100 ms in no order
//! - the time is mostly that of the longest sleep: `compare --only sleepers` shows the CPU
//!   time, which is the figure that counts

use criterion::{Criterion, SamplingMode, Throughput};
use windlass_benches::runtimes::Runtimes;
use windlass_benches::workloads::sleepers;

const TASKS: usize = 10_000;

pub(crate) fn bench(criterion: &mut Criterion, on: &Runtimes) {
    let mut group = criterion.benchmark_group("sleepers");
    group.sampling_mode(SamplingMode::Flat).sample_size(10);
    group.throughput(Throughput::Elements(TASKS as u64));
    group.bench_function("windlass", |b| {
        b.iter_custom(|rounds| sleepers::windlass(&on.windlass, TASKS, rounds));
    });
    group.bench_function("tokio", |b| {
        b.iter_custom(|rounds| sleepers::tokio(&on.tokio, TASKS, rounds));
    });
    group.bench_function("may", |b| {
        b.iter_custom(|rounds| sleepers::may(&on.may, TASKS, rounds));
    });
    group.finish();
}

//! What does giving way cost, when the run queues are never empty?
//!
//! - tasks: 1,000, all at it from the start
//! - one iteration: every task yields once, so the time per element is that of one yield
//! - the tasks are started once per sample; this is a part in a hundred of it

use criterion::{Criterion, Throughput};
use windlass_benches::runtimes::Runtimes;
use windlass_benches::workloads::yields;

const TASKS: usize = 1_000;

pub(crate) fn bench(criterion: &mut Criterion, on: &Runtimes) {
    let mut group = criterion.benchmark_group("yield");
    group.throughput(Throughput::Elements(TASKS as u64));
    group.bench_function("windlass", |b| {
        b.iter_custom(|rounds| yields::windlass(&on.windlass, TASKS, rounds));
    });
    group.bench_function("tokio", |b| {
        b.iter_custom(|rounds| yields::tokio(&on.tokio, TASKS, rounds));
    });
    group.bench_function("may", |b| {
        b.iter_custom(|rounds| yields::may(&on.may, TASKS, rounds));
    });
    group.finish();
}

//! What does giving way cost, when the run queues are never empty?
//!
//! - tasks: 1,000, all at it from the start
//! - one iteration: every task yields once, so the time per element is that of one yield
//! - the tasks are started once per sample; this is a part in a hundred of it

use criterion::{Criterion, Throughput};
use windlass_benches::workloads::yields;
use windlass_benches::{runtimes, summary};

const TASKS: usize = 1_000;

fn main() {
    let workers = runtimes::workers();
    let windlass = runtimes::windlass(workers);
    let tokio = runtimes::tokio(workers);
    let may = runtimes::may(workers);

    let mut criterion = Criterion::default()
        .output_directory(&summary::directory())
        .configure_from_args();
    let mut group = criterion.benchmark_group("yield");
    group.throughput(Throughput::Elements(TASKS as u64));
    group.bench_function("windlass", |b| {
        b.iter_custom(|rounds| yields::windlass(&windlass, TASKS, rounds));
    });
    group.bench_function("tokio", |b| {
        b.iter_custom(|rounds| yields::tokio(&tokio, TASKS, rounds));
    });
    group.bench_function("may", |b| {
        b.iter_custom(|rounds| yields::may(&may, TASKS, rounds));
    });
    group.finish();
    criterion.final_summary();
    summary::after_bench();
}

//! What does a sleep cost, when very many sleep at the same time?
//!
//! - tasks: 10,000; 100,000 take too long for a sample (`micro sleepers` has those)
//! - one iteration: every task sleeps once, 1 to 100 ms in no order
//! - the time is mostly that of the longest sleep: `compare --only sleepers` shows the CPU
//!   time, which is the figure that counts

use criterion::{Criterion, Throughput};
use windlass_benches::workloads::sleepers;
use windlass_benches::{runtimes, summary};

const TASKS: usize = 10_000;

fn main() {
    let workers = runtimes::workers();
    let windlass = runtimes::windlass(workers);
    let tokio = runtimes::tokio(workers);
    let may = runtimes::may(workers);

    let mut criterion = Criterion::default()
        .output_directory(&summary::directory())
        .configure_from_args();
    let mut group = criterion.benchmark_group("sleepers");
    group.sample_size(10);
    group.throughput(Throughput::Elements(TASKS as u64));
    group.bench_function("windlass", |b| {
        b.iter_custom(|rounds| sleepers::windlass(&windlass, TASKS, rounds));
    });
    group.bench_function("tokio", |b| {
        b.iter_custom(|rounds| sleepers::tokio(&tokio, TASKS, rounds));
    });
    group.bench_function("may", |b| {
        b.iter_custom(|rounds| sleepers::may(&may, TASKS, rounds));
    });
    group.finish();
    criterion.final_summary();
    summary::after_bench();
}

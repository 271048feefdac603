//! What do starting a task and hearing of its end cost, once all is warm?
//!
//! - the task: a closure that gives back a number
//! - `one`: start one, join it, again; the join always waits
//! - `batch`: start 1,000, then join them all; the time per element is one task's

use criterion::{Criterion, Throughput};
use windlass_benches::workloads::spawn_join;
use windlass_benches::{runtimes, summary};

const BATCHES: [(&str, usize); 2] = [("one", 1), ("batch", 1_000)];

fn main() {
    let workers = runtimes::workers();
    let windlass = runtimes::windlass(workers);
    let tokio = runtimes::tokio(workers);
    let may = runtimes::may(workers);

    let mut criterion = Criterion::default()
        .output_directory(&summary::directory())
        .configure_from_args();
    for (name, batch) in BATCHES {
        let mut group = criterion.benchmark_group(format!("spawn_join/{name}"));
        group.throughput(Throughput::Elements(batch as u64));
        group.bench_function("windlass", |b| {
            b.iter_custom(|batches| spawn_join::windlass(&windlass, batch, batches));
        });
        group.bench_function("tokio", |b| {
            b.iter_custom(|batches| spawn_join::tokio(&tokio, batch, batches));
        });
        group.bench_function("may", |b| {
            b.iter_custom(|batches| spawn_join::may(&may, batch, batches));
        });
        group.finish();
    }
    criterion.final_summary();
    summary::after_bench();
}

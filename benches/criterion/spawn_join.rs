//! What do starting a task and hearing of its end cost, once all is warm?
//!
//! - the task: a closure that gives back a number
//! - `one`: start one, join it, again; the join always waits
//! - `batch`: start 1,000, then join them all; the time per element is one task's

use criterion::{Criterion, Throughput};
use windlass_benches::runtimes::Runtimes;
use windlass_benches::workloads::spawn_join;

const BATCHES: [(&str, usize); 2] = [("one", 1), ("batch", 1_000)];

pub(crate) fn bench(criterion: &mut Criterion, on: &Runtimes) {
    for (name, batch) in BATCHES {
        let mut group = criterion.benchmark_group(format!("spawn_join/{name}"));
        group.throughput(Throughput::Elements(batch as u64));
        group.bench_function("windlass", |b| {
            b.iter_custom(|batches| spawn_join::windlass(&on.windlass, batch, batches));
        });
        group.bench_function("tokio", |b| {
            b.iter_custom(|batches| spawn_join::tokio(&on.tokio, batch, batches));
        });
        group.bench_function("may", |b| {
            b.iter_custom(|batches| spawn_join::may(&on.may, batch, batches));
        });
        group.finish();
    }
}

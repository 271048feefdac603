//! How fast does a burst of tasks spread over the workers and come together again?
//!
//! - the tree: 10 children to a task, all joined by it; 1,000,000 leaves, so
//!   1,111,111 tasks, and the same with 1,000 leaves
//! - one iteration: the whole tree; the time per element is one leaf's
//! - may runs the big tree only where `vm.max_map_count` lets it have that many
//!   stacks, and is left out with a note elsewhere

use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput};
use windlass_benches::runtimes::{self, Runtimes};
use windlass_benches::workloads::skynet;

const TREES: [(&str, u64); 2] = [("1k", 1_000), ("1M", 1_000_000)];

pub(crate) fn bench(criterion: &mut Criterion, on: &Runtimes) {
    for (name, leaves) in TREES {
        let mut group = criterion.benchmark_group(format!("skynet/{name}"));
        group.throughput(Throughput::Elements(leaves));
        group.sampling_mode(SamplingMode::Flat).sample_size(10);
        group.bench_function("windlass", |b| {
            b.iter_custom(|trees| repeat(trees, || skynet::windlass(&on.windlass, leaves)));
        });
        group.bench_function("tokio", |b| {
            b.iter_custom(|trees| repeat(trees, || skynet::tokio(&on.tokio, leaves)));
        });
        if leaves * 10 / 9 <= runtimes::may_coroutines() as u64 {
            group.bench_function("may", |b| {
                b.iter_custom(|trees| repeat(trees, || skynet::may(&on.may, leaves)));
            });
        } else {
            eprintln!("skynet/{name}/may is left out: vm.max_map_count is too low for its stacks");
        }
        group.finish();
    }
}

fn repeat(times: u64, run: impl Fn() -> Duration) -> Duration {
    (0..times).map(|_| run()).sum()
}

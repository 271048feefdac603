//! What does a lock cost, with nobody else at it and with many?
//!
//! - `alone`: a task takes and gives back a lock that no other knows; std's mutex is the
//!   one to be measured by, in a goroutine as ours is
//! - `contended`: 64 tasks add one to a counter behind one lock, all at it from the start
//! - one iteration: in `alone` a lock and unlock, in `contended` one of every task, so
//!   that the time per element is one lock and unlock

use criterion::{Criterion, Throughput};
use windlass_benches::runtimes::Runtimes;
use windlass_benches::workloads::mutex;

const TASKS: usize = 64;

pub(crate) fn bench(criterion: &mut Criterion, on: &Runtimes) {
    let mut group = criterion.benchmark_group("mutex/alone");
    group.bench_function("windlass", |b| {
        b.iter_custom(|rounds| mutex::windlass_alone(&on.windlass, rounds));
    });
    group.bench_function("std", |b| {
        b.iter_custom(|rounds| mutex::std_alone(&on.windlass, rounds));
    });
    group.bench_function("tokio", |b| {
        b.iter_custom(|rounds| mutex::tokio_alone(&on.tokio, rounds));
    });
    group.bench_function("may", |b| {
        b.iter_custom(|rounds| mutex::may_alone(&on.may, rounds));
    });
    group.finish();

    let mut group = criterion.benchmark_group("mutex/contended");
    group.throughput(Throughput::Elements(TASKS as u64));
    group.bench_function("windlass", |b| {
        b.iter_custom(|rounds| mutex::windlass(&on.windlass, TASKS, rounds));
    });
    group.bench_function("tokio", |b| {
        b.iter_custom(|rounds| mutex::tokio(&on.tokio, TASKS, rounds));
    });
    group.bench_function("may", |b| {
        b.iter_custom(|rounds| mutex::may(&on.may, TASKS, rounds));
    });
    group.finish();
}

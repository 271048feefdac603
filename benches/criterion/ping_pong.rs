//! How fast do two tasks wake each other?
//!
//! - tasks: 2, on a runtime with nothing else to do
//! - one iteration: a round trip, which is two wakes and two parks
//! - park and unpark in windlass and may; two `Notify` in tokio, which has no park

use criterion::Criterion;
use windlass_benches::runtimes::Runtimes;
use windlass_benches::workloads::ping_pong;

pub(crate) fn bench(criterion: &mut Criterion, on: &Runtimes) {
    let mut group = criterion.benchmark_group("ping_pong");
    group.bench_function("windlass", |b| {
        b.iter_custom(|round_trips| ping_pong::windlass(&on.windlass, round_trips));
    });
    group.bench_function("tokio", |b| {
        b.iter_custom(|round_trips| ping_pong::tokio(&on.tokio, round_trips));
    });
    group.bench_function("may", |b| {
        b.iter_custom(|round_trips| ping_pong::may(&on.may, round_trips));
    });
    group.finish();
}

//! How fast do two tasks wake each other?
//!
//! - tasks: 2, on a runtime with nothing else to do
//! - one iteration: a round trip, which is two wakes and two parks
//! - park and unpark in windlass and may; two `Notify` in tokio, which has no park

use criterion::Criterion;
use windlass_benches::workloads::ping_pong;
use windlass_benches::{runtimes, summary};

fn main() {
    let workers = runtimes::workers();
    let windlass = runtimes::windlass(workers);
    let tokio = runtimes::tokio(workers);
    let may = runtimes::may(workers);

    let mut criterion = Criterion::default()
        .output_directory(&summary::directory())
        .configure_from_args();
    let mut group = criterion.benchmark_group("ping_pong");
    group.bench_function("windlass", |b| {
        b.iter_custom(|round_trips| ping_pong::windlass(&windlass, round_trips));
    });
    group.bench_function("tokio", |b| {
        b.iter_custom(|round_trips| ping_pong::tokio(&tokio, round_trips));
    });
    group.bench_function("may", |b| {
        b.iter_custom(|round_trips| ping_pong::may(&may, round_trips));
    });
    group.finish();
    criterion.final_summary();
    summary::after_bench();
}

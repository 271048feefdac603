//! What does it cost to move much data over TCP?
//!
//! - messages: 16 KiB and 512 bytes over loopback, sent without waiting for answers and
//!   received one by one
//! - connections: 4, with senders and receivers in one runtime
//! - one iteration: a message on every connection; the time per element is that of
//!   one message

use criterion::{Criterion, Throughput};
use windlass_benches::runtimes::Runtimes;
use windlass_benches::workloads::stream;

const MESSAGE_BYTES: [usize; 2] = [16 << 10, 512];

pub(crate) fn bench(criterion: &mut Criterion, on: &Runtimes) {
    for bytes in MESSAGE_BYTES {
        let mut group = criterion.benchmark_group(format!("stream/{bytes}"));
        group.throughput(Throughput::ElementsAndBytes {
            elements: stream::CONNECTIONS as u64,
            bytes: (bytes * stream::CONNECTIONS) as u64,
        });
        group.bench_function("windlass", |b| {
            b.iter_custom(|messages| stream::windlass(&on.windlass, bytes, messages));
        });
        group.bench_function("tokio", |b| {
            b.iter_custom(|messages| stream::tokio(&on.tokio, bytes, messages));
        });
        group.bench_function("may", |b| {
            b.iter_custom(|messages| stream::may(&on.may, bytes, messages));
        });
        group.finish();
    }
}

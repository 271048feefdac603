//! How a workload is repeated in a process of its own, and what is printed of it: shared by `micro`
//! and the programs of [`per_core`](crate::per_core).
#![expect(clippy::print_stdout, reason = "the result")]

use std::time::Duration;

use crate::process;
use crate::workloads::stream::CONNECTIONS;

/// A workload is repeated for so long, at least.
const DURATION: Duration = Duration::from_secs(1);

/// How large a workload is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// In its own measure: what its function takes.
    pub n: u64,
    /// The operations that this comes to.
    pub operations: u64,
}

/// How many tasks sleep.
pub const SLEEPERS: usize = 100_000;
/// As [`SLEEPERS`], for a P whose timers and stacks fit the caches.
pub const FEWER_SLEEPERS: usize = 10_000;
/// How often each of them sleeps.
pub const SLEEPS: u64 = 5;

/// The bytes of a message, and the size of a run.
pub const STREAM_16K: (usize, Size) = (16 << 10, messages(5_000));
/// As [`STREAM_16K`], with small messages.
pub const STREAM_512: (usize, Size) = (512, messages(50_000));

const fn messages(n: u64) -> Size {
    Size {
        n,
        operations: n * CONNECTIONS as u64,
    }
}

/// Repeats a workload, after one run to warm up. Prints `ns=..` and `cpu_ns=..`, both per
/// operation: wall time, and CPU time of the whole process.
pub fn measure(size: Size, run: impl Fn(u64) -> Duration) {
    run(size.n); // warm
    let cpu_before = process::own_cpu_time();
    let mut elapsed = Duration::ZERO;
    let mut done = 0;
    while elapsed < DURATION {
        elapsed += run(size.n);
        done += size.operations;
    }
    let cpu = process::own_cpu_time() - cpu_before;
    println!(
        "ns={:.1} cpu_ns={:.1}",
        elapsed.as_nanos() as f64 / done as f64,
        cpu.as_nanos() as f64 / done as f64,
    );
}

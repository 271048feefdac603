//! The speed of windlass, beside that of tokio, of may, of Go, and for connections and files
//! of monoio and compio.
//!
//! Two kinds of measurement share what is in here:
//!
//! - criterion benches (`benches/criterion/`), one file per question, with windlass,
//!   tokio and may in one process: `cargo bench`, of which [`suite`] has the arguments, the progress
//!   and the closing screen; [`mod@numa`] and [`scale`] belong to it, without criterion;
//! - whole programs (`benches/src/bin/`), a process for each runtime, with their
//!   twins in Go (`benches/go/`), run in turn by `compare`: `make compare`.
//!
//! A peer that takes part in programs only is a crate of its own (`benches/peers/`), as is
//! the comparison of TLS (`benches/tls/`): the criterion benches build without them.
//!
//! Each file of [`workloads`] holds one workload three times, once for each
//! runtime, in the words of that runtime; [`per_core`] has one for the runtimes that
//! have a thread for each core. `WINDLASS_BENCH_WORKERS` says how many workers each gets; all get the same
//! number, by default one per CPU.

pub mod arguments;
#[cfg(feature = "programs")]
pub mod clients;
#[cfg(feature = "programs")]
pub mod commands;
#[cfg(feature = "programs")]
pub mod experiments;
pub mod go;
#[cfg(feature = "programs")]
pub mod http;
#[cfg(feature = "programs")]
pub mod latencies;
pub mod machine_time;
#[cfg(feature = "programs")]
pub mod micro;
pub mod numa;
pub mod pairs;
#[cfg(feature = "programs")]
pub mod per_core;
#[cfg(feature = "programs")]
pub mod process;
#[cfg(feature = "programs")]
pub mod random_reads;
pub mod report;
pub mod results;
pub mod runtimes;
pub mod scale;
#[cfg(feature = "programs")]
pub mod servers;
#[cfg(feature = "programs")]
pub mod stalls;
pub mod suite;
pub mod summary;
pub mod workloads;

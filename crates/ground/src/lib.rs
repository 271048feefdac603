//! An internal part of the runtime windlass, without a promise about its API: what the runtime stands on.
//!
//! That is the door to atomics, locks and threads ([`loom`](mod@loom)), and values that need no more than that and the
//! kernel: a lock, counters, random numbers, memory on pages of a node, stacks, a queue of times, a pool of threads, the CPUs that may be used, and instructions of the CPU.
//!
//! Nothing here knows goroutines, or schedules.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![cfg_attr(loom, allow(dead_code, unused_imports))]
#![allow(
    clippy::len_without_is_empty,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::new_without_default,
    reason = "windlass alone is the caller"
)]

pub mod std_traits;
pub mod numbered;
pub mod loom;
pub mod raw_lock;
pub mod lock;
pub mod cpu;
pub mod padded;
pub mod local_values;
pub mod counter;
pub mod histogram;
pub mod rate_limit;
pub mod random;
pub mod chaos;
pub mod placed;
pub mod stack;
pub mod timer_queue;
pub mod offload_pool;
pub mod usable_cpus;
pub mod run_on_node;

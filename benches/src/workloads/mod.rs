//! The workloads, each three times: for windlass, for tokio and for may; some once more, for
//! runtimes of one thread for each core. Those that only the bench `scale` has are not for may.
//!
//! A function runs its workload once, on a runtime that is already warm, and
//! gives back how long that took, setting up left out. One that fails panics.
#![expect(clippy::missing_panics_doc, reason = "they all may, as said above")]

pub mod chan_ping_pong;
pub mod deadlines;
pub mod echo;
pub mod fork_join;
pub mod mpmc;
pub mod mutex;
pub mod ping_pong;
pub mod reads;
pub mod scan;
pub mod skynet;
pub mod sleepers;
pub mod spawn_join;
pub mod stream;
pub mod yields;

#[cfg(test)]
mod tests;

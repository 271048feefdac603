//! Simulated runs: `windlass::sim`. Without the feature there is nothing to test; a command that
//! runs every test program must work all the same, so the program exists.
#![cfg(feature = "sim")]

#[path = "../util/mod.rs"]
mod util;

#[path = "../util/random.rs"]
mod random;

#[path = "../util/temp.rs"]
mod temp;

mod clock;
mod determinism;
mod disk;
mod disk_edges;
mod disk_faults;
mod disk_model;
mod failures;
mod hosts;
mod kernels;
mod kernels_orders;
mod kernels_waits;
mod leaks;
mod loops;
mod misuse;
mod same;
mod schedule;
mod trace;

//! The network of simulated runs, in memory: hosts, links, TCP, UDP, Unix sockets and pipes.
//!
//! One thread uses it, between two switch points, so nothing here is locked. It keeps the semantics
//! of the kernel: `tests/sim/same.rs` runs the same assertions against both. Its random numbers, and the
//! clock, come from the bubble ([`dice`]). Whoever has to wait is known by a number
//! ([`socket::Ticket`]); windlass waits (`poll::sim_socket`).

pub mod dice;
pub mod address;
pub mod descriptors;
pub mod hosts;
pub mod links;
pub mod socket;
pub mod faults;
pub mod incidents;
pub mod network;
mod ports;
mod tcp;
mod udp;
mod unix;
mod calls;
mod random_faults;
mod leaks;

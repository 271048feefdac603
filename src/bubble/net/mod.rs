//! The network of simulated runs, in memory: hosts, links, TCP, UDP, Unix sockets and pipes.
//!
//! One thread uses it, between two switch points, so nothing here is locked. It keeps the semantics
//! of the kernel: `tests/sim/same.rs` runs the same assertions against both. What it draws, and the
//! clock, come from the bubble ([`dice`]). Whoever has to wait is known by a number
//! ([`socket::Ticket`]); `poll::simulated` waits.

pub(crate) mod dice;
pub(crate) mod address;
pub(crate) mod hosts;
pub(crate) mod links;
pub(crate) mod socket;
pub(crate) mod faults;
pub(crate) mod notes;
pub(crate) mod network;
mod ports;
mod tcp;
mod udp;
mod unix;
mod calls;
mod drawn;
mod left;

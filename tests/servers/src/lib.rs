//! Clients of real servers that know nothing of windlass, on goroutines with windlass-hook.
//!
//! The tests of this package start the servers and check what the clients get. The program `servers`
//! measures the clients.
#![allow(clippy::disallowed_methods, reason = "what is tested blocks")]

mod clients;
mod servers;
mod stack;

pub use clients::{CLIENTS, Client, Home, Pool, Result, Seat, World, http, sql, tls};
pub use servers::{Kind, Server, raise_descriptor_limit};
pub use stack::high_water_kib;

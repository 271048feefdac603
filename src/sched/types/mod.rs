//! P, M, node and scheduler as data, and the calling thread's M.
//!
//! First come the parts, which do not know whose they are. Then come P, M, the scheduler and the types of their calls
//! to one another, which have no order: they name each other. Last come functions of all of them.

pub(crate) mod events;
pub(crate) mod extra_work;
pub(crate) mod samples;
pub(crate) mod steal_levels;
pub(crate) mod counters;
pub(crate) mod caches;
pub(crate) mod accounts;
#[cfg(feature = "sim")]
pub(crate) mod progress;

#[cfg_attr(not(feature = "sim"), path = "no_simulation.rs")]
pub(crate) mod simulation;
pub(crate) mod stop_requests;
pub(crate) mod debug_hooks;
pub(crate) mod p;
pub(crate) mod m;
pub(crate) mod state;

pub(crate) mod current;
pub(crate) mod trace;
pub(crate) mod sampling;
pub(crate) mod accounting;

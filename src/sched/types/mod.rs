//! P, M, node and scheduler as data, and the calling thread's M. They name one another, so this
//! room, alone, has no order inside.

pub(crate) mod pace;
pub(crate) mod p;
pub(crate) mod m;
pub(crate) mod place;
#[cfg(feature = "sim")]
pub(crate) mod progress;
#[cfg(feature = "sim")]
pub(crate) mod recording;
#[cfg_attr(not(feature = "sim"), path = "no_simulation.rs")]
pub(crate) mod simulation;
pub(crate) mod stop_requests;
pub(crate) mod offload_pool;
pub(crate) mod debug_hooks;
pub(crate) mod state;
pub(crate) mod current;
pub(crate) mod trace;
pub(crate) mod sampling;
pub(crate) mod accounting;

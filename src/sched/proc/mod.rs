//! The loop of an M: finding a goroutine, by stealing if need be, and running it.

pub(crate) mod due_timers;
pub(crate) mod steal;
pub(crate) mod remote;
pub(crate) mod node_batch;
pub(crate) mod check_ring;
pub(crate) mod tick;
pub(crate) mod sleep;
#[cfg_attr(not(feature = "sim"), path = "no_simulate.rs")]
pub(crate) mod simulate;
pub(crate) mod leave;
pub(crate) mod find;
pub(crate) mod spare;
pub(crate) mod locked;
pub(crate) mod run;
pub(crate) mod threads;

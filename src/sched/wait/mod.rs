//! How goroutines begin, wait and are woken, and how their threads enter the scheduler.

#[cfg_attr(not(feature = "sim"), path = "no_turn.rs")]
pub(crate) mod turn;
pub(crate) mod handoff;
pub(crate) mod points;
pub(crate) mod home;
pub(crate) mod wake;
pub(crate) mod park;
pub(crate) mod sleep;
pub(crate) mod current_context;
pub(crate) mod completion;
pub(crate) mod cancel;
pub(crate) mod spawn;
#[cfg(feature = "sim")]
pub(crate) mod hosts;
pub(crate) mod checkpoint;
pub(crate) mod fork;
pub(crate) mod offload;
pub(crate) mod children;

//! Looking into a running runtime: lines about its scheduler, and a list of its
//! goroutines with their stacks. docs/OBSERVABILITY.md is the guide.

pub(crate) mod env;
pub(crate) mod stack;
pub(crate) mod goroutines;
pub(crate) mod schedtrace;
pub(crate) mod dump;
pub(crate) mod registry;
pub(crate) mod sigquit;
pub(crate) mod live;
pub(crate) mod deadlock;
pub(crate) mod shutdown;
pub(crate) mod panics;
pub(crate) mod stall;
pub(crate) mod trace;

pub use dump::Dump;
pub use goroutines::{Goroutine, State};
pub use stack::Frame;
pub use trace::Trace;

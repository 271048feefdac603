//! Ms and Ps: scheduling, blocking, the life of a runtime.

#[path = "../util/load.rs"]
mod load;
#[path = "../util/temp.rs"]
mod temp;
#[path = "../util/mod.rs"]
mod util;

mod blocking;
mod callers;
mod cpus;
mod ends_of_waits;
mod fork;
mod migration;
mod mixture;
mod overflow;
mod processors;
mod runtime;
mod shutdown;
mod stays;

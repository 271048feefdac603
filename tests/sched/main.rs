//! Goroutines, Ms and Ps: spawning, scheduling, blocking, the life of a runtime.

#[path = "../util/load.rs"]
mod load;
#[path = "../util/mod.rs"]
mod util;

mod blocking;
mod checkpoint;
mod cpus;
mod join;
mod lock_thread;
mod migration;
mod mixture;
mod node_local;
mod numa;
mod overflow;
mod processors;
mod runtime;
mod shutdown;
mod task;
mod task_local;
mod topology;

//! Goroutines, Ms and Ps: spawning, scheduling, blocking, the life of a runtime.

#[path = "../util/load.rs"]
mod load;
#[cfg(feature = "sim")]
#[path = "../util/inside.rs"]
mod inside;
#[path = "../util/temp.rs"]
mod temp;
#[path = "../util/mod.rs"]
mod util;

mod blocking;
mod callers;
mod checkpoint;
mod cpus;
mod ends_of_waits;
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
mod stays;
mod task;
mod task_local;
mod topology;

/// Each file's tests, once more in simulations.
#[cfg(feature = "sim")]
mod simulated {
    #[test]
    fn task() {
        crate::inside::run(&crate::task::INSIDE, include_str!("task.rs"));
    }
    #[test]
    fn task_local() {
        crate::inside::run(&crate::task_local::INSIDE, include_str!("task_local.rs"));
    }
    #[test]
    fn join() {
        crate::inside::run(&crate::join::INSIDE, include_str!("join.rs"));
    }
}

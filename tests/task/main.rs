//! Goroutines: spawning, joining, groups, what they carry along, and futures on them.

#[cfg(feature = "sim")]
#[path = "../util/inside.rs"]
mod inside;
#[path = "../util/mod.rs"]
mod util;

mod checkpoint;
mod future;
mod groups;
mod join;
mod lock_thread;
mod supervise;
mod task;
mod task_local;
mod when;

#[cfg(feature = "sim")]
inside::files! {
    future
    groups
    join
    task
    task_local
    when
}

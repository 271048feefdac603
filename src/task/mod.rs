//! Goroutines, with the names of `std::thread`: spawn, join, scope, park, sleep.
//!
//! # Off the runtime
//!
//! Every function here that waits also works on a plain thread, which it blocks. Only spawning
//! needs a goroutine of a runtime as the caller; [`Handle::spawn`](crate::Handle::spawn) spawns
//! from any thread.
//!
//! # Examples
//!
//! ```
//! use windlass::task;
//!
//! // SAFETY: the program keeps no thread-local borrow across a call that parks.
//! let rt = unsafe { windlass::Builder::new().processors(2).build()? };
//! rt.run(|| {
//!     let adder = task::Builder::new().name("adder").spawn(|| 1 + 1)?;
//!     assert_eq!(adder.task().name(), Some("adder"));
//!     assert_eq!(adder.join().unwrap(), 2);
//!     Ok::<(), std::io::Error>(())
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod local;
mod join;
mod goroutine;
mod join_set;
mod group;
mod supervise;
mod when;

pub use goroutine::{
    Builder, CancelOnDrop, Cancelled, JoinHandle, LockedThread, Result, Scope, ScopedJoinHandle,
    Task, blocking, checkpoint, current, current_node, lock_thread, offload, park, park_timeout,
    scope, scope_in, sleep, spawn, spawn_in, spawn_on_each_node, yield_now,
};
pub use group::Group;
pub use join::join;
pub use join_set::{JoinSet, TimedOut};
pub use local::{AccessError, LocalKey, task_local};
pub use supervise::{GaveUp, Supervisor};
pub use when::{When, spawn_when};

pub(crate) use goroutine::{in_own_context, spawn_at};

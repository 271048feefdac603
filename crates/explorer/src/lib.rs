//! The explorer: runs the real runtime, with its real stacks and threads, in an order of steps
//! that it chooses, so that a race is found by trying schedules and found again by its seed.
//!
//! An internal part of the runtime windlass, without a promise about its API. windlass is built with it by
//! `RUSTFLAGS="--cfg explore"` only; `make explore` does that. One schedule goes like this:
//!
//! 1. `run` forks a process for it, so that every schedule begins with the same memory, and a
//!    crash ends nothing but itself.
//! 2. The scenario, an ordinary program of the public interface, runs there. Each thread of the
//!    runtime is a real thread, but only one runs at a time: the one that holds the baton
//!    (`control`).
//! 3. Every atomic operation, lock, futex call, start and end of a thread, memory barrier and
//!    visit of a ring is a *point* (`loom` of windlass sends them here): the thread gives the
//!    baton to the controller, and the strategy says who gets it next (`strategy`). A thread that
//!    waits is off the list until it is woken or its time has come.
//! 4. Time is a number. It grows a little with each point; when every thread waits, it jumps to
//!    the first deadline. The strategy may also let it jump while a thread is preempted.
//! 5. io_uring is simulated (`poller`, `kernel`): the operations are done on real sockets without
//!    waiting, one at a time and in an order drawn from the seed, which also draws errors, short
//!    transfers and late completions (`faults`).
//! 6. The runtime tells `oracle` what it is about to do, and the oracle ends the schedule if
//!    that breaks an invariant. A deadlock, a schedule without an end, a panic and a crash are
//!    findings, too.
//! 7. `log` has the last points, with their lines in the source, and a hash of all of them: a
//!    seed gives the same hash each time, and a finding is printed with its seed.
//!
//! `twin` is another use of it: not to find races, but to know how long things take on a machine of many
//! CPUs. There each thread has a clock, and each access to a cache line a price.
//!
//! Invisible to it: orders of memory weaker than sequential consistency (loom's part), and
//! races between two points, in code that synchronizes by nothing.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "threads are blocked here, and the program that explores talks to a person"
)]
#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::new_without_default,
    reason = "the names mean what they mean elsewhere, and windlass alone is the caller"
)]

mod log;
mod strategy;
mod faults;
mod kernel;
mod ledger;
pub mod machine;
pub mod lines;
mod clock;
mod fiber;
mod control;
mod atomic;
mod futex;
mod lock;
mod thread;
pub mod oracle;
mod poller;
mod run;
pub mod twin;

pub use atomic::sync_atomic;
pub use control::{now_ns, point_of_call, point_of_membarrier, sleep_ns, spin_loop};
pub use futex::{futex_wait, futex_wake_one};
pub use lock::{Condvar, Mutex, MutexGuard, OnceLock, RwLock, sync_mpsc};
pub use poller::{
    Builder as RingBuilder, IoUring, Submitter, epoll_wait, receives, ring_has_news,
    ring_has_task_work, send_msg_ring, sends, sync_cancel,
};
pub use thread::facade;

pub use control::{advance, charge, draw, instant_now, local, set_local, steps};
pub use run::{Outcome, Scenario, Settings, fix_addresses, main, spawn_thread};

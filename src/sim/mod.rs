//! Simulated runs, for tests: one seed decides the schedule and the clock.
//!
//! A test of concurrent code usually tries one schedule, the one that the machine happens to
//! choose, and waits in real time. Here it runs under many schedules that are drawn from seeds, and
//! a sleep takes no time. A seed gives its run again. The code under test is ordinary
//! code: it spawns goroutines, and uses `channel`, `sync`, `time`, `context` and `net`.
//!
//! ```
//! use windlass::time::{Duration, Instant};
//!
//! // SAFETY: nothing of a thread is kept across a call into windlass.
//! const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
//!
//! // #[test]
//! fn gives_up_after_a_minute() {
//!     windlass::sim::check(PROMISE, || {
//!         let start = Instant::now();
//!         let (_replies, no_reply) = windlass::channel::bounded::<u32>(0);
//!         assert!(no_reply.recv_timeout(Duration::from_secs(60)).is_err());
//!         assert_eq!(start.elapsed(), Duration::from_secs(60)); // virtual: takes microseconds
//!     });
//! }
//! # gives_up_after_a_minute();
//! ```
//!
//! # What is simulated
//!
//! - **The schedule.** One goroutine runs at a time, on the thread that called [`check`]. Nearly
//!   every call into windlass is a *switch point*: a lock, free or not, an operation of a channel,
//!   a spawn, `task::checkpoint`. There the [`Strategy`] chooses which goroutine goes on.
//!   Between two switch points no other goroutine runs. So an atomic of `std` is no switch point.
//!   Nor are destructors and `Debug`, except where docs/SAFETY.md says so.
//! - **The clock.** [`time::Instant`](crate::time::Instant) and
//!   [`time::SystemTime`](crate::time::SystemTime) stand still while a goroutine can run. When none
//!   can, the clock moves to the next timer. Each run begins on 1 January 2000, UTC.
//! - **Other choices**: the branch that `select!` takes, which waiter of a `Condvar` is notified,
//!   the order of timers that come due at the same instant, and whether a fork of `join` becomes a
//!   goroutine.
//! - **Disks.** [`fs`](crate::fs) works on a disk in memory ([`Disk`]). When the power goes, what was
//!   not synced may be lost ([`Host::crash`]).
//! - **The network.** [`net`](crate::net) and [`io::pipe`](crate::io::pipe) work in memory. [`host`]
//!   adds machines with addresses and names, which crash and restart. [`Link`] and [`Network`] set
//!   the properties of the links between them, and [`Faults`] draws faults from the seed.
//!
//! Child processes, signals, the standard streams of [`io`](crate::io), `blocking`, `offload` and
//! threads are not simulated: the calls panic, with a message that says what to do. A thread that a
//! goroutine starts makes the run fail. `println!` works as ever.
//!
//! # Failures
//!
//! A run fails if a goroutine panics, if all goroutines wait and no timer will wake one, or if it
//! takes too many steps. [`Failure`] has the seed, the step, a hash of the schedule, all panics,
//! and the goroutines with their stacks (feature `backtrace`). It also has the shortest schedule
//! that was found to fail in the same way, and what happens in it, switch by switch.
//! [`Sim::no_goroutines_left`], [`Sim::no_descriptors_left`] and [`Sim::no_messages_left`] ask for more.
//!
//! `WINDLASS_SIM_SEED=seed` repeats one run, in each simulation of the process.
//! `WINDLASS_SIM_SEEDS=n` sets the number of runs. `WINDLASS_SIM_SCHEDULE=choices` runs one
//! [`Schedule`], such as the shortest that was found to fail; the run fails if that does not fit the
//! program. All have precedence over what the program says: name one test when you set them.
//!
//! `WINDLASS_SIM_TRACE=file` writes a run to a file that ui.perfetto.dev opens: the one that fails, or
//! else the last one ([`Sim::trace`]).
//!
//! # Determinism
//!
//! A run is the same again only if the code draws nothing from elsewhere: the order of a
//! `HashMap`, `std`'s clocks, an address, a thread. One seed in 16 is therefore run twice. If the
//! runs differ, that is a failure, too.
//!
//! # One thread
//!
//! All goroutines of a run share one thread. A `std::sync::Mutex` that a goroutine holds while it
//! waits blocks the thread for ever when another goroutine locks it; so does a loop that reads an
//! atomic of `std`. After five seconds a line on stderr names the goroutine. A goroutine that waits
//! in a destructor, while it unwinds, cannot let others run: the process then ends with a message.
//!
//! The guide docs/guide/simulation.md begins with a first test.

mod report;
mod schedule;
mod failure;
mod settle;
mod events;
mod trace;
mod trace_file;
mod watch;
mod strategy;
mod link;
mod faults;
mod host;
mod network;
mod draw;
mod build;

pub use crate::fs::memory::settings::Disk;
pub use build::{Sim, check};
pub use draw::draw;
pub use failure::{Failure, FailureKind, Panic};
pub use faults::Faults;
pub use host::{Host, host, this_host};
pub use link::Link;
pub use network::Network;
pub use report::{Report, Run};
pub use schedule::Schedule;
pub use settle::{is_simulated, settle};
pub use strategy::Strategy;

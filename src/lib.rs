//! Goroutines for Linux: code in plain blocking style, with the names of `std`, at the speed of an
//! event loop.
//!
//! windlass schedules as Go does. Goroutines (G) run on threads (M) that hold processors (P).
//! Each P is pinned to a core and belongs to a NUMA node. An idle P steals work from the nearest P
//! that has a surplus, and a thread without work sleeps on a futex. Each P has an io_uring ring: a
//! goroutine that reads from a socket parks, and the completion makes it runnable again. Where
//! io_uring is denied, as in most containers, windlass uses epoll instead (docs/CONTAINERS.md).
//!
//! A goroutine has a stack of its own. There is no `async` and no `.await`; buffers are plain
//! `&mut [u8]`, and crates that are generic over `Read + Write` work unchanged.
//!
//! # A first program
//!
//! An echo server and its client:
//!
//! ```
//! use std::io::{Read, Write};
//! use windlass::net::{TcpListener, TcpStream};
//!
//! # fn main() -> std::io::Result<()> {
//! // SAFETY: this program keeps no thread-local borrow across a call that parks.
//! let rt = unsafe { windlass::Builder::new().build()? };
//! rt.run(|| {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let addr = listener.local_addr()?;
//!     windlass::spawn(move || {
//!         let (mut peer, _) = listener.accept()?;
//!         std::io::copy(&mut peer.try_clone()?, &mut peer)
//!     });
//!     let mut stream = TcpStream::connect(addr)?;
//!     stream.write_all(b"hello")?;
//!     let mut answer = [0; 5];
//!     stream.read_exact(&mut answer)?;
//!     assert_eq!(&answer, b"hello");
//!     Ok(())
//! })
//! # }
//! ```
//!
//! [`Runtime::run`] makes the closure the main goroutine. When it returns, the remaining goroutines
//! are cancelled: their operations end, their stacks unwind, and all threads are joined.
//!
//! The attribute `#[windlass::main(..)]` writes these two calls around `main`, and
//! `#[windlass::test(..)]` around a test.
//!
//! [`Builder::build`] is `unsafe` because of one rule that the compiler cannot check: a goroutine
//! may continue on another thread after a call that parks. Its documentation has the contract, and
//! docs/SAFETY.md has an example for each hazard.
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`task`] | [`spawn`], [`scope`], join handles, task-locals, [`blocking`] and [`offload`] |
//! | [`thread`] | goroutines with the names of `std::thread` alone |
//! | [`join`], [`par`] | fork-join: two closures, loops, sums and sorts on all CPUs |
//! | [`channel`] | channels and `select!`, with the interface of crossbeam-channel; `oneshot`, `broadcast`, `watch` |
//! | [`sync`] | `Mutex`, `RwLock`, `Condvar`, `Once`, `Barrier`, `Semaphore`, `WaitGroup`, `Notify`, `SingleFlight`, `Pool` |
//! | [`time`] | sleeps, intervals, timeouts |
//! | [`net`] | TCP, UDP and Unix sockets |
//! | [`fs`] | files and directories |
//! | [`process`] | child processes |
//! | [`signal`] | signals as events |
//! | [`io`] | `std::io`, pipes, standard streams, readiness of any descriptor |
//! | [`os`] | `std::os`: extensions of Unix and Linux |
//! | [`context`](mod@context) | cancellation, deadlines and values: Go's `context` |
//! | [`future`] | running futures on goroutines |
//! | [`numa`] | one value for each NUMA node |
//! | [`topology`] | the machine: packages, nodes, caches, cores, CPUs |
//! | [`metrics`] | the counters of a runtime |
//! | [`debug`] | dumps of goroutines, execution traces |
//! | `sim` | simulated runs for tests, with the feature `sim` |
//!
//! Everything that waits parks a goroutine. On a plain thread the same call blocks the thread, so
//! goroutines and threads may share channels, locks and sockets. Each function says under
//! "Blocking" what it does.
//!
//! # Cargo features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `hwloc` | yes | The machine is read with libhwloc, to which the program is then linked. Without it, from sysfs alone: docs/CONTAINERS.md. |
//! | `macros` | yes | The attributes [`main`](macro@main) and [`test`](macro@test). |
//! | `unpinned-children` | yes | Threads and processes that goroutines start may run on all CPUs of the process, although the goroutine's thread is pinned to one. docs/SAFETY.md says where this has no effect. |
//! | `backtrace` | no | Stacks in dumps and stall reports. Adds the crates backtrace and framehop. |
//! | `chaos` | no | For tests: `WINDLASS_CHAOS=seed` perturbs decisions and timing of the scheduler. |
//! | `race` | no | For tests under ThreadSanitizer: reports races between goroutines. Has an effect in builds for the target x86_64-unknown-linux-gnutsan only. docs/guide/data-races.md. |
//! | `sim` | no | For tests of programs: the module `sim`, deterministic simulations with a virtual clock. docs/guide/simulation.md. |
//!
//! The crates windlass-hyper and windlass-tracing connect goroutines to hyper and to the spans of tracing.
//!
//! # Environment variables
//!
//! | variable | effect |
//! |---|---|
//! | `WINDLASS_PROCS=n` | The number of Ps, unless [`Builder::processors`] sets it. |
//! | `WINDLASS_IO=uring` or `epoll` | The poller; `uring` makes [`Builder::build`] fail where io_uring cannot be used. |
//! | `WINDLASS_SIM_SEED=n`, `WINDLASS_SIM_SEEDS=n`, `WINDLASS_SIM_SCHEDULE=...` | Which runs a simulation makes (feature `sim`). |
//! | `WINDLASS_SIM_TRACE=file` | A simulated run is written to this file, for ui.perfetto.dev (feature `sim`). |
//! | `WINDLASS_DEBUG=...` | Scheduler traces and live metrics: docs/OBSERVABILITY.md. |
//!
//! # Further reading
//!
//! docs/ARCHITECTURE.md describes the parts. docs/MECHANISMS.md compares each mechanism with that
//! of Go's scheduler. docs/decisions/ has the reasons. docs/PORTING.md is a guide for code that
//! uses threads or `async` today.

#![debugger_visualizer(gdb_script_file = "debug/gdb.py")]
#![cfg_attr(loom, allow(dead_code, unused_imports))]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../docs/PORTING.md")]
struct Porting;

#[cfg(doctest)]
#[doc = include_str!("../docs/SAFETY.md")]
struct Safety;

#[cfg(doctest)]
#[doc = include_str!("../docs/guide/first-server.md")]
struct GuideFirstServer;

#[cfg(doctest)]
#[doc = include_str!("../docs/guide/from-go.md")]
struct GuideFromGo;

#[cfg(doctest)]
#[doc = include_str!("../docs/guide/from-threads.md")]
struct GuideFromThreads;

#[cfg(doctest)]
#[doc = include_str!("../docs/guide/from-tokio.md")]
struct GuideFromTokio;

#[cfg(doctest)]
#[doc = include_str!("../docs/guide/toolbox.md")]
struct GuideToolbox;

#[cfg(doctest)]
#[doc = include_str!("../docs/guide/data-races.md")]
struct GuideDataRaces;

#[cfg(doctest)]
#[doc = include_str!("../docs/guide/tuning.md")]
struct GuideTuning;

#[cfg(doctest)]
#[doc = include_str!("../crates/macros/README.md")]
struct Macros;

#[cfg(doctest)]
#[doc = include_str!("../crates/macros/src/main.md")]
struct AttributeMain;

#[cfg(all(doctest, feature = "sim"))]
#[doc = include_str!("../crates/macros/src/test.md")]
struct AttributeTest;

#[cfg(all(doctest, feature = "sim"))]
#[doc = include_str!("../docs/guide/simulation.md")]
struct GuideSimulation;

#[cfg(explore)]
#[doc(hidden)]
pub use windlass_explorer as explore;
mod target;
#[cfg_attr(not(feature = "sim"), path = "no_bubble.rs")]
mod bubble;
mod util;
mod lock;
mod config;
mod g;
mod timer;
mod netpoll;
mod sched;
mod instant;
mod poll;
pub mod sync;
pub mod channel;
pub mod context;
pub mod task;
pub mod thread;
pub mod par;
pub mod numa;
pub mod time;
pub mod net;
pub mod io;
pub mod fs;
pub mod process;
pub mod signal;
pub mod future;
pub mod os;
pub mod metrics;
pub mod debug;
mod promise;
mod runtime;
#[cfg(feature = "sim")]
pub mod sim;
#[doc(hidden)]
pub mod entry;

pub use config::NumaPolicy;
#[doc(hidden)]
pub use poll::foreign;
pub use promise::Promise;
pub use runtime::{Builder, Handle, Runtime};
pub use task::{blocking, join, offload, scope, sleep, spawn, yield_now};
use windlass_ground::{local_values, loom};
#[cfg(feature = "macros")]
pub use windlass_macros::{main, test};
use windlass_sys::{self as sys, race};
#[doc(inline)]
pub use windlass_topology as topology;

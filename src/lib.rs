//! windlass runs goroutines: code in plain blocking style, with the names of `std`,
//! at the speed of an event loop. Linux only.
//!
//! It schedules as Go does: goroutines (G) run on threads (M) that hold processors
//! (P). Ps are pinned to cores grouped by NUMA node, an idle P steals from the
//! nearest one that has too much, Ms sleep on futexes, and each P has an io_uring
//! ring whose completions make waiting goroutines runnable. Where io_uring is denied,
//! as in most containers, epoll stands in for it (docs/CONTAINERS.md).
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
//! [`Builder::build`] is the one `unsafe` function; its contract is in its
//! documentation and in docs/SAFETY.md. docs/ARCHITECTURE.md tells how it works.

#![cfg_attr(loom, allow(dead_code, unused_imports))]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[cfg(not(target_os = "linux"))]
compile_error!("windlass needs Linux: it is built on io_uring and futexes");

#[cfg(not(panic = "unwind"))]
compile_error!(
    "windlass needs `panic = \"unwind\"`: goroutines that still wait at the end of a run are \
     unwound, and with `panic = \"abort\"` the process would die there without a word; remove \
     `panic` from the profile in Cargo.toml, and `-C panic` from RUSTFLAGS"
);

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../docs/PORTING.md")]
struct Porting;

#[cfg(explore)]
#[doc(hidden)]
pub mod explore;
mod loom;
mod sys;
mod util;
mod lock;
mod config;
mod g;
mod timer;
mod netpoll;
mod sched;
pub mod io;
pub mod task;
pub mod numa;
pub mod sync;
pub mod channel;
pub mod time;
pub mod net;
pub mod fs;
pub mod process;
pub mod signal;
pub mod context;
pub mod future;
#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(feature = "tracing")]
pub mod tracing;
pub mod metrics;
pub mod debug;
mod runtime;

pub use config::NumaPolicy;
pub use runtime::{Builder, Handle, Runtime};
pub use task::{blocking, offload, scope, sleep, spawn, yield_now};
pub use windlass_topology as topology;

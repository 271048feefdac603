//! Observing a running runtime: dumps of its goroutines with their stacks, and execution traces.
//! docs/OBSERVABILITY.md is the guide.
//!
//! # Examples
//!
//! ```
//! use windlass::debug::State;
//!
//! # // SAFETY: nothing here keeps a thread-local across a call that parks.
//! # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
//! rt.run(|| {
//!     let dump = windlass::blocking(|| rt.dump());
//!     let n_waiting = dump.goroutines.iter().filter(|g| g.state == State::Waiting).count();
//!     println!("{n_waiting} of {} goroutines wait", dump.goroutines.len());
//!     println!("{dump}"); // as Go prints it
//! });
//! # Ok::<(), std::io::Error>(())
//! ```

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
pub(crate) mod region;
pub(crate) mod trace;
pub(crate) mod profile;
pub(crate) mod waits;
pub(crate) mod leaks;
pub(crate) mod observers;

pub use dump::Dump;
pub use goroutines::{Goroutine, State};
pub use leaks::{Leak, Leaks, Verdict};
pub use profile::{Profile, Sample};
pub use region::{Region, begin_region, end_region, region};
pub use stack::Frame;
pub use trace::Trace;
pub use waits::{WaitProfile, WaitSample};

//! An internal part of the runtime windlass, without a promise about its API: what lies below the runtime.
//!
//! That is the kernel: every libc call that windlass makes, with its contract. A function returns `io::Result`
//! where the caller can act on the error, and a plain value where failure is impossible or harmless (the comment
//! then says so). [`race`] tells ThreadSanitizer which goroutine a thread runs.
//!
//! Nothing here knows goroutines, or schedules. Time is virtual in a simulated run (feature `sim`), and under
//! `cfg(explore)` the explorer's kernel takes the place of some calls.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    reason = "errors that are not named are those of the system call, and windlass alone is the caller"
)]

#[cfg_attr(
    not(all(feature = "race", target_arch = "x86_64")),
    path = "no_race.rs"
)]
pub mod race;
#[cfg_attr(not(feature = "sim"), path = "no_virtual_time.rs")]
mod virtual_time;
pub mod errno;
pub mod raw;
pub mod clock;
pub mod affinity;
pub mod epoll;
pub mod file;
pub mod futex;
pub mod mmap;
pub mod pages;
pub mod numa;
pub mod pressure;
pub mod process;
pub mod sched;
pub mod tasks;
pub mod signal;
pub mod socket;
pub mod rights;
pub mod packets;
pub mod uring;
pub mod wrap;
pub mod probe;
pub mod request;
pub mod call;
pub mod mounts;

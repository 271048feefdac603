//! Simulated disks, for `windlass::fs` inside a simulation (feature `sim`).
//!
//! Each host of a run has a disk (`sim_disk`), with files in memory: plain values of the crate windlass-world (`disk`).
//! `calls` are the kernel's calls on paths, `handle` those on open files: switch points, and waits between the steps of
//! those values. Errors, and the order in which the reasons for them are looked at, are those of Linux.
//!
//! The user is root, whose permissions are not checked. The current directory is `/`.
//!
//! docs/decisions/simulation.md says what a crash may do, and why.

pub(crate) mod settings;
pub(crate) mod sim_disk;
pub(crate) mod handle;
mod calls;
mod dir;

pub(crate) use dir::{EntriesInMemory, EntryInMemory};
pub(crate) use handle::Handle;
pub(crate) use sim_disk::{here, placeholder};
pub(crate) use windlass_world::disk::metadata::InMemory;

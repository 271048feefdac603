//! Simulated disks, for `windlass::fs` inside a simulation (feature `sim`).
//!
//! Each host of a run has a disk (`drive`), with files in memory (`tree`, `inode`) that have a part
//! on the disk and a part that is only in the page cache (`content`) or waits for the journal
//! (`names`). When the power goes, `fate` decides what of the second had become part of the first.
//! `calls` are the kernel's calls on paths, `handle` those on open files. Errors, and the order in
//! which the reasons for them are looked at, are those of Linux.
//!
//! The user is root, whose permissions are not checked. The current directory is `/`.
//!
//! docs/decisions/simulation.md says what a crash may do, and why.

pub(crate) mod settings;
mod errno;
mod fate;
mod content;
mod inode;
mod names;
mod tree;
pub(crate) mod drive;
pub(crate) mod handle;
mod calls;

pub(crate) use drive::{Drive, here, placeholder};
pub(crate) use handle::Handle;
pub(crate) use inode::{FileKind, Stat};

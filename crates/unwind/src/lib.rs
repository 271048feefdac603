//! An internal part of the runtime windlass, without a promise about its API: stacks, copied and walked.
//!
//! framehop walks a stack by the program's unwind tables, which are mapped anyway. The backtrace crate reads
//! the names from the debug information. Both are most of what a small program builds, so windlass depends on
//! this crate only with its feature `backtrace`.

mod modules;
mod sample;
mod symbols;
mod walk;

pub use sample::{Sample, Seen, Unanswered, WhereFn, install, take};
pub use walk::{Function, Registers, Walker};

//! The one door to atomics for the lock-free pieces that loom checks.
//!
//! Under `cfg(loom)` these are loom's model-checked twins, so the run queue, a
//! goroutine's status and the idle protocol are tested over every interleaving;
//! otherwise they are `std`'s, at no cost. Code that loom never models uses
//! `std` directly.

#[cfg(loom)]
pub(crate) use ::loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

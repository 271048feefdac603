//! An internal part of the runtime windlass, without a promise about its API: the world of one simulated run, as
//! plain values.
//!
//! A run has a *bubble* ([`inside`]): a clock that stands still while goroutines run, the strategy and the random
//! choices, all drawn from one seed, and the log ([`log`]) whose hash says whether two runs were the same. Around
//! it are the simulated network ([`net`]) and the files of the simulated disks ([`disk`]). Goroutines are known by
//! their numbers only. Nothing here schedules or waits: windlass does, with its feature `sim`.
//!
//! The explorer (the crate windlass-explorer) draws from the same numbers ([`draw`]) and has the same priorities
//! ([`priorities`]).

#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    reason = "the errors are those of Linux's calls, and windlass alone is the caller"
)]

pub mod draw;
pub mod priorities;
pub mod runnable;
pub mod strategy;
pub mod shorten;
pub mod schedule;
pub mod log;
pub mod net;
pub mod messages;
pub mod inside;
pub mod tally;
pub mod disk;

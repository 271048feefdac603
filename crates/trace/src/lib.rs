//! An internal part of the runtime windlass, without a promise about its API: execution traces, as plain values.
//!
//! The runtime records events ([`events`]). This crate draws them as files for <https://ui.perfetto.dev>: those of a
//! runtime ([`runtime`]), and with the feature `sim` those of a simulated run (`simulated`), of which `recording` keeps
//! the newest. Goroutines and reasons of waits are known by their numbers only; [`names`] has the words for them.

pub mod events;
pub mod names;
mod format;
mod regions;
pub mod runtime;
#[cfg(feature = "sim")]
pub mod recording;
#[cfg(feature = "sim")]
pub mod simulated;

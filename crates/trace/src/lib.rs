//! An internal part of the runtime windlass, without a promise about its API: execution traces, as plain values.
//!
//! The runtime records events ([`events`]). This crate draws them as files for <https://ui.perfetto.dev>: those of a
//! runtime ([`runtime`]), and with the feature `sim` those of a simulated run (`simulated`), of which `recording` keeps
//! the newest. Goroutines and reasons of waits are known by their numbers only; [`Names`] has the words for them.

use std::collections::HashMap;

pub mod events;
mod format;
mod regions;
pub mod runtime;
#[cfg(feature = "sim")]
pub mod recording;
#[cfg(feature = "sim")]
pub mod simulated;

/// The words for numbers in events.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// Why a goroutine waits: the name of [`Event::reason`](events::Event::reason).
    pub reason: fn(u8) -> &'static str,
    /// The name of a region.
    pub region: fn(u32) -> &'static str,
}

fn goroutine_name(g: u64, names: &HashMap<u64, String>) -> String {
    match names.get(&g) {
        Some(name) => format!("{name} (G{g})"),
        None => format!("G{g}"),
    }
}

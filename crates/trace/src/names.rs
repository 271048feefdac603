//! The words for what events have as numbers.

use std::collections::HashMap;

/// The words for numbers.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// Why a goroutine waits: the name of [`Event::reason`](crate::events::Event::reason).
    pub reason: fn(u8) -> &'static str,
    /// The name of a region.
    pub region: fn(u32) -> &'static str,
}

pub(crate) fn goroutine_name(g: u64, names: &HashMap<u64, String>) -> String {
    match names.get(&g) {
        Some(name) => format!("{name} (G{g})"),
        None => format!("G{g}"),
    }
}

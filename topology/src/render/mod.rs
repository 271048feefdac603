//! The machine and the plan as text for people, as JSON for programs, and as pictures.
//!
//! Text ends with a newline and depends on the values alone: equal values give equal text. All numbers of CPUs and nodes are the kernel's; a group without such a number, as an
//! L3 of a synthetic machine, is shown by its position with a `#` before it.

mod art;
mod blocks;
pub mod dot;
#[cfg(feature = "json")]
pub mod json;
mod live;
mod paint;
pub mod svg;
mod tables;
mod tree;
mod words;

pub use art::art;
pub use live::live;
pub use paint::Paint;
pub use tables::{distances, limits, measured, placement, steal_matrix, steal_order};
pub use tree::tree;

use crate::{CpuLimits, Plan, Topology};

/// `this machine: 2 nodes, 2 packages, 8 cores, 16 CPUs`.
#[must_use]
pub fn headline(topology: &Topology) -> String {
    format!("{}: {}", words::source(topology), words::summary(topology))
}

/// A number of bytes as people say it, `1.5 GiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    words::bytes(bytes)
}

/// How many processors these limits leave and which of them binds, `3, capped by the quota`.
#[must_use]
pub fn verdict(limits: &CpuLimits, paint: Paint) -> String {
    tables::verdict(limits, paint)
}

/// Which CPUs have no P: a line for each reason.
#[must_use]
pub fn dropped(plan: &Plan) -> Vec<String> {
    tables::dropped(plan)
}

/// A number with at most two digits after the point.
#[cfg(feature = "cli")]
pub(crate) fn two_digits(value: f64) -> String {
    tables::two_digits(value)
}

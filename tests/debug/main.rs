//! Everything that a runtime shows of itself: metrics, dumps, traces, reports.

#[path = "../util/mod.rs"]
mod util;

mod accounting;
mod dump;
mod live;
mod metrics;
mod profile;
mod schedtrace;
mod stall;
mod trace;

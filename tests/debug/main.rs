//! What a runtime shows of itself: metrics, dumps, traces, reports.

#[path = "../util/mod.rs"]
mod util;

mod dump;
mod live;
mod metrics;
mod schedtrace;
mod stall;
mod trace;

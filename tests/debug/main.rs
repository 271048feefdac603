//! Everything that a runtime shows of itself: metrics, dumps, traces, reports.

#[path = "../util/leaks.rs"]
mod found;
#[path = "../util/temp.rs"]
mod temp;
#[path = "../util/mod.rs"]
mod util;

mod accounting;
mod dump;
mod gdb;
mod leaks;
mod live;
mod metrics;
mod profile;
mod schedtrace;
mod stall;
mod stderr;
mod trace;
mod waits;

//! Channels, select, contexts, futures and timers: what goroutines wait for.

#[path = "../util/mod.rs"]
mod util;

mod channel;
mod channel_leaks;
mod context;
mod context_waits;
mod future;
mod select;
mod sleep;
mod time;
mod timers;

//! Sleeping, timeouts, timers and intervals.

#[cfg(feature = "sim")]
#[path = "../util/inside.rs"]
mod inside;
#[path = "../util/mod.rs"]
mod util;

mod sleep;
mod time;
mod timers;

#[cfg(feature = "sim")]
inside::files! {
    sleep
    time
    timers
}

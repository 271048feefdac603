//! Channels, select, contexts, futures and timers: what goroutines wait for.

#[path = "../util/both.rs"]
mod both;
#[cfg(feature = "sim")]
#[path = "../util/inside.rs"]
mod inside;
#[path = "../util/mod.rs"]
mod util;

mod broadcast;
mod channel;
mod channel_leaks;
mod context;
mod context_waits;
mod future;
mod groups;
mod oneshot;
mod select;
mod sleep;
mod time;
mod timers;
mod watch;

/// Each file's tests, once more in simulations.
#[cfg(feature = "sim")]
mod simulated {
    #[test]
    fn broadcast() {
        crate::inside::run(&crate::broadcast::INSIDE, include_str!("broadcast.rs"));
    }
    #[test]
    fn channel() {
        crate::inside::run(&crate::channel::INSIDE, include_str!("channel.rs"));
    }
    #[test]
    fn channel_leaks() {
        crate::inside::run(
            &crate::channel_leaks::INSIDE,
            include_str!("channel_leaks.rs"),
        );
    }
    #[test]
    fn context() {
        crate::inside::run(&crate::context::INSIDE, include_str!("context.rs"));
    }
    #[test]
    fn context_waits() {
        crate::inside::run(
            &crate::context_waits::INSIDE,
            include_str!("context_waits.rs"),
        );
    }
    #[test]
    fn future() {
        crate::inside::run(&crate::future::INSIDE, include_str!("future.rs"));
    }
    #[test]
    fn groups() {
        crate::inside::run(&crate::groups::INSIDE, include_str!("groups.rs"));
    }
    #[test]
    fn oneshot() {
        crate::inside::run(&crate::oneshot::INSIDE, include_str!("oneshot.rs"));
    }
    #[test]
    fn select() {
        crate::inside::run(&crate::select::INSIDE, include_str!("select.rs"));
    }
    #[test]
    fn sleep() {
        crate::inside::run(&crate::sleep::INSIDE, include_str!("sleep.rs"));
    }
    #[test]
    fn time() {
        crate::inside::run(&crate::time::INSIDE, include_str!("time.rs"));
    }
    #[test]
    fn timers() {
        crate::inside::run(&crate::timers::INSIDE, include_str!("timers.rs"));
    }
    #[test]
    fn watch() {
        crate::inside::run(&crate::watch::INSIDE, include_str!("watch.rs"));
    }
}

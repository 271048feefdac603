//! Locks and what else goroutines and threads wait for each other with.

#[path = "../util/both.rs"]
mod both;
#[cfg(feature = "sim")]
#[path = "../util/inside.rs"]
mod inside;
#[path = "../util/mod.rs"]
mod util;

mod auto_traits;
mod sync_counting;
mod sync_mutex;
mod sync_notify;
mod sync_once;
mod sync_owned;
mod sync_rwlock;
mod sync_shutdown;

/// Each file's tests, once more in simulations.
#[cfg(feature = "sim")]
mod simulated {
    #[test]
    fn sync_counting() {
        crate::inside::run(
            &crate::sync_counting::INSIDE,
            include_str!("sync_counting.rs"),
        );
    }
    #[test]
    fn sync_mutex() {
        crate::inside::run(&crate::sync_mutex::INSIDE, include_str!("sync_mutex.rs"));
    }
    #[test]
    fn sync_notify() {
        crate::inside::run(&crate::sync_notify::INSIDE, include_str!("sync_notify.rs"));
    }
    #[test]
    fn sync_once() {
        crate::inside::run(&crate::sync_once::INSIDE, include_str!("sync_once.rs"));
    }
    #[test]
    fn sync_owned() {
        crate::inside::run(&crate::sync_owned::INSIDE, include_str!("sync_owned.rs"));
    }
    #[test]
    fn sync_rwlock() {
        crate::inside::run(&crate::sync_rwlock::INSIDE, include_str!("sync_rwlock.rs"));
    }
    #[test]
    fn sync_shutdown() {
        crate::inside::run(
            &crate::sync_shutdown::INSIDE,
            include_str!("sync_shutdown.rs"),
        );
    }
}

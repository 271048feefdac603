//! Locks and what else goroutines and threads wait for each other with.

#[path = "../util/both.rs"]
mod both;
#[cfg(feature = "sim")]
#[path = "../util/inside.rs"]
mod inside;
#[path = "../util/mod.rs"]
mod util;

mod auto_traits;
mod counting;
mod end_of_run;
mod guards;
mod mutex;
mod notify;
mod once;
mod rwlock;

#[cfg(feature = "sim")]
inside::files! {
    counting
    end_of_run
    guards
    mutex
    notify
    once
    rwlock
}

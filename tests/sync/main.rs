//! Locks and what else goroutines and threads wait for each other with.

#[path = "../util/both.rs"]
mod both;
#[path = "../util/mod.rs"]
mod util;

mod sync_counting;
mod sync_mutex;
mod sync_once;
mod sync_rwlock;
mod sync_shutdown;

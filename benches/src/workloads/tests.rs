//! Every workload once on every runtime, so that none stops working unseen.

use super::*;
use crate::runtimes;

const WORKERS: usize = 2;

#[test]
fn windlass() {
    let runtime = runtimes::windlass(WORKERS);
    yields::windlass(&runtime, 10, 10);
    spawn_join::windlass(&runtime, 10, 10);
    ping_pong::windlass(&runtime, 100);
    skynet::windlass(&runtime, 100);
    echo::windlass(&runtime, 4, 10);
    stream::windlass(&runtime, 20_000, 10);
}

#[test]
fn tokio() {
    let runtime = runtimes::tokio(WORKERS);
    yields::tokio(&runtime, 10, 10);
    spawn_join::tokio(&runtime, 10, 10);
    ping_pong::tokio(&runtime, 100);
    skynet::tokio(&runtime, 100);
    echo::tokio(&runtime, 4, 10);
    stream::tokio(&runtime, 20_000, 10);
}

#[test]
fn may() {
    let runtime = runtimes::may(WORKERS);
    yields::may(&runtime, 10, 10);
    spawn_join::may(&runtime, 10, 10);
    ping_pong::may(&runtime, 100);
    skynet::may(&runtime, 100);
    echo::may(&runtime, 4, 10);
    stream::may(&runtime, 20_000, 10);
}

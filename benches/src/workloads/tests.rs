//! Every workload once on every runtime, so that none stops working unseen; monoio's and
//! compio's are beside them (`benches/peers/`).

use super::*;
use crate::runtimes;

const WORKERS: usize = 2;

#[test]
fn windlass() {
    let runtime = runtimes::windlass(WORKERS);
    yields::windlass(&runtime, 10, 10);
    spawn_join::windlass(&runtime, 10, 10);
    ping_pong::windlass(&runtime, 100);
    mutex::windlass_alone(&runtime, 100);
    mutex::std_alone(&runtime, 100);
    mutex::windlass(&runtime, 10, 100);
    skynet::windlass(&runtime, 100);
    sleepers::windlass(&runtime, 10, 2);
    deadlines::windlass(&runtime, 3, 10);
    echo::windlass(&runtime, 4, 10);
    stream::windlass(&runtime, 20_000, 10);
    scan::windlass(&runtime, 3);
    fork_join::windlass(&runtime);
    let file = reads::prepare(&std::env::temp_dir()).unwrap();
    reads::windlass(&runtime, &file, 3, 10);
    spawn_join::windlass_many(&runtime, 3, 10, 10);
    mpmc::windlass_to_one(&runtime, 3, 100);
    chan_ping_pong::windlass(&runtime, chan_ping_pong::Shape { cap: 0, pairs: 3 }, 100);
    mpmc::windlass(&runtime, 1_000);
}

#[test]
fn tokio() {
    let runtime = runtimes::tokio(WORKERS);
    yields::tokio(&runtime, 10, 10);
    spawn_join::tokio(&runtime, 10, 10);
    ping_pong::tokio(&runtime, 100);
    mutex::tokio_alone(&runtime, 100);
    mutex::tokio(&runtime, 10, 100);
    skynet::tokio(&runtime, 100);
    sleepers::tokio(&runtime, 10, 2);
    deadlines::tokio(&runtime, 3, 10);
    echo::tokio(&runtime, 4, 10);
    stream::tokio(&runtime, 20_000, 10);
    scan::tokio(&runtime, 3);
    fork_join::tokio(&runtime);
    let file = reads::prepare(&std::env::temp_dir()).unwrap();
    reads::tokio(&runtime, &file, 3, 10);
    spawn_join::tokio_many(&runtime, 3, 10, 10);
    mpmc::tokio_to_one(&runtime, 3, 100);
    chan_ping_pong::tokio(&runtime, chan_ping_pong::Shape { cap: 0, pairs: 3 }, 100);
    mpmc::tokio(&runtime, 1_000);
}

#[test]
fn may() {
    let runtime = runtimes::may(WORKERS);
    yields::may(&runtime, 10, 10);
    spawn_join::may(&runtime, 10, 10);
    ping_pong::may(&runtime, 100);
    mutex::may_alone(&runtime, 100);
    mutex::may(&runtime, 10, 100);
    skynet::may(&runtime, 100);
    sleepers::may(&runtime, 10, 2);
    deadlines::may(&runtime, 3, 10);
    echo::may(&runtime, 4, 10);
    stream::may(&runtime, 20_000, 10);
    chan_ping_pong::may(&runtime, chan_ping_pong::Shape { cap: 0, pairs: 3 }, 100);
    mpmc::may(&runtime, 1_000);
}

#[test]
fn crossbeam() {
    mpmc::crossbeam(1_000);
}

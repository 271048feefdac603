//! Many tasks that do nothing but sleep, a few times each, for lengths that differ.

use std::time::{Duration, Instant};

use crate::runtimes::{self, May, Tokio};

/// How long the task with the number `task` sleeps in its round `round`: 1 to 100 ms, in
/// no order.
fn length(task: usize, round: u64) -> Duration {
    Duration::from_millis((task as u64 * 7919 + round * 31) % 100 + 1)
}

/// Goroutines: [`windlass::sleep`].
pub fn windlass(runtime: &windlass::Runtime, tasks: usize, rounds: u64) -> Duration {
    runtime.run(move || {
        let start = Instant::now();
        let sleeper = |task| {
            windlass::spawn(move || (0..rounds).for_each(|r| windlass::sleep(length(task, r))))
        };
        let handles: Vec<_> = (0..tasks).map(sleeper).collect();
        for handle in handles {
            handle.join().unwrap();
        }
        start.elapsed()
    })
}

/// Tasks: [`tokio::time::sleep`].
pub fn tokio(runtime: &Tokio, tasks: usize, rounds: u64) -> Duration {
    runtime.run(async move {
        let start = Instant::now();
        let sleeper = |task| {
            tokio::spawn(async move {
                for round in 0..rounds {
                    tokio::time::sleep(length(task, round)).await;
                }
            })
        };
        let handles: Vec<_> = (0..tasks).map(sleeper).collect();
        for handle in handles {
            handle.await.unwrap();
        }
        start.elapsed()
    })
}

/// Coroutines: [`may::coroutine::sleep`].
pub fn may(runtime: &May, tasks: usize, rounds: u64) -> Duration {
    runtime.run(move || {
        let start = Instant::now();
        let sleeper = |task| {
            runtimes::go(move || {
                for round in 0..rounds {
                    may::coroutine::sleep(length(task, round));
                }
            })
        };
        let handles: Vec<_> = (0..tasks).map(sleeper).collect();
        for handle in handles {
            handle.join().unwrap();
        }
        start.elapsed()
    })
}

//! Many tasks that do nothing but give way to each other.

use std::time::{Duration, Instant};

use crate::runtimes::{self, May, Tokio};

/// Goroutines, `rounds` times [`windlass::yield_now`] each.
pub fn windlass(runtime: &windlass::Runtime, tasks: usize, rounds: u64) -> Duration {
    runtime.run(move || {
        let start = Instant::now();
        let turns = || {
            windlass::spawn(move || {
                for _ in 0..rounds {
                    windlass::yield_now();
                }
            })
        };
        let handles: Vec<_> = (0..tasks).map(|_| turns()).collect();
        for handle in handles {
            handle.join().unwrap();
        }
        start.elapsed()
    })
}

/// Tasks, `rounds` times [`tokio::task::yield_now`] each.
pub fn tokio(runtime: &Tokio, tasks: usize, rounds: u64) -> Duration {
    runtime.run(async move {
        let start = Instant::now();
        let turns = || {
            tokio::spawn(async move {
                for _ in 0..rounds {
                    tokio::task::yield_now().await;
                }
            })
        };
        let handles: Vec<_> = (0..tasks).map(|_| turns()).collect();
        for handle in handles {
            handle.await.unwrap();
        }
        start.elapsed()
    })
}

/// Coroutines, `rounds` times [`may::coroutine::yield_now`] each.
pub fn may(runtime: &May, tasks: usize, rounds: u64) -> Duration {
    runtime.run(move || {
        let start = Instant::now();
        let turns = || {
            runtimes::go(move || {
                for _ in 0..rounds {
                    may::coroutine::yield_now();
                }
            })
        };
        let handles: Vec<_> = (0..tasks).map(|_| turns()).collect();
        for handle in handles {
            handle.join().unwrap();
        }
        start.elapsed()
    })
}

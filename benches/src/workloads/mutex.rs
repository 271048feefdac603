//! One lock around a counter: alone at it, and with many.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::runtimes::{self, May, Tokio};

/// A task counts by itself, `rounds` times lock and unlock: [`windlass::sync::Mutex`].
pub fn windlass_alone(runtime: &windlass::Runtime, rounds: u64) -> Duration {
    runtime.run(move || {
        let count = windlass::sync::Mutex::new(0_u64);
        timed(&count, rounds, |count| *count.lock().unwrap() += 1)
    })
}

/// With `std::sync::Mutex`, in a goroutine as well.
pub fn std_alone(runtime: &windlass::Runtime, rounds: u64) -> Duration {
    runtime.run(move || {
        let count = std::sync::Mutex::new(0_u64);
        timed(&count, rounds, |count| *count.lock().unwrap() += 1)
    })
}

/// With [`tokio::sync::Mutex`].
pub fn tokio_alone(runtime: &Tokio, rounds: u64) -> Duration {
    runtime.run(async move {
        let count = tokio::sync::Mutex::new(0_u64);
        let count = black_box(&count);
        let start = Instant::now();
        for _ in 0..rounds {
            *count.lock().await += 1;
        }
        start.elapsed()
    })
}

/// With [`may::sync::Mutex`].
pub fn may_alone(runtime: &May, rounds: u64) -> Duration {
    runtime.run(move || {
        let count = may::sync::Mutex::new(0_u64);
        timed(&count, rounds, |count| *count.lock().unwrap() += 1)
    })
}

/// The lock is hidden from the compiler once: in each round its address would go through memory, and a round take 30 % longer.
fn timed<L>(lock: &L, rounds: u64, step: impl Fn(&L)) -> Duration {
    let lock = black_box(lock);
    let start = Instant::now();
    for _ in 0..rounds {
        step(lock);
    }
    start.elapsed()
}

/// `tasks` goroutines at one [`windlass::sync::Mutex`], `rounds` times each.
pub fn windlass(runtime: &windlass::Runtime, tasks: usize, rounds: u64) -> Duration {
    runtime.run(move || {
        let count = Arc::new(windlass::sync::Mutex::new(0_u64));
        let start = Instant::now();
        let work = || {
            let count = Arc::clone(&count);
            windlass::spawn(move || {
                for _ in 0..rounds {
                    *count.lock().unwrap() += 1;
                }
            })
        };
        let handles: Vec<_> = (0..tasks).map(|_| work()).collect();
        for handle in handles {
            handle.join().unwrap();
        }
        let elapsed = start.elapsed();
        assert_eq!(*count.lock().unwrap(), rounds * tasks as u64);
        elapsed
    })
}

/// With tasks and [`tokio::sync::Mutex`].
pub fn tokio(runtime: &Tokio, tasks: usize, rounds: u64) -> Duration {
    runtime.run(async move {
        let count = Arc::new(tokio::sync::Mutex::new(0_u64));
        let start = Instant::now();
        let work = || {
            let count = Arc::clone(&count);
            tokio::spawn(async move {
                for _ in 0..rounds {
                    *count.lock().await += 1;
                }
            })
        };
        let handles: Vec<_> = (0..tasks).map(|_| work()).collect();
        for handle in handles {
            handle.await.unwrap();
        }
        let elapsed = start.elapsed();
        assert_eq!(*count.lock().await, rounds * tasks as u64);
        elapsed
    })
}

/// With coroutines and [`may::sync::Mutex`].
pub fn may(runtime: &May, tasks: usize, rounds: u64) -> Duration {
    runtime.run(move || {
        let count = Arc::new(may::sync::Mutex::new(0_u64));
        let start = Instant::now();
        let work = || {
            let count = Arc::clone(&count);
            runtimes::go(move || {
                for _ in 0..rounds {
                    *count.lock().unwrap() += 1;
                }
            })
        };
        let handles: Vec<_> = (0..tasks).map(|_| work()).collect();
        for handle in handles {
            handle.join().unwrap();
        }
        let elapsed = start.elapsed();
        assert_eq!(*count.lock().unwrap(), rounds * tasks as u64);
        elapsed
    })
}

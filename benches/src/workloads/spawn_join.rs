//! Tasks that do nothing: what starting one and hearing of its end costs.
//!
//! They are started in batches, and each batch is joined before the next: of
//! one, so that every join waits, or of many, so that the queues fill.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::runtimes::{self, May, Tokio};

/// Goroutines.
pub fn windlass(runtime: &windlass::Runtime, batch: usize, batches: u64) -> Duration {
    runtime.run(move || goroutines(batch, batches))
}

/// So many goroutines that each do it.
pub fn windlass_many(
    runtime: &windlass::Runtime,
    spawners: usize,
    batch: usize,
    batches: u64,
) -> Duration {
    runtime.run(move || {
        let start = Instant::now();
        let spawner = |_| windlass::spawn(move || goroutines(batch, batches));
        let all: Vec<_> = (0..spawners).map(spawner).collect();
        for spawner in all {
            spawner.join().unwrap();
        }
        start.elapsed()
    })
}

fn goroutines(batch: usize, batches: u64) -> Duration {
    let mut handles = Vec::with_capacity(batch);
    let start = Instant::now();
    for _ in 0..batches {
        handles.extend((0..batch).map(|i| windlass::spawn(move || black_box(i))));
        for handle in handles.drain(..) {
            handle.join().unwrap();
        }
    }
    start.elapsed()
}

/// tokio's tasks.
pub fn tokio(runtime: &Tokio, batch: usize, batches: u64) -> Duration {
    runtime.run(tasks(batch, batches))
}

/// So many tasks that each do it.
pub fn tokio_many(runtime: &Tokio, spawners: usize, batch: usize, batches: u64) -> Duration {
    runtime.run(async move {
        let start = Instant::now();
        let spawner = |_| tokio::spawn(tasks(batch, batches));
        let all: Vec<_> = (0..spawners).map(spawner).collect();
        for spawner in all {
            spawner.await.unwrap();
        }
        start.elapsed()
    })
}

async fn tasks(batch: usize, batches: u64) -> Duration {
    let mut handles = Vec::with_capacity(batch);
    let start = Instant::now();
    for _ in 0..batches {
        handles.extend((0..batch).map(|i| tokio::spawn(async move { black_box(i) })));
        for handle in handles.drain(..) {
            handle.await.unwrap();
        }
    }
    start.elapsed()
}

/// may's coroutines.
pub fn may(runtime: &May, batch: usize, batches: u64) -> Duration {
    runtime.run(move || {
        let mut handles = Vec::with_capacity(batch);
        let start = Instant::now();
        for _ in 0..batches {
            handles.extend((0..batch).map(|i| runtimes::go(move || black_box(i))));
            for handle in handles.drain(..) {
                handle.join().unwrap();
            }
        }
        start.elapsed()
    })
}

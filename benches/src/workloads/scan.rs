//! Tasks that read memory: each fills 1 MiB of its own, and reads it in steps with a yield between.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::runtimes::Tokio;

/// The words of a task's memory.
pub const WORDS: usize = 1 << 17;
const STEPS: usize = 64;

/// The memory of a task.
fn filled(task: usize) -> Vec<u64> {
    (0..WORDS).map(|word| (word ^ task) as u64).collect()
}

fn sum(words: &[u64]) -> u64 {
    words.iter().copied().fold(0, u64::wrapping_add)
}

/// Goroutines.
pub fn windlass(runtime: &windlass::Runtime, tasks: usize) -> Duration {
    let scan = |task| {
        let mut all = 0_u64;
        for words in filled(task).chunks(WORDS / STEPS) {
            all = all.wrapping_add(sum(words));
            windlass::yield_now();
        }
        all
    };
    runtime.run(move || {
        let begin = Instant::now();
        let all: Vec<_> = (0..tasks)
            .map(|task| windlass::spawn(move || scan(task)))
            .collect();
        for scanner in all {
            black_box(scanner.join().unwrap());
        }
        begin.elapsed()
    })
}

/// tokio's tasks.
pub fn tokio(runtime: &Tokio, tasks: usize) -> Duration {
    async fn scan(task: usize) -> u64 {
        let mut all = 0_u64;
        for words in filled(task).chunks(WORDS / STEPS) {
            all = all.wrapping_add(sum(words));
            tokio::task::yield_now().await;
        }
        all
    }
    runtime.run(async move {
        let begin = Instant::now();
        let all: Vec<_> = (0..tasks).map(|task| tokio::spawn(scan(task))).collect();
        for scanner in all {
            black_box(scanner.await.unwrap());
        }
        begin.elapsed()
    })
}

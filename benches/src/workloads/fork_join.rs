//! One computation that forks: fib, a fork for each call above a cut.

use std::hint::black_box;
use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::runtimes::Tokio;

/// The number whose fib is computed.
const N: u32 = 27;
/// From here on without forks.
const CUT: u32 = 12;

/// How many forks there are.
pub fn forks() -> u64 {
    fn of(n: u32) -> u64 {
        if n <= CUT {
            0
        } else {
            1 + of(n - 1) + of(n - 2)
        }
    }
    of(N)
}

fn alone(n: u32) -> u64 {
    if n < 2 {
        u64::from(n)
    } else {
        alone(n - 1) + alone(n - 2)
    }
}

/// [`windlass::join`].
pub fn windlass(runtime: &windlass::Runtime) -> Duration {
    fn fib(n: u32) -> u64 {
        if n <= CUT {
            return alone(n);
        }
        let (a, b) = windlass::join(|| fib(n - 1), || fib(n - 2));
        a + b
    }
    runtime.run(|| {
        let begin = Instant::now();
        assert_eq!(fib(black_box(N)), 196_418);
        begin.elapsed()
    })
}

/// A task for each fork: tokio has no join of its own.
pub fn tokio(runtime: &Tokio) -> Duration {
    fn fib(n: u32) -> Pin<Box<dyn Future<Output = u64> + Send>> {
        Box::pin(async move {
            if n <= CUT {
                return alone(n);
            }
            let other = tokio::spawn(fib(n - 2));
            fib(n - 1).await + other.await.unwrap()
        })
    }
    runtime.run(async {
        let begin = Instant::now();
        assert_eq!(fib(black_box(N)).await, 196_418);
        begin.elapsed()
    })
}

//! Pairs of tasks that wake each other in turn, as in `ping_pong`, but each wait has a
//! deadline, an hour from then, that does not come: timers that are only ever cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::runtimes::{self, May, Tokio};

const HOUR: Duration = Duration::from_secs(3600);

/// True while it is the turn of the second task.
type Turn = Arc<AtomicBool>;

/// Goroutines: [`windlass::task::park_timeout`] and `unpark`.
pub fn windlass(runtime: &windlass::Runtime, pairs: usize, round_trips: u64) -> Duration {
    fn wait(turn: &Turn, mine: bool) {
        while turn.load(Ordering::Acquire) != mine {
            windlass::task::park_timeout(HOUR);
        }
    }
    fn pair(round_trips: u64) {
        let turn = Turn::default();
        let first = windlass::task::current();
        let handle = windlass::spawn({
            let turn = Turn::clone(&turn);
            move || {
                for _ in 0..round_trips {
                    wait(&turn, true);
                    turn.store(false, Ordering::Release);
                    first.unpark();
                }
            }
        });
        let second = handle.task();
        for _ in 0..round_trips {
            turn.store(true, Ordering::Release);
            second.unpark();
            wait(&turn, false);
        }
        handle.join().unwrap();
    }
    runtime.run(move || {
        let start = Instant::now();
        let pairs: Vec<_> = (0..pairs)
            .map(|_| windlass::spawn(move || pair(round_trips)))
            .collect();
        for pair in pairs {
            pair.join().unwrap();
        }
        start.elapsed()
    })
}

/// Tasks: [`tokio::time::timeout`] around two [`Notify`].
pub fn tokio(runtime: &Tokio, pairs: usize, round_trips: u64) -> Duration {
    async fn wait(turn: &Turn, mine: bool, notify: &Notify) {
        while turn.load(Ordering::Acquire) != mine {
            tokio::time::timeout(HOUR, notify.notified()).await.unwrap();
        }
    }
    async fn pair(round_trips: u64) {
        let turn = Turn::default();
        let (first, second) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let handle = tokio::spawn({
            let (turn, first, second) = (turn.clone(), first.clone(), second.clone());
            async move {
                for _ in 0..round_trips {
                    wait(&turn, true, &second).await;
                    turn.store(false, Ordering::Release);
                    first.notify_one();
                }
            }
        });
        for _ in 0..round_trips {
            turn.store(true, Ordering::Release);
            second.notify_one();
            wait(&turn, false, &first).await;
        }
        handle.await.unwrap();
    }
    runtime.run(async move {
        let start = Instant::now();
        let pairs: Vec<_> = (0..pairs)
            .map(|_| tokio::spawn(pair(round_trips)))
            .collect();
        for pair in pairs {
            pair.await.unwrap();
        }
        start.elapsed()
    })
}

/// Coroutines: [`may::coroutine::park_timeout`] and `unpark`.
pub fn may(runtime: &May, pairs: usize, round_trips: u64) -> Duration {
    fn wait(turn: &Turn, mine: bool) {
        while turn.load(Ordering::Acquire) != mine {
            may::coroutine::park_timeout(HOUR);
        }
    }
    fn pair(round_trips: u64) {
        let turn = Turn::default();
        let first = may::coroutine::current();
        let second = runtimes::go({
            let turn = Turn::clone(&turn);
            move || {
                for _ in 0..round_trips {
                    wait(&turn, true);
                    turn.store(false, Ordering::Release);
                    first.unpark();
                }
            }
        });
        for _ in 0..round_trips {
            turn.store(true, Ordering::Release);
            second.coroutine().unpark();
            wait(&turn, false);
        }
        second.join().unwrap();
    }
    runtime.run(move || {
        let start = Instant::now();
        let pairs: Vec<_> = (0..pairs)
            .map(|_| runtimes::go(move || pair(round_trips)))
            .collect();
        for pair in pairs {
            pair.join().unwrap();
        }
        start.elapsed()
    })
}

//! Two tasks that wake each other in turn, through parking alone: no channel.
//!
//! A flag says which side is next, as a park may return for no reason. tokio
//! has no park; its [`Notify`] keeps one permit just as a park token does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::runtimes::{self, May, Tokio};

/// True while it is the turn of the second task.
type Turn = Arc<AtomicBool>;

/// Goroutines: [`windlass::task::park`] and `unpark`.
pub fn windlass(runtime: &windlass::Runtime, round_trips: u64) -> Duration {
    fn wait(turn: &Turn, mine: bool) {
        while turn.load(Ordering::Acquire) != mine {
            windlass::task::park();
        }
    }
    runtime.run(move || {
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
        let start = Instant::now();
        for _ in 0..round_trips {
            turn.store(true, Ordering::Release);
            second.unpark();
            wait(&turn, false);
        }
        let elapsed = start.elapsed();
        handle.join().unwrap();
        elapsed
    })
}

/// Tasks: two [`Notify`].
pub fn tokio(runtime: &Tokio, round_trips: u64) -> Duration {
    async fn wait(turn: &Turn, mine: bool, notify: &Notify) {
        while turn.load(Ordering::Acquire) != mine {
            notify.notified().await;
        }
    }
    runtime.run(async move {
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
        let start = Instant::now();
        for _ in 0..round_trips {
            turn.store(true, Ordering::Release);
            second.notify_one();
            wait(&turn, false, &first).await;
        }
        let elapsed = start.elapsed();
        handle.await.unwrap();
        elapsed
    })
}

/// Coroutines: [`may::coroutine::park`] and `unpark`.
pub fn may(runtime: &May, round_trips: u64) -> Duration {
    fn wait(turn: &Turn, mine: bool) {
        while turn.load(Ordering::Acquire) != mine {
            may::coroutine::park();
        }
    }
    runtime.run(move || {
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
        let start = Instant::now();
        for _ in 0..round_trips {
            turn.store(true, Ordering::Release);
            second.coroutine().unpark();
            wait(&turn, false);
        }
        let elapsed = start.elapsed();
        second.join().unwrap();
        elapsed
    })
}

//! Pairs of tasks that send each other a number and back through two channels.
//!
//! tokio has no channel of capacity 0; its smallest, of 1, stands in. may's channels have
//! no limit.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::runtimes::{self, May, Tokio};

/// How much the channels hold, and how many pairs there are.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Capacity of each channel.
    pub cap: usize,
    /// Pairs of tasks, each with two channels.
    pub pairs: usize,
}

/// Goroutines and [`windlass::channel::bounded`].
pub fn windlass(runtime: &windlass::Runtime, shape: Shape, round_trips: u64) -> Duration {
    use windlass::channel::bounded;
    runtime.run(move || {
        let pairs = (0..shape.pairs).map(|_| {
            let (there, here) = bounded(shape.cap);
            let (back, answer) = bounded(shape.cap);
            windlass::spawn(move || here.iter().for_each(|n: u64| back.send(n).unwrap()));
            (there, answer)
        });
        let pairs: Vec<_> = pairs.collect();
        let start = Instant::now();
        let players = pairs.into_iter().map(|(there, answer)| {
            windlass::spawn(move || {
                for n in 0..round_trips {
                    there.send(n).unwrap();
                    assert_eq!(answer.recv(), Ok(n));
                }
            })
        });
        for player in players.collect::<Vec<_>>() {
            player.join().unwrap();
        }
        start.elapsed()
    })
}

/// Tasks and [`tokio::sync::mpsc`].
pub fn tokio(runtime: &Tokio, shape: Shape, round_trips: u64) -> Duration {
    runtime.run(async move {
        let pairs = (0..shape.pairs).map(|_| {
            let (there, mut here) = mpsc::channel::<u64>(shape.cap.max(1));
            let (back, answer) = mpsc::channel(shape.cap.max(1));
            tokio::spawn(async move {
                while let Some(n) = here.recv().await {
                    back.send(n).await.unwrap();
                }
            });
            (there, answer)
        });
        let pairs: Vec<_> = pairs.collect();
        let start = Instant::now();
        let players = pairs.into_iter().map(|(there, mut answer)| {
            tokio::spawn(async move {
                for n in 0..round_trips {
                    there.send(n).await.unwrap();
                    assert_eq!(answer.recv().await, Some(n));
                }
            })
        });
        for player in players.collect::<Vec<_>>() {
            player.await.unwrap();
        }
        start.elapsed()
    })
}

/// Coroutines and [`may::sync::mpsc`].
pub fn may(runtime: &May, shape: Shape, round_trips: u64) -> Duration {
    use may::sync::mpsc;
    runtime.run(move || {
        let pairs = (0..shape.pairs).map(|_| {
            let (there, here) = mpsc::channel::<u64>();
            let (back, answer) = mpsc::channel();
            runtimes::go(move || here.iter().for_each(|n| back.send(n).unwrap()));
            (there, answer)
        });
        let pairs: Vec<_> = pairs.collect();
        let start = Instant::now();
        let players = pairs.into_iter().map(|(there, answer)| {
            runtimes::go(move || {
                for n in 0..round_trips {
                    there.send(n).unwrap();
                    assert_eq!(answer.recv(), Ok(n));
                }
            })
        });
        for player in players.collect::<Vec<_>>() {
            player.join().unwrap();
        }
        start.elapsed()
    })
}

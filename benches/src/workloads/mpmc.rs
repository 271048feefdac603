//! Several senders on one bounded channel, with several receivers or with one.
//!
//! tokio has no channel with several receivers, so async-channel's runs on it. may's has
//! no limit. crossbeam's runs on threads.

use std::time::{Duration, Instant};

use crate::runtimes::{self, May, Tokio};

/// Senders, and as many receivers.
pub const SIDE: u64 = 4;
/// Messages that the channel holds.
pub const CAP: usize = 128;

/// Goroutines and [`windlass::channel::bounded`]. `messages` is per sender.
pub fn windlass(runtime: &windlass::Runtime, messages: u64) -> Duration {
    runtime.run(move || {
        let (s, r) = windlass::channel::bounded(CAP);
        let start = Instant::now();
        for _ in 0..SIDE {
            let s = s.clone();
            windlass::spawn(move || (0..messages).for_each(|n| s.send(n).unwrap()));
        }
        drop(s);
        let receivers = (0..SIDE).map(|_| {
            let r = r.clone();
            windlass::spawn(move || r.iter().count() as u64)
        });
        let receivers: Vec<_> = receivers.collect();
        let received: u64 = receivers.into_iter().map(|r| r.join().unwrap()).sum();
        assert_eq!(received, SIDE * messages);
        start.elapsed()
    })
}

/// Tasks and [`async_channel::bounded`].
pub fn tokio(runtime: &Tokio, messages: u64) -> Duration {
    runtime.run(async move {
        let (s, r) = async_channel::bounded(CAP);
        let start = Instant::now();
        for _ in 0..SIDE {
            let s = s.clone();
            tokio::spawn(async move {
                for n in 0..messages {
                    s.send(n).await.unwrap();
                }
            });
        }
        drop(s);
        let receivers = (0..SIDE).map(|_| {
            let r = r.clone();
            tokio::spawn(async move {
                let mut n = 0;
                while r.recv().await.is_ok() {
                    n += 1;
                }
                n
            })
        });
        let mut received = 0;
        for receiver in receivers.collect::<Vec<_>>() {
            received += receiver.await.unwrap();
        }
        assert_eq!(received, SIDE * messages);
        start.elapsed()
    })
}

/// So many goroutines send to one.
pub fn windlass_to_one(runtime: &windlass::Runtime, senders: usize, messages: u64) -> Duration {
    runtime.run(move || {
        let (s, r) = windlass::channel::bounded(CAP);
        let start = Instant::now();
        for _ in 0..senders {
            let s = s.clone();
            windlass::spawn(move || (0..messages).for_each(|n| s.send(n).unwrap()));
        }
        drop(s);
        assert_eq!(r.iter().count() as u64, senders as u64 * messages);
        start.elapsed()
    })
}

/// So many tasks send to one: [`tokio::sync::mpsc`].
pub fn tokio_to_one(runtime: &Tokio, senders: usize, messages: u64) -> Duration {
    runtime.run(async move {
        let (s, mut r) = tokio::sync::mpsc::channel(CAP);
        let start = Instant::now();
        for _ in 0..senders {
            let s = s.clone();
            tokio::spawn(async move {
                for n in 0..messages {
                    s.send(n).await.unwrap();
                }
            });
        }
        drop(s);
        let mut received = 0;
        while r.recv().await.is_some() {
            received += 1;
        }
        assert_eq!(received, senders as u64 * messages);
        start.elapsed()
    })
}

/// Coroutines and [`may::sync::mpmc`].
pub fn may(runtime: &May, messages: u64) -> Duration {
    runtime.run(move || {
        let (s, r) = may::sync::mpmc::channel();
        let start = Instant::now();
        for _ in 0..SIDE {
            let s = s.clone();
            runtimes::go(move || (0..messages).for_each(|n| s.send(n).unwrap()));
        }
        drop(s);
        let receivers = (0..SIDE).map(|_| {
            let r = r.clone();
            runtimes::go(move || r.iter().count() as u64)
        });
        let receivers: Vec<_> = receivers.collect();
        let received: u64 = receivers.into_iter().map(|r| r.join().unwrap()).sum();
        assert_eq!(received, SIDE * messages);
        start.elapsed()
    })
}

/// Threads and [`crossbeam_channel::bounded`].
pub fn crossbeam(messages: u64) -> Duration {
    let (s, r) = crossbeam_channel::bounded(CAP);
    let start = Instant::now();
    for _ in 0..SIDE {
        let s = s.clone();
        std::thread::spawn(move || (0..messages).for_each(|n| s.send(n).unwrap()));
    }
    drop(s);
    let receivers = (0..SIDE).map(|_| {
        let r = r.clone();
        std::thread::spawn(move || r.iter().count() as u64)
    });
    let receivers: Vec<_> = receivers.collect();
    let received: u64 = receivers.into_iter().map(|r| r.join().unwrap()).sum();
    assert_eq!(received, SIDE * messages);
    start.elapsed()
}

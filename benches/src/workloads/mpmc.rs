//! Several senders and several receivers on one bounded channel.
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

//! A tree of tasks, ten children to each: every leaf gives its number, every
//! inner one joins its children and gives their sum.

use std::array;
use std::time::{Duration, Instant};

use crate::runtimes::{self, May, Tokio};

const CHILDREN: u64 = 10;

/// The leaves are numbered from 0.
fn expected(leaves: u64) -> u64 {
    leaves * (leaves - 1) / 2
}

/// Goroutines. `leaves` is a power of ten.
pub fn windlass(runtime: &windlass::Runtime, leaves: u64) -> Duration {
    fn start(first: u64, leaves: u64) -> windlass::task::JoinHandle<u64> {
        windlass::spawn(move || {
            if leaves == 1 {
                return first;
            }
            let leaves = leaves / CHILDREN;
            let children: [_; CHILDREN as usize] =
                array::from_fn(|i| start(first + i as u64 * leaves, leaves));
            children
                .into_iter()
                .map(|child| child.join().unwrap())
                .sum()
        })
    }
    runtime.run(move || {
        let begin = Instant::now();
        assert_eq!(start(0, leaves).join().unwrap(), expected(leaves));
        begin.elapsed()
    })
}

/// tokio's tasks. `leaves` is a power of ten.
pub fn tokio(runtime: &Tokio, leaves: u64) -> Duration {
    fn start(first: u64, leaves: u64) -> tokio::task::JoinHandle<u64> {
        tokio::spawn(async move {
            if leaves == 1 {
                return first;
            }
            let leaves = leaves / CHILDREN;
            let children: [_; CHILDREN as usize] =
                array::from_fn(|i| start(first + i as u64 * leaves, leaves));
            let mut sum = 0;
            for child in children {
                sum += child.await.unwrap();
            }
            sum
        })
    }
    runtime.run(async move {
        let begin = Instant::now();
        assert_eq!(start(0, leaves).await.unwrap(), expected(leaves));
        begin.elapsed()
    })
}

/// may's coroutines. `leaves` is a power of ten, and all the tree's coroutines
/// may live at a time: see [`runtimes::may_coroutines`].
pub fn may(runtime: &May, leaves: u64) -> Duration {
    fn start(first: u64, leaves: u64) -> may::coroutine::JoinHandle<u64> {
        runtimes::go(move || {
            if leaves == 1 {
                return first;
            }
            let leaves = leaves / CHILDREN;
            let children: [_; CHILDREN as usize] =
                array::from_fn(|i| start(first + i as u64 * leaves, leaves));
            children
                .into_iter()
                .map(|child| child.join().unwrap())
                .sum()
        })
    }
    runtime.run(move || {
        let begin = Instant::now();
        assert_eq!(start(0, leaves).join().unwrap(), expected(leaves));
        begin.elapsed()
    })
}

//! `task::checkpoint`: loops that compute, and give way by themselves.
#![allow(
    clippy::disallowed_methods,
    reason = "what blocks a thread is a part of what is tested"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::util::{Census, hang_guard, run, runtime, wait_until};
use windlass::task::{self, checkpoint};
use windlass::{blocking, sleep, spawn};

/// Computes until it is told to stop.
fn hog(stop: &Arc<AtomicBool>) -> task::JoinHandle<u64> {
    let stop = Arc::clone(stop);
    spawn(move || {
        let mut n = 0;
        while !stop.load(Ordering::Relaxed) {
            n += 1;
            checkpoint();
        }
        n
    })
}

/// With one P others run only if the hogs give way, or if the P is taken from them. That
/// none was taken shows which of the two it was; on a busy machine a thread may get no CPU
/// for so long that it looks like a hog, so it is tried several times.
#[test]
fn hogs_with_checkpoints_give_way_by_themselves() {
    let _guard = hang_guard();
    let rt = runtime(1);
    rt.run(|| {
        wait_until(|| {
            let before = rt.metrics().retakes;
            let stop = Arc::new(AtomicBool::new(false));
            let hogs: Vec<_> = (0..3).map(|_| hog(&stop)).collect();
            for _ in 0..10 {
                sleep(Duration::from_micros(100));
                assert_eq!(spawn(|| 5).join().unwrap(), 5);
            }
            stop.store(true, Ordering::Relaxed);
            let counts: Vec<_> = hogs.into_iter().map(|h| h.join().unwrap()).collect();
            assert!(counts.iter().all(|&n| n > 0), "{counts:?}");
            rt.metrics().retakes == before
        });
    });
}

#[test]
fn hogs_share_their_p() {
    run(1, || {
        let stop = Arc::new(AtomicBool::new(false));
        let counts: Vec<_> = (0..3).map(|_| Arc::new(AtomicU64::new(0))).collect();
        let hogs: Vec<_> = counts
            .iter()
            .map(|count| {
                let (stop, count) = (Arc::clone(&stop), Arc::clone(count));
                spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        count.fetch_add(1, Ordering::Relaxed);
                        checkpoint();
                    }
                })
            })
            .collect();
        // Each of them gets on while the others do not end.
        for _ in 0..3 {
            let before: Vec<_> = counts.iter().map(|c| c.load(Ordering::Relaxed)).collect();
            wait_until(|| {
                let now = counts.iter().map(|c| c.load(Ordering::Relaxed));
                now.zip(&before).all(|(now, &before)| now > before)
            });
        }
        stop.store(true, Ordering::Relaxed);
        hogs.into_iter().for_each(|h| h.join().unwrap());
    });
}

/// Quick calls teach it to look seldom; slow ones after them must not have to wait for that.
#[test]
fn slow_calls_after_quick_ones_give_way() {
    run(1, || {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let hog = spawn(move || {
            (0..100_000).for_each(|_| checkpoint());
            while !seen.load(Ordering::Relaxed) {
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_micros(500) {
                    std::hint::spin_loop();
                }
                checkpoint();
            }
        });
        for _ in 0..20 {
            sleep(Duration::from_micros(100));
        }
        stop.store(true, Ordering::Relaxed);
        hog.join().unwrap();
    });
}

#[test]
fn the_end_of_a_run_reaches_a_loop() {
    let _guard = hang_guard();
    for n_ps in [1, 2] {
        let census = Census::default();
        let rt = runtime(n_ps);
        let n_begun = Arc::new(AtomicU64::new(0));
        rt.run(|| {
            for _ in 0..4 {
                let (member, n_begun) = (census.member(), Arc::clone(&n_begun));
                drop(spawn(move || {
                    let _member = member;
                    n_begun.fetch_add(1, Ordering::Relaxed);
                    loop {
                        checkpoint();
                    }
                }));
            }
            wait_until(|| n_begun.load(Ordering::Relaxed) == 4);
        });
        census.assert_all_dropped(4);
    }
}

#[test]
fn it_may_be_called_anywhere() {
    (0..5_000).for_each(|_| checkpoint());
    run(2, || {
        blocking(|| {
            for _ in 0..3_000 {
                checkpoint();
            }
            thread::sleep(Duration::from_millis(1));
            (0..3_000).for_each(|_| checkpoint());
        });
        struct ChecksInDrop;
        impl Drop for ChecksInDrop {
            fn drop(&mut self) {
                (0..3_000).for_each(|_| checkpoint());
            }
        }
        let child = spawn(|| {
            let _checks = ChecksInDrop;
            panic!("as intended");
        });
        assert!(child.join().is_err());
        // One that has locked its thread.
        let _tied = task::lock_thread();
        let others = spawn(|| (0..100_000).for_each(|_| checkpoint()));
        (0..100_000).for_each(|_| checkpoint());
        others.join().unwrap();
    });
}

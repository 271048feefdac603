//! Goroutines that go from thread to thread must not take a thread's identity
//! along: what compilers do to thread-locals around a switch shows here, most of
//! all in release builds with everything inlined.
#![allow(clippy::disallowed_methods, reason = "plain threads are compared with")]

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::util;
use crate::util::{gettid, hang_guard, run, runtime, wait_until};
use windlass::task::{self, current};
use windlass::{blocking, sleep, spawn, yield_now};

thread_local! {
    static TID: Cell<i32> = const { Cell::new(0) };
    static LAZY: RefCell<Vec<i32>> = RefCell::new(vec![util::gettid()]);
}

/// The thread's number as the thread-local has it. A function of its own that gives
/// a plain value: the pattern that the contract of `Builder::build` asks for.
#[inline(never)]
fn tid_from_local() -> i32 {
    TID.with(|tid| {
        if tid.get() == 0 {
            tid.set(gettid());
        }
        tid.get()
    })
}

#[inline(never)]
fn tid_from_lazy_local() -> i32 {
    LAZY.with(|tids| {
        let mut tids = tids.borrow_mut();
        let own = tids[0];
        tids.push(own);
        if tids.len() > 100 {
            tids.truncate(1);
        }
        own
    })
}

/// Goroutines of 4 Ps that are woken in turn, so that they go round.
#[test]
fn the_current_goroutine_is_always_the_same() {
    let threads = run(4, || {
        let all: Vec<_> = (0..64)
            .map(|i| {
                spawn(move || {
                    let id = current().id();
                    let mut threads = HashSet::new();
                    for round in 0..2000 {
                        // Before and after, in one expression and in a loop: the runtime's own
                        // accessor must be read anew each time.
                        let before = current().id();
                        yield_now();
                        let after = current().id();
                        assert_eq!((before, after), (id, id));
                        if round % 100 == i {
                            sleep(Duration::from_micros(50));
                            assert_eq!(current().id(), id);
                        }
                        if round % 20 == 0 {
                            threads.insert(gettid());
                        }
                    }
                    threads
                })
            })
            .collect();
        all.into_iter()
            .map(|j| j.join().unwrap().len())
            .max()
            .unwrap()
    });
    eprintln!("some goroutine ran on {threads} threads");
}

/// Until it is seen that they do migrate, or the test above shows nothing.
#[test]
fn goroutines_do_migrate() {
    run(4, || {
        let migrated = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..8)
            .map(|_| {
                let migrated = Arc::clone(&migrated);
                spawn(move || {
                    let mut tid = gettid();
                    let mut n_rounds = 0_u8;
                    wait_until(|| {
                        if gettid() != tid {
                            tid = gettid();
                            migrated.fetch_add(1, Ordering::SeqCst);
                        }
                        n_rounds = (n_rounds + 1) % 8;
                        if n_rounds == 0 {
                            // Leaves the P, and may come back on another one.
                            blocking(|| std::thread::sleep(Duration::from_micros(100)));
                        }
                        migrated.load(Ordering::SeqCst) >= 50
                    });
                })
            })
            .collect();
        all.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn a_thread_local_is_that_of_the_thread() {
    run(4, || {
        let all: Vec<_> = (0..32)
            .map(|i| {
                spawn(move || {
                    for round in 0..1000 {
                        assert_eq!(tid_from_local(), gettid());
                        match (round + i) % 50 {
                            0 => sleep(Duration::from_micros(20)),
                            1 => blocking(|| std::thread::sleep(Duration::from_micros(50))),
                            2 => spawn(yield_now).join().unwrap(),
                            _ => yield_now(),
                        }
                        assert_eq!(tid_from_local(), gettid());
                        assert_eq!(tid_from_lazy_local(), gettid());
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|j| j.join().unwrap());
    });
}

/// A generic helper that the compiler may inline into one loop with the switch.
#[inline(always)]
fn switch_and_check(id: u64, switch: impl Fn()) {
    let before = (current().id(), tid_from_local() == gettid());
    switch();
    let after = (current().id(), tid_from_local() == gettid());
    assert_eq!((before, after), ((id, true), (id, true)));
}

#[test]
fn every_switch_in_an_inlined_loop() {
    run(4, || {
        let all: Vec<_> = (0..16)
            .map(|_| {
                spawn(|| {
                    let id = current().id();
                    for _ in 0..300 {
                        switch_and_check(id, yield_now);
                        switch_and_check(id, || sleep(Duration::from_micros(1)));
                        switch_and_check(id, || task::park_timeout(Duration::from_micros(1)));
                        switch_and_check(id, || spawn(|| ()).join().unwrap());
                        switch_and_check(id, || blocking(|| ()));
                        switch_and_check(id, || task::scope(|s| drop(s.spawn(yield_now))));
                        let waker = current();
                        switch_and_check(id, || {
                            let waker = waker.clone();
                            drop(spawn(move || waker.unpark()));
                            task::park();
                        });
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn offloads_come_back_to_their_goroutine() {
    run(4, || {
        let all: Vec<_> = (0..16)
            .map(|_| {
                spawn(|| {
                    let id = current().id();
                    for _ in 0..100 {
                        switch_and_check(id, || {
                            windlass::offload(|| assert_eq!(current().id(), 0))
                        });
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn hogs_that_lost_their_p_know_who_they_are() {
    run(2, || {
        let all: Vec<_> = (0..8)
            .map(|_| {
                spawn(|| {
                    let id = current().id();
                    for _ in 0..4 {
                        let start = std::time::Instant::now();
                        // Long enough that the P is taken: the next call moves the goroutine.
                        while start.elapsed() < Duration::from_millis(15) {
                            std::hint::spin_loop();
                        }
                        switch_and_check(id, || drop(spawn(|| ())));
                        switch_and_check(id, yield_now);
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn two_runtimes_do_not_mix_up_their_goroutines() {
    let _guard = hang_guard();
    let (a, b) = (runtime(2), runtime(2));
    let play = || {
        let all: Vec<_> = (0..50)
            .map(|_| {
                spawn(|| {
                    let id = current().id();
                    (0..200).for_each(|_| switch_and_check(id, yield_now));
                    id
                })
            })
            .collect();
        all.into_iter()
            .map(|j| j.join().unwrap())
            .collect::<HashSet<u64>>()
    };
    let ids = std::thread::scope(|s| {
        [&a, &b]
            .map(|rt| s.spawn(move || rt.run(play)))
            .map(|t| t.join().unwrap())
    });
    assert!(ids[0].is_disjoint(&ids[1]));
    assert_eq!((ids[0].len(), ids[1].len()), (50, 50));
}

//! Semaphore, Barrier and WaitGroup, on threads, in goroutines, and across the two.

use crate::both;
use crate::both::{on_each, panic_of, run_line, settle};
use crate::util::{panic_text, run, wait_until};
use windlass::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use windlass::sync::{
    AcquireTimeoutError, Arc, Barrier, Mutex, Semaphore, TryAcquireError, WaitGroup,
};
use windlass::time::{Duration, Instant};
use windlass::yield_now;

const LONG: Duration = Duration::from_secs(1 << 20);

#[test]
fn no_more_than_there_are() {
    on_each(|kind| {
        let shared = Arc::new((Semaphore::new(3), AtomicUsize::new(0)));
        let all = kind.spawn_all(8, {
            let shared = Arc::clone(&shared);
            move |i| {
                let (semaphore, inside) = &*shared;
                for n in 0..200 {
                    let weight = 1 + (n + i) % 3;
                    let permit = semaphore.acquire(weight).unwrap();
                    assert_eq!(permit.num_permits(), weight);
                    assert!(inside.fetch_add(weight, Ordering::SeqCst) + weight <= 3);
                    if n % 16 == 0 {
                        yield_now();
                    }
                    inside.fetch_sub(weight, Ordering::SeqCst);
                }
            }
        });
        all.into_iter().for_each(both::Handle::join);
        assert_eq!(shared.0.available_permits(), 3);
    });
}

/// One that asks for much is not overtaken by those that ask for little.
#[test]
fn permits_are_given_in_order() {
    run_line(|line| {
        let shared = Arc::new((Semaphore::new(0), Mutex::new(Vec::new())));
        let waiters: Vec<_> = [3, 1, 2, 1]
            .into_iter()
            .map(|n| {
                let shared = Arc::clone(&shared);
                line.up(move || {
                    let permit = shared.0.acquire(n).unwrap();
                    shared.1.lock().unwrap().push(n);
                    permit.forget();
                })
            })
            .collect();
        let got = |added: usize, n_served: usize| {
            shared.0.add_permits(added);
            wait_until(|| shared.1.lock().unwrap().len() >= n_served);
            shared.1.lock().unwrap().clone()
        };
        assert_eq!(got(2, 0), [0; 0]);
        // Two are there, but not for one who comes now.
        assert_eq!(
            shared.0.try_acquire(1).unwrap_err(),
            TryAcquireError::NoPermits
        );
        assert_eq!(got(1, 1), [3]);
        assert_eq!(got(2, 2), [3, 1]);
        let mut all = got(2, 4);
        // The last two are served together.
        all[2..].sort_unstable();
        assert_eq!(all, [3, 1, 1, 2]);
        assert_eq!(shared.0.available_permits(), 0);
        waiters.into_iter().for_each(|w| w.join().unwrap());
    });
}

/// Counts of permits and of things to be done stay within their types.
#[test]
fn counts_do_not_wrap() {
    let semaphore = Semaphore::new(0);
    let most_at_once = || {
        semaphore.add_permits(Semaphore::MAX_PERMITS);
        semaphore.try_acquire(Semaphore::MAX_PERMITS).unwrap()
    };
    let mut all = most_at_once();
    // Eight times MAX_PERMITS is about usize::MAX.
    (1..8).for_each(|_| all.merge(most_at_once()));
    assert_eq!(all.num_permits(), 8 * Semaphore::MAX_PERMITS);
    panic_of(|| all.merge(most_at_once()));
    // Permits that could not be merged were given back.
    assert_eq!(semaphore.available_permits(), Semaphore::MAX_PERMITS);
    all.forget();

    let group = WaitGroup::new();
    panic_of(|| group.add(isize::MAX));
    group.add((1 << 62) - 2);
    panic_of(|| group.add(1));
    panic_of(|| group.add(isize::MIN));
    group.add(2 - (1 << 62));
    group.wait();
}

#[test]
fn permits_are_split_merged_forgotten() {
    static SEMAPHORE: Semaphore = Semaphore::new(5);
    let mut all = SEMAPHORE.try_acquire(5).unwrap();
    let two = all.split(2).unwrap();
    assert!(all.split(4).is_none());
    assert_eq!((all.num_permits(), two.num_permits()), (3, 2));
    drop(all);
    assert_eq!(SEMAPHORE.available_permits(), 3);
    let mut one = SEMAPHORE.try_acquire(1).unwrap();
    one.merge(two);
    assert_eq!(one.num_permits(), 3);
    let other = Semaphore::new(1);
    let outcome = panic_of(|| {
        let mut mine = other.try_acquire(1).unwrap();
        mine.merge(SEMAPHORE.try_acquire(1).unwrap());
    });
    assert!(panic_text(&*outcome).contains("different semaphores"));
    assert_eq!(SEMAPHORE.available_permits(), 2);
    one.forget();
    assert_eq!(SEMAPHORE.available_permits(), 2);
    assert_eq!(
        format!("{SEMAPHORE:?}"),
        "Semaphore { permits: 2, closed: false, .. }"
    );
}

#[test]
fn nothing_is_always_there() {
    let semaphore = Semaphore::new(0);
    drop(semaphore.acquire(0).unwrap());
    drop(semaphore.try_acquire(0).unwrap());
    semaphore.add_permits(0);
    assert_eq!(semaphore.available_permits(), 0);
}

#[test]
fn there_is_a_most() {
    let semaphore = Semaphore::new(Semaphore::MAX_PERMITS);
    panic_of(|| semaphore.add_permits(1));
    panic_of(|| semaphore.add_permits(usize::MAX));
    panic_of(|| Semaphore::new(Semaphore::MAX_PERMITS + 1));
    assert_eq!(semaphore.available_permits(), Semaphore::MAX_PERMITS);
    drop(semaphore.try_acquire(Semaphore::MAX_PERMITS).unwrap());
    assert_eq!(
        semaphore.try_acquire(usize::MAX).unwrap_err(),
        TryAcquireError::NoPermits
    );
}

/// A wait that ends without permits lets those behind it have what is there.
#[test]
fn a_wait_may_end_with_its_time() {
    on_each(|kind| {
        let semaphore = Arc::new(Semaphore::new(1));
        let begun = Instant::now();
        let nap = Duration::from_millis(5);
        let outcome = semaphore.acquire_timeout(2, nap);
        assert_eq!(outcome.unwrap_err(), AcquireTimeoutError::Timeout);
        assert!(begun.elapsed() >= nap);
        assert_eq!(semaphore.available_permits(), 1);

        let at_it = Arc::new(AtomicBool::new(false));
        let hasty = kind.spawn({
            let (semaphore, at_it) = (Arc::clone(&semaphore), Arc::clone(&at_it));
            move || {
                at_it.store(true, Ordering::SeqCst);
                semaphore
                    .acquire_timeout(2, Duration::from_millis(5))
                    .is_err()
            }
        });
        wait_until(|| at_it.load(Ordering::SeqCst));
        // Most likely behind the hasty one.
        drop(semaphore.acquire_timeout(1, LONG).unwrap());
        assert!(hasty.join());
        assert_eq!(semaphore.available_permits(), 1);
        drop(semaphore.acquire_timeout(1, Duration::ZERO).unwrap());
    });
}

#[test]
fn a_closed_semaphore_refuses() {
    on_each(|kind| {
        let semaphore = Arc::new(Semaphore::new(1));
        let permit = semaphore.acquire(1).unwrap();
        let waiters = kind.spawn_all(4, {
            let semaphore = Arc::clone(&semaphore);
            move |i| match i {
                0 => semaphore.acquire_timeout(1, LONG).unwrap_err() == AcquireTimeoutError::Closed,
                _ => semaphore.acquire(1).unwrap_err().is_closed(),
            }
        });
        settle();
        assert!(!semaphore.is_closed());
        semaphore.close();
        assert!(semaphore.is_closed());
        assert!(waiters.into_iter().all(both::Handle::join));
        drop(permit);
        assert_eq!(semaphore.available_permits(), 1);
        assert_eq!(
            semaphore.try_acquire(1).unwrap_err(),
            TryAcquireError::Closed
        );
        let error = semaphore.acquire(1).unwrap_err();
        assert_eq!(error.to_string(), "semaphore closed");
        semaphore.close();
    });
}

/// Waits that end with their time against permits that come: none is lost, none is made.
#[test]
fn permits_and_deadlines_agree() {
    on_each(|kind| {
        let semaphore = Arc::new(Semaphore::new(2));
        let all = kind.spawn_all(6, {
            let semaphore = Arc::clone(&semaphore);
            move |i| {
                let mut had = 0;
                for n in 0..200 {
                    let timeout = Duration::from_micros((n * 13 + i as u64 * 7) % 60);
                    if let Ok(permit) = semaphore.acquire_timeout(1 + i % 2, timeout) {
                        had += 1;
                        yield_now();
                        drop(permit);
                    }
                }
                had
            }
        });
        let had: usize = all.into_iter().map(both::Handle::join).sum();
        assert!(had > 0);
        assert_eq!(semaphore.available_permits(), 2);
        drop(semaphore.try_acquire(2).unwrap());
    });
}

#[test]
fn one_leads_each_time() {
    on_each(|kind| {
        const ROUNDS: usize = 50;
        let shared = Arc::new((Barrier::new(5), AtomicUsize::new(0)));
        let all = kind.spawn_all(5, {
            let shared = Arc::clone(&shared);
            move |_| {
                let mut led = 0;
                for round in 1..=ROUNDS {
                    shared.1.fetch_add(1, Ordering::SeqCst);
                    led += usize::from(shared.0.wait().is_leader());
                    // Nobody is a round behind, nobody two ahead.
                    let arrived = shared.1.load(Ordering::SeqCst);
                    assert!((round * 5..(round + 1) * 5).contains(&arrived));
                }
                led
            }
        });
        let led: usize = all.into_iter().map(both::Handle::join).sum();
        assert_eq!(led, ROUNDS);
    });
}

#[test]
fn a_barrier_for_one_is_open() {
    static ONE: Barrier = Barrier::new(1);
    assert!(ONE.wait().is_leader());
    assert!(Barrier::new(0).wait().is_leader());
    let theirs = std::sync::Barrier::new(1);
    assert_eq!(format!("{ONE:?}"), format!("{theirs:?}"));
    assert_eq!(format!("{:?}", ONE.wait()), format!("{:?}", theirs.wait()));
}

#[test]
fn a_group_waits_for_all() {
    on_each(|kind| {
        let group = WaitGroup::new();
        group.wait();
        let done = Arc::new(AtomicUsize::new(0));
        for round in 1..=20 {
            group.add(7);
            let workers = kind.spawn_all(7, {
                let (group, done) = (group.clone(), Arc::clone(&done));
                move |i| {
                    if i % 2 == 0 {
                        yield_now();
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                    group.done();
                }
            });
            let waiters = kind.spawn_all(3, {
                let (group, done) = (group.clone(), Arc::clone(&done));
                move |_| {
                    group.wait();
                    assert_eq!(done.load(Ordering::Relaxed), round * 7);
                }
            });
            group.wait();
            assert_eq!(done.load(Ordering::Relaxed), round * 7);
            waiters.into_iter().for_each(both::Handle::join);
            workers.into_iter().for_each(both::Handle::join);
        }
    });
}

/// Whoever waited for a 0 goes on, though the group is used again at once.
#[test]
fn a_group_used_again_at_once() {
    on_each(|kind| {
        for _ in 0..100 {
            let group = WaitGroup::new();
            group.add(1);
            let waiter = kind.spawn({
                let group = group.clone();
                move || group.wait()
            });
            yield_now();
            group.done();
            group.add(1);
            // It waits for the first 0 or, if it came late, for the second.
            group.done();
            waiter.join();
        }
    });
}

#[test]
fn a_group_has_no_less_than_nothing() {
    let group = WaitGroup::new();
    let text = panic_of(|| group.done());
    assert_eq!(panic_text(&*text), "negative WaitGroup counter");
    group.add(2);
    panic_of(|| group.add(-3));
    assert_eq!(format!("{group:?}"), "WaitGroup { count: 2, .. }");
    group.add(-2);
    group.wait();
    panic_of(|| group.add(isize::MAX));
    group.wait();
}

#[test]
fn a_group_spawns() {
    run(2, || {
        let group = WaitGroup::new();
        let sum = Arc::new(AtomicUsize::new(0));
        for i in 0..100 {
            let sum = Arc::clone(&sum);
            group.go(move || {
                yield_now();
                sum.fetch_add(i, Ordering::Relaxed);
                if i % 10 == 0 {
                    // Done, all the same; without the noise of a hook.
                    std::panic::resume_unwind(Box::new("it panics"));
                }
            });
        }
        group.wait();
        assert_eq!(sum.load(Ordering::Relaxed), 4950);
    });
    let group = WaitGroup::new();
    panic_of(|| group.go(|| ()));
    group.wait();
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    no_more_than_there_are,
    permits_are_given_in_order,
    counts_do_not_wrap,
    permits_are_split_merged_forgotten: "it forgets permits of a static, which the next seed misses",
    nothing_is_always_there,
    there_is_a_most,
    a_wait_may_end_with_its_time,
    a_closed_semaphore_refuses,
    permits_and_deadlines_agree,
    one_leads_each_time,
    a_barrier_for_one_is_open,
    a_group_waits_for_all,
    a_group_used_again_at_once,
    a_group_has_no_less_than_nothing,
    a_group_spawns: "it spawns outside of a runtime, too",
}

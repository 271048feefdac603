//! Mutex and Condvar: what they promise, on threads, in goroutines, and across the two.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::both::{Kind, on_each, panic_of, run_line, settle};
use crate::util::{Census, panic_text, run, wait_until};
use crate::{both, util};
use windlass::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use windlass::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use windlass::time::{Duration, Instant};
use windlass::yield_now;

const LONG: Duration = Duration::from_secs(1 << 20);

fn poison<T: Send + 'static>(kind: Kind, mutex: &Arc<Mutex<T>>) {
    let other = Arc::clone(mutex);
    let outcome = kind.spawn(move || {
        let _guard = other.lock().unwrap();
        panic!("while it holds the lock");
    });
    assert!(outcome.outcome().is_err());
    assert!(mutex.is_poisoned());
}

#[test]
fn a_sum_is_right() {
    on_each(|kind| {
        const EACH: usize = 500;
        let sum = Arc::new(Mutex::new(0));
        let adders = kind.spawn_all(8, {
            let sum = Arc::clone(&sum);
            move |i| {
                for n in 0..EACH {
                    let mut sum = sum.lock().unwrap();
                    let before = *sum;
                    if (n + i) % 64 == 0 {
                        // Held across a park.
                        yield_now();
                    }
                    *sum = before + 1;
                }
            }
        });
        adders.into_iter().for_each(both::Handle::join);
        assert_eq!(*sum.lock().unwrap(), 8 * EACH);
    });
}

#[test]
fn a_held_lock_is_not_had() {
    on_each(|kind| {
        let mutex = Arc::new(Mutex::new(1));
        let guard = mutex.lock().unwrap();
        assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
        let other = Arc::clone(&mutex);
        let waiter = kind.spawn(move || *other.lock().unwrap());
        settle();
        assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
        drop(guard);
        assert_eq!(waiter.join(), 1);
        assert_eq!(*mutex.try_lock().unwrap(), 1);
    });
}

#[test]
fn a_panic_poisons() {
    on_each(|kind| {
        let mutex = Arc::new(Mutex::new(String::from("kept")));
        poison(kind, &mutex);
        let text = mutex.lock().unwrap_err().into_inner().clone();
        assert_eq!(text, "kept");
        assert!(
            matches!(mutex.try_lock(), Err(TryLockError::Poisoned(e)) if **e.get_ref() == "kept")
        );
        mutex.clear_poison();
        assert!(!mutex.is_poisoned());
        assert_eq!(*mutex.lock().unwrap(), "kept");
        poison(kind, &mutex);
        let mut mutex = Arc::into_inner(mutex).unwrap();
        assert_eq!(*mutex.get_mut().unwrap_err().into_inner(), "kept");
        assert_eq!(mutex.into_inner().unwrap_err().into_inner(), "kept");
    });
}

/// Waiters of a lock that a panic gives back get it, poisoned.
#[test]
fn waiters_hear_of_the_poison() {
    on_each(|kind| {
        let mutex = Arc::new(Mutex::new(0));
        let held = Arc::new(AtomicBool::new(false));
        let holder = kind.spawn({
            let (mutex, held) = (Arc::clone(&mutex), Arc::clone(&held));
            move || {
                let _guard = mutex.lock().unwrap();
                held.store(true, Ordering::SeqCst);
                settle();
                panic!("while others wait");
            }
        });
        wait_until(|| held.load(Ordering::SeqCst));
        let waiters = kind.spawn_all(4, {
            let mutex = Arc::clone(&mutex);
            move |_| mutex.lock().is_err()
        });
        assert!(holder.outcome().is_err());
        assert!(waiters.into_iter().all(both::Handle::join));
    });
}

/// A guard that was made while a panic was under way says nothing about it.
#[test]
fn a_lock_in_a_destructor_does_not_poison() {
    struct LocksOnDrop(Arc<Mutex<u32>>);
    impl Drop for LocksOnDrop {
        fn drop(&mut self) {
            *self.0.lock().unwrap() += 1;
        }
    }
    on_each(|kind| {
        let mutex = Arc::new(Mutex::new(0));
        let locks = LocksOnDrop(Arc::clone(&mutex));
        let outcome = kind.spawn(move || {
            let _locks = locks;
            panic!("unwinds");
        });
        assert!(outcome.outcome().is_err());
        assert_eq!(*mutex.lock().unwrap(), 1);
    });
}

/// A contended lock in a destructor of one that unwinds waits, and gets it.
#[test]
fn a_destructor_waits_for_its_lock() {
    struct LocksOnDrop(Arc<Mutex<u32>>, Arc<AtomicBool>);
    impl Drop for LocksOnDrop {
        fn drop(&mut self) {
            self.1.store(true, Ordering::SeqCst);
            *self.0.lock().unwrap() += 1;
        }
    }
    on_each(|kind| {
        let mutex = Arc::new(Mutex::new(0));
        let at_it = Arc::new(AtomicBool::new(false));
        let guard = mutex.lock().unwrap();
        let locks = LocksOnDrop(Arc::clone(&mutex), Arc::clone(&at_it));
        let outcome = kind.spawn(move || {
            let _locks = locks;
            panic!("unwinds");
        });
        wait_until(|| at_it.load(Ordering::SeqCst));
        settle();
        drop(guard);
        assert!(outcome.outcome().is_err());
        assert_eq!(*mutex.lock().unwrap(), 1);
    });
}

#[test]
fn values_come_and_go() {
    let census = Census::default();
    let mutex = Mutex::new(census.member());
    drop(mutex.lock().unwrap());
    drop(mutex.into_inner().unwrap());
    drop(Mutex::new(census.member()));
    census.assert_all_dropped(2);

    let mut mutex = Mutex::from(3);
    *mutex.get_mut().unwrap() += 1;
    assert_eq!(mutex.into_inner().unwrap(), 4);
    assert_eq!(Mutex::<String>::default().into_inner().unwrap(), "");
}

#[test]
fn values_may_be_unsized() {
    let mutex: &Mutex<[u8]> = &Mutex::new([1, 2, 3]);
    mutex.lock().unwrap()[1] = 7;
    assert_eq!(*mutex.lock().unwrap(), [1, 7, 3]);
    let shown: Arc<Mutex<dyn std::fmt::Display + Send>> = Arc::new(Mutex::new(5));
    assert_eq!(shown.lock().unwrap().to_string(), "5");
}

#[test]
fn it_is_a_constant() {
    static TABLE: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    static CHANGED: Condvar = Condvar::new();
    on_each(|kind| {
        TABLE.lock().unwrap().clear();
        let pushers = kind.spawn_all(4, |i| {
            TABLE.lock().unwrap().push(i as u32);
            CHANGED.notify_one();
        });
        let full = CHANGED
            .wait_while(TABLE.lock().unwrap(), |table| table.len() < 4)
            .unwrap();
        assert_eq!(full.iter().sum::<u32>(), 6);
        drop(full);
        pushers.into_iter().for_each(both::Handle::join);
    });
}

#[test]
fn it_prints_as_std_does() {
    let ours = Arc::new(Mutex::new(5));
    let theirs = std::sync::Arc::new(std::sync::Mutex::new(5));
    assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    assert_eq!(format!("{ours:#?}"), format!("{theirs:#?}"));
    {
        let (a, b) = (ours.lock().unwrap(), theirs.lock().unwrap());
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
        assert_eq!(format!("{a:?} {a}"), format!("{b:?} {b}"));
    }
    poison(Kind::Threads, &ours);
    let other = Arc::clone(&theirs);
    panic_of(move || {
        let _guard = other.lock();
        panic!("poisons std's");
    });
    assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    assert_eq!(
        format!("{:?}", Condvar::new()),
        format!("{:?}", std::sync::Condvar::new())
    );
}

/// Moves that are allowed: checked by the compiler.
#[test]
fn guards_may_change_hands() {
    fn sends<T: Send>() {}
    fn shares<T: Sync>() {}
    sends::<Mutex<std::cell::Cell<u8>>>();
    shares::<Mutex<std::cell::Cell<u8>>>();
    sends::<MutexGuard<'_, std::cell::Cell<u8>>>();
    shares::<MutexGuard<'_, u8>>();
    run(2, || {
        static MUTEX: Mutex<u32> = Mutex::new(0);
        *MUTEX.lock().unwrap() = 0;
        for _ in 0..100 {
            let mut guard = MUTEX.lock().unwrap();
            let other = windlass::spawn(move || *guard += 1);
            drop(MUTEX.lock().unwrap());
            other.join().unwrap();
        }
        assert_eq!(*MUTEX.lock().unwrap(), 100);
    });
}

/// Waiters get the lock in order of arrival, as long as nobody overtakes them.
#[test]
fn waiters_are_served_in_order() {
    run_line(|line| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let guard = order.lock().unwrap();
        let waiters: Vec<_> = (0..20)
            .map(|i| {
                let order = Arc::clone(&order);
                line.up(move || order.lock().unwrap().push(i))
            })
            .collect();
        drop(guard);
        waiters.into_iter().for_each(|w| w.join().unwrap());
        assert!(order.lock().unwrap().is_sorted());
    });
}

/// With long holds everybody has waited for more than 1 ms, and the lock goes round.
#[test]
fn a_lock_held_long_goes_round() {
    run(2, || {
        const ROUNDS: usize = 10;
        let log = Arc::new(Mutex::new(Vec::new()));
        let all: Vec<_> = (0..8)
            .map(|i| {
                let log = Arc::clone(&log);
                windlass::spawn(move || {
                    for _ in 0..ROUNDS {
                        let mut log = log.lock().unwrap();
                        log.push(i);
                        windlass::sleep(Duration::from_micros(1_500));
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|g| g.join().unwrap());
        let log = log.lock().unwrap();
        // Once all have come, nobody has it a second time before all others had it. At the end
        // the first ones to be through leave it to the rest.
        let steady = &log[16..log.len() - 16];
        for window in steady.chunks(8) {
            for i in 0..8 {
                let n = window.iter().filter(|&&x| x == i).count();
                assert!(n <= 2, "{i} had it {n} times in {window:?}; all: {log:?}");
            }
        }
    });
}

/// 64 goroutines at one lock, never giving way but by waiting: each has its share.
#[test]
fn a_hammered_lock_is_shared() {
    const HANDS: usize = 64;
    const PS: usize = 2;
    // Enough for each to have had the lock many times over, in rows of 1024 at most. Disorder makes
    // that slow, and shares are then a matter of luck.
    let rows = if util::is_chaotic() { 1 } else { 12 };
    let counts = run(PS, || {
        let stop = Arc::new(AtomicBool::new(false));
        let counts: Arc<Vec<AtomicUsize>> =
            Arc::new((0..HANDS).map(|_| AtomicUsize::new(0)).collect());
        let mutex = Arc::new(Mutex::new(()));
        let all: Vec<_> = (0..HANDS)
            .map(|i| {
                let (stop, counts, mutex) =
                    (Arc::clone(&stop), Arc::clone(&counts), Arc::clone(&mutex));
                windlass::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let guard = mutex.lock().unwrap();
                        counts[i].fetch_add(1, Ordering::Relaxed);
                        // The lock is held across a park: so all are at it all the time.
                        yield_now();
                        drop(guard);
                    }
                })
            })
            .collect();
        while counts
            .iter()
            .map(|n| n.load(Ordering::Relaxed))
            .sum::<usize>()
            < rows * 1024 * HANDS
        {
            windlass::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        all.into_iter().for_each(|g| g.join().unwrap());
        counts
            .iter()
            .map(|n| n.load(Ordering::Relaxed))
            .collect::<Vec<_>>()
    });
    if util::is_chaotic() {
        return assert!(counts.iter().all(|n| *n > 0), "{counts:?}");
    }
    let mean = counts.iter().sum::<usize>() / HANDS;
    let n_short = counts.iter().filter(|&&n| n < mean / 2).count();
    let most = counts.iter().max().unwrap();
    // The kernel may stop the thread of a P for most of this, and with it one who runs there.
    assert!(
        n_short <= PS && *most <= mean * 2,
        "{n_short} too short, mean {mean}, most {most}: {counts:?}"
    );
}

/// One that never lets go for long does not keep another from the lock.
#[test]
fn a_hog_does_not_starve_a_waiter() {
    on_each(|kind| {
        let mutex = Arc::new(Mutex::new(()));
        let stop = Arc::new(AtomicBool::new(false));
        let hogs = kind.spawn_all(2, {
            let (mutex, stop) = (Arc::clone(&mutex), Arc::clone(&stop));
            move |_| {
                while !stop.load(Ordering::Relaxed) {
                    let _guard = mutex.lock().unwrap();
                    yield_now();
                }
            }
        });
        for _ in 0..20 {
            drop(mutex.lock().unwrap());
            yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        hogs.into_iter().for_each(both::Handle::join);
    });
}

#[test]
fn a_leaked_guard_leaves_the_lock_held() {
    on_each(|kind| {
        let mutex = Arc::new(Mutex::new(()));
        let other = Arc::clone(&mutex);
        kind.spawn(move || std::mem::forget(other.lock().unwrap()))
            .join();
        assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
    });
}

#[test]
fn notify_one_wakes_one() {
    on_each(|kind| {
        let shared = Arc::new((Mutex::new(0), Condvar::new(), AtomicUsize::new(0)));
        let waiters = kind.spawn_all(3, {
            let shared = Arc::clone(&shared);
            move |_| {
                let (tickets, changed, waiting) = &*shared;
                let mut tickets = tickets.lock().unwrap();
                waiting.fetch_add(1, Ordering::SeqCst);
                tickets = changed
                    .wait_while(tickets, |tickets| *tickets == 0)
                    .unwrap();
                *tickets -= 1;
            }
        });
        let (tickets, changed, waiting) = &*shared;
        wait_until(|| waiting.load(Ordering::SeqCst) == 3);
        for _ in 0..3 {
            *tickets.lock().unwrap() += 1;
            changed.notify_one();
        }
        waiters.into_iter().for_each(both::Handle::join);
        assert_eq!(*tickets.lock().unwrap(), 0);
        changed.notify_one();
        changed.notify_all();
    });
}

#[test]
fn notify_all_wakes_all_that_wait() {
    on_each(|kind| {
        let shared = Arc::new((Mutex::new((0, false)), Condvar::new()));
        let waiters = kind.spawn_all(10, {
            let shared = Arc::clone(&shared);
            move |_| {
                let mut state = shared.0.lock().unwrap();
                state.0 += 1;
                while !state.1 {
                    state = shared.1.wait(state).unwrap();
                }
            }
        });
        wait_until(|| shared.0.lock().unwrap().0 == 10);
        shared.0.lock().unwrap().1 = true;
        shared.1.notify_all();
        waiters.into_iter().for_each(both::Handle::join);
    });
}

/// Goroutines on one P wait in order, are notified in order, and lock again in order.
#[test]
fn notifications_come_in_order() {
    run_line(|line| {
        let shared = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let waiters: Vec<_> = (0..10)
            .map(|i| {
                let shared = Arc::clone(&shared);
                line.up(move || {
                    let guard = shared.0.lock().unwrap();
                    shared.1.wait(guard).unwrap().push(i);
                })
            })
            .collect();
        {
            // They are woken while the mutex is held, and queue for it.
            let _guard = shared.0.lock().unwrap();
            for _ in 0..10 {
                line.wait_for_park(|| shared.1.notify_one());
            }
        }
        waiters.into_iter().for_each(|w| w.join().unwrap());
        assert_eq!(*shared.0.lock().unwrap(), (0..10).collect::<Vec<_>>());
    });
}

#[test]
fn waits_end_with_their_time() {
    on_each(|_| {
        let (mutex, changed) = (Mutex::new(7), Condvar::new());
        let begun = Instant::now();
        let nap = Duration::from_millis(5);
        // Without a notification it may still return early: then the time goes on.
        let mut guard = mutex.lock().unwrap();
        loop {
            let (again, timeout) = changed.wait_timeout(guard, nap).unwrap();
            guard = again;
            if timeout.timed_out() {
                break;
            }
        }
        assert!(begun.elapsed() >= nap);
        assert_eq!(*guard, 7);
        let (guard, timeout) = changed.wait_timeout(guard, Duration::ZERO).unwrap();
        assert!(timeout.timed_out());
        #[allow(deprecated, reason = "std has it, too")]
        let (guard, in_time) = changed.wait_timeout_ms(guard, 1).unwrap();
        assert!(!in_time);
        let (guard, timeout) = changed.wait_timeout_while(guard, nap, |n| *n == 7).unwrap();
        assert!(timeout.timed_out());
        let (guard, timeout) = changed
            .wait_timeout_while(guard, LONG, |n| *n != 7)
            .unwrap();
        assert!(!timeout.timed_out());
        drop(guard);
        assert!(mutex.try_lock().is_ok());
    });
}

#[test]
fn a_notification_beats_the_time() {
    on_each(|kind| {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let other = Arc::clone(&shared);
        let guard = shared.0.lock().unwrap();
        let notifier = kind.spawn(move || {
            *other.0.lock().unwrap() = true;
            other.1.notify_one();
        });
        let (guard, timeout) = shared
            .1
            .wait_timeout_while(guard, LONG, |ready| !*ready)
            .unwrap();
        assert!(*guard && !timeout.timed_out());
        drop(guard);
        notifier.join();
        // The longest of times is no overflow.
        let guard = shared.0.lock().unwrap();
        let waker = kind.spawn({
            let shared = Arc::clone(&shared);
            move || {
                *shared.0.lock().unwrap() = false;
                shared.1.notify_all();
            }
        });
        let (guard, _) = shared
            .1
            .wait_timeout_while(guard, Duration::MAX, |ready| *ready)
            .unwrap();
        drop(guard);
        waker.join();
    });
}

#[test]
fn a_wait_gives_the_poison_of_the_meantime() {
    on_each(|kind| {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let guard = shared.0.lock().unwrap();
        let other = Arc::clone(&shared);
        let panicker = kind.spawn(move || {
            let mut guard = other.0.lock().unwrap();
            *guard = true;
            other.1.notify_one();
            panic!("with the lock");
        });
        let outcome = shared.1.wait_while(guard, |done| !*done);
        let guard = outcome.unwrap_or_else(PoisonError::into_inner);
        assert!(*guard);
        drop(guard);
        assert!(panicker.outcome().is_err());
        assert!(shared.0.is_poisoned());
        let guard = shared.0.lock().unwrap_err().into_inner();
        let outcome = shared.1.wait_timeout(guard, Duration::ZERO);
        assert!(outcome.unwrap_err().into_inner().1.timed_out());
    });
}

/// A condition that panics gives the lock back.
#[test]
fn a_condition_may_panic() {
    on_each(|_| {
        let (mutex, changed) = (Mutex::new(0), Condvar::new());
        let payload = panic_of(|| {
            let guard = mutex.lock().unwrap();
            drop(changed.wait_while(guard, |_| panic!("no condition")));
        });
        assert_eq!(panic_text(&*payload), "no condition");
        assert!(mutex.is_poisoned());
        assert!(matches!(mutex.try_lock(), Err(TryLockError::Poisoned(_))));
    });
}

/// A bounded queue with a mutex and two condition variables: every item once, in the
/// order of its producer.
#[test]
fn a_bounded_queue() {
    struct Queue {
        items: Mutex<VecDeque<(usize, usize)>>,
        has_items: Condvar,
        has_room: Condvar,
    }
    on_each(|kind| {
        const EACH: usize = 300;
        let queue = Arc::new(Queue {
            items: Mutex::default(),
            has_items: Condvar::default(),
            has_room: Condvar::default(),
        });
        let producers = kind.spawn_all(4, {
            let queue = Arc::clone(&queue);
            move |i| {
                for n in 0..EACH {
                    let items = queue.items.lock().unwrap();
                    let mut items = queue.has_room.wait_while(items, |q| q.len() >= 3).unwrap();
                    items.push_back((i, n));
                    drop(items);
                    queue.has_items.notify_one();
                }
            }
        });
        let consumers = kind.spawn_all(4, {
            let queue = Arc::clone(&queue);
            move |_| {
                let mut mine = Vec::new();
                for _ in 0..EACH {
                    let items = queue.items.lock().unwrap();
                    let mut items = queue.has_items.wait_while(items, |q| q.is_empty()).unwrap();
                    mine.push(items.pop_front().unwrap());
                    drop(items);
                    queue.has_room.notify_one();
                }
                mine
            }
        });
        producers.into_iter().for_each(both::Handle::join);
        let parts: Vec<_> = consumers.into_iter().map(both::Handle::join).collect();
        for part in &parts {
            for i in 0..4 {
                assert!(part.iter().filter(|item| item.0 == i).is_sorted());
            }
        }
        let mut all: Vec<_> = parts.concat();
        all.sort_unstable();
        assert!(
            all.iter()
                .copied()
                .eq((0..4).flat_map(|i| (0..EACH).map(move |n| (i, n))))
        );
    });
}

/// Threads, goroutines of two runtimes and their destructors at one lock.
#[test]
fn two_runtimes_and_threads_share_a_lock() {
    static TOTAL: Mutex<usize> = Mutex::new(0);
    const EACH: usize = 300;
    let work = || {
        let all: Vec<_> = (0..8)
            .map(|_| {
                windlass::spawn(|| {
                    for n in 0..EACH {
                        let mut total = TOTAL.lock().unwrap();
                        *total += 1;
                        if n % 100 == 0 {
                            windlass::blocking(yield_now);
                        }
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|g| g.join().unwrap());
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(2, work));
        scope.spawn(|| run(1, work));
        for _ in 0..2 {
            scope.spawn(|| (0..EACH).for_each(|_| *TOTAL.lock().unwrap() += 1));
        }
    });
    assert_eq!(*TOTAL.lock().unwrap(), 18 * EACH);
}

/// Panics of holders among much traffic: the lock is always given back.
#[test]
fn panics_give_the_lock_back() {
    on_each(|kind| {
        let mutex = Arc::new(Mutex::new(0_usize));
        let all = kind.spawn_all(6, {
            let mutex = Arc::clone(&mutex);
            move |i| {
                for n in 0..50 {
                    let _ = catch_unwind(AssertUnwindSafe(|| {
                        let mut sum = mutex.lock().unwrap_or_else(PoisonError::into_inner);
                        *sum += 1;
                        if n % 10 == i {
                            std::panic::resume_unwind(Box::new("a holder's"));
                        }
                    }));
                }
            }
        });
        all.into_iter().for_each(both::Handle::join);
        assert_eq!(*mutex.lock().unwrap_err().into_inner(), 300);
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    a_sum_is_right,
    a_held_lock_is_not_had,
    a_panic_poisons,
    waiters_hear_of_the_poison,
    a_lock_in_a_destructor_does_not_poison,
    a_destructor_waits_for_its_lock: "it waits in a destructor while it unwinds",
    values_come_and_go,
    values_may_be_unsized,
    it_is_a_constant,
    it_prints_as_std_does: "it uses threads",
    guards_may_change_hands,
    waiters_are_served_in_order: "the seed draws who gets the lock",
    a_lock_held_long_goes_round: "the seed draws who gets the lock",
    a_hammered_lock_is_shared: "it takes too many steps",
    a_hog_does_not_starve_a_waiter,
    a_leaked_guard_leaves_the_lock_held,
    notify_one_wakes_one,
    notify_all_wakes_all_that_wait,
    notifications_come_in_order: "the seed draws who gets the lock",
    waits_end_with_their_time,
    a_notification_beats_the_time,
    a_wait_gives_the_poison_of_the_meantime,
    a_condition_may_panic,
    a_bounded_queue,
    two_runtimes_and_threads_share_a_lock: "it uses threads",
    panics_give_the_lock_back,
}

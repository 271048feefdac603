//! Locks, guards and waiters when a runtime ends: docs/SAFETY.md,
//! "Cancellation".

use std::time::Duration;

use crate::util;
use crate::util::{Census, hang_guard, runtime, wait_until};
use windlass::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use windlass::sync::{
    Arc, Barrier, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock, Semaphore, WaitGroup,
};
use windlass::task::{Cancelled, JoinHandle};
use windlass::{sleep, spawn, yield_now};

const FOREVER: Duration = Duration::from_secs(1 << 30);

/// Everything to wait in, none of it ever to be had.
struct Rooms {
    mutex: Mutex<()>,
    lock: RwLock<()>,
    read: RwLock<()>,
    free: Mutex<u32>,
    changed: Condvar,
    semaphore: Semaphore,
    barrier: Barrier,
    group: WaitGroup,
    once: Once,
    cell: OnceLock<()>,
}

/// Goroutines that wait in every way there is, each with a member of the census.
fn wait_everywhere(
    rooms: &Arc<Rooms>,
    census: &Census,
    inside: &Arc<AtomicUsize>,
) -> Vec<JoinHandle<()>> {
    let ways: [fn(&Rooms); 15] = [
        |r| drop(r.mutex.lock()),
        |r| drop(r.lock.read()),
        |r| drop(r.lock.write()),
        |r| drop(r.read.write()),
        // Behind a writer, mostly.
        |r| drop((r.lock.read(), r.read.write())),
        |r| drop(r.changed.wait(r.free.lock().unwrap())),
        |r| drop(r.changed.wait_while(r.free.lock().unwrap(), |_| true)),
        |r| drop(r.changed.wait_timeout(r.free.lock().unwrap(), FOREVER)),
        |r| {
            drop(
                r.changed
                    .wait_timeout_while(r.free.lock().unwrap(), FOREVER, |_| true),
            )
        },
        |r| drop(r.semaphore.acquire(1)),
        |r| drop(r.semaphore.acquire_timeout(2, FOREVER)),
        |r| _ = r.barrier.wait(),
        |r| r.group.wait(),
        |r| r.once.wait(),
        |r| _ = r.cell.wait(),
    ];
    ways.into_iter()
        .cycle()
        .take(30)
        .map(|way| {
            let (rooms, member) = (Arc::clone(rooms), census.member());
            let inside = Arc::clone(inside);
            spawn(move || {
                let _member = Box::new(member);
                inside.fetch_add(1, Ordering::SeqCst);
                way(&rooms);
                unreachable!("there is nothing to be had");
            })
        })
        .collect()
}

#[test]
fn waiters_unwind_and_leave_nothing() {
    for n_ps in [1, 2] {
        let _guard = hang_guard();
        let census = Census::default();
        let rooms = Arc::new(Rooms {
            mutex: Mutex::default(),
            lock: RwLock::default(),
            read: RwLock::default(),
            free: Mutex::default(),
            changed: Condvar::new(),
            semaphore: Semaphore::new(0),
            barrier: Barrier::new(100),
            group: WaitGroup::new(),
            once: Once::new(),
            cell: OnceLock::new(),
        });
        rooms.group.add(1);
        // Held by this thread, until the runtime has ended.
        let held = (
            rooms.mutex.lock().unwrap(),
            rooms.lock.write().unwrap(),
            rooms.read.read().unwrap(),
        );
        let inside = Arc::new(AtomicUsize::new(0));
        let handles = runtime(n_ps).run(|| {
            let handles = wait_everywhere(&rooms, &census, &inside);
            wait_until(|| inside.load(Ordering::SeqCst) == handles.len());
            sleep(Duration::from_millis(1));
            handles
        });
        for handle in handles {
            assert!(handle.join().unwrap_err().is::<Cancelled>());
        }
        census.assert_all_dropped(30);
        drop(held);
        // Everything can be used as if they had never come.
        drop(rooms.mutex.try_lock().unwrap());
        drop(rooms.lock.try_write().unwrap());
        drop(rooms.read.try_write().unwrap());
        drop(rooms.free.try_lock().unwrap());
        rooms.changed.notify_all();
        rooms.semaphore.add_permits(1);
        drop(rooms.semaphore.try_acquire(1).unwrap());
        rooms.group.done();
        rooms.once.call_once(|| ());
        rooms.cell.set(()).unwrap();
        let meets = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(|| {
                    meets.fetch_add(
                        usize::from(rooms.barrier.wait().is_leader()),
                        Ordering::Relaxed,
                    )
                });
            }
        });
        assert_eq!(meets.load(Ordering::Relaxed), 1);
    }
}

/// Guards of goroutines that are cancelled give the lock back, and poison nothing.
#[test]
fn guards_are_given_back_without_poison() {
    let _guard = hang_guard();
    static CELL: OnceLock<u32> = OnceLock::new();
    static LAZY: LazyLock<u32> = LazyLock::new(|| {
        sleep(FOREVER);
        1
    });
    let shared = Arc::new((
        Mutex::new(0),
        RwLock::new(0),
        Semaphore::new(3),
        Once::new(),
    ));
    let other = Arc::clone(&shared);
    let started = Arc::new(AtomicUsize::new(0));
    runtime(2).run(|| {
        let begun = Arc::clone(&started);
        spawn(move || {
            let _permits = other.2.acquire(2).unwrap();
            let _read = other.1.read().unwrap();
            let mut value = other.0.lock().unwrap();
            *value = 1;
            begun.fetch_add(1, Ordering::SeqCst);
            sleep(FOREVER);
        });
        let (other, begun) = (Arc::clone(&shared), Arc::clone(&started));
        spawn(move || {
            other.3.call_once(|| {
                begun.fetch_add(1, Ordering::SeqCst);
                sleep(FOREVER);
            });
        });
        let begun = Arc::clone(&started);
        spawn(move || {
            CELL.get_or_init(|| {
                begun.fetch_add(1, Ordering::SeqCst);
                sleep(FOREVER);
                1
            });
        });
        let begun = Arc::clone(&started);
        spawn(move || {
            begun.fetch_add(1, Ordering::SeqCst);
            *LAZY
        });
        wait_until(|| started.load(Ordering::SeqCst) == 4);
        (0..50).for_each(|_| yield_now());
        sleep(Duration::from_millis(5));
    });
    let (mutex, lock, semaphore, once) = &*shared;
    assert_eq!(*mutex.try_lock().unwrap(), 1);
    assert!(!mutex.is_poisoned());
    drop(lock.try_write().unwrap());
    assert_eq!(semaphore.available_permits(), 3);
    // Initializers that were cut short have not run: others may; a lazy value has no other.
    once.call_once(|| ());
    assert_eq!(*CELL.get_or_init(|| 2), 2);
    assert!(std::panic::catch_unwind(|| *LAZY).is_err());
}

/// A panic of a goroutine's own poisons, also when the runtime ends around it.
#[test]
fn a_panic_at_the_end_still_poisons() {
    let _guard = hang_guard();
    let mutex = Arc::new(Mutex::new(0));
    let ended = Arc::new(AtomicBool::new(false));
    runtime(2).run(|| {
        let (mutex, over) = (Arc::clone(&mutex), Arc::clone(&ended));
        let running = Arc::new(AtomicBool::new(false));
        let begun = Arc::clone(&running);
        spawn(move || {
            begun.store(true, Ordering::SeqCst);
            // Until main has returned: this one never waits, so it is not cancelled.
            while !over.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
            let _guard = mutex.lock().unwrap();
            std::panic::resume_unwind(Box::new("its own"));
        });
        wait_until(|| running.load(Ordering::SeqCst));
        sets_later(&ended);
    });
    assert!(mutex.is_poisoned());
}

/// Sets the flag when the run is most likely ending.
fn sets_later(flag: &Arc<AtomicBool>) {
    let flag = Arc::clone(flag);
    #[allow(clippy::disallowed_methods, reason = "a plain thread sleeps")]
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        flag.store(true, Ordering::SeqCst);
    });
}

/// In destructors of goroutines that are cancelled: locks are waited for, everything else
/// fails at once.
#[test]
fn destructors_get_locks_and_wait_for_nothing_else() {
    struct Uses {
        mutex: Arc<Mutex<usize>>,
        semaphore: Arc<Semaphore>,
        outcomes: Arc<Mutex<Vec<bool>>>,
        _member: util::Member,
    }
    impl Drop for Uses {
        fn drop(&mut self) {
            let mut outcomes = Vec::new();
            // Contended: all of them come here at once, and one holds it over many turns.
            let mut n = self.mutex.lock().unwrap();
            let before = *n;
            yield_now();
            *n = before + 1;
            drop(n);
            let error = self.semaphore.acquire(1).unwrap_err();
            outcomes.push(!error.is_closed());
            outcomes.push(self.semaphore.acquire_timeout(1, FOREVER).is_err());
            let never = Condvar::new();
            let guard = self.mutex.lock().unwrap();
            let guard = never.wait(guard).unwrap();
            let (guard, timeout) = never.wait_timeout(guard, FOREVER).unwrap();
            outcomes.push(timeout.timed_out());
            drop(guard);
            outcomes.push(!Barrier::new(2).wait().is_leader());
            let group = WaitGroup::new();
            group.add(1);
            group.wait();
            self.outcomes.lock().unwrap().extend(outcomes);
        }
    }
    const N: usize = 12;
    let _guard = hang_guard();
    let census = Census::default();
    let mutex = Arc::new(Mutex::new(0));
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    runtime(2).run(|| {
        let begun = Arc::new(AtomicUsize::new(0));
        let semaphore = Arc::new(Semaphore::new(0));
        for _ in 0..N {
            let uses = Uses {
                mutex: Arc::clone(&mutex),
                semaphore: Arc::clone(&semaphore),
                outcomes: Arc::clone(&outcomes),
                _member: census.member(),
            };
            let begun = Arc::clone(&begun);
            spawn(move || {
                let _uses = uses;
                begun.fetch_add(1, Ordering::SeqCst);
                sleep(FOREVER);
            });
        }
        wait_until(|| begun.load(Ordering::SeqCst) == N);
    });
    census.assert_all_dropped(N);
    assert_eq!(*mutex.lock().unwrap(), N);
    assert_eq!(*outcomes.lock().unwrap(), [true; 4 * N]);
}

/// A plain thread waits on, whatever runtimes end around it.
#[test]
fn threads_wait_on() {
    let _guard = hang_guard();
    let shared = Arc::new((Mutex::new(false), Condvar::new()));
    let waiter = {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || {
            let done = shared.0.lock().unwrap();
            drop(shared.1.wait_while(done, |done| !*done).unwrap());
        })
    };
    for _ in 0..5 {
        runtime(2).run(|| {
            for _ in 0..4 {
                let shared = Arc::clone(&shared);
                spawn(move || drop(shared.1.wait_while(shared.0.lock().unwrap(), |_| true)));
            }
            (0..20).for_each(|_| yield_now());
            // Goroutines may swallow it; the thread's condition has not changed.
            shared.1.notify_one();
        });
    }
    assert!(!waiter.is_finished());
    *shared.0.lock().unwrap() = true;
    shared.1.notify_all();
    waiter.join().unwrap();
}

/// A goroutine that was notified and then cannot have the lock again gives its notification to the thread that waits
/// behind it.
#[test]
fn a_notification_outlives_the_run_of_its_waiter() {
    let _guard = hang_guard();
    let shared = Arc::new((Mutex::new(0), Condvar::new()));
    let is_over = Arc::new(AtomicBool::new(false));
    // Who counts itself in gives the lock back when its wait has begun.
    let wait = |shared: &(Mutex<u32>, Condvar)| {
        let mut n = shared.0.lock().unwrap();
        *n += 1;
        drop(shared.1.wait(n).unwrap());
    };
    let (thread, keeper) = runtime(2).run({
        let (shared, is_over) = (Arc::clone(&shared), Arc::clone(&is_over));
        move || {
            let first = Arc::clone(&shared);
            drop(spawn(move || wait(&first)));
            wait_until(|| *shared.0.lock().unwrap() == 1);
            let second = Arc::clone(&shared);
            let thread = std::thread::spawn(move || wait(&second));
            wait_until(|| *shared.0.lock().unwrap() == 2);
            let (keeps, has_lock) = (Arc::clone(&shared), Arc::new(AtomicBool::new(false)));
            let keeps_it = Arc::clone(&has_lock);
            let keeper = std::thread::spawn(move || {
                let _guard = keeps.0.lock().unwrap();
                keeps_it.store(true, Ordering::SeqCst);
                wait_until(|| is_over.load(Ordering::SeqCst));
            });
            wait_until(|| has_lock.load(Ordering::SeqCst));
            shared.1.notify_one();
            (thread, keeper)
        }
    });
    is_over.store(true, Ordering::SeqCst);
    keeper.join().unwrap();
    thread.join().unwrap();
}

/// Many runs that end in the middle of traffic at one lock, which a thread uses, too.
#[test]
fn runs_end_in_the_middle() {
    let _guard = hang_guard();
    let mutex = Arc::new(Mutex::new(0_usize));
    let stop = Arc::new(AtomicBool::new(false));
    let thread = {
        let (mutex, stop) = (Arc::clone(&mutex), Arc::clone(&stop));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                *mutex.lock().unwrap() += 1;
                std::hint::spin_loop();
            }
        })
    };
    for round in 0..20 {
        runtime(2).run(|| {
            let turns = Arc::new(AtomicUsize::new(0));
            for _ in 0..16 {
                let (mutex, turns) = (Arc::clone(&mutex), Arc::clone(&turns));
                spawn(move || {
                    loop {
                        *mutex.lock().unwrap() += 1;
                        turns.fetch_add(1, Ordering::Relaxed);
                        yield_now();
                    }
                });
            }
            wait_until(|| turns.load(Ordering::Relaxed) > round * 10);
        });
    }
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    assert!(!mutex.is_poisoned());
    drop(mutex.try_lock().unwrap());
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    waiters_unwind_and_leave_nothing: "it ends a run of its own",
    guards_are_given_back_without_poison: "it ends a run of its own",
    a_panic_at_the_end_still_poisons: "it ends a run of its own",
    destructors_get_locks_and_wait_for_nothing_else: "it ends a run of its own",
    threads_wait_on: "it ends a run of its own",
    a_notification_outlives_the_run_of_its_waiter: "it ends a run of its own",
    runs_end_in_the_middle: "it ends a run of its own",
}

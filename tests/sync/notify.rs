//! Notify, SingleFlight and Pool, on threads, in goroutines, and across the two.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::both;
use crate::both::{on_each, panic_of, run_line, settle};
use crate::util::{Census, Member, hang_guard, panic_text, run, runtime, wait_until};
use windlass::context::{Context, Error};
use windlass::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use windlass::sync::{Arc, Mutex, Notify, Pool, Pooled, SingleFlight};
use windlass::task::Cancelled;
use windlass::time::{Duration, Instant};
use windlass::{sleep, spawn, yield_now};

const SOON: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(1 << 20);

/// Consumers wait for a queue to fill: a lost notification would stop them.
#[test]
fn no_notification_is_lost() {
    on_each(|kind| {
        let shared = Arc::new((Mutex::new((Vec::new(), false)), Notify::new()));
        let consumers = kind.spawn_all(3, {
            let shared = Arc::clone(&shared);
            move |_| {
                let (queue, filled) = &*shared;
                let mut sum = 0;
                loop {
                    let listener = filled.listen();
                    let mut queue = queue.lock().unwrap();
                    if let Some(n) = queue.0.pop() {
                        sum += n;
                    } else if queue.1 {
                        return sum;
                    } else {
                        drop(queue);
                        listener.wait();
                    }
                }
            }
        });
        for n in 1..=200 {
            shared.0.lock().unwrap().0.push(n);
            shared.1.notify_one();
            if n % 20 == 0 {
                yield_now();
            }
        }
        shared.0.lock().unwrap().1 = true;
        shared.1.notify_waiters();
        let sums = consumers.into_iter().map(both::Handle::join);
        assert_eq!(sums.sum::<usize>(), 20_100);
    });
}

/// As many notifications as waiters, one for each.
#[test]
fn each_notification_wakes_one() {
    run_line(|line| {
        let notify = Arc::new(Notify::new());
        let n_woken = Arc::new(AtomicUsize::new(0));
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let (notify, n_woken) = (Arc::clone(&notify), Arc::clone(&n_woken));
                line.up(move || {
                    notify.wait();
                    n_woken.fetch_add(1, Ordering::SeqCst);
                })
            })
            .collect();
        for n in 1..=2 {
            notify.notify_one();
            wait_until(|| n_woken.load(Ordering::SeqCst) == n);
            settle();
            assert_eq!(n_woken.load(Ordering::SeqCst), n);
        }
        notify.notify_waiters();
        waiters.into_iter().for_each(|w| w.join().unwrap());
        assert!(!notify.wait_timeout(Duration::ZERO), "it stored one");
    });
}

#[test]
fn one_permit_is_stored() {
    let notify = Notify::new();
    notify.notify_waiters();
    assert!(!notify.wait_timeout(Duration::ZERO));
    (0..3).for_each(|_| notify.notify_one());
    notify.wait();
    assert!(!notify.wait_timeout(Duration::ZERO));
    // notify_waiters leaves it alone.
    notify.notify_one();
    notify.notify_waiters();
    assert!(notify.wait_timeout(Duration::ZERO));
    assert!(!notify.wait_timeout(Duration::ZERO));
    assert_eq!(format!("{notify:?}"), "Notify { .. }");
}

/// A listener counts as a waiter from the start.
#[test]
fn listeners_are_waiters() {
    let notify = Notify::new();
    let (one, two) = (notify.listen(), notify.listen());
    (0..5).for_each(|_| notify.notify_one());
    // One for each of the two, and one that is stored.
    assert!(notify.wait_timeout(Duration::ZERO));
    assert!(!notify.wait_timeout(Duration::ZERO), "it is a listener's");
    assert!(one.wait_timeout(Duration::ZERO));
    two.wait();
    assert!(!notify.wait_timeout(Duration::ZERO));

    // One that is dropped passes its notification on: it is stored.
    let (one, two) = (notify.listen(), notify.listen());
    notify.notify_one();
    drop(one);
    assert!(two.wait_timeout(Duration::ZERO));
    let one = notify.listen();
    notify.notify_one();
    notify.notify_one();
    drop(one);
    assert!(notify.wait_timeout(Duration::ZERO));
    assert!(!notify.wait_timeout(Duration::ZERO), "only one is stored");

    // notify_waiters reaches those that were there, not those that come later.
    let one = notify.listen();
    notify.notify_waiters();
    let two = notify.listen();
    one.wait();
    assert!(!two.wait_timeout(Duration::ZERO));

    // Of permits that were meant for listeners it leaves one at most.
    let listeners = [notify.listen(), notify.listen()];
    (0..5).for_each(|_| notify.notify_one());
    notify.notify_waiters();
    listeners
        .into_iter()
        .for_each(windlass::sync::Listener::wait);
    assert!(notify.wait_timeout(Duration::ZERO));
    assert!(!notify.wait_timeout(Duration::ZERO));
}

#[test]
fn a_dropped_listener_passes_its_notification_to_a_waiter() {
    run_line(|line| {
        let notify = Arc::new(Notify::new());
        let listener = notify.listen();
        let waiter = {
            let notify = Arc::clone(&notify);
            line.up(move || notify.wait())
        };
        // The one that waits is served first; the other one is for the listener.
        notify.notify_one();
        waiter.join().unwrap();
        notify.notify_one();
        let waiter = {
            let notify = Arc::clone(&notify);
            line.up(move || notify.wait())
        };
        drop(listener);
        waiter.join().unwrap();
        assert!(!notify.wait_timeout(Duration::ZERO));
    });
}

#[test]
fn waits_for_notifications_end_with_time_and_contexts() {
    on_each(|kind| {
        let notify = Arc::new(Notify::new());
        let other = Arc::clone(&notify);
        let waiter = kind.spawn(move || {
            let begin = Instant::now();
            assert!(!other.wait_timeout(SOON));
            assert!(!other.listen().wait_timeout(SOON));
            assert!(begin.elapsed() >= 2 * SOON);
            let ctx = Context::background().with_timeout(SOON);
            assert_eq!(other.wait_context(&ctx), Err(Error::DeadlineExceeded));
            let listener = other.listen();
            assert_eq!(listener.wait_context(&ctx), Err(Error::DeadlineExceeded));
            assert!(!ctx.run(|| other.wait_timeout(LONG)));
        });
        waiter.join();
        // None of them has left anything behind.
        notify.notify_one();
        assert!(notify.wait_timeout(Duration::ZERO));
        assert!(!notify.wait_timeout(Duration::ZERO));
    });
}

/// Waits that end with their time while notifications come: each notification is received or stored.
#[test]
fn notifications_and_deadlines_agree() {
    on_each(|kind| {
        let notify = Arc::new((Notify::new(), AtomicUsize::new(0)));
        let waiters = kind.spawn_all(2, {
            let notify = Arc::clone(&notify);
            move |_| {
                for _ in 0..100 {
                    if notify.0.wait_timeout(Duration::from_micros(20)) {
                        notify.1.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
        });
        let mut n_sent = 0;
        for _ in 0..50 {
            // One at a time, so none is absorbed.
            if notify.1.load(Ordering::SeqCst) == n_sent {
                notify.0.notify_one();
                n_sent += 1;
            }
            yield_now();
        }
        waiters.into_iter().for_each(both::Handle::join);
        let is_stored = notify.0.wait_timeout(Duration::ZERO);
        let n_received = notify.1.load(Ordering::SeqCst);
        assert_eq!(n_received + usize::from(is_stored), n_sent);
    });
}

/// All that ask at once share a call.
#[test]
fn calls_of_a_key_are_shared() {
    run_line(|line| {
        let flights = Arc::new(SingleFlight::new());
        let (calls, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let callers: Vec<_> = (0..5)
            .map(|_| {
                let flights = Arc::clone(&flights);
                let (calls, gate) = (Arc::clone(&calls), Arc::clone(&gate));
                line.up(move || {
                    flights.run("key", || {
                        calls.fetch_add(1, Ordering::SeqCst);
                        gate.wait();
                        "value".to_owned()
                    })
                })
            })
            .collect();
        // Another key is not concerned.
        assert_eq!(flights.run("other", || "else".to_owned()), "else");
        gate.notify_one();
        for caller in callers {
            assert_eq!(caller.join().unwrap(), "value");
        }
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        // Nothing is kept.
        assert_eq!(flights.run("key", || "new".to_owned()), "new");
    });
}

/// At most one closure of a key runs, and every caller gets a value of its key.
#[test]
fn calls_of_a_key_do_not_overlap() {
    on_each(|kind| {
        let shared = Arc::new((
            SingleFlight::new(),
            [const { AtomicBool::new(false) }; 3],
            AtomicUsize::new(0),
        ));
        let callers = kind.spawn_all(4, {
            let shared = Arc::clone(&shared);
            move |i| {
                let (flights, running, n_calls) = &*shared;
                for n in 0..60 {
                    let key = (n + i) % 3;
                    let value = flights.run(key, || {
                        assert!(!running[key].swap(true, Ordering::SeqCst));
                        n_calls.fetch_add(1, Ordering::SeqCst);
                        yield_now();
                        running[key].store(false, Ordering::SeqCst);
                        key * 10
                    });
                    assert_eq!(value, key * 10);
                }
            }
        });
        callers.into_iter().for_each(both::Handle::join);
        assert!(shared.2.load(Ordering::SeqCst) <= 240);
    });
}

/// A panic reaches all that share the call; the next call is a new one.
#[test]
fn panics_reach_all_that_share_a_call() {
    run_line(|line| {
        let flights = Arc::new(SingleFlight::new());
        let gate = Arc::new(Notify::new());
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let (flights, gate) = (Arc::clone(&flights), Arc::clone(&gate));
                line.up(move || {
                    flights.run(1, || -> u32 {
                        gate.wait();
                        resume_unwind(Box::new("it is broken"))
                    })
                })
            })
            .collect();
        gate.notify_one();
        for (n, caller) in callers.into_iter().enumerate() {
            let payload = caller.join().unwrap_err();
            assert!(panic_text(&*payload).ends_with("it is broken"), "{n}");
        }
        assert_eq!(flights.run(1, || 2), 2);
    });
}

#[test]
fn a_forgotten_call_is_not_joined() {
    run_line(|line| {
        let flights = Arc::new(SingleFlight::new());
        let gate = Arc::new(Notify::new());
        let start = |n| {
            let (flights, gate) = (Arc::clone(&flights), Arc::clone(&gate));
            line.up(move || {
                flights.run("key", || {
                    gate.wait();
                    n
                })
            })
        };
        let old = [start(1), start(2)];
        assert!(flights.forget("key"));
        assert!(!flights.forget("key"));
        let new = [start(3), start(4)];
        gate.notify_waiters();
        assert_eq!(old.map(|caller| caller.join().unwrap()), [1, 1]);
        assert_eq!(new.map(|caller| caller.join().unwrap()), [3, 3]);
    });
}

#[test]
fn a_wait_for_a_call_ends_with_its_context() {
    run_line(|line| {
        let flights = Arc::new(SingleFlight::new());
        let gate = Arc::new(Notify::new());
        let leader = {
            let (flights, gate) = (Arc::clone(&flights), Arc::clone(&gate));
            line.up(move || {
                flights.run("key", || {
                    gate.wait();
                    7
                })
            })
        };
        let ctx = Context::background().with_timeout(SOON);
        let late = flights.run_context(&ctx, "key", || unreachable!("it runs already"));
        assert_eq!(late, Err(Error::DeadlineExceeded));
        // Without a wait it succeeds, and the closure does not run inside the context.
        let value = flights.run_context(&ctx, "other", || {
            sleep(Duration::from_micros(1));
            8
        });
        assert_eq!(value, Ok(8));
        gate.notify_one();
        assert_eq!(leader.join().unwrap(), 7);
    });
}

/// Keys and values that panic when they are cloned, compared or dropped harm only their caller.
#[test]
fn values_and_keys_may_panic() {
    #[derive(PartialEq, Eq, Hash, Debug)]
    struct Key(u32);
    impl Clone for Key {
        fn clone(&self) -> Key {
            if self.0 == 13 {
                resume_unwind(Box::new("key"));
            }
            Key(self.0)
        }
    }
    #[derive(Debug)]
    struct Value(Arc<AtomicBool>);
    impl Clone for Value {
        fn clone(&self) -> Value {
            if self.0.swap(false, Ordering::SeqCst) {
                resume_unwind(Box::new("value"));
            }
            Value(Arc::clone(&self.0))
        }
    }
    run_line(|line| {
        let flights = Arc::new(SingleFlight::<Key, Value>::new());
        panic_of(|| flights.run(Key(13), || unreachable!("it has no key")));
        let (panics, gate) = (Arc::new(AtomicBool::new(true)), Arc::new(Notify::new()));
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let flights = Arc::clone(&flights);
                let (panics, gate) = (Arc::clone(&panics), Arc::clone(&gate));
                line.up(move || {
                    flights.run(Key(1), || {
                        gate.wait();
                        Value(panics)
                    })
                })
            })
            .collect();
        gate.notify_one();
        let outcomes = callers.into_iter().map(windlass::task::JoinHandle::join);
        assert_eq!(outcomes.filter(Result::is_err).count(), 1);
        let value = flights.run(Key(1), || Value(Arc::default()));
        assert!(!value.0.load(Ordering::SeqCst));
    });
}

/// A key that is equal to all others. It panics once at a comparison or a drop, if that is set.
#[derive(Debug)]
struct Key(Arc<[AtomicBool; 2]>);

const EQ: usize = 0;
const DROP: usize = 1;

impl Key {
    fn panic_if(&self, at: usize) {
        if self.0[at].swap(false, Ordering::SeqCst) {
            resume_unwind(Box::new("key"));
        }
    }
}

impl Clone for Key {
    fn clone(&self) -> Key {
        Key(Arc::clone(&self.0))
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.panic_if(DROP);
    }
}

impl PartialEq for Key {
    fn eq(&self, _: &Key) -> bool {
        self.panic_if(EQ);
        true
    }
}

impl Eq for Key {}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u8(1);
    }
}

/// A key that panics when it is dropped, in a caller that takes an ended call out of the map, leaves no call that nobody
/// ends.
#[test]
fn a_key_that_panics_when_it_is_dropped_leaves_no_call() {
    on_each(|_| {
        let key = Key(Arc::default());
        let set = |at: usize| key.0[at].store(true, Ordering::SeqCst);
        let flights = SingleFlight::new();
        // The call ends, and cannot be removed.
        panic_of(|| {
            flights.run(key.clone(), || {
                set(EQ);
                1
            })
        });
        set(DROP);
        panic_of(|| flights.run(key.clone(), || 2));
        assert!(!flights.forget(&key), "nobody would end it");
        assert_eq!(flights.run(key.clone(), || 3), 3);
    });
}

/// A call whose removal failed is not joined when it has ended.
#[test]
fn a_call_that_stays_in_the_map_is_not_joined() {
    on_each(|_| {
        let key = Key(Arc::default());
        let flights = SingleFlight::new();
        panic_of(|| {
            flights.run(key.clone(), || {
                key.0[EQ].store(true, Ordering::SeqCst);
                1
            })
        });
        assert!(!flights.forget(&key), "it has ended");
        panic_of(|| {
            flights.run(key.clone(), || {
                key.0[EQ].store(true, Ordering::SeqCst);
                2
            })
        });
        assert_eq!(flights.run(key, || 3), 3);
    });
}

/// The goroutine that runs a closure is unwound with its runtime: a thread that waits for the result
/// makes its own.
#[test]
fn a_call_that_a_shutdown_ends_has_not_run() {
    let _guard = hang_guard();
    let flights = Arc::new(SingleFlight::new());
    let has_begun = Arc::new(AtomicBool::new(false));
    let other = Arc::clone(&flights);
    let begun = Arc::clone(&has_begun);
    let thread = std::thread::spawn(move || {
        while !begun.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        other.run("key", || 2)
    });
    let goroutines = runtime(2).run(|| {
        let lead = {
            let (flights, has_begun) = (Arc::clone(&flights), Arc::clone(&has_begun));
            spawn(move || {
                flights.run("key", || {
                    has_begun.store(true, Ordering::SeqCst);
                    sleep(LONG);
                    1
                })
            })
        };
        wait_until(|| has_begun.load(Ordering::SeqCst));
        let follower = {
            let flights = Arc::clone(&flights);
            spawn(move || flights.run("key", || 3))
        };
        sleep(SOON);
        [lead, follower]
    });
    for goroutine in goroutines {
        assert!(goroutine.join().unwrap_err().is::<Cancelled>());
    }
    assert_eq!(thread.join().unwrap(), 2);
    assert_eq!(flights.run("key", || 4), 4);
}

/// Objects are used again, by one at a time, and none is lost.
#[test]
fn pools_lend_each_object_to_one() {
    on_each(|kind| {
        let census = Census::default();
        let pool = Arc::new(Pool::new({
            let census = census.clone();
            move || (AtomicBool::new(false), census.member())
        }));
        let users = kind.spawn_all(4, {
            let pool = Arc::clone(&pool);
            move |_| {
                for _ in 0..50 {
                    let object = pool.get();
                    assert!(!object.0.swap(true, Ordering::SeqCst), "two have it");
                    yield_now();
                    object.0.store(false, Ordering::SeqCst);
                }
            }
        });
        users.into_iter().for_each(both::Handle::join);
        let n = census.made();
        // Four are enough, but one that just goes back may be missed.
        assert!(n < 200, "none was used again");
        assert_eq!(pool.idle() + census.dropped(), n);
        drop(pool);
        census.assert_all_dropped(n);
    });
}

#[test]
fn pools_are_bounded() {
    let census = Census::default();
    let pool = Pool::with_capacity(2, || census.member());
    let all: Vec<_> = (0..10).map(|_| pool.get()).collect();
    drop(all);
    // On a plain thread the shared list holds two, in a goroutine that of the P two more.
    let n_idle = pool.idle();
    assert!((2..=4).contains(&n_idle), "{n_idle}");
    assert_eq!(census.dropped(), 10 - n_idle);
    // One that was taken out does not go back.
    drop(Pooled::into_inner(pool.get()));
    assert_eq!(pool.idle(), n_idle - 1);
    pool.put(census.member());
    pool.clear();
    assert_eq!(pool.idle(), 0);
    census.assert_all_dropped(11);
    let none = Pool::with_capacity(0, || census.member());
    drop(none.get());
    assert_eq!(none.idle(), 0);
    assert_eq!(format!("{none:?}"), "Pool { idle: 0, .. }");
    census.assert_all_dropped(12);
}

/// Permits that goroutines have put back are found on plain threads, and the other way round.
#[test]
fn pools_are_shared_by_goroutines_and_threads() {
    static POOL: Pool<Vec<u8>> = Pool::new(Vec::new);
    run(2, || {
        spawn(|| POOL.get().reserve(1000)).join().unwrap();
        windlass::blocking(|| assert!(POOL.get().capacity() >= 1000));
    });
    assert!(POOL.get().capacity() >= 1000);
    POOL.put(vec![7]);
    run(2, || {
        let both = [POOL.get(), POOL.get()];
        assert!(both.iter().any(|bytes| **bytes == [7]));
    });
}

/// A guard that a panic drops does not put its object back, and destructors may use the pool.
#[test]
fn pools_drop_what_a_panic_leaves() {
    static POOL: Pool<Odd> = Pool::with_capacity(1, || Odd(0));
    #[derive(Debug)]
    struct Odd(u32);
    impl Drop for Odd {
        fn drop(&mut self) {
            // Neither a deadlock nor a recursion: what does not fit is dropped, and is none of these.
            if self.0 == 1 {
                POOL.put(Odd(2));
                assert!(POOL.idle() > 0);
            }
        }
    }
    on_each(|_| {
        POOL.clear();
        let held = AssertUnwindSafe(POOL.get());
        let broken = catch_unwind(move || {
            let _held = held;
            resume_unwind(Box::new("broken"))
        });
        assert!(broken.is_err());
        assert_eq!(POOL.idle(), 0);
        (0..4).for_each(|_| POOL.put(Odd(1)));
        POOL.clear();
    });
    POOL.clear();
}

/// Waiters unwind when their runtime ends, and leave nothing behind.
#[test]
fn waiters_unwind_when_the_run_ends() {
    let _guard = hang_guard();
    let census = Census::default();
    let notify = Arc::new(Notify::new());
    let inside = Arc::new(AtomicUsize::new(0));
    let handles = runtime(2).run(|| {
        let handles: Vec<_> = (0..12)
            .map(|i| {
                let (notify, member): (_, Member) = (Arc::clone(&notify), census.member());
                let inside = Arc::clone(&inside);
                spawn(move || {
                    let _member = member;
                    inside.fetch_add(1, Ordering::SeqCst);
                    match i % 4 {
                        0 => notify.wait(),
                        1 => _ = notify.wait_timeout(LONG),
                        2 => notify.listen().wait(),
                        _ => {
                            let _listener = notify.listen();
                            sleep(LONG);
                        }
                    }
                    unreachable!("nobody notifies");
                })
            })
            .collect();
        wait_until(|| inside.load(Ordering::SeqCst) == handles.len());
        sleep(Duration::from_millis(1));
        handles
    });
    for handle in handles {
        assert!(handle.join().unwrap_err().is::<Cancelled>());
    }
    census.assert_all_dropped(12);
    notify.notify_one();
    assert!(notify.wait_timeout(Duration::ZERO));
    assert!(!notify.wait_timeout(Duration::ZERO));
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    no_notification_is_lost,
    each_notification_wakes_one,
    one_permit_is_stored,
    listeners_are_waiters,
    a_dropped_listener_passes_its_notification_to_a_waiter,
    waits_for_notifications_end_with_time_and_contexts,
    notifications_and_deadlines_agree,
    calls_of_a_key_are_shared,
    calls_of_a_key_do_not_overlap,
    panics_reach_all_that_share_a_call,
    a_forgotten_call_is_not_joined,
    a_wait_for_a_call_ends_with_its_context,
    values_and_keys_may_panic,
    a_key_that_panics_when_it_is_dropped_leaves_no_call,
    a_call_that_stays_in_the_map_is_not_joined,
    a_call_that_a_shutdown_ends_has_not_run: "it ends a run of its own",
    pools_lend_each_object_to_one,
    pools_are_bounded,
    pools_are_shared_by_goroutines_and_threads: "its static is not as at first for the next seed",
    pools_drop_what_a_panic_leaves: "it uses a static",
    waiters_unwind_when_the_run_ends: "it ends a run of its own",
}

//! RwLock: what it promises, on threads, in goroutines, and across the two.

use crate::both;
use crate::both::{Kind, on_each, run_line, settle};
use crate::util::{Census, run, wait_until};
use windlass::context::Context;
use windlass::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use windlass::sync::{
    Arc, Barrier, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};
use windlass::yield_now;

fn poison<T: Send + Sync + 'static>(kind: Kind, lock: &Arc<RwLock<T>>) {
    let other = Arc::clone(lock);
    let outcome = kind.spawn(move || {
        let _guard = other.write().unwrap();
        panic!("while it holds the lock");
    });
    assert!(outcome.outcome().is_err());
    assert!(lock.is_poisoned());
}

#[test]
fn readers_are_together() {
    on_each(|kind| {
        let shared = Arc::new((RwLock::new(5), Barrier::new(4)));
        let readers = kind.spawn_all(4, {
            let shared = Arc::clone(&shared);
            move |_| {
                let value = shared.0.read().unwrap();
                // All four hold the lock here.
                shared.1.wait();
                *value
            }
        });
        assert!(readers.into_iter().all(|r| r.join() == 5));
    });
}

#[test]
fn writers_are_alone() {
    on_each(|kind| {
        const EACH: usize = 200;
        let lock = Arc::new(RwLock::new((0, 0)));
        let all = kind.spawn_all(8, {
            let lock = Arc::clone(&lock);
            move |i| {
                for n in 0..EACH {
                    if i % 2 == 0 {
                        let mut pair = lock.write().unwrap();
                        pair.0 += 1;
                        if n % 32 == 0 {
                            yield_now();
                        }
                        pair.1 += 1;
                    } else {
                        let pair = lock.read().unwrap();
                        assert_eq!(pair.0, pair.1);
                        if n % 32 == 0 {
                            yield_now();
                            assert_eq!(pair.0, pair.1);
                        }
                    }
                }
            }
        });
        all.into_iter().for_each(both::Handle::join);
        assert_eq!(*lock.read().unwrap(), (4 * EACH, 4 * EACH));
    });
}

#[test]
fn attempts_tell_who_has_it() {
    on_each(|_| {
        let lock = RwLock::new(1);
        {
            let _reader = lock.read().unwrap();
            assert_eq!(*lock.try_read().unwrap(), 1);
            assert!(matches!(lock.try_write(), Err(TryLockError::WouldBlock)));
        }
        {
            let _writer = lock.write().unwrap();
            assert!(matches!(lock.try_read(), Err(TryLockError::WouldBlock)));
            assert!(matches!(lock.try_write(), Err(TryLockError::WouldBlock)));
        }
        *lock.try_write().unwrap() = 2;
        assert_eq!(lock.into_inner().unwrap(), 2);
    });
}

/// A reader that comes behind a waiting writer waits: readers never starve a writer.
#[test]
fn first_in_first_out() {
    run_line(|line| {
        let lock = Arc::new(RwLock::new(()));
        let order = Arc::new(Mutex::new(String::new()));
        let first = lock.read().unwrap();
        let pair = Arc::new(Barrier::new(2));
        let waiters: Vec<_> = "wrrwws"
            .chars()
            .map(|c| {
                let (lock, order) = (Arc::clone(&lock), Arc::clone(&order));
                let pair = Arc::clone(&pair);
                line.up(move || {
                    if c == 'w' {
                        let _guard = lock.write().unwrap();
                        order.lock().unwrap().push(c);
                        yield_now();
                        return;
                    }
                    let _guard = lock.read().unwrap();
                    order.lock().unwrap().push(c);
                    if c == 'r' {
                        // Two readers side by side have the lock together.
                        pair.wait();
                    }
                })
            })
            .collect();
        assert!(matches!(lock.try_read(), Err(TryLockError::WouldBlock)));
        drop(first);
        waiters.into_iter().for_each(|w| w.join().unwrap());
        assert_eq!(*order.lock().unwrap(), "wrrwws");
        assert!(lock.try_write().is_ok());
    });
}

/// A writer that gives up no longer stands between a reader and the readers behind it.
#[test]
fn a_writer_that_gives_up_lets_readers_pass() {
    run_line(|line| {
        let lock = Arc::new(RwLock::new(()));
        let first = lock.read().unwrap();
        let (ctx, canceller) = Context::background().with_cancel();
        let writer = line.up({
            let lock = Arc::clone(&lock);
            move || lock.write_context(&ctx).is_err()
        });
        let reader = line.up({
            let lock = Arc::clone(&lock);
            move || drop(lock.read().unwrap())
        });
        canceller.cancel();
        assert!(writer.join().unwrap());
        reader.join().unwrap();
        drop(first);
        assert!(lock.try_write().is_ok());
    });
}

#[test]
fn writers_get_through_many_readers() {
    on_each(|kind| {
        let lock = Arc::new(RwLock::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let readers = kind.spawn_all(6, {
            let (lock, stop) = (Arc::clone(&lock), Arc::clone(&stop));
            move |_| {
                while !stop.load(Ordering::Relaxed) {
                    let _guard = lock.read().unwrap();
                    yield_now();
                }
            }
        });
        for _ in 0..50 {
            *lock.write().unwrap() += 1;
        }
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(both::Handle::join);
        assert_eq!(*lock.read().unwrap(), 50);
    });
}

#[test]
fn readers_get_through_many_writers() {
    on_each(|kind| {
        let lock = Arc::new(RwLock::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let writers = kind.spawn_all(6, {
            let (lock, stop) = (Arc::clone(&lock), Arc::clone(&stop));
            move |_| {
                while !stop.load(Ordering::Relaxed) {
                    *lock.write().unwrap() += 1;
                    yield_now();
                }
            }
        });
        for _ in 0..50 {
            drop(lock.read().unwrap());
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(both::Handle::join);
    });
}

/// Between the writing and the reading nobody writes; readers that wait come in.
#[test]
fn a_writer_may_become_a_reader() {
    on_each(|kind| {
        for n in 1..=30 {
            let lock = Arc::new(RwLock::new(0));
            let guard = lock.write().unwrap();
            let met = Arc::new(Barrier::new(2));
            let reader = kind.spawn({
                let (lock, met) = (Arc::clone(&lock), Arc::clone(&met));
                move || {
                    let value = *lock.read().unwrap();
                    met.wait();
                    value
                }
            });
            if n % 3 == 0 {
                settle();
            }
            let mut guard = guard;
            *guard = n;
            let guard = RwLockWriteGuard::downgrade(guard);
            // The reader is in, beside this one.
            met.wait();
            let writer = kind.spawn({
                let lock = Arc::clone(&lock);
                move || *lock.write().unwrap() = 0
            });
            if n % 3 == 0 {
                settle();
            }
            assert_eq!(*guard, n);
            drop(guard);
            assert_eq!(reader.join(), n);
            writer.join();
            assert_eq!(*lock.read().unwrap(), 0);
        }
    });
}

#[test]
fn writers_poison_and_readers_do_not() {
    on_each(|kind| {
        let lock = Arc::new(RwLock::new(3));
        let other = Arc::clone(&lock);
        let reader = kind.spawn(move || {
            let _guard = other.read().unwrap();
            panic!("a reader's");
        });
        assert!(reader.outcome().is_err());
        assert!(!lock.is_poisoned());
        assert_eq!(*lock.try_write().unwrap(), 3);

        poison(kind, &lock);
        assert_eq!(*lock.read().unwrap_err().into_inner(), 3);
        assert_eq!(*lock.write().unwrap_err().into_inner(), 3);
        assert!(matches!(lock.try_read(), Err(TryLockError::Poisoned(_))));
        assert!(matches!(lock.try_write(), Err(TryLockError::Poisoned(_))));
        lock.clear_poison();
        assert!(lock.read().is_ok());
        poison(kind, &lock);
        let mut lock = Arc::into_inner(lock).unwrap();
        assert_eq!(*lock.get_mut().unwrap_err().into_inner(), 3);
        assert_eq!(lock.into_inner().unwrap_err().into_inner(), 3);
    });
}

#[test]
fn values_come_and_go() {
    static LIST: RwLock<Vec<u8>> = RwLock::new(Vec::new());
    LIST.write().unwrap().push(1);
    assert_eq!(*LIST.read().unwrap(), [1]);

    let census = Census::default();
    drop(RwLock::new(census.member()).into_inner().unwrap());
    drop(RwLock::new(census.member()));
    census.assert_all_dropped(2);
    let mut lock = RwLock::from(3);
    *lock.get_mut().unwrap() += 1;
    assert_eq!(lock.into_inner().unwrap(), 4);
    assert_eq!(RwLock::<String>::default().into_inner().unwrap(), "");
    let unsized_lock: &RwLock<[u8]> = &RwLock::new([1, 2]);
    unsized_lock.write().unwrap()[0] = 9;
    assert_eq!(*unsized_lock.read().unwrap(), [9, 2]);
}

#[test]
fn it_prints_as_std_does() {
    let (ours, theirs) = (RwLock::new(5), std::sync::RwLock::new(5));
    assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    {
        let (a, b) = (ours.read().unwrap(), theirs.read().unwrap());
        assert_eq!(
            format!("{ours:?} {a:?} {a}"),
            format!("{theirs:?} {b:?} {b}")
        );
    }
    let (a, b) = (ours.write().unwrap(), theirs.write().unwrap());
    assert_eq!(
        format!("{ours:?} {a:?} {a}"),
        format!("{theirs:?} {b:?} {b}")
    );
}

#[test]
fn guards_may_change_hands() {
    fn sends<T: Send>() {}
    fn shares<T: Sync>() {}
    sends::<RwLock<std::cell::Cell<u8>>>();
    shares::<RwLock<u8>>();
    sends::<RwLockReadGuard<'_, u8>>();
    sends::<RwLockWriteGuard<'_, u8>>();
    shares::<RwLockReadGuard<'_, u8>>();
    shares::<RwLockWriteGuard<'_, u8>>();
    run(2, || {
        static LOCK: RwLock<u32> = RwLock::new(0);
        *LOCK.write().unwrap() = 0;
        for _ in 0..50 {
            let mut guard = LOCK.write().unwrap();
            let other = windlass::spawn(move || *guard += 1);
            let read = LOCK.read().unwrap();
            windlass::spawn(move || drop(read)).join().unwrap();
            other.join().unwrap();
        }
        assert_eq!(*LOCK.try_write().unwrap(), 50);
    });
}

/// Readers, writers and downgrades at random: never a writer beside another.
#[test]
fn a_storm() {
    on_each(|kind| {
        let shared = Arc::new((RwLock::new(()), AtomicUsize::new(0), AtomicUsize::new(0)));
        let begun = Arc::new(AtomicUsize::new(0));
        let all = kind.spawn_all(8, {
            let (shared, begun) = (Arc::clone(&shared), Arc::clone(&begun));
            move |i| {
                begun.fetch_add(1, Ordering::SeqCst);
                wait_until(|| begun.load(Ordering::SeqCst) == 8);
                let (lock, readers, writers) = &*shared;
                let mut random = i as u32 * 7919 + 1;
                for _ in 0..300 {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let read = |_guard: RwLockReadGuard<'_, ()>| {
                        readers.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(writers.load(Ordering::SeqCst), 0);
                        if random >> 30 == 0 {
                            yield_now();
                        }
                        assert_eq!(writers.load(Ordering::SeqCst), 0);
                        readers.fetch_sub(1, Ordering::SeqCst);
                    };
                    if !(random >> 24).is_multiple_of(3) {
                        read(lock.read().unwrap());
                        continue;
                    }
                    let guard = lock.write().unwrap();
                    assert_eq!(writers.fetch_add(1, Ordering::SeqCst), 0);
                    assert_eq!(readers.load(Ordering::SeqCst), 0);
                    if random >> 30 == 1 {
                        yield_now();
                    }
                    assert_eq!(readers.load(Ordering::SeqCst), 0);
                    writers.fetch_sub(1, Ordering::SeqCst);
                    if random >> 31 == 0 {
                        read(RwLockWriteGuard::downgrade(guard));
                    }
                }
            }
        });
        all.into_iter().for_each(both::Handle::join);
        assert!(shared.0.try_write().is_ok());
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    readers_are_together,
    writers_are_alone,
    attempts_tell_who_has_it,
    first_in_first_out,
    a_writer_that_gives_up_lets_readers_pass,
    writers_get_through_many_readers,
    readers_get_through_many_writers,
    a_writer_may_become_a_reader,
    writers_poison_and_readers_do_not,
    values_come_and_go: "it counts in a static, which the next seed finds changed",
    it_prints_as_std_does,
    guards_may_change_hands,
    a_storm,
}

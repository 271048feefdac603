//! Guards and permits that borrow nothing, on threads, in goroutines, and across the two.

use std::panic::resume_unwind;

use crate::both;
use crate::both::{on_each, panic_of};
use crate::util::{Census, hang_guard, panic_text, runtime, wait_until};
use windlass::context::{Context, Error};
use windlass::sync::atomic::{AtomicUsize, Ordering};
use windlass::sync::{
    AcquireTimeoutError, Arc, Mutex, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard,
    OwnedSemaphorePermit, RwLock, Semaphore, TryAcquireError,
};
use windlass::time::Duration;
use windlass::{sleep, spawn, yield_now};

const SOON: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(1 << 20);

/// A lock that is taken here is given back elsewhere.
#[test]
fn guards_go_to_others() {
    on_each(|kind| {
        let total = Arc::new(Mutex::new(0));
        let adders: Vec<_> = (0..40)
            .map(|_| {
                let mut held = total.lock_owned().unwrap();
                kind.spawn(move || {
                    *held += 1;
                    yield_now();
                    *held += 1;
                })
            })
            .collect();
        adders.into_iter().for_each(both::Handle::join);
        assert_eq!(*total.lock().unwrap(), 80);

        let lock = Arc::new(RwLock::new(0));
        let all: Vec<_> = (0..40)
            .map(|n| {
                if n % 4 == 0 {
                    let mut held = lock.write_owned().unwrap();
                    kind.spawn(move || {
                        *held += 1;
                        yield_now();
                        *OwnedRwLockWriteGuard::downgrade(held)
                    })
                } else {
                    let held = lock.read_owned().unwrap();
                    kind.spawn(move || {
                        let before = *held;
                        yield_now();
                        assert_eq!(*held, before);
                        before
                    })
                }
            })
            .collect();
        assert!(all.into_iter().map(both::Handle::join).max() == Some(10));
        assert!(lock.try_write().is_ok());

        let slots = Arc::new((Arc::new(Semaphore::new(3)), AtomicUsize::new(0)));
        let all: Vec<_> = (0..40)
            .map(|n| {
                let n = 1 + n % 3;
                let permit = slots.0.acquire_owned(n).unwrap();
                let slots = Arc::clone(&slots);
                kind.spawn(move || {
                    assert!(slots.1.fetch_add(n, Ordering::SeqCst) + n <= 3);
                    yield_now();
                    slots.1.fetch_sub(n, Ordering::SeqCst);
                    drop(permit);
                })
            })
            .collect();
        all.into_iter().for_each(both::Handle::join);
        assert_eq!(slots.0.available_permits(), 3);
    });
}

/// The last guard drops the value, after it has unlocked.
#[test]
fn guards_keep_their_lock_alive() {
    let census = Census::default();
    let mutex = Arc::new(Mutex::new(census.member()));
    let held = mutex.lock_owned().unwrap();
    assert!(Arc::ptr_eq(OwnedMutexGuard::mutex(&held), &mutex));
    drop(mutex);
    assert_eq!(census.dropped(), 0);
    drop(held);
    census.assert_all_dropped(1);

    let lock = Arc::new(RwLock::new(census.member()));
    let held = lock.write_owned().unwrap();
    assert!(Arc::ptr_eq(OwnedRwLockWriteGuard::rwlock(&held), &lock));
    let held = OwnedRwLockWriteGuard::downgrade(held);
    assert!(Arc::ptr_eq(OwnedRwLockReadGuard::rwlock(&held), &lock));
    assert_eq!(Arc::strong_count(&lock), 2);
    let also = lock.try_read_owned().unwrap();
    assert!(lock.try_write_owned().is_err());
    drop((lock, held));
    assert_eq!(census.dropped(), 1);
    drop(also);
    census.assert_all_dropped(2);

    let semaphore = Arc::new(Semaphore::new(1));
    let weak = Arc::downgrade(&semaphore);
    let permit = semaphore.try_acquire_owned(1).unwrap();
    drop(semaphore);
    assert!(weak.upgrade().is_some());
    drop(permit);
    assert!(weak.upgrade().is_none());
}

/// Values without a size are guarded, too.
#[test]
fn guards_of_trait_objects() {
    let mutex: Arc<Mutex<dyn Iterator<Item = u32> + Send>> = Arc::new(Mutex::new(0..3));
    assert_eq!(mutex.lock_owned().unwrap().next(), Some(0));
    assert_eq!(mutex.try_lock_owned().unwrap().next(), Some(1));
    let lock: Arc<RwLock<[u32]>> = Arc::new(RwLock::new([1, 2]));
    lock.write_owned().unwrap()[0] = 7;
    assert_eq!(*lock.read_owned().unwrap(), [7, 2]);
    assert_eq!(format!("{:?}", lock.read_owned().unwrap()), "[7, 2]");
}

#[test]
fn owned_guards_poison() {
    let mutex = Arc::new(Mutex::new(1));
    let lock = Arc::new(RwLock::new(1));
    let held = (mutex.lock_owned().unwrap(), lock.write_owned().unwrap());
    panic_of(move || {
        let _held = held;
        resume_unwind(Box::new("poisons both"));
    });
    assert!(mutex.is_poisoned() && lock.is_poisoned());
    assert!(mutex.lock_owned().is_err() && mutex.try_lock_owned().is_err());
    assert!(lock.read_owned().is_err() && lock.try_read_owned().is_err());
    assert!(lock.try_write_owned().is_err());
    assert_eq!(*lock.write_owned().unwrap_err().into_inner(), 1);
    mutex.clear_poison();
    lock.clear_poison();
    // A reader poisons nothing.
    let held = lock.read_owned().unwrap();
    panic_of(move || {
        let _held = held;
        resume_unwind(Box::new("poisons nothing"));
    });
    assert_eq!(*lock.read_owned().unwrap(), 1);
    assert_eq!(*mutex.lock_owned().unwrap(), 1);
}

#[test]
fn owned_permits_are_split_merged_forgotten() {
    let semaphore = Arc::new(Semaphore::new(5));
    let mut all = semaphore.try_acquire_owned(5).unwrap();
    let two = all.split(2).unwrap();
    assert!(all.split(4).is_none());
    assert_eq!((all.num_permits(), two.num_permits()), (3, 2));
    drop(all);
    assert_eq!(semaphore.available_permits(), 3);
    let mut one = semaphore.try_acquire_owned(1).unwrap();
    one.merge(two);
    assert_eq!(one.num_permits(), 3);
    let other = Arc::new(Semaphore::new(1));
    let outcome = panic_of(|| {
        let mut mine = other.try_acquire_owned(1).unwrap();
        mine.merge(semaphore.try_acquire_owned(1).unwrap());
    });
    assert!(panic_text(&*outcome).contains("different semaphores"));
    assert_eq!(semaphore.available_permits(), 2);
    one.forget();
    assert_eq!(semaphore.available_permits(), 2);
    assert_eq!(
        semaphore.try_acquire_owned(3).unwrap_err(),
        TryAcquireError::NoPermits
    );
    let late = semaphore.acquire_owned_timeout(3, SOON).unwrap_err();
    assert_eq!(late, AcquireTimeoutError::Timeout);
    semaphore.close();
    assert!(semaphore.acquire_owned(1).unwrap_err().is_closed());
    assert_eq!(Arc::strong_count(&semaphore), 1);
    let mut most = other.try_acquire_owned(1).unwrap();
    other.add_permits(Semaphore::MAX_PERMITS);
    let full: OwnedSemaphorePermit = other.try_acquire_owned(Semaphore::MAX_PERMITS).unwrap();
    most.merge(full);
    assert_eq!(most.num_permits(), Semaphore::MAX_PERMITS + 1);
    most.forget();
}

#[test]
fn waits_for_owned_guards_end_with_contexts() {
    on_each(|kind| {
        let mutex = Arc::new(Mutex::new(1));
        let lock = Arc::new(RwLock::new(1));
        let semaphore = Arc::new(Semaphore::new(1));
        let held = (
            mutex.lock_owned().unwrap(),
            lock.write_owned().unwrap(),
            semaphore.acquire_owned(1).unwrap(),
        );
        let waiter = {
            let (mutex, lock) = (Arc::clone(&mutex), Arc::clone(&lock));
            let semaphore = Arc::clone(&semaphore);
            kind.spawn(move || {
                let late = Some(Error::DeadlineExceeded);
                let ctx = Context::background().with_timeout(SOON);
                assert_eq!(mutex.lock_owned_context(&ctx).err(), late);
                assert_eq!(lock.read_owned_context(&ctx).err(), late);
                assert_eq!(lock.write_owned_context(&ctx).err(), late);
                assert_eq!(semaphore.acquire_owned_context(1, &ctx).err(), late);
                assert!(
                    ctx.run(|| semaphore.acquire_owned_timeout(1, LONG))
                        .is_err()
                );
                ctx
            })
        };
        let ctx = waiter.join();
        drop(held);
        // A lock that is free is taken, although the context is done.
        assert_eq!(*mutex.lock_owned_context(&ctx).unwrap().unwrap(), 1);
        assert_eq!(*lock.read_owned_context(&ctx).unwrap().unwrap(), 1);
        assert_eq!(*lock.write_owned_context(&ctx).unwrap().unwrap(), 1);
        assert!(semaphore.acquire_owned_context(1, &ctx).unwrap().is_ok());
        assert_eq!(semaphore.available_permits(), 1);
    });
}

/// Guards of goroutines that are cancelled give the lock back, and poison nothing.
#[test]
fn the_end_of_a_run_gives_back_owned_guards() {
    let _guard = hang_guard();
    let mutex = Arc::new(Mutex::new(0));
    let lock = Arc::new(RwLock::new(0));
    let semaphore = Arc::new(Semaphore::new(1));
    let begun = Arc::new(AtomicUsize::new(0));
    runtime(2).run(|| {
        let held = (
            mutex.lock_owned().unwrap(),
            lock.write_owned().unwrap(),
            semaphore.acquire_owned(1).unwrap(),
        );
        let inside = Arc::clone(&begun);
        spawn(move || {
            let mut held = held;
            *held.0 += 1;
            inside.fetch_add(1, Ordering::SeqCst);
            sleep(LONG);
        });
        for way in 0..4 {
            let (mutex, lock) = (Arc::clone(&mutex), Arc::clone(&lock));
            let (semaphore, inside) = (Arc::clone(&semaphore), Arc::clone(&begun));
            spawn(move || {
                inside.fetch_add(1, Ordering::SeqCst);
                match way {
                    0 => drop(mutex.lock_owned()),
                    1 => drop(lock.read_owned()),
                    2 => drop(lock.write_owned()),
                    _ => drop(semaphore.acquire_owned(1)),
                }
                unreachable!("all of it is held");
            });
        }
        wait_until(|| begun.load(Ordering::SeqCst) == 5);
    });
    assert_eq!(*mutex.try_lock_owned().unwrap(), 1);
    assert!(lock.try_write_owned().is_ok());
    assert_eq!(semaphore.available_permits(), 1);
    assert_eq!(
        (Arc::strong_count(&mutex), Arc::strong_count(&lock)),
        (1, 1)
    );
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    guards_go_to_others,
    guards_keep_their_lock_alive,
    guards_of_trait_objects,
    owned_guards_poison,
    owned_permits_are_split_merged_forgotten,
    waits_for_owned_guards_end_with_contexts,
    the_end_of_a_run_gives_back_owned_guards: "it ends a run of its own",
}

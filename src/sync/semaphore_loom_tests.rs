//! Loom models of the semaphore.

use super::*;
use crate::loom::models::{self, Arc, UnsafeCell, thread};

fn spawn(semaphore: &Arc<Semaphore>, f: impl Fn(&Semaphore) + 'static) -> thread::JoinHandle<()> {
    let semaphore = Arc::clone(semaphore);
    thread::spawn(move || f(&semaphore))
}

fn assert_idle(semaphore: &Semaphore, permits: u64) {
    assert_eq!(semaphore.state.load(Ordering::Relaxed), permits * PERMIT);
}

#[test]
fn loom_semaphore_loses_no_permit() {
    models::run(|| {
        let semaphore = Arc::new(Semaphore::new(1));
        let others = [1, 1].map(|n| spawn(&semaphore, move |s| drop(s.acquire(n).unwrap())));
        drop(semaphore.acquire(1).unwrap());
        others.into_iter().for_each(|t| t.join().unwrap());
        assert_idle(&semaphore, 1);
    });
}

/// Who holds the permit sees what the holder before has written.
#[test]
fn loom_semaphore_passes_writes_on() {
    models::run(|| {
        let shared = Arc::new((Semaphore::new(1), UnsafeCell::new(0)));
        let write = |(semaphore, value): &(Semaphore, UnsafeCell<u32>)| {
            let permit = semaphore.acquire(1).unwrap();
            value.with_mut(|_| {});
            drop(permit);
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || write(&shared))
        };
        write(&shared);
        other.join().unwrap();
    });
}

#[test]
fn loom_semaphore_weights() {
    models::run(|| {
        let semaphore = Arc::new(Semaphore::new(0));
        let others = [2, 1].map(|n| spawn(&semaphore, move |s| drop(s.acquire(n).unwrap())));
        semaphore.add_permits(1);
        semaphore.add_permits(1);
        others.into_iter().for_each(|t| t.join().unwrap());
        assert_idle(&semaphore, 2);
    });
}

/// A waiter that needs many permits gives up: the waiter behind it is served.
#[test]
fn loom_semaphore_deadline() {
    models::run(|| {
        let semaphore = Arc::new(Semaphore::new(1));
        let hasty = spawn(&semaphore, |s| {
            assert_eq!(s.acquire_until(2, 0).unwrap_err(), Refused::TimedOut);
        });
        let other = spawn(&semaphore, |s| drop(s.acquire(1).unwrap()));
        drop(semaphore.acquire(1).unwrap());
        hasty.join().unwrap();
        other.join().unwrap();
        assert_idle(&semaphore, 1);
    });
}

#[test]
fn loom_semaphore_close() {
    models::run(|| {
        let semaphore = Arc::new(Semaphore::new(1));
        let others = [1, 2].map(|n| spawn(&semaphore, move |s| drop(s.acquire(n))));
        semaphore.close();
        others.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(semaphore.state.load(Ordering::Relaxed), PERMIT | CLOSED);
    });
}

/// A permit that is added while a waiter gives up goes to that waiter or to the next one.
#[test]
fn loom_semaphore_permit_meets_one_that_gives_up() {
    models::run(|| {
        let semaphore = Arc::new(Semaphore::new(0));
        let hasty = spawn(&semaphore, |s| drop(s.acquire_until(1, 0)));
        let other = spawn(&semaphore, |s| drop(s.acquire(1).unwrap()));
        semaphore.add_permits(1);
        hasty.join().unwrap();
        other.join().unwrap();
        assert_idle(&semaphore, 1);
    });
}

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use super::*;
use crate::parks;

/// Code that libc calls in a section, such as a module of `getaddrinfo`, parks nothing: also if the goroutine has
/// lost its P in a section before.
#[test]
fn nothing_parks_in_a_section() {
    // SAFETY: the goroutines of this test keep nothing of a thread across a call that waits.
    let rt = unsafe {
        crate::install();
        windlass::Builder::new().processors(1).build().unwrap()
    };
    let (lock, is_over) = (&Mutex::new(()), &AtomicBool::new(false));
    let parks_there = rt.run(|| {
        assert!(parks());
        assert!(!in_section(parks));
        windlass::scope(|s| {
            let neighbour = s.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    windlass::yield_now();
                }
            });
            let parks_there = thread::scope(|threads| {
                let (locked, is_locked) = mpsc::channel();
                threads.spawn(move || {
                    let _guard = lock.lock();
                    locked.send(()).unwrap();
                    nap(Duration::from_millis(100));
                });
                is_locked.recv().unwrap();
                // The P goes to the other goroutine.
                drop(lock.lock());
                in_section(parks)
            });
            is_over.store(true, Ordering::Relaxed);
            neighbour.join().unwrap();
            parks_there
        })
    });
    assert!(!parks_there);
}

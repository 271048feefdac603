//! Starting threads.
#![allow(unsafe_code)]

use std::time::Duration;

use super::*;
use crate::Builder;
use crate::sched::types::state::Phase;

/// Number of threads of this process with this name.
fn n_threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("comm")).ok());
    names.filter(|n| n.trim_end() == name).count()
}

#[test]
fn an_m_is_listed_before_it_runs() {
    // SAFETY: nothing here keeps a thread-local across a call that parks.
    let runtime = unsafe { Builder::new().processors(1).name("early").build() }.unwrap();
    let sched = runtime.sched();
    let p = &sched.ps[0];
    let ms = sched.ms.lock();
    std::thread::scope(|s| {
        let starter = s.spawn(|| start_m(sched, p));
        // No M can be added while the list is locked. This is enough time for a thread that does
        // not wait for the lock.
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(n_threads("early-m1"), 0, "runs before it is listed");
        sched.set_phase(Phase::Stopping);
        drop(ms);
        assert!(starter.join().unwrap());
    });
    let threads = std::mem::take(&mut sched.ms.lock().threads);
    assert_eq!(threads.len(), 1);
    threads.into_iter().for_each(|t| t.join().unwrap());
    let ms = sched.ms.lock();
    assert_eq!(ms.all.len(), 1);
    assert_ne!(ms.all[0].tid.load(Ordering::Relaxed), 0, "it ran");
}

#[test]
fn an_m_without_a_thread_is_the_next_ones() {
    // SAFETY: as above.
    let runtime = unsafe { Builder::new().processors(1).build() }.unwrap();
    let sched = runtime.sched();
    let first = list_m(sched, 1);
    assert_eq!(sched.n_ms.load(Ordering::Relaxed), 1);
    retire_m(sched, first);
    assert_eq!(sched.n_ms.load(Ordering::Relaxed), 0);
    let second = list_m(sched, 2);
    assert!(std::ptr::eq(first, second));
    assert_eq!((second.id(), sched.ms.lock().all.len()), (2, 1));
    assert_eq!(list_m(sched, 3).id(), 3);
    assert_eq!(sched.ms.lock().all.len(), 2);
}

/// A thread that ends with its goroutine leaves its M to the next one.
#[test]
fn threads_that_end_with_their_goroutines_leave_no_ms() {
    // SAFETY: as above.
    let runtime = unsafe { Builder::new().processors(2).build() }.unwrap();
    let sched = std::ptr::from_ref::<Sched>(runtime.sched()).expose_provenance();
    runtime.run(move || {
        // SAFETY: the runtime is borrowed until the run ends.
        let sched = unsafe { &*std::ptr::with_exposed_provenance::<Sched>(sched) };
        let n_begun = sched.next_m.load(Ordering::Relaxed);
        for _ in 0..200 {
            let tied = crate::spawn(|| std::mem::forget(crate::task::lock_thread()));
            tied.join().unwrap();
        }
        let n_begun = sched.next_m.load(Ordering::Relaxed) - n_begun;
        assert!(n_begun >= 100, "{n_begun} threads were started");
        // Some of them are still ending.
        let n_ms = sched.ms.lock().all.len();
        assert!(n_ms < 50, "{n_ms} Ms for {n_begun} threads");
    });
}

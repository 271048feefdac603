//! Starting threads.
#![allow(unsafe_code)]

use std::time::Duration;

use super::*;
use crate::Builder;

/// How many threads of this process have this name.
fn n_threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("comm")).ok());
    names.filter(|n| n.trim_end() == name).count()
}

#[test]
fn an_m_is_listed_before_it_runs() {
    // SAFETY: nothing is kept across a call that parks.
    let runtime = unsafe { Builder::new().processors(1).name("early").build() }.unwrap();
    let sched = runtime.sched();
    let p = &sched.ps[0];
    let ms = sched.ms.lock();
    std::thread::scope(|s| {
        let starter = s.spawn(|| start_m(sched, p));
        // While the list is locked nothing can be added to it. Time enough for a thread that
        // does not wait for that.
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
fn an_m_without_a_thread_is_not_listed() {
    // SAFETY: as above.
    let runtime = unsafe { Builder::new().processors(1).build() }.unwrap();
    let sched = runtime.sched();
    let m = Box::new(M::new(1, &raw const *sched));
    let at = std::ptr::from_ref(&*m);
    sched.n_ms.fetch_add(1, Ordering::Relaxed);
    sched.ms.lock().all.push(m);
    unlist(sched, at);
    assert!(sched.ms.lock().all.is_empty());
    assert_eq!(sched.n_ms.load(Ordering::Relaxed), 0);
}

//! A P that comes while its M is about to sleep, on a runtime that does not run.
#![allow(unsafe_code)]

use super::*;
use crate::Builder;
use crate::sys::sched as threads;

/// Whether a thread of this process sleeps in a system call.
fn sleeps(tid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
    let (_, state) = stat.rsplit_once(") ").unwrap();
    state.starts_with('S')
}

#[test]
fn an_m_that_was_given_a_p_meanwhile_is_no_spare() {
    // SAFETY: no goroutine runs.
    let runtime = unsafe { Builder::new().processors(1).pin(false).build() }.unwrap();
    let sched = runtime.sched();
    let (p, m) = (&sched.ps[0], M::new(1, sched));
    let m_at = std::ptr::from_ref(&m).expose_provenance();
    let ms = sched.ms.lock();
    let thread = std::thread::spawn(move || {
        // SAFETY: the M outlives the thread, which is joined, and only this thread uses what is the M's own.
        let m = unsafe { &*std::ptr::with_exposed_provenance::<M>(m_at) };
        m.tid.store(threads::gettid(), Ordering::Release);
        wait_for_p(m)
    });
    // It has found no P, and waits for the list of Ms.
    let tid = || m.tid.load(Ordering::Acquire);
    while tid() == 0 || !sleeps(tid()) {
        std::thread::yield_now();
    }
    pass(p, &m);
    m.note.wake();
    drop(ms);
    assert!(thread.join().unwrap(), "it takes the P");
    assert!(std::ptr::eq(m.p(), p));
    assert!(sched.ms.lock().spare.is_empty(), "it holds a P");
}

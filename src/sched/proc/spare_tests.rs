//! A P that comes while its M is about to sleep, on a runtime that does not run.
#![allow(unsafe_code)]

use super::*;
use crate::Builder;
use crate::loom::native::atomic::{AtomicBool, AtomicUsize};
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
    p.owner.store(std::ptr::null_mut(), Ordering::Release);
}

/// Sysmon takes a P back while its M picks it up: one of the two has it. The M finds itself as the owner.
#[test]
fn a_p_on_its_way_is_had_once() {
    /// Rounds in which both threads run, and how many there may be in all for that.
    const BESIDE: usize = 3_000;
    const MOST: usize = 200_000;
    // SAFETY: no goroutine runs.
    let runtime = unsafe { Builder::new().processors(1).pin(false).build() }.unwrap();
    let sched = runtime.sched();
    let (p, m) = (&sched.ps[0], M::new(1, sched));
    let carrier: &Carrier = &m;
    let is_owner = || std::ptr::eq(p.owner().cast(), carrier);
    let (n_looks, n_picked_up) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let is_over = AtomicBool::new(false);
    let (is_exact, is_owned) = std::thread::scope(|scope| {
        let picks_up = scope.spawn(|| {
            let mut is_owned = true;
            let mut pauses = (0..32).cycle();
            while !is_over.load(Ordering::SeqCst) {
                n_looks.fetch_add(1, Ordering::SeqCst);
                (0..pauses.next().unwrap()).for_each(|_| std::hint::spin_loop());
                // As `wait_for_p` does.
                let p = carrier.next_p.swap(std::ptr::null_mut(), Ordering::AcqRel);
                let is_owner = is_owner();
                if !p.is_null() {
                    is_owned &= is_owner;
                    n_picked_up.fetch_add(1, Ordering::SeqCst);
                }
            }
            is_owned
        });
        let (mut n_taken_back, mut n_beside, mut round) = (0, 0, 0);
        let mut is_exact = true;
        while is_exact && n_beside < BESIDE && round < MOST {
            round += 1;
            p.owner.store(std::ptr::null_mut(), Ordering::Release);
            let before = n_looks.load(Ordering::SeqCst);
            let runs = || n_looks.load(Ordering::SeqCst) != before;
            n_beside += usize::from((0..1_000).any(|_| runs()));
            pass(p, carrier);
            if take_back(sched, carrier, p) {
                n_taken_back += 1;
                sched.ms.lock().spare.clear();
            }
            let n = || n_picked_up.load(Ordering::SeqCst) + n_taken_back;
            while n() < round {
                std::thread::yield_now();
            }
            is_exact = n() == round;
        }
        is_over.store(true, Ordering::SeqCst);
        (is_exact, picks_up.join().unwrap())
    });
    p.owner.store(std::ptr::null_mut(), Ordering::Release);
    assert!(is_exact, "both have it");
    assert!(is_owned, "it has no owner yet");
}

//! Rounds over a P of a runtime that does not run, which the test puts into the states that matter.
#![allow(unsafe_code)]

use super::*;
use crate::Builder;

const BEGAN_NS: u64 = 1_000_000_000;

/// The findings of `f` at the one P of a runtime, on whose node a goroutine waits.
fn with_work<T>(f: impl FnOnce(&Sched, &P) -> T) -> T {
    // SAFETY: no goroutine runs.
    let runtime = unsafe { Builder::new().processors(1).build() }.unwrap();
    let sched = runtime.sched();
    let (p, node) = (&sched.ps[0], &sched.nodes[0]);
    node.queue.push(p.local.caches.take_slot(0, node.depot));
    let found = f(sched, p);
    // The slot holds no goroutine that the end of the runtime could abandon.
    let mut left = node.queue.pop_batch(1, usize::MAX);
    p.local.caches.give_slot(left.pop().unwrap(), node.depot);
    found
}

fn begin_section(p: &P, number: u32) {
    p.syscalltick.store(number, Ordering::Relaxed);
    p.syscall.store(1, Ordering::Release);
}

#[test]
fn a_section_that_has_just_begun_is_no_reason_to_hurry() {
    let (inside, between, later) = with_work(|sched, p| {
        let mut ps = Ps::new(sched);
        let inside: Vec<_> = (1..100)
            .map(|number| {
                begin_section(p, number);
                ps.round(BEGAN_NS + u64::from(number) * ladder::GRACE_NS)
            })
            .collect();
        p.syscall.store(0, Ordering::Release);
        let between = ps.round(BEGAN_NS + 100 * ladder::GRACE_NS);
        (inside, between, ps.round(2 * BEGAN_NS))
    });
    let is_calm = |found: &Findings| !found.is_busy && found.has_sections && found.has_new_section;
    assert!(inside.iter().all(is_calm), "{inside:?}");
    assert!(between.has_sections && !between.has_new_section);
    assert!(!later.has_sections);
}

#[test]
fn a_section_that_lasts_waits_for_a_thread() {
    let (found, m_id, is_wanted) = with_work(|sched, p| {
        sched
            .n_ms
            .store(sched.config.max_threads, Ordering::Relaxed);
        begin_section(p, 1);
        let mut ps = Ps::new(sched);
        let rounds = (0..100).map(|i| ps.round(BEGAN_NS + i * ladder::GRACE_NS));
        let found: Vec<_> = rounds.collect();
        sched.n_ms.store(0, Ordering::Relaxed);
        let m_id = p.syscall.swap(0, Ordering::Relaxed);
        (found, m_id, sched.ms.lock().is_wanted)
    });
    assert!(found.iter().all(|found| !found.is_busy), "{found:?}");
    assert_eq!(m_id, 1, "the P stays where it is");
    assert!(is_wanted, "sysmon is woken when there is a thread");
}

/// A thread that becomes free after that is for the same P.
#[test]
fn the_first_p_without_a_thread_is_the_last_that_is_offered() {
    // SAFETY: no goroutine runs.
    let runtime = unsafe { Builder::new().processors(3).build() }.unwrap();
    let sched = runtime.sched();
    sched
        .n_ms
        .store(sched.config.max_threads, Ordering::Relaxed);
    let mut unowned = UnownedPs::new(sched);
    unowned.give_all();
    sched.n_ms.store(0, Ordering::Relaxed);
    assert_eq!(unowned.n_idle(), Some(2));
    assert_eq!(sched.handoffs.load(Ordering::Relaxed), 1);
    assert!(sched.ms.lock().is_wanted, "sysmon comes again");
}

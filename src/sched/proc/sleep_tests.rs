//! An M that falls asleep, and who wakes it, on a runtime that does not run.
#![allow(unsafe_code)]

use super::*;
use crate::Builder;

/// The findings of `f` with an M that holds the first of two Ps.
fn with_m<T>(f: impl FnOnce(&Sched, &M) -> T) -> T {
    // SAFETY: no goroutine runs.
    let runtime = unsafe { Builder::new().processors(2).build() }.unwrap();
    let sched = runtime.sched();
    let m = M::new(1, sched);
    m.set_p(Some(&sched.ps[0]));
    f(sched, &m)
}

/// Pushers may have left more than one goroutine to it.
#[test]
fn an_m_that_finds_work_by_its_last_look_spins() {
    with_m(|sched, m| {
        let (p, node) = (m.p(), sched.node_of(m.p()));
        node.queue.push(p.local.caches.take_slot(0, node.depot));
        sleep(m, p);
        assert!(m.spinning.get(), "it looks for work");
        assert_eq!(node.idle.n_spinning(), 1);
        assert!(!node.idle.is_idle(p.at_in_node));
        assert!(sched.idle_nodes.has(&node.idle), "it was idle");
        // The slot holds no goroutine that the end of the runtime could abandon.
        let mut left = node.queue.pop_batch(1, usize::MAX);
        p.local.caches.give_slot(left.pop().unwrap(), node.depot);
    });
}

/// The Ps nearest to its own are awake; the one that is not has just fallen asleep.
#[test]
fn a_waker_that_finds_no_p_looks_again() {
    with_m(|sched, m| {
        let (p, node) = (m.p(), sched.node_of(m.p()));
        p.word.prepare(idle::ON_FUTEX);
        node.idle.go_idle(p.at_in_node, false);
        // Victims of a search, by distance, do not include the P itself.
        wake::wake_spinner(sched, node, Some(p), 1);
        assert!(p.word.is_notified());
        assert_eq!(node.idle.n_spinning(), 1, "the one that was woken");
    });
}

//! An M that falls asleep, and who wakes it, on a runtime that does not run.
#![allow(unsafe_code)]

use super::super::node_batch::take_batch;
use super::super::tick;
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
        let spins = (m.spinning.get(), node.idle.n_spinning());
        let is_idle = node.idle.is_idle(p.at_in_node);
        let was_idle = sched.idle_nodes.has(&node.idle);
        // The slot holds no goroutine that the end of the runtime could abandon.
        let mut left = node.queue.pop_batch(1, usize::MAX);
        p.local.caches.give_slot(left.pop().unwrap(), node.depot);
        assert_eq!(spins, (true, 1), "it looks for work");
        assert!(was_idle && !is_idle);
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

/// The findings of `f` with an M that holds the first of two Ps, of which the second has fallen asleep when it
/// saw no goroutine: so many were in no queue just then, and are in that of the node when `f` is called.
fn with_queued<T>(n: usize, f: impl FnOnce(&M) -> T) -> (T, bool) {
    // SAFETY: no goroutine runs.
    let runtime = unsafe { Builder::new().processors(2).build() }.unwrap();
    (0..n).for_each(|_| drop(runtime.handle().spawn(|| ())));
    let sched = runtime.sched();
    let (m, other) = (M::new(1, sched), &sched.ps[1]);
    let p = &sched.ps[0];
    m.set_p(Some(p));
    let node = sched.node_of(p);
    other.word.prepare(idle::ON_FUTEX);
    node.idle.go_idle(other.at_in_node, false);
    sched.idle_nodes.add(&node.idle);
    let found = f(&m);
    // The end of the runtime abandons them.
    while let Some(g) = p.runq.pop() {
        node.queue.push(g);
    }
    (found, other.word.is_notified())
}

#[test]
fn goroutines_that_leave_the_queue_of_a_node_together_wake_an_m() {
    let take = |m: &M| {
        let g = take_batch(m, m.p().node_idx, 2).unwrap();
        let n_left = m.p().runq.len();
        m.sched().node_of(m.p()).queue.push(g);
        n_left
    };
    assert_eq!(with_queued(2, take), (1, true));
    assert_eq!(with_queued(1, take), (0, false), "it runs at once");
}

#[test]
fn a_goroutine_that_leaves_the_queue_of_a_node_for_another_queue_wakes_an_m() {
    let measure = |m: &M| {
        // A long one, as the P has never measured any.
        m.p().stats.dispatches.add(1);
        let first = tick::measure(m, m.p());
        assert!(first.is_none(), "it goes behind others");
        m.p().runq.len()
    };
    assert_eq!(with_queued(1, measure), (1, true));
}

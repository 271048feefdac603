//! The idle protocol under every interleaving: no work is left in a queue while its only M sleeps.

use super::*;
use crate::loom::models::atomic::{AtomicU32, Ordering};
use crate::loom::models::{self, Arc, UnsafeCell, thread};

struct Node {
    idle: IdleSet,
    word: IdleWord,
    /// Goroutines in some queue.
    work: AtomicU32,
    /// As `Sched::idle_nodes`.
    idle_nodes: IdleNodes,
    /// Written by a notifier before it notifies, and then by the M.
    sent: UnsafeCell<u32>,
}

impl Node {
    fn new() -> Arc<Node> {
        Arc::new(Node {
            idle: IdleSet::new(0, 1),
            word: IdleWord::new(),
            work: AtomicU32::new(0),
            idle_nodes: IdleNodes::default(),
            sent: UnsafeCell::new(0),
        })
    }

    /// As `wake::wake_for_surplus` does.
    fn push(&self) {
        self.work.store(1, Ordering::Release);
        if self.idle_nodes.any_after_push() {
            self.wake();
        }
    }

    /// As `wake::wake_in` does.
    fn wake(&self) {
        if self.any_idle() {
            self.wake_below(1);
        }
    }

    /// As `wake::any_idle` does.
    fn any_idle(&self) -> bool {
        self.idle_nodes.any_idle(&self.idle, || self.wake_below(1))
    }

    /// As `wake::wake_spinner` does.
    fn wake_below(&self, most: u32) {
        while self.idle.begin_wake(most) {
            if self.idle.claim(0) {
                self.sent.with_mut(|_| {});
                let _ = self.word.notify();
                return;
            }
            if !self.idle.stop_spinning() {
                return;
            }
        }
    }

    /// As `find::sleep` does; `true` if the M now sleeps and no wake-up is coming.
    fn sleeps_for_ever(&self, was_spinning: bool) -> bool {
        self.word.prepare(ON_FUTEX);
        self.idle.go_idle(0, was_spinning);
        self.idle_nodes.add(&self.idle);
        self.work.load(Ordering::Acquire) == 0 && !self.word.is_notified()
    }

    /// As `find::stop_spinning` does after the M has taken its work.
    fn stops_spinning(&self) {
        if self.idle.stop_spinning() && self.work.load(Ordering::Acquire) != 0 {
            self.wake();
        }
    }
}

fn model(spinning: bool) {
    models::run(move || {
        let node = Node::new();
        if spinning {
            assert!(node.idle.begin_spinning(2));
        }
        let pusher = {
            let node = Arc::clone(&node);
            thread::spawn(move || node.push())
        };
        let asleep = node.sleeps_for_ever(spinning);
        pusher.join().unwrap();
        if asleep {
            assert!(
                node.word.is_notified(),
                "work lies in a queue and the last M sleeps"
            );
            assert_eq!(
                node.idle.n_spinning(),
                1,
                "a notified M is counted as spinning"
            );
        }
    });
}

#[test]
fn loom_push_against_falling_asleep() {
    model(false);
}

#[test]
fn loom_push_against_a_spinner_falling_asleep() {
    model(true);
}

/// The M that wakes by itself and a notifier agree on which of them takes the P out.
#[test]
fn loom_waking_alone_against_a_notifier() {
    models::run(|| {
        let node = Node::new();
        node.word.prepare(IN_RING);
        node.idle.go_idle(0, false);
        node.idle_nodes.add(&node.idle);
        let pusher = {
            let node = Arc::clone(&node);
            thread::spawn(move || node.push())
        };
        let alone = node.idle.claim(0);
        if alone {
            node.word.awake();
        } else {
            while !node.word.is_notified() {
                thread::yield_now();
            }
            assert!(node.word.awake());
            node.sent.with_mut(|_| {});
        }
        pusher.join().unwrap();
        assert_eq!(node.idle.n_spinning(), u32::from(!alone));
    });
}

/// A pusher leaves its work to a spinning M, which has just found other work: one of the two wakes
/// the sleeping P.
#[test]
fn loom_push_against_the_last_spinner() {
    models::run(|| {
        let node = Node::new();
        node.word.prepare(ON_FUTEX);
        node.idle.go_idle(0, false);
        node.idle_nodes.add(&node.idle);
        assert!(node.idle.begin_spinning(2));
        let pusher = {
            let node = Arc::clone(&node);
            thread::spawn(move || node.push())
        };
        node.stops_spinning();
        pusher.join().unwrap();
        assert!(
            node.word.is_notified(),
            "work lies in a queue and nobody looks"
        );
    });
}

/// Two Ps of a node fall asleep while a third wakes by itself: each is in the set if, and only if, it sleeps.
#[test]
fn loom_ps_that_fall_asleep_together_are_all_idle() {
    models::run(|| {
        let idle = Arc::new(IdleSet::new(0, 3));
        idle.go_idle(2, false);
        let other = {
            let idle = Arc::clone(&idle);
            thread::spawn(move || {
                idle.go_idle(1, false);
                assert!(idle.claim(2));
            })
        };
        idle.go_idle(0, false);
        other.join().unwrap();
        assert!(idle.is_idle(0) && idle.is_idle(1) && !idle.is_idle(2));
    });
}

/// An M that has found work and leaves more wakes another while a third stops spinning: one wake comes, and is counted
/// once.
#[test]
fn loom_a_wake_beside_spinners_against_the_last_of_them() {
    models::run(|| {
        let node = Node::new();
        node.word.prepare(ON_FUTEX);
        node.idle.go_idle(0, false);
        node.idle_nodes.add(&node.idle);
        assert!(node.idle.begin_spinning(4) && node.idle.begin_spinning(4));
        node.work.store(1, Ordering::Release);
        let other = {
            let node = Arc::clone(&node);
            thread::spawn(move || node.stops_spinning())
        };
        node.idle.stop_spinning();
        node.wake_below(2);
        other.join().unwrap();
        assert!(node.word.is_notified());
        assert_eq!(node.idle.n_spinning(), 1);
    });
}

/// A waker finds that no P is idle behind the bit, and takes it back, while one falls asleep and another pushes: none
/// of the two relies on the other.
#[test]
fn loom_taking_a_bit_back_against_a_push_and_falling_asleep() {
    models::run(|| {
        let node = Node::new();
        // A P was idle, and is no more.
        node.idle_nodes.add(&node.idle);
        let waker = {
            let node = Arc::clone(&node);
            thread::spawn(move || {
                node.any_idle();
            })
        };
        let pusher = {
            let node = Arc::clone(&node);
            thread::spawn(move || node.push())
        };
        let asleep = node.sleeps_for_ever(false);
        waker.join().unwrap();
        pusher.join().unwrap();
        assert!(
            !asleep || node.word.is_notified(),
            "work lies in a queue and the last M sleeps"
        );
        let is_idle = node.idle.any_idle();
        assert!(
            !is_idle || node.idle_nodes.has(&node.idle),
            "a P is idle, and no bit says so"
        );
    });
}

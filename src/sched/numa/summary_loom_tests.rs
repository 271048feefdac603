//! Publishing a node's load, under every interleaving.

use super::*;
use crate::loom::models::{self, Arc, thread};
use crate::sched::queue::idle::{IdleSet, IdleWord, ON_FUTEX};

/// The publishing P is the only one of its node, and the thief's the only one of another.
struct Nodes {
    line: Summary,
    p: Published,
    idle: IdleSet,
    word: IdleWord,
}

fn nodes() -> Arc<Nodes> {
    Arc::new(Nodes {
        line: Summary::default(),
        p: Published::default(),
        idle: IdleSet::new(0, 1),
        word: IdleWord::new(),
    })
}

fn has_bit(line: &Summary) -> bool {
    line.with_work(1).has(0)
}

/// The holder publishes its queue, and a thief publishes that it is empty: whichever is last, the
/// bit agrees with the length.
#[test]
fn loom_two_that_publish_leave_bit_and_length_the_same() {
    models::run(|| {
        let n = nodes();
        n.p.publish(0, 2, &n.line);
        let thief = {
            let n = Arc::clone(&n);
            thread::spawn(move || n.p.publish(0, 0, &n.line))
        };
        n.p.publish(0, 1, &n.line);
        n.p.publish(0, 0, &n.line);
        n.p.publish(0, 3, &n.line);
        thief.join().unwrap();
        let len = n.p.len.load(Ordering::Relaxed);
        assert_eq!(has_bit(&n.line), len != 0, "length {len}");
        assert_eq!(n.line.runnable(), len as usize);
    });
}

/// `find::tick` of a P whose node has more work than it can run, against `find::sleep` on another
/// node.
#[test]
fn loom_publishing_against_falling_asleep_on_another_node() {
    models::run(|| {
        let n = nodes();
        let publisher = {
            let n = Arc::clone(&n);
            thread::spawn(move || {
                // A node whose Ps are all busy: one sleeper is woken.
                if n.p.publish(0, 1, &n.line) && n.idle.begin_wake(1) {
                    match n.idle.claim(0) {
                        true => drop(n.word.notify()),
                        false => drop(n.idle.stop_spinning()),
                    }
                }
            })
        };
        n.word.prepare(ON_FUTEX);
        n.idle.go_idle(0, false);
        let sleeps = n.line.runnable() == 0 && !n.word.is_notified();
        publisher.join().unwrap();
        if sleeps {
            assert!(n.word.is_notified(), "a node has too much and nobody comes");
        }
        assert!(has_bit(&n.line));
    });
}

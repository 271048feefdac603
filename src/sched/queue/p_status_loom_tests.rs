//! Stopping, leaving and coming back under every interleaving: a P has one user.

#![allow(unsafe_code)]

use super::super::idle::IdleSet;
use super::*;
use crate::loom::models::{self, Arc, UnsafeCell, thread};

struct P {
    status: PStatus,
    /// State accessed only by the P's holder, and by sysmon in a stopped world. loom reports
    /// concurrent accesses, and an access that does not see an earlier one.
    inside: UnsafeCell<u32>,
    idle: IdleSet,
}

impl P {
    fn in_use() -> Arc<P> {
        let status = PStatus::new();
        status.come_into_use();
        Arc::new(P {
            status,
            inside: UnsafeCell::new(0),
            idle: IdleSet::new(0, 1),
        })
    }

    fn touch(&self) {
        // SAFETY: the models show that there is no concurrent access.
        self.inside.with_mut(|n| unsafe { *n += 1 });
    }
}

/// The world stops twice, in time or not; the M runs in between.
#[test]
fn loom_nobody_runs_in_a_stopped_world() {
    models::run(|| {
        let p = P::in_use();
        let m = {
            let p = Arc::clone(&p);
            thread::spawn(move || {
                for _ in 0..2 {
                    p.status.wait_while_stopped();
                    p.touch();
                }
            })
        };
        for _ in 0..2 {
            assert!(p.status.ask_to_stop());
            thread::yield_now();
            if p.status.is_stopped() {
                p.touch();
            }
            p.status.go_on();
        }
        m.join().unwrap();
    });
}

/// A P leaves, and is called back when its M has just released it, or is about to.
#[test]
fn loom_one_holds_a_p_that_is_called_back() {
    models::run(|| {
        let p = P::in_use();
        // As if in a stopped world: the M starts after it.
        p.status.begin_leaving();
        let m = {
            let p = Arc::clone(&p);
            thread::spawn(move || {
                for _ in 0..2 {
                    p.status.wait_while_stopped();
                    p.touch();
                    if p.status.is_leaving() && p.status.end() {
                        return false;
                    }
                }
                true
            })
        };
        let asked = p.status.ask_to_stop();
        thread::yield_now();
        let was_dead = p.status.is_dead();
        assert_eq!(asked, !was_dead);
        let stopped = was_dead || p.status.is_stopped();
        if stopped {
            p.status.come_into_use();
            p.touch();
        }
        p.status.go_on();
        let keeps = m.join().unwrap();
        if stopped {
            assert!(p.status.is_in_use());
            assert_eq!(keeps, !was_dead, "held by two or by nobody");
        }
    });
}

/// An M that falls asleep is claimed, or sees the request to stop.
#[test]
fn loom_a_sleeper_does_not_miss_the_stop() {
    models::run(|| {
        let p = P::in_use();
        let m = {
            let p = Arc::clone(&p);
            thread::spawn(move || {
                p.idle.go_idle(0, false);
                !p.status.has_request()
            })
        };
        assert!(p.status.ask_to_stop());
        let claimed = p.idle.claim(0);
        let sleeps = m.join().unwrap();
        assert!(claimed || !sleeps, "it sleeps on, and nobody waits for it");
    });
}

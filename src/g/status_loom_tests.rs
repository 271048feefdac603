//! The wake token under every interleaving: unpark against park, a completion
//! against a canceller, several wakers of one wait.

use super::*;
use crate::loom::models::atomic::{AtomicU32, Ordering};
use crate::loom::models::{self, Arc, thread};

fn running() -> Status {
    let s = Status::new();
    s.set_new();
    s.set_runnable();
    s.set_running();
    s
}

/// In every order the parker continues exactly once: it finds the token before it sleeps, or
/// exactly one waker wakes it.
#[test]
fn loom_park_and_unpark() {
    models::run(|| {
        let g = Arc::new((running(), Token::new(), AtomicU32::new(0)));
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let g = Arc::clone(&g);
                thread::spawn(move || {
                    if let Some(wait) = g.1.give(WakeKind::Park, &g.0)
                        && g.0.wake(wait)
                    {
                        g.2.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let wait = g.0.set_waiting(Reason::Park, 0);
        if g.1.is_there(WakeKind::Park) && g.0.wake(wait) {
            g.2.fetch_add(1, Ordering::SeqCst);
        }
        wakers.into_iter().for_each(|w| w.join().unwrap());
        assert_eq!(
            g.2.load(Ordering::SeqCst),
            1,
            "the goroutine must be queued exactly once"
        );
        assert!(g.1.take(WakeKind::Park));
    });
}

/// A completion and a canceller of the same wait: exactly one of them queues the
/// goroutine, and never while the canceller holds the frame.
#[test]
fn loom_complete_and_cancel() {
    models::run(|| {
        let g = Arc::new((running(), AtomicU32::new(0), AtomicU32::new(0)));
        let wait = g.0.set_waiting(Reason::Io, 0);
        let reaper = {
            let g = Arc::clone(&g);
            thread::spawn(move || {
                g.1.store(1, Ordering::SeqCst);
                after_seq_cst();
                if g.0.wake(wait) {
                    g.2.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        if g.0.begin_cancel(wait) {
            assert_eq!(
                g.2.load(Ordering::SeqCst),
                0,
                "woken while its frame was held"
            );
            g.0.end_cancel(wait);
            if g.1.load(Ordering::SeqCst) != 0 && g.0.wake(wait) {
                g.2.fetch_add(1, Ordering::SeqCst);
            }
        }
        reaper.join().unwrap();
        assert_eq!(
            g.2.load(Ordering::SeqCst),
            1,
            "the goroutine must be queued exactly once"
        );
    });
}

/// A dump that holds a wait loses no wake: the waker may come before, during or after the hold. It
/// takes the token exactly once, and not while the stack is read.
#[test]
fn loom_a_hold_loses_no_wake() {
    models::run(|| {
        let s = Arc::new((running(), AtomicU32::new(0)));
        let wait = s.0.set_waiting(Reason::Join, 0);
        let waker = {
            let s = Arc::clone(&s);
            thread::spawn(move || {
                assert!(s.0.wake(wait), "nobody else takes the token");
                assert_eq!(s.1.swap(2, Ordering::SeqCst), 0, "woken while held");
            })
        };
        if s.0.hold(wait) {
            s.1.store(1, Ordering::SeqCst);
            s.1.store(0, Ordering::SeqCst);
            s.0.let_go(wait);
        }
        waker.join().unwrap();
        assert_eq!(s.0.load().kind(), GKind::Runnable);
    });
}

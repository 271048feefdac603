//! The wake token under every interleaving: unpark against park, a completion
//! against a canceller, several wakers of one wait.

use super::*;
use crate::loom::models::atomic::{AtomicU32, Ordering};
use crate::loom::models::{self, Arc, UnsafeCell, thread};

/// In every order the parker continues exactly once: it finds the token before it sleeps, or
/// exactly one waker wakes it.
#[test]
fn loom_park_and_unpark() {
    models::run(|| {
        let g = Arc::new((Status::running(), Token::new(), AtomicU32::new(0)));
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
        let g = Arc::new((Status::running(), AtomicU32::new(0), AtomicU32::new(0)));
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
        let s = Arc::new((Status::running(), UnsafeCell::new(0)));
        let wait = s.0.set_waiting(Reason::Join, 0);
        let waker = {
            let s = Arc::clone(&s);
            thread::spawn(move || {
                assert!(s.0.wake(wait), "nobody else takes the token");
                s.1.with_mut(|_| {});
            })
        };
        if s.0.hold(wait) {
            s.1.with(|_| {});
            s.0.let_go(wait);
        }
        waker.join().unwrap();
        assert_eq!(s.0.load().kind(), GKind::Runnable);
    });
}

/// A goroutine and its stack, in which its M wrote until the wait began.
type Parked = Arc<(Status, Token, UnsafeCell<u32>)>;

fn parks() -> Parked {
    Arc::new((Status::running(), Token::new(), UnsafeCell::new(0)))
}

fn spawn_for(g: &Parked, f: impl FnOnce(&Parked) + 'static) -> thread::JoinHandle<()> {
    let g = Arc::clone(g);
    thread::spawn(move || f(&g))
}

/// Ends the wait of a goroutine, and runs it on its stack.
fn wakes(g: &Parked) {
    let wait = Status::wait_of(g.0.load());
    if wait.is_some_and(|wait| g.0.wake(wait)) {
        g.2.with_mut(|_| {});
    }
}

/// A waker that finds the wait by its status resumes the goroutine on its own thread: with the stack as
/// its last M left it.
#[test]
fn loom_a_waker_has_the_stack_as_it_was_left() {
    models::run(|| {
        let g = parks();
        let waker = spawn_for(&g, wakes);
        g.2.with_mut(|_| {});
        let _ = g.0.set_waiting(Reason::Sleep, 0);
        waker.join().unwrap();
    });
}

/// As above, for a waker that waited for a hold, whose holder read the stack until it let go.
#[test]
fn loom_a_held_commit_reads_before_the_goroutine_runs() {
    models::run(|| {
        let g = parks();
        let waker = spawn_for(&g, wakes);
        g.2.with_mut(|_| {});
        let _ = g.0.set_waiting_held(Reason::Park, 0, |_| g.2.with(|_| {}));
        waker.join().unwrap();
    });
}

/// A canceller reads the frame while it holds the wait off; another that finds a later wait of the
/// same goroutine sees what was written in between.
#[test]
fn loom_a_cancelled_frame_is_read_before_it_is_popped() {
    models::run(|| {
        let g = parks();
        g.2.with_mut(|_| {});
        let wait = g.0.set_waiting(Reason::Io, 0);
        let canceller = spawn_for(&g, move |g| {
            if g.0.begin_cancel(wait) {
                g.2.with(|_| {});
                g.0.end_cancel(wait);
            }
        });
        if g.0.wake(wait) {
            g.2.with_mut(|_| {});
        }
        canceller.join().unwrap();
    });
}

/// A dump that finds the wait by its status reads the stack as its M left it.
#[test]
fn loom_a_dump_reads_the_stack_as_it_was_left() {
    models::run(|| {
        let g = parks();
        let dump = spawn_for(&g, |g| {
            if let Some(wait) = Status::wait_of(g.0.load())
                && g.0.hold(wait)
            {
                g.2.with(|_| {});
                g.0.let_go(wait);
            }
        });
        g.2.with_mut(|_| {});
        let _ = g.0.set_waiting(Reason::Sleep, 0);
        dump.join().unwrap();
    });
}

/// A goroutine that takes the token sees what the unparker wrote before.
#[test]
fn loom_a_token_brings_what_was_written() {
    models::run(|| {
        let g = parks();
        let unparker = spawn_for(&g, |g| {
            g.2.with_mut(|_| {});
            let _ = g.1.give(WakeKind::Park, &g.0);
        });
        if g.1.take(WakeKind::Park) {
            g.2.with(|_| {});
        }
        unparker.join().unwrap();
    });
}

/// A goroutine without a stack between two polls, a future's news, and what of them the polls have seen. They
/// access the cell.
type Polled = Arc<(Parked, AtomicU32, AtomicU32)>;

/// What an M does with a goroutine that it has woken: polls, until the goroutine waits.
fn polls(polled: &Polled) {
    let (g, news, seen) = &**polled;
    loop {
        g.1.take(WakeKind::Poll);
        g.2.with_mut(|_| seen.store(news.load(Ordering::Relaxed), Ordering::Relaxed));
        let wait = g.0.set_waiting(Reason::Future, 0);
        if !g.1.is_there(WakeKind::Poll) || !g.0.wake(wait) {
            return;
        }
        g.0.set_running();
    }
}

/// Brings news, and wakes the goroutine for it.
fn brings_news(polled: &Polled) {
    let (g, news, _) = &**polled;
    news.fetch_add(1, Ordering::Relaxed);
    let wait = g.1.give(WakeKind::Poll, &g.0);
    if wait.is_some_and(|wait| g.0.wake(wait)) {
        g.0.set_running();
        polls(polled);
    }
}

/// Each poll follows the one before, whichever threads make them, and the last sees what was written before any wake.
#[test]
fn loom_the_last_poll_sees_all_news() {
    models::run(|| {
        let polled: Polled = Arc::new((parks(), AtomicU32::new(0), AtomicU32::new(0)));
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let polled = Arc::clone(&polled);
                thread::spawn(move || brings_news(&polled))
            })
            .collect();
        polls(&polled);
        wakers.into_iter().for_each(|w| w.join().unwrap());
        assert_eq!(polled.2.load(Ordering::Relaxed), 2);
    });
}

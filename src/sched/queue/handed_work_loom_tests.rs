//! A locked M and the threads that post its goroutine, under every interleaving.

use super::*;
use crate::loom::models::atomic::AtomicU32;
use crate::loom::models::{self, Arc, UnsafeCell, thread};
use crate::sched::queue::idle::{IdleSet, IdleWord, ON_FUTEX};

/// A stand-in for a G: only its address is used.
fn g() -> GRef {
    let memory = Box::leak(Box::new([0u128; 64]));
    // SAFETY: zeroed memory larger than a header, never freed; its status is not used.
    unsafe { GRef::from_raw(NonNull::from(memory).cast()) }
}

/// The G gets an M with a P, and the M gets no second P.
#[test]
fn loom_mail_against_giving_the_p_away() {
    models::run(|| {
        let m = Arc::new((HandedWork::new(), AtomicU32::new(1)));
        let giver = {
            let m = Arc::clone(&m);
            thread::spawn(move || {
                if m.0.post(g()) == Posted::ToWaiter {
                    m.1.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        if m.0.begin_waiting() {
            m.1.fetch_sub(1, Ordering::SeqCst);
            giver.join().unwrap();
        } else {
            assert!(m.0.is_there());
            giver.join().unwrap();
        }
        assert!(m.0.take().is_some(), "the goroutine is lost");
        assert_eq!(m.1.load(Ordering::SeqCst), 1, "Ps that the M has");
        assert!(m.0.take().is_none(), "the goroutine is there twice");
    });
}

/// The M does not sleep while its goroutine is posted to it.
#[test]
fn loom_mail_against_falling_asleep() {
    models::run(|| {
        let m = Arc::new((HandedWork::new(), IdleSet::new(0, 1), IdleWord::new()));
        let giver = {
            let m = Arc::clone(&m);
            thread::spawn(move || {
                assert_eq!(m.0.post(g()), Posted::ToHolder);
                // As `locked::wake_sleeper` does.
                if m.1.claim(0) {
                    m.1.add_spinner();
                    let _ = m.2.notify();
                }
            })
        };
        m.2.prepare(ON_FUTEX);
        m.1.go_idle(0, false);
        let asleep = !m.0.is_there();
        giver.join().unwrap();
        assert!(!asleep || m.2.is_notified(), "it sleeps beside its mail");
        assert!(m.0.take().is_some());
    });
}

/// An M lost its P in some other way: a G posted meanwhile is returned to it, or stays with a P.
#[test]
fn loom_mail_against_losing_the_p() {
    models::run(|| {
        let m = Arc::new((HandedWork::new(), AtomicU32::new(0)));
        let giver = {
            let m = Arc::clone(&m);
            thread::spawn(move || {
                if m.0.post(g()) == Posted::ToWaiter {
                    m.1.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        let sent_on = m.0.wait_on().is_some();
        assert!(m.0.wait_on().is_none(), "it waits already");
        giver.join().unwrap();
        let has_p = m.1.load(Ordering::SeqCst) == 1;
        assert_ne!(sent_on, has_p, "lost, or there twice");
        assert_eq!(m.0.is_there(), has_p, "mail without a P");
    });
}

/// The P came, and is lost again before the M has taken the G that came with it.
#[test]
fn loom_mail_whose_p_is_lost_again() {
    models::run(|| {
        let mail = HandedWork::new();
        assert!(mail.wait_on().is_none());
        assert_eq!(mail.post(g()), Posted::ToWaiter);
        mail.end_waiting();
        assert!(mail.wait_on().is_some(), "it has to find another way");
        assert!(!mail.is_there());
    });
}

/// The M sees what the giver did with the goroutine, and the giver, which gives a P, what the M did
/// before it waited.
#[test]
fn loom_mail_brings_what_was_written() {
    struct Locked {
        word: HandedWork,
        of_g: UnsafeCell<u32>,
        of_m: UnsafeCell<u32>,
    }
    for begins in [HandedWork::begin_waiting, |word: &HandedWork| {
        word.wait_on().is_none()
    }] {
        models::run(move || {
            let m = Arc::new(Locked {
                word: HandedWork::new(),
                of_g: UnsafeCell::new(0),
                of_m: UnsafeCell::new(0),
            });
            let giver = {
                let m = Arc::clone(&m);
                thread::spawn(move || {
                    m.of_g.with_mut(|_| {});
                    if m.word.post(g()) == Posted::ToWaiter {
                        m.of_m.with_mut(|_| {});
                    }
                })
            };
            m.of_m.with_mut(|_| {});
            let waits = begins(&m.word);
            match waits {
                // Without a P it waits for its note.
                true if !m.word.is_there() => {}
                true => {
                    m.word.end_waiting();
                    assert!(m.word.take().is_some());
                    m.of_g.with_mut(|_| {});
                }
                // The goroutine is taken, or was returned.
                false => {
                    let _ = m.word.take();
                    m.of_g.with_mut(|_| {});
                }
            }
            giver.join().unwrap();
        });
    }
}

//! A canceller against a wait that begins, and against another waker: the goroutine continues
//! exactly once, and no cancellation is lost.

use super::super::status::{Reason, Token, WakeKind, Why};
use super::*;
use crate::loom::models::atomic::{AtomicU32, Ordering};
use crate::loom::models::{self, Arc, UnsafeCell, thread};

struct Model {
    status: Status,
    word: CancelFlag,
    n_queued: AtomicU32,
}

fn model() -> Arc<Model> {
    let status = Status::running();
    Arc::new(Model {
        status,
        word: CancelFlag::default(),
        n_queued: AtomicU32::new(0),
    })
}

impl Model {
    /// The canceller's side; `true` if it woke the goroutine.
    fn cancel(&self) -> bool {
        self.word.set();
        let wait = self
            .word
            .wait_to_cancel(|| self.status.load())
            .and_then(Status::wait_of);
        let woke = wait.is_some_and(|wait| self.status.wake(wait));
        self.n_queued.fetch_add(u32::from(woke), Ordering::SeqCst);
        woke
    }
}

fn sleeping() -> Why {
    Why::cancellable(Reason::Sleep, true)
}

#[test]
fn loom_a_cut_meets_the_wait_that_begins() {
    models::run(|| {
        let m = model();
        let canceller = {
            let m = Arc::clone(&m);
            thread::spawn(move || m.cancel())
        };
        let wait = m.status.set_waiting(sleeping(), 0);
        if m.word.is_set() && m.status.wake(wait) {
            m.n_queued.fetch_add(1, Ordering::SeqCst);
        }
        canceller.join().unwrap();
        assert_eq!(m.n_queued.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn loom_a_cut_and_a_waker() {
    models::run(|| {
        let m = model();
        let wait = m.status.set_waiting(sleeping(), 0);
        let waker = {
            let m = Arc::clone(&m);
            thread::spawn(move || {
                let woke = m.status.wake(wait);
                m.n_queued.fetch_add(u32::from(woke), Ordering::SeqCst);
            })
        };
        m.cancel();
        waker.join().unwrap();
        assert_eq!(m.n_queued.load(Ordering::SeqCst), 1);
    });
}

/// A context outside a shield does not wake a wait inside it, whenever the canceller comes; it does
/// wake the wait after the shield.
#[test]
fn loom_a_shield_holds() {
    models::run(|| {
        let m = model();
        let canceller = {
            let m = Arc::clone(&m);
            thread::spawn(move || m.cancel())
        };
        m.word.mask();
        let inside = m.status.set_waiting(sleeping(), 0);
        assert!(m.status.wake(inside), "woken inside the shield");
        m.status.set_running();
        m.word.unmask();
        let after = m.status.set_waiting(sleeping(), 0);
        if m.word.is_set() && m.status.wake(after) {
            m.n_queued.fetch_add(1, Ordering::SeqCst);
        }
        canceller.join().unwrap();
        assert_eq!(m.n_queued.load(Ordering::SeqCst), 1);
    });
}

/// `unpark` finds a park inside a context by its status. The goroutine that it wakes pops the frame
/// of the scope, so the commit must not read the scope any more. Loom reports a read that is
/// concurrent with the write that represents the pop.
#[test]
fn loom_an_unpark_does_not_pop_a_frame_under_the_commit() {
    struct Parking {
        status: Status,
        token: Token,
        word: CancelFlag,
        frame: UnsafeCell<u32>,
    }
    // SAFETY: the accesses to the frame are what the model checks.
    unsafe impl Sync for Parking {}

    models::run(|| {
        let status = Status::running();
        let m = Arc::new(Parking {
            status,
            token: Token::new(),
            word: CancelFlag::default(),
            frame: UnsafeCell::new(0),
        });
        let unparker = {
            let m = Arc::clone(&m);
            thread::spawn(move || {
                let wait = m.token.give(WakeKind::Park, &m.status);
                if wait.is_some_and(|wait| m.status.wake(wait)) {
                    // The goroutine continues, and leaves its context.
                    m.frame.with_mut(|_| {});
                }
            })
        };
        let canceller = {
            let m = Arc::clone(&m);
            thread::spawn(move || m.word.set())
        };
        let why = Why::cancellable(Reason::Park, true);
        let (wait, is_over) = m.status.set_waiting_held(why, 0, |_| {
            m.token.is_there(WakeKind::Park) || m.frame.with(|_| m.word.is_set())
        });
        if is_over && m.status.wake(wait) {
            m.frame.with_mut(|_| {});
        }
        unparker.join().unwrap();
        canceller.join().unwrap();
    });
}

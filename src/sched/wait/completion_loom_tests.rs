//! A setter against a thread that waits, or withdraws, and against a goroutine that parks: no event is missed, and the
//! frame is not accessed after it ended.

use super::*;
use crate::g::status::Status;
use crate::loom::models::{self, Arc, UnsafeCell, thread};
use crate::sys::clock::NEVER;

struct Model {
    word: AtomicPtr<()>,
    status: Status,
    outcome: UnsafeCell<u32>,
}

// SAFETY: the accesses to the outcome are what the model checks.
unsafe impl Sync for Model {}

fn model() -> Arc<Model> {
    Arc::new(Model {
        word: AtomicPtr::new(NOTHING),
        status: Status::running(),
        outcome: UnsafeCell::new(0),
    })
}

impl Model {
    fn store_outcome(&self) {
        // SAFETY: loom reports an access that is concurrent.
        self.outcome.with_mut(|outcome| unsafe { *outcome = 7 });
    }

    fn finish(&self) {
        self.store_outcome();
        set(&self.word);
    }

    fn assert_outcome(&self) {
        assert!(is_done(&self.word));
        // SAFETY: as above.
        assert_eq!(self.outcome.with(|outcome| unsafe { *outcome }), 7);
    }
}

#[test]
fn loom_a_thread_waits_for_an_event() {
    models::run(|| {
        let m = model();
        let setter = {
            let m = Arc::clone(&m);
            thread::spawn(move || m.finish())
        };
        wait_blocked(&m.word, NEVER);
        m.assert_outcome();
        setter.join().unwrap();
    });
}

#[test]
fn loom_a_thread_gives_up_an_event() {
    models::run(|| {
        let m = model();
        let setter = {
            let m = Arc::clone(&m);
            thread::spawn(move || m.finish())
        };
        wait_blocked(&m.word, 0);
        setter.join().unwrap();
        m.assert_outcome();
    });
}

/// A goroutine parks and publishes itself. Then two wakers race: the setter, and one who ends the wait without the event,
/// as the end of a run does. The thread whose wake counts runs the goroutine's code from there on.
#[test]
fn loom_a_goroutine_waits_for_an_event() {
    models::run(|| {
        let m = model();
        let waiter = Box::into_raw(Box::new(CompletionWaiter::new(None)));
        let goes_on = move |m: &Model, wait| {
            if m.status.wake(wait) {
                // SAFETY: this thread alone goes on, and its frame ends.
                let waiter = unsafe { Box::from_raw(waiter) };
                if waiter.is_over(&m.word) {
                    m.assert_outcome();
                }
            }
        };
        let setter = {
            let m = Arc::clone(&m);
            thread::spawn(move || {
                m.store_outcome();
                if let Ok(waiter) = take_waiter(&m.word) {
                    // SAFETY: this thread has taken the waiter.
                    goes_on(&m, unsafe { release(waiter) }.wait);
                }
            })
        };
        let wait = m.status.set_waiting(Reason::Join, 0);
        // SAFETY: nobody knows the frame.
        unsafe { &*waiter }.publish_wait(&m.word, wait);
        goes_on(&m, wait);
        setter.join().unwrap();
    });
}

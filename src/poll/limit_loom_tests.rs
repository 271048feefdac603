//! A deadline is moved to an earlier time while a goroutine begins to wait, in every interleaving:
//! the goroutine arms its timer for the new time, or the mover ends its wait.

use std::ptr::NonNull;

use super::*;
use crate::loom::models::atomic::{AtomicBool, Ordering};
use crate::loom::models::{self, Arc, thread};

struct Sleeper(Status);

impl HasStatus for Sleeper {
    fn status(&self) -> &Status {
        &self.0
    }
}

#[test]
fn loom_a_moved_deadline_reaches_the_wait() {
    models::run(|| {
        let status = Status::running();
        let shared = Arc::new((
            MovableDeadline::<Sleeper>::new(),
            Sleeper(status),
            AtomicBool::new(false),
        ));
        let mover = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (limit, _, ended) = &*shared;
                limit.set(7, |who, wait| {
                    // SAFETY: the sleeper lives in the shared allocation.
                    let status = &unsafe { who.as_ref() }.0;
                    assert!(status.wake(wait), "only the mover ends this wait");
                    ended.store(true, Ordering::SeqCst);
                });
            })
        };
        let (limit, sleeper, ended) = &*shared;
        // SAFETY: the sleeper outlives the guard.
        let waiting = unsafe { limit.enter(NonNull::from(sleeper)) };
        let _wait = sleeper.0.set_waiting(Reason::Io, 0);
        let armed_for = limit.ns();
        mover.join().unwrap();
        assert!(
            armed_for == 7 || ended.load(Ordering::SeqCst),
            "the goroutine sleeps past its deadline"
        );
        drop(waiting);
    });
}

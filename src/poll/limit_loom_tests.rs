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
            MovableDeadline::<Sleeper>::new(None),
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
        limit.enter(NonNull::from(sleeper));
        let _wait = sleeper.0.set_waiting(Reason::Io, 0);
        let armed_for = limit.ns();
        mover.join().unwrap();
        assert!(
            armed_for == 7 || ended.load(Ordering::SeqCst),
            "the goroutine sleeps past its deadline"
        );
        limit.leave(NonNull::from(sleeper));
    });
}

struct ReadsOnly(MovableDeadline<Sleeper>);

impl Limits<Sleeper> for ReadsOnly {
    fn new(first: Option<(Direction, NonNull<Sleeper>)>) -> ReadsOnly {
        ReadsOnly(MovableDeadline::new(first.map(|(_, who)| who)))
    }

    fn limit(&self, _: Direction) -> &MovableDeadline<Sleeper> {
        &self.0
    }
}

/// As above, and the deadline is made meanwhile.
#[test]
fn loom_a_deadline_that_is_made_reaches_the_wait() {
    models::run(|| {
        let status = Status::running();
        let shared = Arc::new((
            Made::<ReadsOnly, Sleeper>::nothing(),
            Sleeper(status),
            AtomicBool::new(false),
        ));
        let mover = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (made, _, ended) = &*shared;
                made.make().limit(Direction::Read).set(7, |who, wait| {
                    // SAFETY: the sleeper lives in the shared allocation.
                    let status = &unsafe { who.as_ref() }.0;
                    if status.wake(wait) {
                        ended.store(true, Ordering::SeqCst);
                    }
                });
            })
        };
        let (made, sleeper, ended) = &*shared;
        let who = NonNull::from(sleeper);
        made.enter(Direction::Read, who);
        let _wait = sleeper.0.set_waiting(Reason::Io, 0);
        let armed_for = made.ns(Direction::Read);
        mover.join().unwrap();
        assert!(
            armed_for == 7 || ended.load(Ordering::SeqCst),
            "the goroutine sleeps past its deadline"
        );
        made.leave(Direction::Read, who);
        let limit = made.make().limit(Direction::Read);
        assert!(limit.first.load(Ordering::SeqCst).is_null(), "it has left");
    });
}

/// A goroutine leaves while the deadline is made: it is not left over there.
#[test]
fn loom_one_that_leaves_is_not_left_over() {
    models::run(|| {
        let status = Status::running();
        let shared = Arc::new((Made::<ReadsOnly, Sleeper>::nothing(), Sleeper(status)));
        let who = NonNull::from(&shared.1);
        shared.0.enter(Direction::Read, who);
        let maker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.0.make();
            })
        };
        shared.0.leave(Direction::Read, who);
        maker.join().unwrap();
        let limit = shared.0.make().limit(Direction::Read);
        assert!(limit.first.load(Ordering::SeqCst).is_null());
    });
}

//! What cannot be brought about from outside: moments, and numbers.
#![allow(unsafe_code)]

use std::time::Duration;

use windlass_ground::cpu::stack_pointer;

use super::*;
use crate::loom::native::atomic::Ordering;
use crate::sched::types::current;
use crate::{Builder, task};

const HOUR: Duration = Duration::from_secs(3600);

/// Runs `look_at` beside a goroutine that is leaked, and one that joins it for an hour. The latter waits on no other P.
fn beside_a_join_with_a_deadline(look_at: impl FnOnce(&Sched, GRef) + Send) {
    // SAFETY: nothing here keeps a borrow of a thread-local across a call that parks.
    let runtime = unsafe { Builder::new().processors(1).build() }.unwrap();
    runtime.run(|| {
        let lost = task::Builder::new().name("lost").spawn(task::park).unwrap();
        let wakes = lost.task();
        let joins = task::spawn(move || drop(lost.join_timeout(HOUR)));
        let id = joins.task().id();
        let is_waiting = |known: &Known| known.goroutine.id == id && known.stack.is_some();
        let sched = current::m().unwrap().sched();
        let joiner = loop {
            task::yield_now();
            let all = survey::all(sched, stack_pointer());
            if let Some(known) = all
                .iter()
                .find(|k| is_waiting(k) && k.status.kind() == GKind::Waiting)
            {
                break known.g;
            }
        };
        look_at(sched, joiner);
        wakes.unpark();
        joins.join().unwrap();
    });
}

/// The wait is published, and its timer is not armed yet.
#[test]
fn a_join_that_begins_is_not_looked_at() {
    beside_a_join_with_a_deadline(|sched, joiner| {
        let m = current::m().unwrap();
        m.committing.store(joiner.as_ptr(), Ordering::Release);
        let all = survey::all(sched, stack_pointer());
        m.committing.store(std::ptr::null_mut(), Ordering::Release);
        let known = all.iter().find(|k| k.g == joiner).unwrap();
        assert!(end_of(known).is_none(), "{:?}", known.goroutine);
        let all = survey::all(sched, stack_pointer());
        assert!(end_of(all.iter().find(|k| k.g == joiner).unwrap()).is_some());
    });
}

/// The timers of one P are about to be another's.
#[test]
fn nothing_is_said_while_timers_move() {
    beside_a_join_with_a_deadline(|sched, joiner| {
        let timed = survey::with_timers(sched).unwrap();
        assert!(timed.contains(&joiner.as_ptr().addr()));
        let [begun, ended] = &sched.timer_moves;
        begun.fetch_add(1, Ordering::SeqCst);
        let moved = sched.ps[0].timers.take_all();
        assert!(survey::with_timers(sched).is_none());
        sched.ps[0].timers.adopt(moved);
        ended.fetch_add(1, Ordering::SeqCst);
        assert!(survey::with_timers(sched).is_some());
    });
}

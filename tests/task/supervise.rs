//! Supervisors: failed work is run again, after a pause, until a limit. Panics of goroutines that are not joined are counted.

use crate::util;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use windlass::context::Context;
use windlass::task::{self, GaveUp, Group, Supervisor};
use windlass::{Handle, sleep, spawn};

const MS: Duration = Duration::from_millis(1);

#[test]
fn errors_and_panics_are_followed_by_a_restart_after_a_pause() {
    util::run(2, || {
        let begin = Instant::now();
        let mut n = 0;
        let result = Supervisor::new().backoff(MS, 2 * MS).run(|| {
            n += 1;
            match n {
                1 | 3 => Err("no"),
                2 => panic!("a panic of the test"),
                _ => Ok(n),
            }
        });
        assert_eq!(result.unwrap(), 4);
        assert!(begin.elapsed() >= 5 * MS);
    });
}

#[test]
fn the_limit_ends_it_with_the_last_failure() {
    util::run(2, || {
        let supervisor = Supervisor::new().backoff(Duration::ZERO, MS);
        let limited = supervisor.clone().limit(3, Duration::from_secs(3600));
        let mut n = 0;
        let fails = || -> Result<(), u32> {
            n += 1;
            Err(n)
        };
        let failed = limited.run(fails).unwrap_err();
        assert!(matches!(failed, GaveUp::Error(4)), "{failed:?}");
        let panics = || -> Result<(), u32> { std::panic::panic_any("the last one") };
        let GaveUp::Panic(payload) = limited.run(panics).unwrap_err() else {
            panic!("it was a panic");
        };
        assert_eq!(payload.downcast_ref(), Some(&"the last one"));
        // Restarts that are older than the time do not count.
        let pauses = supervisor.backoff(2 * MS, 2 * MS).limit(1, MS);
        let mut n = 0;
        let result = pauses.run(|| {
            n += 1;
            if n < 10 { Err(n) } else { Ok(n) }
        });
        assert_eq!(result.unwrap(), 10);
    });
}

/// Failures that are followed by a restart are dropped, and their destructors may panic, too.
#[test]
fn failures_whose_drop_panics_are_followed_by_a_restart() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("a panic of the test");
        }
    }
    util::run(2, || {
        let mut n = 0;
        let result = Supervisor::new().backoff(Duration::ZERO, MS).run(|| {
            n += 1;
            match n {
                1 => Err(Panics),
                2 => std::panic::panic_any(Panics),
                _ => Ok(n),
            }
        });
        assert!(matches!(result, Ok(3)));
    });
}

/// In a process of its own, which a panic during the unwinding would end.
#[test]
fn a_failure_whose_drop_panics_lets_its_run_end() {
    let name = "a_failure_whose_drop_panics_lets_its_run_end";
    let Some(case) = util::child_case() else {
        for case in ["error", "panic"] {
            util::child_passes(name, case);
        }
        return;
    };
    let n = Arc::new(AtomicUsize::new(0));
    let runs = Arc::clone(&n);
    util::run(2, move || {
        let hour = Duration::from_secs(3600);
        drop(spawn({
            let runs = Arc::clone(&runs);
            move || {
                Supervisor::new().backoff(hour, hour).run(|| {
                    runs.fetch_add(1, Ordering::SeqCst);
                    match &*case {
                        "error" => Err::<(), _>(PanicsWhenDropped),
                        _ => std::panic::panic_any(PanicsWhenDropped),
                    }
                })
            }
        }));
        util::wait_until(|| runs.load(Ordering::SeqCst) == 1);
        // To its pause: it has left its closure.
        sleep(5 * MS);
    });
    assert_eq!(n.load(Ordering::SeqCst), 1);
}

#[test]
#[should_panic(expected = "the first pause is longer than the longest")]
fn pauses_that_shrink_are_refused() {
    let _ = Supervisor::new().backoff(2 * MS, MS);
}

#[test]
fn a_context_ends_a_pause() {
    util::run(2, || {
        let (ctx, canceller) = Context::background().with_cancel();
        let n = Arc::new(AtomicUsize::new(0));
        let runs = Arc::clone(&n);
        let hour = Duration::from_secs(3600);
        let supervised = task::spawn_in(&ctx, move || {
            Supervisor::new().backoff(hour, hour).run(|| {
                runs.fetch_add(1, Ordering::SeqCst);
                Err::<(), _>("no")
            })
        });
        util::wait_until(|| n.load(Ordering::SeqCst) == 1);
        canceller.cancel();
        let failed = supervised.join().unwrap().unwrap_err();
        assert!(matches!(failed, GaveUp::Error("no")), "{failed:?}");
        assert_eq!(n.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn the_end_of_the_run_is_no_failure() {
    let n = Arc::new(AtomicUsize::new(0));
    let runs = Arc::clone(&n);
    util::run(2, move || {
        let supervisor = Supervisor::new().backoff(Duration::ZERO, MS);
        drop(spawn({
            let runs = Arc::clone(&runs);
            move || {
                supervisor.run(|| {
                    runs.fetch_add(1, Ordering::SeqCst);
                    task::park();
                    Err::<(), _>("unparked")
                })
            }
        }));
        util::wait_until(|| runs.load(Ordering::SeqCst) == 1);
    });
    assert_eq!(n.load(Ordering::SeqCst), 1);
}

/// Without a pause and without a wait there is nothing else at which it could unwind.
#[test]
fn work_that_never_waits_ends_with_the_run() {
    for fails in [
        || Err::<(), _>("no"),
        || std::panic::resume_unwind(Box::new("no")),
    ] {
        util::run(1, move || {
            let supervisor = Supervisor::new().backoff(Duration::ZERO, Duration::ZERO);
            let n = Arc::new(AtomicUsize::new(0));
            let runs = Arc::clone(&n);
            drop(spawn(move || {
                supervisor.run(|| {
                    runs.fetch_add(1, Ordering::SeqCst);
                    fails()
                })
            }));
            util::wait_until(|| n.load(Ordering::SeqCst) > 2);
        });
    }
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("nobody takes the result");
    }
}

/// In a process of its own, as the counter is the process's.
#[test]
fn panics_of_detached_goroutines_are_counted() {
    let name = "panics_of_detached_goroutines_are_counted";
    if util::child_case().is_none() {
        let output = util::child_command(name, "counts").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let rt = util::runtime(2);
    let count = || rt.metrics().detached_panics;
    let handle = rt.run(|| {
        drop(spawn(|| panic!("nobody joins")));
        util::wait_until(|| count() == 1);
        // Its handle is dropped after its end.
        let panics = spawn(|| panic!("nobody joins, again"));
        util::wait_until(|| panics.is_finished());
        assert_eq!(count(), 1);
        drop(panics);
        assert_eq!(count(), 2);
        // Nobody takes a result whose destructor panics.
        let result = spawn(|| PanicsWhenDropped);
        util::wait_until(|| result.is_finished());
        drop(result);
        assert_eq!(count(), 3);
        // A join and a supervisor return these panics, so they are not counted.
        assert!(spawn(|| panic!("joined")).join().is_err());
        let _ = Supervisor::new()
            .limit(0, MS)
            .run(|| -> Result<(), ()> { panic!("supervised") });
        assert_eq!(Handle::current().metrics().detached_panics, 3);
        // A group passes the first panic on, if someone waits for it.
        let group = Group::<()>::new();
        for _ in 0..2 {
            group.spawn(|| panic!("of a group"));
        }
        assert!(catch_unwind(AssertUnwindSafe(|| group.wait())).is_err());
        assert_eq!(count(), 4);
        let group = Group::<()>::new();
        group.spawn(|| panic!("of a group that nobody waits for"));
        drop(group);
        util::wait_until(|| count() == 5);
        // Those that the end of the run ends do not panic.
        drop(spawn(task::park));
        let group = Group::<()>::new();
        group.spawn(|| {
            task::park();
            Ok(())
        });
        drop(group);
        let last = spawn(|| panic!("dropped after the run"));
        util::wait_until(|| last.is_finished());
        last
    });
    assert_eq!(count(), 5);
    drop(handle);
    assert_eq!(count(), 6);
}

//! Leaked goroutines that counts of references and joins prove, in every build. tests/leaks.rs has those of handles.

use crate::found::{leaks, names, wait_until_it_waits, waits};
use crate::util;

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;

use windlass::context::Context;
use windlass::debug::Verdict;
use windlass::task::{self, JoinHandle, Task};
use windlass::{Handle, blocking, channel, spawn};

#[test]
fn nobody_can_unpark_it() {
    util::run(2, || {
        let lost = waits("lost", task::park);
        let kept = waits("kept", task::park);
        assert!(leaks().leaks.is_empty(), "both have handles");
        let id = lost.task().id();
        drop(lost);
        let found = leaks();
        assert_eq!(names(&found), ["lost"]);
        let leak = &found.leaks[0];
        assert_eq!(
            (leak.goroutine.id, leak.verdict),
            (id, Verdict::Proved),
            "{found}"
        );
        assert_eq!(leak.goroutine.wait_reason, Some("park"));
        let text = found.to_string();
        let says = format!(
            ": 1 leaked goroutines\n\nleaked: nobody has a handle by which to unpark it\ngoroutine {id} [park"
        );
        assert!(text.contains(&says), "{text}");
        assert!(text.contains("tests/debug/leaks.rs:"), "{text}");
        kept.task().unpark();
        kept.join().unwrap();
    });
}

#[test]
fn no_waker_of_its_future_is_left() {
    util::run(2, || {
        let keeps = Arc::new(Mutex::new(Vec::new()));
        let its = Arc::clone(&keeps);
        let waiter = waits("future", move || {
            windlass::future::block_on(poll_fn(|cx| {
                its.lock().unwrap().push(cx.waker().clone());
                Poll::<()>::Pending
            }));
        });
        drop(waiter);
        assert!(leaks().leaks.is_empty(), "there is a waker");
        keeps.lock().unwrap().clear();
        let found = leaks();
        assert_eq!(names(&found), ["future"]);
        assert_eq!(found.leaks[0].verdict, Verdict::Proved);
        assert_eq!(found.leaks[0].reason, "no waker for it is left");
    });
}

/// A poll of a goroutine for a future has a waker that is not counted.
#[test]
fn what_parks_in_a_future_can_be_unparked() {
    util::run(2, || {
        let waiter = windlass::future::spawn(async { task::park() });
        wait_until_it_waits(waiter.task().id());
        let found = leaks();
        waiter.task().unpark();
        waiter.join().unwrap();
        assert!(found.leaks.is_empty(), "there is a handle: {found}");
    });
}

#[test]
fn a_future_in_a_future_can_be_woken() {
    util::run(2, || {
        let keeps = Arc::new(Mutex::new(Vec::<Waker>::new()));
        let its = Arc::clone(&keeps);
        let waiter = windlass::future::spawn(async move {
            windlass::future::block_on(poll_fn(|cx| {
                let mut kept = its.lock().unwrap();
                kept.push(cx.waker().clone());
                if kept.len() > 1 {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            }));
        });
        wait_until_it_waits(waiter.task().id());
        drop(waiter);
        let found = leaks();
        keeps.lock().unwrap()[0].wake_by_ref();
        assert!(found.leaks.is_empty(), "there is a waker: {found}");
    });
}

/// A goroutine that waits inside of a poll may have lent the waker of that poll to another one, which wakes it without a
/// clone.
#[test]
fn a_waker_that_is_lent_to_another() {
    util::run(2, || {
        let (stop, stopped) = channel::bounded::<()>(0);
        let lends = move || {
            let is_over = AtomicBool::new(false);
            windlass::future::block_on(poll_fn(|outer| {
                let waker = outer.waker();
                task::scope(|s| {
                    s.spawn(|| {
                        let _ = stopped.recv();
                        is_over.store(true, Ordering::SeqCst);
                        waker.wake_by_ref();
                    });
                    windlass::future::block_on(poll_fn(|_| match is_over.load(Ordering::SeqCst) {
                        true => Poll::Ready(()),
                        false => Poll::Pending,
                    }));
                });
                Poll::Ready(())
            }));
        };
        let waiter = waits("lends", lends);
        let id = waiter.task().id();
        drop(waiter);
        let found = leaks();
        drop(stop);
        util::wait_until(|| Handle::current().goroutines().iter().all(|g| g.id != id));
        assert!(found.leaks.is_empty(), "it went on: {found}");
    });
}

#[test]
fn rings_of_joins_and_who_waits_for_them() {
    util::run(2, || {
        let (give_one, one) = mpsc::channel::<JoinHandle<()>>();
        let (give_two, two) = mpsc::channel::<JoinHandle<()>>();
        let joins = |name: &str, handles: mpsc::Receiver<JoinHandle<()>>| {
            let join = move || drop(blocking(|| handles.recv()).unwrap().join());
            task::Builder::new().name(name).spawn(join).unwrap()
        };
        let (first, second) = (joins("first", one), joins("second", two));
        let ids = [first.task().id(), second.task().id()];
        give_one.send(second).unwrap();
        give_two.send(first).unwrap();
        ids.into_iter().for_each(wait_until_it_waits);
        util::wait_until(|| leaks().leaks.len() == 2);
        let found = leaks();
        assert_eq!(names(&found), ["first", "second"]);
        assert!(
            found.leaks.iter().all(|l| l.verdict == Verdict::Proved),
            "{found}"
        );
        let says = format!("goroutine {}, which it joins, is leaked", ids[1]);
        assert_eq!(found.leaks[0].reason, says);
        assert_eq!(found.leaks[0].goroutine.waits_for, Some(ids[1]));
    });
}

#[test]
fn joins_of_what_goes_on_or_that_end_early_are_none() {
    util::run(2, || {
        let (ctx, canceller) = Context::background().with_cancel();
        let (stop, stopped) = channel::bounded::<()>(0);
        let works = spawn(move || {
            let _ = stopped.recv();
        });
        let joins = waits("joins", move || works.join().unwrap());
        let lost = || waits("lost", task::park);
        let (in_context, with_deadline) = (lost(), lost());
        let tasks: [Task; 2] = [in_context.task(), with_deadline.task()];
        let by_context = waits("by context", move || drop(in_context.join_context(&ctx)));
        let by_time = waits("by time", move || {
            drop(with_deadline.join_timeout(Duration::from_secs(3600)));
        });
        let sleeps = waits("sleeps", || task::park_timeout(Duration::from_secs(3600)));
        let sleeper = sleeps.task();
        drop(sleeps);
        let found = leaks();
        assert!(found.leaks.is_empty(), "{found}");
        canceller.cancel();
        by_context.join().unwrap();
        tasks.iter().for_each(Task::unpark);
        by_time.join().unwrap();
        sleeper.unpark();
        drop(stop);
        joins.join().unwrap();
    });
}

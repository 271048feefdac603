//! Contexts: what they end, what they leave alone, and that nothing is lost.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::error::Error as _;
use std::io::{self, ErrorKind, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::util::{Census, Pattern, hang_guard, pair, run, runtime, wait_until};
use windlass::context::{self, Canceller, Context, Error, shield};
use windlass::net::TcpListener;
use windlass::task::{self, Cancelled, JoinHandle};
use windlass::time::{Duration, Instant};
use windlass::{blocking, channel, sleep, spawn, yield_now};

const FOREVER: Duration = Duration::from_secs(1 << 30);
const MOMENT: Duration = Duration::from_millis(2);

fn context_error(e: &io::Error) -> Option<Error> {
    e.get_ref()?.downcast_ref().copied()
}

#[track_caller]
fn assert_cancelled<T: std::fmt::Debug>(r: io::Result<T>) {
    let e = r.unwrap_err();
    assert_eq!(
        (e.kind(), context_error(&e)),
        (ErrorKind::Other, Some(Error::Cancelled))
    );
}

#[track_caller]
fn assert_late<T: std::fmt::Debug>(r: io::Result<T>) {
    let e = r.unwrap_err();
    assert_eq!(
        (e.kind(), context_error(&e)),
        (ErrorKind::TimedOut, Some(Error::DeadlineExceeded))
    );
}

/// Everything that a context ends, each in a goroutine of its own that says when it
/// begins.
fn wait_in_every_way(ctx: &Context, n_begun: &Arc<AtomicUsize>) -> Vec<JoinHandle<()>> {
    let mut all = Vec::new();
    macro_rules! waits {
        ($body:expr) => {{
            let (ctx, n_begun) = (ctx.clone(), Arc::clone(n_begun));
            #[allow(unused_mut, reason = "some write to what they capture")]
            let mut body = $body;
            all.push(spawn(move || {
                ctx.run(|| {
                    n_begun.fetch_add(1, Ordering::SeqCst);
                    body();
                    assert!(ctx.is_done());
                });
            }));
        }};
    }
    let is_cut = |e: io::Error| assert!(context_error(&e).is_some(), "{e:?}");

    waits!(|| sleep(FOREVER));
    waits!(|| {
        // May return early, but not for ever.
        while context_is_open() {
            task::park();
        }
    });
    waits!(|| {
        while context_is_open() {
            task::park_timeout(FOREVER);
        }
    });
    let (mut a, keep) = pair();
    waits!(move || {
        is_cut(a.read(&mut [0; 10]).unwrap_err());
        let _ = &keep;
    });
    let (a, keep) = pair();
    waits!(move || {
        is_cut(a.peek(&mut [0; 10]).unwrap_err());
        let _ = &keep;
    });
    let (mut a, keep) = pair();
    waits!(move || {
        is_cut(a.write_all(&vec![0; 64 << 20]).unwrap_err());
        let _ = &keep;
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    waits!(move || is_cut(listener.accept().unwrap_err()));
    let mut other = Some(spawn(|| sleep(FOREVER)));
    waits!(move || {
        let handle = other.take().unwrap().join_timeout(FOREVER);
        assert!(handle.is_err());
    });
    let own = ctx.clone();
    waits!(move || own.wait());
    let (mut a, keep) = pair();
    waits!(move || {
        blocking(|| is_cut(a.read(&mut [0; 10]).unwrap_err()));
        let _ = &keep;
    });
    waits!(|| blocking(|| sleep(FOREVER)));
    all
}

/// Whether the ambient context is not done, as far as calls tell.
fn context_is_open() -> bool {
    let start = Instant::now();
    sleep(Duration::from_micros(200));
    start.elapsed() >= Duration::from_micros(200)
}

#[test]
fn a_cancel_ends_every_wait() {
    run(2, || {
        for pause in [Duration::ZERO, MOMENT] {
            let (ctx, canceller) = Context::background().with_cancel();
            let n_begun = Arc::default();
            let all = wait_in_every_way(&ctx, &n_begun);
            wait_until(|| n_begun.load(Ordering::SeqCst) == all.len());
            sleep(pause);
            assert_eq!(ctx.err(), None);
            canceller.cancel();
            assert_eq!(ctx.err(), Some(Error::Cancelled));
            all.into_iter().for_each(|j| j.join().unwrap());
        }
    });
}

#[test]
fn a_deadline_ends_every_wait() {
    run(2, || {
        let ctx = Context::background().with_timeout(Duration::from_millis(20));
        let n_begun = Arc::default();
        let all = wait_in_every_way(&ctx, &n_begun);
        all.into_iter().for_each(|j| j.join().unwrap());
        assert!(Instant::now() >= ctx.deadline().unwrap());
        assert_eq!(ctx.err(), Some(Error::DeadlineExceeded));
    });
}

#[test]
fn a_thread_cancels_goroutines() {
    run(2, || {
        let (ctx, canceller) = Context::background().with_cancel();
        let n_begun = Arc::default();
        let all = wait_in_every_way(&ctx, &n_begun);
        wait_until(|| n_begun.load(Ordering::SeqCst) == all.len());
        let thread = std::thread::spawn(move || canceller.cancel());
        all.into_iter().for_each(|j| j.join().unwrap());
        thread.join().unwrap();
    });
}

#[test]
fn a_context_that_is_done_lets_nothing_wait() {
    run(1, || {
        let (ctx, canceller) = Context::background().with_cancel();
        drop(canceller);
        let (mut a, mut b) = pair();
        b.write_all(b"there").unwrap();
        ctx.run(|| {
            assert_cancelled(a.read(&mut [0; 10]));
            assert_cancelled(a.write(&[1]));
            sleep(FOREVER);
            task::park();
        });
        let late = Context::background().with_timeout(Duration::ZERO);
        late.run(|| assert_late(a.read(&mut [0; 10])));
        // The bytes are still there.
        let mut buf = [0; 5];
        a.read_exact(&mut buf).unwrap();
        assert_eq!(&buf, b"there");
    });
}

#[test]
fn errors_say_why() {
    run(1, || {
        let (mut a, _b) = pair();
        let (ctx, canceller) = Context::background().with_cancel();
        canceller.cancel_because("the user went home");
        canceller.cancel_because("too late to say this");
        let cause = ctx.cause().unwrap();
        assert_eq!(cause.to_string(), "the user went home");
        let child = ctx.with_timeout(FOREVER);
        assert_eq!(child.err(), Some(Error::Cancelled));
        assert_eq!(child.cause().unwrap().to_string(), "the user went home");
        let e = ctx.run(|| a.read(&mut [0]).unwrap_err());
        assert_eq!(e.to_string(), "the context was cancelled");
        assert!(Error::Cancelled.source().is_none());
        let late = Context::background().with_timeout(Duration::ZERO);
        let e = late.run(|| a.read(&mut [0]).unwrap_err());
        assert_eq!(e.to_string(), "the deadline of the context has passed");
        assert!(late.cause().is_none());
    });
}

#[test]
fn a_socket_timeout_of_its_own_stays_itself() {
    run(1, || {
        let (mut a, _b) = pair();
        a.set_read_timeout(Some(MOMENT)).unwrap();
        let ctx = Context::background().with_timeout(FOREVER);
        let e = ctx.run(|| a.read(&mut [0]).unwrap_err());
        assert_eq!((e.kind(), context_error(&e)), (ErrorKind::WouldBlock, None));
        a.set_read_timeout(Some(FOREVER)).unwrap();
        let ctx = Context::background().with_timeout(MOMENT);
        ctx.run(|| assert_late(a.read(&mut [0])));
    });
}

#[test]
fn no_byte_is_lost_when_reads_are_cut() {
    const LEN: usize = 3_000_000;
    run(2, || {
        let (mut a, mut b) = pair();
        let pattern = Arc::new(Pattern::new());
        let n_cut = Arc::new(AtomicUsize::new(0));
        let writer = spawn({
            let (pattern, n_cut) = (Arc::clone(&pattern), Arc::clone(&n_cut));
            move || {
                for from in (0..LEN).step_by(10_000) {
                    if from % 200_000 == 0 {
                        // With nothing to read the reader waits until it is cut.
                        let before = n_cut.load(Ordering::SeqCst);
                        wait_until(|| n_cut.load(Ordering::SeqCst) > before);
                    }
                    pattern.write(&mut b, from, from + 10_000, 3_000).unwrap();
                    yield_now();
                }
            }
        });
        let current: Arc<Mutex<Option<Canceller>>> = Arc::default();
        let over = Arc::new(AtomicBool::new(false));
        let canceller = spawn({
            let (current, over) = (Arc::clone(&current), Arc::clone(&over));
            move || {
                while !over.load(Ordering::SeqCst) {
                    drop(current.lock().unwrap().take());
                    yield_now();
                }
            }
        });
        let mut at = 0;
        let mut buf = [0; 4096];
        while at < LEN {
            let (ctx, canceller) = Context::background().with_cancel();
            *current.lock().unwrap() = Some(canceller);
            let r = ctx.run(|| a.read(&mut buf));
            match r {
                Ok(n) => {
                    assert_ne!(n, 0);
                    assert!(buf[..n] == *pattern.bytes(at, n), "wrong bytes at {at}");
                    at += n;
                }
                Err(e) => {
                    assert_eq!(context_error(&e), Some(Error::Cancelled));
                    n_cut.fetch_add(1, Ordering::SeqCst);
                    // Nobody writes here any more.
                    buf.fill(0xee);
                    yield_now();
                    assert!(buf.iter().all(|&b| b == 0xee));
                }
            }
        }
        over.store(true, Ordering::SeqCst);
        writer.join().unwrap();
        canceller.join().unwrap();
        assert_eq!(at, LEN);
    });
}

#[test]
fn no_byte_is_lost_when_deadlines_cut_reads() {
    const LEN: usize = 300_000;
    run(2, || {
        let (mut a, mut b) = pair();
        let pattern = Arc::new(Pattern::new());
        let writer = spawn({
            let pattern = Arc::clone(&pattern);
            move || {
                for from in (0..LEN).step_by(1_000) {
                    pattern.write(&mut b, from, from + 1_000, 700).unwrap();
                    sleep(Duration::from_micros(from as u64 % 97));
                }
            }
        });
        let (mut at, mut n_tries) = (0, 0);
        let mut buf = [0; 900];
        while at < LEN {
            n_tries += 1;
            let ctx = Context::background().with_timeout(Duration::from_micros(n_tries % 61));
            if let Ok(n) = ctx.run(|| a.read(&mut buf)) {
                assert!(buf[..n] == *pattern.bytes(at, n), "wrong bytes at {at}");
                at += n;
            }
        }
        writer.join().unwrap();
    });
}

#[test]
fn cancels_race_with_wakes() {
    run(4, || {
        for round in 0..400_u64 {
            let (ctx, canceller) = Context::background().with_cancel();
            let sleepers: Vec<_> = (0..8)
                .map(|i| {
                    let ctx = ctx.clone();
                    spawn(move || {
                        ctx.run(|| {
                            while !ctx.is_done() {
                                sleep(Duration::from_micros((round + i) % 20));
                            }
                        });
                    })
                })
                .collect();
            let parked = spawn({
                let ctx = ctx.clone();
                move || {
                    ctx.run(|| {
                        while !ctx.is_done() {
                            task::park();
                        }
                    });
                }
            });
            for _ in 0..round % 7 {
                parked.task().unpark();
                yield_now();
            }
            if round % 2 == 0 {
                drop(canceller);
            } else {
                std::thread::spawn(move || drop(canceller)).join().unwrap();
            }
            sleepers.into_iter().for_each(|j| j.join().unwrap());
            parked.join().unwrap();
        }
    });
}

#[test]
fn a_thousand_are_cancelled_at_once() {
    run(4, || {
        let (ctx, canceller) = Context::background().with_cancel();
        let (a, _keep) = pair();
        let a = Arc::new(a);
        let n_begun = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..1000)
            .map(|i| {
                let (ctx, a, n_begun) = (ctx.clone(), Arc::clone(&a), Arc::clone(&n_begun));
                spawn(move || {
                    ctx.run(|| {
                        n_begun.fetch_add(1, Ordering::SeqCst);
                        if i % 2 == 0 {
                            assert_cancelled((&*a).read(&mut [0; 8]));
                        } else {
                            sleep(FOREVER);
                        }
                    });
                })
            })
            .collect();
        wait_until(|| n_begun.load(Ordering::SeqCst) == 1000);
        canceller.cancel();
        all.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn children_end_with_their_parents_only() {
    let (parent, cancel_parent) = Context::background().with_cancel();
    let (child, cancel_child) = parent.with_cancel();
    let (sibling, _keep) = parent.with_cancel();
    let grandchild = child.with_timeout(FOREVER);
    cancel_child.cancel();
    assert_eq!(parent.err(), None);
    assert_eq!(sibling.err(), None);
    assert_eq!(child.err(), Some(Error::Cancelled));
    assert_eq!(grandchild.err(), Some(Error::Cancelled));
    cancel_parent.cancel();
    assert_eq!(sibling.err(), Some(Error::Cancelled));
    assert_eq!(parent.with_cancel().0.err(), Some(Error::Cancelled));
    assert_eq!(parent.without_cancel().err(), None);
}

#[test]
fn the_earliest_deadline_holds() {
    let near = Instant::now() + Duration::from_secs(50);
    let far = near + Duration::from_secs(50);
    let ctx = Context::background().with_deadline(near);
    assert_eq!(ctx.with_deadline(far).deadline(), Some(near));
    let ctx = Context::background().with_deadline(far);
    assert_eq!(ctx.with_deadline(near).deadline(), Some(near));
    assert_eq!(ctx.with_cancel().0.deadline(), Some(far));
    assert_eq!(Context::background().deadline(), None);
    assert_eq!(
        Context::background().with_timeout(Duration::MAX).deadline(),
        None
    );
    let past = Context::background().with_deadline(Instant::now());
    let (child, canceller) = past.with_cancel();
    canceller.cancel();
    assert_eq!(child.err(), Some(Error::DeadlineExceeded));
}

/// Why a context is done does not change, and the waits inside it say the same.
#[test]
fn the_first_reason_stays() {
    run(2, || {
        let (ctx, canceller) = Context::background().with_cancel();
        let late = ctx.with_timeout(MOMENT);
        let below = late.with_value(7).with_timeout(FOREVER);
        let in_time = ctx.with_timeout(FOREVER);
        sleep(2 * MOMENT);
        // Nobody has asked `late` yet.
        canceller.cancel();
        for done in [&late, &below] {
            assert_eq!(done.err(), Some(Error::DeadlineExceeded));
            assert_eq!(done.run(context::check), Err(Error::DeadlineExceeded));
            assert!(done.done().recv().is_err());
        }
        for done in [&ctx, &in_time] {
            assert_eq!(done.err(), Some(Error::Cancelled));
            assert_eq!(done.run(context::check), Err(Error::Cancelled));
        }
        // One that was cancelled, and whose deadline passes then.
        let (ctx, canceller) = Context::background().with_timeout(MOMENT).with_cancel();
        let below = ctx.with_timeout(MOMENT);
        canceller.cancel();
        if ctx.err() == Some(Error::Cancelled) {
            sleep(2 * MOMENT);
            for done in [&ctx, &below] {
                assert_eq!(done.err(), Some(Error::Cancelled));
                assert_eq!(done.run(context::check), Err(Error::Cancelled));
            }
        }
        // The parent's reason holds for a child that comes later.
        assert_eq!(ctx.with_timeout(Duration::ZERO).err(), ctx.err());
    });
}

#[test]
fn values_are_found_by_type() {
    #[derive(Debug, PartialEq)]
    struct User(&'static str);
    let census = Census::default();
    let ctx = Context::background()
        .with_value(User("ann"))
        .with_value(7_u32);
    let (inner, _canceller) = ctx.with_value(User("bob")).with_cancel();
    let inner = inner.with_value(census.member());
    assert_eq!(ctx.value(), Some(&User("ann")));
    assert_eq!(inner.value(), Some(&User("bob")));
    assert_eq!(inner.value::<u32>(), Some(&7));
    assert_eq!(inner.value::<i32>(), None);
    assert_eq!(inner.without_cancel().value(), Some(&User("bob")));
    drop(inner);
    census.assert_all_dropped(1);
}

#[test]
fn a_dropped_canceller_cancels_and_a_detached_one_does_not() {
    let (ctx, canceller) = Context::background().with_cancel();
    canceller.detach();
    assert_eq!(ctx.err(), None);
    let (ctx, canceller) = Context::background().with_cancel();
    drop(canceller);
    assert_eq!(ctx.err(), Some(Error::Cancelled));
}

#[test]
fn long_chains_are_dropped() {
    let mut ctx = Context::background();
    for i in 0..100_000_u32 {
        ctx = if i % 2 == 0 {
            ctx.with_value(i)
        } else {
            ctx.with_timeout(FOREVER)
        };
    }
    assert_eq!(ctx.value(), Some(&99_998_u32));
    let (root, canceller) = Context::background().with_cancel();
    let mut chain = vec![root];
    for _ in 0..50_000 {
        chain.push(chain[chain.len() - 1].with_timeout(FOREVER));
    }
    let last = chain.pop().unwrap();
    drop(chain);
    canceller.cancel();
    assert!(last.is_done());
}

#[test]
fn after_run_waits_are_as_before() {
    run(2, || {
        let (ctx, canceller) = Context::background().with_cancel();
        ctx.run(|| sleep(Duration::from_micros(10)));
        canceller.cancel();
        ctx.run(|| sleep(FOREVER));
        let start = Instant::now();
        sleep(MOMENT);
        assert!(start.elapsed() >= MOMENT);
        let (mut a, mut b) = pair();
        b.write_all(&[5]).unwrap();
        assert_eq!(a.read(&mut [0; 2]).unwrap(), 1);
    });
}

#[test]
fn a_panic_inside_takes_the_frame_along() {
    run(2, || {
        for _ in 0..50 {
            let (ctx, canceller) = Context::background().with_cancel();
            let inner = ctx.with_timeout(FOREVER);
            let r: task::Result<()> = catch_unwind(AssertUnwindSafe(|| {
                ctx.run(|| {
                    inner.run(|| {
                        sleep(Duration::from_micros(5));
                        std::panic::resume_unwind(Box::new(7));
                    })
                })
            }));
            assert_eq!(r.unwrap_err().downcast_ref(), Some(&7));
            canceller.cancel();
            let start = Instant::now();
            sleep(Duration::from_micros(300));
            assert!(start.elapsed() >= Duration::from_micros(300));
        }
    });
}

#[test]
fn of_nested_contexts_all_count() {
    run(2, || {
        let (outer, cancel_outer) = Context::background().with_cancel();
        let (inner, cancel_inner) = Context::background().with_cancel();
        let waiting = |a: &Context, b: &Context| {
            let (a, b) = (a.clone(), b.clone());
            let begun = Arc::new(AtomicBool::new(false));
            let says = Arc::clone(&begun);
            let join = spawn(move || {
                a.run(|| {
                    b.run(|| {
                        says.store(true, Ordering::SeqCst);
                        sleep(FOREVER);
                    });
                });
            });
            wait_until(|| begun.load(Ordering::SeqCst));
            join
        };
        let joins = [waiting(&outer, &inner), waiting(&inner, &outer)];
        sleep(MOMENT);
        assert!(joins.iter().all(|j| !j.is_finished()));
        cancel_inner.cancel();
        joins.into_iter().for_each(|j| j.join().unwrap());
        // The outer one goes on where the inner one was done.
        outer.run(|| {
            inner.run(|| sleep(FOREVER));
            let start = Instant::now();
            sleep(MOMENT);
            assert!(start.elapsed() >= MOMENT);
        });
        cancel_outer.cancel();
        let near = Context::background().with_timeout(MOMENT);
        let far = near.without_cancel().with_timeout(FOREVER);
        near.run(|| far.run(|| sleep(FOREVER)));
        assert!(near.is_done() && !far.is_done());
    });
}

#[test]
fn a_shield_lets_waits_be() {
    run(2, || {
        let (ctx, canceller) = Context::background().with_cancel();
        let (mut a, mut b) = pair();
        let goodbye = spawn({
            let ctx = ctx.clone();
            move || {
                ctx.run(|| {
                    assert_cancelled(a.read(&mut [0; 10]));
                    shield(|| {
                        let start = Instant::now();
                        sleep(MOMENT);
                        assert!(start.elapsed() >= MOMENT);
                        a.write_all(b"goodbye").unwrap();
                        // A context inside the shield counts.
                        let near = Context::background().with_timeout(MOMENT);
                        near.run(|| assert_late(a.read(&mut [0; 10])));
                        a.write_all(b".").unwrap();
                        let mut answer = [0; 2];
                        a.read_exact(&mut answer).unwrap();
                        assert_eq!(&answer, b"ok");
                    });
                    assert_cancelled(a.read(&mut [0; 10]));
                });
            }
        });
        sleep(MOMENT);
        canceller.cancel();
        let mut text = [0; 7];
        b.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"goodbye");
        // Not before that read has ended.
        b.read_exact(&mut [0]).unwrap();
        b.write_all(b"ok").unwrap();
        goodbye.join().unwrap();
    });
}

#[test]
fn a_cancel_does_not_reach_into_a_shield() {
    run(4, || {
        for round in 0..300_u64 {
            let (ctx, canceller) = Context::background().with_cancel();
            let shielded = spawn({
                let ctx = ctx.clone();
                move || {
                    ctx.run(|| {
                        shield(|| {
                            let length = Duration::from_micros(100);
                            // With a frame of its own, so that the wait may be cut as such.
                            Context::background().with_timeout(FOREVER).run(|| {
                                for _ in 0..5 {
                                    let start = Instant::now();
                                    sleep(length);
                                    assert!(start.elapsed() >= length);
                                }
                            });
                        });
                        sleep(FOREVER);
                    });
                }
            });
            sleep(Duration::from_micros(round % 60 * 10));
            canceller.cancel();
            shielded.join().unwrap();
        }
    });
}

#[test]
fn what_is_spawned_inherits_nothing() {
    run(2, || {
        let late = Context::background().with_timeout(Duration::ZERO);
        late.run(|| {
            let other = spawn(|| {
                let start = Instant::now();
                sleep(MOMENT);
                start.elapsed() >= MOMENT
            });
            // Neither does joining end.
            assert!(other.join().unwrap());
        });
        late.run(|| {
            windlass::scope(|s| {
                s.spawn(|| sleep(MOMENT));
            });
        });
    });
}

/// How often the calling thread has slept so far.
fn n_sleeps() -> i64 {
    // SAFETY: all zeros are a valid value, which the call fills in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage
    };
    usage.ru_nvcsw
}

#[test]
fn a_thread_sleeps_until_the_deadline_of_its_contexts() {
    let _guard = hang_guard();
    const WAIT: Duration = Duration::from_millis(200);
    let (reader, _writer) = std::io::pipe().unwrap();
    let (_sender, receiver) = channel::bounded::<u32>(1);
    let busy = windlass::sync::Mutex::new(());
    let _kept = busy.lock().unwrap();
    let waits: [(&str, &dyn Fn()); 5] = [
        ("poll", &|| {
            assert!(windlass::io::wait_readable(&reader).is_err());
        }),
        ("channel", &|| assert!(receiver.recv().is_err())),
        ("lock", &|| {
            assert!(busy.lock_context(&Context::background()).is_err());
        }),
        ("sleep", &|| sleep(FOREVER)),
        ("park", &|| {
            while context::check().is_ok() {
                task::park();
            }
        }),
    ];
    for (name, wait) in waits {
        let outer = Context::background().with_timeout(WAIT).with_value(1);
        let inner = outer.with_timeout(FOREVER);
        let before = n_sleeps();
        outer.run(|| inner.run(wait));
        assert_eq!(outer.err(), Some(Error::DeadlineExceeded));
        let n = n_sleeps() - before;
        assert!(n < 20, "{name}: the thread slept {n} times in {WAIT:?}");
    }
}

#[test]
fn contexts_work_on_plain_threads() {
    let _guard = hang_guard();
    let (ctx, canceller) = Context::background().with_cancel();
    let begun = Arc::new(AtomicUsize::new(0));
    let (mut a, _b) = pair();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    macro_rules! waits {
        ($body:expr) => {{
            let (ctx, begun) = (ctx.clone(), Arc::clone(&begun));
            #[allow(unused_mut, reason = "some write to what they capture")]
            let mut body = $body;
            std::thread::spawn(move || {
                ctx.run(|| {
                    begun.fetch_add(1, Ordering::SeqCst);
                    body();
                });
                // It is over.
                let start = Instant::now();
                sleep(MOMENT);
                assert!(start.elapsed() >= MOMENT);
            })
        }};
    }
    let inner = Context::background().with_timeout(FOREVER);
    let own = ctx.clone();
    let all = [
        waits!(|| sleep(FOREVER)),
        waits!(move || inner.run(|| sleep(FOREVER))),
        waits!(move || own.wait()),
        waits!(move || assert_cancelled(a.read(&mut [0; 10]))),
        waits!(move || assert_cancelled(listener.accept())),
        waits!(|| {
            while context_is_open() {
                task::park();
            }
        }),
    ];
    wait_until(|| begun.load(Ordering::SeqCst) == all.len());
    std::thread::sleep(MOMENT);
    canceller.cancel();
    all.into_iter().for_each(|t| t.join().unwrap());

    let (mut a, _b) = pair();
    let ctx = Context::background().with_timeout(MOMENT);
    ctx.run(|| assert_late(a.read(&mut [0; 10])));
    ctx.run(|| sleep(FOREVER));
    assert!(ctx.is_done());
}

#[test]
fn wait_waits_for_the_context() {
    run(2, || {
        Context::background().with_timeout(MOMENT).wait();
        let (ctx, canceller) = Context::background().with_cancel();
        assert!(!ctx.wait_timeout(MOMENT));
        let waiter = spawn({
            let ctx = ctx.clone();
            move || ctx.wait_timeout(FOREVER)
        });
        yield_now();
        canceller.cancel();
        assert!(waiter.join().unwrap());
        // An ambient one ends it, too.
        Context::background()
            .with_timeout(MOMENT)
            .run(|| Context::background().wait());
    });
}

#[test]
fn the_end_of_a_run_ends_what_waits_in_a_context() {
    let _guard = hang_guard();
    let census = Census::default();
    let (ctx, canceller) = Context::background().with_cancel();
    let rt = runtime(2);
    let joins = rt.run(|| {
        let (mut a, keep) = pair();
        let n_begun = Arc::new(AtomicUsize::new(0));
        let joins = [0, 1, 2].map(|i| {
            let (ctx, n_begun) = (ctx.clone(), Arc::clone(&n_begun));
            let (member, mut a) = (census.member(), a.try_clone().unwrap());
            spawn(move || {
                let _member = member;
                ctx.run(|| {
                    n_begun.fetch_add(1, Ordering::SeqCst);
                    match i {
                        0 => sleep(FOREVER),
                        1 => drop(a.read(&mut [0])),
                        _ => ctx.wait(),
                    }
                    unreachable!("nobody has cancelled it");
                });
            })
        });
        wait_until(|| n_begun.load(Ordering::SeqCst) == 3);
        a.set_nodelay(true).unwrap();
        drop((a.flush(), keep));
        sleep(MOMENT);
        // The reader may have seen the end of its stream: it is no part of this.
        joins
    });
    canceller.cancel();
    census.assert_all_dropped(3);
    for (i, join) in joins.into_iter().enumerate() {
        let payload = join.join().unwrap_err();
        assert!(i == 1 || payload.is::<Cancelled>());
    }
}

#[test]
fn a_cancel_after_the_runtime_is_gone() {
    let _guard = hang_guard();
    let (ctx, canceller) = Context::background().with_cancel();
    {
        let rt = runtime(1);
        rt.run(|| ctx.run(|| sleep(MOMENT)));
    }
    canceller.cancel();
    let rt = runtime(1);
    rt.run(|| ctx.run(|| sleep(FOREVER)));
    assert_eq!(ctx.err(), Some(Error::Cancelled));
}

#[test]
fn runtimes_cancel_each_others_goroutines() {
    let _guard = hang_guard();
    let (ctx, canceller) = Context::background().with_cancel();
    let begun = Arc::new(AtomicUsize::new(0));
    let other = std::thread::spawn({
        let (ctx, begun) = (ctx.clone(), Arc::clone(&begun));
        move || {
            runtime(2).run(|| {
                let (mut a, _b) = pair();
                let reads = spawn({
                    let (ctx, begun) = (ctx.clone(), Arc::clone(&begun));
                    move || {
                        ctx.run(|| {
                            begun.fetch_add(1, Ordering::SeqCst);
                            assert_cancelled(a.read(&mut [0; 4]));
                        });
                    }
                });
                ctx.run(|| {
                    begun.fetch_add(1, Ordering::SeqCst);
                    sleep(FOREVER);
                });
                reads.join().unwrap();
            });
        }
    });
    runtime(2).run(|| {
        wait_until(|| begun.load(Ordering::SeqCst) == 2);
        canceller.cancel();
    });
    other.join().unwrap();
    assert!(matches!(ctx.err(), Some(context::Error::Cancelled)));
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    a_cancel_ends_every_wait: "it uses blocking sections",
    a_deadline_ends_every_wait: "it uses blocking sections",
    a_thread_cancels_goroutines: "it uses threads",
    a_context_that_is_done_lets_nothing_wait,
    errors_say_why,
    a_socket_timeout_of_its_own_stays_itself,
    no_byte_is_lost_when_reads_are_cut: "it computes until time has passed",
    no_byte_is_lost_when_deadlines_cut_reads / 10,
    cancels_race_with_wakes: "it uses threads",
    a_thousand_are_cancelled_at_once / 10,
    children_end_with_their_parents_only,
    the_earliest_deadline_holds,
    the_first_reason_stays,
    values_are_found_by_type,
    a_dropped_canceller_cancels_and_a_detached_one_does_not,
    long_chains_are_dropped / 100,
    after_run_waits_are_as_before,
    a_panic_inside_takes_the_frame_along,
    of_nested_contexts_all_count,
    a_shield_lets_waits_be,
    a_cancel_does_not_reach_into_a_shield / 2,
    what_is_spawned_inherits_nothing,
    a_thread_sleeps_until_the_deadline_of_its_contexts: "it counts what a thread does",
    contexts_work_on_plain_threads: "it uses threads",
    wait_waits_for_the_context,
    the_end_of_a_run_ends_what_waits_in_a_context: "it ends a run of its own",
    a_cancel_after_the_runtime_is_gone: "it ends a run of its own",
    runtimes_cancel_each_others_goroutines: "it builds runtimes",
}

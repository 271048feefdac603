//! Programs that misuse simulations from safe code: what outlives a run, what comes from outside,
//! what happens while a run is torn down.

use std::cell::RefCell;
use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};

use crate::util;
use crate::util::PROMISE;
use windlass::channel::{Receiver, Sender, bounded, unbounded};
use windlass::context;
use windlass::sim::{self, Failure, FailureKind, Sim, Strategy};
use windlass::sync::{Arc, Condvar, Mutex, Semaphore};
use windlass::task::{Cancelled, JoinHandle, Task};
use windlass::time::{Duration, Instant, Ticker, Timer, sleep};

fn one() -> Sim {
    Sim::new(PROMISE).seed(1).seeds(1)
}

/// Runs `f` only once: there is no second run to compare with.
fn once(f: impl Fn()) {
    one().replay(&sim::Schedule::default()).run(f).unwrap();
}

fn fails(f: impl Fn()) -> Failure {
    one().run(f).expect_err("the run fails")
}

#[test]
fn handles_outlive_their_run() {
    let kept: std::sync::Mutex<Vec<JoinHandle<u32>>> = std::sync::Mutex::default();
    once(|| {
        let ends = windlass::spawn(|| 7);
        let waits = windlass::spawn(|| {
            windlass::task::park();
            8
        });
        sim::settle();
        kept.lock().unwrap().extend([ends, waits]);
    });
    let mut kept = kept.into_inner().unwrap();
    assert!(kept.iter().all(JoinHandle::is_finished));
    let waits = kept.pop().unwrap();
    waits.task().unpark();
    assert!(waits.join().unwrap_err().is::<Cancelled>());
    // In another run, where another goroutine has the number.
    let ends = std::sync::Mutex::new(kept.pop());
    once(|| {
        let ends = ends.lock().unwrap().take().unwrap();
        let other = windlass::spawn(|| 9);
        assert_eq!(ends.task().id(), other.task().id());
        assert_eq!(ends.join().unwrap(), 7);
        assert_eq!(other.join().unwrap(), 9);
    });
}

#[test]
fn tasks_and_wakers_outlive_their_run() {
    let tasks: std::sync::Mutex<Vec<Task>> = std::sync::Mutex::default();
    let wakers: std::sync::Mutex<Vec<Waker>> = std::sync::Mutex::default();
    let keep = |cx: &mut Context<'_>| {
        wakers.lock().unwrap().push(cx.waker().clone());
        Poll::<()>::Pending
    };
    for _ in 0..3 {
        let failure = fails(|| {
            tasks.lock().unwrap().push(windlass::task::current());
            // The values of the run before.
            tasks.lock().unwrap().iter().for_each(Task::unpark);
            wakers.lock().unwrap().iter().for_each(Waker::wake_by_ref);
            windlass::future::block_on(std::future::poll_fn(keep));
        });
        assert_eq!(failure.kind(), FailureKind::Deadlock);
        tasks.lock().unwrap().iter().for_each(Task::unpark);
        wakers.lock().unwrap().iter().for_each(Waker::wake_by_ref);
    }
    std::thread::spawn(move || {
        wakers
            .into_inner()
            .unwrap()
            .into_iter()
            .for_each(Waker::wake)
    })
    .join()
    .unwrap();
}

#[test]
fn channels_outlive_their_run() {
    let (sender, receiver): (Sender<u32>, Receiver<u32>) = bounded(1);
    for n in 0..3 {
        let failure = fails(|| {
            // They wait in the channel when the run is torn down.
            let all = [(); 3].map(|()| {
                let receiver = receiver.clone();
                windlass::spawn(move || {
                    receiver.recv().unwrap();
                    receiver.recv()
                })
            });
            sender.send(n).unwrap();
            all.into_iter().for_each(|one| drop(one.join()));
        });
        assert_eq!(failure.kind(), FailureKind::Deadlock);
        sender.send(n).unwrap();
        assert_eq!(receiver.recv(), Ok(n));
    }
    util::runtime(2).run(|| {
        let other = windlass::spawn(move || sender.send(9));
        assert_eq!(receiver.recv(), Ok(9));
        other.join().unwrap().unwrap();
    });
}

#[test]
fn locks_outlive_their_run() {
    let lock = Arc::new((Mutex::new(0), Condvar::new(), Semaphore::new(0)));
    for _ in 0..3 {
        let failure = fails(|| {
            let waits = |how: fn(&(Mutex<u32>, Condvar, Semaphore))| {
                let lock = Arc::clone(&lock);
                windlass::spawn(move || how(&lock))
            };
            let all = [
                waits(|(lock, signal, _)| drop(signal.wait(lock.lock().unwrap()))),
                waits(|(_, _, permits)| drop(permits.acquire(1))),
                waits(|(lock, _, _)| {
                    let _held = lock.lock().unwrap();
                    windlass::task::park();
                }),
            ];
            sim::settle();
            drop(lock.0.lock());
            all.into_iter().for_each(|one| drop(one.join()));
        });
        assert_eq!(failure.kind(), FailureKind::Deadlock);
        // The goroutine that held it has been unwound, which does not poison.
        assert!(lock.0.try_lock().is_ok(), "{:?}", lock.0);
        assert!(lock.2.try_acquire(1).is_err());
    }
    // A lock that is never released stays locked in the next run.
    once(|| std::mem::forget(lock.0.lock()));
    assert_eq!(fails(|| drop(lock.0.lock())).kind(), FailureKind::Deadlock);
    assert!(lock.0.try_lock().is_err());
}

#[test]
fn contexts_and_timers_outlive_their_run() {
    let day = Duration::from_secs(24 * 60 * 60);
    let kept = std::sync::Mutex::new(None);
    for _ in 0..3 {
        let failure = fails(|| {
            if let Some((context, canceller, timer, ticker, messages)) = kept.lock().unwrap().take()
            {
                let (context, canceller): (context::Context, context::Canceller) =
                    (context, canceller);
                let (timer, ticker): (Timer, Ticker) = (timer, ticker);
                let messages: Receiver<Instant> = messages;
                canceller.cancel();
                assert!(context.err().is_some());
                timer.reset(day);
                ticker.reset(day);
                ticker.channel().recv().unwrap();
                timer.channel().recv().unwrap();
                let _ = messages.recv_timeout(day);
            }
            let (context, canceller) = context::Context::background().with_cancel();
            let other = context.clone();
            drop(windlass::spawn(move || other.run(windlass::task::park)));
            let (timer, ticker) = (Timer::new(day), Ticker::new(day));
            ticker.channel().recv().unwrap();
            let messages = windlass::channel::after(day);
            *kept.lock().unwrap() = Some((context, canceller, timer, ticker, messages));
            windlass::task::park();
        });
        assert_eq!(failure.kind(), FailureKind::Deadlock);
    }
    let (context, canceller, timer, ticker, messages) = kept.into_inner().unwrap().unwrap();
    assert!(context.err().is_none());
    canceller.cancel();
    assert!(context.err().is_some());
    timer.reset(Duration::from_millis(1));
    timer.channel().recv().unwrap();
    ticker.reset(Duration::from_millis(1));
    ticker.channel().recv().unwrap();
    let _ = messages.try_recv();
}

/// Children of a scope use what lies on the stack of its goroutine.
#[test]
fn borrowed_data_lives_until_the_borrowers_have_ended() {
    struct Watched<'a>(&'a AtomicBool, Vec<u64>);
    impl Drop for Watched<'_> {
        fn drop(&mut self) {
            self.1.fill(0);
            self.0.store(true, Ordering::Relaxed);
        }
    }
    struct Reads<'a>(&'a Watched<'a>);
    impl Drop for Reads<'_> {
        fn drop(&mut self) {
            assert!(!self.0.0.load(Ordering::Relaxed));
            assert_eq!(self.0.1.iter().sum::<u64>(), 100 * 0xAB);
        }
    }
    let programs: [fn(&Watched<'_>); 4] = [
        |data| {
            windlass::scope(|s| {
                for _ in 0..3 {
                    s.spawn(|| {
                        let _reads = Reads(data);
                        windlass::task::park();
                    });
                }
            });
        },
        |data| {
            windlass::scope(|s| {
                s.spawn(|| {
                    let _reads = Reads(data);
                    windlass::task::park();
                });
                panic!("while it is borrowed");
            });
        },
        |data| {
            windlass::join(
                || {
                    let _reads = Reads(data);
                    windlass::task::park();
                },
                || {
                    let _reads = Reads(data);
                    windlass::join(windlass::task::park, || panic!("in a fork"));
                },
            );
        },
        |data| {
            windlass::scope(|s| {
                s.spawn(|| {
                    let _reads = Reads(data);
                    windlass::scope(|inner| {
                        inner.spawn(|| {
                            let _reads = Reads(data);
                            sleep(Duration::from_secs(1));
                            loop {
                                windlass::yield_now();
                            }
                        });
                    });
                });
            });
        },
    ];
    for program in programs {
        for strategy in [Strategy::RandomWalk, Strategy::Pct { depth: 3 }] {
            for seed in 0..5 {
                let is_dropped = AtomicBool::new(false);
                let sim = one().seed(seed).steps(5_000).strategy(strategy);
                let outcome = sim.run(|| {
                    is_dropped.store(false, Ordering::Relaxed);
                    program(&Watched(&is_dropped, vec![0xAB; 100]));
                });
                assert!(outcome.is_err());
                assert!(is_dropped.load(Ordering::Relaxed));
            }
        }
    }
}

/// The panic is the reason: that the children wait for ever is a consequence.
#[test]
fn a_panic_before_a_deadlock_is_reported() {
    let failure = fails(|| {
        windlass::scope(|s| {
            s.spawn(windlass::task::park);
            panic!("the reason");
        });
    });
    assert_eq!(failure.kind(), FailureKind::Panic);
    assert_eq!(failure.panics()[0].message, "the reason");
    assert!(failure.panics()[0].at.is_some());
}

/// A panic of a goroutine whose wait the end of the run has ended is no failure.
#[test]
fn a_panic_in_the_tear_down_is_not_reported() {
    let (_never, receiver) = bounded::<()>(0);
    let loses = || {
        let receiver = receiver.clone();
        drop(windlass::spawn(move || {
            let waits = AssertUnwindSafe(|| receiver.recv());
            let _ = catch_unwind(waits).expect("the wait goes well");
        }));
        sim::settle();
    };
    one().run(loses).unwrap();
    let failure = fails(|| {
        loses();
        windlass::task::park();
    });
    assert_eq!(failure.kind(), FailureKind::Deadlock);
    assert_eq!(failure.panics(), []);
}

#[test]
fn a_payload_of_the_runtime_is_a_panic_as_any() {
    let failure = fails(|| resume_unwind(Box::new(Cancelled::default())));
    assert_eq!(failure.kind(), FailureKind::Panic);
}

#[test]
fn a_payload_may_panic_when_it_is_dropped() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("from a payload");
        }
    }
    let failure = fails(|| std::panic::panic_any(Bad));
    assert_eq!(failure.kind(), FailureKind::Panic);
    let failure = fails(|| drop(windlass::spawn(|| std::panic::panic_any(Bad)).join()));
    assert_eq!(failure.kind(), FailureKind::Panic);
    one().run(|| ()).unwrap();
}

#[test]
fn destructors_may_spawn_and_send_in_the_tear_down() {
    struct Spawns(Sender<u32>);
    impl Drop for Spawns {
        fn drop(&mut self) {
            let sender = self.0.clone();
            drop(windlass::spawn(move || sender.send(1)));
            let _ = self.0.send(2);
            sleep(Duration::from_secs(1));
            let _ = windlass::spawn(windlass::task::park).join();
        }
    }
    let (sender, receiver) = unbounded();
    for _ in 0..3 {
        let failure = fails(|| {
            let spawns = Spawns(sender.clone());
            drop(windlass::spawn(move || {
                let _spawns = spawns;
                windlass::task::park();
            }));
            let _own = Spawns(sender.clone());
            windlass::task::park();
        });
        assert_eq!(failure.kind(), FailureKind::Deadlock);
    }
    drop(sender);
    assert!(receiver.iter().count() >= 6);
}

#[test]
fn other_runtimes_are_refused_or_make_the_run_fail() {
    let runtime = util::runtime(2);
    let failure = fails(|| runtime.run(|| ()));
    assert_eq!(failure.kind(), FailureKind::Panic);
    let handle = runtime.handle();
    let sum = runtime.run(|| {
        // A goroutine of a real runtime cannot begin a simulation; a plain thread may.
        let refused = windlass::spawn(|| sim::check(PROMISE, || ())).join();
        assert!(refused.is_err());
        let in_section =
            windlass::spawn(|| windlass::blocking(|| sim::check(PROMISE, || ()))).join();
        assert!(in_section.is_err());
        windlass::offload(|| {
            sim::check(PROMISE, || assert!(sim::is_simulated()));
            assert!(!sim::is_simulated());
        });
        std::thread::scope(|s| {
            s.spawn(|| {
                // Goroutines of the real runtime, spawned and joined by those of a simulation.
                let ids = std::sync::Mutex::new(HashSet::new());
                for _ in 0..300 {
                    let outcome = one().run(|| {
                        let other = handle.spawn(|| windlass::task::current().id());
                        // The number is unique in its own runtime.
                        let id = other.join().unwrap();
                        assert!(ids.lock().unwrap().insert(id));
                    });
                    if let Err(failure) = outcome {
                        let kind = failure.kind();
                        assert_ne!(kind, FailureKind::Panic, "{failure}");
                    }
                }
            });
        });
        1
    });
    assert_eq!(sum, 1);
}

/// Threads wake goroutines at the moment when the run is torn down.
#[test]
fn threads_may_wake_until_the_end() {
    let (tell, told) = mpsc::channel::<Task>();
    let waker = std::thread::spawn(move || {
        for task in told {
            for _ in 0..50 {
                task.unpark();
            }
        }
    });
    for _ in 0..500 {
        let outcome = one().run(|| {
            for _ in 0..3 {
                let tell = tell.clone();
                drop(windlass::spawn(move || {
                    tell.send(windlass::task::current()).unwrap();
                    loop {
                        windlass::task::park();
                    }
                }));
            }
            sim::settle();
        });
        drop(outcome);
    }
    drop(tell);
    waker.join().unwrap();
}

/// Two simulations at the same time that share a channel.
#[test]
fn simulations_that_meet_fail() {
    let (sender, receiver) = bounded::<u32>(0);
    let meets = || {
        (0..200).any(|_| {
            let outcome = one().run(|| {
                let (sender, receiver) = (sender.clone(), receiver.clone());
                drop(windlass::spawn(move || sender.send(1)));
                let other = windlass::spawn(move || (receiver.recv(), receiver.recv()));
                drop(other.join());
            });
            outcome.is_err()
        })
    };
    let one_failed = std::thread::scope(|s| {
        let other = s.spawn(meets);
        meets() | other.join().unwrap()
    });
    assert!(one_failed);
    sim::check(PROMISE, || ());
}

#[test]
fn a_simulation_in_a_destructor_of_a_thread_local() {
    struct Simulates(std::sync::mpsc::Sender<u64>);
    impl Drop for Simulates {
        fn drop(&mut self) {
            let report = one().run(|| drop(windlass::spawn(|| 1).join())).unwrap();
            self.0.send(report.steps()).unwrap();
        }
    }
    thread_local!(static LAST: RefCell<Option<Simulates>> = const { RefCell::new(None) });
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || LAST.set(Some(Simulates(sender))))
        .join()
        .unwrap();
    assert!(receiver.recv().unwrap() > 0);
}

/// A thread-local is shared by all goroutines of the run: borrows of it are checked as ever.
#[test]
fn goroutines_share_thread_locals() {
    thread_local!(static COUNT: RefCell<u32> = const { RefCell::new(0) });
    sim::check(PROMISE, || {
        COUNT.set(0);
        let both = [(); 2].map(|()| {
            windlass::spawn(|| {
                COUNT.with(|count| {
                    if let Ok(mut count) = count.try_borrow_mut() {
                        windlass::yield_now();
                        *count += 1;
                    }
                });
            })
        });
        both.into_iter().for_each(|one| one.join().unwrap());
        assert!((1..=2).contains(&COUNT.take()));
    });
}

/// `std`'s own threads are not simulated, and are found also where no switch point follows.
#[test]
fn a_thread_that_is_joined_at_once_makes_the_run_fail() {
    if cfg!(target_feature = "crt-static") {
        return;
    }
    let joins = || std::thread::spawn(|| 1).join().unwrap();
    let failure = one().run(|| assert_eq!(joins(), 1)).unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Thread);
    let failure = one().run(|| {
        windlass::spawn(joins).join().unwrap();
    });
    assert_eq!(failure.unwrap_err().kind(), FailureKind::Thread);
    one()
        .run(|| assert_eq!(windlass::spawn(|| 1).join().unwrap(), 1))
        .unwrap();
}

/// A variable with a value that means nothing makes the test fail: its output would not be shown.
#[test]
fn a_wrong_seed_in_the_environment_fails() {
    const NAME: &str = "a_wrong_seed_in_the_environment_fails";
    if let Some(case) = util::child_case() {
        let outcome = catch_unwind(|| drop(Sim::new(PROMISE).seeds(1).run(|| ())));
        let payload = outcome.unwrap_err();
        assert!(util::panic_text(&*payload).contains(&case));
        return;
    }
    for (variable, value, text) in [
        ("WINDLASS_SIM_SEED", "abc", "must be a number"),
        ("WINDLASS_SIM_SEEDS", "-1", "must be a number"),
        ("WINDLASS_SIM_SCHEDULE", "zz", "must be a schedule"),
    ] {
        let output = util::child_with_env(NAME, text, &[(variable, value)]);
        assert!(output.status.success(), "{variable}: {output:?}");
    }
}

#[test]
fn settings_at_their_limits() {
    assert_eq!(Sim::new(PROMISE).seeds(0).run(|| ()).unwrap().runs, []);
    let failure = one().steps(0).run(|| panic!("it never runs")).unwrap_err();
    assert_eq!(failure.kind(), FailureKind::StepLimit);
    one()
        .strategy(Strategy::Pct { depth: 0 })
        .run(|| ())
        .unwrap();
    one()
        .strategy(Strategy::Pct { depth: u32::MAX })
        .run(|| ())
        .unwrap();
    let all = Strategy::Exhaustive { preemptions: 0 };
    assert!(
        Sim::new(PROMISE)
            .strategy(all)
            .run(|| ())
            .unwrap()
            .is_complete
    );
    Sim::new(PROMISE)
        .seed(u64::MAX)
        .seeds(2)
        .run(|| ())
        .unwrap();
    for text in [
        "0x99999999999999",
        "1x4000000000,2",
        "x",
        "1x",
        "-1",
        "1,,x2",
    ] {
        assert!(text.parse::<sim::Schedule>().is_err(), "{text}");
    }
    assert_eq!("".parse(), Ok(sim::Schedule::default()));
}

#[test]
fn the_clock_has_an_end() {
    let failure = fails(|| sleep(Duration::MAX));
    assert_eq!(failure.kind(), FailureKind::Deadlock);
    let century = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    let failure = fails(|| {
        let start = Instant::now();
        for n in 1..10 {
            sleep(century);
            assert_eq!(start.elapsed(), n * century);
        }
    });
    assert_eq!(failure.kind(), FailureKind::Deadlock);
}

/// Runs the test `name` in a process of its own, where `f` ends the process. Returns what the
/// process wrote to stderr.
fn text_of_abort(name: &str, f: impl Fn()) -> String {
    if util::child_case().is_some() {
        f();
        std::process::exit(0);
    }
    let output = util::child(name, "aborts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let status = output.status;
    assert_eq!(status.signal(), Some(libc::SIGABRT), "{status}: {text}");
    text
}

#[test]
fn a_goroutine_that_cannot_be_ended_ends_the_process() {
    let text = text_of_abort("a_goroutine_that_cannot_be_ended_ends_the_process", || {
        let _ = one().run(|| {
            drop(windlass::spawn(|| {
                loop {
                    let _ = catch_unwind(windlass::task::park);
                }
            }));
            windlass::yield_now();
        });
    });
    assert!(
        text.contains("simulation given up: goroutine 2 goes on and on"),
        "{text}"
    );
    assert!(
        text.contains("WINDLASS_SIM_SEED=1 repeats the run"),
        "{text}"
    );
}

/// Waits in a destructor, for something that another goroutine would have to do.
fn wait_while_unwinding(name: &str, wait: fn()) {
    struct Waits(fn());
    impl Drop for Waits {
        fn drop(&mut self) {
            self.0();
        }
    }
    let text = text_of_abort(name, || {
        let _ = one().run(|| {
            let _waits = Waits(wait);
            panic!("the reason");
        });
    });
    assert!(text.contains("the reason"), "{text}");
    assert!(
        text.contains("waits in a destructor while it unwinds"),
        "{text}"
    );
}

#[test]
fn a_join_while_unwinding_ends_the_process() {
    wait_while_unwinding("a_join_while_unwinding_ends_the_process", || {
        let _ = windlass::spawn(|| sleep(Duration::from_secs(1))).join();
    });
}

#[test]
fn a_limited_join_while_unwinding_ends_the_process() {
    wait_while_unwinding("a_limited_join_while_unwinding_ends_the_process", || {
        let _ = windlass::spawn(|| sleep(Duration::from_secs(1))).join_timeout(Duration::MAX);
    });
}

#[test]
fn a_park_while_unwinding_ends_the_process() {
    wait_while_unwinding("a_park_while_unwinding_ends_the_process", || {
        let me = windlass::task::current();
        windlass::spawn(move || me.unpark());
        windlass::task::park();
    });
}

#[test]
fn a_future_while_unwinding_ends_the_process() {
    wait_while_unwinding("a_future_while_unwinding_ends_the_process", || {
        windlass::future::block_on(std::future::pending::<()>());
    });
}

/// A run that shortens a failure may end the process, and the failure must not be lost.
#[test]
fn a_failure_is_printed_although_its_shortening_ends_the_process() {
    let test = "a_failure_is_printed_although_its_shortening_ends_the_process";
    let text = text_of_abort(test, || {
        let n_runs = AtomicU32::new(0);
        let _ = one().run(|| {
            let waits = n_runs.fetch_add(1, Ordering::Relaxed) > 0;
            let other = windlass::spawn(windlass::task::park);
            if !waits {
                panic!("the first failure");
            }
            struct Joins(Option<JoinHandle<()>>);
            impl Drop for Joins {
                fn drop(&mut self) {
                    let _ = self.0.take().unwrap().join();
                }
            }
            let _joins = Joins(Some(other));
            panic!("another failure");
        });
    });
    assert!(
        text.contains("waits in a destructor while it unwinds"),
        "{text}"
    );
    assert!(text.contains("panicked at tests/sim/misuse.rs"), "{text}");
    assert!(text.contains(": the first failure"), "{text}");
}

/// A goroutine keeps the only thread for ever: the report comes from a thread beside it.
#[test]
fn a_run_that_hangs_is_reported() {
    let text = text_of_abort("a_run_that_hangs_is_reported", || {
        let hangs = || {
            let lock = Arc::new(std::sync::Mutex::new(()));
            let other = Arc::clone(&lock);
            let holder = windlass::spawn(move || {
                let _held = other.lock().unwrap();
                windlass::yield_now();
            });
            windlass::yield_now();
            drop(lock.lock());
            holder.join().unwrap();
        };
        std::thread::spawn(move || Sim::new(PROMISE).strategy(Strategy::RandomWalk).run(hangs));
        std::thread::sleep(Duration::from_secs(7));
        std::process::abort();
    });
    let report = "goroutine 1 of a simulation has run for 5 s without a switch point";
    assert!(text.contains(report), "{text}");
}

/// A thread moves the deadline of a goroutine that waits for the simulated network: it takes part in
/// the run, which fails.
#[test]
fn a_thread_sets_a_deadline() {
    let failure = fails(|| {
        let (a, _b) = windlass::net::UnixStream::pair().unwrap();
        let a = Arc::new(a);
        let same = Arc::clone(&a);
        let reads = windlass::spawn(move || std::io::Read::read(&mut &*same, &mut [0]).is_err());
        sim::settle();
        std::thread::spawn(move || a.set_read_deadline(Some(Instant::now())))
            .join()
            .unwrap();
        assert!(reads.join().unwrap());
    });
    assert_eq!(failure.kind(), FailureKind::Thread, "{failure}");
}

//! Causes of a run's failure, the text of a failure, and the fresh start of the next simulation.

use std::sync::atomic::{AtomicU32, Ordering};

use windlass::channel::bounded;
use windlass::context::Context;
use windlass::io::{Read, Write};
use windlass::sim::{self, Failure, FailureKind, Sim, Strategy};
use windlass::sync::{Arc, Mutex, Once, Semaphore, WaitGroup};
use windlass::task::Group;
use windlass::time::{Duration, sleep};

use crate::util::PROMISE;

const SECOND: Duration = Duration::from_secs(1);

fn fails(sim: &Sim, f: impl Fn()) -> Failure {
    sim.run(f).expect_err("the run fails")
}

fn one() -> Sim {
    Sim::new(PROMISE).seed(1).seeds(1)
}

#[test]
fn a_deadlock_is_found_with_its_goroutines() {
    let failure = fails(&one(), || {
        let (_sender, receiver) = bounded::<()>(0);
        let waiter = windlass::task::Builder::new().name("waiter");
        let waiter = waiter.spawn(move || receiver.recv()).unwrap();
        drop(waiter.join());
    });
    assert_eq!(failure.kind(), FailureKind::Deadlock);
    let dump = failure.dump().expect("a dump");
    let waits = |name| {
        let mut all = dump.goroutines.iter();
        all.find(|g| g.name.as_deref() == Some(name))
            .unwrap()
            .wait_reason
    };
    assert_eq!(waits("main"), Some("join"));
    assert_eq!(waits("waiter"), Some("chan receive"));
    let text = failure.to_string();
    for part in [
        "simulation failed: deadlock",
        "seed 1 (",
        "WINDLASS_SIM_SEED=1 repeats it",
        "name \"waiter\"]",
        "failures.rs:",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn all_panics_are_listed() {
    let failure = fails(&one().strategy(Strategy::RoundRobin), || {
        let first = windlass::spawn(|| panic!("the first"));
        let second = windlass::spawn(|| panic!("the {}", "second"));
        let _ = (first.join(), second.join());
        panic!("main");
    });
    assert_eq!(failure.kind(), FailureKind::Panic);
    let messages = failure.panics().iter().map(|p| p.message.as_str());
    let mut messages: Vec<&str> = messages.collect();
    messages.sort_unstable();
    assert_eq!(messages, ["main", "the first", "the second"]);
    let of_main = failure.panics().iter().find(|p| p.goroutine == 1).unwrap();
    assert_eq!(of_main.name.as_deref(), Some("main"));
    assert!(of_main.at.as_ref().unwrap().contains("failures.rs"));
    assert!(failure.to_string().contains("3 goroutines panicked"));
}

/// Its destructor panics.
struct Bad;

impl Drop for Bad {
    fn drop(&mut self) {
        panic!("in the destructor of a result");
    }
}

#[test]
fn a_panic_in_the_destructor_of_a_result_is_one() {
    for has_ended in [false, true] {
        let failure = fails(&one().strategy(Strategy::RoundRobin), || {
            let handle = windlass::spawn(|| Bad);
            if has_ended {
                sim::settle();
            }
            drop(handle);
            sim::settle();
        });
        assert_eq!(failure.kind(), FailureKind::Panic);
        let [panic] = failure.panics() else {
            panic!("{failure}")
        };
        assert_eq!(panic.message, "in the destructor of a result");
        assert_eq!(panic.goroutine, 2, "whose result it is");
    }
}

/// It goes to others, and its goroutine returns.
#[test]
fn a_panic_that_a_scope_or_a_group_keeps_is_one() {
    let joined = || {
        windlass::scope(|s| assert!(s.spawn(|| panic!("of a scope")).join().is_err()));
    };
    let dropped = || {
        Group::<()>::new().spawn(|| panic!("of a group"));
        sim::settle();
    };
    for (f, message) in [
        (&joined as &dyn Fn(), "of a scope"),
        (&dropped, "of a group"),
    ] {
        let failure = fails(&one(), f);
        assert_eq!(failure.kind(), FailureKind::Panic);
        let [panic] = failure.panics() else {
            panic!("{failure}")
        };
        assert_eq!(panic.message, message);
        assert_eq!(panic.goroutine, 2);
        assert!(panic.at.as_ref().unwrap().contains("failures.rs"));
        one().may_panic(true).run(f).unwrap();
    }
}

#[test]
fn a_panic_that_is_caught_is_none() {
    sim::check(PROMISE, || {
        let caught = std::panic::catch_unwind(|| panic!("expected"));
        assert!(caught.is_err());
    });
}

#[test]
fn goroutines_may_panic_if_that_is_allowed() {
    let expected = || {
        assert!(windlass::spawn(|| panic!("expected")).join().is_err());
    };
    one().may_panic(true).run(expected).unwrap();
    assert_eq!(fails(&one(), expected).kind(), FailureKind::Panic);
    let failure = fails(&one().may_panic(true), || panic!("main"));
    assert_eq!(failure.kind(), FailureKind::Panic);
}

#[test]
fn a_livelock_takes_too_many_steps() {
    for strategy in [
        Strategy::RandomWalk,
        Strategy::Pct { depth: 3 },
        Strategy::RoundRobin,
    ] {
        let sim = one().steps(20_000).strategy(strategy);
        let failure = fails(&sim, || {
            let lock = Arc::new(Mutex::new(()));
            let held = lock.lock().unwrap();
            let other = Arc::clone(&lock);
            let tries = windlass::spawn(move || while other.try_lock().is_err() {});
            let _ = tries.join();
            drop(held);
        });
        assert_eq!(failure.kind(), FailureKind::StepLimit);
        assert_eq!(failure.until().steps, 20_000);
        assert!(
            failure.to_string().contains("goroutine 2 took"),
            "{failure}"
        );
    }
}

/// A goroutine that tries until another one has gone on does not starve it.
#[test]
fn a_loop_that_waits_for_another_ends() {
    for strategy in [
        Strategy::RandomWalk,
        Strategy::Pct { depth: 3 },
        Strategy::RoundRobin,
    ] {
        let sim = Sim::new(PROMISE).seed(5).seeds(50).strategy(strategy);
        sim.run(|| {
            let lock = Arc::new(Mutex::new(()));
            let other = Arc::clone(&lock);
            let holder = windlass::spawn(move || {
                for _ in 0..3 {
                    let _held = other.lock().unwrap();
                    windlass::yield_now();
                }
            });
            let tries = windlass::spawn(move || while lock.try_lock().is_err() {});
            holder.join().unwrap();
            tries.join().unwrap();
        })
        .unwrap();
    }
}

#[test]
fn goroutines_left_over_are_found_on_request() {
    let leaves_one = || {
        let (sender, receiver) = bounded::<()>(0);
        let leaked = windlass::task::Builder::new().name("leaked");
        drop(leaked.spawn(move || receiver.recv()));
        std::mem::forget(sender);
    };
    one().run(leaves_one).unwrap();
    let failure = fails(&one().no_goroutines_left(true), leaves_one);
    assert_eq!(failure.kind(), FailureKind::GoroutinesLeft);
    assert!(failure.to_string().contains("leaked"), "{failure}");
}

#[test]
fn goroutines_that_end_later_are_not_left_over() {
    let report = one().no_goroutines_left(true).run(|| {
        drop(windlass::spawn(|| sleep(5 * SECOND)));
        drop(windlass::spawn(windlass::yield_now));
    });
    assert_eq!(report.unwrap().runs[0].elapsed, 5 * SECOND);
}

#[test]
fn what_is_left_is_cancelled_and_the_next_run_is_afresh() {
    struct Counts(Arc<AtomicU32>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let held = Arc::new(AtomicU32::new(0));
    let waits = |held: &Arc<AtomicU32>| {
        held.fetch_add(1, Ordering::Relaxed);
        let counts = Counts(Arc::clone(held));
        windlass::spawn(move || {
            let _counts = counts;
            windlass::task::park();
        })
    };
    for _ in 0..3 {
        let failure = fails(&one(), || {
            assert_eq!(held.load(Ordering::Relaxed), 0);
            let all = [(); 3].map(|()| waits(&held));
            all.into_iter().for_each(|one| one.join().unwrap());
        });
        assert_eq!(failure.kind(), FailureKind::Deadlock);
        assert_eq!(held.load(Ordering::Relaxed), 0);
        sim::check(PROMISE, || {
            assert_eq!(windlass::spawn(|| 7).join().unwrap(), 7)
        });
    }
}

#[test]
fn a_failure_is_the_same_again() {
    let racy = || {
        let n = Arc::new(Mutex::new(0));
        let both = [(); 2].map(|()| {
            let n = Arc::clone(&n);
            windlass::spawn(move || {
                let seen = *n.lock().unwrap();
                *n.lock().unwrap() = seen + 1;
            })
        });
        both.into_iter().for_each(|one| one.join().unwrap());
        assert_eq!(*n.lock().unwrap(), 2);
    };
    let failure = fails(&Sim::new(PROMISE).seeds(1000), racy);
    let again = fails(&Sim::new(PROMISE).seed(failure.seed()).seeds(1), racy);
    assert_eq!(failure.until(), again.until());
    assert_eq!(failure.panics(), again.panics());
}

#[test]
fn a_thread_makes_the_run_fail() {
    let failure = fails(&one(), || {
        let (sender, receiver) = bounded(0);
        let _thread = std::thread::spawn(move || sender.send(1));
        while receiver.try_recv().is_err() {
            windlass::yield_now();
        }
    });
    assert_eq!(failure.kind(), FailureKind::Thread);
}

#[test]
fn settle_waits_for_all_others() {
    sim::check(PROMISE, || {
        let steps = Arc::new(Mutex::new(0));
        let workers = [(); 3].map(|()| {
            let steps = Arc::clone(&steps);
            windlass::spawn(move || {
                for _ in 0..3 {
                    *steps.lock().unwrap() += 1;
                }
                sleep(SECOND);
                *steps.lock().unwrap() += 1;
            })
        });
        sim::settle();
        assert_eq!(*steps.lock().unwrap(), 9);
        sleep(SECOND);
        sim::settle();
        assert_eq!(*steps.lock().unwrap(), 12);
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
    });
}

#[test]
fn several_may_settle() {
    sim::check(PROMISE, || {
        let both = [(); 2].map(|()| windlass::spawn(sim::settle));
        sim::settle();
        both.into_iter().for_each(|one| one.join().unwrap());
    });
}

#[test]
#[should_panic(expected = "outside of a simulation")]
fn settle_is_for_simulations() {
    sim::settle();
}

/// Whether the process has a handler for SIGINT.
fn catches_interrupts() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let caught = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:\t"));
    u64::from_str_radix(caught.unwrap(), 16).unwrap() & 1 << (libc::SIGINT - 1) != 0
}

#[test]
fn the_real_world_is_refused() {
    type Call = fn();
    let calls: &[(&str, Call)] = &[
        ("`blocking`", || windlass::blocking(|| ())),
        ("`offload`", || windlass::offload(|| ())),
        ("`lock_thread`", || drop(windlass::task::lock_thread())),
        ("a socket of the system", || {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            drop(windlass::net::UdpSocket::from(socket));
        }),
        ("an operation on a descriptor", || {
            let (reader, _writer) = std::io::pipe().unwrap();
            let _ = windlass::io::PipeReader::from(reader).read(&mut [0]);
        }),
        ("a file of the kernel", || {
            let file = std::fs::File::open("/proc/version").unwrap();
            drop((&windlass::fs::File::from(file)).read(&mut [0; 4]));
        }),
        ("a child process", || {
            drop(windlass::process::Command::new("true").spawn());
        }),
        ("a child process", || {
            panic!("{}", windlass::process::Command::new("true").exec());
        }),
        ("a child process", || {
            let true_of_std = std::process::Command::new("true");
            drop(windlass::process::Command::from(true_of_std).output());
        }),
        ("a signal", || drop(windlass::signal::ctrl_c())),
        ("a standard stream of windlass::io", || {
            let _ = windlass::io::stdout().write(b"text");
        }),
        ("a standard stream of windlass::io", || {
            let _ = windlass::io::stderr().write(b"text");
        }),
        ("a standard stream of windlass::io", || {
            let _ = windlass::io::stdin().read(&mut [0]);
        }),
    ];
    let before = catches_interrupts();
    for (what, call) in calls {
        let failure = fails(&one(), call);
        assert_eq!(failure.kind(), FailureKind::Panic);
        let message = &failure.panics()[0].message;
        let begins = format!("windlass: {what} is not simulated: in a simulation, ");
        assert!(message.starts_with(&begins), "{message}");
        // Outside, they work as ever.
        assert!(!sim::is_simulated());
    }
    windlass::blocking(|| ());
    drop(windlass::net::TcpListener::bind("127.0.0.1:0").unwrap());
    // A call that was refused has not changed what SIGINT does.
    assert_eq!(catches_interrupts(), before);
}

#[test]
fn a_destructor_may_sleep_while_it_unwinds() {
    struct Waits(fn());
    impl Drop for Waits {
        fn drop(&mut self) {
            self.0();
        }
    }
    let waits: [fn(); 4] = [
        || sleep(SECOND),
        || windlass::task::park_timeout(SECOND),
        || {
            assert!(
                windlass::spawn(windlass::task::park)
                    .join_timeout(SECOND)
                    .is_err()
            )
        },
        || {
            let ctx = Context::background().with_timeout(SECOND);
            assert!(
                windlass::spawn(windlass::task::park)
                    .join_context(&ctx)
                    .is_err()
            );
        },
    ];
    for wait in waits {
        let failure = fails(&one(), || {
            let _waits = Waits(wait);
            panic!("with a destructor");
        });
        assert_eq!(failure.kind(), FailureKind::Panic);
        assert_eq!(failure.until().elapsed, SECOND);
    }
}

#[test]
#[should_panic(expected = "simulation failed: a goroutine panicked")]
fn check_panics_with_the_failure() {
    sim::check(PROMISE, || panic!("expected"));
}

#[test]
fn a_simulation_inside_another_is_refused() {
    let failure = fails(&one(), || sim::check(PROMISE, || {}));
    let message = &failure.panics()[0].message;
    assert!(message.contains("started inside a goroutine"), "{message}");
}

/// Locks, conditions and the rest wait and wake as they do outside.
#[test]
fn everything_that_waits_works() {
    sim::check(PROMISE, || {
        let group = WaitGroup::new();
        let permits = Arc::new(Semaphore::new(2));
        let once = Arc::new(Once::new());
        let lock = Arc::new(windlass::sync::RwLock::new(0));
        let barrier = Arc::new(windlass::sync::Barrier::new(4));
        for _ in 0..4 {
            let (permits, once) = (Arc::clone(&permits), Arc::clone(&once));
            let (lock, barrier) = (Arc::clone(&lock), Arc::clone(&barrier));
            group.go(move || {
                barrier.wait();
                let _permit = permits.acquire(1).unwrap();
                once.call_once(|| *lock.write().unwrap() += 10);
                *lock.write().unwrap() += 1;
                assert!(*lock.read().unwrap() > 10);
            });
        }
        group.wait();
        assert_eq!(*lock.read().unwrap(), 14);
        let (a, b) = windlass::join(|| 1, || windlass::join(|| 2, || 3));
        assert_eq!((a, b), (1, (2, 3)));
    });
}

/// The explorer of schedules is of no use if forks never run beside their callers.
#[test]
fn forks_run_in_both_orders() {
    let orders = std::sync::Mutex::new(std::collections::BTreeSet::new());
    sim::check(PROMISE, || {
        let order = Mutex::new(Vec::new());
        windlass::join(
            || order.lock().unwrap().push(1),
            || order.lock().unwrap().push(2),
        );
        let order = order.into_inner().unwrap();
        orders.lock().unwrap().insert(order);
    });
    assert_eq!(orders.into_inner().unwrap().len(), 2);
}

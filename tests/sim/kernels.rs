//! Bug kernels: small programs with the bugs that people write, each beside its fixed twin.
//!
//! The patterns are those that studies of Go programs found again and again (Tu and others,
//! "Understanding real-world concurrency bugs in Go", ASPLOS 2019; Yuan and others, "GoBench", CGO
//! 2021). The programs were written anew for windlass.
//!
//! A bug must be found within [`FIND_WITHIN`] seeds by a random walk and by PCT, and its twin must
//! not fail. `cargo test --features sim --test sim kernels -- --nocapture` prints the table.

use windlass::channel::{after, bounded, unbounded};
use windlass::context::Context;
use windlass::sim::{FailureKind, Sim, Strategy};
use windlass::sync::{Arc, Condvar, Mutex, Once, RwLock, Semaphore, WaitGroup};
use windlass::time::{Duration, Timer, sleep};

use crate::util::PROMISE;

const FIND_WITHIN: u64 = 1_000;
/// The twins run under so many seeds of each strategy. With `WINDLASS_KERNEL_SEEDS` under more.
const TWIN_SEEDS: u64 = 300;

const SECOND: Duration = Duration::from_secs(1);

const STRATEGIES: [Strategy; 2] = [Strategy::RandomWalk, Strategy::Pct { depth: 3 }];

/// Runs a kernel with its bug, and its twin.
#[allow(clippy::print_stdout, reason = "the table")]
pub(crate) fn kernel(name: &str, kind: FailureKind, program: fn(fixed: bool)) {
    let twin_seeds = std::env::var("WINDLASS_KERNEL_SEEDS");
    let twin_seeds = twin_seeds.map_or(TWIN_SEEDS, |n| n.parse().expect("a number of seeds"));
    let found = STRATEGIES.map(|strategy| {
        let sim = Sim::new(PROMISE)
            .seed(1)
            .steps(50_000)
            .strategy(strategy)
            .no_goroutines_left(true);
        let outcome = sim.clone().seeds(FIND_WITHIN).run(|| program(false));
        let Err(failure) = outcome else {
            panic!("{name} is not found by {strategy:?}");
        };
        assert_eq!(failure.kind(), kind, "{name}: {failure}");
        let twin = sim.seeds(twin_seeds).run(|| program(true));
        twin.unwrap_or_else(|failure| panic!("{name}, fixed: {failure}"));
        failure.seed()
    });
    println!("| {name} | {kind:?} | {} | {} |", found[0], found[1]);
}

/// Two locks, taken in opposite orders.
#[test]
fn locks_in_opposite_orders() {
    kernel("opposite orders", FailureKind::Deadlock, |fixed| {
        let accounts = Arc::new([Mutex::new(100), Mutex::new(100)]);
        let transfer = |from: usize, to: usize| {
            let accounts = Arc::clone(&accounts);
            windlass::spawn(move || {
                let (first, second) = if fixed && to < from {
                    (to, from)
                } else {
                    (from, to)
                };
                let mut a = accounts[first].lock().unwrap();
                let mut b = accounts[second].lock().unwrap();
                let sum = *a + *b;
                (*a, *b) = (sum - 10, 10);
            })
        };
        let both = [transfer(0, 1), transfer(1, 0)];
        both.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// A method that locks calls another one that locks, on a rare path.
#[test]
fn a_lock_taken_twice() {
    kernel("lock taken twice", FailureKind::Deadlock, |fixed| {
        struct Cache(Mutex<Vec<u32>>);
        impl Cache {
            fn len(&self) -> usize {
                self.0.lock().unwrap().len()
            }
            fn add(&self, n: u32, fixed: bool) {
                let mut all = self.0.lock().unwrap();
                if all.last().is_some_and(|&last| last > n) {
                    // Only if the others came first.
                    let len = if fixed { all.len() } else { self.len() };
                    assert!(len > 0);
                }
                all.push(n);
            }
        }
        let cache = Arc::new(Cache(Mutex::new(Vec::new())));
        let adders = [1, 2, 3].map(|n| {
            let cache = Arc::clone(&cache);
            windlass::spawn(move || cache.add(n, fixed))
        });
        adders.into_iter().for_each(|adder| adder.join().unwrap());
    });
}

/// A permit that an early return does not give back.
#[test]
fn a_permit_lost_by_an_early_return() {
    kernel("early return", FailureKind::Deadlock, |fixed| {
        let slots = Arc::new(Semaphore::new(1));
        let is_closed = Arc::new(Mutex::new(false));
        let worker = {
            let (slots, is_closed) = (Arc::clone(&slots), Arc::clone(&is_closed));
            windlass::spawn(move || {
                slots.acquire(1).unwrap().forget();
                if *is_closed.lock().unwrap() {
                    if fixed {
                        slots.add_permits(1);
                    }
                    return;
                }
                slots.add_permits(1);
            })
        };
        *is_closed.lock().unwrap() = true;
        worker.join().unwrap();
        drop(slots.acquire(1).unwrap());
    });
}

/// The condition is checked, the lock released, and the signal comes before the wait.
#[test]
fn a_signal_before_the_wait() {
    kernel("lost signal", FailureKind::Deadlock, |fixed| {
        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let waiter = {
            let pair = Arc::clone(&pair);
            windlass::spawn(move || {
                let (ready, signal) = &*pair;
                if fixed {
                    drop(signal.wait_while(ready.lock().unwrap(), |ready| !*ready));
                } else if !*ready.lock().unwrap() {
                    drop(signal.wait(ready.lock().unwrap()));
                }
            })
        };
        *pair.0.lock().unwrap() = true;
        pair.1.notify_one();
        waiter.join().unwrap();
    });
}

/// One notification for two kinds of waiters: the wrong one gets it.
#[test]
fn one_signal_for_two_kinds_of_waiters() {
    kernel("wrong waiter woken", FailureKind::Deadlock, |fixed| {
        let pair = Arc::new((Mutex::new(0), Condvar::new()));
        let waits_for = |turn: u32| {
            let pair = Arc::clone(&pair);
            windlass::spawn(move || {
                let (now, signal) = &*pair;
                let mut now = signal
                    .wait_while(now.lock().unwrap(), |now| *now != turn)
                    .unwrap();
                *now += 1;
                drop(now);
                if fixed {
                    signal.notify_all()
                } else {
                    signal.notify_one()
                }
            })
        };
        let all = [waits_for(2), waits_for(1), waits_for(0)];
        all.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// A request times out, and its worker waits for ever to hand over the answer.
#[test]
fn a_worker_whose_receiver_gave_up() {
    kernel("leaked sender", FailureKind::GoroutinesLeft, |fixed| {
        // A receiver that somebody else holds keeps the channel open.
        let (sender, receiver) = bounded(usize::from(fixed));
        let held = receiver.clone();
        drop(windlass::spawn(move || {
            sleep(SECOND);
            let _ = sender.send("answer");
        }));
        windlass::select! {
            recv(receiver) -> answer => assert!(answer.is_ok()),
            recv(after(SECOND)) -> _ => {}
        }
        std::mem::forget(held);
    });
}

/// A goroutine counts itself, so `wait` may come first.
#[test]
fn a_wait_group_counted_too_late() {
    kernel("add in the goroutine", FailureKind::Panic, |fixed| {
        let group = WaitGroup::new();
        let total = Arc::new(Mutex::new(0));
        for n in 1..=2 {
            let (own, total) = (group.clone(), Arc::clone(&total));
            if fixed {
                group.add(1);
            }
            drop(windlass::spawn(move || {
                if !fixed {
                    own.add(1);
                }
                *total.lock().unwrap() += n;
                own.done();
            }));
        }
        group.wait();
        assert_eq!(*total.lock().unwrap(), 3);
    });
}

/// `done` is not called on one path.
#[test]
fn a_wait_group_not_done() {
    kernel("done forgotten", FailureKind::Deadlock, |fixed| {
        let group = WaitGroup::new();
        let taken = Arc::new(Mutex::new(false));
        for _ in 0..2 {
            let (own, taken) = (group.clone(), Arc::clone(&taken));
            group.add(1);
            drop(windlass::spawn(move || {
                let Ok(mut taken) = taken.try_lock() else {
                    // Somebody else does it.
                    if fixed {
                        own.done();
                    }
                    return;
                };
                *taken = true;
                own.done();
            }));
        }
        group.wait();
    });
}

/// Closed when the first of several senders is ready.
#[test]
fn a_send_after_the_close() {
    kernel("send after close", FailureKind::Panic, |fixed| {
        let (sender, receiver) = bounded(1);
        let senders = [1, 2].map(|n| {
            let sender = sender.clone();
            windlass::spawn(move || {
                let sent = sender.send(n);
                assert!(fixed || sent.is_ok(), "sent to a channel that is closed");
            })
        });
        drop(sender);
        assert!(receiver.recv().is_ok());
        drop(receiver);
        senders
            .into_iter()
            .for_each(|sender| sender.join().unwrap());
    });
}

/// The last message and the end are ready together, and a select takes either.
#[test]
fn a_select_that_loses_the_last_message() {
    kernel("select drops a message", FailureKind::Panic, |fixed| {
        let (messages, inbox) = unbounded();
        let (stop, stopped) = bounded::<()>(0);
        let consumer = windlass::spawn(move || {
            let mut n = 0;
            loop {
                windlass::select! {
                    recv(inbox) -> message => n += usize::from(message.is_ok()),
                    recv(stopped) -> _ => break,
                }
            }
            n + if fixed { inbox.try_iter().count() } else { 0 }
        });
        for i in 0..3 {
            messages.send(i).unwrap();
        }
        stop.send(()).unwrap();
        assert_eq!(consumer.join().unwrap(), 3);
    });
}

/// Check, unlock, act.
#[test]
fn a_check_and_an_act_with_a_gap() {
    kernel("check then act", FailureKind::Panic, |fixed| {
        let stock = Arc::new(Mutex::new(1_i32));
        let buyers = [(); 2].map(|()| {
            let stock = Arc::clone(&stock);
            windlass::spawn(move || {
                let mut now = stock.lock().unwrap();
                if *now > 0 {
                    if !fixed {
                        drop(now);
                        now = stock.lock().unwrap();
                    }
                    *now -= 1;
                }
            })
        });
        buyers.into_iter().for_each(|buyer| buyer.join().unwrap());
        assert!(*stock.lock().unwrap() >= 0, "sold twice");
    });
}

/// Read under a lock that is shared, written back under one that is not.
#[test]
fn an_update_under_a_read_lock() {
    kernel("lost update", FailureKind::Panic, |fixed| {
        let count = Arc::new(RwLock::new(0));
        let adders = [(); 3].map(|()| {
            let count = Arc::clone(&count);
            windlass::spawn(move || {
                if fixed {
                    *count.write().unwrap() += 1;
                } else {
                    let seen = *count.read().unwrap();
                    *count.write().unwrap() = seen + 1;
                }
            })
        });
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        assert_eq!(*count.read().unwrap(), 3);
    });
}

/// Used before the goroutine that sets it up has run.
#[test]
fn a_use_before_the_start() {
    kernel("order violation", FailureKind::Panic, |fixed| {
        let address = Arc::new(Mutex::new(None));
        let server = {
            let address = Arc::clone(&address);
            windlass::spawn(move || *address.lock().unwrap() = Some("10.0.0.1:80"))
        };
        if fixed {
            server.join().unwrap();
        }
        assert!(address.lock().unwrap().is_some(), "not yet started");
    });
}

/// A timer is stopped, and the message taken that it has sent: but the select has taken it.
#[test]
fn a_timer_drained_twice() {
    kernel("timer drained twice", FailureKind::Deadlock, |fixed| {
        let timer = Timer::new(SECOND);
        let (sender, done) = bounded(1);
        drop(windlass::spawn(move || {
            sleep(SECOND);
            let _ = sender.send(());
        }));
        windlass::select! {
            recv(done) -> _ => {}
            recv(timer.channel()) -> _ => {}
        }
        if !timer.stop() && !fixed {
            timer.channel().recv().unwrap();
        }
    });
}

/// A producer that looks for its context only before it waits.
#[test]
fn a_context_checked_at_the_wrong_time() {
    kernel(
        "context not in the wait",
        FailureKind::GoroutinesLeft,
        |fixed| {
            let (sender, receiver) = bounded(0);
            let keeps_open = receiver.clone();
            let (context, canceller) = Context::background().with_cancel();
            let own = context.clone();
            drop(windlass::spawn(move || {
                for n in 0.. {
                    if own.err().is_some() {
                        return;
                    }
                    let sent = if fixed {
                        own.run(|| sender.send(n)).is_ok()
                    } else {
                        sender.send(n).is_ok()
                    };
                    if !sent {
                        return;
                    }
                }
            }));
            assert_eq!(receiver.recv(), Ok(0));
            canceller.cancel();
            std::mem::forget(keeps_open);
        },
    );
}

/// The value is set up under a `Once`, and its flag read without it.
#[test]
fn a_flag_beside_a_once() {
    kernel("once and a flag", FailureKind::Panic, |fixed| {
        let state = Arc::new((Once::new(), Mutex::new(0), Mutex::new(false)));
        let users = [(); 2].map(|()| {
            let state = Arc::clone(&state);
            windlass::spawn(move || {
                let (once, value, is_set) = &*state;
                let skips = !fixed && *is_set.lock().unwrap();
                if !skips {
                    once.call_once(|| {
                        *is_set.lock().unwrap() = true;
                        *value.lock().unwrap() = 7;
                    });
                }
                assert_eq!(*value.lock().unwrap(), 7);
            })
        });
        users.into_iter().for_each(|user| user.join().unwrap());
    });
}

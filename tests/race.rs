//! The race detector (feature `race`): programs that race are reported, programs that do not are left alone. Each is a
//! child, since a report is about its whole process. In other builds it is empty.
#![cfg(all(feature = "race", feature = "sim"))]
#![allow(unsafe_code)]

mod util;

use std::cell::UnsafeCell;
use std::io::{Read, Write};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use util::{PROMISE, child, child_case, child_with_env, hang_guard, runtime};
use windlass::net::{TcpListener, TcpStream, UnixStream};
use windlass::sim::{FailureKind, Sim};
use windlass::{channel, fs, io, scope, sleep, spawn, sync, yield_now};

/// The exit status that ThreadSanitizer gives a process that had a report.
const RACED: i32 = 66;

/// A counter without a lock.
#[derive(Default)]
struct Counter(UnsafeCell<u64>);

// SAFETY: it is not: the races are the point of these tests.
unsafe impl Sync for Counter {}

impl Counter {
    fn add(&self) {
        // SAFETY: the cell is there. Nothing orders the accesses.
        unsafe { *self.0.get() += 1 };
    }
}

/// Two goroutines add to one counter, with nothing in between that orders them.
fn race() {
    let counter = Arc::new(Counter::default());
    let adders = [0, 1].map(|_| {
        let counter = Arc::clone(&counter);
        spawn(move || counter.add())
    });
    for adder in adders {
        adder.join().unwrap();
    }
}

/// One goroutine adds before it sleeps, the other after it: one thread runs both, one after the other.
fn race_around_waits() {
    let counter = Arc::new(Counter::default());
    let (first, second) = (Arc::clone(&counter), counter);
    let first = spawn(move || {
        first.add();
        sleep(Duration::from_millis(5));
    });
    let second = spawn(move || {
        sleep(Duration::from_millis(1));
        second.add();
    });
    first.join().unwrap();
    second.join().unwrap();
}

fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Two goroutines that only send: neither learns of the other.
fn race_beside_sends() {
    let (left, right) = connected();
    let counter = Arc::new(Counter::default());
    let adders = [left, right].map(|mut stream| {
        let counter = Arc::clone(&counter);
        spawn(move || {
            stream.write_all(b"x").unwrap();
            counter.add();
            stream.write_all(b"x").unwrap();
        })
    });
    for adder in adders {
        adder.join().unwrap();
    }
}

/// Two goroutines that have turns at a counter: a byte says whose it is.
fn take_turns_by<S: Read + Write + Send>((mut left, mut right): (S, S)) {
    let counter = Counter::default();
    scope(|s| {
        s.spawn(|| {
            for _ in 0..8 {
                counter.add();
                left.write_all(b"x").unwrap();
                left.read_exact(&mut [0]).unwrap();
            }
        });
        s.spawn(|| {
            for _ in 0..8 {
                right.read_exact(&mut [0]).unwrap();
                counter.add();
                right.write_all(b"x").unwrap();
            }
        });
    });
}

/// Bytes order goroutines, in sockets and in pipes.
fn take_turns_by_bytes() {
    take_turns_by(connected());
    take_turns_by(UnixStream::pair().unwrap());
    let counter = Counter::default();
    let (mut reader, mut writer) = io::pipe().unwrap();
    scope(|s| {
        s.spawn(|| {
            reader.read_exact(&mut [0]).unwrap();
            counter.add();
        });
        s.spawn(|| {
            counter.add();
            writer.write_all(b"x").unwrap();
        });
    });
}

/// A disk is used in turn, and is not the goroutines' own.
fn share_a_disk() {
    scope(|s| {
        for name in ["a", "b"] {
            s.spawn(move || {
                fs::write(name, name).unwrap();
                assert_eq!(fs::read(name).unwrap(), name.as_bytes());
            });
        }
    });
}

/// All that orders goroutines, with a plain counter behind each.
fn take_turns() {
    let counter = Counter::default();
    let lock = sync::Mutex::new(());
    let barrier = sync::Barrier::new(2);
    let (sender, receiver) = channel::bounded(0);
    let (slow_sender, slow_receiver) = channel::bounded(1);
    // Spawn and join.
    counter.add();
    scope(|s| {
        s.spawn(|| counter.add());
    });
    counter.add();
    // A lock that is waited for.
    scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                let _guard = lock.lock().unwrap();
                counter.add();
                yield_now();
            });
        }
    });
    // Channels, both with a receiver that waits and with a sender that does.
    scope(|s| {
        s.spawn(|| {
            receiver.recv().unwrap();
            counter.add();
            slow_sender.send(()).unwrap();
        });
        s.spawn(|| {
            counter.add();
            sender.send(()).unwrap();
            slow_receiver.recv().unwrap();
            counter.add();
        });
    });
    // A barrier.
    scope(|s| {
        s.spawn(|| {
            counter.add();
            barrier.wait();
        });
        s.spawn(|| {
            barrier.wait();
            counter.add();
        });
    });
    // Forks.
    windlass::join(yield_now, || counter.add());
    counter.add();
    // An atomic, over waits.
    let flag = AtomicBool::new(false);
    scope(|s| {
        s.spawn(|| {
            counter.add();
            flag.store(true, Ordering::Release);
        });
        s.spawn(|| {
            while !flag.load(Ordering::Acquire) {
                yield_now();
            }
            counter.add();
        });
    });
}

/// Goroutines that share a thread share its thread-locals, and stacks and slots of those that have ended.
fn share_what_is_used_again() {
    thread_local!(static LOCAL: UnsafeCell<Vec<u64>> = const { UnsafeCell::new(Vec::new()) });
    for n in 0..20 {
        let users: Vec<_> = (0..10)
            .map(|i| {
                spawn(move || {
                    // SAFETY: no other reference to the vector is there.
                    LOCAL.with(|local| unsafe { (*local.get()).push(n) });
                    yield_now();
                    [n; 100][i] + std::hint::black_box(n)
                })
            })
            .collect();
        for user in users {
            assert_eq!(user.join().unwrap(), 2 * n);
        }
    }
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn reports(output: &Output, names: &[&str]) {
    let text = stderr_of(output);
    assert_eq!(output.status.code(), Some(RACED), "{text}");
    for name in names {
        assert!(text.contains(name), "no {name} in {text}");
    }
}

#[track_caller]
fn is_silent(output: &Output) {
    let text = stderr_of(output);
    assert!(output.status.success(), "{text}");
    assert!(!text.contains("ThreadSanitizer"), "{text}");
}

const SITES: [&str; 5] = [
    "data race",
    "tests/race.rs",
    "Counter",
    "'goroutine 2'",
    "'goroutine 3'",
];

#[test]
fn a_race_on_one_thread_is_reported() {
    let _guard = hang_guard();
    match child_case().as_deref() {
        Some("at_once") => runtime(1).run(race),
        Some("around_waits") => runtime(1).run(race_around_waits),
        Some("beside_sends") => runtime(1).run(race_beside_sends),
        _ => {
            for case in ["at_once", "around_waits", "beside_sends"] {
                reports(&child("a_race_on_one_thread_is_reported", case), &SITES);
            }
        }
    }
}

#[test]
fn a_race_of_two_threads_is_reported() {
    let _guard = hang_guard();
    match child_case() {
        Some(_) => runtime(2).run(race),
        None => reports(&child("a_race_of_two_threads_is_reported", "race"), &SITES),
    }
}

#[test]
fn goroutines_that_are_ordered_are_left_alone() {
    let _guard = hang_guard();
    match child_case().as_deref() {
        Some(n_procs) => runtime(n_procs.parse().unwrap()).run(|| {
            take_turns();
            take_turns_by_bytes();
            share_what_is_used_again();
        }),
        None => {
            for n_procs in ["1", "2"] {
                is_silent(&child(
                    "goroutines_that_are_ordered_are_left_alone",
                    n_procs,
                ));
            }
        }
    }
}

#[test]
fn a_simulation_names_the_seed_of_a_race() {
    let _guard = hang_guard();
    const NAME: &str = "a_simulation_names_the_seed_of_a_race";
    let program = match child_case().as_deref() {
        Some("alone") => race,
        Some(_) => race_beside_sends,
        None => {
            for case in ["alone", "beside_sends"] {
                let first = child(NAME, case);
                reports(&first, &["a data race", "seed 7 ", "WINDLASS_SIM_SEED=7"]);
                let again = child_with_env(NAME, case, &[("WINDLASS_SIM_SEED", "7")]);
                reports(&again, &SITES);
                let schedule = |output: &Output| {
                    let text = stderr_of(output);
                    let line = text.lines().find(|line| line.starts_with("seed 7 "));
                    line.map(str::to_owned)
                };
                assert_eq!(schedule(&first), schedule(&again));
            }
            return;
        }
    };
    let failure = Sim::new(PROMISE).seed(7).seeds(3).run(program);
    let failure = failure.unwrap_err();
    assert!(matches!(failure.kind(), FailureKind::DataRace), "{failure}");
    eprintln!("{failure}");
}

#[test]
fn simulations_without_a_race_are_left_alone() {
    let _guard = hang_guard();
    match child_case() {
        Some(_) => {
            let program = || {
                take_turns_by_bytes();
                share_a_disk();
            };
            Sim::new(PROMISE).seeds(30).run(program).unwrap();
        }
        None => is_silent(&child("simulations_without_a_race_are_left_alone", "sim")),
    }
}

//! Processes that a goroutine forks: they have it, and no scheduler.
#![allow(unsafe_code)]

use std::io::Write;
use std::time::Duration;

use windlass::channel::{Sender, unbounded};
use windlass::io::pipe;
use windlass::sync::Mutex;
use windlass::{blocking, sleep, spawn, task, yield_now};

use crate::util;
use crate::util::runtime;

/// What a child ends with that was not ended.
const GOES_ON: i32 = 7;

const LINE: &str = "windlass: a process that a goroutine has forked uses the runtime";

/// In the child, `true`; else the status with which it has ended.
fn forks() -> (bool, i32) {
    // SAFETY: the child calls what is tested, or nothing but async-signal-safe functions.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            // One that hangs.
            libc::alarm(100);
            return (true, 0);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        (false, status)
    }
}

fn exits() -> ! {
    // SAFETY: takes an integer, and does not return.
    unsafe { libc::_exit(GOES_ON) }
}

/// The status of a child that calls `f`.
fn child_of(f: impl FnOnce()) -> i32 {
    match forks() {
        (true, _) => {
            f();
            exits()
        }
        (false, status) => status,
    }
}

/// A sender whose receiver waits.
fn sender() -> Sender<()> {
    let (sender, receiver) = unbounded();
    spawn(move || receiver.recv());
    yield_now();
    sender
}

/// The status of the child of a goroutine.
fn status_of(case: &str) -> i32 {
    match case {
        "yields" => child_of(yield_now),
        "sleeps" => child_of(|| sleep(Duration::from_millis(1))),
        "parks" => child_of(task::park),
        "sends" => {
            let sender = sender();
            child_of(move || sender.send(()).unwrap())
        }
        "spawns" => child_of(|| drop(spawn(|| ()))),
        "joins" => child_of(|| _ = windlass::join(|| (), || ())),
        "blocks" => child_of(|| blocking(|| ())),
        "writes" => {
            let (_reader, mut writer) = pipe().unwrap();
            child_of(move || writer.write_all(&[1; 1 << 20]).unwrap())
        }
        "in a section" => match blocking(forks) {
            (true, _) => {
                yield_now();
                exits()
            }
            (false, status) => status,
        },
        "returns" => spawn(|| forks().1).join().unwrap(),
        "panics" => spawn(|| match forks() {
            (true, _) => panic!("in the child"),
            (false, status) => status,
        })
        .join()
        .unwrap(),
        "drops" => {
            let (lock, task) = (Mutex::new(()), spawn(task::park));
            child_of(move || {
                drop(lock.lock().unwrap());
                drop(task);
            })
        }
        "exits" => child_of(|| ()),
        "leaves a section" => match blocking(forks) {
            (true, _) => exits(),
            (false, status) => status,
        },
        other => unreachable!("{other}"),
    }
}

/// Runs the test `name` for each case in a process of its own, where `ends` looks at the status of the forked child. `says` looks
/// at what the process wrote to stderr.
#[track_caller]
fn for_each(name: &str, cases: &[&str], ends: fn(i32), says: fn(&str) -> bool) {
    if let Some(case) = util::child_case() {
        return ends(runtime(2).run(|| status_of(&case)));
    }
    for case in cases {
        let output = util::child(name, case);
        let stderr = util::without_fallback(&String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{case}: {stderr}");
        assert!(says(&stderr), "{case}: {stderr}");
    }
}

/// The child would wait for threads that it does not have.
#[test]
fn a_child_that_uses_the_runtime_ends_and_says_why() {
    let cases = [
        "yields",
        "sleeps",
        "parks",
        "sends",
        "spawns",
        "joins",
        "blocks",
        "writes",
        "in a section",
        "returns",
        "panics",
    ];
    let is_aborted = |status| {
        assert!(libc::WIFSIGNALED(status), "{status:x}");
        assert_eq!(libc::WTERMSIG(status), libc::SIGABRT);
    };
    let says_why = |stderr: &str| stderr.matches(LINE).count() == 1;
    for_each(
        "a_child_that_uses_the_runtime_ends_and_says_why",
        &cases,
        is_aborted,
        says_why,
    );
}

#[test]
fn a_child_that_uses_nothing_of_it_goes_on() {
    let goes_on = |status| {
        assert!(libc::WIFEXITED(status), "{status:x}");
        assert_eq!(libc::WEXITSTATUS(status), GOES_ON);
    };
    for_each(
        "a_child_that_uses_nothing_of_it_goes_on",
        &["exits", "drops", "leaves a section"],
        goes_on,
        |stderr| !stderr.contains("windlass: "),
    );
}

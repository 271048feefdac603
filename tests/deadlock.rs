//! Deadlock detection: found where there is one, and only there.
//!
//! Every case is a process of its own, this program once more, without threads of a test
//! harness: a thread that windlass does not know may wake somebody.
#![expect(
    clippy::print_stdout,
    reason = "tells what it runs, as a harness would"
)]

mod util;

use std::io::{Read, Write};
use std::process::Output;
use std::time::Duration;

use windlass::net::{TcpListener, TcpStream};
use windlass::{Builder, Runtime, blocking, offload, sleep, spawn, task, yield_now};

/// A case: its name, what the child does, and what comes of it.
type Case = (&'static str, fn(), fn(&Output));

const CASES: &[Case] = &[
    ("a_parked_main", || run(2, task::park), is_deadlock),
    (
        "goroutines_that_join_each_other",
        join_each_other,
        is_deadlock,
    ),
    ("after_work_and_a_stale_timer", after_work, is_deadlock),
    ("after_offloading", after_offloading, is_deadlock),
    ("after_a_thread_has_ended", after_a_thread, is_deadlock),
    ("the_dump_is_there", the_dump, has_dump),
    ("nothing_else_is_one", many_waits, passes),
    ("not_asked_for", not_asked_for, passes),
];

fn main() {
    if let Some(case) = util::child_case() {
        let (_, run, _) = CASES.iter().find(|(name, ..)| *name == case).unwrap();
        return run();
    }
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let list = std::env::args().any(|a| a == "--list");
    for (name, _, check) in CASES {
        if list {
            println!("{name}: test");
        } else if wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str())) {
            check(&util::child(name, name));
            println!("test {name} ... ok");
        }
    }
}

fn watched(n: usize) -> Runtime {
    util::build(Builder::new().processors(n).deadlock_detection(true)).unwrap()
}

fn run(n: usize, f: impl FnOnce() + Send) {
    watched(n).run(f);
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn is_deadlock(output: &Output) {
    let stderr = text(output);
    assert_eq!(
        output.status.code(),
        Some(2),
        "{:?}: {stderr}",
        output.status
    );
    assert!(stderr.starts_with("deadlock"), "{stderr}");
}

#[track_caller]
fn has_dump(output: &Output) {
    is_deadlock(output);
    let stderr = text(output);
    for wanted in [
        "name \"main\"]:",
        "name \"waiter\"]:",
        "[join",
        "[park",
        "tests/deadlock.rs:",
    ] {
        assert!(stderr.contains(wanted), "no {wanted} in {stderr}");
    }
    if cfg!(debug_assertions) {
        assert!(stderr.contains("deadlock::waits_for_ever"), "{stderr}");
    }
}

#[track_caller]
fn passes(output: &Output) {
    assert!(
        output.status.success(),
        "{:?}: {}",
        output.status,
        text(output)
    );
    assert_eq!(text(output), "");
}

fn join_each_other() {
    run(4, || {
        let inner = spawn(task::park);
        let outer = spawn(move || inner.join());
        let _ = outer.join();
    });
}

fn after_work() {
    run(2, || {
        let work: Vec<_> = (0..100).map(|_| spawn(yield_now)).collect();
        work.into_iter().for_each(|w| w.join().unwrap());
        let main = task::current();
        spawn(move || main.unpark());
        // Woken at once, its timer stays behind.
        task::park_timeout(Duration::from_secs(3600));
        task::park();
    });
}

fn after_offloading() {
    run(2, || {
        assert_eq!(offload(|| 7), 7);
        let _ = spawn(task::park).join();
    });
}

#[expect(clippy::disallowed_methods, reason = "on a plain thread")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

fn after_a_thread() {
    run(1, || {
        // Ends without a word.
        std::thread::spawn(|| pause(Duration::from_millis(300)));
        task::park();
    });
}

#[inline(never)]
fn waits_for_ever() {
    task::park();
    std::hint::black_box(());
}

fn the_dump() {
    run(1, || {
        let waiter = task::Builder::new().name("waiter").spawn(waits_for_ever);
        let _ = waiter.unwrap().join();
    });
}

/// All that may look like a deadlock for a moment, and for long, again and again.
fn many_waits() {
    run(4, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let main = task::current();
        for round in 0..30_u64 {
            // Only a timer.
            sleep(Duration::from_millis(1 + round % 3));
            // Only an operation in flight: nobody writes for a while but a process's own socket.
            let mut client = TcpStream::connect(addr).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            let reader = spawn(move || client.read(&mut [0; 1]).unwrap());
            sleep(Duration::from_millis(1));
            server.write_all(&[1]).unwrap();
            assert_eq!(reader.join().unwrap(), 1);
            // Only a thread.
            let waker = main.clone();
            let thread = std::thread::spawn(move || {
                pause(Duration::from_millis(5));
                waker.unpark();
            });
            task::park();
            // Only a blocking section, and only an offloaded job.
            blocking(|| thread.join().unwrap());
            let blocker = spawn(|| blocking(|| pause(Duration::from_millis(3))));
            blocker.join().unwrap();
            offload(|| pause(Duration::from_millis(3)));
            // Goroutines that wake one another.
            let wakes: Vec<_> = (0..8)
                .map(|_| spawn(|| (0..20).for_each(|_| yield_now())))
                .collect();
            wakes.into_iter().for_each(|w| w.join().unwrap());
        }
        // Longer than the detection takes.
        sleep(Duration::from_millis(300));
        offload(|| pause(Duration::from_millis(300)));
        spawn(|| blocking(|| pause(Duration::from_millis(300))))
            .join()
            .unwrap();
        let thread = std::thread::spawn(move || {
            pause(Duration::from_millis(300));
            main.unpark();
        });
        task::park();
        offload(|| thread.join().unwrap());
    });
}

fn not_asked_for() {
    let runtime = util::build(Builder::new().processors(1)).unwrap();
    runtime.run(|| {
        let stuck = spawn(task::park);
        pause(Duration::from_millis(50));
        sleep(Duration::from_millis(300));
        stuck.task().unpark();
        stuck.join().unwrap();
    });
}

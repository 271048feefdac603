//! Deadlock detection: found where there is one, and only there.
//!
//! Every case is a process of its own, this program once more, without threads of a test
//! harness: a thread that windlass does not know may wake somebody.
#![allow(unsafe_code)]
#![expect(
    clippy::print_stdout,
    reason = "tells what it runs, as a harness would"
)]

mod util;

use std::io::{Read, Write};
use std::process::Output;
use std::sync::Arc;
use windlass::time::{Duration, Instant};

use windlass::channel::{after, bounded};
use windlass::net::{TcpListener, TcpStream};
use windlass::sync::{Barrier, Mutex};
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
    ("two_locks_in_two_orders", two_locks, names_the_locks),
    ("a_channel_nobody_sends_to", a_channel, is_deadlock),
    ("after_work_and_a_stale_timer", after_work, is_deadlock),
    ("after_offloading", after_offloading, is_deadlock),
    ("after_a_thread_has_ended", after_a_thread, is_deadlock),
    (
        "beside_a_connection_that_is_watched",
        beside_a_watch,
        is_deadlock,
    ),
    (
        "beside_streams_that_nobody_asks",
        beside_streams,
        is_deadlock,
    ),
    (
        "beside_a_thread_that_ended_with_its_goroutine",
        beside_a_thread_that_ended,
        is_deadlock,
    ),
    ("the_dump_is_there", the_dump, has_dump),
    ("short_waits_are_none", short_waits, passes),
    ("long_waits_are_none", long_waits, passes),
    ("a_goroutine_without_a_p_is_none", without_p, passes),
    (
        "a_long_blocking_section_is_none",
        in_blocking_section,
        passes,
    ),
    ("an_operation_in_flight_is_none", in_flight, passes),
    ("another_runtime_may_wake_somebody", two_runtimes, passes),
    ("two_runtimes_that_are_stuck", two_stuck_runtimes, has_two),
    ("not_asked_for", not_asked_for, passes),
    ("asked_for_by_the_environment", without_asking, is_deadlock),
    ("forbidden_by_the_environment", stuck_for_a_while, passes),
];

/// The value of `WINDLASS_DEBUG` in the cases with these names.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("asked_for_by_the_environment", "deadlock=1"),
    ("forbidden_by_the_environment", "deadlock=0"),
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
    // Most of them wait, so all run at once.
    std::thread::scope(|all| {
        for case in CASES {
            if list {
                println!("{}: test", case.0);
            } else if wanted.is_empty() || wanted.iter().any(|w| case.0.contains(w.as_str())) {
                all.spawn(|| check(case));
            }
        }
    });
}

/// Runs a case as a child, and checks what comes of it.
fn check(&(name, _, check): &Case) {
    let environment = ENVIRONMENT.iter().find(|(of, _)| *of == name);
    let environment = environment.map(|(_, value)| ("WINDLASS_DEBUG", *value));
    check(&util::child_with_env(name, name, environment.as_slice()));
    println!("test {name} ... ok");
}

fn watched(n: usize) -> Runtime {
    util::build(Builder::new().processors(n).deadlock_detection(true)).unwrap()
}

fn run(n: usize, f: impl FnOnce() + Send) {
    watched(n).run(f);
}

fn text(output: &Output) -> String {
    util::without_fallback(&String::from_utf8_lossy(&output.stderr))
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
    let headline = "fatal error: all goroutines are asleep - deadlock!\n\nwindlass: ";
    assert!(stderr.starts_with(headline), "{stderr}");
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

fn two_locks() {
    run(2, || {
        let locks = Arc::new([Mutex::new(0), Mutex::new(0)]);
        let both_have_one = Arc::new(Barrier::new(2));
        let philosophers = [0, 1].map(|first| {
            let (locks, both_have_one) = (Arc::clone(&locks), Arc::clone(&both_have_one));
            spawn(move || {
                let _one = locks[first].lock().unwrap();
                both_have_one.wait();
                let _other = locks[1 - first].lock().unwrap();
            })
        });
        philosophers.into_iter().for_each(|p| p.join().unwrap());
    });
}

#[track_caller]
fn names_the_locks(output: &Output) {
    is_deadlock(output);
    let stderr = text(output);
    assert_eq!(stderr.matches("[sync.Mutex.lock").count(), 2, "{stderr}");
    // The philosophers are a ring, if locks know who has them.
    let names_ring = stderr.contains("\ncycle: goroutine ");
    assert_eq!(names_ring, cfg!(feature = "lock-owners"), "{stderr}");
}

fn a_channel() {
    run(2, || {
        let (sender, receiver) = bounded::<u32>(1);
        sender.send(1).unwrap();
        assert_eq!(receiver.iter().take(2).count(), 2);
        drop(sender);
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

/// A goroutine has accepted, and now waits for something else.
fn beside_streams() {
    run(1, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut connections = listener.accept_stream();
        let server = connections.accept().unwrap();
        task::park();
        drop((client, server));
    });
}

/// A poll stays armed for a connection that was read often; nobody reads it now.
fn beside_a_watch() {
    run(1, || {
        let (mut a, mut b) = util::pair();
        for _ in 0..20 {
            a.write_all(b"abc").unwrap();
            b.read_exact(&mut [0; 3]).unwrap();
        }
        task::park();
        drop((a, b));
    });
}

fn the_dump() {
    run(1, || {
        let waiter = task::Builder::new().name("waiter").spawn(waits_for_ever);
        let _ = waiter.unwrap().join();
    });
}

/// All that may look like a deadlock for a moment, again and again.
fn short_waits() {
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
    });
}

/// Longer than it takes to find a deadlock.
const LONG: Duration = Duration::from_millis(400);

fn long_waits() {
    run(4, || {
        let main = task::current();
        sleep(LONG);
        task::park_timeout(LONG);
        let _: Instant = after(LONG).recv().unwrap();
        offload(|| pause(LONG));
        let blocker = spawn(|| blocking(|| pause(LONG)));
        blocker.join().unwrap();
        // A thread that has a task, and one that has a sender.
        let waker = main.clone();
        let thread = std::thread::spawn(move || {
            pause(LONG);
            waker.unpark();
        });
        task::park();
        blocking(|| thread.join().unwrap());
        let (sender, receiver) = bounded(0);
        let thread = std::thread::spawn(move || {
            pause(LONG);
            sender.send(7).unwrap();
        });
        assert_eq!(receiver.recv(), Ok(7));
        blocking(|| thread.join().unwrap());
    });
}

fn without_p() {
    run(1, || {
        let hog = spawn(|| pause(2 * LONG));
        // Takes the P from it, and then leaves it idle.
        let begin = Instant::now();
        while begin.elapsed() < LONG {
            yield_now();
        }
        hog.join().unwrap();
    });
}

/// Nobody in this process ever connects.
fn in_flight() {
    if let Ok(addr) = std::env::var(ADDR) {
        pause(LONG);
        drop(std::net::TcpStream::connect(addr).unwrap());
        return;
    }
    run(1, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let case = "an_operation_in_flight_is_none";
        let mut client = util::child_command(case, case)
            .env(ADDR, addr)
            .spawn()
            .unwrap();
        listener.accept().unwrap();
        assert!(blocking(|| client.wait()).unwrap().success());
    });
}

/// Makes the child the one that connects.
const ADDR: &str = "WINDLASS_TEST_ADDR";

fn two_runtimes() {
    run(1, || {
        let main = task::current();
        let thread = std::thread::spawn(move || {
            run(1, move || {
                sleep(LONG);
                main.unpark();
            });
        });
        task::park();
        blocking(|| thread.join().unwrap());
    });
}

/// Each of two runtimes has a sender of the channel from which the other receives. Only one asks for
/// detection.
fn two_stuck_runtimes() {
    let (to_first, first) = bounded::<()>(0);
    let (to_second, second) = bounded::<()>(0);
    let other = std::thread::spawn(move || {
        let builder = Builder::new().processors(1).name("other");
        util::build(builder).unwrap().run(|| {
            let _ = second.recv();
            drop(to_first);
        });
    });
    run(1, || {
        let _ = first.recv();
        drop(to_second);
    });
    other.join().unwrap();
}

#[track_caller]
fn has_two(output: &Output) {
    let stderr = text(output);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    for wanted in [
        "fatal error: all goroutines are asleep - deadlock!\n\n",
        "\nother: 1 goroutines\n\ngoroutine ",
        "\nwindlass: 1 goroutines\n\ngoroutine ",
    ] {
        assert!(stderr.contains(wanted), "no {wanted} in {stderr}");
    }
    assert_eq!(stderr.matches("name \"main\"]:").count(), 2, "{stderr}");
}

fn without_asking() {
    let runtime = util::build(Builder::new().processors(1)).unwrap();
    runtime.run(task::park);
}

/// Looks like a deadlock for long, until a signal ends the wait: its handler's thread is the
/// runtime's own.
fn stuck_for_a_while() {
    // SAFETY: the handler makes one system call.
    unsafe { libc::signal(libc::SIGALRM, exit_well as *const () as libc::sighandler_t) };
    let delay = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        it_value: libc::timeval {
            tv_sec: 0,
            tv_usec: 800_000,
        },
    };
    // SAFETY: the value is a valid structure, and the old one is not asked for.
    let set = unsafe { libc::setitimer(libc::ITIMER_REAL, &delay, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    run(1, task::park);
}

extern "C" fn exit_well(_: i32) {
    // SAFETY: ends the process, which is allowed in a handler.
    unsafe { libc::_exit(0) };
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

/// The thread on which the P was ends with its goroutine, and no thread is left to take the P.
fn beside_a_thread_that_ended() {
    run(1, || {
        let _lock = task::lock_thread();
        spawn(|| std::mem::forget(task::lock_thread()));
        task::park();
    });
}

/// The P is taken from the section and idle, as everything else is.
fn in_blocking_section() {
    run(1, || {
        let (done, wait) = bounded(1);
        spawn(move || {
            blocking(|| std::thread::sleep(Duration::from_millis(400)));
            done.send(()).unwrap();
        });
        wait.recv().unwrap();
    });
}

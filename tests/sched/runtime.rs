//! Building, running and leaving a runtime.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::io::{ErrorKind, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use crate::util;
use crate::util::{Census, build, hang_guard, panic_text, runtime, wait_until};
use windlass::channel;
use windlass::context::Context;
use windlass::net::{AcceptStream, TcpListener, TcpStream};
use windlass::task::{self, Cancelled, offload};
use windlass::{Builder, Handle, Runtime};

fn is_cancelled<T>(r: &task::Result<T>) -> bool {
    r.as_ref().is_err_and(|payload| payload.is::<Cancelled>())
}

#[test]
fn types_may_go_where_they_must() {
    fn shared<T: Send + Sync>() {}
    shared::<Runtime>();
    shared::<Handle>();
    shared::<task::Task>();
    shared::<task::JoinHandle<u8>>();
}

#[test]
fn run_gives_the_value_and_may_borrow() {
    let _guard = hang_guard();
    let mut words = vec!["a".to_owned()];
    let rt = runtime(2);
    let n = rt.run(|| {
        words.push("b".to_owned());
        words.len()
    });
    assert_eq!((n, words.join("")), (2, "ab".to_owned()));
    assert_eq!(rt.processors(), 2);
    assert!(format!("{rt:?} {:?}", rt.handle()).contains("windlass"));
}

#[test]
fn the_default_runtime_uses_the_cpus_it_may_use() {
    let _guard = hang_guard();
    let rt = build(Builder::new()).unwrap();
    assert!((1..=util::affinity().len()).contains(&rt.processors()));
    assert_eq!(rt.run(|| task::spawn(|| 5).join().unwrap()), 5);
}

#[test]
fn a_panic_of_the_main_goroutine_comes_out_of_run() {
    let _guard = hang_guard();
    let rt = runtime(2);
    for i in 0..3 {
        let payload = catch_unwind(AssertUnwindSafe(|| {
            rt.run(|| -> () { std::panic::panic_any(i) });
        }))
        .unwrap_err();
        assert_eq!(payload.downcast_ref::<i32>(), Some(&i));
    }
    assert_eq!(rt.run(|| 7), 7, "the runtime may be used again");
}

#[test]
fn a_runtime_may_run_many_times() {
    let _guard = hang_guard();
    let rt = runtime(3);
    for i in 0..50_u64 {
        let sum: u64 = rt.run(|| {
            let parts: Vec<_> = (0..20).map(|j| windlass::spawn(move || i * j)).collect();
            parts.into_iter().map(|p| p.join().unwrap()).sum()
        });
        assert_eq!(sum, i * 190);
    }
}

#[test]
fn a_runtime_may_run_on_one_thread_after_another() {
    let _guard = hang_guard();
    let rt = runtime(2);
    let ids: Vec<i32> = (0..4)
        .map(|_| std::thread::scope(|s| s.spawn(|| rt.run(util::gettid)).join().unwrap()))
        .collect();
    assert_eq!(ids.len(), 4);
}

#[test]
fn run_while_it_runs_panics() {
    let _guard = hang_guard();
    let rt = runtime(2);
    let payload = rt.run(|| {
        windlass::blocking(|| {
            std::thread::scope(|s| {
                s.spawn(|| catch_unwind(AssertUnwindSafe(|| rt.run(|| ()))).unwrap_err())
                    .join()
                    .unwrap()
            })
        })
    });
    let text = panic_text(&*payload);
    assert!(
        text.contains("windlass") && text.contains("runs already"),
        "{text}"
    );
    assert_eq!(rt.run(|| 1), 1);
}

#[test]
fn build_and_run_inside_a_goroutine_panic() {
    let _guard = hang_guard();
    let other = runtime(1);
    let text = runtime(1).run(|| {
        let run = catch_unwind(AssertUnwindSafe(|| other.run(|| ()))).unwrap_err();
        let build = catch_unwind(|| build(Builder::new().processors(1))).unwrap_err();
        let section = windlass::blocking(|| catch_unwind(build_one).unwrap_err());
        [run, build, section].map(|payload| panic_text(&*payload).to_owned())
    });
    assert!(
        text[0].contains("windlass") && text[0].contains("Runtime::run"),
        "{text:?}"
    );
    assert!(
        text[1].contains("windlass") && text[1].contains("Builder::build"),
        "{text:?}"
    );
    assert_eq!(text[1], text[2]);
    assert_eq!(
        other.run(|| 3),
        3,
        "a refused run leaves the runtime as it was"
    );
}

fn build_one() -> Runtime {
    runtime(1)
}

#[test]
fn an_offloaded_closure_may_run_a_runtime_of_its_own() {
    let n = util::run(1, || {
        windlass::offload(|| runtime(1).run(|| windlass::spawn(|| 11).join().unwrap()))
    });
    assert_eq!(n, 11);
}

#[test]
fn spawn_off_the_runtime_panics() {
    let payload = catch_unwind(|| windlass::spawn(|| ())).unwrap_err();
    assert!(panic_text(&*payload).contains("windlass"));
    let payload = catch_unwind(|| task::Builder::new().spawn(|| ())).unwrap_err();
    assert!(panic_text(&*payload).contains("Handle::spawn"));
}

#[test]
fn a_handle_spawns_before_a_run() {
    let _guard = hang_guard();
    let rt = runtime(2);
    let handle = rt.handle();
    let early: Vec<_> = (0..1000).map(|i| handle.spawn(move || i)).collect();
    assert!(
        early.iter().all(|j| !j.is_finished()),
        "nothing runs before run"
    );
    assert_eq!(rt.metrics().live_goroutines, 1000);
    let sum: u64 = rt.run(|| early.into_iter().map(|j| j.join().unwrap()).sum());
    assert_eq!(sum, 499_500);
}

#[test]
fn a_handle_spawns_during_a_run_from_threads_and_goroutines() {
    let _guard = hang_guard();
    let rt = runtime(2);
    let handle = rt.handle();
    let total = rt.run(|| {
        let from_threads: Vec<_> = (0..4)
            .map(|t| {
                let handle = handle.clone();
                std::thread::spawn(move || {
                    let all: Vec<_> = (0..250)
                        .map(|i| handle.spawn(move || t * 250 + i))
                        .collect();
                    all.into_iter().map(|j| j.join().unwrap()).sum::<u64>()
                })
            })
            .collect();
        let own = handle.spawn(|| 1_u64).join().unwrap();
        own + windlass::blocking(|| {
            from_threads
                .into_iter()
                .map(|t| t.join().unwrap())
                .sum::<u64>()
        })
    });
    assert_eq!(total, 499_501);
}

#[test]
fn a_handle_is_refused_after_a_run_and_after_the_runtime() {
    let _guard = hang_guard();
    let census = Census::default();
    let rt = runtime(2);
    let handle = rt.handle();
    rt.run(|| ());
    let refused = |member| {
        let ran = Arc::new(AtomicBool::new(false));
        let said = Arc::clone(&ran);
        let join = handle.spawn(move || {
            said.store(true, Ordering::SeqCst);
            drop(member);
        });
        assert!(join.is_finished());
        assert_ne!(join.task().id(), 0);
        join.task().unpark();
        assert!(is_cancelled(&join.join()));
        assert!(!ran.load(Ordering::SeqCst));
    };
    refused(census.member());
    census.assert_all_dropped(1);
    // A later run takes goroutines again.
    let late = rt.run(|| handle.spawn(|| 4).join().unwrap());
    assert_eq!(late, 4);
    drop(rt);
    refused(census.member());
    drop(handle.spawn({
        let member = census.member();
        move || drop(member)
    }));
    census.assert_all_dropped(3);
    assert_eq!(handle.metrics().live_goroutines, 0);
    assert!(format!("{handle:?}").contains("windlass"));
}

/// With `panic = "abort"` a program would die without a word at the end of a run.
#[test]
fn panics_that_abort_are_refused_by_the_compiler() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let built = std::process::Command::new(rustc)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["--edition", "2024", "--crate-type", "lib"])
        .args(["-C", "panic=abort", "--error-format", "short"])
        .args(["--emit", "metadata", "-o", "/dev/null", "src/target.rs"])
        .output();
    match built {
        Ok(built) => {
            let stderr = String::from_utf8_lossy(&built.stderr);
            assert!(
                stderr.contains("windlass needs `panic = \"unwind\"`"),
                "{stderr}"
            );
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {
            eprintln!("there is no rustc here: not tested")
        }
        Err(e) => panic!("{e}"),
    }
}

/// A panic's message names the goroutine; the hook that the program had is called as before.
#[test]
fn panics_name_their_goroutine() {
    const NAME: &str = "panics_name_their_goroutine";
    let case = util::child_case();
    let named = |yes| {
        let rt = build(Builder::new().processors(1).name_panics(yes)).unwrap();
        rt.run(|| {
            let builder = task::Builder::new().name("worker");
            let id = builder
                .spawn(|| {
                    let id = task::current().id();
                    let _ = catch_unwind(|| panic!("on purpose"));
                    id
                })
                .unwrap();
            eprintln!("it was {}", id.join().unwrap());
        });
    };
    match case.as_deref() {
        Some("unnamed") => named(false),
        Some("own hook") => {
            std::panic::set_hook(Box::new(|_| eprintln!("the program's hook")));
            named(true);
        }
        Some("later hook") => {
            drop(runtime(1));
            std::panic::set_hook(Box::new(|_| eprintln!("the program's hook")));
            named(true);
        }
        Some(_) => {
            named(true);
            let _ = catch_unwind(|| panic!("of a plain thread"));
        }
        None => {
            let stderr = util::child_passes(NAME, "named");
            let (line, rest) = stderr.trim_start().split_once('\n').unwrap();
            let (id, rest_of_line) = line.split_once(" [name \"worker\"], ").unwrap();
            assert!(
                rest_of_line.starts_with("spawned at tests/sched/runtime.rs:"),
                "{line}"
            );
            assert!(rest_of_line.ends_with(", panicked:"), "{line}");
            let id = id.strip_prefix("goroutine ").unwrap();
            assert!(
                rest.contains("panicked at tests/sched/runtime.rs:"),
                "{rest}"
            );
            assert!(rest.contains("\non purpose\n"), "{rest}");
            assert!(rest.contains(&format!("\nit was {id}\n")), "{rest}");
            assert!(rest.contains("of a plain thread"), "{rest}");
            assert!(!rest.contains("goroutine "), "{rest}");

            let stderr = util::child_passes(NAME, "own hook");
            assert!(
                stderr.contains("panicked:\nthe program's hook\n"),
                "{stderr}"
            );
            let stderr = util::child_passes(NAME, "later hook");
            assert!(stderr.starts_with("the program's hook\n"), "{stderr}");
            let stderr = util::child_passes(NAME, "unnamed");
            assert!(!stderr.contains("goroutine "), "{stderr}");
        }
    }
}

/// A goroutine that was queued and never ran ends with the runtime, and is counted so.
#[test]
fn none_lives_when_the_runtime_is_gone() {
    let rt = runtime(1);
    let handle = rt.handle();
    let queued = [handle.spawn(|| ()), handle.spawn(|| ())];
    assert_eq!(handle.metrics().live_goroutines, 2);
    drop(rt);
    assert_eq!(handle.metrics().live_goroutines, 0);
    assert!(queued.into_iter().all(|task| is_cancelled(&task.join())));
}

#[test]
fn what_a_runtime_never_ran_is_dropped_with_it() {
    let _guard = hang_guard();
    let census = Census::default();
    let rt = runtime(2);
    let handle = rt.handle();
    let joins: Vec<_> = (0..100)
        .map(|_| {
            let member = census.member();
            handle.spawn(move || drop(member))
        })
        .collect();
    for _ in 0..100 {
        let member = census.member();
        handle.spawn(move || drop(member));
    }
    assert_eq!(census.dropped(), 0);
    drop(rt);
    census.assert_all_dropped(200);
    assert!(joins.into_iter().all(|j| is_cancelled(&j.join())));
}

#[test]
fn a_thread_that_joins_is_told_when_the_runtime_ends() {
    let _guard = hang_guard();
    let rt = runtime(2);
    let (tell, told) = mpsc::channel();
    let waiter = rt.run(move || {
        let forever = windlass::spawn(|| {
            loop {
                task::park()
            }
        });
        let waiter = std::thread::spawn(move || {
            tell.send(()).unwrap();
            is_cancelled(&forever.join())
        });
        windlass::blocking(|| told.recv()).unwrap();
        waiter
    });
    assert!(waiter.join().unwrap());
}

#[test]
fn settings_that_make_no_sense_are_refused_with_their_name() {
    let new = Builder::new;
    let cases = [
        (new().processors(0), "processors(0)"),
        (new().processors(4097), "4096"),
        (new().processors(usize::MAX), "4096"),
        (new().stack_size(0), "stack_size(0)"),
        (new().stack_size(16 * 1024 - 1), "stack_size(16383)"),
        (new().stack_size((1 << 32) + 1), "4294967296"),
        (new().stack_size(usize::MAX), "4294967296"),
        (new().max_threads(0), "max_threads(0)"),
        (new().name("a\0b"), "name"),
        (new().nodes(&[]), "nodes"),
        (new().nodes(&[4_000_000]), "4000000"),
    ];
    for (builder, word) in cases {
        let said = format!("{builder:?}");
        let e = build(builder).expect_err(&said);
        assert_eq!(e.kind(), ErrorKind::InvalidInput, "{said}: {e}");
        assert!(e.to_string().contains(word), "{e} does not name {word}");
    }
}

#[test]
fn there_may_be_more_ps_than_cpus() {
    let _guard = hang_guard();
    let n = 3 * std::thread::available_parallelism().unwrap().get() + 1;
    let rt = runtime(n);
    assert_eq!(rt.processors(), n);
    assert_eq!(rt.plan().ps.len(), n);
    let sum: usize = rt.run(|| {
        let all: Vec<_> = (0..1000)
            .map(|i| {
                windlass::spawn(move || {
                    windlass::yield_now();
                    i
                })
            })
            .collect();
        all.into_iter().map(|j| j.join().unwrap()).sum()
    });
    assert_eq!(sum, 499_500);
}

#[test]
fn threads_are_pinned_and_the_callers_affinity_is_given_back() {
    let _guard = hang_guard();
    let before = util::affinity();
    let rt = runtime(2);
    assert_eq!(util::affinity(), before, "build pins nothing");
    let inside = rt.run(|| {
        let all: Vec<_> = (0..20).map(|_| windlass::spawn(util::affinity)).collect();
        all.into_iter()
            .map(|j| j.join().unwrap())
            .chain([util::affinity()])
            .collect::<Vec<_>>()
    });
    let cpus: Vec<usize> = rt.plan().ps.iter().map(|p| p.cpu).collect();
    for set in inside {
        assert!(
            set.len() == 1 && cpus.contains(&set[0]),
            "{set:?} is not one of {cpus:?}"
        );
    }
    assert_eq!(util::affinity(), before);
    let _ = catch_unwind(AssertUnwindSafe(|| {
        rt.run(|| -> () { panic!("on purpose") })
    }));
    assert_eq!(util::affinity(), before, "after a panic, too");
}

#[test]
fn pin_false_leaves_affinity_alone() {
    let _guard = hang_guard();
    let before = util::affinity();
    let rt = build(Builder::new().processors(2).pin(false)).unwrap();
    let inside = rt.run(|| {
        let all: Vec<_> = (0..20).map(|_| windlass::spawn(util::affinity)).collect();
        all.into_iter()
            .map(|j| j.join().unwrap())
            .chain([util::affinity()])
            .collect::<Vec<_>>()
    });
    assert!(inside.iter().all(|set| *set == before), "{inside:?}");
    assert_eq!(util::affinity(), before);
}

#[test]
fn what_run_borrows_of_its_thread_is_given_back() {
    fn state() -> (i32, usize, i32) {
        // SAFETY: all-zero is a valid place for the answer.
        let mut stack: libc::stack_t = unsafe { std::mem::zeroed() };
        // SAFETY: a null new stack only reads the old one; the prctl reads a number.
        unsafe {
            libc::sigaltstack(std::ptr::null(), &raw mut stack);
            (
                libc::prctl(libc::PR_GET_TIMERSLACK),
                stack.ss_sp.addr(),
                stack.ss_flags,
            )
        }
    }
    let _guard = hang_guard();
    let before = state();
    runtime(2).run(|| windlass::sleep(Duration::from_millis(1)));
    assert_eq!(state(), before);
}

/// The kernel interrupts the threads that have made or used a ring when it is closed. `read` does
/// not go on by itself after that if it has a timeout.
#[test]
fn the_end_of_a_runtime_does_not_interrupt_its_caller() {
    let _guard = hang_guard();
    let (mut reader, _writer) = std::os::unix::net::UnixStream::pair().unwrap();
    reader
        .set_read_timeout(Some(Duration::from_millis(40)))
        .unwrap();
    for _ in 0..5 {
        let rt = runtime(2);
        rt.run(|| task::spawn(|| windlass::sleep(Duration::from_millis(1))).join())
            .unwrap();
        drop(rt);
        let e = reader.read(&mut [0]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::WouldBlock);
    }
}

/// As `std::thread::scope` would.
#[test]
fn a_runtime_does_not_unpark_its_caller() {
    const TIME: Duration = Duration::from_millis(20);
    let _guard = hang_guard();
    runtime(2).run(|| task::spawn(|| ()).join().unwrap());
    let begun = std::time::Instant::now();
    std::thread::park_timeout(TIME);
    assert!(begun.elapsed() >= TIME);
}

#[test]
fn threads_carry_the_name() {
    fn names() -> Vec<String> {
        std::fs::read_dir("/proc/self/task")
            .unwrap()
            .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path().join("comm")).ok())
            .map(|name| name.trim().to_owned())
            .collect()
    }
    let _guard = hang_guard();
    let rt = build(Builder::new().processors(2).name("rigger")).unwrap();
    assert!(
        !names().iter().any(|n| n.starts_with("rigger")),
        "build starts no thread"
    );
    rt.run(|| wait_until(|| names().iter().any(|n| n.starts_with("rigger-"))));
    wait_until(|| !names().iter().any(|n| n.starts_with("rigger")));
}

#[test]
fn runtimes_side_by_side_join_and_unpark_one_another() {
    let _guard = hang_guard();
    let (a, b, c) = (runtime(2), runtime(2), runtime(1));
    let handles = [a.handle(), b.handle(), c.handle()];
    let all_ready = Arc::new(AtomicUsize::new(0));
    // Each main goroutine spawns on the next runtime, joins there, and is unparked from there.
    let play = |me: usize| {
        let next = handles[(me + 1) % 3].clone();
        let all_ready = Arc::clone(&all_ready);
        move || {
            all_ready.fetch_add(1, Ordering::SeqCst);
            wait_until(|| all_ready.load(Ordering::SeqCst) >= 3);
            let mut sum = 0;
            for i in 0..300_usize {
                let myself = task::current();
                let n_calls = Arc::new(AtomicUsize::new(0));
                let calls = Arc::clone(&n_calls);
                let there = next.spawn(move || {
                    calls.store(1, Ordering::SeqCst);
                    myself.unpark();
                    windlass::yield_now();
                    i
                });
                while n_calls.load(Ordering::SeqCst) == 0 {
                    task::park();
                }
                sum += there.join().unwrap();
            }
            all_ready.fetch_add(1, Ordering::SeqCst);
            // Nobody leaves while others still spawn here.
            wait_until(|| all_ready.load(Ordering::SeqCst) >= 6);
            sum
        }
    };
    let plays = [play(0), play(1), play(2)];
    let runtimes = [&a, &b, &c];
    let sums: Vec<usize> = std::thread::scope(|s| {
        let threads: Vec<_> = plays
            .into_iter()
            .zip(runtimes)
            .map(|(play, rt)| s.spawn(move || rt.run(play)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(sums, [44_850; 3]);
}

/// The source of a test's reads: a stream, for which a poll stays armed, or new connections.
enum Reader {
    Stream(TcpStream),
    Connections(AcceptStream<'static, TcpStream>),
}

impl Reader {
    /// The next number.
    fn next(&mut self) -> u32 {
        let mut message = [0; 4];
        match self {
            Reader::Stream(stream) => stream.read_exact(&mut message).unwrap(),
            Reader::Connections(connections) => {
                let mut stream = connections.accept().unwrap();
                stream.read_exact(&mut message).unwrap();
            }
        }
        u32::from_le_bytes(message)
    }

    /// Reads so many numbers, from `first` on, without leaving the threads of a runtime.
    fn read(&mut self, first: u32, n: u32, runtime: &str) {
        for i in first..first + n {
            assert_eq!(self.next(), i);
            let comm = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            assert!(comm.starts_with(runtime), "on {comm:?}, not {runtime}'s");
        }
    }
}

/// Gives numbers, one after the other, while it is asked to.
struct Feeder {
    wanted: Arc<AtomicUsize>,
    thread: Option<std::thread::JoinHandle<()>>,
}

const OVER: usize = usize::MAX;

impl Feeder {
    /// `give` sends a number.
    fn new(mut give: impl FnMut(u32) + Send + 'static) -> Feeder {
        let wanted = Arc::new(AtomicUsize::new(0));
        let thread = std::thread::spawn({
            let wanted = Arc::clone(&wanted);
            move || {
                for i in 0.. {
                    while wanted.load(Ordering::SeqCst) <= i {
                        std::thread::sleep(Duration::from_micros(200));
                    }
                    if wanted.load(Ordering::SeqCst) == OVER {
                        return;
                    }
                    give(i as u32);
                    std::thread::sleep(Duration::from_micros(500));
                }
            }
        });
        Feeder {
            wanted,
            thread: Some(thread),
        }
    }

    /// So many more.
    fn feed(&self, n: u32) {
        self.wanted.fetch_add(n as usize, Ordering::SeqCst);
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.wanted.store(OVER, Ordering::SeqCst);
        if !std::thread::panicking() {
            self.thread.take().unwrap().join().unwrap();
        }
    }
}

/// A kind of reader, made in a runtime, with its writer.
const READERS: [fn() -> (Reader, Feeder); 2] = [
    || {
        let (mut a, b) = std_pair();
        let feeder = Feeder::new(move |i| a.write_all(&i.to_le_bytes()).unwrap());
        (Reader::Stream(TcpStream::from(b)), feeder)
    },
    || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let feeder = Feeder::new(move |i| {
            let mut stream = std::net::TcpStream::connect(addr).unwrap();
            stream.write_all(&i.to_le_bytes()).unwrap();
        });
        let listener: &'static TcpListener = Box::leak(Box::new(listener));
        (Reader::Connections(listener.accept_stream()), feeder)
    },
];

/// The two ends of a connection.
fn std_pair() -> (std::net::TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let a = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    a.set_nodelay(true).unwrap();
    (a, listener.accept().unwrap().0)
}

/// Runs `f` as the main goroutine of a runtime of one P with this name, on a thread of the same
/// name, and drops the runtime when it returns.
fn on_its_own<'s>(
    s: &'s std::thread::Scope<'s, '_>,
    name: &'static str,
    f: impl FnOnce() + Send + 's,
) {
    let thread = std::thread::Builder::new().name(name.to_owned());
    let run = move || {
        let builder = Builder::new().processors(1).pin(false).name(name);
        build(builder).unwrap().run(f);
    };
    thread.spawn_scoped(s, run).unwrap();
}

/// Reads often enough for a request to stay armed.
const WARM: u32 = 12;

/// A goroutine of B waits for a poll that A has armed when A ends: B is woken, and goes on by itself.
#[test]
fn a_reader_survives_the_runtime_that_it_comes_from() {
    let _guard = hang_guard();
    for make in READERS {
        let (to_b, from_a) = mpsc::channel::<(Reader, Feeder)>();
        let (b_waits, a_may_end) = mpsc::channel();
        let (a_has_ended, b_knows) = mpsc::channel();
        std::thread::scope(|s| {
            let a = move || {
                let (mut reader, feeder) = make();
                feeder.feed(WARM);
                reader.read(0, WARM, "AAA");
                to_b.send((reader, feeder)).unwrap();
                offload(move || a_may_end.recv().unwrap());
                // Until the reader waits there.
                windlass::sleep(Duration::from_millis(30));
            };
            let a_runs = move || {
                let builder = Builder::new().processors(1).pin(false).name("AAA");
                build(builder).unwrap().run(a);
                a_has_ended.send(()).unwrap();
            };
            let name = "AAA".to_owned();
            let thread = std::thread::Builder::new().name(name);
            thread.spawn_scoped(s, a_runs).unwrap();
            on_its_own(s, "BBB", move || {
                let (mut reader, feeder) = offload(move || from_a.recv().unwrap());
                let reads = windlass::spawn(move || {
                    reader.read(WARM, 2 * WARM, "BBB");
                    reader
                });
                windlass::yield_now();
                b_waits.send(()).unwrap();
                offload(move || b_knows.recv().unwrap());
                feeder.feed(2 * WARM);
                reads.join().unwrap();
            });
        });
    }
}

/// B reads on from what A has armed, and ends; A reads on from what B has armed.
#[test]
fn a_reader_comes_back_from_a_runtime_that_ends() {
    let _guard = hang_guard();
    for make in READERS {
        let (to_b, from_a) = mpsc::channel::<(Reader, Feeder)>();
        let (to_a, from_b) = mpsc::channel::<(Reader, Feeder)>();
        std::thread::scope(|s| {
            on_its_own(s, "AAA", move || {
                let (mut reader, feeder) = make();
                feeder.feed(WARM);
                reader.read(0, WARM, "AAA");
                to_b.send((reader, feeder)).unwrap();
                let waits = windlass::spawn(move || {
                    let (mut reader, feeder) = offload(move || from_b.recv().unwrap());
                    feeder.feed(WARM);
                    reader.read(2 * WARM, WARM, "AAA");
                });
                waits.join().unwrap();
            });
            on_its_own(s, "BBB", move || {
                let (mut reader, feeder) = offload(move || from_a.recv().unwrap());
                feeder.feed(WARM);
                reader.read(WARM, WARM, "BBB");
                to_a.send((reader, feeder)).unwrap();
            });
        });
    }
}

/// To and fro, while both have other things to do.
#[test]
fn a_reader_moves_between_busy_runtimes() {
    const ROUNDS: u32 = 4;
    let _guard = hang_guard();
    for make in READERS {
        let (to_a, at_a) = channel::bounded::<(Reader, Feeder)>(1);
        let (to_b, at_b) = channel::bounded(1);
        // With its stack full of a pattern, to see who else writes there.
        let beside = |n: u8| {
            let stop = Arc::new(AtomicBool::new(false));
            let stopped = Arc::clone(&stop);
            let busy = windlass::spawn(move || {
                let pattern = [n; 8192];
                while !stopped.load(Ordering::Relaxed) {
                    windlass::yield_now();
                    assert!(std::hint::black_box(&pattern).iter().all(|&x| x == n));
                }
            });
            move || {
                stop.store(true, Ordering::Relaxed);
                busy.join().unwrap();
            }
        };
        std::thread::scope(|s| {
            on_its_own(s, "AAA", move || {
                let end = beside(1);
                let mut moving = make();
                for round in 0..ROUNDS {
                    moving.1.feed(WARM);
                    moving.0.read(2 * round * WARM, WARM, "AAA");
                    to_b.send(moving).unwrap();
                    moving = at_a.recv().unwrap();
                }
                end();
            });
            on_its_own(s, "BBB", move || {
                let end = beside(2);
                for round in 0..ROUNDS {
                    let (mut reader, feeder) = at_b.recv().unwrap();
                    feeder.feed(WARM);
                    reader.read((2 * round + 1) * WARM, WARM, "BBB");
                    to_a.send((reader, feeder)).unwrap();
                }
                end();
            });
        });
    }
}

/// Bytes that the kernel has received into buffers of a runtime stays readable when that is gone.
#[test]
fn received_pieces_outlive_their_runtime() {
    let _guard = hang_guard();
    let (mut a, b) = std_pair();
    let stream = TcpStream::from(b);
    let pieces = runtime(1).run(|| {
        [b"one", b"two"].map(|bytes| {
            a.write_all(bytes).unwrap();
            stream.recv_owned().unwrap()
        })
    });
    let other = runtime(1);
    other.run(|| {
        assert_eq!(
            pieces.each_ref().map(|piece| piece.to_vec()),
            [b"one", b"two"]
        );
        drop(pieces);
        a.write_all(b"three").unwrap();
        assert_eq!(&stream.recv_owned().unwrap()[..], b"three");
    });
}

#[test]
fn metrics_count() {
    let _guard = hang_guard();
    let rt = runtime(2);
    rt.run(|| {
        let all: Vec<_> = (0..100)
            .map(|_| windlass::spawn(windlass::yield_now))
            .collect();
        assert!(rt.metrics().live_goroutines >= 1);
        all.into_iter().for_each(|j| j.join().unwrap());
    });
    let metrics = rt.metrics();
    let total = metrics.total();
    assert_eq!(metrics.ps.len(), 2);
    assert_eq!((total.spawned, total.finished), (101, 101));
    assert_eq!(metrics.live_goroutines, 0);
    assert_eq!(metrics.threads, 0);
    assert!(total.dispatches >= 201, "{total:?}");
    assert_eq!(total.steals.total() > 0, total.stolen.total() > 0);
}

/// In a process of its own, because it counts what the process holds.
#[test]
fn a_failed_build_leaves_nothing_behind() {
    let Some(_) = util::child_case() else {
        util::child_passes("a_failed_build_leaves_nothing_behind", "count");
        return;
    };
    // State that the first calls set up once (allocator, hwloc) is none of the build's.
    drop(runtime(4));
    let limit = util::nofile_limits().0;
    let before = (util::open_fds(), util::n_threads(), util::mappings());
    let lowest_free = (0..).find(|fd| !before.0.contains_key(fd)).unwrap() as u64;
    let mut n_failed = 0;
    // The build fails at its first, second, .. descriptor.
    for more in 0..40 {
        util::set_nofile_limit(lowest_free + more);
        let built = build(Builder::new().processors(4));
        util::set_nofile_limit(limit);
        match built {
            Ok(_) => break,
            Err(e) => {
                n_failed += 1;
                let text = e.to_string();
                assert!(more == 0 || text.contains("RLIMIT_NOFILE"), "{text}");
            }
        }
    }
    assert!((4..40).contains(&n_failed), "{n_failed} builds failed");
    for _ in 0..10 {
        build(Builder::new().processors(0)).unwrap_err();
        build(Builder::new().nodes(&[4_000_000])).unwrap_err();
    }
    let after = (util::open_fds(), util::n_threads(), util::mappings());
    assert_eq!(before, after);
}

/// In a process of its own, because it counts what the process holds.
#[test]
fn a_dropped_runtime_leaves_nothing_behind() {
    let Some(_) = util::child_case() else {
        util::child_passes("a_dropped_runtime_leaves_nothing_behind", "count");
        return;
    };
    let once = || {
        let rt = runtime(4);
        let all: Vec<_> = (0..300)
            .map(|_| rt.handle().spawn(windlass::yield_now))
            .collect();
        rt.run(|| all.into_iter().for_each(|j| j.join().unwrap()));
    };
    once();
    let fds = util::open_fds();
    let threads = util::n_threads();
    for _ in 0..30 {
        once();
    }
    assert_eq!(util::open_fds(), fds);
    assert_eq!(util::n_threads(), threads);
    // The allocator's own mappings for threads are bounded.
    let stacks = util::mappings().len();
    for _ in 0..30 {
        once();
    }
    assert!(
        util::mappings().len() <= stacks + 20,
        "{stacks} before, {:#?}",
        util::mappings()
    );
}

/// The closure of a goroutine without a stack is dropped, and destructors may use the
/// runtime. In a process of its own, because of the limit on memory.
#[test]
fn a_goroutine_that_gets_no_stack_ends_with_the_reason() {
    let Some(_) = util::child_case() else {
        util::child_passes(
            "a_goroutine_that_gets_no_stack_ends_with_the_reason",
            "limit",
        );
        return;
    };
    runtime(1).run(|| {
        let (sender, receiver) = windlass::channel::bounded::<()>(0);
        let woken = task::spawn(move || receiver.recv());
        let room = 256 << 20;
        util::set_memory_limit(util::memory_bytes() + room);
        let refused = task::Builder::new()
            .stack_size(4 * room as usize)
            .spawn(move || drop(sender))
            .unwrap();
        let e = refused.join().unwrap_err();
        assert!(panic_text(&*e).contains("cannot start"), "{e:?}");
        // The last sender went with the closure.
        woken.join().unwrap().unwrap_err();
        // The others go on.
        assert_eq!(task::spawn(|| 5).join().unwrap(), 5);
    });
}

/// A goroutine that cannot begin has not done its work: its waiters get an error, and the run goes on.
/// In a process of its own, because of the limit on memory.
#[test]
fn who_waits_for_a_goroutine_that_gets_no_stack_is_told() {
    let Some(_) = util::child_case() else {
        util::child_passes(
            "who_waits_for_a_goroutine_that_gets_no_stack_is_told",
            "limit",
        );
        return;
    };
    runtime(1).run(|| {
        let room = 256 << 20;
        util::set_memory_limit(util::memory_bytes() + room);
        let too_large = || task::Builder::new().stack_size(4 * room as usize);
        let has_run = AtomicBool::new(false);
        let runs = || has_run.store(true, Ordering::SeqCst);
        // Not joined: the scope panics.
        let scopes: [&(dyn Fn() + Sync); 3] = [
            &|| task::scope(|s| drop(too_large().spawn_scoped(s, runs).unwrap())),
            &|| {
                task::scope(|s| {
                    let refused = too_large().spawn_scoped(s, runs).unwrap();
                    wait_until(|| refused.is_finished());
                });
            },
            &|| {
                let ctx = Context::background();
                task::scope_in(&ctx, |s| drop(too_large().spawn_scoped(s, runs).unwrap()));
            },
        ];
        for scope in scopes {
            let payload = catch_unwind(AssertUnwindSafe(scope)).unwrap_err();
            assert!(panic_text(&*payload).contains("no memory for its stack"));
        }
        // Joined: the handle has the reason.
        task::scope(|s| {
            let refused = too_large().spawn_scoped(s, runs).unwrap();
            let e = refused.join().unwrap_err();
            assert!(panic_text(&*e).contains("cannot start"), "{e:?}");
        });
        let group = task::Group::<()>::new();
        group.spawn_with(too_large(), || Ok(())).unwrap();
        let payload = catch_unwind(AssertUnwindSafe(|| group.wait())).unwrap_err();
        assert!(panic_text(&*payload).contains("no memory for its stack"));
        let mut set = task::JoinSet::new();
        set.spawn_with(too_large(), || ()).unwrap();
        let e = set.join_next().unwrap().unwrap_err();
        assert!(panic_text(&*e).contains("cannot start"), "{e:?}");
        assert!(!has_run.into_inner());
        // The others go on.
        assert_eq!(task::scope(|s| s.spawn(|| 5).join().unwrap()), 5);
    });
}

/// Runs `f` in a forked child, which must return; the child panics if `f` does.
fn in_fork(f: impl FnOnce()) {
    // SAFETY: the child has this thread only, and waits for no other.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let is_well = catch_unwind(AssertUnwindSafe(f)).is_ok();
        // SAFETY: takes a number, and runs nothing of the parent's.
        unsafe { libc::_exit(i32::from(!is_well)) };
    }
    let mut status = -1;
    // SAFETY: the place is valid for writes, and the child is this process's own.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the child has failed");
}

/// A runtime from before a fork is refused, with a text: its threads and rings are the parent's. In
/// a process of its own, because it forks.
#[test]
fn a_runtime_is_for_the_process_that_built_it() {
    if util::child_case().is_none() {
        util::child_passes("a_runtime_is_for_the_process_that_built_it", "forks");
        return;
    }
    let refuses = |rt: &Runtime, handle: &Handle| {
        let calls: [&dyn Fn(); 4] = [
            &|| rt.run(|| ()),
            &|| drop(handle.spawn(|| ())),
            &|| drop(handle.spawn_in(&Context::background(), || ())),
            &|| rt.set_processors(1).unwrap(),
        ];
        for call in calls {
            let payload = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
            let text = panic_text(&*payload);
            assert!(text.contains("build it after the fork"), "{text}");
        }
    };
    let works = |rt: &Runtime| {
        let echo = |rt: &Runtime| {
            rt.run(|| {
                let (mut a, mut b) = util::pair();
                let echo = task::spawn(move || b.write_all(&[7]));
                a.read_exact(&mut [0]).unwrap();
                echo.join().unwrap().unwrap();
            });
        };
        echo(rt);
        echo(rt);
    };
    for has_run in [false, true] {
        let rt = runtime(2);
        let handle = rt.handle();
        if has_run {
            works(&rt);
        }
        in_fork(|| {
            refuses(&rt, &handle);
            let own = runtime(2);
            works(&own);
            in_fork(|| {
                refuses(&rt, &handle);
                refuses(&own, &own.handle());
                // A runtime that is dropped here is left as it is.
                drop((rt, handle, own));
                works(&runtime(1));
            });
        });
    }
    // As a daemon does: the parent's runtime is not harmed by what the child does with its own.
    let rt = runtime(2);
    works(&rt);
    in_fork(|| works(&runtime(2)));
    works(&rt);
}

/// Without a main goroutine nothing would ever end the run. In a process of its own, because
/// of the limit on memory.
#[test]
fn a_run_without_memory_for_its_main_goroutine_panics_and_the_next_one_works() {
    let Some(_) = util::child_case() else {
        util::child_passes(
            "a_run_without_memory_for_its_main_goroutine_panics_and_the_next_one_works",
            "limit",
        );
        return;
    };
    let rt = runtime(2);
    // Queued before the first run: it belongs to the run that begins.
    let queued = rt.handle().spawn(|| 7);
    for attempt in 0..3 {
        let mut has_run = false;
        // Enough for all but the 8 MiB of the stack.
        util::set_memory_limit(util::memory_bytes() + (6 << 20));
        let outcome = catch_unwind(AssertUnwindSafe(|| rt.run(|| has_run = true)));
        util::set_memory_limit(libc::RLIM_INFINITY);
        let payload = outcome.unwrap_err();
        let text = panic_text(&*payload);
        assert!(
            text.contains("cannot start the main goroutine") && text.contains("ulimit -v"),
            "{attempt}: {text}"
        );
        assert!(!has_run);
        assert_eq!(rt.metrics().stacks, 0);
    }
    assert_eq!(rt.run(move || queued.join().unwrap()), 7);
    assert_eq!(rt.run(|| task::spawn(|| 5).join().unwrap()), 5);
}

/// The monitor's thread does not fit. In a process of its own, because of the limit on memory.
#[test]
fn a_run_without_a_monitor_panics_and_the_next_one_works() {
    let Some(_) = util::child_case() else {
        util::child_passes(
            "a_run_without_a_monitor_panics_and_the_next_one_works",
            "limit",
        );
        return;
    };
    let rt = runtime(2);
    let queued = rt.handle().spawn(|| 7);
    // They take the stacks that libc has kept of threads that have ended, to the end of the process.
    let has_begun = Arc::new(Barrier::new(5));
    for _ in 0..4 {
        let has_begun = Arc::clone(&has_begun);
        std::thread::spawn(move || {
            has_begun.wait();
            loop {
                std::thread::park();
            }
        });
    }
    has_begun.wait();
    for attempt in 0..3 {
        // Enough for the main goroutine's stack, which is kept, not for a thread beside it.
        let stack = if attempt == 0 { 8 << 20 } else { 0 };
        util::set_memory_limit(util::memory_bytes() + stack + (1 << 20));
        let outcome = catch_unwind(AssertUnwindSafe(|| rt.run(|| ())));
        util::set_memory_limit(libc::RLIM_INFINITY);
        let payload = outcome.unwrap_err();
        let text = panic_text(&*payload);
        assert!(text.contains("monitor thread"), "{attempt}: {text}");
        assert_eq!(rt.metrics().stacks, 1);
    }
    assert_eq!(rt.run(move || queued.join().unwrap()), 7);
}

/// The lines that tell of them, and the goroutines that these lines count.
fn failed_starts(stderr: &str) -> (usize, usize) {
    let is_of_starts = |l: &&str| l.contains("windlass: ") && l.contains("goroutine");
    let lines = stderr
        .lines()
        .filter(|l| is_of_starts(l) && !l.contains("max_threads"));
    let of_line = |line: &str| {
        if let Some(rest) = line.strip_suffix(" more since the last such line)") {
            let (_, n) = rest.rsplit_once('(').unwrap();
            return 1 + n.parse::<usize>().unwrap();
        }
        match line.strip_suffix(" more goroutines could not start") {
            Some(n) => n.rsplit(' ').next().unwrap().parse().unwrap(),
            None => 1,
        }
    };
    lines.fold((0, 0), |(n, sum), line| (n + 1, sum + of_line(line)))
}

/// In a process of its own, because of the limit on memory.
#[test]
fn goroutines_that_get_no_stack_do_not_flood_stderr() {
    const N: usize = 3000;
    if util::child_case().is_some() {
        util::run_with_one_thread(|| {
            let room = 64 << 20;
            util::set_memory_limit(util::memory_bytes() + room);
            for _ in 0..N {
                let task = task::Builder::new().stack_size(2 * room as usize);
                let task = task.spawn(|| ()).unwrap();
                let e = task.join().unwrap_err();
                assert!(panic_text(&*e).contains("cannot start"), "{e:?}");
            }
        });
        return;
    }
    let begin = std::time::Instant::now();
    let output = util::child("goroutines_that_get_no_stack_do_not_flood_stderr", "limit");
    let seconds = begin.elapsed().as_secs() as usize;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let (n_lines, n_goroutines) = failed_starts(&stderr);
    assert_eq!(n_goroutines, N, "{stderr}");
    // One at once, one each second, and the rest at the end.
    assert!((2..=seconds + 3).contains(&n_lines), "{n_lines}: {stderr}");
}

/// Stacks come from arenas of 256; where such a one does not fit, from smaller ones. In a
/// process of its own, because of the limit on memory.
#[test]
fn stacks_are_made_as_long_as_one_fits() {
    let Some(_) = util::child_case() else {
        util::child_passes("stacks_are_made_as_long_as_one_fits", "limit");
        return;
    };
    util::run_with_one_thread(|| {
        // Stacks take all the memory that is left. What else is allocated comes from these blocks: the
        // allocator keeps them, as one above them stays.
        let mut blocks: Vec<_> = (0..1024).map(|_| Box::new([0_u8; 1000])).collect();
        let _above = blocks.pop();
        drop(blocks);
        // 64 MiB would be an arena's.
        let room = 24 << 20;
        util::set_memory_limit(util::memory_bytes() + room);
        let (release, wait) = windlass::channel::bounded::<()>(0);
        let all: Vec<_> = (0..80)
            .map(|_| {
                let wait = wait.clone();
                task::spawn(move || wait.recv())
            })
            .collect();
        drop(wait);
        // 80 of 256 KiB, at the same time.
        (0..3).for_each(|_| windlass::yield_now());
        drop(release);
        for task in all {
            task.join().unwrap().unwrap_err();
        }
        // And no more than fit.
        let (release, wait) = windlass::channel::bounded::<()>(0);
        let all: Vec<_> = (0..200)
            .map(|_| {
                let wait = wait.clone();
                task::spawn(move || wait.recv())
            })
            .collect();
        drop(wait);
        (0..3).for_each(|_| windlass::yield_now());
        drop(release);
        let n_refused = all.into_iter().filter_map(|t| t.join().err()).count();
        assert!((200 - 96..=200 - 80).contains(&n_refused), "{n_refused}");
        util::set_memory_limit(libc::RLIM_INFINITY);
        assert_eq!(task::spawn(|| 5).join().unwrap(), 5);
    });
}

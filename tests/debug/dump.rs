//! Dumps: every goroutine is there, with its stack, and none is disturbed.

use crate::util;

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use windlass::debug::{Dump, Goroutine, State};
use windlass::net::{TcpListener, TcpStream};
use windlass::{blocking, sleep, spawn, task, yield_now};

fn find<'a>(dump: &'a Dump, name: &str) -> &'a Goroutine {
    let found = dump
        .goroutines
        .iter()
        .find(|g| g.name.as_deref() == Some(name));
    found.unwrap_or_else(|| panic!("no {name} in {dump}"))
}

fn named(name: &str, f: impl FnOnce() + Send + 'static) -> task::JoinHandle<()> {
    task::Builder::new().name(name).spawn(f).unwrap()
}

#[inline(never)]
fn a_function_that_parks() {
    task::park();
    // Keeps the call above from being a tail call.
    std::hint::black_box(());
}

#[inline(never)]
fn its_caller() {
    a_function_that_parks();
    std::hint::black_box(());
}

/// The very first wait is dated before its P has looked at the clock.
#[test]
fn the_first_wait_has_not_lasted_for_ever() {
    let _guard = util::hang_guard();
    let begin = Instant::now();
    let rt = util::runtime(1);
    let handle = rt.handle();
    let (s, main) = mpsc::channel();
    let looker = std::thread::spawn(move || {
        let main: task::Task = main.recv().unwrap();
        util::wait_until(|| handle.metrics().total().parks >= 1);
        let waiting = find(&handle.dump(), "main").waiting;
        main.unpark();
        waiting
    });
    rt.run(|| {
        s.send(task::current()).unwrap();
        task::park();
    });
    // It is known to about a second.
    let waiting = looker.join().unwrap();
    let most = begin.elapsed() + Duration::from_secs(2);
    assert!(waiting <= most, "{waiting:?} in {most:?}");
}

#[test]
fn every_state_and_reason_is_told() {
    let _guard = util::hang_guard();
    let runtime = util::runtime(2);
    let handle = runtime.handle();
    runtime.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let parker = named("parker", its_caller);
        let sleeper = named("sleeper", || sleep(Duration::from_secs(3600)));
        let acceptor = named("acceptor", move || drop(listener.accept()));
        let blocked = util::Gate::default();
        let gate = blocked.clone();
        let _opens = util::OpensOnDrop(blocked.clone());
        let blocker = named("blocker", move || blocking(|| gate.wait()));
        let target = named("target", task::park);
        let unpark_target = target.task();
        let target_id = unpark_target.id();
        let joiner = named("joiner", move || target.join().unwrap());
        let future = windlass::future::spawn(std::future::pending::<()>());
        let future_id = future.task().id();
        let of_future = |dump: &Dump| dump.goroutines.iter().find(|g| g.id == future_id).cloned();
        util::wait_until(|| {
            let dump = handle.dump();
            ["parker", "sleeper", "acceptor", "joiner", "target"]
                .iter()
                .all(|n| find(&dump, n).state == State::Waiting)
                && find(&dump, "blocker").state == State::Blocked
                && of_future(&dump).is_some_and(|g| g.state == State::Waiting)
        });
        let dump = handle.dump();
        let reasons = [
            ("parker", "park"),
            ("sleeper", "sleep"),
            ("acceptor", "IO wait"),
            ("joiner", "join"),
        ];
        for (name, reason) in reasons {
            let g = find(&dump, name);
            assert_eq!(g.wait_reason, Some(reason));
            assert_eq!(g.parent, find(&dump, "main").id);
            assert_eq!(g.spawned_at.file(), file!());
            assert!(g.waiting < Duration::from_secs(100), "{g}");
        }
        for g in &dump.goroutines {
            let joins = g.name.as_deref() == Some("joiner");
            assert_eq!(g.waits_for, joins.then_some(target_id), "{g}");
        }
        let future = of_future(&dump).unwrap();
        assert_eq!(future.wait_reason, Some("future without a stack"));
        assert!(future.stack.is_empty());
        let shown = format!(
            "\n{future}:\ncreated in goroutine {}\n\t{}\n",
            future.parent, future.spawned_at
        );
        assert!(dump.to_string().contains(&shown), "{dump}");
        let main = find(&dump, "main");
        // A dump takes long enough for its P to be needed elsewhere.
        match main.state {
            State::Running => assert!(main.p.is_some()),
            state => assert_eq!((state, main.p), (State::WithoutP, None)),
        }
        assert!(main.m.is_some());
        assert_eq!(main.parent, 0);
        assert!(find(&dump, "blocker").m.is_some());
        let ids: Vec<_> = dump.goroutines.iter().map(|g| g.id).collect();
        assert!(ids.is_sorted());
        assert_eq!(dump.goroutines.len(), 8);

        parker.task().unpark();
        unpark_target.unpark();
        blocked.open();
        for handle in [parker, joiner, blocker] {
            handle.join().unwrap();
        }
        // They hold as before what they wait for.
        drop(TcpStream::connect(addr).unwrap());
        acceptor.join().unwrap();
        drop(sleeper);
    });
    assert_eq!(runtime.dump().goroutines.len(), 0);
}

/// In processes of their own, because the environment has a part in it.
#[test]
fn one_that_computes_after_losing_its_p_is_not_said_to_be_in_a_section() {
    let _guard = util::hang_guard();
    let runtime = util::runtime(1);
    let handle = runtime.handle();
    let is_seen = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_seen);
    let looker = std::thread::spawn(move || {
        util::wait_until(|| {
            let all = handle.goroutines();
            let hog = all.iter().find(|g| g.name.as_deref() == Some("hog"));
            hog.is_some_and(|g| g.state == State::WithoutP && g.status() == "running without a P")
        });
        seen.store(true, Ordering::SeqCst);
    });
    runtime.run(|| {
        let hog = named("hog", move || {
            while !is_seen.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
        });
        // Wants the P all the time.
        util::wait_until(|| hog.is_finished());
    });
    looker.join().unwrap();
}

#[test]
fn a_parked_goroutine_shows_its_functions() {
    let name = "a_parked_goroutine_shows_its_functions";
    let Some(case) = util::child_case() else {
        for case in ["1", "full"] {
            let mut child = util::child_command(name, case);
            let output = child.env("RUST_BACKTRACE", case).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        return;
    };
    let runtime = util::runtime(1);
    let handle = runtime.handle();
    let dump = runtime.run(|| {
        let parker = named("parker", its_caller);
        util::wait_until(|| handle.metrics().total().parks >= 1);
        let dump = handle.dump();
        parker.task().unpark();
        parker.join().unwrap();
        dump
    });
    let parker = find(&dump, "parker");
    assert!(parker.node.is_some());
    let functions: Vec<&str> = parker
        .frames()
        .iter()
        .filter_map(|f| f.function.as_deref())
        .collect();
    let at = |name: &str| functions.iter().position(|f| f.contains(name));
    // An optimiser may merge the two functions with others of the same code.
    if cfg!(debug_assertions) {
        let inner = at("dump::a_function_that_parks").unwrap_or_else(|| panic!("{functions:?}"));
        let outer = at("dump::its_caller").unwrap_or_else(|| panic!("{functions:?}"));
        assert_eq!(inner + 1, outer, "{functions:?}");
        assert_eq!(inner == 0, case != "full", "{functions:?}");
        // Functions that were inlined have names without modules.
        let shows_own = functions.iter().any(|f| f.starts_with("windlass::"));
        assert_eq!(shows_own, case == "full", "{functions:?}");
    }
    let is_whole = parker.frames().len() == parker.stack.len();
    assert_eq!(is_whole, case == "full", "{functions:?}");
    let shown = dump.to_string();
    let head = format!("goroutine {} [park, node ", parker.id);
    assert!(shown.contains(&head), "{shown}");
    assert!(shown.contains("tests/debug/dump.rs:"), "{shown}");
    assert!(shown.contains("created in goroutine "), "{shown}");
    let shows_scheduler = shown.contains("sched/wait/park.rs:");
    assert_eq!(shows_scheduler, case == "full", "{shown}");
}

#[test]
fn a_deep_stack_and_a_large_one_are_walked() {
    #[inline(never)]
    fn descend(n: usize) -> usize {
        if n == 0 {
            task::park();
            return 0;
        }
        std::hint::black_box(descend(n - 1)) + 1
    }
    let _guard = util::hang_guard();
    let runtime = util::runtime(1);
    let handle = runtime.handle();
    runtime.run(|| {
        let deep = task::Builder::new()
            .name("deep")
            .stack_size(4 << 20)
            .spawn(|| assert_eq!(descend(1000), 1000))
            .unwrap();
        util::wait_until(|| handle.metrics().total().parks >= 1);
        let dump = handle.dump();
        let n = find(&dump, "deep").stack.len();
        // As many as are shown at most, and where functions were inlined some more.
        assert!((50..=400).contains(&n), "{n} frames");
        deep.task().unpark();
        deep.join().unwrap();
    });
}

/// A recursion by `join` has left the goroutine's own stack for another one.
#[test]
fn the_stack_where_a_recursion_goes_on_is_walked() {
    fn descend(n: u32) {
        match n {
            0 => its_caller(),
            _ => _ = windlass::join(|| descend(n - 1), || ()),
        }
    }
    let _guard = util::hang_guard();
    let runtime = util::runtime(1);
    let handle = runtime.handle();
    runtime.run(|| {
        let small = task::Builder::new().name("forker").stack_size(64 * 1024);
        let forker = small.spawn(|| descend(500)).unwrap();
        util::wait_until(|| handle.metrics().total().parks >= 1);
        let dump = handle.dump();
        let functions: Vec<_> = find(&dump, "forker")
            .stack
            .iter()
            .filter_map(|f| f.function.as_deref())
            .collect();
        let shows = |name: &str| functions.iter().any(|f| f.contains(name));
        assert!(functions.len() >= 5, "{functions:?}");
        // An optimiser may merge functions with others of the same code.
        let is_plain = cfg!(debug_assertions);
        assert!(!is_plain || shows("dump::its_caller"), "{functions:?}");
        forker.task().unpark();
        forker.join().unwrap();
    });
}

/// Whatever is woken, ended and spawned while dumps are taken: nothing is lost, and no dump
/// shows what cannot be.
#[test]
fn dumps_disturb_nobody() {
    let _guard = util::hang_guard();
    let runtime = util::runtime(2);
    let handle = runtime.handle();
    let done = Arc::new(AtomicBool::new(false));
    let dumper = {
        let done = Arc::clone(&done);
        std::thread::spawn(move || {
            let mut n = 0;
            while !done.load(Ordering::Acquire) {
                for g in &handle.dump().goroutines {
                    assert!(g.id > 0);
                    assert_eq!(g.spawned_at.file(), file!());
                    if let Some(name) = &g.name {
                        assert!(name == "main" || name.starts_with("worker"), "{name}");
                    }
                }
                n += 1;
            }
            n
        })
    };
    let sum = Arc::new(AtomicU64::new(0));
    runtime.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        for round in 0..20_u64 {
            let workers: Vec<_> = (0..40)
                .map(|i| {
                    let sum = Arc::clone(&sum);
                    task::Builder::new()
                        .name(format!("worker {round} {i}"))
                        .spawn(move || {
                            match i % 4 {
                                0 => sleep(Duration::from_micros(i * 10)),
                                1 => (0..i).for_each(|_| yield_now()),
                                2 => task::park(),
                                _ => spawn(yield_now).join().unwrap(),
                            }
                            sum.fetch_add(1, Ordering::Relaxed);
                        })
                        .unwrap()
                })
                .collect();
            let mut client = TcpStream::connect(addr).unwrap();
            let (server, _) = listener.accept().unwrap();
            let reader = spawn(move || client.read(&mut [0; 8]).unwrap());
            yield_now();
            drop(server);
            assert_eq!(reader.join().unwrap(), 0);
            for (i, worker) in workers.into_iter().enumerate() {
                if i % 4 == 2 {
                    worker.task().unpark();
                }
                worker.join().unwrap();
            }
        }
    });
    done.store(true, Ordering::Release);
    assert!(dumper.join().unwrap() > 0);
    assert_eq!(sum.load(Ordering::Relaxed), 800);
}

/// Also in a release build, whose line tables have no paths of functions into which others were inlined.
#[test]
fn functions_have_their_paths() {
    let _guard = util::hang_guard();
    let runtime = util::runtime(1);
    let handle = runtime.handle();
    runtime.run(|| {
        let parker = named("parker", its_caller);
        util::wait_until(|| handle.metrics().total().parks >= 1);
        let dump = handle.dump();
        let parked = find(&dump, "parker");
        let calls = parked.stack.chunk_by(|a, b| a.address == b.address);
        let functions: Vec<_> = calls
            .filter_map(|call| call.last()?.function.clone())
            .collect();
        assert!(functions.len() > 3, "{functions:?}");
        // These have no path.
        let is_root = |f: &str| ["stack_init_trampoline", "__rust_try"].contains(&f);
        for function in &functions {
            assert!(
                function.contains("::") || is_root(function),
                "{functions:?}"
            );
        }
        // Those of windlass have their modules wherever they are.
        let ours = |f: &&windlass::debug::Frame| {
            let file = f.file.as_deref().unwrap_or_default();
            file.contains("/src/sched/wait/")
        };
        let mut ours = parked.stack.iter().filter(ours).peekable();
        assert!(ours.peek().is_some());
        assert!(ours.all(|f| {
            f.function
                .as_ref()
                .is_some_and(|f| f.contains("windlass::sched::wait::"))
        }));
        parker.task().unpark();
        parker.join().unwrap();
    });
}

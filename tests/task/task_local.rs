//! Task-locals: whose they are, when they are made and when they go.
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::util::{Census, Member, hang_guard, panic_text, run, runtime, wait_until};
use windlass::task::{AccessError, Cancelled};
use windlass::{Builder, scope, sleep, spawn, task_local, yield_now};

task_local! {
    static NUMBER: Cell<u32> = const { Cell::new(1) };
    static LIST: RefCell<Vec<u32>> = RefCell::new(vec![0]);
    static MEMBER: RefCell<Option<Member>> = const { RefCell::new(None) }
}

#[test]
fn each_goroutine_has_its_own() {
    run(4, || {
        let all: Vec<_> = (0..200)
            .map(|i| {
                spawn(move || {
                    assert_eq!(NUMBER.get(), 1);
                    NUMBER.set(i);
                    LIST.with_borrow_mut(|list| list.push(i));
                    for _ in 0..20 {
                        yield_now();
                        assert_eq!(NUMBER.get(), i);
                        LIST.with_borrow(|list| assert_eq!(list, &[0, i]));
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|j| j.join().unwrap());
        assert_eq!(NUMBER.get(), 1);
    });
}

#[test]
fn helpers_are_those_of_std() {
    task_local!(static LAZY: Cell<u32> = panic!("is not made, only set"));
    task_local!(static LAZY_LIST: RefCell<Vec<u32>> = panic!("is not made, only set"));
    run(1, || {
        LAZY.set(3);
        assert_eq!(LAZY.replace(4), 3);
        assert_eq!(LAZY.take(), 4);
        assert_eq!(LAZY.get(), 0);
        LAZY_LIST.set(vec![1]);
        LAZY_LIST.set(vec![1, 2]);
        assert_eq!(LAZY_LIST.replace(vec![3]), [1, 2]);
        assert_eq!(LAZY_LIST.take(), [3]);
        assert!(LAZY_LIST.with_borrow(Vec::is_empty));
        assert_eq!(NUMBER.try_with(Cell::get), Ok(1));
    });
}

#[test]
fn with_may_park() {
    run(4, || {
        let all: Vec<_> = (0..50)
            .map(|i| {
                spawn(move || {
                    LIST.with_borrow_mut(|list| {
                        list.clear();
                        for j in 0..20 {
                            list.push(i + j);
                            sleep(Duration::from_micros(u64::from(i % 5)));
                            yield_now();
                        }
                        assert_eq!(*list, (i..i + 20).collect::<Vec<_>>());
                    });
                })
            })
            .collect();
        all.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn a_borrow_may_go_to_scoped_goroutines() {
    task_local!(static COUNT: AtomicUsize = const { AtomicUsize::new(0) });
    run(2, || {
        COUNT.with(|count| {
            scope(|s| {
                for _ in 0..10 {
                    s.spawn(|| {
                        count.fetch_add(1, Ordering::SeqCst);
                        COUNT.with(|own| assert_eq!(own.load(Ordering::SeqCst), 0));
                    });
                }
            });
            assert_eq!(count.load(Ordering::SeqCst), 10);
        });
    });
}

#[test]
fn values_are_dropped_before_join_returns() {
    run(2, || {
        let census = Census::default();
        for i in 1..100 {
            let census_of = census.clone();
            let join = spawn(move || MEMBER.set(Some(census_of.member())));
            if i % 3 == 0 {
                drop(join);
            } else {
                join.join().unwrap();
            }
            wait_until(|| census.dropped() == i);
        }
        census.assert_all_dropped(99);
    });
}

#[test]
fn values_go_when_a_goroutine_panics_or_is_cancelled() {
    let _guard = hang_guard();
    let census = Census::default();
    let joins = runtime(2).run(|| {
        let panics = spawn({
            let member = census.member();
            || {
                MEMBER.set(Some(member));
                std::panic::resume_unwind(Box::new(3));
            }
        });
        let outcome: std::thread::Result<()> = panics.join();
        assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&3));
        census.assert_all_dropped(1);
        let ready = std::sync::Arc::new(AtomicUsize::new(0));
        let says = std::sync::Arc::clone(&ready);
        let member = census.member();
        let join = spawn(move || {
            MEMBER.set(Some(member));
            says.store(1, Ordering::SeqCst);
            sleep(Duration::MAX);
        });
        wait_until(|| ready.load(Ordering::SeqCst) == 1);
        join
    });
    assert!(joins.join().unwrap_err().is::<Cancelled>());
    census.assert_all_dropped(2);
}

/// Looks at the others when it is dropped, and waits.
struct Curious(&'static Mutex<Vec<String>>);

impl Drop for Curious {
    fn drop(&mut self) {
        sleep(Duration::from_micros(200));
        let own = CURIOUS.try_with(|_| ());
        let number = NUMBER.try_with(Cell::get);
        let fresh = FRESH.with(Cell::get);
        let mut said = self.0.lock().unwrap();
        said.push(format!("{own:?} {number:?} {fresh}"));
    }
}

task_local! {
    static CURIOUS: RefCell<Option<Curious>> = const { RefCell::new(None) };
    static FRESH: Cell<u32> = const { Cell::new(9) };
}

#[test]
fn destructors_may_wait_and_look_at_others() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    run(2, || {
        let older = spawn(|| {
            NUMBER.set(5);
            CURIOUS.set(Some(Curious(&SAID)));
        });
        older.join().unwrap();
        let younger = spawn(|| {
            CURIOUS.set(Some(Curious(&SAID)));
            NUMBER.set(5);
        });
        younger.join().unwrap();
    });
    let said = SAID.lock().unwrap();
    let gone = format!("{:?}", Err::<(), _>(AccessError::clone(&access_error())));
    assert_eq!(said[0], format!("{gone} Ok(5) 9"));
    assert_eq!(said[1], format!("{gone} Err(AccessError) 9"));
}

fn access_error() -> AccessError {
    struct Asks(std::sync::mpsc::Sender<AccessError>);
    impl Drop for Asks {
        fn drop(&mut self) {
            self.0.send(ASKS.try_with(|_| ()).unwrap_err()).unwrap();
        }
    }
    task_local!(static ASKS: RefCell<Option<Asks>> = const { RefCell::new(None) });
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(|| ASKS.set(Some(Asks(sender))))
        .join()
        .unwrap();
    receiver.recv().unwrap()
}

#[test]
fn a_destructor_that_panics_harms_nobody() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(()));
        }
    }
    task_local!(static PANICS: RefCell<Option<Panics>> = const { RefCell::new(None) });
    run(1, || {
        let census = Census::default();
        let member = census.member();
        let join = spawn(move || {
            MEMBER.set(Some(member));
            PANICS.set(Some(Panics));
            7
        });
        assert_eq!(join.join().unwrap(), 7);
        census.assert_all_dropped(1);
    });
}

#[test]
fn the_result_of_a_detached_goroutine_may_use_them() {
    struct Uses(Census);
    impl Drop for Uses {
        fn drop(&mut self) {
            assert_eq!(NUMBER.get(), 1, "the goroutine's own values are gone");
            NUMBER.set(2);
            MEMBER.set(Some(self.0.member()));
            sleep(Duration::from_micros(50));
            assert_eq!(NUMBER.get(), 2);
        }
    }
    run(1, || {
        let census = Census::default();
        let uses = Uses(census.clone());
        drop(spawn(move || {
            NUMBER.set(8);
            uses
        }));
        wait_until(|| census.dropped() == 1);
        // So it is when the goroutine has ended already: then it is the dropper's.
        let join = spawn({
            let census = census.clone();
            move || Uses(census)
        });
        wait_until(|| join.is_finished());
        drop(join);
        assert_eq!(NUMBER.get(), 2);
        MEMBER.take();
        census.assert_all_dropped(2);
    });
}

#[test]
fn making_may_wait_use_others_and_panic() {
    task_local!(static SLOW: u32 = {
        sleep(Duration::from_micros(100));
        NUMBER.get() + 1
    });
    task_local!(static FIRST_PANICS: u32 = {
        NUMBER.set(NUMBER.get() + 1);
        assert_ne!(NUMBER.get(), 2, "the first time");
        NUMBER.get()
    });
    task_local!(static CIRCLE: Cell<u32> = {
        let depth = NUMBER.get();
        if depth < 4 {
            NUMBER.set(depth + 1);
            CIRCLE.with(Cell::get);
        }
        Cell::new(depth)
    });
    run(2, || {
        let all: Vec<_> = (0..20).map(|_| spawn(|| SLOW.with(|n| *n))).collect();
        assert!(all.into_iter().all(|j| j.join().unwrap() == 2));
        let second = spawn(|| {
            let first = catch_unwind(AssertUnwindSafe(|| FIRST_PANICS.with(|n| *n)));
            assert!(panic_text(&*first.unwrap_err()).contains("the first time"));
            FIRST_PANICS.with(|n| *n)
        });
        assert_eq!(second.join().unwrap(), 3);
        // The first to be made counts.
        assert_eq!(spawn(|| CIRCLE.get()).join().unwrap(), 4);
    });
}

#[test]
fn a_plain_thread_has_its_own() {
    let census = Census::default();
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let member = census.member();
            std::thread::spawn(move || {
                assert_eq!(NUMBER.get(), 1);
                NUMBER.set(i);
                MEMBER.set(Some(member));
                assert_eq!(NUMBER.get(), i);
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    census.assert_all_dropped(4);
}

#[test]
fn goroutines_do_not_see_the_values_of_their_threads() {
    let _guard = hang_guard();
    NUMBER.set(77);
    runtime(1).run(|| {
        assert_eq!(NUMBER.get(), 1);
        NUMBER.set(5);
        assert_eq!(windlass::blocking(|| NUMBER.get()), 5);
        assert_eq!(windlass::offload(|| NUMBER.get()), 1);
        assert_eq!(spawn(|| NUMBER.get()).join().unwrap(), 1);
    });
    assert_eq!(NUMBER.get(), 77);
}

#[test]
fn closures_of_any_size_leave_room() {
    run(1, || {
        fn with_size<const N: usize>() {
            let filler = [7_u8; N];
            let join = spawn(move || {
                NUMBER.set(3);
                yield_now();
                assert_eq!(NUMBER.get(), 3);
                assert!(filler.iter().all(|&b| b == 7));
                filler
            });
            assert_eq!(join.join().unwrap(), [7; N]);
        }
        with_size::<0>();
        with_size::<1>();
        with_size::<24>();
        with_size::<96>();
        with_size::<97>();
        with_size::<352>();
        with_size::<353>();
        with_size::<5000>();
    });
}

#[test]
fn what_never_ran_has_no_values() {
    let census = Census::default();
    // SAFETY: nothing here keeps a thread-local across a call that parks.
    #[allow(unsafe_code)]
    let rt = unsafe { Builder::new().processors(1).build() }.unwrap();
    struct Uses(Member);
    impl Drop for Uses {
        fn drop(&mut self) {
            NUMBER.set(NUMBER.get() + 1);
            let _ = &self.0;
        }
    }
    let uses = Uses(census.member());
    NUMBER.set(10);
    drop(rt.handle().spawn(move || drop(uses)));
    drop(rt);
    assert_eq!(NUMBER.get(), 11);
    census.assert_all_dropped(1);
}

/// Constants that look alike have one address where the whole program is optimised at once.
/// A value of one type was then found as one of another.
#[test]
fn keys_that_look_alike_are_told_apart() {
    if cfg!(debug_assertions) {
        eprintln!("it builds an optimised program: `make test-optimised` does that");
        return;
    }
    let program = std::env::temp_dir().join(format!("windlass-keys-{}", std::process::id()));
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let built = std::process::Command::new(rustc)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["--edition", "2024", "-C", "opt-level=3", "-C", "lto=fat"])
        .args(["tests/keys/program.rs", "-o"])
        .arg(&program)
        .output();
    let built = match built {
        Ok(built) => built,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("there is no rustc here: not tested");
            return;
        }
        Err(e) => panic!("{e}"),
    };
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{errors}");
    let output = std::process::Command::new(&program).output();
    std::fs::remove_file(&program).unwrap();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.ends_with("told apart\n"), "{said}");
    if !said.contains("merged: true") {
        eprintln!("this compiler has not merged the keys: nothing was tested");
    }
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    each_goroutine_has_its_own / 10,
    helpers_are_those_of_std,
    with_may_park,
    a_borrow_may_go_to_scoped_goroutines,
    values_are_dropped_before_join_returns,
    values_go_when_a_goroutine_panics_or_is_cancelled: "it uses threads",
    destructors_may_wait_and_look_at_others: "it uses threads",
    a_destructor_that_panics_harms_nobody,
    the_result_of_a_detached_goroutine_may_use_them,
    making_may_wait_use_others_and_panic,
    a_plain_thread_has_its_own: "it uses threads",
    goroutines_do_not_see_the_values_of_their_threads: "it has a runtime of its own",
    closures_of_any_size_leave_room,
    what_never_ran_has_no_values: "it has a runtime of its own",
    keys_that_look_alike_are_told_apart: "it computes without a call",
}

//! `join`: results, borrows, panics, waits inside, cancellation, recursion, and which forks become
//! goroutines.
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::util::{gettid, hang_guard, is_simulated, panic_text, run, runtime, wait_until};
use windlass::channel::{Receiver, bounded};
use windlass::context::{self, Context};
use windlass::sync::Mutex;
use windlass::task::{self, Cancelled};
use windlass::time::{Elapsed, timeout};
use windlass::{join, par, sleep, spawn, task_local, yield_now};

fn fib(n: u32) -> u64 {
    if n < 2 {
        return u64::from(n);
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

/// Calls `join` so that `b` becomes a goroutine, whatever other Ps do: `a` yields before anything
/// else.
fn join_promoted<RA: Send, RB: Send>(
    a: impl FnOnce() -> RA + Send,
    b: impl FnOnce() -> RB + Send,
) -> (RA, RB) {
    let caller = task::current().id();
    let a = || {
        yield_now();
        a()
    };
    let b = || {
        assert_ne!(task::current().id(), caller, "b should be a goroutine");
        b()
    };
    join(a, b)
}

/// Both ways in which `b` can run.
const WAYS: [bool; 2] = [false, true];

fn join_in<RA: Send, RB: Send>(
    promoted: bool,
    a: impl FnOnce() -> RA + Send,
    b: impl FnOnce() -> RB + Send,
) -> (RA, RB) {
    if promoted {
        join_promoted(a, b)
    } else {
        join(a, b)
    }
}

// Results and borrows

#[test]
fn results_of_a_recursion() {
    for n_ps in [1, 2, 4] {
        assert_eq!(run(n_ps, || fib(20)), 6765);
    }
}

#[test]
fn both_closures_borrow() {
    fn double(all: &mut [u64]) {
        match all {
            [] => {}
            [one] => *one *= 2,
            _ => {
                let (left, right) = all.split_at_mut(all.len() / 2);
                join(|| double(left), || double(right));
            }
        }
    }
    for promoted in WAYS {
        run(2, || {
            let mut all: Vec<_> = (0..10_000).collect();
            let (left, right) = all.split_at_mut(5000);
            join_in(promoted, || double(left), || double(right));
            assert!(all.iter().zip(0..).all(|(&n, i)| n == 2 * i));
        });
    }
}

#[test]
fn results_move_and_are_dropped_once() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Counts(Vec<u32>);
    impl Drop for Counts {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    DROPPED.store(0, Ordering::Relaxed);
    run(2, || {
        for promoted in WAYS {
            let (x, y) = (Counts(vec![1]), Counts(vec![2]));
            let (x, y) = join_in(
                promoted,
                move || Counts(x.0.clone()),
                move || Counts(y.0.clone()),
            );
            assert_eq!((&x.0[..], &y.0[..]), (&[1][..], &[2][..]));
        }
    });
    assert_eq!(DROPPED.load(Ordering::Relaxed), 8);
}

/// No P is idle, so nothing is gained by a goroutine, and none is made.
#[test]
fn alone_no_fork_becomes_a_goroutine() {
    let rt = runtime(1);
    let before = rt.metrics().total().spawned;
    assert_eq!(rt.run(|| fib(20)), 6765);
    // The main goroutine.
    assert_eq!(rt.metrics().total().spawned - before, 1);
}

/// An idle P gets the oldest fork: the largest part of the work.
#[test]
fn an_idle_p_gets_the_oldest_fork() {
    run(2, || {
        // The other P comes to be idle, and the forks of `a` are promoted by calls inside.
        let (elsewhere, caller) = (AtomicBool::new(false), task::current().id());
        wait_until(|| {
            let a = || {
                let mut n = 0;
                while !elsewhere.load(Ordering::Relaxed) && n < 1_000_000 {
                    n += 1;
                    join(|| (), || ());
                }
            };
            join(a, || {
                if task::current().id() != caller {
                    elsewhere.store(true, Ordering::Relaxed);
                }
            });
            elsewhere.load(Ordering::Relaxed)
        });
    });
}

/// Also where each call is the first one in some time.
#[test]
fn an_idle_p_gets_forks_of_calls_that_are_far_apart() {
    run(2, || {
        let compute = || {
            let begun = std::time::Instant::now();
            while begun.elapsed() < Duration::from_micros(50) {
                std::hint::spin_loop();
            }
        };
        let caller = task::current().id();
        let is_shared = (0..2_000).any(|_| {
            let (_, runs_b) = join(compute, || {
                compute();
                task::current().id()
            });
            runs_b != caller
        });
        assert!(is_shared);
    });
}

/// Goroutines that others run make more: the work spreads over all Ps.
#[test]
fn work_spreads() {
    let n_threads = run(4, || {
        let seen = Mutex::new(std::collections::HashSet::new());
        wait_until(|| {
            fn tree(depth: u32, seen: &Mutex<std::collections::HashSet<std::thread::ThreadId>>) {
                if depth == 0 {
                    std::hint::black_box((0..2000).fold(0_u64, |x, n| x.rotate_left(5) ^ n));
                    seen.lock().unwrap().insert(std::thread::current().id());
                    return;
                }
                join(|| tree(depth - 1, seen), || tree(depth - 1, seen));
            }
            tree(12, &seen);
            seen.lock().unwrap().len() >= 4
        });
        seen.into_inner().unwrap().len()
    });
    assert!(n_threads >= 4);
}

// Panics

#[test]
fn a_panic_of_either_goes_on_when_both_have_ended() {
    run(2, || {
        for promoted in WAYS {
            let ended = AtomicUsize::new(0);
            let end = || {
                yield_now();
                ended.fetch_add(1, Ordering::Relaxed)
            };
            let of_a = catch_unwind(AssertUnwindSafe(|| {
                join_in(promoted, || panic!("a"), end);
            }));
            assert_eq!(panic_text(&*of_a.unwrap_err()), "a");
            assert_eq!(ended.load(Ordering::Relaxed), 1);
            let of_b = catch_unwind(AssertUnwindSafe(|| {
                join_in(promoted, end, || panic!("b"));
            }));
            assert_eq!(panic_text(&*of_b.unwrap_err()), "b");
            assert_eq!(ended.load(Ordering::Relaxed), 2);
            let of_both = catch_unwind(AssertUnwindSafe(|| {
                join_in(promoted, || panic!("first"), || panic!("second"));
            }));
            assert_eq!(panic_text(&*of_both.unwrap_err()), "first");
        }
        // The goroutine can fork as before.
        assert_eq!(fib(10), 55);
    });
}

#[test]
fn a_panic_deep_inside_unwinds_all_calls() {
    fn deep(n: u32, ran: &AtomicU64) {
        if n == 0 {
            panic!("at the bottom");
        }
        join(
            || deep(n - 1, ran),
            || {
                ran.fetch_add(1, Ordering::Relaxed);
            },
        );
    }
    for n_ps in [1, 2] {
        run(n_ps, || {
            let ran = AtomicU64::new(0);
            let outcome = catch_unwind(AssertUnwindSafe(|| deep(50, &ran)));
            assert_eq!(panic_text(&*outcome.unwrap_err()), "at the bottom");
            assert_eq!(ran.load(Ordering::Relaxed), 50);
        });
    }
}

/// The result of `b` is dropped when `a` has panicked, and its destructor's panic is not the
/// caller's.
#[test]
fn a_destructor_that_panics_does_not_replace_the_panic() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("of the destructor");
        }
    }
    run(2, || {
        for promoted in WAYS {
            let outcome = catch_unwind(|| {
                join_in(promoted, || panic!("of a"), || Bomb);
            });
            assert_eq!(panic_text(&*outcome.unwrap_err()), "of a");
        }
    });
}

/// Destructors may fork; while unwinding, both closures run in turn.
#[test]
fn a_destructor_forks() {
    struct Forks<'a>(&'a AtomicU64);
    impl Drop for Forks<'_> {
        fn drop(&mut self) {
            self.0.store(fib(12), Ordering::Relaxed);
        }
    }
    run(2, || {
        let result = AtomicU64::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            join(
                || {
                    let _forks = Forks(&result);
                    panic!("a");
                },
                || (),
            )
        }));
        assert_eq!(panic_text(&*outcome.unwrap_err()), "a");
        assert_eq!(result.load(Ordering::Relaxed), 144);
    });
}

// Waits

/// A closure that parks leaves its forks to others: on one P, both wait at the same time.
#[test]
fn a_closure_waits_for_the_other() {
    for n_ps in [1, 2] {
        run(n_ps, || {
            let (to_a, from_b) = bounded(0);
            let (to_b, from_a) = bounded(0);
            let (a, b) = join(
                || {
                    to_b.send(1).unwrap();
                    from_b.recv().unwrap()
                },
                || {
                    let got = from_a.recv().unwrap();
                    to_a.send(got + 1).unwrap();
                    got
                },
            );
            assert_eq!((a, b), (2, 1));
        });
    }
}

/// As above, from calls deep inside: `a` waits for what the outermost `b` does.
#[test]
fn an_inner_call_waits_for_an_outer_fork() {
    fn wait_at(depth: u32, flag: &Receiver<()>) {
        if depth == 0 {
            return flag.recv().unwrap();
        }
        join(|| wait_at(depth - 1, flag), || ());
    }
    for n_ps in [1, 2] {
        run(n_ps, || {
            let (s, r) = bounded(0);
            join(|| wait_at(20, &r), || s.send(()).unwrap());
        });
    }
}

#[test]
fn a_yield_and_a_blocking_section_let_the_other_begin() {
    for n_ps in [1, 2] {
        run(n_ps, || {
            let flag = AtomicBool::new(false);
            let is_set = || flag.load(Ordering::Relaxed);
            join(
                || wait_until(is_set),
                || flag.store(true, Ordering::Relaxed),
            );
            flag.store(false, Ordering::Relaxed);
            let block = || {
                windlass::blocking(|| {
                    while !is_set() {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                });
            };
            join(block, || flag.store(true, Ordering::Relaxed));
        });
    }
}

/// Forks of before a wait, and forks of after it.
#[test]
fn calls_go_on_after_a_wait() {
    fn tree(depth: u32) -> u64 {
        if depth == 0 {
            return 1;
        }
        let (a, b) = join(
            || {
                if depth.is_multiple_of(3) {
                    sleep(Duration::from_micros(10));
                }
                tree(depth - 1)
            },
            || {
                if depth.is_multiple_of(4) {
                    yield_now();
                }
                tree(depth - 1)
            },
        );
        a + b
    }
    for n_ps in [1, 2, 4] {
        assert_eq!(run(n_ps, || tree(10)), 1024);
    }
}

#[test]
fn a_lock_between_forks() {
    let sum = run(2, || {
        let sum = Mutex::new(0_u64);
        fn add(range: std::ops::Range<u64>, sum: &Mutex<u64>) {
            if range.end - range.start == 1 {
                let mut sum = sum.lock().unwrap();
                if range.start.is_multiple_of(64) {
                    yield_now();
                }
                *sum += range.start;
                return;
            }
            let mid = u64::midpoint(range.start, range.end);
            join(|| add(range.start..mid, sum), || add(mid..range.end, sum));
        }
        add(0..2000, &sum);
        sum.into_inner().unwrap()
    });
    assert_eq!(sum, 1999 * 1000);
}

/// The P is taken from a goroutine that computes between two calls.
#[test]
fn a_hog_keeps_its_forks() {
    run(2, || {
        let others = spawn(|| {
            for _ in 0..100 {
                yield_now();
            }
        });
        let compute = || {
            let until = std::time::Instant::now() + Duration::from_millis(30);
            while std::time::Instant::now() < until {
                std::hint::spin_loop();
            }
            fib(10)
        };
        let ((a, b), (c, d)) = join(|| join(compute, compute), || join(compute, compute));
        assert_eq!([a, b, c, d], [55; 4]);
        others.join().unwrap();
    });
}

/// A goroutine that gives way to others has its forks as before: they begin when it waits, or are its own.
#[test]
fn forks_stay_when_a_goroutine_gives_way() {
    run(1, || {
        let others_ran = AtomicBool::new(false);
        let give_way = || {
            while !others_ran.swap(false, Ordering::Relaxed) {
                task::checkpoint();
            }
        };
        let (s, r) = bounded(0);
        task::scope(|scope| {
            let others = || scope.spawn(|| others_ran.store(true, Ordering::Relaxed));
            others();
            let a = || {
                give_way();
                r.recv().unwrap()
            };
            join(a, || s.send(()).unwrap());
            others();
            let caller = task::current().id();
            let ((), runs_b) = join(give_way, || task::current().id());
            assert!(runs_b == caller || is_simulated());
        });
    });
}

// The end of a run, and contexts

/// `b` waits for ever and is cancelled; so is the call, which has waited for it.
#[test]
fn the_end_of_a_run_ends_both() {
    let rt = runtime(2);
    let ended = std::sync::Arc::new(AtomicUsize::new(0));
    struct Ends(std::sync::Arc<AtomicUsize>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let counts = || Ends(ended.clone());
    let (outer, in_a, in_b) = (counts(), counts(), counts());
    let forker = rt.run(move || {
        let (began, begins) = bounded(2);
        let forker = spawn(move || {
            let _outer = outer;
            let wait = |ends: Ends| {
                let _ends = ends;
                began.send(()).unwrap();
                task::park();
                sleep(Duration::MAX);
            };
            join(|| wait(in_a), || wait(in_b));
            unreachable!("both wait for ever");
        });
        begins.recv().unwrap();
        begins.recv().unwrap();
        forker
    });
    assert!(forker.join().unwrap_err().is::<Cancelled>());
    assert_eq!(ended.load(Ordering::Relaxed), 3);
}

/// A call does not return before the goroutine of its fork has ended, even if the run ends.
#[test]
fn the_end_of_a_run_waits_for_a_fork_that_computes() {
    struct Ends<'a>(&'a AtomicUsize, usize);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            let nth = self.0.fetch_add(1, Ordering::Relaxed);
            assert_eq!(nth, self.1, "the fork ends first, and once");
        }
    }
    for _ in 0..5 {
        let _guard = hang_guard();
        let rt = runtime(2);
        let (began, begins) = bounded(1);
        let all_ended = std::sync::Arc::new(AtomicUsize::new(0));
        let ended = all_ended.clone();
        let forker = rt.run(|| {
            let forker = spawn(move || {
                let _outer = Ends(&ended, 1);
                let in_b = Ends(&ended, 0);
                join_promoted(
                    || (),
                    move || {
                        let _in_b = in_b;
                        began.send(()).unwrap();
                        let until = std::time::Instant::now() + Duration::from_millis(10);
                        while std::time::Instant::now() < until {
                            std::hint::spin_loop();
                        }
                    },
                );
            });
            begins.recv().unwrap();
            forker
        });
        // The call may return or unwind.
        let _ = forker.join();
        assert_eq!(all_ended.load(Ordering::Relaxed), 2);
    }
}

/// Calls that come after the end of the run unwind, and their closures are dropped.
#[test]
fn forks_at_the_end_of_a_run() {
    for _ in 0..20 {
        let rt = runtime(2);
        let forkers = rt.run(|| {
            let forever = || {
                loop {
                    fib(12);
                    join(yield_now, yield_now);
                }
            };
            let forkers: Vec<task::JoinHandle<()>> = (0..4).map(|_| spawn(forever)).collect();
            sleep(Duration::from_micros(300));
            forkers
        });
        for forker in forkers {
            assert!(forker.join().unwrap_err().is::<Cancelled>());
        }
    }
}

/// A fork runs in the contexts around its call, and in no other, wherever it runs.
#[test]
fn contexts_around_a_call_end_the_waits_of_both() {
    run(2, || {
        for promoted in WAYS {
            let (ctx, canceller) = Context::background().with_cancel();
            let (_sender, never) = bounded::<()>(0);
            let (to_canceller, begun) = bounded(2);
            let wait = || {
                // The second one may begin when the context is done.
                let _ = to_canceller.send(());
                never.recv().is_err()
            };
            let canceller = spawn(move || {
                begun.recv().unwrap();
                canceller.cancel();
            });
            let ended = ctx.run(|| join_in(promoted, wait, wait));
            assert_eq!(ended, (true, true));
            canceller.join().unwrap();
            // A wait in a context that is done does not begin, in a fork neither.
            let outer = Context::background().with_timeout(Duration::from_secs(1000));
            let ended = outer.run(|| ctx.run(|| join_in(promoted, || 0, || never.recv().is_err())));
            assert!(ended.1);
            // Contexts that `a` has entered are not those of `b`.
            let (s, r) = bounded(0);
            let in_a = || ctx.run(yield_now);
            let send = || {
                spawn({
                    let s = s.clone();
                    move || s.send(1).unwrap()
                })
            };
            let (_, got) = join(in_a, || {
                let sender = send();
                let got = r.recv();
                sender.join().unwrap();
                got
            });
            assert_eq!(got, Ok(1));
        }
    });
}

#[test]
fn a_timeout_around_a_call_ends_the_waits_of_both() {
    run(2, || {
        for promoted in WAYS {
            let forever = || sleep(Duration::from_secs(1000));
            let outcome = timeout(Duration::from_millis(2), || {
                join_in(promoted, || (), forever);
            });
            assert_eq!(outcome, Err(Elapsed::default()));
            let outcome = timeout(Duration::from_secs(1000), || join_in(promoted, || 1, || 2));
            assert_eq!(outcome, Ok((1, 2)));
        }
    });
}

/// A shield around a call keeps the contexts outside it from both closures.
#[test]
fn a_shield_around_a_call() {
    run(2, || {
        for promoted in WAYS {
            let (ctx, canceller) = Context::background().with_cancel();
            canceller.cancel();
            let send_and_receive = || {
                let (s, r) = bounded(0);
                let sender = spawn(move || s.send(1).unwrap());
                let got = r.recv();
                sender.join().unwrap();
                got
            };
            let got = ctx
                .run(|| context::shield(|| join_in(promoted, send_and_receive, send_and_receive)));
            assert_eq!(got, (Ok(1), Ok(1)));
        }
    });
}

// Helpers

#[test]
fn loops_visit_each_item_once() {
    for n in [0, 1, 2, 100, 4095, 4096, 10_000, 50_001] {
        run(2, || {
            let visits: Vec<_> = (0..n).map(|_| AtomicUsize::new(0)).collect();
            par::for_each(0..n, |i| {
                visits[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(visits.iter().all(|v| v.load(Ordering::Relaxed) == 1));
            let mut all: Vec<_> = (0..n).collect();
            par::for_each_mut(&mut all, |item| *item += 1);
            assert!(all.iter().zip(1..).all(|(&item, i)| item == i));
            par::chunks_mut(&mut all, 7, |nth, chunk| {
                assert!(chunk.len() == 7 || (nth + 1) * 7 > n);
                assert_eq!(chunk[0], nth * 7 + 1);
                chunk.fill(nth);
            });
            assert!(all.iter().zip(0..).all(|(&item, i)| item == i / 7));
        });
    }
}

#[test]
fn a_reduction_keeps_the_order() {
    run(2, || {
        for n in [0, 1, 3, 5000, 20_000] {
            let joined = par::map_reduce(
                0..n,
                |i| vec![i],
                |mut left, right| {
                    left.extend(right);
                    left
                },
            );
            assert_eq!(joined, (n > 0).then(|| (0..n).collect()));
        }
    });
}

#[test]
fn sorts_like_the_standard_library() {
    run(2, || {
        let random = |i: u64| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let makes: [fn(u64) -> u64; 6] = [
            |i| i,
            |i| u64::MAX - i,
            |_| 7,
            |i| i % 3,
            |i| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40,
            |i| if i % 2 == 0 { i } else { 40_000 - i },
        ];
        for make in makes {
            for n in [0, 1, 2048, 2049, 40_000] {
                let mut all: Vec<_> = (0..n).map(make).collect();
                let mut expected = all.clone();
                expected.sort_unstable();
                par::sort_unstable(&mut all);
                assert!(all == expected);
                all.reverse();
                par::sort_unstable_by(&mut all, |a, b| b.cmp(a));
                expected.reverse();
                assert!(all == expected);
            }
        }
        // Items with destructors, and a comparison that panics: nothing is lost.
        let mut boxes: Vec<_> = (0..10_000).map(|i| Box::new(random(i))).collect();
        let compared = AtomicUsize::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            par::sort_unstable_by(&mut boxes, |a, b| {
                assert_ne!(compared.fetch_add(1, Ordering::Relaxed), 30_000);
                a.cmp(b)
            });
        }));
        assert!(outcome.is_err());
        par::sort_unstable(&mut boxes);
        let mut expected: Vec<_> = (0..10_000).map(|i| Box::new(random(i))).collect();
        expected.sort_unstable();
        assert!(boxes == expected);
    });
}

#[test]
#[should_panic = "chunks of no items"]
fn chunks_have_items() {
    par::chunks_mut(&mut [1], 0, |_, _| ());
}

// Where nothing can run in parallel

#[test]
fn on_a_plain_thread() {
    let _guard = hang_guard();
    assert_eq!(fib(15), 610);
    let mut order = Vec::new();
    let cell = std::sync::Mutex::new(&mut order);
    join(
        || cell.lock().unwrap().push('a'),
        || cell.lock().unwrap().push('b'),
    );
    assert_eq!(order, ['a', 'b']);
    let ran = AtomicBool::new(false);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        join(|| panic!("a"), || ran.store(true, Ordering::Relaxed));
    }));
    assert_eq!(panic_text(&*outcome.unwrap_err()), "a");
    assert!(ran.load(Ordering::Relaxed));
}

#[test]
fn in_a_blocking_section() {
    let (outer, inner) = run(2, || {
        join(
            || windlass::blocking(|| fib(15)),
            || windlass::blocking(|| fib(10)),
        )
    });
    assert_eq!((outer, inner), (610, 55));
}

#[test]
fn with_a_locked_thread() {
    run(2, || {
        let _tied = task::lock_thread();
        let here = std::thread::current().id();
        let (a, b) = join_promoted(|| fib(12), || fib(13));
        assert_eq!((a, b), (144, 233));
        assert_eq!(std::thread::current().id(), here);
    });
}

// Stacks

/// A million calls inside one another, each with a fork: many stacks' worth.
#[test]
fn recursion_deeper_than_a_stack() {
    const DEPTH: u64 = if cfg!(debug_assertions) {
        100_000
    } else {
        1_000_000
    };
    fn count(n: u64, in_b: bool) -> u64 {
        if n == 0 {
            return 0;
        }
        let (deep, one) = if in_b {
            let (one, deep) = join(|| 1, || count(n - 1, in_b));
            (deep, one)
        } else {
            join(|| count(n - 1, in_b), || 1)
        };
        deep + one
    }
    assert_eq!(run(2, || count(DEPTH, false)), DEPTH);
    for n_ps in [1, 2] {
        assert_eq!(run(n_ps, || count(DEPTH / 10, false)), DEPTH / 10);
        assert_eq!(run(n_ps, || count(DEPTH / 10, true)), DEPTH / 10);
    }
}

/// A panic goes through the stacks on which a deep recursion went on.
#[test]
fn a_panic_crosses_stacks() {
    fn deep(n: u32, ran: &AtomicU64) {
        assert!(n != 0, "at the bottom");
        let count = || {
            ran.fetch_add(1, Ordering::Relaxed);
        };
        join(|| deep(n - 1, ran), count);
    }
    run(2, || {
        let ran = AtomicU64::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| deep(5000, &ran)));
        assert_eq!(panic_text(&*outcome.unwrap_err()), "at the bottom");
        assert_eq!(ran.load(Ordering::Relaxed), 5000);
    });
}

task_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Calls `at_each` in the `a` of each of `n` calls inside one another, on many stacks.
fn descend(n: u32, at_each: &(dyn Fn(u32) + Sync)) {
    if n > 0 {
        let a = || {
            at_each(n);
            descend(n - 1, at_each);
            at_each(n);
        };
        join(a, || ());
    }
}

/// Runs `f` on a goroutine with a small stack.
fn on_a_small_stack(n_ps: usize, f: impl FnOnce() + Send) {
    run(n_ps, || {
        task::scope(|s| {
            let small = task::Builder::new().stack_size(64 * 1024);
            small.spawn_scoped(s, f).unwrap().join().unwrap();
        });
    });
}

#[test]
fn a_goroutine_on_another_stack_is_the_same() {
    on_a_small_stack(2, || {
        let me = task::current();
        DEPTH.set(7);
        let (ctx, canceller) = Context::background().with_cancel();
        let n_ended = AtomicUsize::new(0);
        ctx.run(|| {
            descend(2000, &|n| {
                assert_eq!(task::current().id(), me.id());
                assert_eq!(DEPTH.get(), 7);
                if n % 50 == 0 {
                    // It is resumed on the stack on which it parked, by its own token.
                    let outer = me.clone();
                    let waker = spawn(move || outer.unpark());
                    task::park();
                    yield_now();
                    let _ = waker.join();
                }
            });
            canceller.cancel();
            let (_sender, receiver) = bounded::<()>(0);
            descend(500, &|_| {
                assert!(receiver.recv().is_err());
                n_ended.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(n_ended.into_inner(), 1000);
        assert_eq!(DEPTH.get(), 7);
    });
}

/// `b` does the work for which the caller of `join` waits, at all depths.
#[test]
fn a_park_on_another_stack_is_ended_by_its_fork() {
    fn deep(n: u32, me: &task::Task) {
        if n == 0 {
            return;
        }
        let done = AtomicBool::new(false);
        let a = || {
            while !done.load(Ordering::SeqCst) {
                task::park();
            }
            deep(n - 1, me);
        };
        let b = || {
            done.store(true, Ordering::SeqCst);
            me.unpark();
        };
        join(a, b);
    }
    for n_ps in [1, 2] {
        on_a_small_stack(n_ps, || deep(400, &task::current()));
    }
}

#[test]
fn a_locked_thread_is_the_same_on_another_stack() {
    on_a_small_stack(2, || {
        let _locked = task::lock_thread();
        let tid = gettid();
        descend(1000, &|n| {
            assert_eq!(gettid(), tid);
            if n % 100 == 0 {
                drop(task::lock_thread());
                yield_now();
                assert_eq!(gettid(), tid);
            }
        });
    });
    // Locks that are taken on one stack, and held on the next ones.
    fn locks(n: u32) {
        if n > 0 {
            let a = || {
                let guard = n.is_multiple_of(100).then(task::lock_thread);
                let tid = gettid();
                locks(n - 1);
                if n.is_multiple_of(10) {
                    yield_now();
                }
                assert!(guard.is_none() || gettid() == tid);
            };
            join(a, || ());
        }
    }
    on_a_small_stack(2, || locks(1000));
}

/// The goroutine of a fork has a stack as large as its caller's.
#[test]
fn the_stack_of_a_fork() {
    fn touch(n: usize) -> usize {
        let page = std::hint::black_box([1_u8; 4096]);
        if n == 0 {
            return 0;
        }
        touch(n - 1) + usize::from(page[n % 4096])
    }
    let deep = run(2, || {
        let big = task::Builder::new().stack_size(8 << 20);
        let forker = big.spawn(|| join_promoted(|| (), || touch(500)).1);
        forker.unwrap().join().unwrap()
    });
    assert_eq!(deep, 500);
}

/// Calls `f` at the bottom of frames of `bytes` bytes in all.
fn with_less_stack<T>(bytes: usize, f: impl FnOnce() -> T) -> T {
    fn descend(top: usize, bytes: usize, f: &mut dyn FnMut()) {
        let here = std::hint::black_box([0_u8; 64]);
        if top - here.as_ptr().addr() >= bytes {
            f();
        } else {
            descend(top, bytes, f);
        }
        std::hint::black_box(here);
    }
    let (mut f, mut value) = (Some(f), None);
    let top = std::hint::black_box(0_u8);
    let top = (&raw const top).addr();
    descend(top, bytes, &mut || value = f.take().map(|f| f()));
    value.expect("it was called")
}

/// While unwinding, a call cannot go on in another goroutine.
#[test]
fn a_destructor_forks_with_little_stack_left() {
    struct Forks<'a>(&'a AtomicU64);
    impl Drop for Forks<'_> {
        fn drop(&mut self) {
            self.0.store(fib(5), Ordering::Relaxed);
        }
    }
    let result = AtomicU64::new(0);
    let fork = || {
        let a = || {
            with_less_stack(970 << 10, || {
                let _forks = Forks(&result);
                // Without a panic hook, which would need more stack.
                resume_unwind(Box::new("a"))
            })
        };
        let outcome: Result<((), ()), _> = catch_unwind(AssertUnwindSafe(|| join(a, || ())));
        assert!(outcome.unwrap_err().is::<&str>());
    };
    run(2, || {
        task::scope(|s| {
            let forker = task::Builder::new().stack_size(1 << 20);
            forker.spawn_scoped(s, fork).unwrap().join().unwrap();
        });
    });
    assert_eq!(result.load(Ordering::Relaxed), 5);
}

/// A recursion that goes on on many stacks enters the contexts around it on each, and then they
/// take no more room than before.
#[test]
fn contexts_around_a_deep_recursion() {
    fn deep(n: u32, at_bottom: &(dyn Fn() -> bool + Sync)) -> bool {
        match n {
            0 => at_bottom(),
            _ => join(|| deep(n - 1, at_bottom), || ()).0,
        }
    }
    run(2, || {
        let (ctx, canceller) = Context::background().with_cancel();
        let (_sender, never) = bounded::<()>(0);
        let is_cut = || {
            canceller.cancel();
            never.recv().is_err()
        };
        task::scope(|s| {
            let small = task::Builder::new().stack_size(16 << 10);
            let recursion = || {
                let far = Duration::from_secs(1000);
                timeout(far, || ctx.run(|| deep(60_000, &is_cut)))
            };
            let forker = small.spawn_scoped(s, recursion).unwrap();
            assert_eq!(forker.join().unwrap(), Ok(true));
        });
        let forever = || {
            sleep(Duration::from_secs(1000));
            true
        };
        let outcome = timeout(Duration::from_secs(1), || deep(20_000, &forever));
        assert_eq!(outcome, Err(Elapsed::default()));
    });
}

#[test]
fn recursion_on_the_smallest_stacks() {
    fn deep(n: u32) -> u32 {
        match n {
            0 => 0,
            _ => join(|| deep(n - 1), || 1).0 + 1,
        }
    }
    run(2, || {
        let small = task::Builder::new().stack_size(16 << 10);
        assert_eq!(small.spawn(|| deep(5000)).unwrap().join().unwrap(), 5000);
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    results_of_a_recursion: "it takes too many steps",
    both_closures_borrow: "it takes too many steps",
    results_move_and_are_dropped_once,
    alone_no_fork_becomes_a_goroutine: "it has a runtime of its own",
    an_idle_p_gets_the_oldest_fork,
    an_idle_p_gets_forks_of_calls_that_are_far_apart: "it asks for the use of all Ps",
    work_spreads: "it asks for the use of all Ps",
    a_panic_of_either_goes_on_when_both_have_ended,
    a_panic_deep_inside_unwinds_all_calls,
    a_destructor_that_panics_does_not_replace_the_panic,
    a_destructor_forks,
    a_closure_waits_for_the_other,
    an_inner_call_waits_for_an_outer_fork,
    a_yield_and_a_blocking_section_let_the_other_begin: "it uses threads",
    calls_go_on_after_a_wait / 10,
    a_lock_between_forks: "it takes too many steps",
    a_hog_keeps_its_forks / 50,
    forks_stay_when_a_goroutine_gives_way,
    the_end_of_a_run_ends_both: "it has a runtime of its own",
    the_end_of_a_run_waits_for_a_fork_that_computes: "it has a runtime of its own",
    forks_at_the_end_of_a_run: "it has a runtime of its own",
    contexts_around_a_call_end_the_waits_of_both,
    a_timeout_around_a_call_ends_the_waits_of_both,
    a_shield_around_a_call,
    loops_visit_each_item_once: "it takes too many steps",
    a_reduction_keeps_the_order: "it takes too many steps",
    sorts_like_the_standard_library: "it takes too many steps",
    chunks_have_items: "it has to panic",
    on_a_plain_thread,
    in_a_blocking_section: "it blocks its thread",
    with_a_locked_thread: "it locks its thread",
    recursion_deeper_than_a_stack: "it takes too many steps",
    a_goroutine_on_another_stack_is_the_same / 8,
    a_park_on_another_stack_is_ended_by_its_fork / 8,
    a_locked_thread_is_the_same_on_another_stack: "it locks its thread",
    a_panic_crosses_stacks / 50,
    the_stack_of_a_fork,
    a_destructor_forks_with_little_stack_left / 5,
    contexts_around_a_deep_recursion: "it takes too many steps",
    recursion_on_the_smallest_stacks / 20,
}

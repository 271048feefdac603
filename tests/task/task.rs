//! Goroutines: spawning, joining, parking, scopes, and what happens to closures
//! and results.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use windlass::time::{Duration, Instant};

use crate::util;
use crate::util::{Census, Gate, hang_guard, pair, panic_text, run, runtime, wait_until};
use windlass::channel::bounded;
use windlass::context::Context;
use windlass::task::{self, Cancelled, JoinHandle, Task};
use windlass::{blocking, sleep, spawn, thread, yield_now};

// Spawning and joining

#[test]
fn join_gives_the_value() {
    let words = run(2, || {
        let all: Vec<_> = (0..100).map(|i| spawn(move || i.to_string())).collect();
        all.into_iter()
            .map(|j| j.join().unwrap())
            .collect::<Vec<_>>()
            .join(" ")
    });
    assert!(words.starts_with("0 1 2 3") && words.ends_with("98 99"));
}

/// It would wait for ever: `std` panics, too.
#[test]
fn nobody_joins_itself() {
    run(2, || {
        let (s, r) = mpsc::channel();
        let itself = spawn(move || {
            let own: JoinHandle<()> = r.recv().unwrap();
            let e = catch_unwind(AssertUnwindSafe(|| own.join())).unwrap_err();
            assert!(panic_text(&*e).contains("cannot join itself"));
            // It is detached now, and goes on.
            yield_now();
        });
        s.send(itself).unwrap();
        // Any other may be joined.
        let other = spawn(|| 1);
        assert_eq!(spawn(move || other.join().unwrap()).join().unwrap(), 1);
    });
}

#[test]
fn goroutines_spawn_goroutines() {
    fn tree(depth: u32) -> u32 {
        if depth == 0 {
            return 1;
        }
        let halves = [
            spawn(move || tree(depth - 1)),
            spawn(move || tree(depth - 1)),
        ];
        halves.into_iter().map(|j| j.join().unwrap()).sum()
    }
    let depth = util::much(12, 6) as u32;
    assert_eq!(run(4, || tree(depth)), 1 << depth);
}

#[test]
fn more_goroutines_than_a_queue_holds() {
    let n_all = util::much(10_000, 600);
    let n = run(2, || {
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..n_all {
            let done = Arc::clone(&done);
            spawn(move || done.fetch_add(1, Ordering::Relaxed));
        }
        wait_until(|| done.load(Ordering::Relaxed) == n_all);
        done.load(Ordering::Relaxed)
    });
    assert_eq!(n, n_all);
}

#[test]
fn a_panics_payload_reaches_join() {
    run(2, || {
        let payload = spawn(|| -> u8 { std::panic::panic_any(17_i64) })
            .join()
            .unwrap_err();
        assert_eq!(payload.downcast_ref::<i64>(), Some(&17));
        let payload = spawn(|| panic!("no {}", "rope")).join().unwrap_err();
        assert_eq!(panic_text(&*payload), "no rope");
    });
}

#[test]
fn a_detached_panic_does_not_stop_others() {
    run(1, || {
        for _ in 0..10 {
            drop(spawn(|| panic!("detached, on purpose")));
        }
        assert_eq!(spawn(|| 3).join().unwrap(), 3);
        assert!(!std::thread::panicking());
    });
}

#[test]
fn a_panic_is_not_seen_by_other_goroutines() {
    // The destructor keeps the panicking goroutine on its thread while others run.
    struct Slow(Arc<AtomicUsize>);
    impl Drop for Slow {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            let start = self.0.load(Ordering::SeqCst);
            wait_until(|| self.0.load(Ordering::SeqCst) >= start + 3);
        }
    }
    run(1, || {
        let steps = Arc::new(AtomicUsize::new(0));
        let slow = Slow(Arc::clone(&steps));
        let panics = spawn(move || {
            let _slow = slow;
            panic!("on purpose");
        });
        while !panics.is_finished() {
            assert!(!std::thread::panicking());
            let calm = spawn(std::thread::panicking).join().unwrap();
            assert!(!calm);
            steps.fetch_add(1, Ordering::SeqCst);
            yield_now();
        }
        panics.join().unwrap_err();
    });
}

#[test]
fn a_goroutine_may_catch_its_own_panics() {
    run(2, || {
        let all: Vec<_> = (0..100)
            .map(|i| {
                spawn(move || {
                    for _ in 0..10 {
                        yield_now();
                        let caught = catch_unwind(|| {
                            yield_now();
                            std::panic::resume_unwind(Box::new(i))
                        });
                        assert_eq!(caught.unwrap_err().downcast_ref::<i32>(), Some(&i));
                        yield_now();
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn a_destructor_may_wait_and_spawn_during_a_panic() {
    struct Last(Option<JoinHandle<u32>>, Arc<AtomicUsize>);
    impl Drop for Last {
        fn drop(&mut self) {
            // On one P: the goroutine that is waited for must get another thread.
            assert_eq!(self.0.take().unwrap().join().unwrap(), 9);
            let sum = Arc::clone(&self.1);
            spawn(move || sum.fetch_add(1, Ordering::SeqCst));
            windlass::sleep(Duration::from_millis(1));
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    run(1, || {
        let sum = Arc::new(AtomicUsize::new(0));
        let given = Arc::clone(&sum);
        let panics = spawn(move || {
            let _last = Last(Some(spawn(|| 9)), given);
            panic!("on purpose");
        });
        assert_eq!(panic_text(&*panics.join().unwrap_err()), "on purpose");
        wait_until(|| sum.load(Ordering::SeqCst) == 2);
    });
}

/// A chain of goroutines that hand over begins when a sleeper wakes: it has not used up its slice while its P slept. Once
/// in many times the thread may be preempted here for longer than a slice.
#[test]
fn a_yield_after_a_sleep_runs_a_spawned_goroutine() {
    let _guard = hang_guard();
    let is_run_at_once = run(1, || {
        (0..20).any(|_| {
            sleep(Duration::from_millis(1));
            let spawned = spawn(|| ());
            yield_now();
            let is_run = spawned.is_finished();
            spawned.join().unwrap();
            is_run
        })
    });
    assert!(is_run_at_once, "20 of 20 ran at a later yield");
}

#[test]
fn is_finished_tells_the_end() {
    run(2, || {
        let go = spawn(task::park);
        for _ in 0..10 {
            yield_now();
            assert!(!go.is_finished());
        }
        go.task().unpark();
        wait_until(|| go.is_finished());
        go.join().unwrap();
        let panics = spawn(|| panic!("on purpose"));
        wait_until(|| panics.is_finished());
        panics.join().unwrap_err();
    });
}

#[test]
fn names_and_ids() {
    let outside = run(2, || {
        let main = task::current();
        assert_eq!(main.name(), Some("main"));
        let named = task::Builder::new()
            .name("capstan")
            .spawn(task::current)
            .unwrap();
        let seen = named.task();
        assert_eq!(seen.name(), Some("capstan"));
        let own = named.join().unwrap();
        assert_eq!((own.id(), own.name()), (seen.id(), Some("capstan")));
        let plain = spawn(task::current).join().unwrap();
        assert_eq!(plain.name(), None);
        let mut ids: HashSet<u64> = (0..1000)
            .map(|_| spawn(task::current))
            .map(|j| j.join().unwrap().id())
            .collect();
        ids.extend([main.id(), own.id(), plain.id()]);
        assert_eq!(ids.len(), 1003);
        assert!(!ids.contains(&0));
        let text = format!("{own:?}");
        assert!(
            text.contains("capstan") && text.contains(&own.id().to_string()),
            "{text}"
        );
        ids
    });
    let again: HashSet<u64> = run(2, || {
        (0..100)
            .map(|_| spawn(task::current).join().unwrap().id())
            .collect()
    });
    assert!(outside.is_disjoint(&again), "ids are unique in the process");
}

#[test]
fn handles_show_their_task() {
    run(1, || {
        let join = task::Builder::new().name("winch").spawn(|| ()).unwrap();
        assert!(format!("{join:?}").contains("winch"));
        task::scope(|s| {
            let join = task::Builder::new()
                .name("davit")
                .spawn_scoped(s, || ())
                .unwrap();
            assert!(format!("{join:?}").contains("davit"));
        });
    });
}

#[inline(never)]
fn deep(n: u32) -> u32 {
    let frame = std::hint::black_box([n; 200]);
    if n == 0 {
        frame[0]
    } else {
        std::hint::black_box(deep(n - 1)) + frame[100].min(1)
    }
}

#[test]
fn stack_sizes() {
    run(2, || {
        for bytes in [0, 16 * 1024 - 1, (1 << 32) + 1, usize::MAX] {
            let e = task::Builder::new()
                .stack_size(bytes)
                .spawn(|| ())
                .unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidInput);
            assert!(
                e.to_string().contains(&format!("stack_size({bytes})")),
                "{e}"
            );
        }
        for bytes in [
            16 * 1024,
            64 * 1024,
            65_537,
            1 << 20,
            (1 << 20) + 1,
            5_000_000,
            1 << 32,
        ] {
            let join = task::Builder::new()
                .stack_size(bytes)
                .spawn(move || bytes)
                .unwrap();
            assert_eq!(join.join().unwrap(), bytes);
        }
        // 200 numbers a frame: what does not fit the default fits the size asked for.
        let join = task::Builder::new()
            .stack_size(8 << 20)
            .spawn(|| deep(4000))
            .unwrap();
        assert_eq!(join.join().unwrap(), 4000);
    });
}

#[test]
fn the_runtimes_stack_size_is_the_default() {
    let _guard = hang_guard();
    let rt = util::build(windlass::Builder::new().processors(1).stack_size(8 << 20)).unwrap();
    assert_eq!(rt.run(|| spawn(|| deep(4000)).join().unwrap()), 4000);
}

#[test]
fn the_main_goroutine_has_a_large_stack() {
    assert_eq!(run(1, || deep(4000)), 4000);
}

#[test]
fn stacks_of_all_sizes_at_once() {
    run(4, || {
        let sizes = [16 << 10, 100_000, 300_000, 3 << 20];
        let all: Vec<_> = (0..400)
            .map(|i| {
                let size = sizes[i % 4];
                task::Builder::new()
                    .stack_size(size)
                    .spawn(move || {
                        let depth = (size / 32_768).max(1) as u32;
                        yield_now();
                        let sum = deep(depth);
                        yield_now();
                        sum == depth
                    })
                    .unwrap()
            })
            .collect();
        assert!(all.into_iter().all(|j| j.join().unwrap()));
    });
}

#[test]
fn a_plain_thread_joins() {
    let _guard = hang_guard();
    let rt = runtime(2);
    let handle = rt.handle();
    rt.run(|| {
        let gate = Gate::default();
        let threads: Vec<_> = (0..8)
            .map(|i| {
                let (handle, gate) = (handle.clone(), gate.clone());
                std::thread::spawn(move || {
                    let mut sum = 0;
                    for j in 0..200 {
                        let go = handle.spawn(move || {
                            if j % 3 == 0 {
                                yield_now();
                            }
                            i * j
                        });
                        if j == 0 {
                            gate.wait();
                        }
                        sum += go.join().unwrap();
                    }
                    assert!(handle.spawn(|| panic!("on purpose")).join().is_err());
                    sum
                })
            })
            .collect();
        gate.open();
        let sums: Vec<i32> = blocking(|| threads.into_iter().map(|t| t.join().unwrap()).collect());
        assert_eq!(sums, (0..8).map(|i| i * 19_900).collect::<Vec<_>>());
    });
}

#[test]
fn a_goroutine_started_by_one_is_joined_by_another() {
    run(3, || {
        let (send, receive) = mpsc::channel();
        for i in 0..1000 {
            send.send(spawn(move || i)).unwrap();
        }
        drop(send);
        let receive = Arc::new(Mutex::new(receive));
        let joiners: Vec<_> = (0..8)
            .map(|_| {
                let receive = Arc::clone(&receive);
                spawn(move || {
                    let mut sum = 0;
                    loop {
                        let next = receive.lock().unwrap().try_recv();
                        match next {
                            Ok(join) => sum += join.join().unwrap(),
                            Err(_) => return sum,
                        }
                    }
                })
            })
            .collect();
        let sum: i32 = joiners.into_iter().map(|j| j.join().unwrap()).sum();
        assert_eq!(sum, 499_500);
    });
}

// Parking

#[test]
fn unpark_before_park_is_kept() {
    run(1, || {
        let me = task::current();
        me.unpark();
        me.unpark();
        task::park();
        let other = spawn(|| {
            yield_now();
            task::park();
            1
        });
        other.task().unpark();
        assert_eq!(other.join().unwrap(), 1);
    });
}

#[test]
fn a_hundred_thousand_goroutines_park_and_wake() {
    const N: usize = 100_000;
    run(2, || {
        let woken = Arc::new(AtomicUsize::new(0));
        let go = Arc::new(AtomicBool::new(false));
        let all: Vec<_> = (0..N)
            .map(|_| {
                let (woken, go) = (Arc::clone(&woken), Arc::clone(&go));
                spawn(move || {
                    while !go.load(Ordering::Acquire) {
                        task::park();
                    }
                    woken.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        assert_eq!(woken.load(Ordering::Relaxed), 0);
        go.store(true, Ordering::Release);
        all.iter().for_each(|j| j.task().unpark());
        all.into_iter().for_each(|j| j.join().unwrap());
        assert_eq!(woken.load(Ordering::Relaxed), N);
    });
}

#[test]
fn goroutines_and_threads_unpark_one_another() {
    let _guard = hang_guard();
    let rt = runtime(2);
    rt.run(|| {
        let players: Vec<_> = (0..4)
            .map(|_| {
                let ball = Arc::new(AtomicUsize::new(0));
                let caught = Arc::clone(&ball);
                let (tell, told) = mpsc::channel::<Task>();
                let me = spawn(move || {
                    let thread: Task = blocking(|| told.recv()).unwrap();
                    for i in 0..2000 {
                        while caught.load(Ordering::Acquire) != 2 * i + 1 {
                            task::park();
                        }
                        caught.store(2 * i + 2, Ordering::Release);
                        thread.unpark();
                    }
                });
                let goroutine = me.task();
                let thread = std::thread::spawn(move || {
                    let me = task::current();
                    assert_eq!(me.id(), 0);
                    tell.send(me).unwrap();
                    for i in 0..2000 {
                        ball.store(2 * i + 1, Ordering::Release);
                        goroutine.unpark();
                        while ball.load(Ordering::Acquire) != 2 * i + 2 {
                            task::park();
                        }
                    }
                });
                (me, thread)
            })
            .collect();
        for (goroutine, thread) in players {
            goroutine.join().unwrap();
            blocking(|| thread.join()).unwrap();
        }
    });
}

#[test]
fn several_unparkers_lose_no_wake() {
    run(4, || {
        let count = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        let sleeper = spawn(move || {
            while seen.load(Ordering::SeqCst) < 40_000 {
                task::park();
            }
        });
        let task = sleeper.task();
        let wakers: Vec<_> = (0..4)
            .map(|_| {
                let (task, count) = (task.clone(), Arc::clone(&count));
                spawn(move || {
                    for i in 0..10_000 {
                        count.fetch_add(1, Ordering::SeqCst);
                        task.unpark();
                        if i % 16 == 0 {
                            yield_now();
                        }
                    }
                })
            })
            .collect();
        wakers.into_iter().for_each(|j| j.join().unwrap());
        sleeper.join().unwrap();
    });
}

#[test]
fn park_timeout_ends_by_itself_or_by_unpark() {
    run(2, || {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(20) {
            task::park_timeout(Duration::from_millis(5));
        }
        task::park_timeout(Duration::ZERO);
        // Hours: only an unpark can end it. Repeated, so that many timers go stale.
        let count = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        let sleeper = spawn(move || {
            for i in 1..=5000 {
                while seen.load(Ordering::Acquire) < i {
                    task::park_timeout(Duration::from_secs(36_000));
                }
                seen.store(0, Ordering::Release);
            }
        });
        let task = sleeper.task();
        for i in 1..=5000 {
            count.store(i, Ordering::Release);
            task.unpark();
            wait_until(|| count.load(Ordering::Acquire) == 0);
        }
        sleeper.join().unwrap();
    });
}

#[test]
fn park_timeout_against_unpark() {
    // Timer and unpark race; neither may be lost, nor end a later wait of another kind.
    run(4, || {
        let all: Vec<_> = (0..20)
            .map(|i| {
                spawn(move || {
                    for round in 0..200 {
                        let ready = Arc::new(AtomicBool::new(false));
                        let (me, set) = (task::current(), Arc::clone(&ready));
                        let waker = spawn(move || {
                            if (round + i) % 2 == 0 {
                                task::park_timeout(Duration::from_micros(50));
                            }
                            set.store(true, Ordering::Release);
                            me.unpark();
                        });
                        while !ready.load(Ordering::Acquire) {
                            task::park_timeout(Duration::from_micros(50));
                        }
                        let start = Instant::now();
                        windlass::sleep(Duration::from_micros(100));
                        assert!(start.elapsed() >= Duration::from_micros(100));
                        waker.join().unwrap();
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn a_task_outlives_its_goroutine_and_its_runtime() {
    let _guard = hang_guard();
    let census = Census::default();
    let (task, main) = {
        let rt = runtime(2);
        let pair = rt.run(|| {
            let member = census.member();
            let go = task::Builder::new()
                .name("gone")
                .spawn(move || drop(member))
                .unwrap();
            let task = go.task();
            go.join().unwrap();
            task.unpark();
            assert_eq!(task.name(), Some("gone"));
            (task, task::current())
        });
        pair.0.unpark();
        pair
    };
    census.assert_all_dropped(1);
    task.unpark();
    main.unpark();
    assert_eq!((task.name(), main.name()), (Some("gone"), Some("main")));
    assert_eq!(task.clone().id(), task.id());
    // Slots are used again: the old task must not unpark a stranger's wait for good.
    run(2, || {
        let go = spawn(|| windlass::sleep(Duration::from_millis(1)));
        task.unpark();
        go.join().unwrap();
    });
}

#[test]
fn current_and_park_on_a_plain_thread() {
    let _guard = hang_guard();
    let thread = std::thread::Builder::new()
        .name("plain".to_owned())
        .spawn(|| {
            let me = task::current();
            assert_eq!((me.id(), me.name()), (0, Some("plain")));
            me.unpark();
            task::park();
            task::park_timeout(Duration::from_millis(1));
            yield_now();
            let flag = Arc::new(AtomicBool::new(false));
            let set = Arc::clone(&flag);
            let other = std::thread::spawn(move || {
                set.store(true, Ordering::Release);
                me.unpark();
            });
            while !flag.load(Ordering::Acquire) {
                task::park();
            }
            other.join().unwrap();
            assert!(format!("{:?}", task::current()).contains("plain"));
        });
    thread.unwrap().join().unwrap();
}

// Yielding

#[test]
fn two_yielders_take_turns_on_one_p() {
    run(1, || {
        let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let play = |me: usize| {
            let counts = Arc::clone(&counts);
            spawn(move || {
                // Ends only if the other one goes on, too.
                for i in 1..=20_000 {
                    counts[me].store(i, Ordering::SeqCst);
                    yield_now();
                }
                wait_until(|| counts[1 - me].load(Ordering::SeqCst) == 20_000);
            })
        };
        let both = [play(0), play(1)];
        both.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn a_yielder_starves_nobody() {
    run(1, || {
        // A fresh goroutine, a sleeper, one woken by a thread, all beside endless yielders.
        let stop = Arc::new(AtomicBool::new(false));
        let yielders: Vec<_> = (0..3)
            .map(|_| {
                let stop = Arc::clone(&stop);
                spawn(move || wait_until(|| stop.load(Ordering::Relaxed)))
            })
            .collect();
        for _ in 0..20 {
            spawn(|| ()).join().unwrap();
            spawn(|| windlass::sleep(Duration::from_micros(200)))
                .join()
                .unwrap();
            let parked = spawn(task::park);
            let task = parked.task();
            let thread = std::thread::spawn(move || task.unpark());
            parked.join().unwrap();
            blocking(|| thread.join()).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        yielders.into_iter().for_each(|j| j.join().unwrap());
    });
}

/// More goroutines take turns than the local queue holds, each for 20 µs. One that is spawned from
/// outside is queued with the node, and waits for a few rounds: it waited for some twenty.
#[test]
fn a_spawn_from_outside_waits_for_a_few_rounds_of_the_others() {
    const YIELDERS: usize = 300;
    if util::is_chaotic() {
        return;
    }
    let _guard = hang_guard();
    let rt = runtime(1);
    let handle = rt.handle();
    let (stop, turns) = (Arc::default(), Arc::default());
    let (stopped, counted): (Arc<AtomicBool>, Arc<AtomicUsize>) =
        (Arc::clone(&stop), Arc::clone(&turns));
    let outside = std::thread::spawn(move || {
        // Until the queues have overflowed.
        while counted.load(Ordering::Relaxed) < 20 * YIELDERS {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut waits: Vec<_> = (0..15)
            .map(|_| {
                let (s, r) = mpsc::channel();
                let turns = Arc::clone(&counted);
                let before = turns.load(Ordering::Relaxed);
                handle.spawn(move || s.send(turns.load(Ordering::Relaxed)));
                r.recv().unwrap() - before
            })
            .collect();
        stopped.store(true, Ordering::Relaxed);
        waits.sort_unstable();
        waits
    });
    rt.run(|| {
        let yielders = (0..YIELDERS).map(|_| {
            let (stop, turns): (Arc<AtomicBool>, Arc<AtomicUsize>) =
                (Arc::clone(&stop), Arc::clone(&turns));
            spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    while begun.elapsed() < Duration::from_micros(20) {
                        std::hint::spin_loop();
                    }
                    turns.fetch_add(1, Ordering::Relaxed);
                    yield_now();
                }
            })
        });
        let yielders: Vec<_> = yielders.collect();
        yielders.into_iter().for_each(|j| j.join().unwrap());
    });
    let waits = outside.join().unwrap();
    assert!(waits[7] < 8 * YIELDERS, "turns of others: {waits:?}");
}

#[test]
fn a_pair_that_hands_over_starves_nobody() {
    run(1, || {
        let stop = Arc::new(AtomicBool::new(false));
        let pair = |stop: &Arc<AtomicBool>| {
            let (a_stop, b_stop) = (Arc::clone(stop), Arc::clone(stop));
            let (tell, told) = mpsc::channel::<Task>();
            let a = spawn(move || {
                let other = told.recv().unwrap();
                while !a_stop.load(Ordering::Relaxed) {
                    other.unpark();
                    task::park();
                }
                other.unpark();
            });
            let other = a.task();
            let b = spawn(move || {
                while !b_stop.load(Ordering::Relaxed) {
                    other.unpark();
                    task::park();
                }
                other.unpark();
            });
            tell.send(b.task()).unwrap();
            [a, b]
        };
        let pairs = [pair(&stop), pair(&stop)];
        for _ in 0..20 {
            spawn(yield_now).join().unwrap();
            windlass::sleep(Duration::from_micros(100));
        }
        stop.store(true, Ordering::Relaxed);
        pairs.into_iter().flatten().for_each(|j| j.join().unwrap());
    });
}

/// Sleepers that compute for longer than they sleep always wake while another runs, and leave the queue its turns.
#[test]
fn sleepers_that_compute_starve_nobody() {
    let _guard = hang_guard();
    run(1, || {
        let stop = Arc::new(AtomicBool::new(false));
        let sleepers = [(); 3].map(|()| {
            let stopped = Arc::clone(&stop);
            spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    let begin = Instant::now();
                    while begin.elapsed() < Duration::from_micros(30) {}
                    sleep(Duration::from_micros(10));
                }
            })
        });
        for _ in 0..1000 {
            yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        sleepers.into_iter().for_each(|s| s.join().unwrap());
    });
}

/// Goroutines whose operations complete without end leave the others their turns.
#[test]
fn a_pair_that_sends_bytes_starves_nobody() {
    run(1, || {
        let (mut near, mut far) = pair();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let sends = spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                near.write_all(&[7]).unwrap();
                near.read_exact(&mut [0]).unwrap();
            }
        });
        let answers = spawn(move || {
            let mut byte = [0];
            while far.read(&mut byte).unwrap() > 0 {
                far.write_all(&byte).unwrap();
            }
        });
        // As they stay in the queue, a slice may be over.
        let yielders = [(); 10].map(|()| {
            let stopped = Arc::clone(&stop);
            spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    yield_now();
                }
            })
        });
        for _ in 0..100 {
            spawn(yield_now).join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        for join in yielders.into_iter().chain([sends, answers]) {
            join.join().unwrap();
        }
    });
}

/// While an operation is in flight and none completes, pairs that hand over give way sooner: what
/// completes may wait for a turn of each.
#[test]
fn hand_overs_give_way_sooner_beside_a_read() {
    const PAIRS: usize = 4;
    const LOOK: Duration = Duration::from_millis(100);
    /// Which pair had the last turn, how many it had without a turn of another, and those numbers of
    /// the pairs before.
    #[derive(Default)]
    struct Turns {
        last: usize,
        n: usize,
        runs: Vec<usize>,
    }
    let [alone, beside_a_read] = run(1, || {
        let stop = AtomicBool::new(false);
        let turns = Mutex::new(Turns::default());
        let (near, mut far) = pair();
        task::scope(|s| {
            for pair in 0..PAIRS {
                let (ours, theirs) = (bounded(0), bounded(0));
                let (stop, turns, to, from) = (&stop, &turns, ours.0, theirs.1);
                s.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let mut turns = turns.lock().unwrap();
                        if turns.last != pair {
                            let n = std::mem::take(&mut turns.n);
                            turns.runs.push(n);
                            turns.last = pair;
                        }
                        turns.n += 1;
                        drop(turns);
                        to.send(()).unwrap();
                        from.recv().unwrap();
                    }
                });
                let (from, to) = (ours.1, theirs.0);
                s.spawn(move || while from.recv().is_ok() && to.send(()).is_ok() {});
            }
            let median_run = || {
                turns.lock().unwrap().runs.clear();
                sleep(LOOK);
                let mut runs = std::mem::take(&mut turns.lock().unwrap().runs);
                runs.sort_unstable();
                runs[runs.len() / 2]
            };
            let alone = median_run();
            s.spawn(move || assert_eq!(far.read(&mut [0]).unwrap(), 0));
            let beside_a_read = median_run();
            stop.store(true, Ordering::Relaxed);
            drop(near);
            [alone, beside_a_read]
        })
    });
    assert!(
        2 * beside_a_read < alone || util::is_chaotic(),
        "turns in a row: {beside_a_read}, and {alone} without I/O"
    );
}

// Scopes

#[test]
fn scopes_borrow() {
    let (words, n) = run(2, || {
        let mut words = vec!["heave".to_owned(), "ho".to_owned()];
        let n = AtomicUsize::new(0);
        let total = task::scope(|s| {
            for word in &mut words {
                let n = &n;
                s.spawn(move || {
                    yield_now();
                    n.fetch_add(word.len(), Ordering::Relaxed);
                    word.push('!');
                });
            }
            let counted = s.spawn(|| 40);
            counted.join().unwrap() + 2
        });
        assert_eq!(total, 42);
        (words, n.into_inner())
    });
    assert_eq!((words.join(" "), n), ("heave! ho!".to_owned(), 7));
}

#[test]
fn scopes_nest_and_their_goroutines_spawn_in_them() {
    fn sum(numbers: &[u64]) -> u64 {
        if numbers.len() < 8 {
            return numbers.iter().sum();
        }
        let (left, right) = numbers.split_at(numbers.len() / 2);
        windlass::scope(|s| {
            let left = s.spawn(|| sum(left));
            let right = s.spawn(|| sum(right));
            left.join().unwrap() + right.join().unwrap()
        })
    }
    run(4, || {
        let numbers: Vec<u64> = (0..5000).collect();
        assert_eq!(sum(&numbers), 12_497_500);
        let n = AtomicUsize::new(0);
        task::scope(|s| {
            for _ in 0..10 {
                s.spawn(|| {
                    for _ in 0..10 {
                        s.spawn(|| n.fetch_add(1, Ordering::Relaxed));
                    }
                });
            }
        });
        assert_eq!(n.into_inner(), 100);
    });
}

#[test]
fn a_scope_waits_for_all_also_when_it_panics() {
    run(2, || {
        let n = AtomicUsize::new(0);
        let payload = catch_unwind(AssertUnwindSafe(|| {
            task::scope(|s| {
                for _ in 0..10 {
                    s.spawn(|| {
                        windlass::sleep(Duration::from_millis(1));
                        n.fetch_add(1, Ordering::Relaxed);
                    });
                }
                panic!("the scope's own");
            })
        }))
        .unwrap_err();
        assert_eq!(panic_text(&*payload), "the scope's own");
        assert_eq!(n.into_inner(), 10);
    });
}

#[test]
fn scoped_panics_as_std_has_them() {
    run(2, || {
        // Not joined: the scope panics.
        let payload = catch_unwind(|| {
            task::scope(|s| {
                s.spawn(|| panic!("a scoped one"));
            });
        })
        .unwrap_err();
        assert_eq!(panic_text(&*payload), "a scoped goroutine panicked");
        // Joined: it does not.
        let n = task::scope(|s| {
            let payload = s.spawn(|| panic!("a joined one")).join().unwrap_err();
            assert_eq!(panic_text(&*payload), "a joined one");
            5
        });
        assert_eq!(n, 5);
        // The scope's own panic goes before.
        let payload = catch_unwind(|| {
            task::scope(|s| {
                s.spawn(|| panic!("a scoped one"));
                panic!("the scope's own");
            })
        })
        .unwrap_err();
        assert_eq!(panic_text(&*payload), "the scope's own");
    });
}

/// As in `std`, it does not matter whether the goroutine or its handle goes first.
#[test]
fn a_scoped_panic_counts_though_the_handle_goes_last() {
    const TEXT: &str = "a scoped goroutine panicked";
    run(2, || {
        let all: [fn(); 4] = [
            || {
                task::scope(|s| {
                    let early = s.spawn(|| panic!("ended first"));
                    wait_until(|| early.is_finished());
                    drop(early);
                });
            },
            || {
                task::scope(|s| {
                    let _early = s.spawn(|| panic!("ended first"));
                    wait_until(|| _early.is_finished());
                });
            },
            || {
                task::scope_in(&Context::background(), |s| {
                    let early = s.spawn(|| panic!("ended first"));
                    wait_until(|| early.is_finished());
                });
            },
            || {
                thread::scope(|s| {
                    let early = s.spawn(|| panic!("ended first"));
                    wait_until(|| early.is_finished());
                });
            },
        ];
        for scope in all {
            assert_eq!(panic_text(&*catch_unwind(scope).unwrap_err()), TEXT);
        }
        // The handle is dropped by another goroutine of the scope.
        let moved = catch_unwind(|| {
            task::scope(|s| {
                let early = s.spawn(|| panic!("ended first"));
                wait_until(|| early.is_finished());
                s.spawn(move || drop(early)).join().unwrap();
            });
        });
        assert_eq!(panic_text(&*moved.unwrap_err()), TEXT);
        // Joined by one that gives up at first, and then joins.
        let n = task::scope(|s| {
            let joined = s.spawn(|| panic!("joined"));
            wait_until(|| joined.is_finished());
            let payload = joined.join_timeout(Duration::ZERO).unwrap().unwrap_err();
            assert_eq!(panic_text(&*payload), "joined");
            7
        });
        assert_eq!(n, 7);
    });
}

#[test]
fn scoped_builder_and_handles() {
    run(2, || {
        let text = "borrowed".to_owned();
        task::scope(|s| {
            let join = task::Builder::new()
                .name("scoped")
                .stack_size(1 << 20)
                .spawn_scoped(s, || (task::current().name() == Some("scoped"), text.len()))
                .unwrap();
            assert_eq!(join.task().name(), Some("scoped"));
            wait_until(|| join.is_finished());
            assert_eq!(join.join().unwrap(), (true, 8));
            let e = task::Builder::new()
                .stack_size(1)
                .spawn_scoped(s, || ())
                .unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidInput);
        });
    });
}

#[test]
fn a_scope_drops_closures_and_results_before_it_ends() {
    run(2, || {
        let census = Census::default();
        for round in 0..200 {
            let joined = task::scope(|s| {
                for _ in 0..5 {
                    let (captured, result) = (census.member(), census.member());
                    s.spawn(move || {
                        if round % 2 == 0 {
                            yield_now();
                        }
                        drop(captured);
                        result
                    });
                }
                let member = census.member();
                s.spawn(move || member).join().unwrap()
            });
            assert_eq!(census.dropped() + 1, census.made());
            drop(joined);
        }
        census.assert_all_dropped(2200);
    });
}

#[test]
fn a_scope_works_on_a_plain_thread() {
    assert_eq!(task::scope(|_| 3), 3);
    let payload = catch_unwind(|| task::scope(|_| -> () { panic!("plain") })).unwrap_err();
    assert_eq!(panic_text(&*payload), "plain");
}

// Closures and results of every size, alignment and fate

#[repr(align(64))]
struct Wide([u8; 64]);

#[repr(align(4096))]
struct Page([u8; 4096]);

#[test]
fn large_closures_and_results() {
    run(2, || {
        let large = [7_u8; 3000];
        let result = spawn(move || {
            yield_now();
            let mut doubled = [0_u16; 3000];
            for (to, from) in doubled.iter_mut().zip(large) {
                *to = u16::from(from) * 2;
            }
            doubled
        });
        assert!(result.join().unwrap().iter().all(|&n| n == 14));
        // Around the sizes of slots.
        macro_rules! sizes {
            ($($n:literal)*) => { $(
                let bytes = [($n % 251) as u8; $n];
                let join = spawn(move || (bytes, 1_u8));
                assert!(join.join().unwrap().0.iter().all(|&b| usize::from(b) == $n % 251));
                drop(spawn(move || bytes));
                drop(spawn(move || bytes.len()));
            )* };
        }
        sizes!(1 15 16 17 63 64 79 80 81 95 96 97 255 256 257 335 336 337 351 352 353 500 512 513 1024 4096);
        let small_to_large = spawn(|| [1_u64; 500]);
        let large_to_small = spawn(move || large[2999]);
        assert_eq!(small_to_large.join().unwrap().iter().sum::<u64>(), 500);
        assert_eq!(large_to_small.join().unwrap(), 7);
    });
}

#[test]
fn a_very_large_value_needs_a_stack_to_match() {
    run(2, || {
        let large = Box::new([3_u8; 1 << 20]);
        let join = task::Builder::new()
            .stack_size(16 << 20)
            .spawn(move || *large)
            .unwrap();
        assert_eq!(join.join().unwrap()[(1 << 20) - 1], 3);
    });
}

#[test]
fn over_aligned_closures_and_results() {
    run(2, || {
        for _ in 0..50 {
            let (wide, page) = (Wide([5; 64]), Page([6; 4096]));
            let join = spawn(move || {
                let wide = wide;
                assert_eq!(std::ptr::from_ref(&wide).addr() % 64, 0);
                assert_eq!(wide.0, [5; 64]);
                yield_now();
                assert_eq!(std::ptr::from_ref(&wide).addr() % 64, 0);
                wide
            });
            assert_eq!(join.join().unwrap().0, [5; 64]);
            // Debug builds copy it from frame to frame.
            let roomy = task::Builder::new().stack_size(4 << 20);
            let join = roomy
                .spawn(move || {
                    assert_eq!(std::ptr::from_ref(&page).addr() % 4096, 0);
                    (1_u8, page)
                })
                .unwrap();
            assert_eq!(join.join().unwrap().1.0, [6; 4096]);
            drop(spawn(|| Wide([1; 64])));
        }
    });
}

#[test]
fn closures_and_results_without_size() {
    struct Nothing;
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    impl Drop for Nothing {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::SeqCst);
        }
    }
    DROPPED.store(0, Ordering::SeqCst);
    run(2, || {
        spawn(|| ()).join().unwrap();
        let nothing = Nothing;
        let back = spawn(move || nothing).join().unwrap();
        assert_eq!(DROPPED.load(Ordering::SeqCst), 0);
        drop(back);
        drop(spawn(|| Nothing));
        wait_until(|| DROPPED.load(Ordering::SeqCst) == 2);
    });
    assert_eq!(DROPPED.load(Ordering::SeqCst), 2);
}

#[test]
fn closures_and_results_are_dropped_once() {
    let _guard = hang_guard();
    let (closures, results) = (Census::default(), Census::default());
    let rt = runtime(3);
    let handle = rt.handle();
    rt.run(|| {
        let make = |panics: bool| {
            let (closure, result) = (closures.member(), results.member());
            move || {
                let _closure = closure;
                if panics {
                    std::panic::resume_unwind(Box::new(result));
                }
                result
            }
        };
        // Joined; joined after a panic whose payload is counted, too.
        for panics in [false, true] {
            let joins: Vec<_> = (0..100).map(|_| spawn(make(panics))).collect();
            for join in joins {
                let before = results.dropped();
                let outcome = join.join();
                assert_eq!(outcome.is_err(), panics);
                assert_eq!(results.dropped(), before);
            }
        }
        // Detached before, while and after they run.
        for panics in [false, true] {
            (0..100).for_each(|_| drop(spawn(make(panics))));
            (0..100).for_each(|_| drop(handle.spawn(make(panics))));
            let joins: Vec<_> = (0..100).map(|_| spawn(make(panics))).collect();
            wait_until(|| joins.iter().all(JoinHandle::is_finished));
            drop(joins);
        }
        wait_until(|| results.dropped() == 800);
        assert_eq!(closures.dropped(), 800);
        // Large ones live in a box.
        let padding = [1_u8; 2000];
        let (closure, result) = (closures.member(), results.member());
        let join = spawn(move || {
            let _closure = closure;
            (padding, result)
        });
        drop(join.join().unwrap());
        // Never joined: their handles go with the frame of the main goroutine, or are leaked out.
        let joins: Vec<_> = (0..10).map(|_| spawn(make(false))).collect();
        wait_until(|| joins.iter().all(JoinHandle::is_finished));
        assert_eq!(results.dropped(), 801);
        joins
    });
    closures.assert_all_dropped(811);
    results.assert_all_dropped(811);
}

#[test]
fn results_of_a_past_run_wait_for_join() {
    let _guard = hang_guard();
    let census = Census::default();
    let rt = runtime(2);
    let (ended, cancelled) = rt.run(|| {
        let (a, b) = (census.member(), census.member());
        let ended = spawn(move || a);
        wait_until(|| ended.is_finished());
        let cancelled = spawn(move || {
            let _b = b;
            task::park();
        });
        (ended, cancelled)
    });
    drop(rt);
    assert_eq!((census.made(), census.dropped()), (2, 1));
    assert!(cancelled.join().unwrap_err().is::<Cancelled>());
    drop(ended.join().unwrap());
    census.assert_all_dropped(2);
}

#[test]
fn goroutines_cancelled_before_they_ran_drop_their_closures() {
    let _guard = hang_guard();
    let census = Census::default();
    let rt = runtime(1);
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..20 {
        let joins: Vec<_> = rt.run(|| {
            (0..300)
                .map(|_| {
                    let (member, ran) = (census.member(), Arc::clone(&ran));
                    spawn(move || {
                        ran.fetch_add(1, Ordering::SeqCst);
                        drop(member);
                    })
                })
                .collect()
        });
        let n_ok = joins
            .into_iter()
            .map(JoinHandle::join)
            .filter(Result::is_ok)
            .count();
        assert_eq!(n_ok, ran.swap(0, Ordering::SeqCst));
    }
    census.assert_all_dropped(6000);
}

#[test]
fn dropping_a_handle_races_with_the_end() {
    let _guard = hang_guard();
    let census = Census::default();
    let rt = runtime(4);
    let handle = rt.handle();
    rt.run(|| {
        let thread = {
            let census = census.clone();
            std::thread::spawn(move || {
                for i in 0..5000 {
                    let (a, b) = (census.member(), census.member());
                    let join = handle.spawn(move || {
                        drop(a);
                        b
                    });
                    for _ in 0..i % 64 {
                        std::hint::spin_loop();
                    }
                    drop(join);
                }
            })
        };
        for i in 0..20_000 {
            let (a, b) = (census.member(), census.member());
            let join = spawn(move || {
                drop(a);
                b
            });
            match i % 4 {
                0 => {}
                1 => yield_now(),
                2 => (0..i % 200).for_each(|_| std::hint::spin_loop()),
                _ => {
                    let dropper = spawn(move || drop(join));
                    drop(dropper);
                    continue;
                }
            }
            drop(join);
        }
        blocking(|| thread.join()).unwrap();
        wait_until(|| census.dropped() == 50_000);
    });
    census.assert_all_dropped(50_000);
}

#[test]
fn joining_races_with_the_end() {
    run(4, || {
        for i in 0..util::much(20_000, 500) as u32 {
            let join = spawn(move || i);
            if i % 3 == 0 {
                (0..i % 200).for_each(|_| std::hint::spin_loop());
            }
            assert_eq!(join.join().unwrap(), i);
        }
    });
}

#[test]
fn panics_in_destructors_of_results_are_contained() {
    struct Angry;
    impl Drop for Angry {
        fn drop(&mut self) {
            panic!("a result's destructor, on purpose");
        }
    }
    run(2, || {
        drop(spawn(|| Angry));
        let join = spawn(|| Angry);
        wait_until(|| join.is_finished());
        let _ = catch_unwind(AssertUnwindSafe(|| drop(join)));
        let caught = catch_unwind(|| drop(spawn(|| Angry).join().unwrap()));
        assert!(caught.is_err());
        let payload = spawn(|| std::panic::panic_any(Angry)).join().unwrap_err();
        let caught = catch_unwind(AssertUnwindSafe(|| drop(payload)));
        assert!(caught.is_err());
        assert_eq!(spawn(|| 4).join().unwrap(), 4);
    });
}

// errno

#[test]
fn errno_is_kept_across_parks() {
    run(2, || {
        let all: Vec<_> = (1..=40)
            .map(|i| {
                spawn(move || {
                    for round in 0..30 {
                        util::set_errno(i);
                        match round % 3 {
                            0 => windlass::sleep(Duration::from_micros(100)),
                            1 => task::park_timeout(Duration::from_micros(100)),
                            _ => {
                                let join = spawn(|| {
                                    util::set_errno(99);
                                    yield_now();
                                });
                                util::set_errno(i);
                                join.join().unwrap();
                            }
                        }
                        assert_eq!(util::errno(), i, "round {round}");
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn errno_is_kept_across_yields() {
    run(2, || {
        let all: Vec<_> = (1..=40)
            .map(|i| {
                spawn(move || {
                    for _ in 0..200 {
                        util::set_errno(i);
                        yield_now();
                        assert_eq!(util::errno(), i);
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn errno_is_kept_when_a_blocking_section_ends_elsewhere() {
    run(1, || {
        let all: Vec<_> = (1..=10)
            .map(|i| {
                spawn(move || {
                    let lost = Arc::new(AtomicBool::new(false));
                    let seen = Arc::clone(&lost);
                    // Runs only once the section has lost the P.
                    let other = spawn(move || seen.store(true, Ordering::SeqCst));
                    blocking(|| {
                        while !lost.load(Ordering::SeqCst) {
                            std::thread::yield_now();
                        }
                        util::set_errno(i);
                    });
                    assert_eq!(util::errno(), i);
                    other.join().unwrap();
                })
            })
            .collect();
        all.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn errno_is_kept_when_a_hog_loses_its_p() {
    run(1, || {
        for i in 1..=5 {
            let lost = Arc::new(AtomicBool::new(false));
            let seen = Arc::clone(&lost);
            let other = spawn(move || {
                seen.store(true, Ordering::SeqCst);
                util::set_errno(77);
            });
            // A hog: nothing here calls windlass until the other one has run.
            while !lost.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
            util::set_errno(i);
            // Finds that the P is gone, and goes on on another thread.
            assert!(task::current().id() != 0);
            drop(spawn(|| ()));
            assert_eq!(util::errno(), i);
            other.join().unwrap();
        }
    });
}

/// Computes for so long by the clock, whatever else the machine does.
fn spin(d: Duration) {
    let end = Instant::now() + d;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// A pair whose hand-overs take 100 µs, after one whose hand-overs take next to nothing: how long
/// a chain may be is a matter of time.
#[test]
fn a_chain_of_slow_hand_overs_ends_with_its_slice() {
    const SLOW: Duration = Duration::from_micros(100);
    /// Three slices of 200 µs.
    const MOST_IN_A_ROW: usize = 6;
    let _guard = hang_guard();
    run(1, || {
        let stop = AtomicBool::new(false);
        let n_quick = AtomicUsize::new(0);
        let chains = Mutex::new(vec![0]);
        let hand_over = |is_slow: bool| {
            if !is_slow {
                n_quick.fetch_add(1, Ordering::Relaxed);
                return;
            }
            spin(SLOW);
            let mut chains = chains.lock().unwrap();
            if n_quick.swap(0, Ordering::Relaxed) > 0 {
                chains.push(0);
            }
            *chains.last_mut().unwrap() += 1;
        };
        task::scope(|s| {
            for is_slow in [false, true] {
                let (there, here) = bounded::<()>(0);
                let (back, again) = bounded::<()>(0);
                let (stop, hand_over) = (&stop, &hand_over);
                s.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        hand_over(is_slow);
                        if there.send(()).is_err() || again.recv().is_err() {
                            break;
                        }
                    }
                });
                s.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        hand_over(is_slow);
                        if here.recv().is_err() || back.send(()).is_err() {
                            break;
                        }
                    }
                });
            }
            while chains.lock().unwrap().len() < 200 {
                sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
        });
        // On a busy machine a goroutine of the quick pair may lose its P now and then, and its
        // thread get no CPU. With disorder it is held up more often.
        let chains = chains.into_inner().unwrap();
        let n_long = chains.iter().filter(|&&n| n > MOST_IN_A_ROW).count();
        let one_in = if util::is_chaotic() { 4 } else { 10 };
        assert!(
            n_long * one_in < chains.len(),
            "{n_long} long ones: {chains:?}"
        );
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    join_gives_the_value,
    nobody_joins_itself,
    goroutines_spawn_goroutines,
    more_goroutines_than_a_queue_holds,
    a_panics_payload_reaches_join,
    a_detached_panic_does_not_stop_others / 20,
    a_panic_is_not_seen_by_other_goroutines: "it reads an atomic in a loop without a call",
    a_goroutine_may_catch_its_own_panics / 10,
    a_destructor_may_wait_and_spawn_during_a_panic: "a destructor that waits ends a simulation",
    a_yield_after_a_sleep_runs_a_spawned_goroutine,
    is_finished_tells_the_end,
    names_and_ids,
    handles_show_their_task,
    stack_sizes / 5,
    the_runtimes_stack_size_is_the_default: "it has a runtime of its own",
    the_main_goroutine_has_a_large_stack / 5,
    stacks_of_all_sizes_at_once / 20,
    a_plain_thread_joins: "it uses threads",
    a_goroutine_started_by_one_is_joined_by_another,
    unpark_before_park_is_kept,
    a_hundred_thousand_goroutines_park_and_wake: "it takes too many steps",
    goroutines_and_threads_unpark_one_another: "it uses threads",
    several_unparkers_lose_no_wake / 10,
    park_timeout_ends_by_itself_or_by_unpark / 10,
    park_timeout_against_unpark / 50,
    a_task_outlives_its_goroutine_and_its_runtime: "it has a runtime of its own",
    current_and_park_on_a_plain_thread: "it uses threads",
    two_yielders_take_turns_on_one_p / 20,
    a_yielder_starves_nobody: "it asks for the fairness of a scheduler",
    a_spawn_from_outside_waits_for_a_few_rounds_of_the_others: "it uses threads",
    a_pair_that_hands_over_starves_nobody: "it asks for the fairness of a scheduler",
    sleepers_that_compute_starve_nobody: "they compute for a time",
    a_pair_that_sends_bytes_starves_nobody: "it asks for the fairness of a scheduler",
    hand_overs_give_way_sooner_beside_a_read: "it asks for the fairness of a scheduler",
    scopes_borrow,
    scopes_nest_and_their_goroutines_spawn_in_them / 10,
    a_scope_waits_for_all_also_when_it_panics,
    scoped_panics_as_std_has_them,
    a_scoped_panic_counts_though_the_handle_goes_last,
    scoped_builder_and_handles,
    a_scope_drops_closures_and_results_before_it_ends,
    a_scope_works_on_a_plain_thread,
    large_closures_and_results,
    a_very_large_value_needs_a_stack_to_match / 10,
    over_aligned_closures_and_results,
    closures_and_results_without_size,
    closures_and_results_are_dropped_once: "it has a runtime of its own",
    results_of_a_past_run_wait_for_join: "it has a runtime of its own",
    goroutines_cancelled_before_they_ran_drop_their_closures: "it has a runtime of its own",
    dropping_a_handle_races_with_the_end: "it uses threads",
    joining_races_with_the_end,
    panics_in_destructors_of_results_are_contained,
    errno_is_kept_across_parks,
    errno_is_kept_across_yields / 10,
    errno_is_kept_when_a_blocking_section_ends_elsewhere: "it uses threads",
    errno_is_kept_when_a_hog_loses_its_p: "it computes without a call",
    a_chain_of_slow_hand_overs_ends_with_its_slice: "it computes without a call",
}

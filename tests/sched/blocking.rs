//! Code that blocks or hogs its thread: declared, undeclared, offloaded.
#![allow(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "blocking threads is what is tested"
)]

use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crate::util;
use crate::util::{
    Census, Gate, build, child_case, child_passes, child_passes_with_io, hang_guard, panic_text,
    run, runtime, thread_cpu, wait_until,
};
use windlass::net::{TcpListener, TcpStream};
use windlass::{Builder, blocking, offload, sleep, spawn, task, yield_now};

/// One byte there and back.
fn echo() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut byte = [0];
        while peer.read(&mut byte).unwrap() == 1 {
            peer.write_all(&byte).unwrap();
        }
    });
    let mut stream = TcpStream::connect(addr).unwrap();
    for i in 0..10 {
        let mut answer = [0];
        stream.write_all(&[i]).unwrap();
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [i]);
    }
    drop(stream);
    server.join().unwrap();
}

/// The slice of whoever wakes from a sleep begins then, not before it: what it spawns is next.
#[test]
fn what_is_spawned_after_a_sleep_runs_at_the_first_yield() {
    const N: usize = 200;
    run(1, || {
        let at_once = (0..N).filter(|_| {
            sleep(Duration::from_millis(1));
            let spawned = spawn(|| ());
            yield_now();
            spawned.is_finished()
        });
        let n_at_once = at_once.count();
        // A busy machine may take the CPU away for longer than a slice now and then.
        assert!(n_at_once > N / 2, "{n_at_once} of {N}");
    });
}

/// Also in the section that windlass-hook uses, whose caller stays on its thread.
#[test]
fn a_panic_leaves_a_section_that_keeps_its_thread() {
    run(1, || {
        for takes_long in [false, true] {
            let goroutine = spawn(move || {
                let section = catch_unwind(|| {
                    windlass::foreign::block(|| -> () {
                        if takes_long {
                            std::thread::sleep(Duration::from_millis(30));
                        }
                        panic!("of the section");
                    })
                });
                assert_eq!(panic_text(&*section.unwrap_err()), "of the section");
                spawn(yield_now).join().unwrap();
            });
            goroutine.join().unwrap();
        }
    });
}

#[test]
fn hogs_on_every_p_stop_nobody() {
    let _guard = hang_guard();
    let rt = runtime(2);
    rt.run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let n_running = Arc::new(AtomicUsize::new(0));
        let hogs: Vec<_> = (0..3)
            .map(|_| {
                let (stop, n_running) = (Arc::clone(&stop), Arc::clone(&n_running));
                spawn(move || {
                    n_running.fetch_add(1, Ordering::SeqCst);
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                })
            })
            .collect();
        // More hogs than Ps: that all run shows that Ps were taken.
        wait_until(|| n_running.load(Ordering::SeqCst) == 3);
        for _ in 0..5 {
            sleep(Duration::from_millis(1));
        }
        echo();
        assert_eq!(spawn(|| 5).join().unwrap(), 5);
        assert!(rt.metrics().retakes > 0);
        stop.store(true, Ordering::Relaxed);
        hogs.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn a_hog_that_calls_windlass_now_and_then_goes_on() {
    run(1, || {
        let done = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&done);
        let hog = spawn(move || {
            let mut n = 0_u64;
            while !seen.load(Ordering::Relaxed) {
                for _ in 0..100_000 {
                    std::hint::spin_loop();
                }
                n += 1;
                if n.is_multiple_of(50) {
                    drop(spawn(|| ()));
                }
            }
            n
        });
        for _ in 0..5 {
            sleep(Duration::from_millis(1));
            spawn(yield_now).join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        assert!(hog.join().unwrap() > 0);
    });
}

/// The main goroutine computes until another one has been woken, again and again, on one P.
/// Returns how often the P was retaken because something was due.
fn computes_until_woken(
    wake: impl FnMut() + Send + 'static,
    mut woken: impl FnMut() + Send,
) -> u64 {
    const ROUNDS: usize = 20;
    let rt = runtime(1);
    let n_woken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&n_woken);
    rt.run(|| {
        let mut wake = wake;
        let waiter = spawn(move || {
            for _ in 0..ROUNDS {
                wake();
                counter.fetch_add(1, Ordering::SeqCst);
            }
        });
        for i in 1..=ROUNDS {
            yield_now();
            woken();
            while n_woken.load(Ordering::SeqCst) < i {
                std::hint::spin_loop();
            }
        }
        waiter.join().unwrap();
    });
    rt.metrics().total().retakes_due
}

#[test]
fn a_due_timer_does_not_wait_for_a_hog() {
    let _guard = hang_guard();
    // Not at the first attempt if sysmon gets no CPU in time. Never if P are retaken after 10 ms.
    while computes_until_woken(|| sleep(Duration::from_millis(1)), || {}) == 0 {}
}

#[test]
fn a_completion_does_not_wait_for_a_hog() {
    let _guard = hang_guard();
    if child_case().is_none() {
        let name = "a_completion_does_not_wait_for_a_hog";
        child_passes_with_io(name, "child", Some("epoll"));
    }
    // As above.
    while retakes_for_completions() == 0 {}
}

/// A plain thread answers the main goroutine while that computes. Returns how often the P was
/// retaken because something was due.
fn retakes_for_completions() -> u64 {
    let (mut far, near) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut near = windlass::net::UnixStream::from(near);
    let (tx, rx) = std::sync::mpsc::channel::<()>();
    let sender = std::thread::spawn(move || {
        for () in rx {
            // The goroutine that asked for it computes by now, or does so soon.
            std::thread::sleep(Duration::from_millis(1));
            far.write_all(b".").unwrap();
        }
    });
    let n = computes_until_woken(
        move || near.read_exact(&mut [0]).unwrap(),
        move || tx.send(()).unwrap(),
    );
    sender.join().unwrap();
    n
}

/// Taking the P from them would cost more than it gains: they give way soon.
#[test]
fn goroutines_that_compute_briefly_keep_their_p() {
    const ROUNDS: u64 = 300;
    let _guard = hang_guard();
    let rt = runtime(1);
    rt.run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let sleeper = spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                sleep(Duration::from_micros(100));
            }
        });
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(1) {
                std::hint::spin_loop();
            }
            yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        sleeper.join().unwrap();
    });
    let n_retaken = rt.metrics().total().retakes_due;
    // 4 to 15, the more the busier the machine is; 50 to 75 if sysmon remembers no brief ones.
    assert!(n_retaken < ROUNDS / 10, "{n_retaken}");
}

/// Tries of a channel whose lock is always taken: sysmon finds these goroutines inside the
/// runtime whenever it looks.
#[test]
fn goroutines_that_only_try_give_way() {
    let _guard = hang_guard();
    let rt = runtime(2);
    rt.run(|| {
        let (sender, receiver) = windlass::channel::bounded::<u64>(1);
        let stop = Arc::new(AtomicBool::new(false));
        let triers: Vec<_> = (0..2)
            .map(|_| {
                let (stop, sender, receiver) =
                    (Arc::clone(&stop), sender.clone(), receiver.clone());
                spawn(move || {
                    let mut sum = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let _ = sender.try_send(1);
                        sum += receiver.try_recv().unwrap_or(0);
                    }
                    sum
                })
            })
            .collect();
        // The last one runs after at least one of them gave way, and so does whoever wakes it.
        for _ in 0..5 {
            spawn(yield_now).join().unwrap();
            sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        assert!(triers.into_iter().map(|j| j.join().unwrap()).sum::<u64>() > 0);
    });
    // They are asked to give way; one that is just then between two tries loses its P instead. With
    // disorder they give way before anybody asks.
    let m = rt.metrics().total();
    assert!(m.preemptions + m.retakes_hogs > 0 || util::is_chaotic());
}

fn fib(n: u32) -> u64 {
    if n < 2 {
        return u64::from(n);
    }
    let (a, b) = windlass::join(|| fib(n - 1), || fib(n - 2));
    a + b
}

/// Computes for some microseconds.
fn compute() {
    let began = Instant::now();
    while began.elapsed() < Duration::from_micros(2) {}
}

/// Runs `f` on a goroutine of `rt`, beside another that repeats `call` until `f` has returned.
fn beside<T: Send>(
    rt: &windlass::Runtime,
    mut call: impl FnMut() + Send + 'static,
    f: impl FnOnce() -> T + Send,
) -> T {
    rt.run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&stop);
        let hog = spawn(move || {
            while !stops.load(Ordering::Relaxed) {
                call();
            }
        });
        let result = f();
        stop.store(true, Ordering::Relaxed);
        hog.join().unwrap();
        result
    })
}

/// A goroutine computes on the only P, and calls the runtime again and again: for an instant, so that
/// sysmon finds it outside, but it is inside before sysmon has taken the P. It is asked to give way
/// for the timer of a sleeper, and hardly ever loses its P: that would take a thread each time.
fn gives_way_for_a_sleeper(what: &str, call: impl FnMut() + Send + 'static) {
    let _guard = hang_guard();
    let rt = runtime(1);
    let gave_way = || rt.metrics().total().preemptions;
    let n_sleeps = beside(&rt, call, || {
        let mut n_sleeps = 0;
        // With disorder it gives way before anybody asks.
        while gave_way() < 20 && n_sleeps < 5_000 {
            sleep(Duration::from_millis(1));
            n_sleeps += 1;
        }
        echo();
        n_sleeps
    });
    let n = gave_way();
    assert!(n >= 20 || util::is_chaotic(), "{what}: {n} of {n_sleeps}");
}

/// As with checkpoints. On a busy machine a thread may get no CPU for so long that it looks like a hog, so it is tried
/// several times.
fn gives_way_unasked(call: impl FnMut() + Send + 'static) {
    let _guard = hang_guard();
    let rt = runtime(1);
    let asked = || {
        let m = rt.metrics().total();
        m.preemptions + m.retakes_hogs
    };
    beside(&rt, call, || {
        wait_until(|| {
            let before = asked();
            (0..10).for_each(|_| sleep(Duration::from_millis(1)));
            asked() == before
        });
    });
}

#[test]
fn goroutines_that_fork_give_way_unasked() {
    gives_way_unasked(|| assert_eq!(fib(12), 144));
    let mut numbers = vec![1_u32; 10_000];
    gives_way_unasked(move || {
        windlass::par::for_each_mut(&mut numbers, |n| *n = n.wrapping_mul(3));
    });
}

/// Sysmon looks at a P in the moment in which the sleeper that it has helped computes, and no timer runs. The next
/// sleep must not wait for sysmon's next round, 10 ms later.
#[test]
fn a_sleeper_that_computes_between_its_sleeps_is_helped_each_time() {
    if child_case().is_none() {
        let name = "a_sleeper_that_computes_between_its_sleeps_is_helped_each_time";
        util::child_passes(name, "alone");
        return;
    }
    let _guard = hang_guard();
    // By the CPU time of the process, in which the hog computes: a busy machine does not lengthen it.
    let sleep_takes = || {
        let began = Instant::now();
        while began.elapsed() < Duration::from_micros(200) {}
        let before = util::process_cpu();
        sleep(Duration::from_millis(1));
        util::process_cpu() - before
    };
    let forks = || assert_eq!(fib(12), 144);
    let n_short = beside(&runtime(1), forks, || {
        let times = (0..100).map(|_| sleep_takes());
        times
            .filter(|took| *took < Duration::from_millis(5))
            .count()
    });
    assert!(n_short >= 40, "{n_short} of 100 took less than 5 ms");
}

#[test]
fn goroutines_that_call_now_and_then_give_way_for_a_sleeper() {
    let (sender, receiver) = windlass::channel::bounded::<u64>(1);
    gives_way_for_a_sleeper("channel", move || {
        let _ = sender.try_send(1);
        compute();
        let _ = receiver.try_recv();
    });
    let (sender, _receiver) = windlass::channel::watch(0);
    gives_way_for_a_sleeper("watch", move || {
        sender.send(1).unwrap();
        compute();
    });
    gives_way_for_a_sleeper("spawn", || {
        drop(spawn(|| ()));
        compute();
    });
    gives_way_for_a_sleeper("section", || {
        blocking(compute);
        compute();
    });
}

#[test]
fn a_thousand_sections_stop_nobody() {
    let _guard = hang_guard();
    let rt = runtime(2);
    rt.run(|| {
        let gate = Gate::default();
        let n_inside = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..1000)
            .map(|i| {
                let (gate, n_inside) = (gate.clone(), Arc::clone(&n_inside));
                spawn(move || {
                    blocking(|| {
                        n_inside.fetch_add(1, Ordering::SeqCst);
                        gate.wait();
                        i
                    })
                })
            })
            .collect();
        // All of them are inside at once, each on a thread of its own.
        wait_until(|| n_inside.load(Ordering::SeqCst) == 1000);
        sleep(Duration::from_millis(1));
        echo();
        assert!(rt.metrics().threads >= 1000);
        gate.open();
        let sum: usize = all.into_iter().map(|j| j.join().unwrap()).sum();
        assert_eq!(sum, 499_500);
    });
}

#[test]
fn short_sections_in_great_number() {
    run(4, || {
        let all: Vec<_> = (0..100)
            .map(|i| {
                spawn(move || {
                    for j in 0..100 {
                        assert_eq!(blocking(|| i * j), i * j);
                        if j % 10 == 0 {
                            blocking(|| std::thread::sleep(Duration::from_micros(100)));
                        }
                        if j % 7 == 0 {
                            yield_now();
                        }
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn an_undeclared_block_loses_its_p() {
    run(1, || {
        let gate = Gate::default();
        let opener = gate.clone();
        let other = spawn(move || {
            yield_now();
            opener.open();
        });
        // Only the other goroutine can end this wait, and there is one P.
        gate.wait();
        other.join().unwrap();
        // Ten of them at once.
        let gates: Vec<_> = (0..10)
            .map(|i| {
                let gate = Gate::default();
                let waits = gate.clone();
                let join = spawn(move || {
                    waits.wait();
                    sleep(Duration::from_millis(1));
                    i
                });
                (gate, join)
            })
            .collect();
        sleep(Duration::from_millis(1));
        echo();
        gates.iter().for_each(|(gate, _)| gate.open());
        let sum: i32 = gates
            .into_iter()
            .map(|(_, join)| join.join().unwrap())
            .sum();
        assert_eq!(sum, 45);
    });
}

#[test]
fn undeclared_sleeps_stop_nobody() {
    run(2, || {
        let sleepers: Vec<_> = (0..4)
            .map(|_| spawn(|| std::thread::sleep(Duration::from_millis(60))))
            .collect();
        echo();
        sleep(Duration::from_millis(1));
        sleepers.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn windlass_works_inside_a_section() {
    let _guard = hang_guard();
    let rt = runtime(2);
    let handle = rt.handle();
    rt.run(|| {
        let n = blocking(|| {
            let me = task::current();
            assert_ne!(me.id(), 0, "a section is the goroutine's own");
            sleep(Duration::from_micros(100));
            yield_now();
            let joined = spawn(|| 1).join().unwrap() + handle.spawn(|| 2).join().unwrap();
            let scoped = task::scope(|s| s.spawn(|| 3).join().unwrap());
            let inner = blocking(|| blocking(|| spawn(|| 4).join().unwrap()));
            let there = offload(|| 5);
            me.unpark();
            task::park();
            let waker = me.clone();
            let other = spawn(move || waker.unpark());
            task::park();
            other.join().unwrap();
            task::park_timeout(Duration::from_millis(1));
            echo();
            joined + scoped + inner + there
        });
        assert_eq!(n, 15);
        // The goroutine is as it was.
        yield_now();
        assert_eq!(spawn(|| 6).join().unwrap(), 6);
    });
}

#[test]
fn a_section_waits_for_goroutines_on_its_own_p() {
    // The section gives up the only P, or the goroutine that it waits for never runs.
    run(1, || {
        for i in 0..50 {
            let join = spawn(move || {
                yield_now();
                i
            });
            assert_eq!(blocking(|| join.join().unwrap()), i);
        }
    });
}

#[test]
fn a_panic_leaves_a_section() {
    run(1, || {
        let census = Census::default();
        for i in 0..20 {
            let member = census.member();
            let join = spawn(move || {
                blocking(|| -> () {
                    let _member = member;
                    if i % 2 == 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    panic!("inside, on purpose");
                })
            });
            let other = spawn(yield_now);
            assert_eq!(panic_text(&*join.join().unwrap_err()), "inside, on purpose");
            other.join().unwrap();
        }
        census.assert_all_dropped(20);
        let caught =
            catch_unwind(|| blocking(|| -> () { panic!("caught, on purpose") })).unwrap_err();
        assert_eq!(panic_text(&*caught), "caught, on purpose");
        sleep(Duration::from_millis(1));
        assert_eq!(blocking(|| 7), 7);
    });
}

#[test]
fn a_panic_leaves_a_section_that_lost_its_p() {
    run(1, || {
        for _ in 0..10 {
            let lost = Arc::new(AtomicBool::new(false));
            let seen = Arc::clone(&lost);
            let other = spawn(move || seen.store(true, Ordering::SeqCst));
            let caught = catch_unwind(AssertUnwindSafe(|| {
                blocking(|| -> () {
                    while !lost.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                    panic!("without a P, on purpose");
                })
            }));
            caught.unwrap_err();
            assert!(!std::thread::panicking());
            other.join().unwrap();
            yield_now();
        }
    });
}

#[test]
fn sections_off_the_runtime() {
    assert_eq!(blocking(|| 3), 3);
    assert_eq!(offload(|| 4), 4);
    catch_unwind(|| blocking(|| -> () { panic!("plain") })).unwrap_err();
    catch_unwind(|| offload(|| -> () { panic!("plain") })).unwrap_err();
}

#[test]
fn offload_gives_value_and_panic_and_may_borrow() {
    run(1, || {
        let text = "borrowed".to_owned();
        let mut n = 0;
        let len = offload(|| {
            n += 1;
            assert_eq!(task::current().id(), 0, "a spare thread is a plain one");
            text.len()
        });
        assert_eq!((len, n), (8, 1));
        let caught =
            catch_unwind(|| offload(|| -> () { std::panic::panic_any(12_u8) })).unwrap_err();
        assert_eq!(caught.downcast_ref::<u8>(), Some(&12));
        assert_eq!(offload(|| [5_u8; 4000])[3999], 5);
        assert_eq!(offload(|| offload(|| 9)), 9);
    });
}

#[test]
fn spare_threads_are_not_pinned() {
    let _guard = hang_guard();
    let before = util::affinity();
    let rt = runtime(2);
    rt.run(|| {
        let all: Vec<_> = (0..20).map(|_| spawn(|| offload(util::affinity))).collect();
        for join in all {
            assert_eq!(join.join().unwrap(), before);
        }
    });
}

#[test]
fn offload_parks_only_its_goroutine() {
    run(1, || {
        let gate = Gate::default();
        let waits = gate.clone();
        let away = spawn(move || offload(|| waits.wait()));
        echo();
        sleep(Duration::from_millis(1));
        assert!(!away.is_finished());
        gate.open();
        away.join().unwrap();
    });
}

/// The only thread of the pool blocks, and the kernel refuses another: what waits for one runs once the kernel grants it.
#[test]
fn what_is_offloaded_waits_for_a_thread_no_longer_than_the_kernel_refuses_it() {
    let Some(case) = child_case() else {
        for case in ["unlocked", "locked"] {
            child_passes(
                "what_is_offloaded_waits_for_a_thread_no_longer_than_the_kernel_refuses_it",
                case,
            );
        }
        return;
    };
    let _guard = hang_guard();
    let rt = runtime(2);
    rt.run(|| {
        wait_until(|| rt.metrics().threads == 2);
        let (gate, begun) = (Gate::default(), Gate::default());
        let (waits, tell) = (gate.clone(), begun.clone());
        let first = spawn(|| {
            offload(move || {
                tell.open();
                waits.wait();
            });
        });
        yield_now();
        begun.wait();
        util::refuse_threads();
        let second = spawn(move || {
            let _lock = (case == "locked").then(task::lock_thread);
            offload(|| ());
        });
        // Meanwhile all is idle, and sysmon would sleep without limit.
        sleep(Duration::from_millis(300));
        assert!(!second.is_finished());
        util::grant_threads();
        second.join().unwrap();
        assert!(!first.is_finished());
        gate.open();
        first.join().unwrap();
    });
}

#[test]
fn work_that_waits_on_its_thread_holds_up_no_other() {
    run(2, || {
        let both_run = Arc::new(Barrier::new(2));
        let other = Arc::clone(&both_run);
        let away = spawn(move || offload(|| _ = other.wait()));
        offload(|| _ = both_run.wait());
        away.join().unwrap();
    });
}

#[test]
fn a_thousand_offloads() {
    let _guard = hang_guard();
    let rt = runtime(2);
    let handle = rt.handle();
    rt.run(|| {
        let census = Census::default();
        let all: Vec<_> = (0..1000_usize)
            .map(|i| {
                let (member, handle) = (census.member(), handle.clone());
                spawn(move || {
                    offload(move || {
                        let _member = member;
                        if i % 10 == 0 {
                            // Waiting there blocks the spare thread and nothing else.
                            handle.spawn(move || i).join().unwrap()
                        } else {
                            i
                        }
                    })
                })
            })
            .collect();
        let sum: usize = all.into_iter().map(|j| j.join().unwrap()).sum();
        assert_eq!(sum, 499_500);
        census.assert_all_dropped(1000);
    });
    assert_eq!(rt.run(|| offload(|| 3)), 3, "and again in a second run");
}

#[test]
fn few_threads_are_enough_for_what_does_not_block() {
    let _guard = hang_guard();
    for (n_ps, max) in [(1, 1), (2, 1), (4, 2), (4, 4)] {
        let rt = build(Builder::new().processors(n_ps).max_threads(max)).unwrap();
        let n: usize = rt.run(|| {
            assert!(rt.metrics().threads <= max);
            let all: Vec<_> = (0..300)
                .map(|i| {
                    spawn(move || {
                        yield_now();
                        sleep(Duration::from_micros(10));
                        i
                    })
                })
                .collect();
            echo();
            all.into_iter().map(|j| j.join().unwrap()).sum()
        });
        assert_eq!(n, 44_850);
    }
}

/// In a process of its own, to see what it says.
#[test]
fn without_threads_others_wait_and_one_line_says_why() {
    let name = "without_threads_others_wait_and_one_line_says_why";
    let Some(case) = util::child_case() else {
        for case in ["1 1", "2 2"] {
            let said = util::child_passes(name, case);
            let lines: Vec<_> = said
                .lines()
                .filter(|l| l.starts_with("windlass:") && !l.contains("cannot use io_uring"))
                .collect();
            assert!(lines.len() <= 1, "{lines:?}");
            if let Some(line) = lines.first() {
                assert!(line.contains("max_threads"), "{line}");
            }
        }
        return;
    };
    let (n_ps, max) = case.split_once(' ').unwrap();
    let (n_ps, max): (usize, usize) = (n_ps.parse().unwrap(), max.parse().unwrap());
    let rt = build(Builder::new().processors(n_ps).max_threads(max)).unwrap();
    rt.run(|| {
        let all: Vec<_> = (0..20)
            .map(|i| {
                spawn(move || {
                    match i % 3 {
                        0 => blocking(|| std::thread::sleep(Duration::from_millis(15))),
                        1 => std::thread::sleep(Duration::from_millis(15)),
                        _ => sleep(Duration::from_millis(1)),
                    }
                    i
                })
            })
            .collect();
        assert!(rt.metrics().threads <= max);
        let sum: i32 = all.into_iter().map(|j| j.join().unwrap()).sum();
        assert_eq!(sum, 190);
        assert!(rt.metrics().threads <= max);
        assert_eq!(offload(|| 5), 5);
    });
}

/// A time in which nothing is to be done.
const CALM: Duration = Duration::from_millis(250);
/// The CPU time that sysmon may use then. One that looks again and again uses most of it.
const SYSMON_AT_MOST: Duration = Duration::from_millis(25);

#[test]
fn an_idle_blocking_section_costs_no_cpu_time() {
    let _guard = hang_guard();
    let rt = build(Builder::new().processors(2).name("calm")).unwrap();
    rt.run(|| {
        let before = thread_cpu("calm-sysmon");
        blocking(|| std::thread::sleep(CALM));
        let used = thread_cpu("calm-sysmon") - before;
        assert!(used < SYSMON_AT_MOST, "{used:?}");
        assert!(rt.metrics().retakes >= 1, "its P became idle");
    });
}

/// A runtime that waits for a thread that it cannot have: one with fewer threads than Ps, and one whose threads
/// are all in calls that block.
#[test]
fn without_a_thread_for_a_p_sysmon_sleeps() {
    let _guard = hang_guard();
    let rests = |name: &str, n_ps, max| {
        let rt = build(Builder::new().processors(n_ps).max_threads(max).name(name)).unwrap();
        rt.run(|| {
            let later = spawn(|| sleep(CALM));
            yield_now();
            let sysmon = format!("{name}-sysmon");
            let before = thread_cpu(&sysmon);
            if n_ps == 1 {
                blocking(|| std::thread::sleep(CALM));
            }
            later.join().unwrap();
            let used = thread_cpu(&sysmon) - before;
            assert!(used < SYSMON_AT_MOST, "{n_ps} Ps, {max} threads: {used:?}");
            // A thread that comes back gets its P again, and a P without one is not missed.
            let all: Vec<_> = (0..100).map(|i| spawn(move || blocking(|| i))).collect();
            let sum: i32 = all.into_iter().map(|one| one.join().unwrap()).sum();
            assert_eq!(sum, 4950);
        });
    };
    rests("few", 2, 1);
    rests("busy", 1, 1);
}

/// There is no thread that its P could go to.
#[test]
fn a_goroutine_that_goes_from_section_to_section_lets_others_run() {
    const TURNS: usize = 5;
    let _guard = hang_guard();
    let rt = build(Builder::new().processors(1).max_threads(1)).unwrap();
    rt.run(|| {
        let turns = Arc::new(AtomicUsize::new(0));
        let other = spawn({
            let turns = Arc::clone(&turns);
            move || {
                // Each section is long enough for a request. Few requests come between two sections.
                (0..4 * TURNS).any(|_| {
                    blocking(|| std::thread::sleep(Duration::from_millis(100)));
                    turns.load(Ordering::Relaxed) == TURNS
                })
            }
        });
        for _ in 0..TURNS {
            sleep(Duration::from_millis(1));
            turns.fetch_add(1, Ordering::Relaxed);
        }
        assert!(other.join().unwrap(), "it did not let the first one run");
    });
}

/// One after the other, each too short to be taken.
#[test]
fn short_blocking_sections_cost_little_cpu_time() {
    let _guard = hang_guard();
    let rt = build(Builder::new().processors(2).name("short")).unwrap();
    rt.run(|| {
        let (before, began) = (thread_cpu("short-sysmon"), Instant::now());
        for _ in 0..125 {
            blocking(|| std::thread::sleep(Duration::from_millis(2)));
        }
        let used = thread_cpu("short-sysmon") - before;
        // As long as it takes on a busy machine.
        let times = began.elapsed().as_secs_f64() / CALM.as_secs_f64();
        assert!(used < SYSMON_AT_MOST.mul_f64(times), "{used:?}");
    });
}

/// The only P is in a section, and sysmon naps for long: what comes from outside wakes it.
#[test]
fn work_from_outside_finds_a_p_in_a_blocking_section() {
    let _guard = hang_guard();
    let rt = build(Builder::new().processors(1)).unwrap();
    rt.run(|| {
        for _ in 0..20 {
            let (told, tell) = std::sync::mpsc::channel();
            let other = spawn(move || {
                task::park();
                told.send(()).unwrap();
            });
            yield_now();
            let waker = other.task().clone();
            blocking(move || {
                std::thread::sleep(Duration::from_millis(5));
                std::thread::spawn(move || waker.unpark());
                // Blocks for ever if nobody takes the P.
                tell.recv().unwrap();
            });
            other.join().unwrap();
        }
    });
}

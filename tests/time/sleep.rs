//! Sleeping: on goroutines, in blocking sections and on plain threads.
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::util;
use crate::util::{hang_guard, run, runtime, wait_until};
use windlass::task::{self, Cancelled};
use windlass::time::{Duration, Instant};
use windlass::{Handle, sleep, spawn, yield_now};

#[test]
fn a_sleep_is_never_short() {
    run(2, || {
        let all: Vec<_> = [1, 20, 49, 50, 51, 100, 900, 1000, 1001, 5000, 30_000]
            .into_iter()
            .map(|us| {
                spawn(move || {
                    for _ in 0..5 {
                        let start = Instant::now();
                        sleep(Duration::from_micros(us));
                        let slept = start.elapsed();
                        assert!(
                            slept >= Duration::from_micros(us),
                            "{us} us became {slept:?}"
                        );
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|j| j.join().unwrap());
    });
}

/// A P that slept until each of them would sleep for as long as the kernel needs to wake it, and
/// burn most of its time on that.
#[test]
fn sleepers_that_are_close_together_are_woken_together() {
    const SLEEPERS: u32 = 10_000;
    let rt = runtime(1);
    let idles = || rt.metrics().ps.iter().map(|p| p.idles).sum::<u64>();
    let ((before, elapsed), after) = (
        rt.run(|| {
            let start = Instant::now() + Duration::from_millis(200);
            let all: Vec<_> = (0..SLEEPERS)
                .map(|i| {
                    let until = start + Duration::from_micros(10) * i;
                    spawn(move || sleep(until.saturating_duration_since(Instant::now())))
                })
                .collect();
            let (before, begun) = (idles(), Instant::now());
            all.into_iter().for_each(|j| j.join().unwrap());
            (before, begun.elapsed())
        }),
        idles(),
    );
    let most = elapsed.as_micros() as u64 / 200 + 100;
    assert!(after - before < most, "{} in {elapsed:?}", after - before);
}

/// Sleepers in the order in which they began, each with the time before which its
/// sleep began, its length, and its place in the order of waking.
struct Sleeper {
    before: Instant,
    length: Duration,
    late: Duration,
    woken: usize,
}

/// Gives how many pairs were compared, or what woke too early; and whether all woke in time, on a P that stayed with its
/// thread.
fn sleepers_wake_in_order() -> (Result<usize, String>, bool) {
    let (sleepers, is_undisturbed) = run(1, || {
        let retakes = || Handle::current().metrics().retakes;
        let before = retakes();
        let woken = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..60_u64)
            .map(|i| {
                let woken = Arc::clone(&woken);
                let length = Duration::from_millis((i * 37) % 60 + 1);
                spawn(move || {
                    let before = Instant::now();
                    sleep(length);
                    Sleeper {
                        before,
                        length,
                        late: before.elapsed() - length,
                        woken: woken.fetch_add(1, Ordering::SeqCst),
                    }
                })
            })
            .collect();
        let mut all: Vec<_> = all.into_iter().map(|j| j.join().unwrap()).collect();
        all.sort_by_key(|s| s.before);
        let are_in_time = all.iter().all(|s| s.late < Duration::from_millis(1));
        (all, are_in_time && retakes() == before)
    });
    // On one P a sleep has begun before the next one's clock was read: that bounds its end.
    let mut n_checked = 0;
    for (i, a) in sleepers.iter().enumerate() {
        let Some(next) = sleepers.get(i + 1) else {
            break;
        };
        let a_ends_by = next.before + a.length;
        for b in sleepers.iter().filter(|b| b.before + b.length > a_ends_by) {
            n_checked += 1;
            if b.woken < a.woken {
                let early = format!("{:?} woke before {:?}", b.length, a.length);
                return (Err(early), is_undisturbed);
            }
        }
    }
    (Ok(n_checked), is_undisturbed)
}

#[test]
fn sleepers_wake_in_the_order_of_their_ends() {
    // A machine that stalls for longer than the sleepers are apart, or takes the P from one that has just woken, may
    // change the order: that says nothing. Simulations, which have no such machine, run this as well.
    let mut last = None;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        match sleepers_wake_in_order() {
            (Ok(n), _) if n > 1000 => return,
            (outcome, true) => last = Some(outcome),
            (_, false) => {}
        }
    }
    match last {
        None => eprintln!("the machine stalled in each attempt: not tested"),
        // A goroutine that has woken may give way to the next for no reason then.
        Some(last) => assert!(util::is_chaotic(), "never in order: {last:?}"),
    }
}

#[test]
fn ten_thousand_sleepers_wake() {
    run(2, || {
        let all: Vec<_> = (0..10_000_u64)
            .map(|i| {
                spawn(move || {
                    let length = Duration::from_micros(i * 7919 % 50_000);
                    let start = Instant::now();
                    sleep(length);
                    start.elapsed() >= length
                })
            })
            .collect();
        assert!(all.into_iter().all(|j| j.join().unwrap()));
    });
}

#[test]
fn sleepers_of_all_ps_are_woken() {
    // Many short sleeps on many Ps, so that timers meet idle, spinning and busy Ps.
    run(4, || {
        let all: Vec<_> = (0..200)
            .map(|i| {
                spawn(move || {
                    for j in 0..30 {
                        sleep(Duration::from_micros(i * j % 300));
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn a_sleep_of_zero_returns_at_once() {
    run(1, || {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let other = spawn(move || seen.load(Ordering::SeqCst));
        for _ in 0..1000 {
            sleep(Duration::ZERO);
        }
        stop.store(true, Ordering::SeqCst);
        // Whether the other one ran meanwhile is not said.
        other.join().unwrap();
    });
}

#[test]
fn huge_sleeps_end_with_the_runtime() {
    let _guard = hang_guard();
    let rt = runtime(2);
    let ended = Arc::new(Mutex::new(0));
    struct Counts(Arc<Mutex<i32>>);
    impl Drop for Counts {
        fn drop(&mut self) {
            *self.0.lock().unwrap() += 1;
        }
    }
    let joins: Vec<_> = rt.run(|| {
        let started = Arc::new(AtomicUsize::new(0));
        let lengths = [
            Duration::MAX,
            Duration::from_secs(u64::MAX),
            Duration::from_secs(1 << 40),
            Duration::from_secs(86_400),
        ];
        let joins = lengths
            .map(|length| {
                let (counts, started) = (Counts(Arc::clone(&ended)), Arc::clone(&started));
                spawn(move || {
                    let _counts = counts;
                    started.fetch_add(1, Ordering::SeqCst);
                    sleep(length);
                    unreachable!("{length:?} have not passed");
                })
            })
            .into_iter()
            .collect();
        wait_until(|| started.load(Ordering::SeqCst) == 4);
        sleep(Duration::from_millis(1));
        assert_eq!(*ended.lock().unwrap(), 0);
        joins
    });
    assert_eq!(*ended.lock().unwrap(), 4);
    for join in joins {
        let outcome: std::thread::Result<()> = join.join();
        assert!(outcome.unwrap_err().is::<Cancelled>());
    }
}

#[test]
fn sleep_blocks_a_plain_thread() {
    let start = Instant::now();
    sleep(Duration::from_millis(5));
    sleep(Duration::ZERO);
    assert!(start.elapsed() >= Duration::from_millis(5));
}

#[test]
fn sleep_inside_a_section_and_on_a_spare_thread() {
    run(1, || {
        let start = Instant::now();
        windlass::blocking(|| sleep(Duration::from_millis(2)));
        windlass::offload(|| sleep(Duration::from_millis(2)));
        assert!(start.elapsed() >= Duration::from_millis(4));
    });
}

#[test]
fn an_idle_runtime_wakes_for_a_lone_sleeper() {
    run(4, || {
        for ms in [1, 5, 20, 50] {
            let start = Instant::now();
            sleep(Duration::from_millis(ms));
            assert!(start.elapsed() >= Duration::from_millis(ms));
        }
    });
}

/// Computes for so long by the clock, whatever else the machine does.
fn spin_until(end: Instant) {
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// Behind a long queue: counted is how many of it begin after the sleep's end, and before the
/// sleeper runs.
#[test]
fn a_sleeper_that_is_due_overtakes_a_long_queue() {
    const N: usize = 100;
    const TURN: Duration = Duration::from_micros(100);
    let _guard = hang_guard();
    run(1, || {
        let epoch = Instant::now();
        let due_ns = AtomicU64::new(u64::MAX);
        let (n_late, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let mut counts = Vec::new();
        task::scope(|s| {
            for _ in 0..N {
                s.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let now = Instant::now();
                        if (now - epoch).as_nanos() as u64 >= due_ns.load(Ordering::Relaxed) {
                            n_late.fetch_add(1, Ordering::Relaxed);
                        }
                        spin_until(now + TURN);
                        yield_now();
                    }
                });
            }
            for _ in 0..200 {
                n_late.store(0, Ordering::Relaxed);
                let due = epoch.elapsed() + Duration::from_millis(1);
                due_ns.store(due.as_nanos() as u64, Ordering::Relaxed);
                sleep(Duration::from_millis(1));
                due_ns.store(u64::MAX, Ordering::Relaxed);
                counts.push(n_late.load(Ordering::Relaxed));
            }
            stop.store(true, Ordering::Relaxed);
        });
        counts.sort_unstable();
        assert!(counts[counts.len() / 2] <= 3, "{counts:?}");
    });
}

/// With more that run than a queue holds, most of the time it is full: what is put at its head
/// must not be what overflows, to wait behind all others in the queue of the node.
#[test]
fn a_sleeper_that_is_due_does_not_overflow() {
    const N: usize = 300;
    const TURN: Duration = Duration::from_micros(20);
    let _guard = hang_guard();
    run(1, || {
        let epoch = Instant::now();
        let due_ns = AtomicU64::new(u64::MAX);
        let (n_late, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let mut n_overflowed = 0;
        task::scope(|s| {
            for _ in 0..N {
                s.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let now = Instant::now();
                        if (now - epoch).as_nanos() as u64 >= due_ns.load(Ordering::Relaxed) {
                            n_late.fetch_add(1, Ordering::Relaxed);
                        }
                        spin_until(now + TURN);
                        yield_now();
                    }
                });
            }
            for _ in 0..1500 {
                n_late.store(0, Ordering::Relaxed);
                let due = epoch.elapsed() + Duration::from_millis(1);
                due_ns.store(due.as_nanos() as u64, Ordering::Relaxed);
                sleep(Duration::from_millis(1));
                due_ns.store(u64::MAX, Ordering::Relaxed);
                n_overflowed += usize::from(n_late.load(Ordering::Relaxed) > 100);
            }
            stop.store(true, Ordering::Relaxed);
        });
        // A goroutine that is interrupted for 10 ms between two calls loses its P, and waits there, too.
        assert!(n_overflowed <= 9, "{n_overflowed} times");
    });
}

/// Sleepers that are always due, and compute: the queue keeps its share.
#[test]
fn sleepers_do_not_starve_the_queue() {
    let _guard = hang_guard();
    let turn = || spin_until(Instant::now() + Duration::from_micros(20));
    run(1, || {
        let (n_sleepers, n_yielders) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let stop = AtomicBool::new(false);
        task::scope(|s| {
            for _ in 0..64 {
                s.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        sleep(Duration::from_nanos(1));
                        turn();
                        let n = n_sleepers.fetch_add(1, Ordering::Relaxed);
                        stop.fetch_or(n >= 20_000, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..20 {
                s.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        turn();
                        n_yielders.fetch_add(1, Ordering::Relaxed);
                        yield_now();
                    }
                });
            }
        });
        let (sleepers, yielders) = (n_sleepers.into_inner(), n_yielders.into_inner());
        assert!(
            yielders > sleepers / 10,
            "{yielders} turns beside {sleepers}"
        );
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    a_sleep_is_never_short,
    sleepers_that_are_close_together_are_woken_together: "it counts what a runtime of its own does",
    sleepers_wake_in_the_order_of_their_ends,
    ten_thousand_sleepers_wake: "it takes long for each seed",
    sleepers_of_all_ps_are_woken / 5,
    a_sleep_of_zero_returns_at_once,
    huge_sleeps_end_with_the_runtime: "it ends a run of its own",
    sleep_blocks_a_plain_thread,
    sleep_inside_a_section_and_on_a_spare_thread: "it uses blocking sections",
    an_idle_runtime_wakes_for_a_lone_sleeper,
    a_sleeper_that_is_due_overtakes_a_long_queue: "it computes until time has passed",
    a_sleeper_that_is_due_does_not_overflow: "it computes until time has passed",
    sleepers_do_not_starve_the_queue: "it computes until time has passed",
}

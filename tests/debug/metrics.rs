//! The counters agree with what a program did.

use crate::util;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use windlass::metrics::RuntimeMetrics;
use windlass::{Builder, Handle, blocking, sleep, spawn, task, yield_now};

/// Runs `f` on a runtime of `n` Ps and gives the counters after it.
fn counted(n: usize, f: impl FnOnce() + Send) -> RuntimeMetrics {
    let _guard = util::hang_guard();
    let runtime = util::runtime(n);
    runtime.run(f);
    runtime.metrics()
}

#[test]
fn goroutines_are_counted_at_every_station() {
    let metrics = counted(2, || {
        let handles: Vec<_> = (0..100).map(|_| spawn(yield_now)).collect();
        handles.into_iter().for_each(|h| h.join().unwrap());
    });
    let total = metrics.total();
    // The main goroutine is one more.
    assert_eq!(total.spawned, 101);
    assert_eq!(total.started, 101);
    assert_eq!(total.finished, 101);
    assert!(total.dispatches >= 201, "{}", total.dispatches);
    assert_eq!(metrics.live_goroutines, 0);
    assert_eq!(metrics.spawned_outside, 0);
    assert_eq!((total.queue_depth, total.ring_inflight), (0, 0));
}

#[test]
fn what_the_nodes_count_is_what_their_ps_count() {
    let metrics = counted(4, || {
        let handles: Vec<_> = (0..1000).map(|_| spawn(yield_now)).collect();
        handles.into_iter().for_each(|h| h.join().unwrap());
    });
    let of_nodes: u64 = metrics.nodes.iter().map(|n| n.total.dispatches).sum();
    assert_eq!(of_nodes, metrics.total().dispatches);
    let ps: usize = metrics.nodes.iter().map(|n| n.ps.len()).sum();
    assert_eq!(ps, metrics.ps.len());
}

/// Neither while a P leaves, which takes until it has nothing to do, nor when it comes back.
#[test]
fn counters_do_not_fall_when_ps_come_and_go() {
    let _guard = util::hang_guard();
    let rt = util::runtime(2);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            rt.run(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let some = (0..20).map(|_| spawn(yield_now));
                    some.collect::<Vec<_>>()
                        .into_iter()
                        .for_each(|h| h.join().unwrap());
                }
            });
        });
        s.spawn(|| {
            for i in 0..200 {
                util::set_processors(&rt, 1 + i % 2);
                std::thread::sleep(Duration::from_micros(500));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let (mut before, mut fell) = (0, None);
        while !is_over.load(Ordering::Relaxed) {
            let metrics = rt.metrics();
            assert_eq!(metrics.ps.len(), metrics.places.len());
            let n_ps: usize = metrics.nodes.iter().map(|node| node.ps.len()).sum();
            assert_eq!(n_ps, metrics.ps.len());
            let now = metrics.total().dispatches;
            if now < before {
                fell = Some((before, now));
            }
            before = now;
        }
        assert_eq!(fell, None);
    });
}

#[test]
fn stacks_are_live_or_free() {
    let _guard = util::hang_guard();
    let runtime = util::runtime(1);
    let handle = runtime.handle();
    let during = runtime.run(move || {
        let parked: Vec<_> = (0..10).map(|_| spawn(task::park)).collect();
        util::wait_until(|| handle.metrics().total().parks >= 10);
        let metrics = handle.metrics();
        parked.iter().for_each(|p| p.task().unpark());
        parked.into_iter().for_each(|p| p.join().unwrap());
        metrics
    });
    let node = &during.nodes[0];
    assert_eq!(node.stacks_live(), 11, "{node:?}");
    let after = runtime.metrics();
    assert_eq!(after.nodes[0].stacks_live(), 0);
    assert!(after.nodes[0].stacks_peak >= 11);
    assert!(after.nodes[0].stacks_free >= 10);
}

#[test]
fn waiting_for_a_timer_is_idle_time() {
    let begun = Instant::now();
    let metrics = counted(1, || {
        let idle_time = || Handle::current().metrics().total().idle_time;
        // On a loaded machine the thread may lose its CPU before it is idle: then the next sleep counts.
        while idle_time() < Duration::from_millis(40) {
            sleep(Duration::from_millis(50));
        }
    });
    let total = metrics.total();
    assert!(total.idles >= 1);
    assert!(total.idle_time <= begun.elapsed(), "{total:?}");
}

#[test]
fn a_goroutine_that_waits_behind_another_is_seen_in_the_delays() {
    let metrics = counted(1, || {
        // Each tick finds goroutines in the queue, as many as wait all the time.
        let handles: Vec<_> = (0..64)
            .map(|_| spawn(|| (0..200).for_each(|_| spin_and_yield())))
            .collect();
        handles.into_iter().for_each(|h| h.join().unwrap());
    });
    let delays = metrics.total().queue_delays;
    assert!(delays.count() > 0);
    // 63 others run for 2 µs each before it is its turn again.
    assert!(delays.quantile(0.5) >= 64_000, "{delays:?}");
}

fn spin_and_yield() {
    util::compute(Duration::from_micros(2));
    yield_now();
}

#[test]
fn a_wake_from_outside_is_received() {
    let _guard = util::hang_guard();
    let runtime = util::runtime(1);
    let handle = runtime.handle();
    runtime.run(|| {
        let main = task::current();
        let waker = std::thread::spawn(move || {
            util::wait_until(|| handle.metrics().total().idles >= 1);
            main.unpark();
        });
        task::park();
        blocking(|| waker.join().unwrap());
    });
    let total = runtime.metrics().total();
    assert!(total.wakes_received >= 1);
    assert!(total.wakes_useless <= total.wakes_received);
    assert_eq!(total.blocking_sections, 1);
}

#[test]
fn what_the_ring_does_is_counted_in_batches() {
    use std::io::{Read, Write};
    let metrics = counted(2, || {
        let listener = windlass::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let echo = spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let mut byte = [0];
            for _ in 0..100 {
                peer.read_exact(&mut byte).unwrap();
                peer.write_all(&byte).unwrap();
            }
        });
        let mut stream = windlass::net::TcpStream::connect(addr).unwrap();
        let mut byte = [7];
        for _ in 0..100 {
            stream.write_all(&byte).unwrap();
            stream.read_exact(&mut byte).unwrap();
        }
        echo.join().unwrap();
    });
    let total = metrics.total();
    assert_eq!(total.ring_submitted, total.ring_completed);
    // Most messages are told of by a poll that stays.
    assert!(total.ring_completed >= 10);
    assert!(total.ring_batches >= 50, "{}", total.ring_batches);
    assert_eq!(total.ring_batch_sizes.count(), total.ring_batches);
    assert!(total.ring_submit_sizes.count() <= total.ring_enters);
}

/// An operation that is queued for the ring would wait for the next goroutine that computes.
#[test]
fn beside_goroutines_that_compute_sends_are_not_queued() {
    use std::io::{Read, Write};
    const N_READERS: usize = 20;
    const N_SENDS: u64 = 30;
    if !util::has_rings() || util::is_chaotic() {
        return;
    }
    let _guard = util::hang_guard();
    let runtime = util::build(Builder::new().processors(1)).unwrap();
    runtime.run(|| {
        let pairs: Vec<_> = (0..N_READERS).map(|_| util::pair()).collect();
        let readers = pairs.iter().map(|(reader, _)| {
            let mut reader = reader.try_clone().unwrap();
            spawn(move || reader.read(&mut [0]).unwrap())
        });
        let readers: Vec<_> = readers.collect();
        let (mut sender, _peer) = util::pair();
        let mut compute_and_send = || {
            util::compute(Duration::from_micros(300));
            sender.write_all(&[0; 64]).unwrap();
            yield_now();
        };
        (0..3).for_each(|_| compute_and_send());
        let n_submitted = || runtime.metrics().total().ring_submitted;
        let before = n_submitted();
        (0..N_SENDS).for_each(|_| compute_and_send());
        let n = n_submitted() - before;
        assert!(n <= N_SENDS / 3, "{n} of {N_SENDS} sends were queued");
        drop(pairs);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

#[test]
fn a_hog_that_loses_its_p_is_counted() {
    let _guard = util::hang_guard();
    let runtime = util::build(Builder::new().processors(1)).unwrap();
    runtime.run(|| {
        let other = spawn(|| {});
        while !other.is_finished() {
            std::hint::spin_loop();
        }
        // Comes back to its P.
        yield_now();
    });
    let metrics = runtime.metrics();
    let total = metrics.total();
    assert!(total.retakes_hogs >= 1);
    assert_eq!(metrics.retakes, total.retakes_hogs + total.retakes_blocking);
    assert_eq!(metrics.handoffs, total.handoffs);
}

#[inline(never)]
fn use_the_stack() {
    std::hint::black_box([7u8; 30 << 10]);
}

/// In a process of its own, because it looks at the memory of the process.
#[test]
fn the_pages_of_long_free_stacks_are_returned() {
    const N: usize = 4_000;
    let Some(_) = util::child_case() else {
        util::child_passes("the_pages_of_long_free_stacks_are_returned", "memory");
        return;
    };
    let _guard = util::hang_guard();
    let rt = util::runtime(2);
    let run_many = || {
        let (release, wait) = windlass::channel::bounded::<()>(0);
        let all: Vec<_> = (0..N)
            .map(|_| {
                let wait = wait.clone();
                windlass::spawn(move || {
                    use_the_stack();
                    wait.recv()
                })
            })
            .collect();
        drop(wait);
        util::wait_until(|| {
            rt.metrics()
                .nodes
                .iter()
                .map(|n| n.stacks_live())
                .sum::<usize>()
                >= N
        });
        drop(release);
        for task in all {
            task.join().unwrap().unwrap_err();
        }
    };
    let returned = || -> usize { rt.metrics().nodes.iter().map(|n| n.stacks_returned).sum() };
    rt.run(|| {
        run_many();
        let full = util::resident_bytes() as usize;
        // All but what the two Ps keep.
        while returned() < N - 2 * 64 {
            windlass::sleep(Duration::from_millis(100));
        }
        let bytes = full.saturating_sub(util::resident_bytes() as usize);
        assert!(
            bytes >= N * (24 << 10),
            "{bytes} bytes of {full} were returned"
        );
    });
}

/// Whether there is swap or not, goroutines find their stacks as they left them. In a process of its own, because it
/// looks at the memory of the process.
#[test]
fn stacks_of_goroutines_that_wait_for_long_go_to_swap() {
    const N: usize = 500;
    let Some(_) = util::child_case() else {
        util::child_passes(
            "stacks_of_goroutines_that_wait_for_long_go_to_swap",
            "memory",
        );
        return;
    };
    let _guard = util::hang_guard();
    let second = Duration::from_secs(1);
    let rt = util::build(Builder::new().processors(2).page_out_after(second)).unwrap();
    let may_not_swap = || {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let group = groups.lines().find_map(|line| line.strip_prefix("0::"));
        let file = format!("/sys/fs/cgroup{}/memory.swap.max", group.unwrap_or("/"));
        std::fs::read_to_string(file).is_ok_and(|most| most.trim() == "0")
    };
    let has_swap = util::bytes_in("/proc/meminfo", "SwapTotal:") > 0 && !may_not_swap();
    let (release, wait) = windlass::channel::bounded::<()>(0);
    rt.run(|| {
        let waits = |i: usize| {
            let wait = wait.clone();
            spawn(move || {
                let pattern = std::hint::black_box([i; 64]);
                wait.recv().unwrap_err();
                pattern.iter().all(|&word| word == i)
            })
        };
        let all: Vec<_> = (0..N).map(waits).collect();
        sleep(3 * second);
        while has_swap && rt.metrics().stacks_paged_out < N as u64 {
            sleep(second / 10);
        }
        let (swapped, n) = (util::status_bytes("VmSwap:"), rt.metrics().stacks_paged_out);
        match has_swap {
            true => assert!(swapped >= N as u64 * 2048, "{swapped} bytes of {n} stacks"),
            false => assert_eq!(swapped, 0, "{n} stacks"),
        }
        drop(release);
        assert!(all.into_iter().all(|task| task.join().unwrap()));
    });
}

#[test]
fn a_stack_that_waits_for_less_than_a_second_is_not_cold() {
    let bad = util::build(Builder::new().page_out_after(Duration::from_millis(999))).unwrap_err();
    assert_eq!(bad.kind(), std::io::ErrorKind::InvalidInput);
    assert!(bad.to_string().starts_with("page_out_after: "), "{bad}");
}

#[test]
fn a_p_that_sleeps_for_long_keeps_no_stacks() {
    let _guard = util::hang_guard();
    let rt = util::runtime(2);
    let handle = rt.handle();
    let cached = move || handle.metrics().total().stacks_cached;
    rt.run(move || {
        let some: Vec<_> = (0..100).map(|_| spawn(yield_now)).collect();
        some.into_iter().for_each(|task| task.join().unwrap());
        assert!(cached() > 0);
        // On a thread that is not the runtime's, so that both Ps sleep.
        let looks = std::thread::spawn(move || {
            while cached() > 0 {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        while !looks.is_finished() {
            sleep(Duration::from_secs(20));
        }
    });
}

//! The CPUs that the process may use change while it runs: Ps and threads follow.
//!
//! Each test is a process of its own, which changes the masks of all its threads, as
//! `taskset -ap` does. Control groups and CPUs that go offline need root, so they are in
//! `tests/numa_vm/cpus.rs`. The priority of a thread changes, too: of one that computes without a P.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use crate::load::Load;
use crate::util;
use crate::util::{
    affinity, affinity_of, build, child_case, child_passes, hang_guard, set_affinity,
};
use windlass::topology::Topology;
use windlass::{Builder, Runtime, sleep, spawn, task, yield_now};

/// The tests wait for looks that come once a second.
const PAUSE: Option<Duration> = Some(Duration::from_millis(1));

/// In the child: two CPUs. In its parent: runs the child. `None` where there is one CPU, which
/// it says.
fn two_cpus(name: &str) -> Option<[usize; 2]> {
    let cpus = affinity();
    let &[a, b, ..] = &cpus[..] else {
        eprintln!("one CPU may be used here: not tested");
        return None;
    };
    if child_case().is_none() {
        child_passes(name, "cpus");
        return None;
    }
    Some([a, b])
}

/// As `taskset -ap`, for this process.
fn set_all(cpus: &[usize]) {
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let tid = task.unwrap().file_name().to_string_lossy().parse().unwrap();
        set_affinity(tid, cpus);
    }
}

/// Returns when there are `n` Ps, and every goroutine that looks is pinned to one of these CPUs.
fn follows(rt: &Runtime, cpus: &[usize], n: usize) {
    let planned = || {
        let mut planned: Vec<_> = rt.plan().ps.iter().map(|p| p.cpu).collect();
        planned.sort_unstable();
        planned.dedup();
        planned
    };
    while rt.processors() != n || planned() != cpus {
        sleep(Duration::from_millis(20));
    }
    let mut n_good = 0;
    while n_good < 100 {
        let look = || {
            // Whoever computes without a P may be on a thread that was not pinned again.
            yield_now();
            affinity()
        };
        let all: Vec<_> = (0..10).map(|_| spawn(look)).collect();
        for goroutine in all {
            let mask = goroutine.join().unwrap();
            let is_good = mask.len() == 1 && cpus.contains(&mask[0]);
            n_good = if is_good { n_good + 1 } else { 0 };
        }
        if n_good == 0 {
            sleep(Duration::from_millis(20));
        }
    }
    assert_eq!((rt.processors(), planned()), (n, cpus.to_vec()));
}

#[test]
fn a_mask_from_outside_is_followed() {
    let Some([a, b]) = two_cpus("a_mask_from_outside_is_followed") else {
        return;
    };
    let _guard = hang_guard();
    set_all(&[a, b]);
    let rt = build(Builder::new()).unwrap();
    assert_eq!(rt.processors(), 2);
    rt.run(|| {
        let load = Load::begin(4, PAUSE);
        follows(&rt, &[a, b], 2);
        assert_eq!(rt.metrics().replans, 0);
        let masks: [&[usize]; 5] = [&[a], &[b], &[a, b], &[b], &[a, b]];
        for (i, cpus) in masks.into_iter().enumerate() {
            set_all(cpus);
            follows(&rt, cpus, cpus.len());
            load.keeps_all_busy(&rt);
            assert_eq!(rt.metrics().replans, i as u64 + 1);
            assert_eq!(rt.metrics().ps_away, 0);
        }
        load.end();
    });
    assert_eq!(affinity(), [a, b]);
}

/// One CPU in the beginning may become two.
#[test]
fn it_grows_beyond_what_it_began_with() {
    let Some([a, b]) = two_cpus("it_grows_beyond_what_it_began_with") else {
        return;
    };
    let _guard = hang_guard();
    set_all(&[b]);
    let rt = build(Builder::new()).unwrap();
    assert_eq!(rt.processors(), 1);
    rt.run(|| {
        let load = Load::begin(2, PAUSE);
        for cpus in [&[a, b][..], &[a], &[a, b]] {
            set_all(cpus);
            follows(&rt, cpus, cpus.len());
            load.keeps_all_busy(&rt);
        }
        load.end();
    });
}

/// A program that sets the mask of all threads unpins them, also if it is the one that it was.
#[test]
fn the_same_mask_again_pins_again() {
    let Some([a, b]) = two_cpus("the_same_mask_again_pins_again") else {
        return;
    };
    let _guard = hang_guard();
    set_all(&[a, b]);
    let rt = build(Builder::new()).unwrap();
    rt.run(|| {
        let load = Load::begin(2, PAUSE);
        for _ in 0..3 {
            set_all(&[a, b]);
            follows(&rt, &[a, b], 2);
        }
        assert_eq!(rt.metrics().replans, 0);
        load.end();
    });
}

/// A goroutine that computes while the world is stopped loses its P but stays on its thread,
/// which is still pinned: it is told of the CPUs of the process all the same.
#[test]
fn all_cpus_are_seen_while_threads_are_pinned_again() {
    let Some([a, b]) = two_cpus("all_cpus_are_seen_while_threads_are_pinned_again") else {
        return;
    };
    let _guard = hang_guard();
    set_all(&[a, b]);
    let n = || std::thread::available_parallelism().unwrap().get();
    let rt = build(Builder::new()).unwrap();
    let (other, is_over) = (AtomicI32::new(0), AtomicBool::new(false));
    rt.run(|| {
        task::scope(|s| {
            s.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    other.store(util::gettid(), Ordering::Release);
                    yield_now();
                }
            });
            // This goroutine does not yield, so the other one gets another thread.
            while [0, util::gettid()].contains(&other.load(Ordering::Acquire)) {
                std::hint::spin_loop();
            }
            // It may run on another thread by now, which nobody pins again: hence the limit.
            let (tid, began) = (other.load(Ordering::Acquire), Instant::now());
            let mut least = n();
            set_affinity(tid, &[a, b]);
            while affinity_of(tid).len() == 2 && began.elapsed() < Duration::from_secs(4) {
                least = least.min(n());
            }
            least = least.min(n());
            is_over.store(true, Ordering::Release);
            assert_eq!(least, 2);
        });
    });
}

#[test]
fn a_number_that_was_chosen_is_kept() {
    let Some([a, b]) = two_cpus("a_number_that_was_chosen_is_kept") else {
        return;
    };
    let _guard = hang_guard();
    set_all(&[a, b]);
    let rt = build(Builder::new().processors(3)).unwrap();
    rt.run(|| {
        let load = Load::begin(2, PAUSE);
        for cpus in [&[a][..], &[b], &[a, b]] {
            set_all(cpus);
            follows(&rt, cpus, 3);
            load.keeps_all_busy(&rt);
        }
        // Also one that is chosen later.
        util::set_processors(&rt, 2);
        for cpus in [&[a][..], &[a, b]] {
            set_all(cpus);
            follows(&rt, cpus, 2);
            load.keeps_all_busy(&rt);
        }
        load.end();
    });
}

#[test]
fn what_changes_between_two_runs_is_followed() {
    let Some([a, b]) = two_cpus("what_changes_between_two_runs_is_followed") else {
        return;
    };
    let _guard = hang_guard();
    set_all(&[a, b]);
    let rt = build(Builder::new()).unwrap();
    for cpus in [&[a][..], &[a, b], &[b]] {
        set_all(cpus);
        rt.run(|| {
            follows(&rt, cpus, cpus.len());
        });
        assert_eq!(affinity(), cpus);
    }
}

/// The mask of the thread that runs it is its own affair if another one built it.
#[test]
fn the_mask_of_one_thread_is_not_the_processs() {
    let Some([a, b]) = two_cpus("the_mask_of_one_thread_is_not_the_processs") else {
        return;
    };
    let _guard = hang_guard();
    set_all(&[a, b]);
    let rt = build(Builder::new()).unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            set_affinity(0, &[a]);
            rt.run(|| {
                // Two looks at the least.
                sleep(Duration::from_millis(2500));
                follows(&rt, &[a, b], 2);
                set_all(&[b]);
                follows(&rt, &[b], 1);
                set_all(&[a, b]);
                follows(&rt, &[a, b], 2);
            });
            assert_eq!(affinity(), [a]);
        });
    });
    assert_eq!(rt.metrics().replans, 2);
}

/// A goroutine that has its thread to itself may do with it what it likes; with one P it
/// never has another CPU.
#[test]
fn the_mask_of_a_locked_thread_stays() {
    let Some([a, b]) = two_cpus("the_mask_of_a_locked_thread_stays") else {
        return;
    };
    let _guard = hang_guard();
    set_all(&[a, b]);
    let rt = build(Builder::new().processors(1)).unwrap();
    let stop = AtomicBool::new(false);
    rt.run(|| {
        windlass::scope(|s| {
            let locked = s.spawn(|| {
                let _locked = task::lock_thread();
                set_affinity(0, &[a, b]);
                while !stop.load(Ordering::Relaxed) {
                    sleep(Duration::from_millis(1));
                    assert_eq!(affinity(), [a, b]);
                }
            });
            sleep(Duration::from_millis(3500));
            stop.store(true, Ordering::Relaxed);
            locked.join().unwrap();
        });
    });
    assert_eq!(rt.metrics().replans, 0);
}

#[test]
fn without_pins_nothing_is_followed() {
    let Some([a, b]) = two_cpus("without_pins_nothing_is_followed") else {
        return;
    };
    let _guard = hang_guard();
    set_all(&[a, b]);
    let given = Builder::new().topology(Topology::detect().unwrap());
    for builder in [Builder::new().pin(false), given] {
        set_all(&[a, b]);
        let rt = build(builder).unwrap();
        assert_eq!(rt.processors(), 2);
        rt.run(|| {
            let load = Load::begin(1, PAUSE);
            set_all(&[a]);
            // Two looks at the least.
            sleep(Duration::from_millis(2500));
            assert_eq!((rt.processors(), rt.metrics().replans), (2, 0));
            load.end();
        });
    }
}

/// The nice value of the calling thread.
fn nice() -> i32 {
    // SAFETY: takes plain integers; 0 is the calling thread.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// Sysmon lowers the priority of a thread that computes without a P. Nobody inherits that, and a process with
/// another priority than the usual one keeps it.
#[test]
fn the_priority_of_a_hog_is_its_own() {
    let name = "cpus::the_priority_of_a_hog_is_its_own";
    let Some(case) = child_case() else {
        for case in ["0", "5"] {
            child_passes(name, case);
        }
        return;
    };
    let usual: i32 = case.parse().unwrap();
    // SAFETY: takes plain integers.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, usual) } != 0 || !may_renice() {
        return;
    }
    let rt = build(Builder::new().processors(1)).unwrap();
    rt.run(|| {
        let is_over = AtomicBool::new(false);
        task::scope(|s| {
            // They take the P from the hog.
            s.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    sleep(Duration::from_millis(1));
                }
            });
            let hog = s.spawn(|| {
                let begun = Instant::now();
                let is_long = || begun.elapsed() > Duration::from_millis(200);
                while nice() == usual && !(usual != 0 && is_long()) {
                    assert!(
                        begun.elapsed() < Duration::from_secs(60),
                        "it was not demoted"
                    );
                }
                let own = nice();
                let started = std::thread::spawn(nice).join().unwrap();
                let child = std::process::Command::new("nice").output().unwrap();
                let child = String::from_utf8(child.stdout).unwrap();
                assert_eq!((started, child.trim()), (usual, &*usual.to_string()));
                // The thread waits for no P meanwhile.
                assert_eq!(nice(), own);
                sleep(Duration::from_millis(1));
                assert_eq!(nice(), usual);
            });
            let outcome = hog.join();
            is_over.store(true, Ordering::Relaxed);
            outcome.unwrap();
        });
    });
    assert_eq!(nice(), usual);
}

/// Whether a thread of this process may raise its priority.
fn may_renice() -> bool {
    let thread = std::thread::spawn(|| {
        let to = nice();
        // SAFETY: takes plain integers.
        let set = |nice| unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0 };
        set(to + 1) && set(to)
    });
    thread.join().unwrap()
}

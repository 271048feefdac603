//! Stall reports: who keeps a P for long is named, with where it is, and nobody else.
//!
//! In processes of their own, whose stderr is looked at.
#![expect(
    clippy::disallowed_methods,
    reason = "what is shown is what blocks a thread"
)]

use crate::util;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use windlass::{Builder, Runtime, blocking, offload, sleep, spawn, task, yield_now};

/// Longer than a busy machine keeps a thread that could run.
const AFTER: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_millis(1200);

fn watched(n: usize) -> Runtime {
    util::build(Builder::new().processors(n).stall_reports(AFTER)).unwrap()
}

/// Computes without a call into windlass.
#[inline(never)]
fn computes_for_long(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::black_box(());
    }
}

#[inline(never)]
fn blocks_for_long(time: Duration) {
    std::thread::sleep(time);
    std::hint::black_box(());
}

fn named(name: &str, f: impl FnOnce() + Send + 'static) -> task::JoinHandle<()> {
    task::Builder::new().name(name).spawn(f).unwrap()
}

/// The reports in a process's stderr, each from its first line on.
fn reports(stderr: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = stderr
        .match_indices("windlass: a goroutine has ")
        .map(|(at, _)| at)
        .collect();
    assert_eq!(
        starts.first().copied().unwrap_or(stderr.len()),
        0,
        "{stderr}"
    );
    starts.push(stderr.len());
    starts.windows(2).map(|w| &stderr[w[0]..w[1]]).collect()
}

#[track_caller]
fn assert_report(report: &str, wanted: &[&str]) {
    for wanted in wanted {
        assert!(report.contains(wanted), "no {wanted:?} in {report}");
    }
    // The stack has the function's name where the compiler left it alone.
    let innermost = report.find("stall::").or(report.find("stack unavailable"));
    if cfg!(debug_assertions) && innermost.is_none() {
        panic!("no stack in {report}");
    }
}

#[test]
fn a_goroutine_that_computes_is_named_once() {
    if util::child_case().is_some() {
        watched(1).run(|| {
            named("number cruncher", || computes_for_long(LONG))
                .join()
                .unwrap();
        });
        return;
    }
    let stderr = util::child_passes("a_goroutine_that_computes_is_named_once", "");
    let reports = reports(&stderr);
    assert_eq!(reports.len(), 1, "{stderr}");
    assert_report(
        reports[0],
        &[
            "held its P for ",
            "name \"number cruncher\"]:\n",
            "created in goroutine ",
            "tests/debug/stall.rs:",
        ],
    );
    if cfg!(debug_assertions) {
        assert!(
            reports[0].contains("stall::computes_for_long\n"),
            "{stderr}"
        );
    }
}

#[test]
fn one_that_blocks_its_thread_is_named() {
    if util::child_case().is_some() {
        watched(2).run(|| {
            named("sleeper", || blocks_for_long(LONG)).join().unwrap();
        });
        return;
    }
    let stderr = util::child_passes("one_that_blocks_its_thread_is_named", "");
    let reports = reports(&stderr);
    assert_eq!(reports.len(), 1, "{stderr}");
    assert_report(reports[0], &["name \"sleeper\"]:\n"]);
    if cfg!(debug_assertions) {
        assert!(reports[0].contains("stall::blocks_for_long\n"), "{stderr}");
    }
}

#[test]
fn one_whose_p_was_taken_is_named() {
    if util::child_case().is_some() {
        watched(1).run(|| {
            let hog = named("hog", || computes_for_long(LONG));
            // Wants the P all the time.
            util::wait_until(|| hog.is_finished());
            hog.join().unwrap();
        });
        return;
    }
    let stderr = util::child_passes("one_whose_p_was_taken_is_named", "");
    let reports = reports(&stderr);
    assert_eq!(reports.len(), 1, "{stderr}");
    assert_report(reports[0], &["lost its P\n", "name \"hog\"]:\n"]);
    if cfg!(debug_assertions) {
        assert!(
            reports[0].contains("stall::computes_for_long\n"),
            "{stderr}"
        );
    }
}

#[test]
fn what_is_not_reported_is_counted() {
    if util::child_case().is_some() {
        watched(4).run(|| {
            // At once, so that there are reports for some of them only.
            let first: Vec<_> = (0..3)
                .map(|i| named(&format!("first {i}"), || computes_for_long(LONG)))
                .collect();
            first.into_iter().for_each(|g| g.join().unwrap());
            named("second", || computes_for_long(LONG)).join().unwrap();
        });
        return;
    }
    let stderr = util::child_passes("what_is_not_reported_is_counted", "");
    let n_counted: usize = stderr
        .lines()
        .filter_map(|line| line.split_once(" ms")?.1.split_once('('))
        .map(|(_, n)| n.split_once(' ').unwrap().0.parse::<usize>().unwrap())
        .sum();
    let n_shown = reports(&stderr).len();
    // What is left out behind the last report is told nowhere.
    assert!((1..=4).contains(&(n_shown + n_counted)), "{stderr}");
    assert!(stderr.contains("\"first "), "{stderr}");
}

#[test]
fn waits_sections_and_yields_are_no_stalls() {
    if util::child_case().is_some() {
        let after = Duration::from_secs(1);
        let builder = Builder::new().processors(3).stall_reports(after);
        let time = 2 * after;
        util::build(builder).unwrap().run(|| {
            let stop = AtomicBool::new(false);
            task::scope(|s| {
                s.spawn(|| util::wait_until(|| stop.load(Ordering::Acquire)));
                s.spawn(|| blocking(|| blocks_for_long(time)));
                s.spawn(|| offload(|| blocks_for_long(time)));
                s.spawn(task::park).task().unpark();
                sleep(time);
                stop.store(true, Ordering::Release);
            });
        });
        return;
    }
    let stderr = util::child_passes("waits_sections_and_yields_are_no_stalls", "");
    assert_eq!(stderr, "");
}

#[test]
fn without_asking_there_is_no_report() {
    if util::child_case().is_some() {
        for builder in [Builder::new(), Builder::new().stall_reports(Duration::ZERO)] {
            util::build(builder.processors(1))
                .unwrap()
                .run(|| computes_for_long(AFTER));
        }
        return;
    }
    let stderr = util::child_passes("without_asking_there_is_no_report", "");
    assert_eq!(stderr, "");
}

#[test]
fn a_program_under_reports_computes_the_same() {
    let _guard = util::hang_guard();
    // Samples of goroutines that go on just then, and of many at once.
    let builder = Builder::new()
        .processors(4)
        .stall_reports(Duration::from_micros(100));
    if util::child_case().is_some() {
        let sums = util::build(builder).unwrap().run(|| {
            let all: Vec<_> = (0..64_u64)
                .map(|i| {
                    spawn(move || {
                        let mut sum = i;
                        for round in 0..20_u64 {
                            for k in 0..20_000_u64 {
                                sum = std::hint::black_box(sum.wrapping_mul(31) ^ k ^ round);
                            }
                            yield_now();
                        }
                        sum
                    })
                })
                .collect();
            all.into_iter()
                .map(|g| g.join().unwrap())
                .collect::<Vec<_>>()
        });
        let plain: Vec<u64> = (0..64_u64)
            .map(|i| {
                (0..20_u64).fold(i, |sum, round| {
                    (0..20_000_u64).fold(sum, |sum, k| sum.wrapping_mul(31) ^ k ^ round)
                })
            })
            .collect();
        assert_eq!(sums, plain);
        return;
    }
    util::child_passes("a_program_under_reports_computes_the_same", "");
}

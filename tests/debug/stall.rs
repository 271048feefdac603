//! Stall reports: who keeps a P for long is named, with where it is, and nobody else.
//!
//! In processes of their own, whose stderr is looked at.
#![expect(
    clippy::disallowed_methods,
    reason = "what is shown is what blocks a thread"
)]
#![allow(unsafe_code)] // stderr's descriptor is exchanged

use crate::util;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use windlass::{Builder, Runtime, blocking, offload, sleep, spawn, task, yield_now};

/// Longer than a busy machine keeps a thread that could run.
const AFTER: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_millis(1200);
const REPORT: &str = "windlass: a goroutine has ";
/// How long to wait for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

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

/// A process's stderr in a file, so that a goroutine can see a report while it still stalls: on a
/// busy machine nobody knows how long the report takes. In the end it goes where it would have gone.
struct Stderr {
    file: File,
    before: File,
}

impl Stderr {
    /// Puts a file in the place of this process's stderr.
    fn into_file() -> Arc<Self> {
        let before = std::io::stderr().as_fd().try_clone_to_owned().unwrap();
        // SAFETY: the name is a C string, and the descriptor is nobody else's.
        let file = unsafe {
            let fd = libc::memfd_create(c"stderr".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            File::from_raw_fd(fd)
        };
        // SAFETY: both descriptors are open.
        assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), 2) }, 2);
        Arc::new(Self {
            file,
            before: before.into(),
        })
    }

    fn text(&self) -> String {
        let mut text = vec![0; self.file.metadata().unwrap().len().try_into().unwrap()];
        self.file.read_exact_at(&mut text, 0).unwrap();
        util::without_fallback(&String::from_utf8(text).unwrap())
    }

    fn n_reports(&self) -> usize {
        self.text().matches(REPORT).count()
    }

    fn n_reports_of(&self, name: &str) -> usize {
        reports_of(&self.text(), name).len()
    }
}

impl Drop for Stderr {
    fn drop(&mut self) {
        // SAFETY: both descriptors are open.
        unsafe { libc::dup2(self.before.as_raw_fd(), 2) };
        let _ = std::io::stderr().write_all(self.text().as_bytes());
    }
}

/// Computes without a call into windlass until it is reported.
#[inline(never)]
fn computes_until(is_reported: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_reported() && begin.elapsed() < PATIENCE {
        computes_for_long(Duration::from_millis(1));
    }
}

#[inline(never)]
fn blocks_for_long(time: Duration) {
    std::thread::sleep(time);
    std::hint::black_box(());
}

#[inline(never)]
fn blocks_until(is_reported: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_reported() && begin.elapsed() < PATIENCE {
        blocks_for_long(Duration::from_millis(10));
    }
}

/// Starts the goroutine `name` that stalls until it is reported, by `stalls`, until a report of it
/// shows `function` on the stack, or where the thread waits: a report has neither if the thread gets no CPU while sysmon
/// asks for it. Each goroutine must give one report.
fn until_the_stack_is_shown(
    function: &str,
    name: &str,
    stalls: impl Fn(Box<dyn Fn() -> bool + Send>) -> task::JoinHandle<()>,
    waits: impl Fn(task::JoinHandle<()>),
) {
    let stderr = Stderr::into_file();
    for n in 1..=20 {
        let (text, of) = (Arc::clone(&stderr), name.to_string());
        waits(stalls(Box::new(move || text.n_reports_of(&of) >= n)));
        assert_eq!(stderr.n_reports_of(name), n);
        if !cfg!(debug_assertions) || stderr.text().contains(function) {
            return;
        }
    }
    panic!("no report with {function:?}");
}

/// Asserts that there are reports of the goroutine, and that each has all of these. Others may have
/// kept their P for long too, on a thread that got no CPU.
#[track_caller]
fn assert_reports(stderr: &str, name: &str, wanted: &[&str]) {
    let reports = reports_of(stderr, name);
    assert!(!reports.is_empty(), "{stderr}");
    for report in reports {
        for wanted in wanted {
            assert!(report.contains(wanted), "no {wanted:?} in {report}");
        }
    }
}

fn named(name: &str, f: impl FnOnce() + Send + 'static) -> task::JoinHandle<()> {
    task::Builder::new().name(name).spawn(f).unwrap()
}

/// The reports in a process's stderr, each from its first line on.
fn reports(stderr: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = stderr.match_indices(REPORT).map(|(at, _)| at).collect();
    assert_eq!(
        starts.first().copied().unwrap_or(stderr.len()),
        0,
        "{stderr}"
    );
    starts.push(stderr.len());
    starts.windows(2).map(|w| &stderr[w[0]..w[1]]).collect()
}

/// The reports of the goroutine of this name.
fn reports_of<'a>(stderr: &'a str, name: &str) -> Vec<&'a str> {
    let name = format!("name \"{name}\"]:\n");
    let of = |report: &&str| report.contains(&name);
    reports(stderr).into_iter().filter(of).collect()
}

#[test]
fn a_goroutine_that_computes_is_named_once() {
    const NAME: &str = "number cruncher";
    if util::child_case().is_some() {
        watched(1).run(|| {
            let stalls = |is_reported| {
                named(NAME, move || {
                    computes_until(is_reported);
                    // Long enough for a second report, if there were one.
                    computes_for_long(LONG);
                })
            };
            let waits = |cruncher: task::JoinHandle<()>| cruncher.join().unwrap();
            until_the_stack_is_shown("stall::computes_for_long\n", NAME, stalls, waits);
        });
        return;
    }
    let stderr = util::child_passes("a_goroutine_that_computes_is_named_once", "");
    let wanted = [
        "held its P for ",
        "created in goroutine ",
        "tests/debug/stall.rs:",
    ];
    assert_reports(&stderr, NAME, &wanted);
}

#[test]
fn one_that_blocks_its_thread_is_named() {
    const NAME: &str = "sleeper";
    if util::child_case().is_some() {
        watched(2).run(|| {
            let stalls = |is_reported| named(NAME, move || blocks_until(is_reported));
            let waits = |sleeper: task::JoinHandle<()>| sleeper.join().unwrap();
            until_the_stack_is_shown("stall::blocks_for_long\n", NAME, stalls, waits);
        });
        return;
    }
    let stderr = util::child_passes("one_that_blocks_its_thread_is_named", "");
    assert_reports(&stderr, NAME, &[]);
}

/// `into()` to the type of `std` compiles, and blocks: the report says in which call.
#[test]
fn a_read_of_a_socket_of_std_is_named() {
    const NAME: &str = "reader";
    const READ: &str = "\tits thread waits in recvfrom on a socket of std or of another library (";
    if util::child_case().is_some() {
        watched(2).run(|| {
            let stalls = |is_reported: Box<dyn Fn() -> bool + Send>| {
                let (served, mut client) = util::pair();
                spawn(move || {
                    util::wait_until(is_reported);
                    client.write_all(b"x").unwrap();
                });
                named(NAME, move || {
                    let mut of_std: std::net::TcpStream = served.into();
                    of_std.read_exact(&mut [0]).unwrap();
                })
            };
            let waits = |reader: task::JoinHandle<()>| reader.join().unwrap();
            until_the_stack_is_shown(READ, NAME, stalls, waits);
        });
        return;
    }
    util::child_passes("a_read_of_a_socket_of_std_is_named", "");
}

/// It parks the thread on which it began, which need not be the one that is woken.
#[test]
fn a_scope_of_std_is_named() {
    const NAME: &str = "scoped";
    const SCOPE: &str = "\tits thread waits in futex, in std::thread::scope, ";
    if util::child_case().is_some() {
        watched(2).run(|| {
            let stalls = |is_reported: Box<dyn Fn() -> bool + Send>| {
                named(NAME, move || {
                    std::thread::scope(|s| {
                        s.spawn(|| blocks_until(is_reported));
                    });
                })
            };
            let waits = |scoped: task::JoinHandle<()>| scoped.join().unwrap();
            until_the_stack_is_shown(SCOPE, NAME, stalls, waits);
        });
        return;
    }
    util::child_passes("a_scope_of_std_is_named", "");
}

#[test]
fn one_whose_p_was_taken_is_named() {
    const NAME: &str = "hog";
    if util::child_case().is_some() {
        watched(1).run(|| {
            let stalls = |is_reported| named(NAME, move || computes_until(is_reported));
            let waits = |hog: task::JoinHandle<()>| {
                // Wants the P all the time.
                util::wait_until(|| hog.is_finished());
                hog.join().unwrap();
            };
            until_the_stack_is_shown("stall::computes_for_long\n", NAME, stalls, waits);
        });
        return;
    }
    let stderr = util::child_passes("one_whose_p_was_taken_is_named", "");
    assert_reports(&stderr, NAME, &["lost its P\n"]);
}

#[test]
fn what_is_not_reported_is_counted() {
    if util::child_case().is_some() {
        let stderr = Stderr::into_file();
        watched(4).run(|| {
            // At once, so that there are reports for some of them only.
            let first: Vec<_> = (0..3)
                .map(|i| {
                    let stderr = Arc::clone(&stderr);
                    named(&format!("first {i}"), move || {
                        computes_until(|| stderr.n_reports() >= 1);
                        computes_for_long(LONG);
                    })
                })
                .collect();
            first.into_iter().for_each(|g| g.join().unwrap());
            let n = stderr.n_reports();
            let last = Arc::clone(&stderr);
            named("second", move || computes_until(|| last.n_reports() > n))
                .join()
                .unwrap();
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
    // Reports that are left out behind the last one are counted nowhere.
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
fn while_the_process_is_stopped_nobody_stalls() {
    let name = "stall::while_the_process_is_stopped_nobody_stalls";
    if util::child_case().is_some() {
        let pid = std::process::id();
        let stop = format!("sleep 0.05; kill -STOP {pid}; sleep 0.4; kill -CONT {pid}");
        let stop = format!("{stop}; {stop}");
        watched(2).run(|| {
            let is_over = Arc::new(AtomicBool::new(false));
            let ends = Arc::clone(&is_over);
            let computes = spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    // The rest of the five after the stop is not cut short by it.
                    (0..5).for_each(|_| computes_for_long(Duration::from_millis(1)));
                    yield_now();
                }
            });
            let mut shell = std::process::Command::new("sh");
            let status = blocking(|| shell.args(["-c", &stop]).status());
            assert!(status.unwrap().success());
            is_over.store(true, Ordering::Relaxed);
            computes.join().unwrap();
        });
        return;
    }
    let stderr = util::child_passes(name, "");
    assert!(!stderr.contains(REPORT), "{stderr}");
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

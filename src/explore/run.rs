//! Runs scenarios: a process for each schedule, and what becomes of it.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsRawFd, FromRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::control;
use super::log::end_with_finding;
use super::strategy::{self, Replay, Strategy};

/// Seconds of the host that a schedule may take: more means that a thread that holds the baton
/// blocks outside of the explorer.
const HANGS_AFTER: u32 = 60;

/// Points that a schedule may have.
const MOST_STEPS: u64 = 400_000;

/// One schedule in so many is run twice, and must come to the same.
const TWICE: u64 = 64;

/// A program to explore.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// What to ask for it by.
    pub name: &'static str,
    /// What it does. It builds its runtimes itself, and drops them.
    pub run: fn(),
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Settings {
    names: Vec<String>,
    seconds: Option<u64>,
    schedules: u64,
    from: u64,
    seed: Option<u64>,
    loud: bool,
    replay: Option<String>,
    jobs: usize,
    /// Go on after a finding.
    all: bool,
}

/// What became of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ended, with so many points and this hash of its log.
    Ended(u64, u64),
    /// Something was found.
    Found(String),
}

const USAGE: &str = "\
usage: explore [NAME..]            scenarios whose names contain one of these; else all
  --seconds N      so long for each scenario (default: --schedules)
  --schedules N    so many for each scenario (default 200)
  --from SEED      the first seed (default 1)
  --seed SEED      this one alone, and its log with --log
  --log            print every point
  --replay FILE    with --seed: the choices of the line `schedule:` of a report
  --jobs N         processes at a time (default 2)
  --all            go on after a finding
  --list           the names";

fn settings(mut args: impl Iterator<Item = String>) -> Option<Settings> {
    let mut settings = Settings {
        names: Vec::new(),
        seconds: None,
        schedules: 200,
        from: 1,
        seed: None,
        loud: false,
        replay: None,
        jobs: 2,
        all: false,
    };
    while let Some(arg) = args.next() {
        let mut number = || args.next()?.parse::<u64>().ok();
        match arg.as_str() {
            "--seconds" => settings.seconds = Some(number()?),
            "--schedules" => settings.schedules = number()?,
            "--from" => settings.from = number()?,
            "--seed" => settings.seed = Some(number()?),
            "--jobs" => settings.jobs = number()? as usize,
            "--log" => settings.loud = true,
            "--all" => settings.all = true,
            "--replay" => settings.replay = Some(std::fs::read_to_string(args.next()?).ok()?),
            name if !name.starts_with('-') => settings.names.push(name.to_owned()),
            _ => return None,
        }
    }
    Some(settings)
}

/// The whole program: explores `scenarios` as the arguments say. `prepare` runs once, before
/// the first schedule.
pub fn main(scenarios: &[Scenario], prepare: fn()) -> ExitCode {
    if std::env::args().any(|arg| arg == "--list") {
        scenarios.iter().for_each(|s| println!("{}", s.name));
        return ExitCode::SUCCESS;
    }
    let Some(settings) = settings(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    fix_addresses();
    prepare();
    let is_wanted = |s: &&Scenario| {
        settings.names.is_empty() || settings.names.iter().any(|n| s.name.contains(n.as_str()))
    };
    let mut any = false;
    for scenario in scenarios.iter().filter(is_wanted) {
        let found = match settings.seed {
            Some(seed) => one(scenario, seed, &settings),
            None => many(scenario, &settings),
        };
        any |= found;
    }
    if any {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// One schedule, with all that it tells.
fn one(scenario: &Scenario, seed: u64, settings: &Settings) -> bool {
    let child = Child::start(scenario, seed, settings);
    let (_, status) = wait_for_one(std::slice::from_ref(&child));
    let (outcome, text) = child.finish(status);
    if settings.loud {
        print!("{text}");
    }
    match &outcome {
        Outcome::Ended(steps, hash) => {
            println!(
                "{} seed {seed}: {steps} points, hash {hash:016x}",
                scenario.name
            );
        }
        Outcome::Found(_) if settings.loud => {}
        Outcome::Found(report) => println!("{} seed {seed}:\n{report}", scenario.name),
    }
    matches!(outcome, Outcome::Found(_))
}

/// Seeds in their order, until time or number is up or something was found.
fn many(scenario: &Scenario, settings: &Settings) -> bool {
    let begin = Instant::now();
    let mut running: Vec<Child> = Vec::new();
    let mut expected: Vec<(u64, Outcome)> = Vec::new();
    let (mut next, mut again) = (settings.from, None);
    let (mut n_ended, mut n_steps, mut n_found) = (0u64, 0u64, 0u64);
    loop {
        let is_over = match settings.seconds {
            Some(seconds) => begin.elapsed() >= Duration::from_secs(seconds),
            None => next - settings.from >= settings.schedules,
        } || (n_found > 0 && !settings.all);
        if is_over && running.is_empty() {
            break;
        }
        while !is_over && running.len() < settings.jobs {
            let seed = again.take().unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            running.push(Child::start(scenario, seed, settings));
        }
        let (at, status) = wait_for_one(&running);
        let child = running.swap_remove(at);
        let seed = child.seed;
        let (outcome, _) = child.finish(status);
        let strategy = strategy::of_seed(seed).1;
        n_ended += 1;
        let is_first = n_found == 0;
        let mut report = |what: &str, text: &str| {
            n_found += 1;
            println!(
                "FOUND {} seed {} strategy {strategy} schedules {n_ended} seconds {:.1}: {what}",
                scenario.name,
                seed,
                begin.elapsed().as_secs_f64()
            );
            print!("{text}");
        };
        match &outcome {
            Outcome::Found(text) => {
                let what = text
                    .lines()
                    .rev()
                    .find_map(|l| l.strip_prefix("finding: "))
                    .unwrap_or("?");
                report(what, if is_first { text } else { "" });
            }
            Outcome::Ended(steps, _) => {
                n_steps += steps;
                match expected.iter().position(|(twice, _)| *twice == seed) {
                    Some(at) => {
                        let (_, first) = expected.swap_remove(at);
                        if first != outcome {
                            report(
                                &format!("not the same twice: {first:?}, then {outcome:?}"),
                                "",
                            );
                        }
                    }
                    None if seed.is_multiple_of(TWICE) => {
                        expected.push((seed, outcome.clone()));
                        again = Some(seed);
                    }
                    None => {}
                }
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{:<24} {n_ended:>7} schedules {:>8} points each {seconds:>7.1} s {:>7.0} a second  found {n_found}",
        scenario.name,
        n_steps / n_ended.max(1),
        n_ended as f64 / seconds,
    );
    n_found > 0
}

/// A process that runs one schedule.
#[derive(Debug)]
struct Child {
    pid: i32,
    seed: u64,
    /// What it writes to stderr, and its result.
    output: File,
}

/// Waits for the end of any of them, and gives which and its status.
fn wait_for_one(children: &[Child]) -> (usize, i32) {
    let mut status = 0;
    // SAFETY: the status is a valid place; only children of `start` exist.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, 0) };
    let at = children
        .iter()
        .position(|child| child.pid == pid)
        .expect("it was started here");
    (at, status)
}

impl Child {
    fn start(scenario: &Scenario, seed: u64, settings: &Settings) -> Child {
        // SAFETY: the name is a valid string; the descriptor is nobody else's.
        let output = unsafe {
            File::from_raw_fd(libc::memfd_create(c"schedule".as_ptr(), libc::MFD_CLOEXEC))
        };
        // SAFETY: this process has one thread, so the child may do whatever it likes.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "the kernel refuses a process");
        if pid == 0 {
            // SAFETY: plain integers; the descriptors are open.
            unsafe {
                libc::dup2(output.as_raw_fd(), 2);
                libc::alarm(HANGS_AFTER);
            }
            schedule(scenario, seed, settings);
        }
        Child { pid, seed, output }
    }

    /// What became of it, and what it wrote.
    fn finish(mut self, status: i32) -> (Outcome, String) {
        let mut text = String::new();
        let _ = self.output.rewind();
        let mut bytes = Vec::new();
        let _ = self.output.read_to_end(&mut bytes);
        text.push_str(&String::from_utf8_lossy(&bytes));
        if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
            let line = text.lines().rev().find_map(|l| l.strip_prefix("ended: "));
            let mut words = line
                .unwrap_or("")
                .split(' ')
                .map(|w| w.parse().unwrap_or(0));
            let mut word = || words.next().unwrap_or(0);
            return (Outcome::Ended(word(), word()), text);
        }
        if libc::WIFSIGNALED(status) {
            let why = match libc::WTERMSIG(status) {
                libc::SIGALRM => "a thread blocks outside of the explorer".to_owned(),
                signal => format!("killed by signal {signal}"),
            };
            text.push_str(&format!("finding: {why}\n"));
        }
        (Outcome::Found(text.clone()), text)
    }
}

/// Runs one schedule in this process, and ends it.
fn schedule(scenario: &Scenario, seed: u64, settings: &Settings) -> ! {
    let replay = settings.replay.as_deref().and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("schedule: "));
        Replay::parse(line.unwrap_or(text).trim())
    });
    let strategy: Box<dyn Strategy> = match replay {
        Some(replay) => Box::new(replay),
        None => strategy::of_seed(seed).0,
    };
    let fds_before = open_descriptors();
    control::begin(strategy, seed, MOST_STEPS, settings.loud);
    let outcome = catch_unwind(AssertUnwindSafe(scenario.run));
    if let Err(payload) = outcome {
        let why = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("?")
            .to_owned();
        control::with(|c| c.fail(&format!("the scenario panicked: {why}")));
    }
    let (steps, hash) = control::end();
    let fds = open_descriptors();
    if fds != fds_before {
        end_with_finding(&format!(
            "finding: descriptors leak: {fds_before} before, {fds} after\n"
        ));
    }
    eprintln!("ended: {steps} {hash}");
    std::process::exit(0)
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Begins anew with addresses that are the same in every run, so that what depends on their
/// order is the same too.
fn fix_addresses() {
    const NO_RANDOMIZE: libc::c_ulong = libc::ADDR_NO_RANDOMIZE as libc::c_ulong;
    // SAFETY: takes plain integers.
    let now = unsafe { libc::personality(0xffff_ffff) } as libc::c_ulong;
    if now & NO_RANDOMIZE != 0 {
        return;
    }
    // SAFETY: takes plain integers.
    if unsafe { libc::personality(now | NO_RANDOMIZE) } < 0 {
        return;
    }
    use std::os::unix::process::CommandExt;
    let Ok(program) = std::env::current_exe() else {
        return;
    };
    let error = std::process::Command::new(program)
        .args(std::env::args_os().skip(1))
        .exec();
    eprintln!("explore: cannot begin anew: {error}");
}

/// Starts a plain thread in a scenario, under the explorer's control.
///
/// # Panics
///
/// If the kernel gives no thread.
#[track_caller]
pub fn spawn_thread<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> impl FnOnce() -> T {
    let thread = super::thread::facade::Builder::new()
        .name("thread".to_owned())
        .spawn(f)
        .expect("a thread is to be had");
    move || thread.join().expect("it does not panic")
}

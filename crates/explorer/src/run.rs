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

/// The most points that a schedule may pass before it counts as endless.
const MOST_STEPS: u64 = 400_000;

/// One schedule in so many is run twice, and must come to the same: by its seed alone, or, each
/// other time, by the choices that were recorded.
const TWICE: u64 = 64;

/// How many schedules of the scenario that is known to fail are run until it does.
const FAILS_WITHIN: u64 = 64;

/// A program to explore.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The name by which it is asked for.
    pub name: &'static str,
    /// The program. It builds its runtimes itself, and drops them.
    pub run: fn(),
    /// Each of its schedules is to be replayed.
    pub is_replayed: bool,
}

/// The task.
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
    /// Only see whether a failure is found, and found again.
    check: bool,
}

/// The outcome of a schedule.
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
  --check          replay a schedule that fails, and nothing else
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
        check: false,
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
            "--check" => settings.check = true,
            "--replay" => settings.replay = Some(std::fs::read_to_string(args.next()?).ok()?),
            name if !name.starts_with('-') => settings.names.push(name.to_owned()),
            _ => return None,
        }
    }
    Some(settings)
}

/// The whole program: explores `scenarios` as the arguments say. `broken` fails in some schedules:
/// whether it does so again is checked with `--check`. `prepare` runs once, before the first
/// schedule.
pub fn main(scenarios: &[Scenario], broken: &Scenario, prepare: fn()) -> ExitCode {
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
    if settings.check {
        return match check(broken, &settings) {
            Ok(what) => {
                println!("{what}");
                ExitCode::SUCCESS
            }
            Err(why) => {
                println!("FOUND {}: {why}", broken.name);
                ExitCode::FAILURE
            }
        };
    }
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

/// Runs one schedule, and gives what became of it and all that it wrote.
fn run_one(
    scenario: &Scenario,
    seed: u64,
    replay: Option<&str>,
    settings: &Settings,
) -> (Outcome, String) {
    let child = Child::start(scenario, seed, replay, settings);
    let (_, status) = wait_for_one(std::slice::from_ref(&child));
    child.finish(status)
}

/// Looks for a schedule in which `broken` fails and one in which it does not, and replays both: the
/// choices that were recorded must lead to the same events, and to the same failure at the same
/// point.
fn check(broken: &Scenario, settings: &Settings) -> Result<String, String> {
    let (mut failed, mut ended) = (None, None);
    for seed in settings.from..settings.from + FAILS_WITHIN {
        let (outcome, text) = run_one(broken, seed, None, settings);
        let schedule = schedule_of(&text).ok_or("a report has no schedule")?;
        let (again, _) = run_one(broken, seed, Some(schedule), settings);
        if !is_same(&outcome, &again) {
            return Err(format!(
                "seed {seed} is not the same when it is replayed: {outcome:?}, then {again:?}"
            ));
        }
        match outcome {
            Outcome::Ended(..) => ended = ended.or(Some(seed)),
            Outcome::Found(report) => {
                let end = end_of(&report).ok_or("a report has no end")?;
                // Without its choices it is another schedule: so they are what was replayed.
                let (other, _) = run_one(broken, seed, Some(""), settings);
                if is_same(&Outcome::Found(report.clone()), &other) {
                    return Err(format!("seed {seed} fails the same without its choices"));
                }
                failed = failed.or_else(|| Some((seed, end.to_owned())));
            }
        }
        if let (Some((seed, end)), Some(_)) = (&failed, ended) {
            return Ok(format!(
                "{} fails with seed {seed}, and again: {end}",
                broken.name
            ));
        }
    }
    Err(format!(
        "not both failed and ended within {FAILS_WITHIN} schedules"
    ))
}

/// The choices that a report or a schedule that ended has in it.
fn schedule_of(text: &str) -> Option<&str> {
    text.lines()
        .rev()
        .find_map(|l| l.strip_prefix("schedule: "))
}

/// The point at which a schedule failed, with the hash of all points up to there.
fn end_of(report: &str) -> Option<&str> {
    report
        .lines()
        .rev()
        .find_map(|l| l.strip_prefix("failed: "))
}

/// Whether two runs came to the same. A crash has no point to compare.
fn is_same(one: &Outcome, other: &Outcome) -> bool {
    match (one, other) {
        (Outcome::Found(one), Outcome::Found(other)) => end_of(one) == end_of(other),
        (one, other) => one == other,
    }
}

/// One schedule, with all that it tells.
fn one(scenario: &Scenario, seed: u64, settings: &Settings) -> bool {
    let replay = settings.replay.as_deref();
    let (outcome, text) = run_one(scenario, seed, replay, settings);
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
    // Runs that are to be repeated, perhaps by their choices; and the results that repetitions must have.
    let mut again: Vec<(u64, Option<String>)> = Vec::new();
    let mut expected: Vec<(u64, Outcome)> = Vec::new();
    let mut next = settings.from;
    let (mut n_ended, mut n_steps, mut n_found) = (0u64, 0u64, 0u64);
    loop {
        let is_over = match settings.seconds {
            Some(seconds) => begin.elapsed() >= Duration::from_secs(seconds),
            None => next - settings.from >= settings.schedules,
        } || (n_found > 0 && !settings.all);
        while running.len() < settings.jobs && !(is_over && again.is_empty()) {
            let (seed, replay) = again.pop().unwrap_or_else(|| {
                next += 1;
                (next - 1, None)
            });
            let child = Child::start(scenario, seed, replay.as_deref(), settings);
            running.push(child);
        }
        if running.is_empty() {
            break;
        }
        let (at, status) = wait_for_one(&running);
        let child = running.swap_remove(at);
        let seed = child.seed;
        let (outcome, text) = child.finish(status);
        n_ended += 1;
        let found = |what: &str| {
            println!(
                "FOUND {} seed {seed} strategy {} schedules {n_ended} seconds {:.1}: {what}",
                scenario.name,
                strategy::of_seed(seed).1,
                begin.elapsed().as_secs_f64()
            );
        };
        if let Some(at) = expected.iter().position(|(twice, _)| *twice == seed) {
            let (_, first) = expected.swap_remove(at);
            match (is_same(&first, &outcome), &first) {
                (true, Outcome::Ended(..)) => {}
                (true, Outcome::Found(_)) => println!("the same when it was replayed"),
                (false, _) => {
                    n_found += 1;
                    found(&format!("not the same twice: {first:?}, then {outcome:?}"));
                }
            }
            continue;
        }
        let is_first = n_found == 0;
        match &outcome {
            Outcome::Found(text) => {
                n_found += 1;
                let what = text.lines().rev().find_map(|l| l.strip_prefix("finding: "));
                found(what.unwrap_or("?"));
                if is_first {
                    print!("{text}");
                }
            }
            Outcome::Ended(steps, _) => n_steps += steps,
        }
        let is_finding = matches!(outcome, Outcome::Found(_));
        // A crash has left no schedule.
        let replay = schedule_of(&text).map(str::to_owned);
        if is_finding && is_first && replay.is_some() {
            expected.push((seed, outcome));
            again.push((seed, replay));
        } else if !is_finding && seed.is_multiple_of(TWICE) {
            expected.push((seed, outcome));
            again.push((seed, replay.filter(|_| seed.is_multiple_of(2 * TWICE))));
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
    /// Its output on stderr, and its result.
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
    fn start(scenario: &Scenario, seed: u64, replay: Option<&str>, settings: &Settings) -> Child {
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
            schedule(scenario, seed, replay, settings.loud);
        }
        Child { pid, seed, output }
    }

    /// Its outcome, and its output.
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
fn schedule(scenario: &Scenario, seed: u64, replay: Option<&str>, loud: bool) -> ! {
    let replay = replay.and_then(|text| Replay::parse(schedule_of(text).unwrap_or(text).trim()));
    let strategy: Box<dyn Strategy> = match replay {
        Some(replay) => Box::new(replay),
        None => strategy::of_seed(seed).0,
    };
    let fds_before = open_descriptors();
    control::begin(strategy, seed, MOST_STEPS, loud);
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
    let (steps, hash, choices) = control::end();
    let fds = open_descriptors();
    if fds != fds_before {
        end_with_finding(&format!(
            "finding: descriptors leak: {fds_before} before, {fds} after\n"
        ));
    }
    if loud || seed.is_multiple_of(TWICE) || scenario.is_replayed {
        eprintln!("schedule: {choices}");
    }
    eprintln!("ended: {steps} {hash}");
    std::process::exit(0)
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Begins anew with addresses that are the same in every run, so that what depends on their
/// order is the same too.
pub fn fix_addresses() {
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

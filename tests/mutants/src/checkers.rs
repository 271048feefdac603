//! The programs that may find a mutant.
//!
//! | checker | runs | part of |
//! |---|---|---|
//! | `loom FILTER` | models of the library whose path contains that | `make loom` |
//! | `unit FILTER` | the library's own tests | `make test` |
//! | `test PROGRAM/MODULE` | tests of tests/PROGRAM/MODULE.rs | `make test` |
//! | `explore NAME..` | scenarios, each for [`EXPLORE_S`], from the seeds of `make explore-short` on | `make explore` |

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Seconds for each scenario.
const EXPLORE_S: u64 = 20;

/// Schedules of each scenario that `make test` runs.
pub(crate) const SHORT: u64 = 150;

/// Seconds after which a checker hangs.
const HANGS_AFTER_S: u64 = 240;

/// The file with the checkers that have passed without a mutant.
const PASSED: &str = "passed";

/// The features of the plain builds, as in `make test`.
const FEATURES: &str = "windlass/chaos,windlass/sim";

/// What models and schedules spend their time in. The library is not optimised: it is built once for each mutant.
const OPTIMISED: [&str; 2] = [
    r#"profile.dev.package."*".opt-level=2"#,
    "profile.dev.package.windlass-explorer.opt-level=2",
];

/// What `timeout` returns for a command that it killed, or that a signal killed.
const KILLED: i32 = 137;

/// How a checker ended.
pub(crate) enum Outcome {
    Passes,
    /// What failed, in words.
    Fails(String),
    DoesNotCompile,
}

/// The copy of the tree and the folders of cargo's.
pub(crate) struct Bench {
    work: PathBuf,
    /// Checkers that pass without a mutant.
    passed: BTreeSet<String>,
}

/// A kind of checker, and what it is asked.
fn kind_of(checker: &str) -> (&str, &str) {
    checker.split_once(' ').unwrap_or((checker, ""))
}

#[cfg(test)]
pub(crate) fn is_known(checker: &str) -> bool {
    let (kind, what) = kind_of(checker);
    match kind {
        "test" => super::root().join(format!("tests/{what}.rs")).exists(),
        "loom" | "unit" | "explore" => !what.is_empty(),
        _ => false,
    }
}

impl Bench {
    /// With `has_changed` nothing is known of the copy.
    pub(crate) fn new(work: &Path, has_changed: bool) -> Bench {
        let before = match has_changed {
            true => String::new(),
            false => fs::read_to_string(work.join(PASSED)).unwrap_or_default(),
        };
        Bench {
            work: work.to_path_buf(),
            passed: before.lines().map(str::to_owned).collect(),
        }
    }

    /// Whether a checker passes in the unchanged copy, now or before.
    pub(crate) fn passes_unchanged(&mut self, checker: &str) -> bool {
        if self.passed.contains(checker) {
            return true;
        }
        // A scenario runs as `make test` runs it.
        let passes = matches!(self.run_for(checker, "--schedules", SHORT), Outcome::Passes);
        if passes {
            self.passed.insert(checker.to_owned());
            let all: Vec<_> = self.passed.iter().map(String::as_str).collect();
            fs::write(self.work.join(PASSED), all.join("\n"))
                .expect("target/mutants can be written");
        }
        passes
    }

    /// Runs a checker.
    pub(crate) fn run(&self, checker: &str) -> Outcome {
        self.run_for(checker, "--seconds", EXPLORE_S)
    }

    fn run_for(&self, checker: &str, unit: &str, most: u64) -> Outcome {
        let (kind, what) = kind_of(checker);
        // A busy machine compiles for minutes.
        let no_limit = 0;
        let verb = if kind == "explore" { "build" } else { "test" };
        let mut build = self.cargo(kind, what, verb, no_limit);
        if kind != "explore" {
            build.arg("--no-run");
        }
        if !build.output().expect("timeout starts").status.success() {
            return Outcome::DoesNotCompile;
        }
        let verb = if kind == "explore" { "run" } else { "test" };
        let mut run = self.cargo(kind, what, verb, limit_s(kind, what));
        run.arg("--");
        match kind {
            "explore" => run.args([unit, &most.to_string()]).args(what.split(' ')),
            "test" => run.arg(module_of(what)),
            _ => run.args(what.split(' ')),
        };
        outcome(kind, what, &run.output().expect("timeout starts"))
    }

    /// A command of cargo's for a kind of checker, which is killed after so many seconds; 0 for never.
    fn cargo(&self, kind: &str, what: &str, verb: &str, limit_s: u64) -> Command {
        let mut command = Command::new("timeout");
        command
            .arg("--signal=KILL")
            .arg(limit_s.to_string())
            .args(["cargo", verb]);
        command.args([
            "-p",
            if kind == "explore" {
                "windlass-explore"
            } else {
                "windlass"
            },
        ]);
        match kind {
            // The order of locks is checked by thread, and loom has one for all.
            "loom" => command
                .args([
                    "--lib",
                    "--config",
                    "profile.dev.package.windlass.debug-assertions=false",
                ])
                .env("LOOM_MAX_PREEMPTIONS", "2"),
            "unit" => command.args(["--lib", "--features", FEATURES]),
            "test" => command.args(["--features", FEATURES, "--test", program_of(what)]),
            _ => &mut command,
        };
        let has_cfg = matches!(kind, "loom" | "explore");
        if has_cfg {
            command.env("RUSTFLAGS", format!("--cfg {kind}"));
            OPTIMISED
                .iter()
                .for_each(|it| _ = command.args(["--config", it]));
        }
        let folder = if has_cfg { kind } else { "plain" };
        command
            .arg("--target-dir")
            .arg(self.work.join(folder))
            .current_dir(self.work.join("tree"))
            // Each mutant changes a few lines of one file.
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        command
    }
}

/// The seconds that a checker has.
fn limit_s(kind: &str, what: &str) -> u64 {
    let n_scenarios = match kind {
        "explore" => what.split(' ').count() as u64,
        _ => 0,
    };
    HANGS_AFTER_S + n_scenarios * EXPLORE_S
}

fn program_of(what: &str) -> &str {
    what.split('/').next().expect("a program")
}

/// The filter for a module of tests; a program without modules has none.
fn module_of(what: &str) -> String {
    what.split_once('/')
        .map_or(String::new(), |(_, module)| format!("{module}::"))
}

/// How a command ended.
fn outcome(kind: &str, what: &str, output: &Output) -> Outcome {
    if output.status.success() {
        return Outcome::Passes;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let found = match kind {
        "explore" => text.lines().find_map(finding),
        _ => text.lines().find_map(failed_test),
    };
    let is_killed = output.status.code().is_none_or(|code| code == KILLED);
    let how = found.unwrap_or_else(|| match is_killed {
        true => format!("{what} does not end"),
        false => format!("the process of {what} dies"),
    });
    Outcome::Fails(format!("{kind}: {how}"))
}

/// The first test that failed, in a line of the test harness.
fn failed_test(line: &str) -> Option<String> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    let name = name.rsplit("::").next().expect("a name");
    Some(name.trim_end_matches(" - should panic").to_owned())
}

/// A finding in a line of the explorer: the scenario, and after how many schedules.
fn finding(line: &str) -> Option<String> {
    let (scenario, rest) = line.strip_prefix("FOUND ")?.split_once(" seed ")?;
    let n: u64 = rest
        .split_once(" schedules ")?
        .1
        .split(' ')
        .next()?
        .parse()
        .ok()?;
    let more = if n > SHORT {
        ", more than `make test` runs"
    } else {
        ""
    };
    Some(format!("{scenario}, schedule {n}{more}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_read_from_the_output() {
        let line = "test sched::queue::runq::loom_tests::loom_two_thieves ... FAILED";
        assert_eq!(failed_test(line).as_deref(), Some("loom_two_thieves"));
        assert_eq!(failed_test("test a::b ... ok"), None);
        let line = "FOUND hogs seed 7 strategy walk schedules 220 seconds 0.5: a deadlock";
        let found = "hogs, schedule 220, more than `make test` runs";
        assert_eq!(finding(line).as_deref(), Some(found));
    }
}

//! The programs that may find a mutant.
//!
//! | checker | runs | part of |
//! |---|---|---|
//! | `unit FILTER` | the library's own tests | `make test` |
//! | `loom FILTER` | models of the library whose path contains that, without those that take long | `make test` |
//! | `explore NAME..` | [`SHORT`] schedules of each scenario, those of `make explore-short` | `make test` |
//! | `test PROGRAM/MODULE` | tests of tests/PROGRAM/MODULE.rs | `make test` |
//! | `loom FILTER` | all of these models | `make loom` |
//! | `explore NAME..` | [`LONG`] schedules of each scenario | `make explore` |

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::weave;

/// Schedules of each scenario that `make test` runs.
pub(crate) const SHORT: u64 = 150;

/// Schedules of each scenario, if nothing cheaper has found a mutant: a few seconds of an idle CPU.
const LONG: u64 = 5_000;

/// Seconds after which a test's own guard takes it for one that hangs: the test harness has named it then.
const TEST_HANGS_AFTER_S: &str = "65";

/// The file with the checkers that have passed without a mutant.
const PASSED: &str = "passed";

/// The features of the plain builds, as in `make test`.
const FEATURES: &str = "windlass/chaos,windlass/sim";

/// What models and schedules spend their time in, also within the library.
const OPTIMISED: [&str; 3] = [
    r#"profile.dev.package."*".opt-level=2"#,
    "profile.dev.package.windlass-explorer.opt-level=2",
    "profile.dev.package.windlass.opt-level=1",
];

/// Follows what is found by more than `make test` runs.
const MORE: &str = ", more than `make test` runs";

/// The models that `make test` leaves out.
pub(crate) fn long_models() -> impl Iterator<Item = &'static str> {
    let tools = include_str!("../../../make/tools.mk");
    let line = tools
        .lines()
        .find_map(|line| line.strip_prefix("LONG_MODELS := "));
    line.expect("make/tools.mk names them").split(' ')
}

/// What `timeout` returns for a command that it killed.
const KILLED: i32 = 137;

/// How a checker ended.
enum Outcome {
    Passes,
    /// What failed, in words.
    Fails(String),
    DoesNotEnd(String),
}

/// A run of a checker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run<'a> {
    /// Their order is that of their cost, but what `make test` runs comes first.
    turn: Turn,
    what: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Unit,
    LoomShort,
    ExploreShort,
    Test,
    Loom,
    Explore,
}

/// The copy of the tree, its builds, and what is known of them.
pub(crate) struct Bench {
    work: PathBuf,
    /// The names of the test programs that are built together.
    tests: BTreeSet<String>,
    built: BTreeMap<String, PathBuf>,
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

/// The runs of these checkers, in their order.
fn runs(checkers: &[String]) -> Vec<Run<'_>> {
    let of = |checker| {
        let (kind, what) = kind_of(checker);
        let turns = match kind {
            "unit" => vec![Turn::Unit],
            "test" => vec![Turn::Test],
            "loom" => vec![Turn::LoomShort, Turn::Loom],
            _ => vec![Turn::ExploreShort, Turn::Explore],
        };
        turns.into_iter().map(move |turn| Run { turn, what })
    };
    let mut runs: Vec<_> = checkers.iter().flat_map(|it| of(it)).collect();
    runs.sort_by_key(|run| run.turn);
    runs
}

impl Run<'_> {
    fn kind(&self) -> &'static str {
        match self.turn {
            Turn::Unit => "unit",
            Turn::Test => "test",
            Turn::LoomShort | Turn::Loom => "loom",
            Turn::ExploreShort | Turn::Explore => "explore",
        }
    }

    /// Whether it may end differently the next time.
    fn is_by_chance(&self, outcome: &Outcome) -> bool {
        self.turn == Turn::Test || matches!(outcome, Outcome::DoesNotEnd(_))
    }

    /// The checker, as it is written in patches/.
    fn checker(&self) -> String {
        format!("{} {}", self.kind(), self.what)
    }

    /// The program that cargo builds for it, as cargo's output names it.
    fn program(&self) -> String {
        match self.turn {
            Turn::Unit => "unittests src/lib.rs".to_owned(),
            Turn::Test => format!("test {}", program_of(self.what)),
            _ => self.kind().to_owned(),
        }
    }

    fn arguments(&self) -> Vec<String> {
        let words = self.what.split(' ').map(str::to_owned);
        let asked = |n: u64| {
            let first = ["--schedules".to_owned(), n.to_string()];
            first.into_iter().chain(words.clone()).collect()
        };
        match self.turn {
            Turn::ExploreShort => asked(SHORT),
            Turn::Explore => asked(LONG),
            Turn::Unit | Turn::Loom => words.collect(),
            Turn::LoomShort => {
                let skipped = long_models().flat_map(|name| ["--skip", name]);
                words.chain(skipped.map(str::to_owned)).collect()
            }
            Turn::Test => vec![module_of(self.what)],
        }
    }

    /// Seconds after which it hangs, on a busy machine.
    fn limit_s(&self) -> u64 {
        match self.turn {
            Turn::Unit => 60,
            Turn::Test | Turn::LoomShort | Turn::Loom => 300,
            Turn::ExploreShort | Turn::Explore => 600,
        }
    }
}

impl Bench {
    /// For these checkers. With `has_changed` nothing is known of the copy.
    pub(crate) fn new<'a>(
        work: &Path,
        has_changed: bool,
        checkers: impl Iterator<Item = &'a String>,
    ) -> Bench {
        let tests = checkers.filter_map(|checker| checker.strip_prefix("test "));
        let before = match has_changed {
            true => String::new(),
            false => fs::read_to_string(work.join(PASSED)).unwrap_or_default(),
        };
        Bench {
            work: work.to_path_buf(),
            tests: tests.map(|what| program_of(what).to_owned()).collect(),
            built: BTreeMap::new(),
            passed: before.lines().map(str::to_owned).collect(),
        }
    }

    /// What finds a mutant first, if anything does.
    pub(crate) fn find(&mut self, mutant: usize, checkers: &[String]) -> Option<String> {
        runs(checkers).into_iter().find_map(|run| {
            let outcome = self.run(&run, mutant);
            let found = match &outcome {
                Outcome::Passes => return None,
                Outcome::Fails(how) | Outcome::DoesNotEnd(how) => how.clone(),
            };
            let is_sure = self.passes_unchanged(&run, run.is_by_chance(&outcome));
            if !is_sure {
                eprintln!(
                    "mutants: {found}, but {} fails without a mutant, too",
                    run.checker()
                );
            }
            let more = match run.turn {
                Turn::Loom => MORE,
                _ => "",
            };
            is_sure.then(|| format!("{}: {found}{more}", run.kind()))
        })
    }

    /// Whether a checker passes without a mutant: now, or before.
    fn passes_unchanged(&mut self, run: &Run<'_>, now: bool) -> bool {
        let checker = run.checker();
        if !now && self.passed.contains(&checker) {
            return true;
        }
        // A scenario runs as `make test` runs it.
        let turn = if run.turn == Turn::Explore {
            Turn::ExploreShort
        } else {
            run.turn
        };
        let passes = matches!(self.run(&Run { turn, ..*run }, 0), Outcome::Passes);
        if passes {
            self.passed.insert(checker);
            let all: Vec<_> = self.passed.iter().map(String::as_str).collect();
            fs::write(self.work.join(PASSED), all.join("\n"))
                .expect("target/mutants can be written");
        }
        passes
    }

    /// Runs a checker with a mutant, and keeps its output in `target/mutants/output`.
    fn run(&mut self, run: &Run<'_>, mutant: usize) -> Outcome {
        let program = self.program(run);
        let mut command = Command::new("timeout");
        command
            .arg("--signal=KILL")
            .arg(run.limit_s().to_string())
            .arg(program)
            .args(run.arguments())
            .current_dir(self.work.join("tree"))
            .env("WINDLASS_TEST_HANG_SECONDS", TEST_HANGS_AFTER_S)
            .env("LOOM_MAX_PREEMPTIONS", "2")
            .env(weave::VARIABLE, mutant.to_string());
        let output = command.output().expect("timeout starts");
        let text = [&output.stdout[..], &output.stderr].concat();
        let folder = self.work.join("output");
        fs::create_dir_all(&folder).expect("target/mutants can be written");
        fs::write(folder.join(mutant.to_string()), text).expect("target/mutants can be written");
        outcome(run, &output)
    }

    /// The program of a run, which is built with all mutants the first time.
    fn program(&mut self, run: &Run<'_>) -> PathBuf {
        let name = run.program();
        if !self.built.contains_key(&name) {
            let built = match run.turn {
                Turn::Unit | Turn::Test => self.build_tests(),
                Turn::LoomShort | Turn::Loom => self.build_models(),
                Turn::ExploreShort | Turn::Explore => self.build_explorer(),
            };
            self.built.extend(built);
        }
        self.built[&name].clone()
    }

    fn build_tests(&self) -> Vec<(String, PathBuf)> {
        let mut command = self.cargo("test", "plain");
        command.args([
            "--no-run",
            "-p",
            "windlass",
            "--features",
            FEATURES,
            "--lib",
        ]);
        self.tests
            .iter()
            .for_each(|program| _ = command.args(["--test", program]));
        let text = built(&mut command);
        let programs = text.lines().filter_map(executable);
        let tree = self.work.join("tree");
        programs.map(|(name, at)| (name, tree.join(at))).collect()
    }

    fn build_models(&self) -> Vec<(String, PathBuf)> {
        let mut command = self.cargo("test", "loom");
        command.args(["--no-run", "-p", "windlass", "--lib"]);
        // The order of locks is checked by thread, and loom has one for all.
        command.args([
            "--config",
            "profile.dev.package.windlass.debug-assertions=false",
        ]);
        let text = built(with_cfg("loom", &mut command));
        let (_, at) = text.lines().find_map(executable).expect("a program");
        vec![("loom".to_owned(), self.work.join("tree").join(at))]
    }

    fn build_explorer(&self) -> Vec<(String, PathBuf)> {
        let mut command = self.cargo("build", "explore");
        built(with_cfg(
            "explore",
            command.args(["-p", "windlass-explore"]),
        ));
        let at = self.work.join("explore/debug/explore");
        vec![("explore".to_owned(), at)]
    }

    /// A command of cargo's that builds in this folder.
    fn cargo(&self, verb: &str, folder: &str) -> Command {
        let mut command = Command::new("cargo");
        command
            .arg(verb)
            .arg("--target-dir")
            .arg(self.work.join(folder))
            .current_dir(self.work.join("tree"))
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        command
    }
}

fn with_cfg<'a>(name: &str, command: &'a mut Command) -> &'a mut Command {
    command.env("RUSTFLAGS", format!("--cfg {name}"));
    OPTIMISED
        .iter()
        .for_each(|it| _ = command.args(["--config", it]));
    command
}

/// Runs a command of cargo's, and returns its output.
fn built(command: &mut Command) -> String {
    let output = command.output().expect("cargo starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "a mutant does not compile:\n{text}"
    );
    text.into_owned()
}

fn program_of(what: &str) -> &str {
    what.split('/').next().expect("a program")
}

/// The name and the place of a program in a line of cargo's.
fn executable(line: &str) -> Option<(String, &str)> {
    let rest = line.trim_start().strip_prefix("Executable ")?;
    let (sources, at) = rest.strip_suffix(')')?.rsplit_once(" (")?;
    let name = match sources.strip_prefix("tests/") {
        Some(file) => format!("test {}", program_of(file.trim_end_matches(".rs"))),
        None => sources.to_owned(),
    };
    Some((name, at))
}

/// The filter for a module of tests; a program without modules has none.
fn module_of(what: &str) -> String {
    what.split_once('/')
        .map_or(String::new(), |(_, module)| format!("{module}::"))
}

/// How a command ended.
fn outcome(run: &Run<'_>, output: &Output) -> Outcome {
    if output.status.success() {
        return Outcome::Passes;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let found = match run.kind() {
        "explore" => text.lines().find_map(finding),
        _ => text.lines().find_map(failed_test),
    };
    let hanging = text.lines().find_map(hanging_test);
    let is_killed = output.status.code() == Some(KILLED) || output.status.signal() == Some(9);
    match (found, hanging) {
        (Some(how), _) => Outcome::Fails(how),
        (None, Some(test)) => Outcome::DoesNotEnd(format!("{test} does not end")),
        // Many scenarios take longer than that.
        (None, None) if is_killed && run.turn == Turn::Explore => Outcome::Passes,
        (None, None) if is_killed => Outcome::DoesNotEnd(format!("{} does not end", run.what)),
        (None, None) => Outcome::Fails(format!("the process of {} dies", run.what)),
    }
}

/// The first test that failed, in a line of the test harness.
fn failed_test(line: &str) -> Option<String> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    let name = name.rsplit("::").next().expect("a name");
    Some(name.trim_end_matches(" - should panic").to_owned())
}

/// A test that takes long, in a line of the test harness.
fn hanging_test(line: &str) -> Option<&str> {
    let name = line
        .strip_prefix("test ")?
        .split_once(" has been running for over ")?
        .0;
    name.rsplit("::").next()
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
    let more = if n > SHORT { MORE } else { "" };
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
        let line = "test channel::a_wait has been running for over 60 seconds";
        assert_eq!(hanging_test(line), Some("a_wait"));
        let line = "FOUND hogs seed 7 strategy walk schedules 220 seconds 0.5: a deadlock";
        let found = "hogs, schedule 220, more than `make test` runs";
        assert_eq!(finding(line).as_deref(), Some(found));
    }

    #[test]
    fn what_make_test_runs_comes_first() {
        let checkers = ["loom a", "explore b c", "test d/e"].map(str::to_owned);
        let order: Vec<_> = runs(&checkers).iter().map(|run| run.turn).collect();
        let wanted = [
            Turn::LoomShort,
            Turn::ExploreShort,
            Turn::Test,
            Turn::Loom,
            Turn::Explore,
        ];
        assert_eq!(order, wanted);
    }

    #[test]
    fn long_models_are_left_out() {
        let run = Run {
            turn: Turn::LoomShort,
            what: "sync::waitq",
        };
        let given = run.arguments();
        assert_eq!(given[..2], ["sync::waitq", "--skip"]);
        let models: Vec<_> = long_models().collect();
        assert!(models.iter().all(|name| name.starts_with("loom_")));
        assert_eq!(given.len(), 1 + 2 * models.len());
    }

    #[test]
    fn programs_are_read_from_the_output_of_cargo() {
        let line = "  Executable tests/task/main.rs (/x/debug/deps/task-5)";
        let task = ("test task".to_owned(), "/x/debug/deps/task-5");
        assert_eq!(executable(line), Some(task));
        let line = "  Executable unittests src/lib.rs (/x/debug/deps/windlass-5)";
        let unit = Run {
            turn: Turn::Unit,
            what: "g",
        };
        assert_eq!(executable(line).map(|it| it.0), Some(unit.program()));
        assert_eq!(executable("    Finished `dev` profile in 2s"), None);
    }
}

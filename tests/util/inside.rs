//! Runs tests of these programs once more, inside simulations.
//!
//! A test whose goroutines only wait for each other and for time runs there as it is: `util::run`
//! calls its closure in the goroutine that is there. Each file lists those of its tests that run in
//! simulations, and says of the others why they do not. `WINDLASS_INSIDE_SEEDS` is the number of
//! seeds for each, `WINDLASS_INSIDE_TEST` the name of the only one to run. With
//! `WINDLASS_INSIDE_TIMES` set, and `--nocapture`, each prints its steps and how long it took.
//!
//! A file's simulations are in a process of their own: the statics of its tests are in use outside at the same time.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;

use windlass::sim::Sim;

use crate::util::PROMISE;

/// A file's tests.
pub(crate) struct Tests {
    /// Names, tests, and which part of the seeds each gets.
    pub(crate) inside: &'static [(&'static str, fn(), u64)],
    /// Names, and why.
    pub(crate) outside: &'static [(&'static str, &'static str)],
}

/// Makes the constant `INSIDE` of names of tests, of `name / n` for those that get one `n`th of the
/// seeds because they are long, and of `name: "why not"` for the others.
macro_rules! tests {
    (@ [$($inside:tt)*] [$($outside:tt)*]) => {
        pub(crate) const INSIDE: crate::inside::Tests = crate::inside::Tests {
            inside: &[$($inside)*],
            outside: &[$($outside)*],
        };
    };
    (@ $inside:tt [$($outside:tt)*] $name:ident: $why:literal, $($rest:tt)*) => {
        crate::inside::tests! { @ $inside [$($outside)* (stringify!($name), $why),] $($rest)* }
    };
    (@ [$($inside:tt)*] $outside:tt $name:ident, $($rest:tt)*) => {
        crate::inside::tests! { @ [$($inside)* (stringify!($name), $name as fn(), 1),] $outside $($rest)* }
    };
    (@ [$($inside:tt)*] $outside:tt $name:ident / $n:literal, $($rest:tt)*) => {
        crate::inside::tests! { @ [$($inside)* (stringify!($name), $name as fn(), $n),] $outside $($rest)* }
    };
    ($name:ident $($rest:tt)*) => { crate::inside::tests! { @ [] [] $name $($rest)* } };
}
pub(crate) use tests;

/// Makes a test of each of these files of a program, which runs those of its tests that it lists.
macro_rules! files {
    ($($file:ident)*) => {
        mod simulated {
            $(#[test]
            fn $file() {
                let source = include_str!(concat!(stringify!($file), ".rs"));
                let name = concat!("simulated::", stringify!($file));
                crate::inside::run(name, &crate::$file::INSIDE, source);
            })*
        }
    };
}
pub(crate) use files;

/// Set in the process that has the simulations.
const HERE: &str = "WINDLASS_INSIDE_HERE";

/// Runs the tests of a file under some seeds each, in a process that runs the test `name` alone. `source` is the
/// file, whose tests must all be among `tests`.
pub(crate) fn run(name: &str, tests: &Tests, source: &str) {
    if std::env::var_os(HERE).is_some() {
        return run_here(tests, source);
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(HERE, "1")
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{name} in a process of its own ended with {:?}: {stdout}",
        output.status
    );
}

fn run_here(tests: &Tests, source: &str) {
    let n = tests.inside.len() + tests.outside.len();
    assert_eq!(
        source.matches("#[test]\n").count(),
        n,
        "a test is not listed, or twice"
    );
    assert!(tests.outside.iter().all(|(_, why)| !why.is_empty()));
    let seeds = std::env::var("WINDLASS_INSIDE_SEEDS").map_or(8, |n| n.parse().expect("a number"));
    let only = std::env::var("WINDLASS_INSIDE_TEST").ok();
    for (name, test, part) in tests.inside {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let seeds = u64::max(seeds / part, 1);
        let began = std::time::Instant::now();
        let run = || {
            Sim::new(PROMISE)
                .seed(0)
                .seeds(seeds)
                .may_panic(true)
                .run(test)
        };
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(report)) if std::env::var_os("WINDLASS_INSIDE_TIMES").is_some() => {
                let (took, steps) = (began.elapsed(), report.steps());
                eprintln!("{took:>12.1?} {name}: {seeds} seeds, {steps} steps");
            }
            Ok(Ok(_)) => {}
            Ok(Err(failure)) => panic!("{name} fails in a simulation: {failure}"),
            Err(payload) => {
                eprintln!("{name} fails in a simulation");
                resume_unwind(payload)
            }
        }
    }
}

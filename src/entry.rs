//! Functions that the generated code of `#[main]` and `#[test]` calls. Not part of the public API.
#![allow(unsafe_code)]

use std::io;
use std::process::{ExitCode, Termination};

use crate::promise::Promise;
use crate::runtime::{Builder, Handle, Runtime};
#[cfg(feature = "sim")]
use crate::sim::Sim;

/// The number of Ps of a test, unless it is set: tests run several at a time.
const TEST_PROCESSORS: usize = 2;

/// Builds a runtime whose promise was made.
///
/// # Errors
///
/// As [`Builder::build`].
#[track_caller]
pub fn build(builder: Builder, _: Promise) -> io::Result<Runtime> {
    // SAFETY: the promise has the contract of this call.
    unsafe { builder.build() }
}

/// Runs `main` as the main goroutine. The result goes through `Termination` on the goroutine, because it
/// need not be `Send`.
#[allow(
    clippy::print_stderr,
    reason = "the program ends here, and says why, as main does after an error"
)]
#[track_caller]
pub fn main<T: Termination>(built: io::Result<Runtime>, main: fn() -> T) -> ExitCode {
    match built {
        Ok(runtime) => runtime.run(|| main().report()),
        Err(error) => {
            eprintln!("Error: the runtime cannot be built: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The builder that `#[windlass::test]` starts from.
pub fn test_builder() -> Builder {
    let builder = Builder::new().pin(false);
    let is_set = std::env::var_os("WINDLASS_PROCS").is_some_and(|value| !value.is_empty());
    in_test(match is_set {
        true => builder,
        false => builder.processors(TEST_PROCESSORS),
    })
}

/// The settings that make a builder that of a test.
pub fn in_test(builder: Builder) -> Builder {
    builder.deadlock_detection(true).in_test_harness()
}

/// Runs a test. A result that stands for a failure makes the harness fail the test.
#[track_caller]
pub fn test<T: Termination>(built: io::Result<Runtime>, test: fn() -> T) -> ExitCode {
    unwrap(built).run(|| test().report())
}

/// Runs a test that returns nothing.
#[track_caller]
pub fn unit_test(built: io::Result<Runtime>, test: fn()) {
    unwrap(built).run(test);
}

#[track_caller]
fn unwrap(built: io::Result<Runtime>) -> Runtime {
    built.unwrap_or_else(|error| panic!("the runtime of the test cannot be built: {error}"))
}

/// Runs a test inside a goroutine, and fails if it leaves goroutines that are leaked.
#[track_caller]
pub fn without_leaks<T>(test: fn() -> T) -> T {
    let result = test();
    match Handle::current().leaks() {
        Ok(found) => assert!(found.leaks.is_empty(), "the test leaks goroutines: {found}"),
        Err(error) => panic!("leaked goroutines cannot be looked for: {error}"),
    }
    result
}

/// Runs a test in simulations. The first result that stands for a failure ends it.
#[cfg(feature = "sim")]
#[track_caller]
pub fn sim_test<T: Termination>(sim: Sim, test: fn() -> T) -> ExitCode {
    sim_unit_test(sim, || {
        assert!(
            test().report() == ExitCode::SUCCESS,
            "the test returned an error"
        );
    });
    ExitCode::SUCCESS
}

/// Runs a test that returns nothing in simulations.
#[cfg(feature = "sim")]
#[track_caller]
pub fn sim_unit_test(sim: Sim, test: impl Fn()) {
    if let Err(failure) = sim.run(test) {
        panic!("{failure}");
    }
}

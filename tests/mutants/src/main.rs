//! Tests the tests: puts one small fault (a *mutant*) after the other into a copy of the tree, and runs
//! checkers until one fails. A mutant that none finds shows a model, a scenario or an oracle that is missing.
//!
//! ```text
//! mutants               all of tests/mutants/patches
//! mutants NAME..        those whose names or groups contain one of these
//! mutants --list        their names
//! ```
//!
//! The checkers of a mutant run from the cheapest to the dearest. One that finds something must pass in the unchanged copy,
//! too. The copy and a folder of cargo's for each kind of checker are in target/mutants,
//! so that each mutant compiles the library alone. The table is docs/mutants.md; a run replaces the rows of the
//! mutants that it ran.
#![expect(clippy::print_stdout, reason = "the table is the result")]

mod checkers;
mod copy;
mod patches;
mod table;

use std::env;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use checkers::{Bench, Outcome};
use copy::Copy;
use patches::Mutant;
use table::{Row, Table};

/// The root of the tree.
fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("tests/mutants is in it")
}

fn main() -> ExitCode {
    let names: Vec<String> = env::args().skip(1).collect();
    let all = patches::read(&root().join("tests/mutants/patches"));
    if names == ["--list"] {
        all.iter().for_each(|mutant| println!("{}", mutant.name));
        return ExitCode::SUCCESS;
    }
    let is_asked = |mutant: &&Mutant| {
        let is_named = |name: &String| mutant.name.contains(name) || mutant.group.contains(name);
        mutant.equivalent.is_none() && (names.is_empty() || names.iter().any(is_named))
    };
    let chosen: Vec<_> = all.iter().filter(is_asked).collect();
    if chosen.is_empty() {
        eprintln!("mutants: none has such a name");
        return ExitCode::from(2);
    }
    run(&all, &chosen)
}

fn run(all: &[Mutant], chosen: &[&Mutant]) -> ExitCode {
    let work = root().join("target/mutants");
    let copy = Copy::renew(root(), &work);
    let mut bench = Bench::new(&work, copy.has_changed);
    let mut table = Table::read(&root().join("docs/mutants.md"));
    for mutant in chosen {
        let began = Instant::now();
        copy.apply(mutant);
        let end = try_checkers(&bench, mutant);
        copy.restore(mutant);
        let seconds = began.elapsed().as_secs().to_string();
        let found = match end {
            Ok(how) => how.to_owned(),
            Err((checker, how)) if bench.passes_unchanged(checker) => how,
            Err((checker, _)) => {
                eprintln!("mutants: {checker} fails without a mutant, so it finds nothing");
                return ExitCode::FAILURE;
            }
        };
        println!("{}: {found}, {seconds} s", mutant.name);
        table.put(mutant, Row { found, seconds });
        table.write(all);
    }
    ExitCode::SUCCESS
}

/// Runs the checkers of a mutant.
///
/// # Errors
///
/// The checker that fails, and how.
fn try_checkers<'a>(bench: &Bench, mutant: &'a Mutant) -> Result<&'static str, (&'a str, String)> {
    for checker in &mutant.checkers {
        match bench.run(checker) {
            Outcome::Passes => {}
            Outcome::Fails(how) => return Err((checker, how)),
            Outcome::DoesNotCompile => return Ok(table::DOES_NOT_COMPILE),
        }
    }
    Ok(table::SURVIVES)
}

//! Tests the tests: runs checkers with one small fault (a *mutant*) after the other in the runtime, until one fails. A mutant that
//! none finds shows a model, a scenario or an oracle that is missing.
//!
//! ```text
//! mutants               all of tests/mutants/patches
//! mutants NAME..        those whose names or groups contain one of these
//! mutants --rest        those that have no row yet: goes on where another run has ended
//! mutants --list        their names
//! ```
//!
//! All mutants are in a copy of the tree, in `target/mutants`, which is built once for each kind of checker. A process
//! runs with one of them or with none (weave.rs). A checker that finds something must pass with none, too, and at
//! that time if it runs threads as the kernel likes. The table is docs/mutants.md; each mutant replaces its row.
#![expect(clippy::print_stdout, reason = "the table is the result")]

mod checkers;
mod copy;
mod patches;
mod table;
mod weave;

use std::env;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use checkers::Bench;
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
    let table = Table::read(&root().join("docs/mutants.md"));
    let is_asked = |mutant: &Mutant| match &names[..] {
        [] => true,
        [rest] if rest == "--rest" => !table.has(mutant),
        _ => names
            .iter()
            .any(|name| mutant.name.contains(name) || mutant.group.contains(name)),
    };
    let places: Vec<_> = (0..all.len())
        .filter(|&at| all[at].equivalent.is_none() && is_asked(&all[at]))
        .collect();
    if places.is_empty() {
        eprintln!("mutants: none has such a name");
        return ExitCode::from(2);
    }
    run(&all, &places, table);
    ExitCode::SUCCESS
}

fn run(all: &[Mutant], places: &[usize], mut table: Table) {
    let work = root().join("target/mutants");
    let has_changed = copy::renew(root(), &work.join("tree"), all);
    let mut bench = Bench::new(&work, has_changed, all.iter().flat_map(|it| &it.checkers));
    for &at in places {
        let mutant = &all[at];
        let began = Instant::now();
        let found = bench
            .find(weave::number(at), &mutant.checkers)
            .unwrap_or_else(|| table::SURVIVES.to_owned());
        let seconds = began.elapsed().as_secs().to_string();
        println!("{}: {found}, {seconds} s", mutant.name);
        table.put(mutant, Row { found, seconds });
        table.write(all);
    }
}

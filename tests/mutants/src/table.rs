//! docs/mutants.md: which checker found each mutant.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::checkers::SHORT;
use super::patches::Mutant;

pub(crate) const SURVIVES: &str = "**survives**";
const NOT_RUN: &str = "not run";

/// How a mutant ended.
pub(crate) struct Row {
    pub(crate) found: String,
    /// With the time to compile.
    pub(crate) seconds: String,
}

/// The table on disk.
pub(crate) struct Table {
    file: PathBuf,
    rows: HashMap<String, Row>,
}

impl Table {
    pub(crate) fn read(file: &Path) -> Table {
        let text = fs::read_to_string(file).unwrap_or_default();
        Table {
            file: file.to_path_buf(),
            rows: text.lines().filter_map(row_of).collect(),
        }
    }

    pub(crate) fn has(&self, mutant: &Mutant) -> bool {
        self.rows.contains_key(&mutant.name)
    }

    pub(crate) fn put(&mut self, mutant: &Mutant, row: Row) {
        self.rows.insert(mutant.name.clone(), row);
    }

    /// Writes the rows of these mutants.
    pub(crate) fn write(&self, all: &[Mutant]) {
        let mut text = format!("{HEAD}\n{}\n", self.summary(all));
        for (at, mutant) in all.iter().enumerate() {
            if at == 0 || all[at - 1].group != mutant.group {
                let name = mutant.protocol.split_at(1);
                let (first, rest) = (name.0.to_uppercase(), name.1);
                write!(text, "\n## {first}{rest}\n\n{COLUMNS}").expect("a string takes it");
            }
            let (found, seconds) = self.end_of(mutant);
            let Mutant { name, what, .. } = mutant;
            writeln!(text, "| {name} | {what} | {found} | {seconds} |").expect("a string takes it");
        }
        fs::write(&self.file, text).expect("the docs can be written");
    }

    fn end_of<'a>(&'a self, mutant: &'a Mutant) -> (String, &'a str) {
        match (&mutant.equivalent, self.rows.get(&mutant.name)) {
            (Some(why), _) => (format!("{EQUIVALENT}: {why}"), ""),
            (None, Some(row)) => (row.found.clone(), &row.seconds),
            (None, None) => (NOT_RUN.to_owned(), ""),
        }
    }

    /// How many were found, by what.
    fn summary(&self, all: &[Mutant]) -> String {
        let ends: Vec<_> = all.iter().map(|mutant| self.end_of(mutant).0).collect();
        let n = |begin: &str| ends.iter().filter(|end| end.starts_with(begin)).count();
        let n_late = |begin: &str| {
            let of = |end: &&String| end.starts_with(begin) && end.contains(", more than ");
            ends.iter().filter(of).count()
        };
        let (loom, explore) = (n("loom:"), n("explore:"));
        let tests = n("unit:") + n("test:");
        let (late_loom, late_explore) = (n_late("loom:"), n_late("explore:"));
        let (models, short) = (loom - late_loom, explore - late_explore);
        let found = loom + explore + tests;
        let n_run = found + n(SURVIVES);
        format!(
            "{} mutants: {n_run} ran, of which {found} were found and {} survive; {} change no behaviour, {} did not run. What \
             `make test` runs finds {} % of those that ran: {tests} by tests, {models} by models of loom, and {short} by {SHORT} \
             schedules of the explorer. Other models find {late_loom} of the rest, and more schedules {late_explore}.",
            all.len(),
            n(SURVIVES),
            n(EQUIVALENT),
            n(NOT_RUN),
            100 * (tests + models + short) / n_run.max(1),
        )
    }
}

const EQUIVALENT: &str = "equivalent";

const HEAD: &str = "\
# Mutants

Each row is a small fault that was put into the runtime, alone, to see which checker finds it (`make mutants`;
`MUTANTS=\"runq waitq\"` chooses, `MUTANTS=--rest` goes on where a run has ended). `tests/mutants/patches` has the changes and names
the checkers. These run until one fails, which passes without the mutant: first those that are a part of `make test` (unit tests,
models of loom that end soon, schedules of the explorer, other tests), then all models, then 5,000 schedules of each scenario. All
mutants are in one build, and a process chooses one (`tests/mutants/src/weave.rs`): seconds are those of the checkers, on
two CPUs that others kept busy. That command writes this page anew after each mutant.
";

const COLUMNS: &str = "| mutant | fault | found by | s |\n|---|---|---|---|\n";

/// The row in a line of the page.
fn row_of(line: &str) -> Option<(String, Row)> {
    let cells: Vec<_> = line
        .strip_prefix("| ")?
        .strip_suffix(" |")?
        .split(" | ")
        .collect();
    let &[name, _, found, seconds] = &cells[..] else {
        return None;
    };
    let was_run = seconds.parse::<u64>().is_ok();
    let row = Row {
        found: found.to_owned(),
        seconds: seconds.to_owned(),
    };
    was_run.then(|| (name.to_owned(), row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_kept_until_it_is_run_again() {
        let (name, row) = row_of("| m | Wrong. | loom: loom_x | 17 |").expect("a row");
        assert_eq!(
            (&*name, &*row.found, &*row.seconds),
            ("m", "loom: loom_x", "17")
        );
        assert!(row_of("| m | Wrong. | not run |  |").is_none());
        assert!(row_of("| mutant | fault | found by | s |").is_none());
    }
}

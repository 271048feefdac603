//! The mutants as text. A file of patches/ has a group:
//!
//! ```text
//! Protocol: run queue and runnext              a row of docs/VERIFICATION.md
//! Checkers: loom runq; explore spawn_join      from the cheapest to the dearest (checkers.rs)
//!
//! == runq-room-from-real
//! Room is computed from `real`: a thief that still copies is overwritten.
//! --- src/sched/queue/runq.rs
//! -if tail.wrapping_sub(steal) < CAPACITY {
//! +if tail.wrapping_sub(real) < CAPACITY {
//! ```
//!
//! A mutant is a heading, a line that says what is wrong with it, and changes. A change is a run of lines of the file that begin
//! with a space, or with `-` if they go, and lines with `+` that come. The run must be in the file exactly once, and what changes
//! in the body of a function; how far its lines are indented does not count. An empty line ends a change. A mutant may have checkers of its own, and
//! one that changes no behaviour says why in a line `Equivalent:` and is not run.

use std::fs;
use std::ops::Range;
use std::path::Path;

/// A small fault.
#[derive(Debug)]
pub(crate) struct Mutant {
    pub(crate) name: String,
    /// The name of its file.
    pub(crate) group: String,
    pub(crate) protocol: String,
    pub(crate) what: String,
    pub(crate) checkers: Vec<String>,
    /// Why it changes no behaviour.
    pub(crate) equivalent: Option<String>,
    pub(crate) changes: Vec<Change>,
}

/// A change of one file.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) file: String,
    lines: Vec<Line>,
}

/// A line of a change, without its indentation.
#[derive(Clone, Debug)]
enum Line {
    Stays(String),
    Goes(String),
    Comes(String),
}

/// Reads the mutants of a folder.
pub(crate) fn read(folder: &Path) -> Vec<Mutant> {
    let entries = fs::read_dir(folder).expect("the folder can be read");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    let groups = files.iter().map(|file| {
        let name = file.file_stem().expect("a file has a name");
        let text = fs::read_to_string(file).expect("a patch can be read");
        parse(&name.to_string_lossy(), &text)
    });
    groups.flatten().collect()
}

fn checkers(list: &str) -> Vec<String> {
    list.split(';')
        .map(|checker| checker.trim().to_owned())
        .collect()
}

/// Reads one group.
pub(crate) fn parse(group: &str, text: &str) -> Vec<Mutant> {
    let (mut protocol, mut usual) = (String::new(), Vec::new());
    let mut all: Vec<Mutant> = Vec::new();
    let mut is_open = false;
    for line in text.lines() {
        let was_open = std::mem::take(&mut is_open);
        if let Some(name) = line.strip_prefix("== ") {
            all.push(Mutant {
                name: name.to_owned(),
                group: group.to_owned(),
                protocol: protocol.clone(),
                what: String::new(),
                checkers: usual.clone(),
                equivalent: None,
                changes: Vec::new(),
            });
            continue;
        }
        let Some(mutant) = all.last_mut() else {
            match line.split_once(": ") {
                Some(("Protocol", name)) => protocol = name.to_owned(),
                Some(("Checkers", list)) => usual = checkers(list),
                _ => assert!(line.is_empty(), "{group}: {line}"),
            }
            continue;
        };
        if let Some(file) = line.strip_prefix("--- ") {
            mutant.changes.push(Change::of(file));
            is_open = true;
        } else if let Some(change) = mutant.changes.last_mut()
            && !line.is_empty()
        {
            if !was_open {
                let file = change.file.clone();
                mutant.changes.push(Change::of(&file));
            }
            mutant.changes.last_mut().expect("pushed above").add(line);
            is_open = true;
        } else if let Some(list) = line.strip_prefix("Checkers: ") {
            mutant.checkers = checkers(list);
        } else if let Some(why) = line.strip_prefix("Equivalent: ") {
            mutant.equivalent = Some(why.to_owned());
        } else if !line.is_empty() {
            mutant.what = line.to_owned();
        }
    }
    all
}

impl Line {
    /// The line as it is there before the change.
    fn before(&self) -> Option<&str> {
        match self {
            Line::Stays(text) | Line::Goes(text) => Some(text),
            Line::Comes(_) => None,
        }
    }

    fn after(&self) -> Option<&str> {
        match self {
            Line::Stays(text) | Line::Comes(text) => Some(text),
            Line::Goes(_) => None,
        }
    }
}

impl Change {
    fn of(file: &str) -> Change {
        Change {
            file: file.to_owned(),
            lines: Vec::new(),
        }
    }

    fn add(&mut self, line: &str) {
        let (mark, rest) = line.split_at(1);
        let rest = rest.trim().to_owned();
        self.lines.push(match mark {
            "-" => Line::Goes(rest),
            "+" => Line::Comes(rest),
            " " => Line::Stays(rest),
            _ => panic!(
                "{}: a line of a change begins with a space, - or +: {line}",
                self.file
            ),
        });
    }

    fn before(&self) -> Vec<&str> {
        self.lines.iter().filter_map(Line::before).collect()
    }

    /// Where its lines are in these.
    pub(crate) fn places(&self, lines: &[&str]) -> Vec<usize> {
        let before = self.before();
        let is_same = |run: &[&str]| run.iter().zip(&before).all(|(a, b)| a.trim() == *b);
        let runs = lines.windows(before.len().max(1)).enumerate();
        runs.filter_map(|(at, run)| is_same(run).then_some(at))
            .collect()
    }

    /// The lines that it changes if it is at `at`: without those at its ends that stay.
    pub(crate) fn changed(&self, at: usize) -> Range<usize> {
        let stays = |line: &&Line| matches!(line, Line::Stays(_));
        let n_first = self.lines.iter().take_while(stays).count();
        let n_last = self.lines.iter().rev().take_while(stays).count();
        at + n_first..at + self.before().len() - n_last
    }

    /// Without the lines at its ends that stay and are not among these, if it is at `at`.
    pub(crate) fn without_lines_outside(&self, at: usize, within: &Range<usize>) -> Change {
        let n_first = within.start.saturating_sub(at);
        let n_last = (at + self.before().len()).saturating_sub(within.end);
        Change {
            file: self.file.clone(),
            lines: self.lines[n_first..self.lines.len() - n_last].to_vec(),
        }
    }

    /// The text with the change.
    ///
    /// # Errors
    ///
    /// How often the lines are there, if that is not once.
    pub(crate) fn apply(&self, text: &str) -> Result<String, usize> {
        let lines: Vec<&str> = text.lines().collect();
        let places = self.places(&lines);
        let &[at] = &places[..] else {
            return Err(places.len());
        };
        let mut new = lines[..at].to_vec();
        new.extend(self.lines.iter().filter_map(Line::after));
        new.extend(&lines[at + self.before().len()..]);
        Ok(new.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::checkers::is_known;
    use crate::root;
    use crate::weave::weave;

    fn ours() -> Vec<Mutant> {
        read(&root().join("tests/mutants/patches"))
    }

    #[test]
    fn each_mutant_applies_to_the_tree() {
        let ours = ours();
        let files = ours.iter().flat_map(|mutant| &mutant.changes);
        let files: BTreeSet<_> = files.map(|change| &change.file).collect();
        let wrong = files.into_iter().filter_map(|file| {
            let text = fs::read_to_string(root().join(file)).expect(file);
            weave(file, &text, &ours).err()
        });
        let wrong: Vec<_> = wrong.collect();
        assert!(
            wrong.is_empty(),
            "mutants to be renewed:\n{}",
            wrong.join("\n")
        );
    }

    #[test]
    fn each_mutant_says_what_it_is_and_how_it_may_be_found() {
        let mut names = BTreeSet::new();
        for mutant in ours() {
            assert!(
                !mutant.changes.is_empty(),
                "{} changes nothing",
                mutant.name
            );
            assert!(
                names.insert(mutant.name.clone()),
                "{} is there twice",
                mutant.name
            );
            assert!(
                mutant.what.ends_with('.'),
                "{}: {}",
                mutant.name,
                mutant.what
            );
            assert!(
                mutant.checkers.iter().all(|c| is_known(c)),
                "{:?}",
                mutant.checkers
            );
        }
    }

    #[test]
    fn each_protocol_has_a_mutant_and_each_mutant_a_protocol() {
        let text = fs::read_to_string(root().join("docs/VERIFICATION.md")).expect("the docs");
        let rows = text
            .lines()
            .skip_while(|line| !line.starts_with("| protocol |"))
            .skip(2);
        let table: BTreeSet<_> = rows
            .map_while(|row| row.strip_prefix("| ")?.split(" | ").next())
            .map(str::to_owned)
            .collect();
        let mutated: BTreeSet<_> = ours().into_iter().map(|mutant| mutant.protocol).collect();
        assert_eq!(table, mutated);
    }

    #[test]
    fn a_change_is_found_by_its_lines() {
        let text = "Protocol: p\nCheckers: loom a; unit b\n\n== m\nWrong.\n--- f\n one\n-two\n+2\n\n-four\n+4\n";
        let mutants = parse("g", text);
        let [mutant] = &mutants[..] else { panic!() };
        assert_eq!(mutant.checkers, ["loom a", "unit b"]);
        let [first, second] = &mutant.changes[..] else {
            panic!()
        };
        assert_eq!(
            first.apply("one\n  two\nthree\n"),
            Ok("one\n2\nthree".to_owned())
        );
        assert_eq!(first.apply("two\n"), Err(0));
        assert_eq!(second.apply("four\nfour\n"), Err(2));
        assert_eq!(second.file, "f");
    }
}

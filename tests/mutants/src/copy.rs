//! The copy of the tree that mutants change.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::patches::Mutant;

/// Folders of which nothing changes how a checker ends.
const WITHOUT_EFFECT: [&str; 2] = ["docs/", "tests/mutants/"];

/// A copy of the tree, in which at most one mutant is.
pub(crate) struct Copy {
    from: PathBuf,
    to: PathBuf,
    /// Something that checkers look at has changed since the last run.
    pub(crate) has_changed: bool,
}

impl Copy {
    /// Copies the files that differ: those of git, which may have changes that are not committed.
    pub(crate) fn renew(from: &Path, work: &Path) -> Copy {
        let to = work.join("tree");
        let output = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(from)
            .output()
            .expect("git lists the files");
        let files = String::from_utf8(output.stdout).expect("names are UTF-8");
        let mut copy = Copy {
            from: from.to_path_buf(),
            to,
            has_changed: false,
        };
        for file in files.lines() {
            let is_new = copy.renew_file(file);
            let has_effect = !WITHOUT_EFFECT.iter().any(|folder| file.starts_with(folder));
            copy.has_changed |= is_new && has_effect;
        }
        copy
    }

    /// Copies a file if it differs. `true` if it does.
    fn renew_file(&self, file: &str) -> bool {
        let (from, to) = (self.from.join(file), self.to.join(file));
        let Ok(now) = fs::read(&from) else {
            return fs::remove_file(&to).is_ok();
        };
        if fs::read(&to).is_ok_and(|before| before == now) {
            return false;
        }
        fs::create_dir_all(to.parent().expect("a file is in a folder")).expect("a folder");
        // The mode, too: scripts are run.
        fs::copy(&from, &to).expect("a file can be copied");
        true
    }

    /// Puts a mutant in.
    pub(crate) fn apply(&self, mutant: &Mutant) {
        for change in &mutant.changes {
            let at = self.to.join(&change.file);
            let text = fs::read_to_string(&at).expect("a file to change");
            let changed = change.apply(&text).unwrap_or_else(|times| {
                panic!(
                    "{}: its lines are {times} times in {}",
                    mutant.name, change.file
                )
            });
            fs::write(&at, changed).expect("the copy can be written");
        }
    }

    /// Takes it out again.
    pub(crate) fn restore(&self, mutant: &Mutant) {
        for change in &mutant.changes {
            self.renew_file(&change.file);
        }
    }
}

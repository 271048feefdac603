//! The copy of the tree that has the mutants.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::patches::Mutant;
use super::weave;

/// Folders of which nothing changes how a checker ends.
const WITHOUT_EFFECT: [&str; 2] = ["docs/", "tests/mutants/"];

/// The roots of the crates that mutants change.
const ROOTS: [&str; 2] = ["src/lib.rs", "crates/ground/src/lib.rs"];

/// Writes the files that differ: those of git, which may have changes that are not committed, with all mutants. `true`
/// if something that checkers look at has changed since the last run.
pub(crate) fn renew(from: &Path, to: &Path, mutants: &[Mutant]) -> bool {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(from)
        .output()
        .expect("git lists the files");
    let files = String::from_utf8(output.stdout).expect("names are UTF-8");
    let mut has_changed = false;
    for file in files.lines() {
        let has_effect = !WITHOUT_EFFECT.iter().any(|folder| file.starts_with(folder));
        has_changed |= renew_file(file, from, to, mutants) && has_effect;
    }
    has_changed
}

/// Writes a file if it differs. `true` if it does.
fn renew_file(file: &str, from: &Path, to: &Path, mutants: &[Mutant]) -> bool {
    let (from, to) = (from.join(file), to.join(file));
    let Ok(text) = fs::read(&from) else {
        return fs::remove_file(&to).is_ok();
    };
    let now = with_mutants(file, text, mutants);
    if fs::read(&to).is_ok_and(|before| before == now) {
        return false;
    }
    fs::create_dir_all(to.parent().expect("a file is in a folder")).expect("a folder");
    // The mode, too: scripts are run.
    fs::copy(&from, &to).expect("a file can be copied");
    fs::write(&to, now).expect("the copy can be written");
    true
}

fn with_mutants(file: &str, mut text: Vec<u8>, mutants: &[Mutant]) -> Vec<u8> {
    let changes = |mutant: &Mutant| mutant.changes.iter().any(|change| change.file == file);
    if mutants.iter().any(changes) {
        let sources = String::from_utf8(text).expect("sources are UTF-8");
        let woven = weave::weave(file, &sources, mutants);
        text = woven.unwrap_or_else(|why| panic!("{why}")).into_bytes();
    }
    if ROOTS.contains(&file) {
        text.extend(weave::MODULE.bytes());
    }
    text
}

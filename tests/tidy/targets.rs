//! Which programs cargo builds for tests.

use crate::{LIBRARIES, report, root, sources};

/// Cargo builds no program for a target that says so, which must have no tests then.
#[test]
fn targets_without_tests_have_none() {
    let mut faults = Vec::new();
    for folder in LIBRARIES {
        let manifest = folder.trim_end_matches("src").to_owned() + "Cargo.toml";
        let manifest = std::fs::read_to_string(root().join(manifest)).unwrap();
        let has = |line: &str| manifest.lines().any(|l| l == line);
        for source in sources(&[folder]) {
            let has_test = has("test = false") && source.code.contains("#[test]");
            if has_test || has("doctest = false") && source.text.contains("/// ```") {
                faults.push(format!("{}: its Cargo.toml denies tests", source.path));
            }
        }
    }
    report(&faults);
}

/// rustdoc compiles the doc tests of a crate as one program, where none has the root. If one needs it and does not say so,
/// that program does not compile, and rustdoc compiles each by itself: minutes instead of seconds.
#[test]
fn doc_tests_that_need_a_root_say_so() {
    let mut faults = Vec::new();
    for source in sources(LIBRARIES) {
        // The attributes of the code that a line is in.
        let mut code = None;
        for (i, line) in source.text.lines().enumerate() {
            let text = line.trim_start().trim_start_matches("///").trim_start();
            if let Some(attributes) = text.strip_prefix("```") {
                code = code.is_none().then_some(attributes);
            } else if code == Some("") && ["#[windlass::main]", "#[windlass::test]"].contains(&text)
            {
                faults.push(format!("{}:{}: not standalone_crate", source.path, i + 1));
            }
        }
    }
    report(&faults);
}

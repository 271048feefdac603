//! Runs crossbeam-channel's own tests on windlass's channels: once as they are, with
//! threads, and once with goroutines in their place.
//!
//! The tests are read from the published package, wherever cargo keeps it, and written
//! into a package below the target directory with other names in their `use` lines.
//! Nothing of them is kept. Arguments go to the tests:
//! `cargo run -p windlass-suites -- select::fairness`.
#![allow(clippy::print_stdout, reason = "it tells what it runs")]

use std::fs;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::Value;

const CRATE: &str = "crossbeam-channel";

/// All of it takes a minute and a half, most of which is sleeping.
const LIMIT_SECONDS: &str = "900";

const FILES: [&str; 14] = [
    "after",
    "array",
    "golang",
    "iter",
    "list",
    "mpsc",
    "never",
    "ready",
    "same_channel",
    "select",
    "select_macro",
    "thread_locals",
    "tick",
    "zero",
];

/// The text that is written instead, for threads and for goroutines. Longer names come first.
const ON_THREADS: &[(&str, &str)] = &[
    // The inside of `select!`, which one file uses without its outside.
    ("crossbeam_channel_internal", "select"),
    ("crossbeam_channel", "windlass::channel"),
];
const ON_GOROUTINES: &[(&str, &str)] = &[
    ("crossbeam_channel_internal", "select"),
    ("crossbeam_channel", "windlass::channel"),
    (
        "crossbeam_utils::thread::scope",
        "windlass_suites::scoped::scope",
    ),
    ("std::thread::panicking", "std::thread::panicking"),
    ("std::thread", "windlass_suites::thread"),
];

/// Tests that are left out: file, name, on goroutines only, and why.
const LEFT_OUT: &[(&str, &str, bool, &str)] = &[];

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("suites: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool> {
    let metadata = metadata()?;
    let source = package_dir(&metadata)?;
    let target = PathBuf::from(text(&metadata["target_directory"])?).join("suites");
    let root = PathBuf::from(text(&metadata["workspace_root"])?);
    write_package(&root, &target)?;
    for file in FILES {
        let path = source.join("tests").join(file).with_extension("rs");
        let code = fs::read_to_string(&path)
            .map_err(|e| Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        let tests = target.join("tests");
        write(
            &tests.join(format!("threads_{file}.rs")),
            &on_threads(file, &code),
        )?;
        write(
            &tests.join(format!("goroutines_{file}.rs")),
            &on_goroutines(file, &code),
        )?;
    }
    println!("the tests of {} in {}", source.display(), target.display());
    // coreutils' timeout ends the whole process group: a test may hang.
    let status = Command::new("timeout")
        .arg(LIMIT_SECONDS)
        .arg(cargo())
        .args(["test", "--offline", "--no-fail-fast", "--manifest-path"])
        .arg(target.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target.join("target"))
        .arg("--")
        .args(std::env::args_os().skip(1))
        .status()?;
    Ok(status.success())
}

fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// Cargo's description of the workspace.
fn metadata() -> Result<Value> {
    let output = Command::new(cargo())
        .args(["metadata", "--format-version", "1", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()?;
    if !output.status.success() {
        return Err(Error::other(String::from_utf8_lossy(&output.stderr)));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn text(value: &Value) -> Result<&str> {
    value
        .as_str()
        .ok_or_else(|| Error::other("cargo's metadata have another form"))
}

/// Where the package with the tests is.
fn package_dir(metadata: &Value) -> Result<PathBuf> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let package = packages
        .filter(|package| package["name"] == CRATE)
        .find_map(|package| Path::new(package["manifest_path"].as_str()?).parent());
    package
        .map(Path::to_owned)
        .ok_or_else(|| Error::other(format!("cargo knows no package {CRATE}")))
}

/// The package that the tests go into. It has the versions of the workspace.
fn write_package(root: &Path, target: &Path) -> Result<()> {
    fs::create_dir_all(target.join("tests"))?;
    fs::create_dir_all(target.join("src"))?;
    let root_text = root.display();
    let manifest = format!(
        "[package]\n\
         name = \"suites-of-others\"\n\
         edition = \"2021\"\n\
         publish = false\n\
         \n\
         [workspace]\n\
         \n\
         [dependencies]\n\
         windlass = {{ path = \"{root_text}\" }}\n\
         windlass-suites = {{ path = \"{root_text}/tests/suites\" }}\n\
         crossbeam-utils = \"0.8\"\n\
         num_cpus = \"1\"\n\
         rand = \"0.8\"\n\
         signal-hook = \"0.3\"\n\
         \n\
         [lints.rust]\n\
         warnings = \"allow\"\n\
         \n\
         [profile.dev]\n\
         debug = \"line-tables-only\"\n"
    );
    write(&target.join("Cargo.toml"), &manifest)?;
    write(&target.join("src/lib.rs"), "")?;
    let lock = fs::read_to_string(root.join("Cargo.lock"))?;
    fs::write(target.join("Cargo.lock"), lock)
}

/// Writes a file if that changes it, so that cargo builds only what is new.
fn write(path: &Path, content: &str) -> Result<()> {
    match fs::read_to_string(path) {
        Ok(old) if old == content => Ok(()),
        _ => fs::write(path, content),
    }
}

fn on_threads(file: &str, code: &str) -> String {
    leave_out(file, false, renamed(code, ON_THREADS))
}

/// Each test runs its body as a goroutine, and what it started as threads are goroutines.
fn on_goroutines(file: &str, code: &str) -> String {
    let code = renamed(code, ON_GOROUTINES);
    let mut is_test = false;
    let mut text = String::with_capacity(code.len());
    for line in code.lines() {
        is_test |= line.trim_start().starts_with("#[test]");
        let name = line
            .trim()
            .strip_prefix("fn ")
            .and_then(|rest| rest.strip_suffix("() {"));
        match name {
            Some(name) if is_test => {
                text += &format!(
                    "fn {name}() {{ windlass_suites::run(goroutine_{name}) }} \
                     fn goroutine_{name}() {{\n"
                );
                is_test = false;
            }
            _ => {
                text += line;
                text.push('\n');
            }
        }
    }
    leave_out(file, true, text)
}

fn renamed(code: &str, names: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        if let Some((old, new)) = names.iter().find(|(old, _)| rest.starts_with(old)) {
            text += new;
            rest = &rest[old.len()..];
        } else {
            text.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    text
}

fn leave_out(file: &str, goroutines: bool, mut code: String) -> String {
    for (_, name, _, why) in LEFT_OUT
        .iter()
        .filter(|(f, _, only, _)| *f == file && (goroutines || !only))
    {
        let head = format!("fn {name}() {{");
        assert!(code.contains(&head), "{file} has no test {name}");
        code = code.replacen(&head, &format!("#[ignore = \"{why}\"]\n{head}"), 1);
    }
    code
}

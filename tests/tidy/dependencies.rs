//! The dependencies of this project: under which licences, from where, and in how many versions.
//!
//! Known vulnerabilities are not looked up: the databases of advisories are git repositories on
//! the network, and tests must not need it (docs/SAFETY.md).

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::{report, root};

/// Licences of what is linked into a program that uses windlass: one of them is enough.
const LINKED: &[&str] = &["MIT", "Apache-2.0"];

/// Licences of what only builds, tests and measurements use, besides those above.
const USED: &[&str] = &[
    "0BSD",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "Unicode-3.0",
    "Zlib",
];

/// Packages that a user of windlass would build in several versions, and the cause.
const DUPLICATES: &[(&str, &str)] = &[
    ("bitflags", "hwloc2 wants version 1"),
    ("errno", "hwloc2 wants version 0.2"),
    ("gimli", "framehop and addr2line want different ones"),
];

/// Cargo's description of the workspace. Other platforms' packages are left out: they need not
/// have been downloaded.
fn metadata() -> Value {
    let ask = |how: &[&str]| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        Command::new(cargo)
            .current_dir(root())
            .args(["metadata", "--format-version=1", "--locked"])
            .args(["--all-features", "--filter-platform", &platform])
            .args(how)
            .output()
            .unwrap()
    };
    let mut output = ask(&["--offline"]);
    if !output.status.success() {
        // A package of another workspace member was not needed yet.
        output = ask(&[]);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn is_macro(target: &Value) -> bool {
    list(&target["kind"]).iter().any(|k| k == "proc-macro")
}

/// The packages that users depend on.
const ROOTS: &[&str] = &["windlass", "windlass-hyper", "windlass-tracing"];

/// The identifiers of the packages that a user's program is linked with: the libraries, and what they
/// depend on but for tests, build scripts and macros.
fn for_users(metadata: &Value) -> BTreeSet<&str> {
    let nodes: BTreeMap<&str, &Value> = list(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| (text(&node["id"]), node))
        .collect();
    let macros: BTreeSet<&str> = list(&metadata["packages"])
        .iter()
        .filter(|package| list(&package["targets"]).iter().any(is_macro))
        .map(|package| text(&package["id"]))
        .collect();
    let mut open: Vec<&str> = list(&metadata["packages"])
        .iter()
        .filter(|package| ROOTS.contains(&text(&package["name"])))
        .map(|package| text(&package["id"]))
        .collect();
    assert_eq!(open.len(), ROOTS.len());
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !found.insert(id) {
            continue;
        }
        let needed = |dep: &&Value| {
            list(&dep["dep_kinds"]).iter().any(|k| k["kind"].is_null())
                && !macros.contains(text(&dep["pkg"]))
        };
        let deps = list(&nodes[id]["deps"]).iter().filter(needed);
        open.extend(deps.map(|dep| text(&dep["pkg"])));
    }
    found
}

/// Whether a licence expression allows what `allowed` says. The old `A/B` means `A OR B`.
fn permits(expression: &str, allowed: &dyn Fn(&str) -> bool) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (permitted, rest) = any_of(&words, allowed);
    assert!(rest.is_empty(), "not understood: {expression}");
    permitted
}

fn any_of<'a>(words: &'a [&'a str], allowed: &dyn Fn(&str) -> bool) -> (bool, &'a [&'a str]) {
    let (mut permitted, mut rest) = all_of(words, allowed);
    while let ["OR", more @ ..] = rest {
        let (other, then) = all_of(more, allowed);
        (permitted, rest) = (permitted | other, then);
    }
    (permitted, rest)
}

fn all_of<'a>(words: &'a [&'a str], allowed: &dyn Fn(&str) -> bool) -> (bool, &'a [&'a str]) {
    let (mut permitted, mut rest) = one(words, allowed);
    while let ["AND", more @ ..] = rest {
        let (other, then) = one(more, allowed);
        (permitted, rest) = (permitted & other, then);
    }
    (permitted, rest)
}

fn one<'a>(words: &'a [&'a str], allowed: &dyn Fn(&str) -> bool) -> (bool, &'a [&'a str]) {
    match words {
        ["(", inner @ ..] => {
            let (permitted, rest) = any_of(inner, allowed);
            match rest {
                [")", rest @ ..] => (permitted, rest),
                _ => (false, words),
            }
        }
        // An exception only permits more.
        [licence, "WITH", _, rest @ ..] | [licence, rest @ ..] => (allowed(licence), rest),
        [] => (false, words),
    }
}

#[test]
fn licence_expressions_are_understood() {
    let mit = |licence: &str| licence == "MIT";
    for (expression, permitted) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("Apache-2.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("MIT OR GPL-3.0 AND ISC", true),
        ("(GPL-3.0 OR MIT) AND ISC", false),
        ("(MIT OR Apache-2.0) AND MIT", true),
        ("Apache-2.0 WITH LLVM-exception OR MIT", true),
    ] {
        assert_eq!(permits(expression, &mit), permitted, "{expression}");
    }
}

#[test]
fn licences_sources_and_versions_of_dependencies() {
    let metadata = metadata();
    let for_users = for_users(&metadata);
    let mut faults = Vec::new();
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    let packages = list(&metadata["packages"]);
    for package in packages {
        let (name, id) = (text(&package["name"]), text(&package["id"]));
        let licence = text(&package["license"]);
        let linked = for_users.contains(id);
        let allowed = |l: &str| LINKED.contains(&l) || !linked && USED.contains(&l);
        if licence.is_empty() || !permits(licence, &allowed) {
            let whose = if linked {
                "linked with programs"
            } else {
                "used"
            };
            faults.push(format!(
                "{name} is {whose}, and its licence is {licence:?}: see tests/tidy/dependencies.rs"
            ));
        }
        let source = text(&package["source"]);
        if !source.is_empty() && !source.starts_with("registry+") {
            faults.push(format!("{name} does not come from a registry: {source}"));
        }
        if linked {
            *versions.entry(name).or_default() += 1;
        }
    }
    for (name, n) in versions.iter().filter(|(_, n)| **n > 1) {
        if !DUPLICATES.iter().any(|(known, _)| known == name) {
            faults.push(format!(
                "users would build {n} versions of {name}: cargo tree -d -e normal"
            ));
        }
    }
    for (name, _) in DUPLICATES {
        if versions.get(name).is_none_or(|n| *n == 1) {
            faults.push(format!("{name} is there once: strike it off DUPLICATES"));
        }
    }
    assert!(
        for_users.len() > 10,
        "only {} dependencies were found",
        for_users.len()
    );
    report(&faults);
}

/// The fuzzing targets are a workspace of their own.
#[test]
fn locked_packages_come_from_a_registry_with_a_checksum() {
    let mut faults = Vec::new();
    for lock in ["Cargo.lock", "tests/fuzz/Cargo.lock"] {
        let lines = std::fs::read_to_string(root().join(lock)).unwrap();
        for package in lines.split("[[package]]").skip(1) {
            let field = |name: &str| {
                let prefix = format!("{name} = ");
                package.lines().find_map(|l| l.strip_prefix(&prefix))
            };
            let (name, source) = (field("name").unwrap(), field("source"));
            let sound = source.is_none_or(|s| s.starts_with("\"registry+"));
            if !sound || (source.is_some() && field("checksum").is_none()) {
                faults.push(format!("{lock}: {name} comes from {source:?}"));
            }
        }
    }
    report(&faults);
}

//! docs/CONTAINERS.md lists for operators what windlass asks of io_uring.

use std::collections::BTreeSet;

use crate::{before_tests, is_test, root, sources};

/// The words in backticks of a row.
fn row<'a>(page: &'a str, of: &str) -> BTreeSet<&'a str> {
    let begin = format!("| {of} | ");
    let row = page.lines().find_map(|line| line.strip_prefix(&*begin));
    row.unwrap().split('`').skip(1).step_by(2).collect()
}

/// The names that follow `before` in the code that makes the requests.
fn named(before: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let sources = sources(&["crates/sys/src", "src/netpoll"]);
    for source in sources.iter().filter(|source| !is_test(&source.path)) {
        for (at, _) in before_tests(&source.code).match_indices(before) {
            let name = source.code[at + before.len()..].chars();
            found.insert(
                name.take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect(),
            );
        }
    }
    found
}

/// As the kernel writes a name, without underscores and the number of a second form.
fn bare(name: &str) -> String {
    name.to_uppercase()
        .replace('_', "")
        .trim_end_matches('2')
        .to_owned()
}

#[test]
fn the_list_of_operations_is_that_of_the_code() {
    let page = std::fs::read_to_string(root().join("docs/CONTAINERS.md")).unwrap();
    let listed = |of| {
        row(&page, of)
            .into_iter()
            .map(bare)
            .collect::<BTreeSet<_>>()
    };
    let mut operations: BTreeSet<_> = named("opcode::").iter().map(|name| bare(name)).collect();
    // crates/sys/src/uring.rs has these by their numbers.
    operations.extend(named("const OP_").iter().map(|name| bare(name)));
    assert_eq!(operations, listed("operations"));
    let setup: BTreeSet<_> = named(".setup_").iter().map(|name| bare(name)).collect();
    assert_eq!(setup, listed("flags of `io_uring_setup`"));
    let mut registered: BTreeSet<_> = named("const REGISTER_")
        .iter()
        .map(|name| bare(name))
        .collect();
    let by_name = named(".register_");
    registered.extend(by_name.iter().map(|name| match &**name {
        "buf_ring_with_flags" => bare("PBUF_RING"),
        name => bare(name),
    }));
    assert_eq!(registered, listed("`io_uring_register`"));
}

/// docs/seccomp.json allows the calls that the code makes by their numbers, and the page names it.
#[test]
fn the_profile_allows_the_calls_of_the_code() {
    let read = |file: &str| std::fs::read_to_string(root().join(file)).unwrap();
    let profile: serde_json::Value = serde_json::from_str(&read("docs/seccomp.json")).unwrap();
    let mut allowed = BTreeSet::new();
    for rule in profile["syscalls"].as_array().unwrap() {
        if rule["action"] == "SCMP_ACT_ALLOW" {
            let names = rule["names"].as_array().unwrap().iter();
            allowed.extend(names.map(|name| name.as_str().unwrap().to_owned()));
        }
    }
    let calls = named("SYS_");
    assert!(calls.len() > 30, "{calls:?}");
    let missing: Vec<_> = calls.difference(&allowed).collect();
    assert!(
        missing.is_empty(),
        "{missing:?} are not in docs/seccomp.json"
    );
    let page = read("docs/CONTAINERS.md");
    assert!(page.contains("[seccomp.json](seccomp.json)"));
    // The calls through which all operations of the page are made.
    for call in ["io_uring_enter", "io_uring_register", "io_uring_setup"] {
        assert!(allowed.contains(call) && page.contains(call), "{call}");
    }
}

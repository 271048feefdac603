//! The cases of the Autobahn test suite for WebSocket servers, run by kosoku (scripts/clients.sh)
//! against the example.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::server::{Server, foreign};
use crate::stoppable::start_graceful;
use crate::temp::TempDir;
use crate::websocket::{self, Limits};

/// The categories and how many cases each has: framing, pings, reserved bits, opcodes, fragments,
/// UTF-8, the end, large messages, fragments that the client makes. The categories of compression, 12 and 13,
/// are left out, as the server offers none.
const CATEGORIES: &[(&str, usize)] = &[
    ("1", 16),
    ("2", 11),
    ("3", 7),
    ("4", 10),
    ("5", 20),
    ("6", 145),
    ("7", 37),
    ("9", 54),
    ("10", 1),
];

/// The largest message of the cases.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// How often a case may fail, as each waits for a second or more where a busy machine may need longer.
const MAX_TRIES: usize = 3;

fn kosoku() -> PathBuf {
    // Beside the folder for files of tests.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let clients = target
        .expect("it lies in the target folder")
        .join("clients");
    clients.join("kosoku/bin/kosoku")
}

/// Runs cases, and adds how each has ended. `false` if the program cannot be had.
fn run(server: &Server, cases: &[String], ended: &mut BTreeMap<String, Value>) -> bool {
    let reports = TempDir::new();
    let addr = server.addr.to_string();
    let mut args = vec!["--parallelism", "2", "--outdir"];
    args.extend([reports.path().to_str().unwrap(), &addr]);
    for case in cases {
        args.extend(["--include", case]);
    }
    // Its status says whether all cases were as it wishes.
    let Some(output) = foreign(kosoku().to_str().unwrap(), &args) else {
        return false;
    };
    let index = std::fs::read(reports.path().join("index.json"));
    let index =
        index.unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    let Value::Object(agents) = serde_json::from_slice(&index).unwrap() else {
        panic!("the report has another form");
    };
    for (_, cases) in agents {
        let Value::Object(cases) = cases else {
            panic!("the report has another form");
        };
        ended.extend(cases);
    }
    true
}

/// Autobahn's words: what the standard demands is `OK`. `NON-STRICT` is what it permits, such as to
/// find invalid UTF-8 at the end of a frame; `INFORMATIONAL` are cases that it leaves open.
fn is_good(case: &Value) -> bool {
    let behaviour = case["behavior"].as_str().unwrap();
    let close = case["behaviorClose"].as_str().unwrap();
    matches!(behaviour, "OK" | "NON-STRICT" | "INFORMATIONAL")
        && matches!(close, "OK" | "INFORMATIONAL")
}

#[test]
fn the_server_behaves_in_all_cases() {
    let limits = Limits {
        message_bytes: MAX_MESSAGE_BYTES,
        ..Limits::default()
    };
    let server = start_graceful(move |listener, server| websocket::serve(listener, server, limits));
    let mut ended = BTreeMap::new();
    let mut cases: Vec<_> = CATEGORIES.iter().map(|(n, _)| format!("{n}.*")).collect();
    for _ in 0..MAX_TRIES {
        if !run(&server, &cases, &mut ended) {
            return;
        }
        let failed = ended.iter().filter(|(_, case)| !is_good(case));
        cases = failed.map(|(name, _)| name.clone()).collect();
        if cases.is_empty() {
            break;
        }
    }
    let failed: Vec<_> = cases.iter().map(|name| (name, &ended[name])).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    for (category, n_cases) in CATEGORIES {
        let of_it = |name: &&String| name.split('.').next() == Some(category);
        assert_eq!(ended.keys().filter(of_it).count(), *n_cases, "{category}");
    }
}

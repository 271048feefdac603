//! The rules of docs/ARCHITECTURE.md that a text search can check: who imports whom,
//! which outsider comes in where, where unsafe code may be.
//!
//! The rules have no exceptions. A name on a list of doors that is no longer needed fails, too: the
//! lists only get shorter.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

#[path = "tidy/dependencies.rs"]
mod dependencies;
#[path = "tidy/targets.rs"]
mod targets;
#[path = "tidy/uring.rs"]
mod uring;

/// The rows of imports: a module imports from the rows above its own (lower in the
/// building), and on its own row from its left.
const ROWS: [&[&str]; 8] = [
    &["target", "race", "bubble", "sys", "loom", "local_values"],
    &["config", "util", "lock"],
    &["g"],
    &["timer", "netpoll"],
    &["sched"],
    &[
        "instant", "poll", "sync", "channel", "context", "task", "thread", "par", "numa", "time",
    ],
    &["net", "io", "fs", "process", "signal", "future", "os"],
    &[
        "promise", "metrics", "debug", "runtime", "sim", "entry", "lib",
    ],
];

/// Crates whose modules import in order.
const IN_ORDER: &[&str] = &[
    "src",
    "crates/explorer/src",
    "crates/ground/src",
    "crates/leaks/src",
    "crates/sys/src",
    "crates/trace/src",
    "crates/world/src",
];

/// Files of a folder that may import one another: types that name each other.
const RING: (&str, &[&str]) = (
    "src/sched/types",
    &[
        "simulation",
        "stop_requests",
        "debug_hooks",
        "p",
        "m",
        "state",
    ],
);

/// The folders of what users depend on.
const LIBRARIES: &[&str] = &[
    "src",
    "topology/src",
    "crates/hyper/src",
    "crates/tracing/src",
    "crates/console/src",
    "crates/handover/src",
    "crates/hook/src",
    "crates/macros/src",
    "crates/unwind/src",
    "crates/explorer/src",
    "crates/ground/src",
    "crates/leaks/src",
    "crates/sys/src",
    "crates/trace/src",
    "crates/world/src",
];

/// An outsider and the files that may name it.
const DOORS: &[(&str, &[&str])] = &[
    // Goroutines, and the threads of the twin.
    (
        "corosensei",
        &["crates/explorer/src/fiber.rs", "src/g/coro.rs"],
    ),
    (
        "io_uring",
        &[
            // Its structures, for the simulated kernel.
            "crates/explorer/src/kernel.rs",
            "crates/explorer/src/poller.rs",
            "crates/sys/src/probe.rs",
            "crates/sys/src/request.rs",
            "src/netpoll/dispatch_events.rs",
            "src/netpoll/pool.rs",
            "src/netpoll/ring.rs",
            // The doctor asks what a ring could do, and runs nothing on it.
            "topology/src/doctor/uring.rs",
        ],
    ),
    ("hwloc2", &["topology/src/hwloc.rs"]),
    ("core_affinity", &["crates/sys/src/affinity.rs"]),
    ("framehop", &["crates/unwind/src/walk.rs"]),
    ("backtrace", &["crates/unwind/src/walk.rs"]),
    ("crossbeam_deque", &["crates/ground/src/offload_pool.rs"]),
    ("signal_hook", &["src/signal.rs"]),
    (
        "socket2",
        &[
            "crates/hyper/src/lib.rs",
            "crates/console/src/listen.rs",
            // The options of simulated sockets are those of their descriptors.
            "crates/world/src/net/calls.rs",
            "crates/world/src/net/descriptors.rs",
            "crates/world/src/net/network.rs",
            "crates/world/src/net/ports.rs",
            "src/poll/fd.rs",
            "src/poll/no_sim_socket.rs",
            "src/poll/sim_socket.rs",
            "src/poll/socket.rs",
            "src/poll/accept.rs",
            "src/net/addr.rs",
            "src/net/connect.rs",
            "src/net/shared_options.rs",
            "src/net/tcp.rs",
            "src/net/tcp_options.rs",
            "src/net/udp.rs",
            "src/net/udp_options.rs",
            "src/net/unix.rs",
            "src/net/unix_datagram.rs",
        ],
    ),
    // Which types a generic function was given.
    ("typeid", &["src/io/copy.rs", "src/net/addr.rs"]),
    // The goroutine that the thread runs, and in debug builds the locks that it holds.
    (
        "thread_local!",
        &[
            "src/sched/types/current.rs",
            "crates/ground/src/lock.rs",
            // In which simulation it is.
            "crates/world/src/inside.rs",
            // Which of a schedule's threads this is.
            "crates/explorer/src/control.rs",
            // The spans that tracing's subscribers take a thread to be in.
            "crates/tracing/src/lib.rs",
            // How many signal handlers run on it.
            "crates/hook/src/handlers.rs",
        ],
    ),
    // A goroutine's M with its P, which only a section keeps for it.
    (
        "current::inside",
        &[
            "src/sched/wait/handoff.rs",
            // In simulations no P is taken.
            "src/sched/wait/spawn.rs",
        ],
    ),
];

/// Items of `std` that may be named outside crates/ground/src/loom: nothing that another thread may wait for or
/// see half done. The rest has its twins there, for loom and for the explorer.
const STD: &[(&str, &[&str])] = &[
    (
        "std::sync::",
        &[
            "Arc",
            "LockResult",
            "PoisonError",
            "TryLockError",
            "TryLockResult",
            "Weak",
        ],
    ),
    ("std::thread::", &["Result", "panicking"]),
    ("std::hint::", &["black_box"]),
    // `sys::clock::now` instead.
    ("Instant::", &[]),
];

/// A source file: as it is, and as code alone.
struct Source {
    path: String,
    text: String,
    /// The text with comments, strings and character literals blanked, line by line.
    code: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            continue;
        }
        if path.is_file() {
            found.push(path);
        } else if !path.ends_with("target") && !path.ends_with(".git") {
            walk(&path, found);
        }
    }
}

/// The Rust files below some folders. Each is read once.
fn sources(folders: &[&str]) -> Vec<&'static Source> {
    static ALL: Mutex<BTreeMap<PathBuf, &'static Source>> = Mutex::new(BTreeMap::new());
    let mut paths = Vec::new();
    folders
        .iter()
        .for_each(|folder| walk(&root().join(folder), &mut paths));
    paths.retain(|path| path.extension().is_some_and(|e| e == "rs"));
    paths.sort();
    assert!(!paths.is_empty());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let source = |path: PathBuf| *all.entry(path).or_insert_with_key(|path| read(path));
    paths.into_iter().map(source).collect()
}

fn read(path: &Path) -> &'static Source {
    let text = std::fs::read_to_string(path).unwrap();
    let code = code_of(&text);
    assert_eq!(text.lines().count(), code.lines().count());
    let path = path.strip_prefix(root()).unwrap();
    let path = path.to_str().unwrap().to_owned();
    Box::leak(Box::new(Source { path, text, code }))
}

fn is_test(path: &str) -> bool {
    path.ends_with("tests.rs")
}

/// Blanks what is not code.
fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(len) = raw_string(text, at) {
            len
        } else if rest.starts_with('"') {
            quoted(rest, '"')
        } else if rest.starts_with('\'') && is_char_literal(rest) {
            quoted(rest, '\'')
        } else {
            let c = rest.chars().next().unwrap();
            code.push(c);
            at += c.len_utf8();
            continue;
        };
        // The lines stay.
        code.push(' ');
        code.extend(rest[..len].matches('\n'));
        at += len;
    }
    code
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    loop {
        match &rest[at..] {
            r if r.starts_with("/*") => (depth, at) = (depth + 1, at + 2),
            r if r.starts_with("*/") => (depth, at) = (depth - 1, at + 2),
            r => at += r.chars().next().map_or(1, char::len_utf8),
        }
        if depth == 0 || at >= rest.len() {
            return at.min(rest.len());
        }
    }
}

/// The length of a raw string that begins here.
fn raw_string(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let inside_a_word = text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let after = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let n_hashes = after.len() - after.trim_start_matches('#').len();
    if inside_a_word || !after[n_hashes..].starts_with('"') {
        return None;
    }
    let end = format!("\"{}", "#".repeat(n_hashes));
    let start = rest.len() - after.len() + n_hashes + 1;
    Some(
        rest[start..]
            .find(&end)
            .map_or(rest.len(), |n| start + n + end.len()),
    )
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// A character, and not a lifetime.
fn is_char_literal(rest: &str) -> bool {
    let mut chars = rest.chars().skip(1);
    matches!(
        (chars.next(), chars.next()),
        (Some('\\'), _) | (Some(_), Some('\''))
    )
}

#[test]
fn the_search_sees_code_only() {
    let text = "a // b\n'x' \"c // \\\" d\" 'life e /* f /* g */ */ r#\"h\"i\"# j '\\'' k";
    let words: Vec<_> = code_of(text)
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    assert_eq!(words, ["a", "'life", "e", "j", "k"]);
}

fn report(faults: &[String]) {
    let mut text = String::new();
    for fault in faults {
        write!(text, "\n  {fault}").unwrap();
    }
    assert!(faults.is_empty(), "{} faults:{text}", faults.len());
}

/// The paths in `code` that begin with `crate`, `super` or `self`, as paths from the crate's root;
/// `module` is the module that the code is in. Lists in braces are expanded.
fn paths(code: &str, module: &[String]) -> BTreeSet<Vec<String>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = BTreeSet::new();
    // The modules in braces around the place, each with the depth of its braces.
    let (mut inline, mut depth): (Vec<(String, usize)>, usize) = (Vec::new(), 0);
    let mut words: Vec<&str> = Vec::new();
    let mut at = 0;
    while let Some(c) = code[at..].chars().next() {
        if is_word(c) {
            let len = code[at..].find(|c| !is_word(c)).unwrap_or(code.len() - at);
            let word = &code[at..at + len];
            let before = code[..at].trim_end();
            let begins = !before.ends_with("::") && !before.ends_with('$');
            if begins && ["crate", "super", "self"].contains(&word) {
                let mut here = module.to_vec();
                here.extend(inline.iter().map(|(name, _)| name.clone()));
                expand(&code[at..], &here, &mut found);
                at += path_len(&code[at..]);
                words.clear();
                continue;
            }
            words.push(word);
            at += len;
            continue;
        }
        match c {
            '{' => {
                depth += 1;
                if let [.., "mod", name] = words[..] {
                    inline.push((name.to_owned(), depth));
                }
            }
            '}' => {
                inline.retain(|(_, inside)| *inside != depth);
                depth = depth.saturating_sub(1);
            }
            _ => {}
        }
        if !c.is_whitespace() {
            words.clear();
        }
        at += c.len_utf8();
    }
    found
}

/// How long the path at the beginning of `code` is, with its list in braces.
fn path_len(code: &str) -> usize {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let len = code.find(|c| !is_part(c)).unwrap_or(code.len());
    if !code[..len].ends_with("::") || !code[len..].starts_with('{') {
        return len;
    }
    let mut depth = 0;
    for (i, c) in code[len..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return len + i + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Adds the path at the beginning of `code`, or all of a list, resolved from the module `here`.
fn expand(code: &str, here: &[String], found: &mut BTreeSet<Vec<String>>) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let code = code.trim_start();
    if let Some(list) = code.strip_prefix('{') {
        let (mut depth, mut begin) = (0, 0);
        for (i, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                ',' if depth == 0 => {
                    expand(&list[begin..i], here, found);
                    begin = i + 1;
                }
                '}' if depth == 0 => {
                    expand(&list[begin..i], here, found);
                    return;
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
        return;
    }
    let len = code.find(|c| !is_word(c)).unwrap_or(code.len());
    let mut path = here.to_vec();
    match &code[..len] {
        "" => return,
        "crate" => path.clear(),
        "self" => {}
        "super" => {
            path.pop();
        }
        word => path.push(word.to_owned()),
    }
    match code[len..].strip_prefix("::") {
        Some(rest) if !rest.trim_start().starts_with('<') => expand(rest, &path, found),
        _ => {
            found.insert(path);
        }
    }
}

#[test]
fn paths_are_resolved() {
    let code = "use super::{a::b, super::c}; mod d { use super::e::F; fn g() { crate::h::<u8>() } }
        impl self::I for super::super::j::K {} fn l(self) {} $crate::m";
    let module = ["x".to_owned(), "y".to_owned()];
    let found: Vec<_> = paths(code, &module)
        .into_iter()
        .map(|p| p.join("::"))
        .collect();
    assert_eq!(
        found,
        ["c", "h", "j::K", "x::a::b", "x::y", "x::y::I", "x::y::e::F"]
    );
}

/// The module that a file is: its path from the root of its crate, whose files lie in `root`.
fn module_of(root: &str, path: &str) -> Vec<String> {
    let inside = path.strip_prefix(root).unwrap().trim_end_matches(".rs");
    let names = inside
        .split('/')
        .filter(|name| !["", "mod", "lib"].contains(name));
    names.map(str::to_owned).collect()
}

/// The modules of a folder in the order in which they may import each other, each from those before it:
/// the order of their `mod` lines. The library's rows are [`ROWS`].
fn order_of(folder: &str) -> Vec<String> {
    if folder == "src" {
        let names = ROWS.iter().copied().flatten();
        return names.map(|name| (*name).to_owned()).collect();
    }
    let files = [
        format!("{folder}/mod.rs"),
        format!("{folder}/lib.rs"),
        format!("{folder}.rs"),
    ];
    let text = files
        .iter()
        .find_map(|file| std::fs::read_to_string(root().join(file)).ok());
    let code = code_of(&text.unwrap_or_default());
    let names = code.lines().filter_map(|line| {
        let (_, name) = line.strip_suffix(';')?.split_once("mod ")?;
        Some(name.to_owned())
    });
    // `sync::mpsc` lies there by a `#[path]`, as it uses all of that folder.
    let last = (folder == "src/channel").then(|| "mpsc".to_owned());
    names.chain(last).collect()
}

/// The place of a module among those of its folder; `None` if it is no module of it.
fn place_in(folder: &str, name: &str, orders: &mut BTreeMap<String, Vec<String>>) -> Option<usize> {
    let order = orders
        .entry(folder.to_owned())
        .or_insert_with(|| order_of(folder));
    // A file that stands in the place of one which knows simulations.
    let name = name.strip_prefix("no_").unwrap_or(name);
    order.iter().position(|n| n == name)
}

/// The methods of a type of the scheduler lie in the room of the type. Another room has functions of
/// its own, so that the imports show who uses it.
#[test]
fn methods_lie_in_the_room_of_their_type() {
    let room = |path: &str| path.rsplit_once('/').unwrap().0.to_owned();
    let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let sources = sources(&["src/sched"]);
    for source in &sources {
        let words: Vec<_> = source.code.split_whitespace().collect();
        for pair in words.windows(2) {
            if ["struct", "enum"].contains(&pair[0]) {
                let is_end = |c: char| !c.is_alphanumeric();
                let name = pair[1].split(is_end).next().unwrap().to_owned();
                rooms.entry(name).or_default().insert(room(&source.path));
            }
        }
    }
    let mut faults = Vec::new();
    for source in &sources {
        for line in source.code.lines() {
            let name = line
                .strip_prefix("impl ")
                .and_then(|l| l.strip_suffix(" {"));
            let has_room = |rooms: &BTreeSet<_>| rooms.contains(&room(&source.path));
            if name.is_some_and(|name| rooms.get(name).is_some_and(|rooms| !has_room(rooms))) {
                faults.push(format!("{}: {line}", source.path));
            }
        }
    }
    report(&faults);
}

#[test]
fn modules_import_in_order() {
    let orders = &mut BTreeMap::new();
    let mut faults = Vec::new();
    let all = IN_ORDER.iter().flat_map(|root| {
        let sources = sources(&[root]).into_iter();
        sources.map(move |source| (*root, source))
    });
    for (root, source) in all.filter(|(_, s)| !is_test(&s.path)) {
        let own = module_of(root, &source.path);
        let folder_at = |n: usize| [&[root.to_owned()], &own[..n]].concat().join("/");
        for (n, name) in own.iter().enumerate() {
            let folder = folder_at(n);
            if place_in(&folder, name, orders).is_none() {
                faults.push(format!("{}: {name} has no place in {folder}", source.path));
            }
        }
        for path in paths(before_tests(&source.code), &own) {
            let n = own.iter().zip(&path).take_while(|(a, b)| a == b).count();
            let folder = folder_at(n);
            // Below itself; an item of its own; or a module around it.
            let (Some(from), Some(to)) = (own.get(n), path.get(n)) else {
                continue;
            };
            let Some(its) = place_in(&folder, to, orders) else {
                // An item of a mod.rs around it, or a re-export of lib.rs.
                faults.push(format!("{} imports {}", source.path, path.join("::")));
                continue;
            };
            let is_in_ring = |name: &String| folder == RING.0 && RING.1.contains(&name.as_str());
            let is_in_order = Some(its) < place_in(&folder, from, orders);
            if is_in_order || is_in_ring(from) && is_in_ring(to) {
                continue;
            }
            faults.push(format!(
                "{} imports {to}, which comes after {from}",
                source.path
            ));
        }
    }
    report(&faults);
}

/// Files whose code has `word` must be listed, and these must have it.
fn check_door(sources: &[&Source], word: &str, listed: &[&str]) -> Vec<String> {
    let names: BTreeSet<&str> = sources
        .iter()
        .filter(|source| {
            source.code.match_indices(word).any(|(at, _)| {
                let part = |c: char| c.is_alphanumeric() || c == '_';
                let end = at + word.len();
                let alone =
                    !source.code[..at].ends_with(part) && !source.code[end..].starts_with(part);
                // Modules of our own may have an outsider's name: a path that begins inside is ours.
                alone && !source.code[..at].ends_with("::")
            })
        })
        .map(|source| source.path.as_str())
        .collect();
    let uninvited = names
        .iter()
        .filter(|path| !listed.contains(path))
        .map(|path| format!("{path} names {word}"));
    let absent = listed
        .iter()
        .filter(|path| !names.contains(*path))
        .map(|path| format!("{path} does not name {word} any more: take it off the list"));
    uninvited.chain(absent).collect()
}

#[test]
fn outsiders_come_in_by_their_doors() {
    let sources: Vec<_> = sources(LIBRARIES)
        .into_iter()
        .filter(|s| !is_test(&s.path))
        .collect();
    let mut faults = Vec::new();
    for (word, doors) in DOORS {
        faults.extend(check_door(&sources, word, doors));
    }
    report(&faults);
}

/// The code before the tests at the end of a file.
fn before_tests(code: &str) -> &str {
    let end = ["#[cfg(all(test", "#[cfg(test)]"]
        .iter()
        .filter_map(|mark| code.find(mark))
        .min();
    &code[..end.unwrap_or(code.len())]
}

/// The names behind a path that ends in `::`: one, or all of a list in braces. A re-export
/// (`pub use`) gives programs a name, and uses it for nothing.
fn names_behind<'a>(code: &'a str, prefix: &str) -> Vec<&'a str> {
    let word = |text: &'a str| {
        let part = |c: char| c.is_alphanumeric() || c == '_';
        &text[..text.find(|c: char| !part(c)).unwrap_or(text.len())]
    };
    let mut names = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        if code[..at].ends_with("pub use ") {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(list) => {
                let list = &list[..list.find('}').unwrap_or(list.len())];
                names.extend(list.split(',').map(|name| word(name.trim_start())));
            }
            None => names.push(word(rest)),
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[test]
fn names_in_lists_are_found() {
    let code = "use std::sync::{Arc, atomic::AtomicU8,\n Mutex,}; std::sync::mpsc::channel();
        pub use std::sync::{Once, atomic};";
    assert_eq!(
        names_behind(code, "std::sync::"),
        ["Arc", "atomic", "Mutex", "mpsc"]
    );
}

#[test]
fn atomics_locks_and_threads_come_by_the_door_that_loom_and_the_explorer_replace() {
    // The interfaces of the kernel and of the sanitizer lie below the door, and the explorer is one of its sides.
    let below = [
        "crates/ground/src/loom/",
        "crates/sys/src/",
        "crates/explorer/src/",
    ];
    let mut faults = Vec::new();
    for source in sources(IN_ORDER)
        .iter()
        .filter(|s| !is_test(&s.path) && !below.iter().any(|folder| s.path.starts_with(folder)))
    {
        let code = before_tests(&source.code);
        for (prefix, allowed) in STD {
            for name in names_behind(code, prefix) {
                let name = format!("{prefix}{name}");
                if allowed.iter().any(|a| name == format!("{prefix}{a}")) {
                    continue;
                }
                faults.push(format!("{} names {name}, not crate::loom's", source.path));
            }
        }
        if code.contains("use std::thread;") || code.contains("use std::sync;") {
            faults.push(format!("{} imports a whole module of std", source.path));
        }
    }
    report(&faults);
}

/// The numbers and types of the kernel's interface may be named anywhere, its functions called only there.
#[test]
fn system_calls_are_made_in_sys() {
    let mut faults = Vec::new();
    for source in sources(&["src"]) {
        if is_test(&source.path) {
            continue;
        }
        for (at, _) in before_tests(&source.code).match_indices("libc::") {
            let rest = &source.code[at + "libc::".len()..];
            let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            let (name, after) = rest.split_at(len.unwrap_or(rest.len()));
            // In upper case it is a macro of C that computes.
            if after.starts_with('(') && name.starts_with(|c: char| c.is_ascii_lowercase()) {
                faults.push(format!("{} calls {name}", source.path));
            }
        }
    }
    report(&faults);
}

/// The compiler refuses unsafe code where a file does not allow it.
#[test]
fn unsafe_code_is_allowed_only_where_it_is() {
    let sources = sources(LIBRARIES).into_iter().filter(|source| {
        let has_unsafe = source.code.replace("unsafe_", "").contains("unsafe");
        source.code.contains("allow(unsafe_code)") && !has_unsafe
    });
    report(
        &sources
            .map(|source| source.path.clone())
            .collect::<Vec<_>>(),
    );
}

#[test]
fn every_unsafe_block_says_why() {
    let mut faults = Vec::new();
    for source in sources(&["src", "topology", "crates", "tests"]) {
        let text: Vec<_> = source.text.lines().collect();
        let code: Vec<_> = source.code.lines().collect();
        for (i, line) in code.iter().enumerate() {
            let words: Vec<_> = line.split_whitespace().collect();
            let has_unsafe = words.windows(2).any(|pair| {
                pair[0].ends_with("unsafe")
                    && (pair[1].starts_with('{') || pair[1].starts_with("impl"))
            });
            if has_unsafe && !has_reason(&text, &code, i) {
                faults.push(format!(
                    "{}:{}: no SAFETY comment above",
                    source.path,
                    i + 1
                ));
            }
        }
    }
    report(&faults);
}

/// `std`'s I/O safety: a number is no proof that a descriptor is open, and is the caller's. What only builds a request makes
/// no call.
#[test]
fn system_calls_that_are_safe_take_no_bare_descriptors() {
    const REQUESTS: &str = "crates/sys/src/request.rs";
    let mut faults = Vec::new();
    for source in sources(&["crates/sys"]) {
        for at in before_tests(&source.code).match_indices("pub fn ") {
            let rest = &source.code[at.0..];
            let signature = &rest[..rest.find('{').unwrap_or(rest.len())];
            let mut parameters = signature.split([',', '(']).map(str::trim);
            if source.path != REQUESTS && parameters.any(is_bare_descriptor) {
                let line = source.code[..at.0].lines().count();
                let name = signature.split(['(', '<']).next().unwrap_or_default();
                faults.push(format!(
                    "{}:{line}: `{name}` takes the number of a descriptor: take `BorrowedFd`, or be unsafe",
                    source.path
                ));
            }
        }
    }
    report(&faults);
}

/// Whether a parameter is the number of a descriptor, by its name and type.
fn is_bare_descriptor(parameter: &str) -> bool {
    parameter.split_once(':').is_some_and(|(name, of)| {
        // The last one is followed by the result.
        let of = of.split(')').next().unwrap_or_default().trim();
        let is_named = name.ends_with("fd") || ["ring", "socket", "file"].contains(&name);
        of.ends_with("RawFd") || is_named && matches!(of, "i32" | "c_int")
    })
}

#[test]
fn bare_descriptors_are_found() {
    let some = [
        "epfd: i32",
        "fd: c_int",
        "ring: i32) -> u8",
        "of: std::os::fd::RawFd",
    ];
    assert!(some.into_iter().all(is_bare_descriptor));
    let none = ["fd: BorrowedFd<'_>", "tid: i32", "self", "status: i32"];
    assert!(!none.into_iter().any(is_bare_descriptor));
}

/// Whether the statement with the line `i` has a comment that begins with SAFETY
/// above it, or inside it above the line.
fn has_reason(text: &[&str], code: &[&str], i: usize) -> bool {
    let says = |j: usize| text[j].contains("SAFETY:") && !code[j].contains("SAFETY:");
    if says(i) {
        return true;
    }
    for j in (0..i).rev() {
        if says(j) {
            return true;
        }
        let ends_another = code[j].trim_end().ends_with([';', '}']);
        if text[j].trim().is_empty() || ends_another {
            return false;
        }
    }
    false
}

#[test]
fn nothing_is_left_for_later() {
    let mut faults = Vec::new();
    let folders = [LIBRARIES, &["topology", "tests", "benches", "examples"]].concat();
    for source in sources(&folders) {
        for word in ["todo!", "unimplemented!", "#[ignore", "dbg!"] {
            for (i, line) in source.code.lines().enumerate() {
                if line.contains(word) {
                    faults.push(format!("{}:{}: {word}", source.path, i + 1));
                }
            }
        }
    }
    report(&faults);
}

/// The files that are part of the project, by git if it is there.
fn project_files() -> Vec<PathBuf> {
    let listed = std::process::Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root())
        .output();
    if let Ok(output) = listed
        && output.status.success()
    {
        let names = String::from_utf8(output.stdout).unwrap();
        return names
            .split_terminator('\0')
            .map(|name| root().join(name))
            .collect();
    }
    let mut found = Vec::new();
    walk(root(), &mut found);
    found
}

#[test]
fn no_file_names_a_place_of_one_machine() {
    let places = [
        concat!("/", "root/"),
        concat!("/", "work/"),
        concat!("/", "home/"),
    ];
    let mut faults = Vec::new();
    for path in project_files() {
        // A file that is no text, or was deleted, has no such names.
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        for (i, line) in text.lines().enumerate() {
            // A part of a longer path or address is something else.
            let named = places.iter().any(|place| {
                line.match_indices(place).any(|(at, _)| {
                    !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-~/}".contains(c))
                })
            });
            if named {
                faults.push(format!("{}:{}: {}", path.display(), i + 1, line.trim()));
            }
        }
    }
    report(&faults);
}

#[test]
fn the_mechanisms_name_what_exists() {
    let text = std::fs::read_to_string(root().join("docs/MECHANISMS.md")).unwrap();
    let sources = sources(&["src", "crates", "tests", "topology", "benches"]);
    let has = |file: &str, function: &str| {
        let (own, below) = (format!("/{file}.rs"), format!("/{file}/tests.rs"));
        // Or in a file whose items the module exports.
        let inside = format!("src/{file}/");
        let heads = [format!("fn {function}("), format!("fn {function}<")];
        sources
            .iter()
            .filter(|s| {
                let path = &s.path;
                path.ends_with(&own) || path.ends_with(&below) || path.starts_with(&inside)
            })
            .any(|s| heads.iter().any(|head| s.code.contains(head)))
    };
    let mut n_functions = 0;
    let mut faults = Vec::new();
    // Every other piece stands between backticks.
    for name in text.split('`').skip(1).step_by(2) {
        let is_there = match name.split_once("::") {
            Some((file, function)) if file.chars().all(|c| c.is_lowercase() || c == '_') => {
                n_functions += 1;
                has(file, function)
            }
            None if name.contains(".rs") || name.starts_with("src/") => root().join(name).exists(),
            _ => true,
        };
        if !is_there {
            faults.push(format!(
                "docs/MECHANISMS.md names {name}, which is not there"
            ));
        }
    }
    assert!(n_functions > 50, "only {n_functions} tests were found");
    report(&faults);
}

/// The pages for people: path and text, without the blocks of code.
fn pages() -> Vec<(String, String)> {
    let mut pages = Vec::new();
    for path in project_files() {
        let name = path
            .strip_prefix(root())
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        // Changes since then are in the list of changes, too.
        if !name.ends_with(".md") || name == "CHANGELOG.md" {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let prose = text.split("```").step_by(2).collect();
        pages.push((name, prose));
    }
    pages
}

/// The texts between backticks.
fn in_backticks(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The names that the files define: items, fields, and whatever else stands before a colon.
fn defined<'a>(sources: impl Iterator<Item = &'a Source>) -> BTreeSet<&'a str> {
    const ITEMS: [&str; 8] = [
        "fn", "struct", "enum", "trait", "mod", "const", "type", "static",
    ];
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = BTreeSet::new();
    for source in sources {
        let (mut rest, mut before) = (&*source.code, "");
        while let Some(begin) = rest.find(is_word) {
            let word = &rest[begin..];
            let len = word.find(|c| !is_word(c)).unwrap_or(word.len());
            let (word, after) = word.split_at(len);
            let is_field = after.starts_with(':') && !after.starts_with("::");
            if is_field || ITEMS.contains(&before) {
                found.insert(word);
            }
            (rest, before) = (after, word);
        }
    }
    found
}

/// Files by their paths or their ends, and methods and fields of types of ours.
#[test]
fn the_pages_name_what_exists() {
    let files: Vec<String> = project_files()
        .iter()
        .filter(|path| path.exists())
        .map(|path| {
            path.strip_prefix(root())
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    let sources = sources(LIBRARIES);
    let ours = defined(sources.iter().copied());
    let mut faults = Vec::new();
    let mut n_checked = 0;
    for (page, text) in pages() {
        for name in in_backticks(&text) {
            let is_path = name
                .chars()
                .all(|c| c.is_alphanumeric() || "_./-".contains(c));
            let is_file = [".rs", ".sh", ".py"].iter().any(|end| name.ends_with(end));
            let is_inside = [
                "src/",
                "tests/",
                "topology/",
                "crates/",
                "benches/",
                "examples/",
                "docs/",
                "scripts/",
            ]
            .iter()
            .any(|folder| name.starts_with(folder));
            if is_path && (is_file || is_inside) {
                n_checked += 1;
                let (end, folder) = (
                    format!("/{name}"),
                    format!("{}/", name.trim_end_matches('/')),
                );
                let is_there = files
                    .iter()
                    .any(|f| f == name || f.ends_with(&end) || f.starts_with(&folder));
                if !is_there {
                    faults.push(format!("{page} names {name}, which is not there"));
                }
            }
            // Decisions tell of what was there as well.
            let Some((of, member)) = name
                .split_once("::")
                .filter(|_| !page.contains("decisions/"))
            else {
                continue;
            };
            let member: String = member
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            let is_type =
                of.starts_with(char::is_uppercase) && of.chars().all(char::is_alphanumeric);
            if !is_type || !member.starts_with(char::is_lowercase) {
                continue;
            }
            // Of a type of another crate nothing is known.
            if ours.contains(of) {
                n_checked += 1;
                if !ours.contains(&*member) {
                    faults.push(format!("{page} names {name}, which is not there"));
                }
            }
        }
    }
    assert!(n_checked > 200, "only {n_checked} names were found");
    report(&faults);
}

/// In docs/MECHANISMS.md a name in brackets behind a file is defined in that file.
#[test]
fn the_mechanisms_name_items_of_their_files() {
    let text = std::fs::read_to_string(root().join("docs/MECHANISMS.md")).unwrap();
    let sources = sources(&["src", "topology"]);
    let mut n_items = 0;
    let mut faults = Vec::new();
    for (at, _) in text.match_indices("` (`") {
        let file = text[..at].rsplit('`').next().unwrap();
        let name = text[at + 4..].split('`').next().unwrap();
        if !file.ends_with(".rs") {
            continue;
        }
        n_items += 1;
        let of = sources.iter().copied().filter(|s| s.path == file);
        if !defined(of).contains(name) {
            faults.push(format!(
                "docs/MECHANISMS.md names {name} in {file}, which does not define it"
            ));
        }
    }
    assert!(n_items > 10, "only {n_items} items were found");
    report(&faults);
}

/// Where the constants lie that steer the runtime.
const STEERED: &[&str] = &[
    "crates/ground/src/offload_pool.rs",
    "crates/ground/src/raw_lock.rs",
    "crates/ground/src/stack.rs",
    "crates/ground/src/timer_queue",
    "src/config.rs",
    "src/netpoll/",
    "src/poll/",
    "src/sched/",
    "src/sync/raw_mutex.rs",
    "src/sync/waitq.rs",
    "src/util/ladder.rs",
];

/// Of these the files whose constants are words, bits, layouts or bounds of the kernel.
const NOT_STEERED: &[&str] = &[
    "src/netpoll/op.rs",
    "src/netpoll/poll_desc.rs",
    "src/netpoll/waiters.rs",
    "src/poll/foreign.rs",
    "src/sched/numa/summary.rs",
    "src/sched/queue/access.rs",
    "src/sched/queue/idle.rs",
    "src/sched/queue/p_status.rs",
    "src/sched/types/accounts.rs",
    "src/sched/types/current.rs",
    "src/sched/types/events.rs",
    "src/sched/types/extra_work.rs",
    "src/sched/types/m.rs",
    "src/sched/types/samples.rs",
    "src/sched/types/sampling.rs",
    "src/sched/types/simulation.rs",
    "src/sched/types/steal_levels.rs",
];

/// And the names of such constants beside those that steer.
const WORDS: &[&str] = &[
    "ASLEEP",
    "BUCKETS",
    "COLOUR_BYTES",
    "CONTENDED",
    "ELSEWHERE",
    "ENTER_GETEVENTS",
    "ENTER_EXT_ARG",
    "ENTER_NO_IOWAIT",
    "ENTRIES_BYTES",
    "FREE",
    "GONE",
    "HANDED_OVER",
    "HELD",
    "LARGEST",
    "LEFT",
    "LEVELS",
    "LOCKED",
    "MASK",
    "MAX_FDS",
    "MAX_NODE_TAG",
    "MAX_STACK_BYTES",
    "MAX_TRACE_BYTES",
    "MORE",
    "NODE_SHIFT",
    "NOTHING_CHOSEN",
    "NOT_ARMED",
    "NO_POLL",
    "N_DENIALS",
    "OWN",
    "QUEUED",
    "READS",
    "READY",
    "SLEEPING",
    "STARVING",
    "STRIDE",
    "TAGS",
    "TAG_EVENTFD",
    "TAG_MULTISHOT_POLL",
    "TAG_WAKE",
    "TAKEN_SLEEPING",
    "TAKEN_WAITING",
    "WAITING",
    "WAKE",
    "WOKEN",
    "WRITES",
];

/// The constants that steer the runtime, by file and name, with their values.
fn steering_constants() -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for source in sources(&["src", "crates/ground/src"]) {
        let is_steered = STEERED.iter().any(|start| source.path.starts_with(start));
        let is_test = source.path.contains("tests.rs");
        if !is_steered || is_test || NOT_STEERED.contains(&&*source.path) {
            continue;
        }
        for item in before_tests(&source.code).split("const ").skip(1) {
            if let Some((name, item)) = item.split_once(": ")
                && let Some((kind, value)) = item.split_once(" =")
                && ["u8", "u16", "u32", "u64", "usize", "i32"].contains(&kind)
                && !WORDS.contains(&name)
            {
                let (at, value) = ((source.path.clone(), name.to_owned()), value_of(value));
                if !value.contains("libc::") {
                    found.entry(at).or_insert(value);
                }
            }
        }
    }
    found
}

/// A constant's value as the page has it: of those that differ in models, the one outside.
fn value_of(text: &str) -> String {
    let value = text.split(';').next().unwrap().replace("ladder::", "");
    let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
    let outside = value.split_once("else { ").map(|(_, value)| value);
    let value = outside.map_or(&*value, |value| value.trim_end_matches(" }"));
    value.split(" as ").next().unwrap().to_owned()
}

/// Each number that steers the runtime has a row in docs/decisions/numbers.md, with its file, its value, its unit and
/// what chose it.
#[test]
fn the_numbers_that_steer_the_runtime_are_explained() {
    let constants = steering_constants();
    assert!(constants.len() > 60, "only {constants:?} were found");
    let text = std::fs::read_to_string(root().join("docs/decisions/numbers.md")).unwrap();
    let mut faults = Vec::new();
    let mut explained = BTreeMap::new();
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, file, value] = [0, 1, 2].map(|at| cells[at].trim_matches('`').to_owned());
        if cells.len() != 5 || cells[3..].iter().any(|cell| cell.is_empty()) {
            faults.push(format!("numbers.md: {name} needs a unit and what chose it"));
        }
        explained.insert((file, name), value);
    }
    let all: BTreeSet<_> = constants.keys().chain(explained.keys()).collect();
    for at in all {
        let (code, page) = (constants.get(at), explained.get(at));
        if code != page {
            let (file, name) = at;
            faults.push(format!(
                "{name} of {file} is {code:?}, in numbers.md {page:?}"
            ));
        }
    }
    report(&faults);
}

/// Blocks of Rust in pages that no test runs: the page, what the block contains, and why.
const UNRUN: &[(&str, &str, &str)] = &[
    (
        "crates/console/README.md",
        "windlass_console::serve",
        "the crate's own documentation has it in a program that is run",
    ),
    (
        "crates/hook/README.md",
        "windlass_hook::install",
        "the crate's own documentation has it in a program that is run",
    ),
    ("docs/CONTAINERS.md", "waiting by", "one line of a program"),
    (
        "docs/NUMA.md",
        "memory_placement",
        "two lines of a program, which the documentation of the function has as a whole",
    ),
    (
        "docs/OBSERVABILITY.md",
        "windlass_console::serve",
        "one line of a program, which the crate's documentation has as a whole",
    ),
    (
        "docs/OBSERVABILITY.md",
        "cpu_accounting",
        "leaves out what the program does",
    ),
    (
        "docs/PORTING.md",
        "    runtime.run(|| serve())",
        "stands for the reader's program",
    ),
    (
        "docs/PORTING.md",
        "    serve()\n",
        "stands for the reader's program",
    ),
    (
        "docs/PORTING.md",
        "extern \"C\" fn progress",
        "a callback for the reader's C library",
    ),
    (
        "docs/PORTING.md",
        "windlass_hook::install",
        "one line of a program, which the crate's documentation has as a whole",
    ),
    ("docs/PORTING.md", "rand::rng()", "wrong on purpose"),
    (
        "docs/PORTING.md",
        "windlass::context::Context",
        "waits for a signal, as the server at the end of the page, which is run",
    ),
    (
        "docs/PORTING.md",
        "use std::thread;",
        "the program before it was ported",
    ),
    ("docs/SAFETY.md", "BUF.with_borrow_mut", "wrong on purpose"),
    ("docs/SAFETY.md", "COUNT.with", "wrong on purpose"),
    ("docs/SAFETY.md", "stdout().lock()", "wrong on purpose"),
    ("docs/SAFETY.md", "CACHE.with", "wrong on purpose"),
    ("docs/SAFETY.md", "SETTINGS.set", "wrong on purpose"),
    ("docs/SAFETY.md", "fetch_name()", "wrong on purpose"),
    (
        "docs/guide/blocking-crates.md",
        "windlass_hook::install",
        "one line of a program, which the crate's documentation has as a whole",
    ),
    (
        "docs/guide/data-races.md",
        "pub struct Hits",
        "has a data race on purpose",
    ),
    (
        "docs/guide/http.md",
        "ureq::Agent",
        "a client of the server above, of which the example fetch is a whole program",
    ),
    (
        "docs/guide/from-tokio.md",
        "#[tokio::main]",
        "another runtime's program",
    ),
    (
        "docs/guide/ports.md",
        "recv(joining)",
        "a part of examples/ports, which its tests run",
    ),
    (
        "docs/guide/ports.md",
        "fn tell",
        "a part of examples/ports, which its tests run",
    ),
];

/// The pages whose blocks rustdoc tests.
fn pages_of_doc_tests() -> BTreeSet<PathBuf> {
    let libraries = ["src", "topology/src"].map(|folder| root().join(folder));
    let pages = libraries.iter().flat_map(|folder| {
        let text = std::fs::read_to_string(folder.join("lib.rs")).unwrap();
        let names = text.split("include_str!(\"").skip(1);
        let names: Vec<_> = names
            .map(|rest| rest.split('"').next().unwrap().to_owned())
            .collect();
        names
            .into_iter()
            .map(|name| folder.join(name).canonicalize().unwrap())
    });
    pages.collect()
}

/// A block of Rust in a page is run: as a doc test, or as a server by the tests of the examples
/// (examples/build.rs). The others are listed.
#[test]
fn programs_of_pages_are_run() {
    let tested = pages_of_doc_tests();
    let (mut n_run, mut faults, mut listed) = (0, Vec::new(), Vec::new());
    for path in project_files() {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap();
        if !name.ends_with(".md") || !path.exists() {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for block in text.split("\n```rust").skip(1) {
            let (language, block) = block.split_once('\n').unwrap();
            let program = block.split("```").next().unwrap();
            let is_server = program.contains("fn main()")
                && program.contains("TcpListener::bind(\"127.0.0.1:")
                && language == ",no_run";
            let is_doc_test = ["", ",should_panic"].contains(&language) && tested.contains(&path);
            if is_server || is_doc_test {
                n_run += 1;
                continue;
            }
            let is_this = |(page, part, _): &_| *page == name && program.contains(*part);
            match UNRUN.iter().position(is_this) {
                Some(row) if !listed.contains(&row) => listed.push(row),
                _ => faults.push(format!(
                    "{name}: no test runs this, and UNRUN has no row for it: {program}"
                )),
            }
        }
    }
    let without = (0..UNRUN.len()).filter(|row| !listed.contains(row));
    faults.extend(without.map(|row| format!("UNRUN: no block is {:?}", UNRUN[row])));
    assert!(n_run > 30, "only {n_run} blocks are run");
    report(&faults);
}

/// Each word in backticks of a row stands in one of the files or folders that the row names.
#[test]
fn the_glossary_names_what_exists() {
    let text = std::fs::read_to_string(root().join("docs/GLOSSARY.md")).unwrap();
    let sources = sources(&["src", "crates"]);
    let quoted = |cell: &str| -> Vec<String> {
        let pieces = cell.split('`').skip(1).step_by(2);
        pieces.map(str::to_owned).collect()
    };
    let mut n_words = 0;
    let mut faults = Vec::new();
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").collect();
        let [words, .., places] = &cells[..] else {
            continue;
        };
        let places = quoted(places);
        for place in places.iter().filter(|place| !root().join(place).exists()) {
            faults.push(format!(
                "docs/GLOSSARY.md names {place}, which is not there"
            ));
        }
        for word in quoted(words) {
            n_words += 1;
            // A method or a variant is sought by its own name.
            let name = word.rsplit("::").next().unwrap().trim_end_matches("()");
            let mut named = sources.iter().filter(|s| {
                places
                    .iter()
                    .any(|place| s.path.starts_with(place.as_str()))
            });
            if !named.any(|s| s.code.contains(name)) {
                faults.push(format!("docs/GLOSSARY.md: {word} is in none of {places:?}"));
            }
        }
    }
    assert!(n_words > 50, "only {n_words} words were found");
    report(&faults);
}

//! The names of `std` and what programs do with them, compiled against `std` and against windlass:
//! what a port changes are the first words of its `use` lines. A name that is here only for `std`
//! is listed with the reason.
#![allow(unsafe_code)]

#[path = "util/mod.rs"]
mod util;

use std::collections::BTreeSet;

#[allow(unused_imports)]
mod with_std {
    use ::std as api;
    include!("std_names/names.rs");
    include!("std_names/traits.rs");
    include!("std_names/uses.rs");
}

#[allow(unused_imports)]
mod with_windlass {
    use ::windlass as api;
    include!("std_names/names.rs");
    include!("std_names/traits.rs");
    include!("std_names/uses.rs");
}

/// Names of `std` that windlass does not have.
#[allow(dead_code, unused_imports)]
mod exceptions {
    use std::io::{Read, Seek, Write};

    // A goroutine has no thread of its own, so it has no pthread either.
    use std::os::unix::thread::{JoinHandleExt, RawPthread};

    // `task_local!` is its counterpart, with the same syntax. In ported code `thread_local!` means
    // what it meant: one value for each thread.
    use std::thread_local;

    // `impl Read for Arc<File>`, and the same for `Write` and `Seek`: nobody but `std` can implement
    // its traits for `Arc`. `&*file` reads and writes in their place.
    fn shared_file(file: std::sync::Arc<std::fs::File>) -> impl Read + Write + Seek {
        file
    }

    // Deprecated since it exists: it must come before `bind`, which a `TcpListener` has behind it.
    #[allow(deprecated)]
    fn only_v6(listener: &std::net::TcpListener) -> std::io::Result<bool> {
        listener.set_only_v6(true)?;
        listener.only_v6()
    }

    // A scope does it without a promise.
    fn unchecked(builder: std::thread::Builder) -> std::io::Result<std::thread::JoinHandle<()>> {
        // SAFETY: the closure borrows nothing.
        unsafe { builder.spawn_unchecked(|| ()) }
    }

    // Types of C. Nothing in them waits.
    use std::os::raw;
}

#[test]
fn std_does_it() {
    let _guard = util::hang_guard();
    with_std::all();
}

#[test]
fn windlass_does_the_same() {
    for n_processors in [1, 2] {
        util::run(n_processors, with_windlass::all);
    }
}

/// The modules whose names are compared.
const MODULES: &[&str] = &[
    "fs",
    "io",
    "net",
    "os/fd",
    "os/linux",
    "os/linux/fs",
    "os/linux/net",
    "os/unix",
    "os/unix/ffi",
    "os/unix/fs",
    "os/unix/net",
    "os/unix/process",
    "os/unix/thread",
    "process",
    "sync",
    "sync/mpsc",
    "thread",
    "time",
];

/// The lists above have every stable name that the pages of `std` have, where these are installed.
#[test]
fn no_name_is_forgotten() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let command = std::process::Command::new(rustc)
        .args(["--print", "sysroot"])
        .output();
    let sysroot = command.map_or_else(|_| Vec::new(), |output| output.stdout);
    let sysroot = String::from_utf8(sysroot).unwrap();
    let pages = std::path::Path::new(sysroot.trim_end()).join("share/doc/rust/html/std");
    if !pages.join("fs/index.html").exists() {
        eprintln!("SKIPPED: the pages of std are not installed (rustup component add rust-docs)");
        return;
    }
    let ours = [
        include_str!("std_names/names.rs"),
        include_str!("std_names.rs"),
    ]
    .concat();
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let words: BTreeSet<&str> = ours.split(|c| !is_part(c)).collect();
    let mut n_names = 0;
    for module in MODULES {
        let page = std::fs::read_to_string(pages.join(module).join("index.html")).unwrap();
        // One for each name: `<dt><a .. title="struct std::fs::File">File</a> ..</dt>`.
        for entry in page.split("<dt>").skip(1) {
            let entry = entry.split("</dt>").next().unwrap();
            if entry.contains("unstable") || entry.contains("Experimental") {
                continue;
            }
            let Some((_, title)) = entry.split_once("title=\"") else {
                continue;
            };
            let title = title.split('"').next().unwrap();
            let name = title.rsplit("::").next().unwrap();
            assert!(words.contains(name), "{title}");
            n_names += 1;
        }
    }
    assert!(n_names > 150, "found {n_names} names only");
}

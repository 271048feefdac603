//! The names of `std` and what programs do with them, compiled against `std` and against windlass:
//! what a port changes are the first words of its `use` lines. What is here only for `std` is listed
//! with the reason.
#![allow(unsafe_code)]

#[path = "util/mod.rs"]
mod util;

#[allow(unused_imports)]
mod with_std {
    use ::std as api;
    include!("std_names/names.rs");
    include!("std_names/uses.rs");
}

#[allow(unused_imports)]
mod with_windlass {
    use ::windlass as api;
    include!("std_names/names.rs");
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

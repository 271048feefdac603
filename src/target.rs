//! The targets that windlass can be built for. The file needs nothing else of the crate, so that a
//! test can compile it alone.

#[cfg(not(target_os = "linux"))]
compile_error!("windlass needs Linux: it is built on io_uring and futexes");

#[cfg(not(panic = "unwind"))]
compile_error!(
    "windlass needs `panic = \"unwind\"`: goroutines that still wait at the end of a run are \
     unwound, and with `panic = \"abort\"` the process would die there without a word; remove \
     `panic` from the profile in Cargo.toml, and `-C panic` from RUSTFLAGS"
);

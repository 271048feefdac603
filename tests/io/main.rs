//! Files, pipes, standard streams and child processes.

#[path = "../util/fuse.rs"]
mod fuse;
#[path = "../util/temp.rs"]
mod temp;
#[cfg(feature = "sim")]
#[path = "../util/inside.rs"]
mod inside;
#[path = "../util/mod.rs"]
mod util;

mod fs;
mod io;
mod io_child;
mod io_copy;
mod locked_thread;
mod poller;
mod process;

/// Each file's tests, once more in simulations.
#[cfg(feature = "sim")]
mod simulated {
    #[test]
    fn fs() {
        crate::inside::run(&crate::fs::INSIDE, include_str!("fs.rs"));
    }
    #[test]
    fn io() {
        crate::inside::run(&crate::io::INSIDE, include_str!("io.rs"));
    }
    #[test]
    fn io_copy() {
        crate::inside::run(&crate::io_copy::INSIDE, include_str!("io_copy.rs"));
    }
}

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

mod child;
mod copy;
mod fs;
mod io;
mod locked_thread;
mod poller;
mod process;

#[cfg(feature = "sim")]
inside::files! {
    copy
    fs
    io
}

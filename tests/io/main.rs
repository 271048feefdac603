//! Files, pipes, standard streams and child processes.

#[path = "../util/fuse.rs"]
mod fuse;
#[path = "../util/temp.rs"]
mod temp;
#[path = "../util/mod.rs"]
mod util;

mod fs;
mod io;
mod io_child;
mod io_copy;
mod poller;
mod process;

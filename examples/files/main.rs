//! A web server for the files of a directory.
//!
//! ```text
//! cargo run --release --example files -- [--root DIR] [--addr HOST:PORT] [--procs N]
//! curl --range 0-99 http://127.0.0.1:8083/README.md
//! ```
//!
//! It serves the current directory on 127.0.0.1:8083 by default, on every CPU available to it.
//! Ctrl-c or SIGTERM stop it as httpd: what was accepted is finished within 30 seconds, and the
//! status is 0. examples/files maps paths to files; the HTTP is that
//! of httpd.
#![expect(clippy::print_stdout, reason = "says where it listens")]

#[path = "../support/args.rs"]
mod args;
#[path = "mod.rs"]
mod files;
#[path = "../http/mod.rs"]
mod http;
#[path = "../support/linger.rs"]
mod linger;
#[path = "../support/serve.rs"]
mod serve;
#[path = "../support/signals.rs"]
mod signals;

use std::io;
use std::time::Duration;

use windlass::net::{Graceful, TcpListener};

const USAGE: &str = "usage: files [--root DIR] [--addr HOST:PORT] [--procs N]";

/// How long an idle connection may still send a request after the signal.
const GRACE: Duration = Duration::from_secs(2);
/// The time limit for answers after the signal.
const STOP_LIMIT: Duration = Duration::from_secs(30);

fn main() -> io::Result<()> {
    let mut args = args::Args::of_process(USAGE);
    let root = args.value("--root", ".".to_owned());
    let addr = args.value("--addr", "127.0.0.1:8083".to_owned());
    let procs = args.optional("--procs");
    args.finish();

    let site = files::Site::open(root.as_ref())
        .map_err(|e| io::Error::new(e.kind(), format!("{root}: {e}")))?;
    let mut builder = windlass::Builder::new().name("files");
    if let Some(n) = procs {
        builder = builder.processors(n);
    }
    #[expect(
        unsafe_code,
        reason = "the promise that windlass asks of every program"
    )]
    // SAFETY: no goroutine of this program keeps a thread-local borrow across a call that parks.
    let runtime = unsafe { builder.build()? };
    runtime.run(|| {
        let signals = signals::StopSignals::register()?;
        let listener = TcpListener::bind(&addr)?;
        println!("http://{}/", listener.local_addr()?);
        let server = Graceful::with_grace(GRACE);
        let stop = move || signals.wait();
        serve::until(stop, &server, STOP_LIMIT, || site.serve(listener, &server))
    })
}

//! A TCP server that sends back what it gets.
//!
//! ```text
//! cargo run --release --example echo -- [--addr HOST:PORT] [--procs N]
//! nc 127.0.0.1 7777
//! ```
//!
//! It listens on 127.0.0.1:7777 if not told otherwise, and uses every CPU that it
//! may. Ctrl-c or SIGTERM stop it, with status 0. The server itself is in
//! examples/echo.
#![expect(clippy::print_stdout, reason = "says where it listens")]

#[path = "support/accept.rs"]
mod accept;
#[path = "support/args.rs"]
mod args;
#[path = "echo/mod.rs"]
mod echo;
#[path = "support/signals.rs"]
mod signals;

use std::io;

use windlass::net::TcpListener;

const USAGE: &str = "usage: echo [--addr HOST:PORT] [--procs N]";

fn main() -> io::Result<()> {
    let mut args = args::Args::of_process(USAGE);
    let addr = args.value("--addr", "127.0.0.1:7777".to_owned());
    let procs = args.optional("--procs");
    args.finish();

    let mut builder = windlass::Builder::new().name("echo");
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
        let listener = TcpListener::bind(&addr)?;
        println!("{}", listener.local_addr()?);
        windlass::spawn(move || echo::serve(&listener));
        // The run ends with this goroutine, and ends all others.
        signals::wait_for_stop()
    })
}

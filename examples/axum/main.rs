//! A message board with axum, on goroutines: a `Router` unchanged, whose handlers may wait as
//! goroutines do.
//!
//! ```text
//! cargo run --release --features axum --example axum -- [--addr HOST:PORT] [--procs N]
//! curl --data 'Hello!' http://127.0.0.1:8085/rooms/lobby
//! curl 'http://127.0.0.1:8085/rooms/lobby?since=0&wait=10'
//! curl --no-buffer http://127.0.0.1:8085/rooms/lobby/stream
//! websocat ws://127.0.0.1:8085/rooms/lobby/socket
//! ```
//!
//! It listens on 127.0.0.1:8085 by default, on every CPU available to it. Ctrl-c or SIGTERM stop
//! it: it finishes the requests that have arrived. The routes are in examples/axum/mod.rs, the
//! connections in examples/support/routes.rs.
#![expect(clippy::print_stdout, reason = "says where it listens")]

#[path = "../support/args.rs"]
mod args;
#[path = "mod.rs"]
mod board;
#[path = "../support/finish.rs"]
mod finish;
#[path = "../support/routes.rs"]
mod routes;
#[path = "../support/serve.rs"]
mod serve;
#[path = "../support/signals.rs"]
mod signals;

use std::io;

use windlass::net::TcpListener;

const USAGE: &str = "usage: axum [--addr HOST:PORT] [--procs N]";

fn main() -> io::Result<()> {
    let mut args = args::Args::of_process(USAGE);
    let addr = args.value("--addr", "127.0.0.1:8085".to_owned());
    let procs = args.optional("--procs");
    args.finish();

    let mut builder = windlass::Builder::new().name("axum");
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
        board::serve(listener, move || signals.wait())
    })
}

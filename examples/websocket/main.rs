//! A WebSocket server that sends back what it receives, with unmodified tungstenite.
//!
//! ```text
//! cargo run --release --features tungstenite --example websocket -- [--addr HOST:PORT] [--procs N]
//!     [--max-message BYTES]
//! websocat ws://127.0.0.1:8084/
//! ```
//!
//! It listens on 127.0.0.1:8084 by default, on every CPU available to it, and takes messages of up to
//! a megabyte. Ctrl-c or SIGTERM stop it: messages that have begun to arrive are sent back, and the
//! connections are closed with the code 1001. The server itself is in examples/websocket.
#![expect(clippy::print_stdout, reason = "says where it listens")]

#[path = "../support/args.rs"]
mod args;
#[path = "../support/linger.rs"]
mod linger;
#[path = "mod.rs"]
mod server;
#[path = "../support/serve.rs"]
mod serve;
#[path = "../support/signals.rs"]
mod signals;

use std::io;
use std::time::Duration;

use windlass::net::{Graceful, TcpListener};

/// The time limit for messages after the signal.
const STOP_LIMIT: Duration = Duration::from_secs(30);

const USAGE: &str = "usage: websocket [--addr HOST:PORT] [--procs N] [--max-message BYTES]";

fn main() -> io::Result<()> {
    let mut args = args::Args::of_process(USAGE);
    let addr = args.value("--addr", "127.0.0.1:8084".to_owned());
    let procs = args.optional("--procs");
    let mut limits = server::Limits::default();
    limits.message_bytes = args.value("--max-message", limits.message_bytes);
    args.finish();

    let mut builder = windlass::Builder::new().name("websocket");
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
        println!("ws://{}/", listener.local_addr()?);
        let server = Graceful::new();
        let stop = move || signals.wait();
        serve::until(stop, &server, STOP_LIMIT, || {
            server::serve(listener, &server, limits)
        })
    })
}

//! A WebSocket server that sends back what it receives, with unmodified tungstenite.
//!
//! ```text
//! cargo run --release --features tungstenite --example websocket -- [--addr HOST:PORT] [--procs N]
//!     [--max-message BYTES]
//! websocat ws://127.0.0.1:8084/
//! ```
//!
//! It listens on 127.0.0.1:8084 by default, on every CPU available to it, and takes messages of up to
//! a megabyte. Ctrl-c or SIGTERM stop it, with status 0. The server itself is in examples/websocket.
#![expect(clippy::print_stdout, reason = "says where it listens")]

#[path = "../support/accept.rs"]
mod accept;
#[path = "../support/args.rs"]
mod args;
#[path = "../support/linger.rs"]
mod linger;
#[path = "mod.rs"]
mod server;
#[path = "../support/signals.rs"]
mod signals;

use std::io;

use windlass::net::TcpListener;

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
        let listener = TcpListener::bind(&addr)?;
        println!("ws://{}/", listener.local_addr()?);
        windlass::spawn(move || server::serve(&listener, limits));
        // The run ends with this goroutine, and cancels all others.
        signals::wait_for_stop()
    })
}

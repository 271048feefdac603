//! A web server built with hyper, on goroutines: HTTP/1.1 or HTTP/2.
//!
//! ```text
//! cargo run --release --features hyper --example hyper -- [--addr HOST:PORT] [--procs N]
//!     [--http2 true]
//! curl http://127.0.0.1:8082/
//! curl --data-binary @FILE http://127.0.0.1:8082/echo
//! curl --http2-prior-knowledge http://127.0.0.1:8082/    # with --http2 true
//! ```
//!
//! It listens on 127.0.0.1:8082 by default, on every CPU available to it. Ctrl-c or SIGTERM stop
//! it: it finishes the requests that have arrived. The server itself is in examples/hyper.
#![expect(clippy::print_stdout, reason = "says where it listens")]

#[path = "../support/args.rs"]
mod args;
#[path = "../support/finish.rs"]
mod finish;
#[path = "mod.rs"]
mod server;
#[path = "../support/serve.rs"]
mod serve;
#[path = "../support/signals.rs"]
mod signals;

use std::io;
use std::time::Duration;

use windlass::net::{Graceful, TcpListener};

/// The time limit for answers after the signal.
const STOP_LIMIT: Duration = Duration::from_secs(30);

const USAGE: &str = "usage: hyper [--addr HOST:PORT] [--procs N] [--http2 true|false]";

fn main() -> io::Result<()> {
    let mut args = args::Args::of_process(USAGE);
    let addr = args.value("--addr", "127.0.0.1:8082".to_owned());
    let procs = args.optional("--procs");
    let is_http2 = args.value("--http2", false);
    args.finish();

    let mut builder = windlass::Builder::new().name("hyper");
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
        let server = Graceful::new();
        let stop = move || signals.wait();
        serve::until(stop, &server, STOP_LIMIT, || {
            server::serve(listener, &server, is_http2)
        })
    })
}

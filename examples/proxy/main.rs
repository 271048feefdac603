//! A TCP proxy: forwards connections to another server.
//!
//! ```text
//! cargo run --release --example proxy -- --to HOST:PORT [--addr HOST:PORT] [--procs N]
//! curl http://127.0.0.1:8081/
//! ```
//!
//! It listens on 127.0.0.1:8081 by default, on every CPU available to it. Ctrl-c or SIGTERM stop
//! it: it accepts no more connections, and those that have not ended after 30 seconds are cut off.
//! The proxy itself is in examples/proxy.
#![expect(clippy::print_stdout, reason = "says where it listens")]

#[path = "../support/args.rs"]
mod args;
#[path = "mod.rs"]
mod proxy;
#[path = "../support/serve.rs"]
mod serve;
#[path = "../support/signals.rs"]
mod signals;

use std::io;
use std::time::Duration;

use windlass::net::Graceful;

/// The time limit for connections after the signal.
const STOP_LIMIT: Duration = Duration::from_secs(30);

const USAGE: &str = "usage: proxy --to HOST:PORT [--addr HOST:PORT] [--procs N]";

fn main() -> io::Result<()> {
    let mut args = args::Args::of_process(USAGE);
    let addr = args.value("--addr", "127.0.0.1:8081".to_owned());
    let to: Option<String> = args.optional("--to");
    let procs = args.optional("--procs");
    args.finish();
    let Some(to) = to else {
        eprintln!("--to: not given\n{USAGE}");
        std::process::exit(2);
    };

    let mut builder = windlass::Builder::new().name("proxy");
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
        let listener = proxy::options().listen(&addr)?;
        println!("{} -> {to}", listener.local_addr()?);
        let server = Graceful::new();
        let stop = move || signals.wait();
        serve::until(stop, &server, STOP_LIMIT, || {
            proxy::serve(listener, &server, &to)
        })
    })
}

//! A server for clients of Redis: strings, lists, hashes, expiry, transactions and messages.
//!
//! ```text
//! cargo run --release --example resp -- [--addr HOST:PORT] [--procs N]
//! redis-cli -p 6380 set greeting hello
//! redis-benchmark -p 6380 -q -t set,get
//! ```
//!
//! It listens on 127.0.0.1:6380 by default, stores everything in memory, and uses every CPU
//! available to it. Ctrl-c or SIGTERM stop it: the commands that have arrived are answered, and the
//! status is 0. The server itself is in examples/resp.
#![expect(clippy::print_stdout, reason = "says where it listens")]

#[path = "../support/args.rs"]
mod args;
#[path = "../support/linger.rs"]
mod linger;
#[path = "mod.rs"]
mod resp;
#[path = "../support/serve.rs"]
mod serve;
#[path = "../support/signals.rs"]
mod signals;

use std::io;
use std::time::Duration;

use windlass::net::{Graceful, TcpListener};

/// The time limit for answers after the signal.
const STOP_LIMIT: Duration = Duration::from_secs(30);

const USAGE: &str = "usage: resp [--addr HOST:PORT] [--procs N]";

fn main() -> io::Result<()> {
    let mut args = args::Args::of_process(USAGE);
    let addr = args.value("--addr", "127.0.0.1:6380".to_owned());
    let procs = args.optional("--procs");
    args.finish();

    let mut builder = windlass::Builder::new().name("resp");
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
        println!("{}", listener.local_addr()?);
        let server = Graceful::new();
        let stop = move || signals.wait();
        serve::until(stop, &server, STOP_LIMIT, || resp::serve(listener, &server))
    })
}

//! gRPC with tonic, on goroutines: a server whose methods are blocking functions, and a client.
//!
//! ```text
//! cargo run --release --features grpc --example grpc -- [--addr HOST:PORT] [--procs N]
//! cargo run --release --features grpc --example grpc -- --count 'words to count' [--addr HOST:PORT]
//! ```
//!
//! The server listens on 127.0.0.1:8086 by default, on every CPU available to it. Ctrl-c or SIGTERM
//! stop it: it finishes the calls that have arrived. With `--count` the program is a client, which
//! prints the words of a text and how often each occurs.
#![expect(clippy::print_stdout, reason = "says where it listens, and the answer")]

#[path = "../support/args.rs"]
mod args;
#[path = "../support/finish.rs"]
mod finish;
#[path = "../support/routes.rs"]
mod routes;
#[path = "../support/serve.rs"]
mod serve;
#[path = "../support/signals.rs"]
mod signals;
#[allow(dead_code, reason = "the tests use the client's other functions")]
#[path = "mod.rs"]
mod words;

use std::io;

use windlass::net::TcpListener;

use words::client::{Channel, Words};

const USAGE: &str = "usage: grpc [--addr HOST:PORT] [--procs N] [--count TEXT]";

fn main() -> io::Result<()> {
    let mut args = args::Args::of_process(USAGE);
    let addr = args.value("--addr", "127.0.0.1:8086".to_owned());
    let procs = args.optional("--procs");
    let text: Option<String> = args.optional("--count");
    args.finish();

    let mut builder = windlass::Builder::new().name("grpc");
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
        if let Some(text) = text {
            return print_counts(&addr, &text);
        }
        let signals = signals::StopSignals::register()?;
        let listener = TcpListener::bind(&addr)?;
        println!("grpc://{}", listener.local_addr()?);
        words::serve(listener, move || signals.wait())
    })
}

fn print_counts(addr: &str, text: &str) -> io::Result<()> {
    let mut client = Words::new(Channel::connect(addr)?);
    let counts = client.count(text).map_err(io::Error::other)?;
    let mut words: Vec<_> = counts.words.into_iter().collect();
    words.sort();
    for (word, n) in words {
        println!("{n:>6} {word}");
    }
    Ok(())
}

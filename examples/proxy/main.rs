//! A TCP proxy: forwards connections to another server.
//!
//! ```text
//! cargo run --release --example proxy -- --to HOST:PORT [--addr HOST:PORT] [--procs N]
//! curl http://127.0.0.1:8081/
//! ```
//!
//! It listens on 127.0.0.1:8081 by default, on every CPU available to it. Ctrl-c or SIGTERM stop
//! it, with status 0. The proxy itself is in examples/proxy.
#![expect(clippy::print_stdout, reason = "says where it listens")]

#[path = "../support/accept.rs"]
mod accept;
#[path = "../support/args.rs"]
mod args;
#[path = "mod.rs"]
mod proxy;
#[path = "../support/signals.rs"]
mod signals;

use std::io;

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
        let listener = proxy::options().listen(&addr)?;
        println!("{} -> {to}", listener.local_addr()?);
        windlass::spawn(move || proxy::serve(&listener, &to));
        // The run ends with this goroutine, and cancels all others.
        signals::wait_for_stop()
    })
}

//! A web server: `GET /plaintext` and `GET /json` over HTTP/1.1.
//!
//! ```text
//! cargo run --release --example httpd -- [--addr HOST:PORT] [--procs N]
//! curl http://127.0.0.1:8080/plaintext
//! ```
//!
//! It listens on 127.0.0.1:8080 by default, on every CPU available to it. Ctrl-c or SIGTERM stop
//! it: connections are closed, and it exits with status 0. The server itself is in examples/http.
#![expect(clippy::print_stdout, reason = "says where it listens")]

#[path = "../support/accept.rs"]
mod accept;
#[path = "../support/args.rs"]
mod args;
#[path = "../http/mod.rs"]
mod http;
#[path = "../support/linger.rs"]
mod linger;
#[path = "../support/signals.rs"]
mod signals;

use std::io;

use windlass::net::TcpListener;

const USAGE: &str = "usage: httpd [--addr HOST:PORT] [--procs N]";

fn main() -> io::Result<()> {
    let mut args = args::Args::of_process(USAGE);
    let addr = args.value("--addr", "127.0.0.1:8080".to_owned());
    let procs = args.optional("--procs");
    args.finish();

    let mut builder = windlass::Builder::new().name("httpd");
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
        println!("http://{}/plaintext", listener.local_addr()?);
        windlass::spawn(move || http::serve(&listener));
        // The run ends with this goroutine, and cancels all others.
        signals::wait_for_stop()
    })
}

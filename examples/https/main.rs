//! A web server behind TLS: the pages of httpd over HTTPS.
//!
//! ```text
//! cargo run --release --features tls --example https -- [--addr HOST:PORT] [--procs N]
//!     [--cert FILE.pem --key FILE.pem]
//! curl --insecure https://127.0.0.1:8443/plaintext
//! ```
//!
//! It listens on 127.0.0.1:8443 by default. Without a certificate it makes a self-signed one for
//! localhost, and prints it. Ctrl-c or SIGTERM stop it as httpd: what was accepted is finished
//! within 30 seconds, and the status is 0.
//!
//! rustls is used as with blocking sockets: `StreamOwned` over a `TcpStream` of windlass. The
//! handshake also happens in the connection's goroutine, in the first read.
#![expect(
    clippy::print_stdout,
    reason = "says where it listens, and what to trust"
)]

#[path = "../support/args.rs"]
mod args;
#[path = "../http/mod.rs"]
mod http;
#[path = "../support/linger.rs"]
mod linger;
#[path = "../support/serve.rs"]
mod serve;
#[path = "../support/signals.rs"]
mod signals;
#[path = "../tls/mod.rs"]
mod tls;

use std::io;
use std::time::Duration;

use windlass::net::{Graceful, TcpListener};

const USAGE: &str = "usage: https [--addr HOST:PORT] [--procs N] [--cert FILE.pem --key FILE.pem]";

/// How long an idle connection may still send a request after the signal.
const GRACE: Duration = Duration::from_secs(2);
/// The time limit for answers after the signal.
const STOP_LIMIT: Duration = Duration::from_secs(30);

fn main() -> io::Result<()> {
    let mut args = args::Args::of_process(USAGE);
    let addr = args.value("--addr", "127.0.0.1:8443".to_owned());
    let procs = args.optional("--procs");
    let files: (Option<String>, Option<String>) = (args.optional("--cert"), args.optional("--key"));
    args.finish();

    let identity = match files {
        (Some(cert), Some(key)) => tls::Identity::from_files(&cert, &key)?,
        (None, None) => {
            let (identity, pem) = tls::Identity::self_signed(&["localhost", "127.0.0.1"])?;
            print!("{pem}");
            identity
        }
        _ => return Err(io::Error::other("--cert and --key go together")),
    };
    let config = identity.server_config()?;

    let mut builder = windlass::Builder::new().name("https");
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
        println!("https://{}/plaintext", listener.local_addr()?);
        let server = Graceful::with_grace(GRACE);
        let stop = move || signals.wait();
        serve::until(stop, &server, STOP_LIMIT, || {
            tls::serve(listener, &server, &config)
        })
    })
}

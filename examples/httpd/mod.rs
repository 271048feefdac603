//! The web server from its options to its end.

use std::io;
use std::time::Duration;

use windlass::net::TcpListener;

use crate::args::Args;
use crate::http::{self, Graceful, Patience};
use crate::signals;

pub(crate) const USAGE: &str = "usage: httpd [--addr HOST:PORT] [--procs N] [--grace SECONDS]";

/// The time limit for answers after the signal, besides the grace.
const STOP_LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn run(mut args: Args) -> io::Result<()> {
    let addr = args.value("--addr", "127.0.0.1:8080".to_owned());
    let procs = args.optional("--procs");
    let grace = args.optional("--grace").map(Duration::from_secs);
    args.finish();

    let mut patience = Patience::default();
    patience.stopping = grace.unwrap_or(patience.stopping);
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
        let signals = signals::StopSignals::register()?;
        let listener = TcpListener::bind(&addr)?;
        #[expect(clippy::print_stdout, reason = "says where it listens")]
        {
            println!("http://{}/plaintext", listener.local_addr()?);
        }
        let limit = patience.stopping + STOP_LIMIT;
        Graceful::serve_until(
            move || signals.wait(),
            limit,
            |server| http::serve_with(listener, server, patience, http::page),
        )
    })
}

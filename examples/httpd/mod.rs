//! The web server from its options to its end.

use std::io;
use std::time::Duration;

use windlass::net::{Graceful, TcpListener};

use crate::args::Args;
use crate::http;
use crate::{serve, signals};

pub(crate) const USAGE: &str = "usage: httpd [--addr HOST:PORT] [--procs N] [--grace SECONDS]";

/// How long an idle connection may still send a request after the signal, by default.
const GRACE: Duration = Duration::from_secs(2);
/// The time limit for answers after the signal, besides the grace.
const STOP_LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn run(mut args: Args) -> io::Result<()> {
    let addr = args.value("--addr", "127.0.0.1:8080".to_owned());
    let procs = args.optional("--procs");
    let grace = args.optional("--grace").map_or(GRACE, Duration::from_secs);
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
        let signals = signals::StopSignals::register()?;
        let listener = TcpListener::bind(&addr)?;
        #[expect(clippy::print_stdout, reason = "says where it listens")]
        {
            println!("http://{}/plaintext", listener.local_addr()?);
        }
        let server = Graceful::with_grace(grace);
        let stop = move || signals.wait();
        serve::until(stop, &server, grace + STOP_LIMIT, || {
            http::serve(listener, &server)
        })
    })
}

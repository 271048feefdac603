//! The web server from its options to its end.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use windlass::net::{Graceful, TcpListener};
use windlass::signal::{SIGUSR2, Signals};

use crate::args::Args;
use crate::http;
use crate::{serve, signals};

pub(crate) const USAGE: &str = "usage: httpd [--addr HOST:PORT] [--procs N] [--grace SECONDS]";

/// How long an idle connection may still send a request after the signal, by default.
const GRACE: Duration = Duration::from_secs(2);
/// The time limit for answers after the signal, besides the grace.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// How long a process that replaces this one may take until it serves.
const START_LIMIT: Duration = Duration::from_secs(60);

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
        let replaces = Signals::new([SIGUSR2])?;
        let listener = windlass_handover::listen(&addr)?;
        let passed = listener.try_clone()?;
        #[expect(clippy::print_stdout, reason = "says where it listens")]
        {
            println!("http://{}/plaintext", listener.local_addr()?);
        }
        let server = Graceful::with_grace(grace);
        let stop = move || {
            signals.wait()?;
            windlass_handover::stopping()
        };
        let replaced = server.clone();
        windlass::spawn(move || replace(&replaces, &passed, &replaced));
        windlass_handover::ready()?;
        serve::until(stop, &server, grace + STOP_LIMIT, || {
            http::serve(listener, &server)
        })
    })
}

/// Hands the server over to a new process of it, which the signal asks for. While that fails, this one goes on. Returns at the
/// stop: a copy of the listener that outlives it would take connections that nobody serves.
fn replace(asked: &Signals, listener: &TcpListener, server: &Graceful) {
    while server.stopping().run(|| asked.recv()).is_ok() {
        match windlass_handover::replace(&[listener.as_fd()], START_LIMIT) {
            Ok(_) => return server.hand_over(),
            Err(error) => eprintln!("no process replaces this one: {error}"),
        }
    }
}

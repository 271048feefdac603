//! A server until the program is asked to stop.

use std::io;

use windlass::net::Graceful;
use windlass::time::{Duration, Instant};

/// The interval of messages about connections that cannot be accepted.
#[allow(dead_code, reason = "as `complain`")]
const COMPLAIN_EVERY: Duration = Duration::from_secs(1);

/// Calls `serve`, and asks the server to stop when `stop`, which runs in a goroutine of its own, has
/// returned. Then waits for the connections, but not longer than the limit.
///
/// # Errors
///
/// Those of `serve`.
#[allow(dead_code, reason = "the tests stop their servers themselves")]
pub(crate) fn until(
    stop: impl FnOnce() -> io::Result<()> + Send + 'static,
    server: &Graceful,
    limit: Duration,
    serve: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let stopped = server.clone();
    drop(windlass::spawn(move || {
        if let Err(error) = stop() {
            eprintln!("cannot wait for the signal to stop: {error}");
        }
        stopped.stop();
    }));
    serve()?;
    if let Err(error) = server.shutdown(limit) {
        eprintln!("{error}, and were cut off");
    }
    Ok(())
}

/// For [`Graceful::serve_with`]: reports failed accepts, but not each.
#[allow(
    dead_code,
    reason = "servers without stacks between requests report by themselves"
)]
pub(crate) fn complain() -> impl FnMut(&io::Error) {
    let mut complained: Option<Instant> = None;
    move |error| {
        if complained.is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY) {
            eprintln!("cannot accept a connection: {error}");
            complained = Some(Instant::now());
        }
    }
}

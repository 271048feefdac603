//! The accept loop of a server: a goroutine for each connection.

use std::io;
use std::time::{Duration, Instant};

use windlass::net::{TcpListener, TcpStream};

/// The pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(5);
/// The interval of error messages.
const COMPLAIN_EVERY: Duration = Duration::from_secs(1);
/// The most connections that are taken from a listener's queue after the stop.
const MAX_QUEUED: usize = 1 << 16;

/// Runs `serve` in a goroutine of its own for each connection, until the runtime ends. Ends the
/// process with status 1 if the listener cannot accept any more.
#[allow(dead_code, reason = "not used by servers that stop gracefully")]
pub(crate) fn accept_each<F>(listener: &TcpListener, serve: F) -> !
where
    F: Fn(TcpStream) + Clone + Send + 'static,
{
    let ended = accept_until(
        listener,
        || false,
        |stream| {
            let serve = serve.clone();
            drop(windlass::spawn(move || serve(stream)));
        },
    );
    if let Err(error) = ended {
        eprintln!("cannot accept connections any more: {error}");
    }
    std::process::exit(1)
}

/// Calls `serve` with each connection until `is_over` is true after a failed accept. Other failures
/// are retried if they can pass: descriptors or memory are short, and connections that end release
/// them.
///
/// # Errors
///
/// A failure that is permanent: the listener does not listen any more.
pub(crate) fn accept_until(
    listener: &TcpListener,
    is_over: impl Fn() -> bool,
    mut serve: impl FnMut(TcpStream),
) -> io::Result<()> {
    let mut complained: Option<Instant> = None;
    loop {
        match listener.accept() {
            Ok((stream, _)) => serve(stream),
            Err(_) if is_over() => return Ok(()),
            Err(error) if is_permanent(&error) => return Err(error),
            Err(error) => {
                if complained.is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY) {
                    eprintln!("cannot accept a connection: {error}");
                    complained = Some(Instant::now());
                }
                windlass::sleep(PAUSE);
            }
        }
    }
}

/// Calls `serve` with each connection that the kernel has accepted already, without waiting for
/// more.
///
/// # Errors
///
/// The listener's mode cannot be changed.
#[allow(dead_code, reason = "only for servers that stop gracefully")]
pub(crate) fn accept_queued(
    listener: &TcpListener,
    mut serve: impl FnMut(TcpStream),
) -> io::Result<()> {
    listener.set_deadline(None);
    listener.set_nonblocking(true)?;
    for _ in 0..MAX_QUEUED {
        match listener.accept() {
            Ok((stream, _)) => serve(stream),
            Err(_) => break,
        }
    }
    Ok(())
}

/// Whether every later accept fails as this one did.
fn is_permanent(error: &io::Error) -> bool {
    let permanent = [libc::EBADF, libc::EINVAL, libc::ENOTSOCK, libc::EOPNOTSUPP];
    error.raw_os_error().is_some_and(|e| permanent.contains(&e))
}

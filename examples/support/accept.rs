//! The accept loop of a server: a goroutine for each connection, for ever.

use std::time::{Duration, Instant};

use windlass::net::{TcpListener, TcpStream};

/// The pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(5);
/// The interval of error messages.
const COMPLAIN_EVERY: Duration = Duration::from_secs(1);

/// Runs `serve` in a goroutine of its own for each connection, until the runtime ends. A failed
/// accept is retried: descriptors or memory are short, and connections that end release them.
pub(crate) fn accept_each<F>(listener: &TcpListener, serve: F) -> !
where
    F: Fn(TcpStream) + Clone + Send + 'static,
{
    let mut complained: Option<Instant> = None;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let serve = serve.clone();
                drop(windlass::spawn(move || serve(stream)));
            }
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

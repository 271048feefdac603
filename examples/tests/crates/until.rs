//! Servers of this process that serve until a function returns.

use std::io;

use windlass::channel::{self, Receiver, Sender};
use windlass::net::TcpListener;

use crate::server::Server;

/// Returns when the server is asked to stop.
pub(crate) type Stop = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// A server that can be asked to stop, and what says that it has ended.
pub(crate) fn start_until(
    serve: impl FnOnce(TcpListener, Stop) -> io::Result<()> + Send + 'static,
) -> (Server, Sender<()>, Receiver<()>) {
    let (stop, stopped) = channel::bounded(1);
    let (end, ended) = channel::bounded(1);
    let server = Server::start(move |listener| {
        let until_asked = move || {
            let _ = stopped.recv();
            Ok(())
        };
        serve(listener, Box::new(until_asked)).unwrap();
        let _ = end.send(());
    });
    (server, stop, ended)
}

//! Servers of this process that `Graceful` can stop.

use std::io;
use std::sync::mpsc;
use std::time::Duration;

use windlass::net::{Graceful, TcpListener, Unfinished};

use crate::server::Server;

/// So long that a test of a grace that does not pass never depends on time.
pub(crate) const LONG_GRACE: Duration = Duration::from_secs(100);

/// A server that is not stopped before its runtime ends.
pub(crate) fn start_graceful<F>(serve: F) -> Server
where
    F: FnOnce(TcpListener, &Graceful) -> io::Result<()> + Send + 'static,
{
    Server::start(move |listener| serve(listener, &Graceful::new()).unwrap())
}

/// A server that can be stopped. The channel gets the result of its last wait.
pub(crate) fn start_stoppable<F>(
    grace: Duration,
    serve: F,
) -> (Server, Graceful, mpsc::Receiver<Result<(), Unfinished>>)
where
    F: FnOnce(TcpListener, &Graceful) -> io::Result<()> + Send + 'static,
{
    let stopped = Graceful::with_grace(grace);
    let (tell, told) = mpsc::channel();
    let serving = stopped.clone();
    let server = Server::start(move |listener| {
        serve(listener, &serving).unwrap();
        tell.send(serving.shutdown(Duration::from_secs(60)))
            .unwrap();
    });
    (server, stopped, told)
}

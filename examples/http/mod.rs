//! A small HTTP/1.1 server: one goroutine for each connection, which reads, answers and writes in
//! plain blocking style.
//!
//! It keeps connections alive, and answers pipelined requests together: all complete requests in
//! the buffer, with one write. A connection keeps its buffers; a request for a short page allocates
//! nothing.
//!
//! Not supported, and left as an exercise: chunked requests (answered with 501) and the `Date`
//! header.
#![allow(dead_code, reason = "each example uses a part of it")]

pub(crate) mod answer;
pub(crate) mod connection;
mod pages;
mod request;

use windlass::net::{TcpListener, TcpStream};

pub(crate) use answer::Answer;
pub(crate) use connection::{Connection, Patience};
pub(crate) use pages::page;
pub(crate) use request::Request;

/// Serves the two pages of the benchmarks until the runtime ends.
pub(crate) fn serve(listener: &TcpListener) -> ! {
    serve_with(listener, Patience::default(), page)
}

/// Serves the answers of `site` until the runtime ends.
pub(crate) fn serve_with<F>(listener: &TcpListener, patience: Patience, site: F) -> !
where
    F: Fn(&Request<'_>) -> Answer + Clone + Send + 'static,
{
    crate::accept::accept_each(listener, move |stream: TcpStream| {
        // A connection ends with an error when its peer has gone or is too slow: the server has
        // nothing to do then.
        let _ = Connection::new(stream, &site, patience).and_then(Connection::run);
    })
}

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

use std::io;

use windlass::net::{Graceful, TcpListener};

pub(crate) use answer::Answer;
pub(crate) use connection::{Connection, Patience};
pub(crate) use pages::page;
pub(crate) use request::Request;

use crate::serve::complain;

/// Serves the two pages of the benchmarks until the server is asked to stop.
///
/// # Errors
///
/// The listener cannot accept any more.
pub(crate) fn serve(listener: TcpListener, server: &Graceful) -> io::Result<()> {
    serve_with(listener, server, Patience::default(), page)
}

/// As [`serve`], with the answers of `site` and other timeouts.
pub(crate) fn serve_with<F>(
    listener: TcpListener,
    server: &Graceful,
    patience: Patience,
    site: F,
) -> io::Result<()>
where
    F: Fn(&Request<'_>) -> Answer + Clone + Send + 'static,
{
    server.serve_with(listener, complain(), move |stream, member| {
        // A connection ends with an error when its peer has gone or is too slow: the server has
        // nothing to do then.
        let _ = Connection::new(stream, &site, patience, member).and_then(Connection::run);
    })
}

//! A small HTTP/1.1 server: one goroutine for each connection, which reads, answers and writes in
//! plain blocking style.
//!
//! It keeps connections alive, and answers pipelined requests together: all complete requests in
//! the buffer, with one write. An idle connection has neither a stack nor buffers: its handler has returned.
//!
//! Not supported, and left as an exercise: chunked requests (answered with 501) and the `Date`
//! header.
#![allow(dead_code, reason = "each example uses a part of it")]

pub(crate) mod answer;
pub(crate) mod connection;
mod pages;
mod request;

use std::io;

use windlass::net::{Graceful, TcpListener, TcpStream};

pub(crate) use answer::Answer;
pub(crate) use connection::{Connection, Idle, Patience};
pub(crate) use pages::page;
pub(crate) use request::Request;

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
    F: Fn(&Request<'_>) -> Answer + Send + Sync + 'static,
{
    let stopping = server.clone();
    // Answers are sent with one write each, so Nagle's algorithm would only delay them.
    let start = |stream: &TcpStream| stream.set_nodelay(true);
    // A connection ends with an error when its peer has gone or is too slow: the server has
    // nothing to do then.
    server.serve_requests(listener, patience.idle, start, move |stream, ()| {
        Connection::new(stream, &site, patience, Idle::Returned(&stopping)).run()
    })
}

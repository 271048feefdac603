//! QUIC with plain blocking calls: the protocol is quinn-proto, which makes no system call; packets go through a
//! `UdpSocket` of windlass, in batches.
//!
//! A goroutine of each endpoint receives packets and expires timers. What a call has to send, its own goroutine
//! sends. Both hold the one lock of the endpoint, but not while they wait. The time of the next timer is the
//! socket's read deadline, which any goroutine may move while the other waits.

mod config;
mod endpoint;
mod http3;
mod streams;

pub(crate) use config::{Identity, client_config};
pub(crate) use endpoint::{Connection, Endpoint};
#[allow(
    unused_imports,
    reason = "of a client of HTTP/3, which only the tests have"
)]
pub(crate) use http3::Quic;
pub(crate) use streams::{RecvStream, SendStream};

use std::io::{self, Read, Write};

/// The name of HTTP/3 in the handshake, in which client and server agree on a protocol.
pub(crate) const HTTP_3: &[u8] = b"h3";

/// That of HTTP/0.9 over QUIC, by which QUIC libraries test each other. A request is the line `GET /path`, the answer a
/// body, each on a stream of its own.
pub(crate) const HTTP_0_9: &[u8] = b"hq-interop";

/// The longest request line.
const MAX_REQUEST_BYTES: u64 = 1024;

/// The first page.
const GREETING: &[u8] = b"Hello over QUIC\n";

/// The most bytes of a page.
const MAX_PAGE_BYTES: u64 = 64 << 20;

/// Serves connections until the endpoint is closed.
pub(crate) fn serve(endpoint: &Endpoint) {
    while let Some(connection) = endpoint.accept() {
        // Errors of a connection concern only its peer.
        drop(windlass::spawn(move || {
            match connection.protocol().as_deref() {
                Some(HTTP_3) => http3::serve(connection),
                _ => serve_one(&connection),
            }
        }));
    }
}

fn serve_one(connection: &Connection) -> io::Result<()> {
    loop {
        let (send, receive) = connection.accept()?;
        drop(windlass::spawn(move || answer(send, receive)));
    }
}

/// Answers a request: `/` is a greeting, `/bytes/N` is N bytes, `/echo` sends back the rest of the request.
fn answer(mut send: SendStream, receive: RecvStream) -> io::Result<()> {
    let mut receive = io::BufReader::new(receive);
    let mut line = String::new();
    io::BufRead::read_line(&mut (&mut receive).take(MAX_REQUEST_BYTES), &mut line)?;
    let path = line.trim_end().strip_prefix("GET ").unwrap_or("");
    if path == "/echo" {
        io::copy(&mut receive, &mut send)?;
    } else if let Some(n) = path.strip_prefix("/bytes/") {
        let n: u64 = n.parse().map_err(io::Error::other)?;
        io::copy(&mut io::repeat(b'w').take(n.min(MAX_PAGE_BYTES)), &mut send)?;
    } else if path == "/" {
        send.write_all(GREETING)?;
    }
    send.finish()
}

/// Fetches a page over a connection of HTTP/0.9.
///
/// # Errors
///
/// The connection's.
pub(crate) fn get(connection: &Connection, path: &str) -> io::Result<Vec<u8>> {
    let (mut send, receive) = connection.open()?;
    write!(send, "GET {path}\r\n")?;
    send.finish()?;
    let mut page = Vec::new();
    receive.take(MAX_PAGE_BYTES).read_to_end(&mut page)?;
    Ok(page)
}

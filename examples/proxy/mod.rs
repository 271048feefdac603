//! A TCP proxy: two goroutines for each connection, one for each direction.
//!
//! `windlass::io::copy_bidirectional` moves the bytes, inside the kernel once there are many, and
//! forwards the end of each direction. The kernel checks whether silent peers are still there
//! (keepalive).

use std::io;
use std::net::ToSocketAddrs;
use std::time::Duration;

use windlass::io::copy_bidirectional;
use windlass::net::{Graceful, TcpListener, TcpOptions, TcpStream};

use crate::serve::complain;

/// The time limit for connecting to the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer may be silent before the kernel probes it.
const ASK_AFTER: Duration = Duration::from_secs(60);

/// Sets the options of the connections on both sides.
pub(crate) fn options() -> TcpOptions {
    let mut options = TcpOptions::new();
    options.nodelay(true).keepalive(ASK_AFTER);
    options
}

/// Forwards connections to the server at `to` until the proxy is asked to stop.
///
/// # Errors
///
/// The listener cannot accept any more.
pub(crate) fn serve(listener: TcpListener, proxy: &Graceful, to: &str) -> io::Result<()> {
    let to = to.to_owned();
    // The proxy does not know the protocol, so a connection is at work until it ends: nothing here
    // waits in `Member::idle`.
    proxy.serve_with(listener, complain(), move |client, _| match connect(&to) {
        // An error concerns only this connection.
        Ok(server) => drop(copy_bidirectional(&client, &server)),
        Err(error) => eprintln!("cannot connect to {to}: {error}"),
    })
}

/// Connects to the first address of the server that answers in time.
fn connect(to: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    // The lookup of names is a system call that blocks.
    for addr in windlass::blocking(|| to.to_socket_addrs())? {
        match options().connect_timeout(&addr, CONNECT_TIMEOUT) {
            Ok(server) => return Ok(server),
            Err(error) => last = error,
        }
    }
    Err(last)
}

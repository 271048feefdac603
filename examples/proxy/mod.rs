//! A TCP proxy: two goroutines for each connection, one for each direction.
//!
//! `windlass::io::copy` moves the bytes, inside the kernel once there are many. The end of one
//! direction is forwarded and does not end the other one: in some protocols a peer sends
//! everything, closes its sending side, and only then reads. An error ends both directions. The
//! kernel checks whether silent peers are still there (keepalive).

use std::io;
use std::net::{Shutdown, ToSocketAddrs};
use std::time::Duration;

use windlass::net::{TcpListener, TcpOptions, TcpStream};

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

/// Forwards connections to the server at `to` until the runtime ends.
pub(crate) fn serve(listener: &TcpListener, to: &str) -> ! {
    let to = to.to_owned();
    crate::accept::accept_each(listener, move |client| {
        if let Err(error) = hand_on(&client, &to) {
            eprintln!("cannot connect to {to}: {error}");
        }
    })
}

/// Serves one connection until it ends; fails if the server cannot be reached.
fn hand_on(client: &TcpStream, to: &str) -> io::Result<()> {
    let server = connect(to)?;
    windlass::scope(|scope| {
        scope.spawn(|| one_way(client, &server));
        one_way(&server, client);
    });
    Ok(())
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

/// Forwards all bytes, and then the end of the stream.
fn one_way(from: &TcpStream, to: &TcpStream) {
    match windlass::io::copy(&mut &*from, &mut &*to) {
        // The shutdown fails if the peer has gone; the other direction notices that too.
        Ok(_) => drop(to.shutdown(Shutdown::Write)),
        Err(_) => {
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        }
    }
}

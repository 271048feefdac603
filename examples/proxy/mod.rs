//! A TCP proxy: two goroutines for each connection, one for each direction.
//!
//! `windlass::io::copy` moves the bytes, inside the kernel once there are many. The end
//! of one direction is handed on and leaves the other one alone, as some protocols send
//! all they have, end, and only then listen; an error ends both. Whether a silent peer is
//! still there the kernel asks (keepalive).

use std::io;
use std::net::{Shutdown, ToSocketAddrs};
use std::time::Duration;

use windlass::net::{TcpListener, TcpOptions, TcpStream};

/// How long a server may take to answer to a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer may be silent before it is asked whether it is there.
const ASK_AFTER: Duration = Duration::from_secs(60);

/// The settings of connections on both sides.
pub(crate) fn options() -> TcpOptions {
    let mut options = TcpOptions::new();
    options.nodelay(true).keepalive(ASK_AFTER);
    options
}

/// Hands connections on to the server at `to` for ever: until the runtime ends.
pub(crate) fn serve(listener: &TcpListener, to: &str) -> ! {
    let to = to.to_owned();
    crate::accept::accept_each(listener, move |client| {
        if let Err(error) = hand_on(&client, &to) {
            eprintln!("cannot connect to {to}: {error}");
        }
    })
}

/// Serves one connection to its end; fails if there is no server.
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
    // Names are looked up by a system call that blocks.
    for addr in windlass::blocking(|| to.to_socket_addrs())? {
        match options().connect_timeout(&addr, CONNECT_TIMEOUT) {
            Ok(server) => return Ok(server),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Hands on what comes until its end, and then the end.
fn one_way(from: &TcpStream, to: &TcpStream) {
    match windlass::io::copy(&mut &*from, &mut &*to) {
        // It fails if the peer has gone, which the other direction sees.
        Ok(_) => drop(to.shutdown(Shutdown::Write)),
        Err(_) => {
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        }
    }
}

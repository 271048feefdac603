//! A TCP server that sends back what it receives: the smallest whole server.
//!
//! ```text
//! cargo run --release --example echo -- [HOST:PORT]
//! nc 127.0.0.1 7777
//! ```
//!
//! Ctrl-c or SIGTERM stop it: what has been received is sent back first.
#![expect(clippy::print_stdout, reason = "prints where it listens")]

use std::io::{self, Read, Write};
use std::time::Duration;

use windlass::net::{Graceful, Member, TcpListener, TcpStream};
use windlass::signal::{SIGINT, SIGTERM, Signals};

fn main() -> io::Result<()> {
    let addr = std::env::args().nth(1);
    let addr = addr.as_deref().unwrap_or("127.0.0.1:7777");
    #[expect(unsafe_code, reason = "every program has to promise this")]
    // SAFETY: no goroutine of this program keeps a thread-local borrow across a call that parks.
    let runtime = unsafe { windlass::Builder::new().build()? };
    runtime.run(|| {
        let signals = Signals::new([SIGINT, SIGTERM])?;
        let listener = TcpListener::bind(addr)?;
        println!("{}", listener.local_addr()?);
        let server = Graceful::new();
        let stopper = server.clone();
        windlass::spawn(move || {
            let _ = signals.recv();
            stopper.stop();
        });
        serve(listener, &server)?;
        server
            .shutdown(Duration::from_secs(10))
            .map_err(io::Error::other)
    })
}

/// Accepts connections until the server is asked to stop. Each has a goroutine of its own.
pub(crate) fn serve(listener: TcpListener, server: &Graceful) -> io::Result<()> {
    server.serve(listener, |stream, member| {
        // An error concerns only this peer.
        let _ = echo(stream, member);
    })
}

/// Sends back everything that the peer sends.
fn echo(mut stream: TcpStream, member: &Member) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 16 * 1024];
    loop {
        match member.idle(|| stream.read(&mut buffer))? {
            // The peer has closed the connection, or the server stops and nothing more has come.
            Some(0) | None => return Ok(()),
            Some(n) => stream.write_all(&buffer[..n])?,
        }
    }
}

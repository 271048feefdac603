//! A TCP server that sends back what it receives: the smallest whole server.
//!
//! ```text
//! cargo run --release --example echo -- [HOST:PORT]
//! nc 127.0.0.1 7777
//! ```
#![expect(clippy::print_stdout, reason = "prints where it listens")]

use std::io::{self, Read, Write};
use std::time::Duration;

use windlass::net::{TcpListener, TcpStream};
use windlass::signal::{SIGINT, SIGTERM, Signals};

fn main() -> io::Result<()> {
    let addr = std::env::args().nth(1);
    let addr = addr.as_deref().unwrap_or("127.0.0.1:7777");
    #[expect(unsafe_code, reason = "every program has to promise this")]
    // SAFETY: no goroutine of this program keeps a thread-local borrow across a call that parks.
    let runtime = unsafe { windlass::Builder::new().build()? };
    runtime.run(|| {
        let listener = TcpListener::bind(addr)?;
        println!("{}", listener.local_addr()?);
        windlass::spawn(move || serve(&listener));
        // Ctrl-c ends this goroutine, and with it the run, which cancels all others.
        Signals::new([SIGINT, SIGTERM])?.recv()?;
        Ok(())
    })
}

/// Accepts connections until the runtime ends. Each has a goroutine of its own.
pub(crate) fn serve(listener: &TcpListener) {
    for stream in listener.incoming() {
        match stream {
            Ok(stream) => drop(windlass::spawn(|| echo(stream))),
            // Out of descriptors or memory: connections that end give them back.
            Err(_) => windlass::sleep(Duration::from_millis(5)),
        }
    }
}

/// Sends back everything that the peer sends.
fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 16 * 1024];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            n => stream.write_all(&buffer[..n])?,
        }
    }
}

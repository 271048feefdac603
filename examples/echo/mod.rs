//! The echo server itself.

use std::io::{self, Read, Write};

use windlass::net::{TcpListener, TcpStream};

const BUFFER_BYTES: usize = 16 * 1024;

/// Serves connections for ever: until the runtime ends.
pub(crate) fn serve(listener: &TcpListener) -> ! {
    crate::accept::accept_each(listener, |stream| {
        // A peer that has gone is no matter of ours.
        let _ = echo(stream);
    })
}

/// Sends everything back until the peer has sent all it will.
fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            n => stream.write_all(&buffer[..n])?,
        }
    }
}

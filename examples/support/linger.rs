//! Closes a connection in such a way that its peer can read the last answer.

use std::io::{self, Read};
use std::net::Shutdown;

use windlass::net::TcpStream;
use windlass::time::{Duration, Instant};

/// The time and the number of bytes for which a refused peer is still read from.
const TIMEOUT: Duration = Duration::from_secs(2);
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Closes the sending half, and reads what the peer still sends: closing a socket that holds or
/// receives unread bytes resets the connection, and the answer is lost.
pub(crate) fn linger(mut stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_deadline(Some(Instant::now() + TIMEOUT));
    let mut buffer = [0; 4096];
    let mut n_bytes = 0;
    while n_bytes < MAX_BYTES {
        match stream.read(&mut buffer)? {
            0 => break,
            n => n_bytes += n,
        }
    }
    Ok(())
}

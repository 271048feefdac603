//! Closing a connection so that its peer gets to read the last answer.

use std::io::{self, Read};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use windlass::net::TcpStream;

/// How long, and for how many bytes, to listen to a peer whose request was refused.
const TIMEOUT: Duration = Duration::from_secs(2);
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Ends the sending half, and takes in what the peer sends still: closing a socket that
/// holds unread bytes, or gets more, resets the connection, and the answer is lost.
pub(crate) fn linger(mut stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    // That of the request may have passed.
    stream.set_read_deadline(None);
    stream.set_read_timeout(Some(TIMEOUT))?;
    let begin = Instant::now();
    let mut buffer = [0; 4096];
    let mut n_bytes = 0;
    while n_bytes < MAX_BYTES && begin.elapsed() < TIMEOUT {
        match stream.read(&mut buffer)? {
            0 => break,
            n => n_bytes += n,
        }
    }
    Ok(())
}

//! Messages over TCP: each has its length before it.

use std::net::SocketAddr;

use windlass::io::{self, BufReader, ErrorKind, Read, Write};
use windlass::net::TcpStream;
use windlass::time::Duration;

use super::protocol::{Decoder, Encoder, Request, Response};

/// The most bytes of a message.
const MAX_BYTES: usize = 16 << 20;

/// One end of a connection. After an error it is of no use: nobody knows what has arrived.
pub(super) struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(super) fn open(to: SocketAddr, patience: Duration) -> io::Result<Connection> {
        Connection::new(TcpStream::connect_timeout(&to, patience)?, patience)
    }

    /// `patience` is how long the peer may be silent.
    pub(super) fn new(stream: TcpStream, patience: Duration) -> io::Result<Connection> {
        // Messages are written whole, so Nagle's algorithm would only delay them.
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Connection(BufReader::new(stream)))
    }

    /// Sends a request, and waits for the answer.
    pub(super) fn ask(&mut self, request: &Request) -> io::Result<Response> {
        self.send(|to| to.request(request))?;
        self.receive(|from| from.response())
    }

    pub(super) fn request(&mut self) -> io::Result<Request> {
        self.receive(|from| from.request())
    }

    pub(super) fn answer(&mut self, response: &Response) -> io::Result<()> {
        self.send(|to| to.response(response))
    }

    fn send(&mut self, write: impl FnOnce(&mut Encoder)) -> io::Result<()> {
        let mut message = Encoder::default();
        message.number(0);
        write(&mut message);
        let n_bytes = message.0.len() as u64 - 8;
        message.0[..8].copy_from_slice(&n_bytes.to_le_bytes());
        self.0.get_mut().write_all(&message.0)
    }

    fn receive<T>(&mut self, read: impl FnOnce(&mut Decoder<'_>) -> Option<T>) -> io::Result<T> {
        let malformed = |what| io::Error::new(ErrorKind::InvalidData, what);
        let mut length = [0; 8];
        self.0.read_exact(&mut length)?;
        let n_bytes = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
        if n_bytes > MAX_BYTES {
            return Err(malformed("the message is too long"));
        }
        let mut message = vec![0; n_bytes];
        self.0.read_exact(&mut message)?;
        let mut rest = Decoder(&message);
        match read(&mut rest) {
            Some(value) if rest.0.is_empty() => Ok(value),
            _ => Err(malformed("the message is not one of this protocol")),
        }
    }
}

//! Clients in a closed loop, cheap enough for the server to be what is measured: a thread has
//! one epoll, and a request is one write and one read.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use mio::net::TcpStream;
use mio::{Interest, Poll, Token};

use crate::workloads::echo::MESSAGE_BYTES;

/// The requests and their answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// 64 bytes that come back.
    Echo,
    /// `GET /plaintext`; all answers must be of one length.
    Http,
}

/// So many connections; the index of each is its token.
///
/// # Errors
///
/// Those of the streams, or of the poll.
pub fn connect_all(
    poll: &Poll,
    address: SocketAddr,
    protocol: Protocol,
    connections: usize,
) -> io::Result<Vec<Client>> {
    (0..connections)
        .map(|i| {
            let mut client = Client::connect(address, protocol)?;
            let registry = poll.registry();
            registry.register(&mut client.stream, Token(i), Interest::READABLE)?;
            Ok(client)
        })
        .collect()
}

/// One connection, with a request on its way at most.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    request: &'static [u8],
    /// The length of an answer.
    expected: usize,
    /// How much of the answer has come.
    received: usize,
    sent_at: Instant,
}

impl Client {
    /// Connects, and for HTTP sends one request to learn how long the answer is.
    fn connect(address: SocketAddr, protocol: Protocol) -> io::Result<Client> {
        const GET: &[u8] = b"GET /plaintext HTTP/1.1\r\nHost: bench\r\n\r\n";

        let mut stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let (request, expected): (&[u8], _) = match protocol {
            Protocol::Echo => (&[b'.'; MESSAGE_BYTES], MESSAGE_BYTES),
            Protocol::Http => {
                stream.write_all(GET)?;
                (GET, answer_length(&mut stream)?)
            }
        };
        stream.set_nonblocking(true)?;
        let stream = TcpStream::from_std(stream);
        Ok(Client {
            stream,
            request,
            expected,
            received: 0,
            sent_at: Instant::now(),
        })
    }

    /// Sends a request; the last one has been answered.
    ///
    /// # Errors
    ///
    /// Those of the stream.
    pub fn send(&mut self) -> io::Result<()> {
        self.received = 0;
        self.sent_at = Instant::now();
        // The socket's buffer is empty: the last request has been answered.
        let n = self.stream.write(self.request)?;
        if n == self.request.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// Reads what has come; gives how long the request has taken if that is the whole answer.
    ///
    /// Events are edges, but no read is needed to see that there is no more: the next bytes
    /// come with an event of their own.
    ///
    /// # Errors
    ///
    /// Those of the stream, its end, and an answer that is longer than the first.
    pub fn receive(&mut self) -> io::Result<Option<Duration>> {
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => self.received += n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        if self.received > self.expected {
            return Err(io::Error::other("an answer is longer than the first one"));
        }
        Ok((self.received == self.expected).then(|| self.sent_at.elapsed()))
    }
}

/// Reads one HTTP answer and gives its length, head and body.
fn answer_length(stream: &mut std::net::TcpStream) -> io::Result<usize> {
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => answer.extend_from_slice(&buffer[..n]),
        }
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut response = httparse::Response::new(&mut headers);
        let head = response.parse(&answer).map_err(io::Error::other)?;
        let httparse::Status::Complete(head) = head else {
            continue;
        };
        let body: usize = response
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case("content-length"))
            .and_then(|header| str::from_utf8(header.value).ok()?.parse().ok())
            .ok_or_else(|| io::Error::other("no content-length"))?;
        if response.code != Some(200) {
            return Err(io::Error::other("the answer is not 200"));
        }
        if answer.len() >= head + body {
            return Ok(head + body);
        }
    }
}

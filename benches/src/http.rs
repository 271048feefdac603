//! HTTP/1.1 by hand, without the reading and writing: bytes go in, the bytes to
//! answer with come out. Every runtime's server is this and a loop of its own.
//!
//! Keep-alive and pipelining, `GET /plaintext`, no bodies, no `Date`: as little of
//! HTTP as a server can do, so that what differs is the runtime.

use std::io;
use std::mem;

use crate::per_core::PerCore;

const PLAINTEXT: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Server: bench\r\n\
    Content-Type: text/plain\r\n\
    Content-Length: 13\r\n\
    \r\n\
    Hello, World!";

const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\n\
    Server: bench\r\n\
    Content-Length: 0\r\n\
    \r\n";

/// The most bytes of one request, and of the pipelined ones read at a time.
const REQUEST_BYTES: usize = 4096;
/// The most headers of a request.
const HEADERS: usize = 16;

/// One connection's requests and answers.
#[derive(Debug)]
pub struct Connection {
    input: Box<[u8]>,
    /// How much of `input` has been received and not yet answered.
    filled: usize,
    output: Vec<u8>,
}

impl Connection {
    /// A new one, with its buffers.
    pub fn new() -> Self {
        Connection {
            input: vec![0; REQUEST_BYTES].into_boxed_slice(),
            filled: 0,
            output: Vec::with_capacity(REQUEST_BYTES),
        }
    }

    /// Where the next bytes are to be read into; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.input[self.filled..]
    }

    /// Takes note of `n` bytes read into [`space`](Self::space); gives back the
    /// answers to all requests that are now complete, which may be none.
    ///
    /// # Errors
    ///
    /// If this is no HTTP, or a request is longer than the buffer.
    pub fn received(&mut self, n: usize) -> io::Result<&[u8]> {
        self.filled += n;
        self.output.clear();
        let answered = answer(&self.input[..self.filled], &mut self.output)?;
        self.input.copy_within(answered..self.filled, 0);
        self.filled -= answered;
        if self.filled == self.input.len() {
            return Err(too_long());
        }
        Ok(&self.output)
    }
}

/// A [`Connection`] for operations that own their buffers: it gives them away, and gets them
/// back.
#[derive(Debug)]
pub struct LentConnection {
    /// Bytes that were received and are not yet answered.
    input: Vec<u8>,
    output: Vec<u8>,
}

impl LentConnection {
    /// A new one, with its buffers.
    pub fn new() -> Self {
        LentConnection {
            input: Vec::with_capacity(REQUEST_BYTES),
            output: Vec::with_capacity(REQUEST_BYTES),
        }
    }

    /// The buffer to whose end the next bytes are to be read; there is room in it.
    pub fn lend(&mut self) -> Vec<u8> {
        mem::take(&mut self.input)
    }

    /// Takes that buffer back, and gives the answers to all requests that are now complete,
    /// which may be none.
    ///
    /// # Errors
    ///
    /// As [`Connection::received`].
    pub fn received(&mut self, input: Vec<u8>) -> io::Result<Vec<u8>> {
        self.input = input;
        let answered = answer(&self.input, &mut self.output)?;
        self.input.drain(..answered);
        if self.input.len() == self.input.capacity() {
            return Err(too_long());
        }
        Ok(mem::take(&mut self.output))
    }

    /// Takes back the buffer with the answers.
    pub fn sent(&mut self, output: Vec<u8>) {
        self.output = output;
        self.output.clear();
    }
}

impl Default for LentConnection {
    fn default() -> Self {
        LentConnection::new()
    }
}

/// Answers requests until the client goes, on a runtime of one thread for each core.
///
/// # Errors
///
/// Those of the stream and of [`LentConnection::received`].
pub async fn serve_per_core<R: PerCore>(mut stream: R::Stream) -> io::Result<()> {
    let mut connection = LentConnection::new();
    loop {
        let (received, input) = R::read(&mut stream, connection.lend()).await;
        if received? == 0 {
            return Ok(());
        }
        let (sent, output) = R::write_all(&mut stream, connection.received(input)?).await;
        sent?;
        connection.sent(output);
    }
}

/// Answers all requests that are complete; gives back how many bytes of the input they were.
fn answer(input: &[u8], output: &mut Vec<u8>) -> io::Result<usize> {
    let mut answered = 0;
    while answered < input.len() {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&input[answered..]) {
            Ok(httparse::Status::Complete(length)) => {
                let known = request.path == Some("/plaintext");
                output.extend_from_slice(if known { PLAINTEXT } else { NOT_FOUND });
                answered += length;
            }
            Ok(httparse::Status::Partial) => break,
            Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }
    Ok(answered)
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "request too long")
}

impl Default for Connection {
    fn default() -> Self {
        Connection::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &[u8] = b"GET /plaintext HTTP/1.1\r\nHost: a\r\n\r\n";

    fn give<'a>(connection: &'a mut Connection, bytes: &[u8]) -> io::Result<&'a [u8]> {
        connection.space()[..bytes.len()].copy_from_slice(bytes);
        connection.received(bytes.len())
    }

    #[test]
    fn pipelined_requests_are_all_answered_and_the_rest_is_kept() {
        let mut connection = Connection::new();
        let (head, tail) = GET.split_at(10);
        let output = give(&mut connection, &[GET, GET, head].concat()).unwrap();
        assert_eq!(output, [PLAINTEXT, PLAINTEXT].concat());
        assert_eq!(give(&mut connection, tail).unwrap(), PLAINTEXT);
    }

    #[test]
    fn buffers_that_are_lent_make_no_difference() {
        let mut connection = LentConnection::new();
        let (head, tail) = GET.split_at(10);
        let mut input = connection.lend();
        input.extend_from_slice(&[GET, GET, head].concat());
        let output = connection.received(input).unwrap();
        assert_eq!(output, [PLAINTEXT, PLAINTEXT].concat());
        connection.sent(output);
        let mut input = connection.lend();
        assert_eq!(input, head);
        input.extend_from_slice(tail);
        assert_eq!(connection.received(input).unwrap(), PLAINTEXT);
        let mut endless = LentConnection::new();
        let mut input = endless.lend();
        input.resize(input.capacity(), b'a');
        assert!(endless.received(input).is_err());
    }

    #[test]
    fn other_paths_are_not_found() {
        let mut connection = Connection::new();
        assert_eq!(
            give(&mut connection, b"GET / HTTP/1.1\r\n\r\n").unwrap(),
            NOT_FOUND
        );
    }

    #[test]
    fn garbage_and_requests_without_end_are_errors() {
        assert!(give(&mut Connection::new(), b"\0\0\0\0").is_err());
        let mut connection = Connection::new();
        assert!(give(&mut connection, b"GET /").unwrap().is_empty());
        let n = connection.space().len();
        connection.space().fill(b'a');
        assert!(connection.received(n).is_err());
    }
}

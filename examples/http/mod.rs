//! An HTTP/1.1 server, of the size of an example: one goroutine for each connection,
//! which reads, answers and writes in plain blocking style.
//!
//! It keeps connections alive, and answers pipelined requests together: all that
//! are whole in the buffer, with one write. The buffers are made with the
//! connection and kept; a request allocates nothing.
//!
//! What it leaves to those who start from it: chunked requests (answered with 501),
//! the `Date` header, and TLS.

mod answer;
mod request;

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use windlass::net::{TcpListener, TcpStream};

use answer::{Answer, Reply};
use request::Request;

/// The longest head of a request: its first line and its headers.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The longest body of a request.
const MAX_BODY_BYTES: u64 = 1024 * 1024;
/// What a connection begins with, to read into; it grows up to the longest head.
const INPUT_BYTES: usize = 4 * 1024;
const OUTPUT_BYTES: usize = 4 * 1024;

/// How long a connection may be silent, and how long it may refuse to take answers.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long, and for how many bytes, to listen to a peer whose request was refused.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 4 * 1024 * 1024;

/// Serves for ever: until the runtime ends.
pub(crate) fn serve(listener: &TcpListener) -> ! {
    crate::accept::accept_each(listener, |stream| {
        // A connection ends with an error when its peer has gone or is too slow:
        // nothing that a server would have to do something about.
        let _ = Connection::new(stream).and_then(Connection::run);
    })
}

/// Where to answer what.
fn route(request: &Request<'_>) -> Answer {
    let page = match request.path {
        "/plaintext" => answer::PLAINTEXT,
        "/json" => answer::JSON,
        _ => return answer::NOT_FOUND,
    };
    match request.method {
        "GET" | "HEAD" => page,
        _ => answer::METHOD_NOT_ALLOWED,
    }
}

/// One connection.
struct Connection {
    stream: TcpStream,
    input: Input,
    output: Vec<u8>,
    /// A request whose body has not come yet, as far as the last look went.
    current: Option<Exchange>,
}

/// A request that has an answer, and whose body is yet to be skipped.
struct Exchange {
    reply: Reply,
    body_left: u64,
}

/// What to do when all that can be answered has been.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Read,
    Close,
    /// Close, with requests or parts of them perhaps unread.
    Linger,
}

impl Connection {
    fn new(stream: TcpStream) -> io::Result<Connection> {
        // Answers leave in one write each, so there is nothing to wait for.
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(IDLE_TIMEOUT))?;
        stream.set_write_timeout(Some(IDLE_TIMEOUT))?;
        Ok(Connection {
            stream,
            input: Input::new(),
            output: Vec::with_capacity(OUTPUT_BYTES),
            current: None,
        })
    }

    fn run(mut self) -> io::Result<()> {
        loop {
            match self.input.fill(&mut self.stream) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                // The timeout. A request that was begun gets an answer.
                Err(e) if e.kind() == ErrorKind::WouldBlock && self.is_amid_request() => {
                    self.refuse(answer::TIMEOUT);
                    self.stream.write_all(&self.output)?;
                    return self.linger();
                }
                Err(e) => return Err(e),
            }
            let next = self.answer_all();
            if !self.output.is_empty() {
                self.stream.write_all(&self.output)?;
                self.output.clear();
            }
            match next {
                Next::Read => {}
                Next::Close => return Ok(()),
                Next::Linger => return self.linger(),
            }
        }
    }

    fn is_amid_request(&self) -> bool {
        self.current.is_some() || !self.input.bytes().is_empty()
    }

    /// Answers every request that is whole.
    fn answer_all(&mut self) -> Next {
        loop {
            if let Some(exchange) = &mut self.current {
                exchange.body_left -= self.input.skip(exchange.body_left);
                if exchange.body_left > 0 {
                    return Next::Read;
                }
                exchange.reply.write_to(&mut self.output);
                if exchange.reply.closes() {
                    let is_all_read = self.input.bytes().is_empty();
                    return if is_all_read {
                        Next::Close
                    } else {
                        Next::Linger
                    };
                }
                self.current = None;
            }
            let (request, head_bytes) = match request::parse(self.input.bytes()) {
                Ok(Some(parsed)) => parsed,
                Ok(None) if self.input.bytes().len() < MAX_HEAD_BYTES => return Next::Read,
                Ok(None) => return self.refuse(answer::HEAD_TOO_LARGE),
                Err(answer) => return self.refuse(answer),
            };
            if request.body_bytes > MAX_BODY_BYTES {
                return self.refuse(answer::BODY_TOO_LARGE);
            }
            let is_body_awaited = self.input.bytes().len() == head_bytes && request.body_bytes > 0;
            if request.expects_continue && is_body_awaited {
                self.output.extend_from_slice(answer::CONTINUE);
            }
            self.current = Some(Exchange {
                reply: Reply::new(route(&request), &request),
                body_left: request.body_bytes,
            });
            self.input.consume(head_bytes);
        }
    }

    /// Answers what is no request, or none that can be served; where the next one
    /// begins is not known then.
    fn refuse(&mut self, answer: Answer) -> Next {
        Reply::last(answer).write_to(&mut self.output);
        Next::Linger
    }

    /// Closes so that the peer gets to read the last answer: closing a socket that
    /// holds unread bytes, or gets more, resets the connection, and the answer is lost.
    fn linger(mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        self.stream.set_read_timeout(Some(LINGER_TIMEOUT))?;
        let begin = Instant::now();
        let mut n_bytes = 0;
        while n_bytes < LINGER_BYTES && begin.elapsed() < LINGER_TIMEOUT {
            self.input.clear();
            match self.input.fill(&mut self.stream)? {
                0 => break,
                n => n_bytes += n,
            }
        }
        Ok(())
    }
}

/// What has been received and not been consumed: `buffer[begin..end]`.
struct Input {
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
}

impl Input {
    fn new() -> Input {
        Input {
            buffer: vec![0; INPUT_BYTES],
            begin: 0,
            end: 0,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.begin..self.end]
    }

    fn consume(&mut self, n: usize) {
        self.begin += n;
        debug_assert!(self.begin <= self.end);
    }

    /// Consumes up to `n` bytes, and says how many.
    fn skip(&mut self, n: u64) -> u64 {
        let here = (self.end - self.begin) as u64;
        let n = n.min(here);
        self.consume(n as usize);
        n
    }

    fn clear(&mut self) {
        self.begin = self.end;
    }

    /// Reads more; there is room unless a whole [`MAX_HEAD_BYTES`] wait to be consumed.
    fn fill(&mut self, stream: &mut TcpStream) -> io::Result<usize> {
        // What is left of a batch is at most the beginning of one request.
        self.buffer.copy_within(self.begin..self.end, 0);
        self.end -= self.begin;
        self.begin = 0;
        if self.end == self.buffer.len() {
            let larger = (2 * self.buffer.len()).min(MAX_HEAD_BYTES);
            self.buffer.resize(larger, 0);
        }
        let n = stream.read(&mut self.buffer[self.end..])?;
        self.end += n;
        Ok(n)
    }
}

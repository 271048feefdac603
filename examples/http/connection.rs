//! A connection: reads requests and writes answers until either side closes it.

use std::io::{self, ErrorKind, Read, Write};

use windlass::net::{self, Graceful, Member, TcpOptions, TcpStream};
use windlass::time::{Duration, Instant};

use super::answer::{self, Answer, Long, Reply};
use super::request::{self, Request};

/// The longest head of a request: its request line and its headers.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The longest body of a request.
const MAX_BODY_BYTES: u64 = 1024 * 1024;
/// The initial size of the input buffer; it grows up to the longest head.
const INPUT_BYTES: usize = 4 * 1024;
const OUTPUT_BYTES: usize = 4 * 1024;
/// Answers are sent when the output reaches this size, even if there are more requests.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;

/// Timeouts for peers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For the start of a request.
    pub(crate) idle: Duration,
    /// For the whole request, from its start: a client that sends byte by byte cannot hold a
    /// connection for ever.
    pub(crate) request: Duration,
    /// For a client to take an answer, or a piece of a long one. It is for all writes together: a
    /// client that reads byte by byte cannot hold a connection for ever.
    pub(crate) answer: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        let minute = Duration::from_secs(60);
        Patience {
            idle: minute,
            request: minute,
            answer: minute,
        }
    }
}

/// The transport of requests: a TCP stream, or a protocol on top of one.
pub(crate) trait Transport: Read + Write {
    fn tcp(&self) -> &TcpStream;

    /// Announces, in the transport's own way, that nothing more will be sent.
    fn close(&mut self) -> io::Result<()>;
}

impl Transport for &TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }

    fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How a connection waits for its next request.
#[derive(Clone, Copy)]
pub(crate) enum Idle<'a> {
    /// In a read.
    Parked(&'a Member),
    /// Its handler returns ([`Graceful::serve_requests`]), and is called when there is something to read.
    Returned(&'a Graceful),
}

impl Idle<'_> {
    fn is_stopping(self) -> bool {
        match self {
            Idle::Parked(member) => member.is_stopping(),
            Idle::Returned(server) => server.is_stopping(),
        }
    }
}

/// One connection, or its requests up to the next time that it is idle.
pub(crate) struct Connection<'a, T, F> {
    stream: T,
    site: &'a F,
    input: Input,
    output: Vec<u8>,
    /// A request whose body has not arrived completely.
    current: Option<Exchange>,
    patience: Patience,
    /// The start time of the request that has arrived in part.
    begun: Option<Instant>,
    /// Whether the transport has a deadline for reads.
    has_deadline: bool,
    idle: Idle<'a>,
}

/// A request that was answered, and whose body must still be skipped.
struct Exchange {
    reply: Reply,
    body_left: u64,
}

/// The step after all complete requests were answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Read,
    Close,
    /// Close, although requests or parts of them may be unread.
    Linger,
}

impl<'a, T, F> Connection<'a, T, F>
where
    T: Transport,
    F: Fn(&Request<'_>) -> Answer,
{
    pub(crate) fn new(stream: T, site: &'a F, patience: Patience, idle: Idle<'a>) -> Self {
        Connection {
            stream,
            site,
            input: Input::new(),
            output: Vec::with_capacity(OUTPUT_BYTES),
            current: None,
            patience,
            begun: None,
            has_deadline: false,
            idle,
        }
    }

    pub(crate) fn run(mut self) -> io::Result<net::Next> {
        loop {
            match self.fill() {
                // The server stops, and the peer has no other request.
                Ok(None) => {
                    self.close()?;
                    return Ok(net::Next::Close);
                }
                Ok(Some(0)) => return Ok(net::Next::Close),
                Ok(Some(_)) => {}
                // The deadline has passed. A request that has started gets an answer.
                Err(e) if e.kind() == ErrorKind::WouldBlock && self.is_amid_request() => {
                    self.refuse(answer::TIMEOUT);
                    self.send()?;
                    return self.linger();
                }
                Err(e) => return Err(e),
            }
            let next = self.answer_all()?;
            self.send()?;
            match (next, self.idle) {
                (Next::Read, Idle::Returned(_)) if !self.is_amid_request() => {
                    if self.has_deadline {
                        self.stream.tcp().set_read_deadline(None);
                    }
                    return Ok(net::Next::Request);
                }
                (Next::Read, _) => {}
                (Next::Close, _) => {
                    self.close()?;
                    return Ok(net::Next::Close);
                }
                (Next::Linger, _) => return self.linger(),
            }
        }
    }

    /// Reads more. Returns `None` if the server stops and no other request has come. Fails with
    /// `WouldBlock` after the deadline.
    fn fill(&mut self) -> io::Result<Option<usize>> {
        let patience = self.patience;
        if self.is_amid_request() {
            let begun = *self.begun.get_or_insert_with(Instant::now);
            let tcp = self.stream.tcp();
            tcp.set_read_deadline(Some(begun + patience.request));
            self.has_deadline = true;
            return self.input.fill(&mut self.stream).map(Some);
        }
        let (input, stream) = (&mut self.input, &mut self.stream);
        match self.idle {
            Idle::Parked(member) => {
                let deadline = Instant::now() + patience.idle;
                stream.tcp().set_read_deadline(Some(deadline));
                member.idle(|| input.fill(stream))
            }
            // There is something to read.
            Idle::Returned(_) => input.fill(stream).map(Some),
        }
    }

    fn send(&mut self) -> io::Result<()> {
        if !self.output.is_empty() {
            write(&mut self.stream, &self.output, self.patience)?;
            self.output.clear();
        }
        Ok(())
    }

    fn send_long(&mut self, mut long: Box<dyn Long>) -> io::Result<()> {
        loop {
            let piece = long.next_piece()?;
            if piece.is_empty() {
                return Ok(());
            }
            write(&mut self.stream, piece, self.patience)?;
        }
    }

    fn close(&mut self) -> io::Result<()> {
        set_write_deadline(self.stream.tcp(), self.patience);
        self.stream.close()
    }

    fn is_amid_request(&self) -> bool {
        self.current.is_some() || !self.input.bytes().is_empty()
    }

    /// Answers every complete request.
    fn answer_all(&mut self) -> io::Result<Next> {
        loop {
            if let Some(mut exchange) = self.current.take() {
                exchange.body_left -= self.input.skip(exchange.body_left);
                if exchange.body_left > 0 {
                    self.current = Some(exchange);
                    return Ok(Next::Read);
                }
                if let Some(next) = self.finish(exchange.reply)? {
                    return Ok(next);
                }
            }
            let (request, head_bytes) = match request::parse(self.input.bytes()) {
                Ok(Some(parsed)) => parsed,
                Ok(None) if self.input.bytes().len() < MAX_HEAD_BYTES => return Ok(Next::Read),
                Ok(None) => return Ok(self.refuse(answer::HEAD_TOO_LARGE)),
                Err(answer) => return Ok(self.refuse(answer)),
            };
            if request.body_bytes > MAX_BODY_BYTES {
                return Ok(self.refuse(answer::BODY_TOO_LARGE));
            }
            let is_body_awaited = self.input.bytes().len() == head_bytes && request.body_bytes > 0;
            if request.expects_continue && is_body_awaited {
                self.output.extend_from_slice(answer::CONTINUE);
            }
            self.current = Some(Exchange {
                reply: Reply::new((self.site)(&request), &request),
                body_left: request.body_bytes,
            });
            self.input.consume(head_bytes);
        }
    }

    /// Answers a request that was read completely. Returns what to do if it was the last.
    fn finish(&mut self, mut reply: Reply) -> io::Result<Option<Next>> {
        self.begun = None;
        let is_stopping = self.input.bytes().is_empty() && self.idle.is_stopping();
        if is_stopping {
            reply.close();
        }
        let closes = reply.closes();
        if let Some(long) = reply.write_to(&mut self.output) {
            self.send()?;
            self.send_long(long)?;
        }
        if self.output.len() >= MAX_OUTPUT_BYTES {
            self.send()?;
        }
        // A client that did not ask for the end may have sent another request by now.
        Ok(
            match (closes, self.input.bytes().is_empty() && !is_stopping) {
                (false, _) => None,
                (true, true) => Some(Next::Close),
                (true, false) => Some(Next::Linger),
            },
        )
    }

    /// Answers a request that is malformed or not supported; the start of the next one is unknown
    /// then.
    fn refuse(&mut self, answer: Answer) -> Next {
        // None of these answers has a long body.
        let _ = Reply::last(answer).write_to(&mut self.output);
        Next::Linger
    }

    /// Closes so that the peer can still read the last answer.
    fn linger(mut self) -> io::Result<net::Next> {
        self.close()?;
        crate::linger::linger(self.stream.tcp())?;
        Ok(net::Next::Close)
    }
}

/// Writes all bytes, in the time that a client has to take them.
fn write(stream: &mut impl Transport, bytes: &[u8], patience: Patience) -> io::Result<()> {
    set_write_deadline(stream.tcp(), patience);
    let written = stream.write_all(bytes).and_then(|()| stream.flush());
    if let Err(error) = &written
        && error.kind() == ErrorKind::WouldBlock
    {
        // The kernel would go on to send what it has buffered, for as long as the client likes. This
        // discards it when the stream is closed.
        TcpOptions::new()
            .linger(Duration::ZERO)
            .apply(stream.tcp())?;
    }
    written
}

fn set_write_deadline(tcp: &TcpStream, patience: Patience) {
    tcp.set_write_deadline(Some(Instant::now() + patience.answer));
}

/// Bytes received and not consumed yet: `buffer[begin..end]`.
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

    /// Consumes up to `n` bytes, and returns their number.
    fn skip(&mut self, n: u64) -> u64 {
        let here = (self.end - self.begin) as u64;
        let n = n.min(here);
        self.consume(n as usize);
        n
    }

    /// Reads more. There is room unless [`MAX_HEAD_BYTES`] bytes wait to be consumed.
    fn fill(&mut self, stream: &mut impl Read) -> io::Result<usize> {
        // The rest is at most the start of one request.
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

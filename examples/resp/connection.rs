//! The requests of a connection, up to the next time that it is idle: reads them, carries them out, and answers.

use std::io::{self, Read, Write};

use windlass::net::{Next, TcpStream};
use windlass::time::{Duration, Instant};

use super::Server;
use super::command;
use super::protocol::Parser;
use super::reply::Reply;
use super::session::{Client, Session};

/// The initial size of the input buffer, to which it shrinks again.
const INPUT_BYTES: usize = 16 << 10;
/// Answers are sent when the output reaches this size, even if there are more commands.
const OUTPUT_BYTES: usize = 64 << 10;
/// A request that arrives at this rate or faster may take longer than the timeout.
const MIN_BYTES_PER_SECOND: u32 = 16 << 10;

/// What a connection needs only while it is not idle. Others use it afterwards.
pub(super) struct Buffers {
    parser: Parser,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Buffers {
    pub(super) fn new() -> Buffers {
        Buffers {
            parser: Parser::default(),
            input: vec![0; INPUT_BYTES],
            output: Vec::new(),
        }
    }

    /// Empties them. A request may have been left in the middle.
    fn renew(&mut self) {
        self.parser.reset();
        self.output.clear();
        self.output.shrink_to(OUTPUT_BYTES);
        if self.input.len() > INPUT_BYTES {
            self.input = vec![0; INPUT_BYTES];
        }
    }
}

/// One connection that is not idle.
pub(super) struct Connection<'s> {
    session: Session<'s>,
    buffers: &'s mut Buffers,
    /// Bytes received and not carried out yet: `input[begin..end]`.
    begin: usize,
    end: usize,
    patience: Duration,
    /// The start time of the request that has arrived in part.
    begun: Option<Instant>,
    /// Whether the stream has a deadline for reads.
    has_deadline: bool,
}

/// Prepares a connection.
pub(super) fn prepare(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    // Answers are sent together, so Nagle's algorithm would only delay them.
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(patience))
}

impl<'s> Connection<'s> {
    pub(super) fn new(
        server: &'s Server,
        stream: &'s TcpStream,
        client: &'s mut Client,
        buffers: &'s mut Buffers,
    ) -> Connection<'s> {
        buffers.renew();
        Connection {
            session: Session::new(server, stream, client),
            buffers,
            begin: 0,
            end: 0,
            patience: server.patience,
            begun: None,
            has_deadline: false,
        }
    }

    /// Answers requests, of which one has arrived at least in part, until the client is silent.
    pub(super) fn run(mut self) -> io::Result<Next> {
        while !self.session.is_over {
            if self.fill()? == 0 {
                return Ok(Next::Close);
            }
            self.answer_all()?;
            self.send()?;
            if self.begin == self.end && !self.session.is_over {
                if self.has_deadline {
                    self.session.stream.set_read_deadline(None);
                }
                return Ok(Next::Request);
            }
        }
        // With a writer, the last answers may not have been written yet.
        if self.session.outbox.is_none() {
            crate::linger::linger(self.session.stream)?;
        }
        Ok(Next::Close)
    }

    /// Carries out every complete request.
    fn answer_all(&mut self) -> io::Result<()> {
        while !self.session.is_over {
            let Buffers {
                parser,
                input,
                output,
            } = &mut *self.buffers;
            let bytes = &input[self.begin..self.end];
            let mut reply = Reply {
                out: output,
                is_resp3: self.session.is_resp3,
            };
            match parser.advance(bytes) {
                Ok(None) => break,
                Ok(Some(n_bytes)) => {
                    command::execute(&mut self.session, parser.args(bytes), &mut reply);
                    parser.reset();
                    self.begin += n_bytes;
                    self.begun = None;
                }
                Err(malformed) => {
                    // The start of the next request is unknown.
                    reply.error(&format!("ERR Protocol error: {malformed}"));
                    self.session.is_over = true;
                }
            }
            if self.buffers.output.len() >= OUTPUT_BYTES {
                self.send()?;
            }
        }
        Ok(())
    }

    /// Sends the answers.
    fn send(&mut self) -> io::Result<()> {
        let output = &mut self.buffers.output;
        if output.is_empty() {
            return Ok(());
        }
        match &self.session.outbox {
            // The connection's writer also has messages to send.
            Some(outbox) => drop(outbox.push(output.as_slice().into())),
            None => self.session.stream.write_all(output)?,
        }
        output.clear();
        output.shrink_to(OUTPUT_BYTES);
        Ok(())
    }

    /// The time by which more of a request must have arrived.
    fn deadline(&mut self) -> Instant {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        let n_bytes = (self.end - self.begin) as u32;
        begun + self.patience + Duration::from_secs((n_bytes / MIN_BYTES_PER_SECOND).into())
    }

    /// Reads more, and returns the number of bytes.
    fn fill(&mut self) -> io::Result<usize> {
        if self.begin < self.end {
            let deadline = self.deadline();
            self.session.stream.set_read_deadline(Some(deadline));
            self.has_deadline = true;
        }
        let input = &mut self.buffers.input;
        if self.begin > 0 {
            input.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
        }
        if self.end == input.len() {
            // The parser refuses longer requests before the buffer grows to twice the limit.
            input.resize(2 * input.len(), 0);
        }
        let mut stream = self.session.stream;
        let n = stream.read(&mut input[self.end..])?;
        self.end += n;
        Ok(n)
    }
}

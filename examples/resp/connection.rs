//! A connection: reads requests, carries them out, and answers.

use std::io::{self, Read, Write};

use windlass::net::{Member, TcpStream};
use windlass::time::{Duration, Instant};

use super::Server;
use super::command;
use super::protocol::Parser;
use super::reply::Reply;
use super::session::Session;

/// The initial size of the input buffer, to which it shrinks again.
const INPUT_BYTES: usize = 16 << 10;
/// Answers are sent when the output reaches this size, even if there are more commands.
const OUTPUT_BYTES: usize = 64 << 10;
/// A request that arrives at this rate or faster may take longer than the timeout.
const MIN_BYTES_PER_SECOND: u32 = 16 << 10;

/// One connection.
pub(super) struct Connection<'s> {
    session: Session<'s>,
    parser: Parser,
    input: Vec<u8>,
    /// Bytes received and not carried out yet: `input[begin..end]`.
    begin: usize,
    end: usize,
    output: Vec<u8>,
    patience: Duration,
    member: &'s Member,
    /// The start time of the request that has arrived in part.
    begun: Option<Instant>,
}

impl<'s> Connection<'s> {
    pub(super) fn new(
        server: &'s Server,
        id: u64,
        stream: TcpStream,
        member: &'s Member,
    ) -> io::Result<Connection<'s>> {
        // Answers are sent together, so Nagle's algorithm would only delay them.
        stream.set_nodelay(true)?;
        let patience = server.patience;
        stream.set_write_timeout(Some(patience))?;
        Ok(Connection {
            session: Session::new(server, id, stream),
            parser: Parser::default(),
            input: vec![0; INPUT_BYTES],
            begin: 0,
            end: 0,
            output: Vec::new(),
            patience,
            member,
            begun: None,
        })
    }

    pub(super) fn run(mut self) -> io::Result<()> {
        while !self.session.is_over {
            if self.fill()? == 0 {
                return Ok(());
            }
            self.answer_all()?;
            self.send()?;
        }
        match self.session.outbox {
            // The last answers may not have been written yet.
            Some(_) => Ok(()),
            None => crate::linger::linger(&self.session.stream),
        }
    }

    /// Carries out every complete request.
    fn answer_all(&mut self) -> io::Result<()> {
        while !self.session.is_over {
            let bytes = &self.input[self.begin..self.end];
            let mut reply = Reply {
                out: &mut self.output,
                is_resp3: self.session.is_resp3,
            };
            match self.parser.advance(bytes) {
                Ok(None) => break,
                Ok(Some(n_bytes)) => {
                    command::execute(&mut self.session, self.parser.args(bytes), &mut reply);
                    self.parser.reset();
                    self.begin += n_bytes;
                    self.begun = None;
                }
                Err(malformed) => {
                    // The start of the next request is unknown.
                    reply.error(&format!("ERR Protocol error: {malformed}"));
                    self.session.is_over = true;
                }
            }
            if self.output.len() >= OUTPUT_BYTES {
                self.send()?;
            }
        }
        Ok(())
    }

    /// Sends the answers.
    fn send(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        match &self.session.outbox {
            // The connection's writer also has messages to send.
            Some(outbox) => drop(outbox.push(self.output.as_slice().into())),
            None => (&*self.session.stream).write_all(&self.output)?,
        }
        self.output.clear();
        self.output.shrink_to(OUTPUT_BYTES);
        Ok(())
    }

    /// The time by which more of a request must have arrived. Between requests a client may be
    /// silent for ever.
    fn deadline(&mut self) -> Instant {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        let n_bytes = (self.end - self.begin) as u32;
        begun + self.patience + Duration::from_secs((n_bytes / MIN_BYTES_PER_SECOND).into())
    }

    /// Reads more, and returns the number of bytes: 0 also when the server stops and no other request
    /// has come.
    fn fill(&mut self) -> io::Result<usize> {
        let is_amid_request = self.begin < self.end;
        if !is_amid_request {
            (self.begin, self.end) = (0, 0);
            if self.input.len() > INPUT_BYTES {
                self.input = vec![0; INPUT_BYTES];
            }
        }
        if self.begin > 0 {
            self.input.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
        }
        if self.end == self.input.len() {
            // The parser refuses longer requests before the buffer grows to twice the limit.
            self.input.resize(2 * self.input.len(), 0);
        }
        let deadline = is_amid_request.then(|| self.deadline());
        let mut stream = &*self.session.stream;
        stream.set_read_deadline(deadline);
        let room = &mut self.input[self.end..];
        let n = match is_amid_request {
            true => stream.read(room)?,
            false => self.member.idle(|| stream.read(room))?.unwrap_or(0),
        };
        self.end += n;
        Ok(n)
    }
}

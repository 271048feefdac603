//! A connection: read, carry out, answer.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass::net::TcpStream;

use super::Server;
use super::command;
use super::protocol::Parser;
use super::reply::Reply;
use super::session::Session;

/// What a connection begins with to read into, and goes back to.
const INPUT_BYTES: usize = 16 << 10;
/// Answers are sent when there are so many, though there may be more commands.
const OUTPUT_BYTES: usize = 64 << 10;
/// A request may take so much longer than the patience that it comes as fast as this.
const MIN_BYTES_PER_SECOND: u32 = 16 << 10;

/// One connection.
pub(super) struct Connection {
    session: Session,
    parser: Parser,
    input: Vec<u8>,
    /// What has come and was not carried out: `input[begin..end]`.
    begin: usize,
    end: usize,
    output: Vec<u8>,
    patience: Duration,
    /// When the request began of which there is a part.
    begun: Option<Instant>,
}

impl Connection {
    pub(super) fn new(server: Arc<Server>, id: u64, stream: TcpStream) -> io::Result<Connection> {
        // Answers leave together, so there is nothing to wait for.
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
            // The last of its answers may not have been written yet.
            Some(_) => Ok(()),
            None => crate::linger::linger(&self.session.stream),
        }
    }

    /// Carries out every request that is whole.
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
                    // Where the next request begins is not known.
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

    /// Sends what was answered.
    fn send(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        match &self.session.outbox {
            // Its writer has messages to send as well.
            Some(outbox) => drop(outbox.push(self.output.as_slice().into())),
            None => (&*self.session.stream).write_all(&self.output)?,
        }
        self.output.clear();
        self.output.shrink_to(OUTPUT_BYTES);
        Ok(())
    }

    /// Until when more of a request must have come. Between requests a client may be silent
    /// for ever.
    fn deadline(&mut self) -> Instant {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        let n_bytes = (self.end - self.begin) as u32;
        begun + self.patience + Duration::from_secs((n_bytes / MIN_BYTES_PER_SECOND).into())
    }

    /// Reads more, and says how much.
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
            // The parser refuses longer requests before the buffer holds twice as much.
            self.input.resize(2 * self.input.len(), 0);
        }
        let deadline = is_amid_request.then(|| self.deadline());
        self.session.stream.set_read_deadline(deadline);
        let n = (&*self.session.stream).read(&mut self.input[self.end..])?;
        self.end += n;
        Ok(n)
    }
}

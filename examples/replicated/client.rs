//! The client: finds the primary, and sends a command until it is answered.

use std::net::SocketAddr;

use windlass::io::{self, ErrorKind};
use windlass::time::{Duration, Instant, sleep};

use super::Timing;
use super::connection::Connection;
use super::protocol::{Command, MAX_COMMAND_BYTES, Request, Response};

/// A client, which has one command under way at a time.
pub(crate) struct Client {
    cluster: Vec<SocketAddr>,
    timing: Timing,
    id: u64,
    /// The number of the last command.
    number: u64,
    /// The server that is asked next.
    server: usize,
    connection: Option<Connection>,
}

impl Client {
    /// `id` must be one that no other client has, or has had.
    pub(crate) fn new(cluster: Vec<SocketAddr>, id: u64, timing: Timing) -> Client {
        assert!(!cluster.is_empty(), "a cluster has servers");
        Client {
            cluster,
            timing,
            id,
            number: 0,
            server: 0,
            connection: None,
        }
    }

    /// Carries out a command. Returns the value that the key had before.
    ///
    /// # Errors
    ///
    /// `TimedOut` if there was no answer within `patience`. The command may have been carried out, or
    /// may be later. `InvalidInput` if it is too long.
    pub(crate) fn call(
        &mut self,
        command: Command,
        patience: Duration,
    ) -> io::Result<Option<String>> {
        if command.len() > MAX_COMMAND_BYTES {
            let why = format!("the command is longer than {MAX_COMMAND_BYTES} bytes");
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        self.number += 1;
        let request = Request::Command {
            client: self.id,
            number: self.number,
            command,
        };
        let begun = Instant::now();
        let mut last_error = None;
        while begun.elapsed() < patience {
            match self.ask(&request) {
                Ok(Response::Done(before)) => return Ok(before),
                Ok(Response::Elsewhere(Some(primary)))
                    if primary != self.server && primary < self.cluster.len() =>
                {
                    self.turn_to(primary);
                    continue;
                }
                Ok(_) => {}
                Err(error) => last_error = Some(error),
            }
            self.turn_to((self.server + 1) % self.cluster.len());
            sleep(self.timing.pause);
        }
        let why = last_error.map_or("there is no primary".to_owned(), |e| e.to_string());
        Err(io::Error::new(ErrorKind::TimedOut, why))
    }

    /// The place of the server that has answered last.
    #[allow(dead_code, reason = "for tests, which kill it")]
    pub(crate) fn server(&self) -> usize {
        self.server
    }

    fn turn_to(&mut self, server: usize) {
        self.server = server;
        self.connection = None;
    }

    fn ask(&mut self, request: &Request) -> io::Result<Response> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(self.cluster[self.server], self.timing.answer)?,
        };
        let response = connection.ask(request)?;
        // One that failed is not put back.
        self.connection = Some(connection);
        Ok(response)
    }
}

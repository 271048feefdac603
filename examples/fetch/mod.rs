//! ureq over windlass's sockets: its connector and its transport.
//!
//! ureq calls these instead of its own, which use sockets of `std`. With ureq's TLS connector
//! behind this one in the chain, https works the same way.

use std::fmt;
use std::io::{ErrorKind, Read, Write};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Agent, Error, Timeout};
use windlass::net::TcpStream;
use windlass::time::{Duration, Instant};

/// An agent whose calls park the goroutine, with a time limit for each call.
pub(crate) fn agent(timeout: Duration) -> Agent {
    let config = Agent::config_builder()
        .timeout_global(Some(timeout))
        // Error statuses such as 404 are results, not errors.
        .http_status_as_error(false)
        .build();
    Agent::with_parts(config, TcpConnector, Lookup(DefaultResolver::default()))
}

/// Resolves host names.
#[derive(Debug)]
struct Lookup(DefaultResolver);

impl Resolver for Lookup {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        // The lookup blocks the thread, so it runs in a blocking section.
        windlass::blocking(|| self.0.resolve(uri, config, timeout))
    }
}

#[derive(Debug)]
struct TcpConnector;

impl Connector for TcpConnector {
    type Out = Stream;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Stream>, Error> {
        let deadline = deadline(details.timeout)?;
        let mut last = Error::ConnectionFailed;
        for addr in &*details.addrs {
            let connected = match deadline {
                None => TcpStream::connect(addr),
                Some(at) => match at.saturating_duration_since(Instant::now()) {
                    Duration::ZERO => return Err(Error::Timeout(Timeout::Connect)),
                    left => TcpStream::connect_timeout(addr, left),
                },
            };
            match connected {
                Ok(tcp) => {
                    tcp.set_nodelay(details.config.no_delay())?;
                    let config = details.config;
                    let buffers =
                        LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
                    return Ok(Some(Stream { tcp, buffers }));
                }
                Err(e) => last = told(e, Timeout::Connect),
            }
        }
        Err(last)
    }
}

/// A connection and its buffers.
struct Stream {
    tcp: TcpStream,
    buffers: LazyBuffers,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tcp.fmt(f)
    }
}

impl Transport for Stream {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, n_bytes: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        self.tcp.set_write_deadline(deadline(timeout)?);
        let output = &self.buffers.output()[..n_bytes];
        let sent = self.tcp.write_all(output);
        sent.map_err(|e| told(e, timeout.reason))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        self.tcp.set_read_deadline(deadline(timeout)?);
        let received = self.tcp.read(self.buffers.input_append_buf());
        let n_bytes = received.map_err(|e| told(e, timeout.reason))?;
        self.buffers.input_appended(n_bytes);
        Ok(n_bytes > 0)
    }

    /// Between two answers a server sends nothing; if it is readable, it has closed the connection.
    fn is_open(&mut self) -> bool {
        self.tcp.set_read_deadline(None);
        let looked = self
            .tcp
            .set_nonblocking(true)
            .and_then(|()| self.tcp.peek(&mut [0]));
        let is_silent = looked.is_err_and(|e| e.kind() == ErrorKind::WouldBlock);
        is_silent && self.tcp.set_nonblocking(false).is_ok()
    }
}

/// The deadline of a call.
fn deadline(timeout: NextTimeout) -> Result<Option<Instant>, Error> {
    if timeout.after.is_zero() {
        return Err(Error::Timeout(timeout.reason));
    }
    match timeout.after.is_not_happening() {
        true => Ok(None),
        false => Ok(Instant::now().checked_add(*timeout.after)),
    }
}

fn told(error: std::io::Error, reason: Timeout) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Timeout(reason),
        _ => Error::Io(error),
    }
}

//! A WebSocket server: a goroutine for each connection, in plain blocking style.

use std::io::{self, ErrorKind, Read, Write};

use tungstenite::error::ProtocolError;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tungstenite::{Error, HandshakeError, Message, Utf8Bytes, WebSocket, accept_with_config};
use windlass::net::{Graceful, Member, TcpListener, TcpStream};
use windlass::time::{Duration, Instant};

use crate::linger;
use crate::serve::complain;

/// Limits for peers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The longest message.
    pub(crate) message_bytes: usize,
    /// For the whole handshake.
    pub(crate) handshake: Duration,
    /// For a message, from its first byte to its last: a peer that sends byte by byte cannot hold a
    /// connection for ever.
    pub(crate) message: Duration,
    /// The silence after which a peer is pinged, and again until it counts as gone; also the time
    /// limit for sending.
    pub(crate) silence: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            message_bytes: 1 << 20,
            handshake: Duration::from_secs(10),
            message: Duration::from_secs(60),
            silence: Duration::from_secs(60),
        }
    }
}

/// Serves until the server is asked to stop.
///
/// # Errors
///
/// The listener cannot accept any more.
pub(crate) fn serve(listener: TcpListener, server: &Graceful, limits: Limits) -> io::Result<()> {
    server.serve_with(listener, complain(), move |stream, member| {
        // Errors of a connection concern only its peer.
        let _ = serve_one(stream, limits, member);
    })
}

fn serve_one(
    stream: TcpStream,
    limits: Limits,
    member: &Member,
) -> Result<(), Box<dyn std::error::Error>> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(limits.silence))?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(limits.message_bytes))
        .max_frame_size(Some(limits.message_bytes));
    // The handshake has the same kind of deadline as a message that has started.
    let timed = Timed {
        stream: &stream,
        begun: Some(Instant::now()),
        whole: limits.handshake,
        silence: limits.silence,
        member,
        is_over: false,
    };
    let mut socket = match accept_with_config(timed, Some(config)) {
        Ok(socket) => socket,
        Err(HandshakeError::Failure(error)) => return Ok(refuse(&stream, error)?),
        Err(HandshakeError::Interrupted(_)) => unreachable!("the stream blocks"),
    };
    let timed = socket.get_mut();
    (timed.begun, timed.whole) = (None, limits.message);
    let error = match echo(&mut socket) {
        // Both sides have sent a close frame.
        Err(Error::ConnectionClosed) | Ok(()) => return Ok(()),
        Err(error) => error,
    };
    let code = match close_code(&error) {
        Some(code) => code,
        None if socket.get_ref().is_over => CloseCode::Away,
        None => return Err(error.into()),
    };
    let frame = CloseFrame {
        code,
        reason: Utf8Bytes::default(),
    };
    socket.close(Some(frame))?;
    Ok(linger::linger(&stream)?)
}

/// Answers a request that does not open a WebSocket.
fn refuse(mut stream: &TcpStream, error: Error) -> io::Result<()> {
    let answer: &[u8] = match error {
        // The peer has gone, or was too slow.
        Error::Io(error) => return Err(error),
        Error::Protocol(ProtocolError::HandshakeIncomplete) => return Ok(()),
        // It speaks HTTP, or another version of the protocol.
        Error::Protocol(
            ProtocolError::MissingConnectionUpgradeHeader
            | ProtocolError::MissingUpgradeWebSocketHeader
            | ProtocolError::MissingSecWebSocketVersionHeader,
        ) => {
            b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\n\
              Connection: Upgrade, close\r\nSec-WebSocket-Version: 13\r\n\
              Content-Length: 0\r\n\r\n"
        }
        _ => b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    };
    stream.write_all(answer)?;
    linger::linger(stream)
}

/// Why the server closes the connection, if the peer has broken the protocol.
fn close_code(error: &Error) -> Option<CloseCode> {
    match error {
        // The peer has gone already.
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
        Error::Protocol(_) => Some(CloseCode::Protocol),
        Error::Utf8(_) => Some(CloseCode::Invalid),
        Error::Capacity(_) => Some(CloseCode::Size),
        _ => None,
    }
}

/// Sends back every message, until the connection ends.
fn echo(socket: &mut WebSocket<Timed<'_>>) -> tungstenite::Result<()> {
    let mut is_asked = false;
    loop {
        match socket.read() {
            // Pings are answered by tungstenite itself.
            Ok(message) => {
                is_asked = false;
                socket.get_mut().begun = None;
                if message.is_text() || message.is_binary() {
                    socket.send(message)?;
                }
            }
            Err(Error::Io(e)) if e.kind() == ErrorKind::WouldBlock && !is_asked => {
                is_asked = true;
                socket.send(Message::Ping(Default::default()))?;
            }
            Err(e) => return Err(e),
        }
    }
}

/// A stream whose reads fail when a message takes too long, or none arrives.
struct Timed<'a> {
    stream: &'a TcpStream,
    /// The start time of the message that has arrived in part.
    begun: Option<Instant>,
    /// The time limit for a whole message.
    whole: Duration,
    /// The time limit until one starts.
    silence: Duration,
    member: &'a Member,
    /// Whether the server stops, and no other message has come.
    is_over: bool,
}

impl Read for Timed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let now = Instant::now();
        let until = self.begun.map_or(now + self.silence, |at| at + self.whole);
        let mut stream = self.stream;
        stream.set_read_deadline(Some(until));
        let read = match self.begun {
            Some(_) => stream.read(buf).map(Some),
            None => self.member.idle(|| stream.read(buf)),
        };
        match read {
            Ok(None) => {
                self.is_over = true;
                Err(io::Error::other("the server stops"))
            }
            Ok(Some(n)) => {
                self.begun.get_or_insert_with(Instant::now);
                Ok(n)
            }
            // Only inside a message: a peer that is merely silent is pinged.
            Err(e) if e.kind() == ErrorKind::WouldBlock && self.begun.is_some() => Err(
                io::Error::new(ErrorKind::TimedOut, "the message took too long"),
            ),
            Err(e) => Err(e),
        }
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

//! A WebSocket server: a goroutine for each connection, in plain blocking style.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, Message, WebSocket, accept_with_config};
use windlass::net::{TcpListener, TcpStream};

/// The longest message.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Timeouts for peers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For the whole handshake.
    pub(crate) handshake: Duration,
    /// For a message, from its first byte to its last: a peer that sends byte by byte cannot hold a
    /// connection for ever.
    pub(crate) message: Duration,
    /// The silence after which a peer is pinged, and again until it counts as gone; also the time
    /// limit for sending.
    pub(crate) silence: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            handshake: Duration::from_secs(10),
            message: Duration::from_secs(60),
            silence: Duration::from_secs(60),
        }
    }
}

/// Serves until the runtime ends.
pub(crate) fn serve(listener: &TcpListener) -> ! {
    serve_with(listener, Patience::default())
}

/// As [`serve`], with other timeouts.
pub(crate) fn serve_with(listener: &TcpListener, patience: Patience) -> ! {
    crate::accept::accept_each(listener, move |stream| {
        // Errors of a connection concern only its peer.
        let _ = serve_one(stream, patience);
    })
}

fn serve_one(stream: TcpStream, patience: Patience) -> Result<(), Box<dyn std::error::Error>> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(patience.silence))?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    // The handshake has the same kind of deadline as a message that has started.
    let stream = Timed {
        stream,
        begun: Some(Instant::now()),
        whole: patience.handshake,
        silence: patience.silence,
    };
    let mut socket = accept_with_config(stream, Some(config)).map_err(|e| e.to_string())?;
    let timed = socket.get_mut();
    (timed.begun, timed.whole) = (None, patience.message);
    match echo(&mut socket) {
        // Both sides have sent a close frame.
        Err(Error::ConnectionClosed) => Ok(()),
        ended => Ok(ended?),
    }
}

/// Sends back every message, until the connection ends.
fn echo(socket: &mut WebSocket<Timed>) -> tungstenite::Result<()> {
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
struct Timed {
    stream: TcpStream,
    /// The start time of the message that has arrived in part.
    begun: Option<Instant>,
    /// The time limit for a whole message.
    whole: Duration,
    /// The time limit until one starts.
    silence: Duration,
}

impl Read for Timed {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let now = Instant::now();
        let until = self.begun.map_or(now + self.silence, |at| at + self.whole);
        self.stream.set_read_deadline(Some(until));
        match self.stream.read(buf) {
            Ok(n) => {
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

impl Write for Timed {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

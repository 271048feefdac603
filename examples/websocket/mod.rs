//! A WebSocket server: a goroutine for each connection, in plain blocking style.

use std::time::{Duration, Instant};

use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, Message, WebSocket, accept_with_config};
use windlass::net::{TcpListener, TcpStream};

/// The longest message.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// How long the handshake may take, all of it.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer may be silent before it is asked whether it is there, and again before
/// it is taken for gone; and how long it may refuse to take what is sent.
const SILENCE: Duration = Duration::from_secs(60);

/// Serves for ever: until the runtime ends.
pub(crate) fn serve(listener: &TcpListener) -> ! {
    crate::accept::accept_each(listener, |stream| {
        // A peer that has gone or speaks something else is no matter of ours.
        let _ = serve_one(stream);
    })
}

fn serve_one(stream: TcpStream) -> Result<(), Box<dyn std::error::Error>> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(SILENCE))?;
    stream.set_read_deadline(Some(Instant::now() + HANDSHAKE_TIMEOUT));
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let mut socket = accept_with_config(stream, Some(config)).map_err(|e| e.to_string())?;
    socket.get_ref().set_read_deadline(None);
    socket.get_ref().set_read_timeout(Some(SILENCE))?;
    match echo(&mut socket) {
        // Both sides have said so.
        Err(Error::ConnectionClosed) => Ok(()),
        ended => Ok(ended?),
    }
}

/// Sends back every message, until the connection ends.
fn echo(socket: &mut WebSocket<TcpStream>) -> tungstenite::Result<()> {
    let mut is_asked = false;
    loop {
        match socket.read() {
            // Pings are answered by tungstenite itself.
            Ok(message) => {
                is_asked = false;
                if message.is_text() || message.is_binary() {
                    socket.send(message)?;
                }
            }
            Err(Error::Io(e)) if e.kind() == std::io::ErrorKind::WouldBlock && !is_asked => {
                is_asked = true;
                socket.send(Message::Ping(Default::default()))?;
            }
            Err(e) => return Err(e),
        }
    }
}

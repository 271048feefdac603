//! The routes: messages are posted to rooms, and read at once, by waiting for them, as a stream, or
//! over a WebSocket.
//!
//! The handlers are `async`, as axum requires, and call blocking code: a lock, a condition variable,
//! a socket of windlass. Data of the connection itself, such as the body, are awaited.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_VERSION, UPGRADE};
use axum::http::request;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http_body_util::channel::Channel;
use hyper::upgrade::{OnUpgrade, Parts};
use serde::{Deserialize, Serialize};
use tungstenite::handshake::server::create_response;
use tungstenite::protocol::{Role, WebSocketConfig};
use tungstenite::{Message, WebSocket};
use windlass::future::block_on;
use windlass::net::{TcpListener, TcpStream};
use windlass::sync::{Condvar, Mutex};
use windlass_hyper::Io;

/// The most rooms.
const MAX_ROOMS: usize = 1_000;
/// The most messages of a room. The oldest is dropped for a new one.
const MAX_MESSAGES: usize = 1_000;
/// The longest message.
const MAX_BYTES: usize = 16 << 10;
/// The longest wait of a request for a message.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// The interval of empty lines in a stream without messages, which find out that its reader is gone.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a peer may be silent, or take to receive.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(120);
/// How long the server waits for its connections after the stop.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Serves until `stop` returns.
pub(crate) fn serve(
    listener: TcpListener,
    stop: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let board = Arc::new(Board::default());
    let router = router(Arc::clone(&board));
    crate::routes::serve_until(listener, router, STOP_LIMIT, move || {
        let stopped = stop();
        board.close();
        stopped
    })
}

fn router(board: Arc<Board>) -> Router {
    Router::new()
        .route("/", get(|| async { "A message board.\n" }))
        .route("/rooms/{room}", get(read).post(write))
        .route("/rooms/{room}/stream", get(stream))
        .route("/rooms/{room}/socket", get(socket))
        .layer(DefaultBodyLimit::max(MAX_BYTES))
        .with_state(board)
}

/// All rooms.
#[derive(Default)]
struct Board {
    rooms: Mutex<Rooms>,
}

#[derive(Default)]
struct Rooms {
    by_name: HashMap<String, Arc<Room>>,
    is_closed: bool,
}

/// A room, for readers and writers in any goroutine.
#[derive(Default)]
struct Room {
    messages: Mutex<Messages>,
    changed: Condvar,
}

#[derive(Default)]
struct Messages {
    /// The latest ones.
    latest: VecDeque<Numbered>,
    n_posted: u64,
    /// Nobody waits any more, as the server stops.
    is_closed: bool,
}

/// A message and its number in its room, from 1.
#[derive(Clone, Debug, Serialize)]
struct Numbered {
    number: u64,
    text: String,
}

impl Board {
    /// Finds a room, or makes it. `None` if there are too many.
    fn room(&self, name: String) -> Option<Arc<Room>> {
        let mut rooms = self.rooms.lock().expect("no holder panics");
        if !rooms.by_name.contains_key(&name) && rooms.by_name.len() >= MAX_ROOMS {
            return None;
        }
        let is_closed = rooms.is_closed;
        let room = rooms.by_name.entry(name).or_default();
        if is_closed {
            room.close();
        }
        Some(Arc::clone(room))
    }

    fn close(&self) {
        let mut rooms = self.rooms.lock().expect("no holder panics");
        rooms.is_closed = true;
        rooms.by_name.values().for_each(|room| room.close());
    }
}

impl Room {
    fn post(&self, text: String) -> u64 {
        let mut messages = self.messages.lock().expect("no holder panics");
        messages.n_posted += 1;
        let number = messages.n_posted;
        messages.latest.push_back(Numbered { number, text });
        if messages.latest.len() > MAX_MESSAGES {
            messages.latest.pop_front();
        }
        drop(messages);
        self.changed.notify_all();
        number
    }

    /// The messages behind number `since`. If there are none, waits for one, as long as `wait` and
    /// the server permit.
    fn behind(&self, since: u64, wait: Duration) -> Vec<Numbered> {
        let messages = self.messages.lock().expect("no holder panics");
        let is_early = |m: &mut Messages| m.n_posted <= since && !m.is_closed;
        let waited = self.changed.wait_timeout_while(messages, wait, is_early);
        let (messages, _) = waited.expect("no holder panics");
        let new = messages.latest.iter().filter(|m| m.number > since);
        new.cloned().collect()
    }

    fn close(&self) {
        self.messages.lock().expect("no holder panics").is_closed = true;
        self.changed.notify_all();
    }

    fn is_closed(&self) -> bool {
        self.messages.lock().expect("no holder panics").is_closed
    }
}

/// A room, or the answer that there are too many.
struct InRoom(Arc<Room>);

impl FromRequestParts<Arc<Board>> for InRoom {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut request::Parts,
        board: &Arc<Board>,
    ) -> Result<InRoom, Response> {
        let name = Path::<String>::from_request_parts(parts, board).await;
        let Path(name) = name.map_err(IntoResponse::into_response)?;
        let room = board.room(name);
        room.map(InRoom)
            .ok_or_else(|| StatusCode::INSUFFICIENT_STORAGE.into_response())
    }
}

/// The query of a request.
#[derive(Deserialize)]
struct Asked {
    /// The number of the last message that the client has.
    #[serde(default)]
    since: u64,
    /// How many seconds to wait for a message.
    #[serde(default)]
    wait: u64,
}

async fn write(InRoom(room): InRoom, text: String) -> impl IntoResponse {
    let number = room.post(text.clone());
    (StatusCode::CREATED, Json(Numbered { number, text }))
}

/// Waits inside of a handler. With HTTP/1 its connection waits, with HTTP/2 only the request.
async fn read(InRoom(room): InRoom, Query(asked): Query<Asked>) -> Json<Vec<Numbered>> {
    let wait = Duration::from_secs(asked.wait).min(MAX_WAIT);
    Json(room.behind(asked.since, wait))
}

/// A line of JSON for each message. The body is made by a goroutine of its own, in blocking style.
async fn stream(InRoom(room): InRoom, Query(asked): Query<Asked>) -> impl IntoResponse {
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    windlass::spawn(move || {
        let mut since = asked.since;
        loop {
            let is_last = room.is_closed();
            let messages = room.behind(since, HEARTBEAT);
            since = messages.last().map_or(since, |last| last.number);
            let lines = match messages.is_empty() {
                true => "\n".to_owned(),
                false => messages.iter().map(line).collect(),
            };
            // Parks while the connection is slow, and fails when it has ended.
            if block_on(sender.send_data(lines.into())).is_err() || is_last {
                return;
            }
        }
    });
    ([(CONTENT_TYPE, "application/x-ndjson")], Body::new(body))
}

fn line(message: &Numbered) -> String {
    let json = serde_json::to_string(message).expect("a number and a text");
    json + "\n"
}

/// Answers a request for a WebSocket. Another goroutine talks on it, in blocking style.
async fn socket(InRoom(room): InRoom, mut request: Request) -> Response {
    let upgrade = hyper::upgrade::on(&mut request);
    let (parts, _) = request.into_parts();
    let Ok(response) = create_response(&axum::http::Request::from_parts(parts, ())) else {
        let headers = [
            (UPGRADE, "websocket"),
            (CONNECTION, "upgrade"),
            (SEC_WEBSOCKET_VERSION, "13"),
        ];
        return (StatusCode::UPGRADE_REQUIRED, headers).into_response();
    };
    windlass::spawn(move || {
        // Errors of a connection concern only its peer.
        let _ = talk(upgrade, &room);
    });
    response.map(|()| Body::empty())
}

/// Posts each text that arrives, and answers with its number.
fn talk(upgrade: OnUpgrade, room: &Room) -> Result<(), Box<dyn std::error::Error>> {
    // Ready when the answer is sent and hyper has left the connection.
    let upgraded = block_on(upgrade)?;
    let Ok(Parts { io, read_buf, .. }) = upgraded.downcast::<Io>() else {
        return Err("the connection is not one of windlass-hyper's".into());
    };
    let stream = TcpStream::from(io.into_fd()?);
    stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
    stream.set_write_timeout(Some(SOCKET_TIMEOUT))?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_BYTES))
        .max_frame_size(Some(MAX_BYTES));
    let early = read_buf.to_vec();
    let mut socket = WebSocket::from_partially_read(stream, early, Role::Server, Some(config));
    loop {
        // Pings and close frames are answered by tungstenite itself.
        if let Message::Text(text) = socket.read()? {
            let number = room.post(text.to_string());
            socket.send(Message::text(number.to_string()))?;
        }
    }
}

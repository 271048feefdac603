//! axum's routes on goroutines: handlers that wait, streams, WebSockets, both versions of HTTP, and
//! the end.

use std::io::{Read, Write};
use std::net::TcpStream;

use tungstenite::{Error, Message};
use windlass::channel;

use crate::board;
use crate::server::{Server, foreign_prints};
use crate::until::start_until;

fn start() -> Server {
    Server::start(|listener| {
        let never = channel::never::<()>();
        let _ = board::serve(listener, move || {
            let _ = never.recv();
            Ok(())
        });
    })
}

fn request(method: &str, path: &str, body: &str) -> String {
    let n_bytes = body.len();
    format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {n_bytes}\r\n\r\n{body}")
}

/// Reads an answer with a length.
fn read_answer(stream: &mut TcpStream) -> (u16, String) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head
        .lines()
        .find_map(|l| l.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |n| n.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    let status = head["http/1.1 ".len()..][..3].parse().unwrap();
    (status, String::from_utf8(body).unwrap())
}

fn ask(stream: &mut TcpStream, method: &str, path: &str, body: &str) -> (u16, String) {
    let request = request(method, path, body);
    stream.write_all(request.as_bytes()).unwrap();
    read_answer(stream)
}

#[test]
fn messages_are_posted_and_read() {
    let server = start();
    let mut stream = server.connect();
    let mut ask = |method, path, body: &str| ask(&mut stream, method, path, body);
    assert_eq!(ask("GET", "/", ""), (200, "A message board.\n".to_owned()));
    assert_eq!(ask("GET", "/rooms/a", ""), (200, "[]".to_owned()));
    let first = "{\"number\":1,\"text\":\"grüße\"}";
    let second = "{\"number\":2,\"text\":\"\\\"\"}";
    assert_eq!(ask("POST", "/rooms/a", "grüße"), (201, first.to_owned()));
    assert_eq!(ask("POST", "/rooms/a", "\""), (201, second.to_owned()));
    let both = format!("[{first},{second}]");
    assert_eq!(ask("GET", "/rooms/a?since=0&wait=9", ""), (200, both));
    let last = format!("[{second}]");
    assert_eq!(ask("GET", "/rooms/a?since=1", ""), (200, last));
    assert_eq!(ask("GET", "/rooms/b", ""), (200, "[]".to_owned()));
    assert_eq!(ask("GET", "/rooms/a?since=x", "").0, 400);
    assert_eq!(ask("DELETE", "/rooms/a", "").0, 405);
    assert_eq!(ask("GET", "/none", "").0, 404);
    assert_eq!(ask("GET", "/rooms/a/socket", "").0, 426);
    assert_eq!(ask("POST", "/rooms/a", &"x".repeat(20_000)).0, 413);
    // Old messages go.
    let mut stream = server.connect();
    for _ in 0..1_001 {
        let request = request("POST", "/rooms/c", "x");
        stream.write_all(request.as_bytes()).unwrap();
        assert_eq!(read_answer(&mut stream).0, 201);
    }
    let (_, all) = self::ask(&mut stream, "GET", "/rooms/c", "");
    assert!(all.starts_with("[{\"number\":2,"), "{all}");
    assert!(all.ends_with(",{\"number\":1001,\"text\":\"x\"}]"), "{all}");
}

/// The handler parks; other connections are served meanwhile, more than there are threads.
#[test]
fn handlers_wait_as_goroutines_do() {
    let server = start();
    let mut waiting: Vec<_> = (0..20).map(|_| server.connect()).collect();
    let wait = request("GET", "/rooms/a?since=0&wait=30", "");
    for stream in &mut waiting {
        stream.write_all(wait.as_bytes()).unwrap();
    }
    let mut writer = server.connect();
    assert_eq!(ask(&mut writer, "POST", "/rooms/a", "now").0, 201);
    for stream in &mut waiting {
        let (status, body) = read_answer(stream);
        assert_eq!((status, body.contains("\"now\"")), (200, true), "{body}");
    }
}

/// A body that another goroutine makes, piece by piece.
#[test]
fn a_stream_has_what_is_posted_meanwhile() {
    let server = start();
    let mut reader = server.connect();
    let request = request("GET", "/rooms/a/stream", "");
    reader.write_all(request.as_bytes()).unwrap();
    let mut writer = server.connect();
    let mut got = Vec::new();
    for i in 0..10 {
        let text = format!("message {i}.");
        assert_eq!(ask(&mut writer, "POST", "/rooms/a", &text).0, 201);
        while !String::from_utf8_lossy(&got).contains(&text) {
            let mut buf = [0; 4096];
            let n = reader.read(&mut buf).unwrap();
            assert!(n > 0);
            got.extend_from_slice(&buf[..n]);
        }
    }
    let got = String::from_utf8(got).unwrap();
    assert!(got.contains("content-type: application/x-ndjson"), "{got}");
}

#[test]
fn a_websocket_is_served_in_blocking_style() {
    let server = start();
    let url = "ws://localhost/rooms/a/socket";
    let (mut socket, response) = tungstenite::client(url, server.connect()).unwrap();
    assert_eq!(response.status().as_u16(), 101);
    for number in 1..=20 {
        socket.send(Message::text("hello")).unwrap();
        assert_eq!(socket.read().unwrap(), Message::text(number.to_string()));
    }
    socket.close(None).unwrap();
    assert!(socket.read().unwrap().is_close());
    assert!(matches!(socket.read(), Err(Error::ConnectionClosed)));
    let mut stream = server.connect();
    let (_, all) = ask(&mut stream, "GET", "/rooms/a?since=19", "");
    assert_eq!(all, "[{\"number\":20,\"text\":\"hello\"}]");
}

#[test]
fn curl_speaks_both_versions() {
    let server = start();
    let url = |path: &str| format!("http://{}{path}", server.addr);
    let common = ["--silent", "--show-error", "--fail"];
    let (room, lobby) = (url("/rooms/a"), url("/"));
    let Some(posted) = foreign_prints("curl", &[&common[..], &["--data", "hi", &room]].concat())
    else {
        return;
    };
    assert_eq!(posted, "{\"number\":1,\"text\":\"hi\"}");
    let version = foreign_prints("curl", &["--version"]).unwrap();
    if !version.contains("HTTP2") {
        eprintln!("SKIPPED: this curl does not know HTTP/2");
        return;
    }
    let http2 = ["--http2-prior-knowledge"];
    let all = foreign_prints("curl", &[&common[..], &http2, &[&room]].concat()).unwrap();
    assert_eq!(all, "[{\"number\":1,\"text\":\"hi\"}]");
    let greeting = foreign_prints("curl", &[&common[..], &http2, &[&lobby]].concat()).unwrap();
    assert_eq!(greeting, "A message board.\n");
}

#[test]
fn what_is_no_http_is_sent_away() {
    let server = start();
    server.ask(b"P");
    server.ask(b"PR");
    server.ask(b"PRI * nonsense");
    server.ask(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n nonsense and more of it");
    server.ask(b"\x00\x01\x02 nonsense\r\n\r\n");
    server.ask(&[b'x'; 1_000_000]);
    server.ask(b"");
    let greeting = server.ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(greeting.starts_with(b"HTTP/1.1 200"));
    // A first byte that both versions begin with, and then the rest.
    let mut stream = server.connect();
    stream.write_all(b"P").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let rest = &request("POST", "/rooms/a", "x")[1..];
    stream.write_all(rest.as_bytes()).unwrap();
    assert_eq!(read_answer(&mut stream).0, 201);
}

#[test]
fn a_server_that_stops_answers_what_has_arrived() {
    let (server, stop, ended) = start_until(board::serve);
    // Of each kind: idle, silent, waiting, streaming.
    let mut idle = server.connect();
    assert_eq!(ask(&mut idle, "GET", "/", "").0, 200);
    let silent = server.connect();
    let mut waiting = server.connect();
    let wait = request("GET", "/rooms/a?since=0&wait=30", "");
    waiting.write_all(wait.as_bytes()).unwrap();
    let mut streaming = server.connect();
    let stream = request("GET", "/rooms/a/stream", "");
    streaming.write_all(stream.as_bytes()).unwrap();
    streaming.read_exact(&mut [0; 10]).unwrap();
    stop.send(()).unwrap();
    assert_eq!(read_answer(&mut waiting), (200, "[]".to_owned()));
    let mut rest = Vec::new();
    streaming.read_to_end(&mut rest).unwrap();
    // The last chunk: the stream was not cut off.
    assert!(rest.ends_with(b"0\r\n\r\n"));
    assert_eq!(idle.read(&mut [0]).unwrap(), 0);
    ended.recv().unwrap();
    drop((silent, server));
}

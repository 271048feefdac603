//! The WebSocket server: tungstenite's client on threads and goroutines, and raw bytes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tungstenite::{Bytes, Error, Message};

use crate::server::Server;
use crate::stoppable::{LONG_GRACE, start_graceful, start_stoppable};
use crate::util::run;
use crate::websocket::{self, Limits};

fn start() -> Server {
    start_with(Limits::default())
}

fn start_with(limits: Limits) -> Server {
    start_graceful(move |listener, server| websocket::serve(listener, server, limits))
}

/// A conversation over any stream.
fn talk(stream: impl Read + Write) {
    let Ok((mut socket, _)) = tungstenite::client("ws://localhost/", stream) else {
        panic!("no handshake");
    };
    for n in [0, 1, 125, 126, 65_535, 65_536, 1_000_000] {
        let message = Message::Binary(Bytes::from(vec![n as u8; n]));
        socket.send(message.clone()).unwrap();
        assert_eq!(socket.read().unwrap(), message);
    }
    socket.send(Message::text("grüße")).unwrap();
    assert_eq!(socket.read().unwrap(), Message::text("grüße"));
    socket
        .send(Message::Ping(Bytes::from_static(b"there?")))
        .unwrap();
    assert_eq!(
        socket.read().unwrap(),
        Message::Pong(Bytes::from_static(b"there?"))
    );
    socket.close(None).unwrap();
    assert!(socket.read().unwrap().is_close());
    assert!(matches!(socket.read(), Err(Error::ConnectionClosed)));
}

#[test]
fn messages_come_back() {
    let server = start();
    talk(server.connect());
    run(2, || {
        let talks: Vec<_> = (0..20)
            .map(|_| {
                let stream = windlass::net::TcpStream::connect(server.addr).unwrap();
                windlass::spawn(move || talk(stream))
            })
            .collect();
        talks.into_iter().for_each(|talk| talk.join().unwrap());
    });
}

const HANDSHAKE: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A client's frame, with a mask of zeros.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() < 126);
    [&[first, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat()
}

#[test]
fn the_handshake_and_frames_are_those_of_the_standard() {
    let server = start();
    // A message in two frames, with a ping in between; then a close frame.
    let frames = [
        frame(0x01, b"he"),
        frame(0x89, b"p"),
        frame(0x80, b"llo"),
        frame(0x88, &[]),
    ];
    let (mut stream, head) = shake_hands(&server);
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    // The answer to the key, from the standard.
    assert!(head.contains("s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
    stream.write_all(&frames.concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"\x8a\x01p\x81\x05hello\x88\x00");
}

/// A connection after the handshake, and the server's answer in lower case.
fn shake_hands(server: &Server) -> (TcpStream, String) {
    let mut stream = server.connect();
    stream.write_all(HANDSHAKE).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    (stream, String::from_utf8(head).unwrap().to_lowercase())
}

#[test]
fn what_is_no_websocket_is_refused() {
    let server = start();
    let handshake = str::from_utf8(HANDSHAKE).unwrap();
    let without = |line: &str| handshake.replacen(line, "", 1).into_bytes();
    let with = |from: &str, to: &str| handshake.replacen(from, to, 1).into_bytes();
    let cases = [
        (b"\x00\xff nonsense\r\n\r\n".to_vec(), 400),
        ([b'x'; 200_000].to_vec(), 400),
        (with("GET", "POST"), 400),
        (with("HTTP/1.1", "HTTP/1.0"), 400),
        (
            without("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"),
            400,
        ),
        (with("dGhlIHNhbXBsZSBub25jZQ==", "short"), 400),
        // Frames before the handshake is complete.
        ([HANDSHAKE, &frame(0x81, b"hello")].concat(), 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), 426),
        (without("Upgrade: websocket\r\n"), 426),
        (without("Connection: Upgrade\r\n"), 426),
        (with("Version: 13", "Version: 8"), 426),
    ];
    for (bytes, status) in &cases {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]);
        let answer = String::from_utf8(server.ask(bytes)).unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{shown}: {answer}"
        );
        let says_version = answer.contains("\r\nSec-WebSocket-Version: 13\r\n");
        assert_eq!(says_version, *status == 426, "{shown}: {answer}");
    }
    assert_eq!(server.ask(b"GET / HTTP/1.1\r\nHo"), b"");
    talk(server.connect());
}

/// A peer that breaks the protocol is told why the connection ends.
#[test]
fn broken_frames_close_the_connection_with_a_code() {
    let server = start();
    let too_long = b"\x82\xff\x00\x00\x00\x00\x00\x10\x00\x01\x00\x00\x00\x00".to_vec();
    let longest = b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00".to_vec();
    let cases = [
        // Not masked.
        (b"\x81\x05hello".to_vec(), 1002),
        // Of unknown types; with a reserved bit; a control frame in parts.
        (frame(0x83, b"x"), 1002),
        (frame(0x8b, b"x"), 1002),
        (frame(0xc1, b"x"), 1002),
        (frame(0x09, b"x"), 1002),
        // The rest of a message that has not begun; a message inside another.
        (frame(0x80, b"x"), 1002),
        ([frame(0x01, b"x"), frame(0x01, b"x")].concat(), 1002),
        (frame(0x81, b"\xff\xfe"), 1007),
        ([frame(0x01, b"\xc3"), frame(0x80, b"x")].concat(), 1007),
        (too_long, 1009),
        (longest, 1009),
    ];
    for (bytes, code) in &cases {
        let (mut stream, _) = shake_hands(&server);
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let code: u16 = *code;
        let close = [&[0x88, 2], &code.to_be_bytes()[..]].concat();
        assert_eq!(answer, close, "{bytes:x?}");
    }
    // Half a frame.
    let (mut stream, _) = shake_hands(&server);
    stream.write_all(b"\x82\x85\x00\x00").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"");
    talk(server.connect());
}

/// The time limits are for a whole handshake and a whole message; a silent peer is pinged.
#[test]
fn what_trickles_in_is_cut_off() {
    let short = Duration::from_millis(300);
    let limits = Limits {
        handshake: short,
        message: short,
        ..Limits::default()
    };
    let server = start_with(limits);
    for step in [short / 10, 3 * short] {
        let (answer, is_closed) = server.trickle(&HANDSHAKE[..80], step);
        assert!(is_closed && answer.is_empty(), "{answer:?}");
    }
    let (mut stream, _) = shake_hands(&server);
    stream.set_nodelay(true).unwrap();
    let long = frame(0x82, &[b'x'; 120]);
    let mut n_sent = 0;
    while n_sent < long.len() && stream.write_all(&long[n_sent..=n_sent]).is_ok() {
        n_sent += 1;
        std::thread::sleep(short / 10);
    }
    assert!(n_sent < long.len(), "it was gone before it had all of it");
    // Complete messages may be far apart.
    let (mut stream, _) = shake_hands(&server);
    for _ in 0..3 {
        std::thread::sleep(2 * short);
        stream.write_all(&frame(0x81, b"late")).unwrap();
        let mut answer = [0; 6];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"\x81\x04late");
    }
}

#[test]
fn a_silent_peer_is_asked_and_then_left() {
    let limits = Limits {
        silence: Duration::from_millis(200),
        ..Limits::default()
    };
    let server = start_with(limits);
    let (mut stream, _) = shake_hands(&server);
    // A ping, and then the end of the stream.
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"\x89\x00");
}

/// In one frame or in many.
#[test]
fn a_message_without_end_is_refused() {
    let server = start();
    let part = vec![b'x'; 100_000];
    let mut head = vec![0x02, 0x80 | 127];
    head.extend_from_slice(&(part.len() as u64).to_be_bytes());
    head.extend_from_slice(&[0; 4]);
    let (mut stream, _) = shake_hands(&server);
    let mut n_taken = 0;
    while n_taken < 64 << 20 && stream.write_all(&[&head[..], &part].concat()).is_ok() {
        n_taken += part.len();
        // The following frames belong to the same message.
        head[0] = 0;
    }
    assert!(n_taken < 64 << 20);
    talk(server.connect());
}

#[test]
fn messages_that_have_begun_are_finished_after_the_stop() {
    let serve = |listener, server: &_| websocket::serve(listener, server, Limits::default());
    let (server, stopped, told) = start_stoppable(LONG_GRACE, serve);
    let (mut stream, _) = shake_hands(&server);
    let message = frame(0x81, b"hello");
    stream.write_all(&message[..8]).unwrap();
    let mut queued = server.connect();
    server.stop_accepting(&stopped);
    stream.write_all(&message[8..]).unwrap();
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"\x81\x05hello");
    // A connection that nobody had accepted before the stop.
    queued.write_all(HANDSHAKE).unwrap();
    let mut head = [0; 13];
    queued.read_exact(&mut head).unwrap();
    assert_eq!(head, *b"HTTP/1.1 101 ");
    drop((stream, queued));
    assert_eq!(told.recv().unwrap(), Ok(()));
}

/// A silent peer learns that the server goes away.
#[test]
fn silent_peers_get_a_close_frame_at_the_stop() {
    let serve = |listener, server: &_| websocket::serve(listener, server, Limits::default());
    let (server, stopped, told) = start_stoppable(Duration::ZERO, serve);
    let (mut stream, _) = shake_hands(&server);
    stopped.stop();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"\x88\x02\x03\xe9");
    stream.write_all(&frame(0x88, b"\x03\xe9")).unwrap();
    drop(stream);
    assert_eq!(told.recv().unwrap(), Ok(()));
}

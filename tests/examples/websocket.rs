//! The WebSocket server: tungstenite's client on threads and goroutines, and raw bytes.

use std::io::{Read, Write};
use std::net::TcpStream;

use tungstenite::{Bytes, Error, Message};

use crate::server::Server;
use crate::util::run;
use crate::websocket;

fn start() -> Server {
    Server::start(|listener| websocket::serve(&listener))
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

/// A frame of a client, masked with zeros.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() < 126);
    [&[first, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat()
}

#[test]
fn the_handshake_and_frames_are_those_of_the_standard() {
    let server = start();
    // A message in two frames, with a ping in between; then a close.
    let frames = [
        frame(0x01, b"he"),
        frame(0x89, b"p"),
        frame(0x80, b"llo"),
        frame(0x88, &[]),
    ];
    let (mut stream, head) = shake_hands(&server);
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    // The key's answer, from the standard.
    assert!(head.contains("s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
    stream.write_all(&frames.concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"\x8a\x01p\x81\x05hello\x88\x00");
}

/// A connection after the handshake, and what the server said, in small letters.
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
fn what_is_no_websocket_is_sent_away() {
    let server = start();
    let cases = [
        b"".to_vec(),
        b"\x00\xff nonsense\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        [b'x'; 200_000].to_vec(),
        // Frames before the handshake is over.
        [HANDSHAKE, &frame(0x81, b"hello")].concat(),
    ];
    for bytes in &cases {
        server.ask(bytes);
    }
    let cases = [
        b"\xff\xff\xff\xff\xff\xff".to_vec(),
        // Not masked; of an unknown kind; longer than may be; not UTF-8; half a frame.
        b"\x81\x05hello".to_vec(),
        frame(0x83, b"x"),
        b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00".to_vec(),
        frame(0x81, b"\xff\xfe"),
        b"\x82\x85\x00\x00".to_vec(),
    ];
    for bytes in &cases {
        let (mut stream, _) = shake_hands(&server);
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        // It may be reset.
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(
            !answer.starts_with(&[0x81]) && !answer.starts_with(&[0x82]),
            "{answer:?}"
        );
    }
    talk(server.connect());
}

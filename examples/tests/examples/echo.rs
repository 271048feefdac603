//! The echo server: raw bytes, and a client that accepts its own request as an answer.

use std::io::{Read, Write};
use std::net::Shutdown;

use crate::echo;
use crate::server::{Server, foreign_prints};
use crate::stoppable::{LONG_GRACE, start_graceful, start_stoppable};

fn start() -> Server {
    start_graceful(echo::serve)
}

#[test]
fn what_is_sent_comes_back() {
    let server = start();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let stream = server.connect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (&stream).write_all(&bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
        let mut back = Vec::new();
        (&stream).read_to_end(&mut back).unwrap();
        assert!(back == bytes, "{} bytes", back.len());
    });
    assert!(server.ask(b"").is_empty());
}

/// A request of Redis is an array of strings, which is a valid answer, too.
#[test]
fn redis_cli_gets_back_what_it_asked() {
    let server = start();
    let port = server.addr.port().to_string();
    let args = ["-p", &port, "ECHO", "hello"];
    let Some(printed) = foreign_prints("redis-cli", &args) else {
        return;
    };
    assert_eq!(printed, "ECHO\nhello\n");
}

/// Also on a connection that has sent nothing before the stop.
#[test]
fn what_arrives_in_the_grace_comes_back() {
    let (server, stopped, told) = start_stoppable(LONG_GRACE, echo::serve);
    let (mut old, mut new) = (server.connect(), server.connect());
    old.write_all(b"old").unwrap();
    old.read_exact(&mut [0; 3]).unwrap();
    server.stop_accepting(&stopped);
    for stream in [&mut old, &mut new] {
        stream.write_all(b"late").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut back = String::new();
        stream.read_to_string(&mut back).unwrap();
        assert_eq!(back, "late");
    }
    assert_eq!(told.recv().unwrap(), Ok(()));
}

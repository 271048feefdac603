//! The key-value server, with threads and with goroutines.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use crate::program::{Directory, Server};

const THREADS: &str = env!("CARGO_BIN_EXE_kv_threads");
const GOROUTINES: &str = env!("CARGO_BIN_EXE_kv");

/// So many keys are asked for at the same time.
const N_FETCHES: usize = 50;

/// The key of a request, whose head is read to its end.
fn key_of(stream: &TcpStream) -> String {
    let lines = BufReader::new(stream).lines().map(|line| line.unwrap());
    let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    let path = head[0].split(' ').nth(1).unwrap();
    path.rsplit('/').next().unwrap().to_owned()
}

fn answer(mut stream: TcpStream, key: &str) {
    let value = format!("value of {key}");
    let status = match key.starts_with("no-") {
        true => "404 Not Found",
        false => "200 OK",
    };
    let n_bytes = value.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {n_bytes}\r\nConnection: close\r\n\r\n{value}"
    )
    .unwrap();
}

/// Sets, gets, deletes and counts; then asks for many keys that only the other server has, which
/// answers when all have been asked for. Returns the number of the server's threads at that time.
fn does_what_it_should(program: &str, name: &str, n_processors: usize) -> usize {
    let directory = Directory::new(name);
    let database = directory.0.join("pairs.db");
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/values", upstream.local_addr().unwrap());
    let arguments = [database.to_str().unwrap(), &url];
    let server = Server::start(program, &arguments, n_processors);

    let mut client = server.connect();
    assert_eq!(client.ask("SET color light blue"), "OK");
    assert_eq!(client.ask("GET color"), "VALUE light blue");
    assert_eq!(client.ask("COUNT"), "1");
    assert_eq!(client.ask("DEL color"), "1");
    assert_eq!(client.ask("DEL color"), "0");
    assert!(
        client
            .ask("PUT color blue")
            .starts_with("ERROR a request is")
    );

    let clients: Vec<_> = (0..N_FETCHES)
        .map(|n| {
            let mut client = server.connect();
            client.write(&format!("GET key-{n}"));
            client
        })
        .collect();
    let waiting: Vec<_> = (0..N_FETCHES)
        .map(|_| {
            let (stream, _) = upstream.accept().unwrap();
            let key = key_of(&stream);
            (stream, key)
        })
        .collect();
    let n_threads = server.n_threads();
    // It still answers, on any number of Ps.
    assert_eq!(client.ask("SET key-3 changed meanwhile"), "OK");
    assert_eq!(client.ask("COUNT"), "1");
    for (stream, key) in waiting {
        answer(stream, &key);
    }
    for (n, mut client) in clients.into_iter().enumerate() {
        client.expect(&format!("VALUE value of key-{n}"));
        // From the database now.
        assert_eq!(
            client.ask(&format!("GET key-{n}")),
            format!("VALUE value of key-{n}")
        );
    }
    assert_eq!(client.ask("COUNT"), N_FETCHES.to_string());

    let (tell, told) = mpsc::channel();
    let refuses = std::thread::spawn(move || {
        let (stream, _) = upstream.accept().unwrap();
        let key = key_of(&stream);
        answer(stream, &key);
        tell.send(key).unwrap();
    });
    assert_eq!(client.ask("GET no-such-key"), "NONE");
    assert_eq!(told.recv().unwrap(), "no-such-key");
    refuses.join().unwrap();
    // Nobody listens there any more.
    assert!(client.ask("GET another").starts_with("ERROR "));
    n_threads
}

#[test]
fn with_threads_each_fetch_has_one() {
    assert!(does_what_it_should(THREADS, "kv-threads", 1) > N_FETCHES);
}

/// Each fetch waits in a socket of `std`, and its goroutine is parked: otherwise each would have a
/// thread here, too.
#[test]
fn with_goroutines_fetches_wait_without_threads() {
    let n_threads = does_what_it_should(GOROUTINES, "kv", 1);
    assert!(n_threads < N_FETCHES / 2, "{n_threads} threads");
}

#[test]
fn a_database_that_cannot_be_opened_is_an_error() {
    for program in [THREADS, GOROUTINES] {
        let output = std::process::Command::new(program)
            .args(["127.0.0.1:0", "/nonexistent/pairs.db"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("Error: "), "{stderr}");
    }
}

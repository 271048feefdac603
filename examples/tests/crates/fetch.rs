//! ureq over windlass's sockets.

use std::io::{Read, Write};
use std::time::Duration;

use windlass::net::TcpStream;

use crate::server::Server;
use crate::stoppable::start_graceful;
use crate::util::{NOBODY, run};
use crate::{fetch, http};

/// A timeout that only a hanging call reaches.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn pages_are_fetched_all_at_once() {
    let server = start_graceful(http::serve);
    let url = |page: &str| format!("http://{}/{page}", server.addr);
    run(2, || {
        let agent = fetch::agent(LONG);
        let fetches: Vec<_> = (0..50)
            .map(|i| {
                let (agent, url) = (agent.clone(), url(["plaintext", "json", "none"][i % 3]));
                windlass::spawn(move || {
                    let mut answer = agent.get(&url).call().unwrap();
                    (
                        answer.status().as_u16(),
                        answer.body_mut().read_to_string().unwrap(),
                    )
                })
            })
            .collect();
        for (i, fetch) in fetches.into_iter().enumerate() {
            let (status, body) = fetch.join().unwrap();
            let expected = [
                (200, "Hello, World!"),
                (200, "{\"message\":\"Hello, World!\"}"),
                (404, ""),
            ][i % 3];
            assert_eq!((status, &*body), expected);
        }
        // A host name in place of an address, and a request with a body.
        let url = format!("http://localhost:{}/json", server.addr.port());
        let answer = agent.post(&url).send("x".repeat(100_000)).unwrap();
        assert_eq!(answer.status().as_u16(), 405);
    });
}

/// Reads a request without a body, and answers it.
fn answer(stream: &mut TcpStream, body: &str) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        request.push(byte[0]);
    }
    let n_bytes = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {n_bytes}\r\n\r\n{body}"
    )
    .unwrap();
}

fn get(agent: &ureq::Agent, server: &Server) -> String {
    let mut answer = agent
        .get(format!("http://{}/", server.addr))
        .call()
        .unwrap();
    answer.body_mut().read_to_string().unwrap()
}

#[test]
fn a_connection_serves_again() {
    let server = Server::start(|listener| {
        let (mut stream, _) = listener.accept().unwrap();
        // There is no such page.
        drop(listener);
        ["one", "two", "three"]
            .iter()
            .for_each(|body| answer(&mut stream, body));
    });
    run(1, || {
        let agent = fetch::agent(LONG);
        for body in ["one", "two", "three"] {
            assert_eq!(get(&agent, &server), body);
        }
    });
}

#[test]
fn a_connection_that_the_server_has_closed_does_not() {
    let (tell, told) = windlass::channel::unbounded();
    let server = Server::start(move |listener| {
        for body in ["one", "two", "three"] {
            let (mut stream, _) = listener.accept().unwrap();
            answer(&mut stream, body);
            drop(stream);
            tell.send(()).unwrap();
        }
    });
    run(1, || {
        let agent = fetch::agent(LONG);
        for body in ["one", "two", "three"] {
            assert_eq!(get(&agent, &server), body);
            told.recv().unwrap();
        }
    });
}

#[test]
fn calls_end_when_their_time_is_over() {
    let silent = Server::start(|listener| {
        let _kept: Vec<_> = listener.incoming().collect();
    });
    run(1, || {
        let agent = fetch::agent(Duration::from_millis(20));
        let error = agent
            .get(format!("http://{}/", silent.addr))
            .call()
            .unwrap_err();
        assert!(matches!(error, ureq::Error::Timeout(_)), "{error}");
    });
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    let url = format!("http://{NOBODY}/");
    run(1, || {
        let error = fetch::agent(LONG).get(&url).call().unwrap_err();
        assert!(
            matches!(&error, ureq::Error::Io(e) if e.kind() == std::io::ErrorKind::ConnectionRefused),
            "{error}"
        );
    });
}

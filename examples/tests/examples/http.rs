//! The HTTP implementation of the web servers: unusual, long and malformed requests.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::http::{self, Patience};
use crate::random::Random;
use crate::server::{Server, foreign_prints};
use crate::stoppable::start_graceful;

fn start() -> Server {
    start_graceful(http::serve)
}

/// A server with the given timeouts.
fn start_with(patience: Patience) -> Server {
    start_graceful(move |listener, server| http::serve_with(listener, server, patience, http::page))
}

/// The status of each answer.
fn statuses(answers: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(answers);
    let heads = text.split("HTTP/1.1 ").skip(1);
    heads.map(|head| head[..3].parse().unwrap()).collect()
}

#[test]
fn requests_have_answers() {
    let server = start();
    let long_head = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
        "x".repeat(17_000)
    );
    let many_headers = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: y\r\n".repeat(70));
    let body = format!(
        "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n{}GET /json HTTP/1.1\r\nHost: x\r\n\r\n",
        "x".repeat(9000)
    );
    let cases: &[(&str, &[u16])] = &[
        ("GET /plaintext HTTP/1.1\r\nHost: x\r\n\r\n", &[200]),
        ("HEAD /plaintext HTTP/1.1\r\nHost: x\r\n\r\n", &[200]),
        ("GET http://x/plaintext HTTP/1.1\r\nHost: x\r\n\r\n", &[200]),
        (
            "GET /plaintext HTTP/1.0\r\n\r\nGET /plaintext HTTP/1.0\r\n\r\n",
            &[200],
        ),
        (
            "GET /plaintext HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /json HTTP/1.0\r\n\r\n",
            &[200, 200],
        ),
        (
            "GET /json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nGET /json HTTP/1.1\r\nHost: x\r\n\r\n",
            &[200],
        ),
        ("DELETE /json HTTP/1.1\r\nHost: x\r\n\r\n", &[405]),
        ("GET /none HTTP/1.1\r\nHost: x\r\n\r\n", &[404]),
        (&body, &[405, 200]),
        ("GET /json HTTP/1.1\r\n\r\n", &[400]),
        ("GET /json HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", &[400]),
        ("GET /json HTTP/3\r\nHost: x\r\n\r\n", &[400]),
        ("nonsense\r\n\r\n", &[400]),
        // A line feed alone: another server would see other lines.
        ("GET /json HTTP/1.1\nHost: x\n\n", &[400]),
        ("GET /json HTTP/1.1\r\nHost: x\n\r\n", &[400]),
        ("GET /json HTTP/1.1\r\nHost: x\r\n\n", &[400]),
        ("\nGET /json HTTP/1.1\r\nHost: x\r\n\r\n", &[400]),
        ("\r\nGET /json HTTP/1.1\r\nHost: x\r\n\r\n", &[200]),
        (
            "GET /json HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
            &[400],
        ),
        (
            "GET /json HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\n",
            &[400],
        ),
        (
            "GET /json HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            &[400],
        ),
        (
            "GET /json HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
            &[413],
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            &[501],
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            &[400],
        ),
        (&long_head, &[431]),
        (&many_headers, &[431]),
        ("GET /json HTTP/1.1\r\nHo", &[]),
        ("", &[]),
    ];
    for (request, expected) in cases {
        let shown = &request[..request.len().min(80)];
        assert_eq!(
            statuses(&server.ask(request.as_bytes())),
            *expected,
            "{shown}"
        );
    }
}

#[test]
fn requests_may_come_together_or_byte_by_byte() {
    let server = start();
    let request = b"GET /plaintext HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_eq!(statuses(&server.ask(&request.repeat(3000))), [200; 3000]);
    let mut stream = server.connect();
    for byte in request.repeat(3) {
        stream.write_all(&[byte]).unwrap();
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answers = Vec::new();
    stream.read_to_end(&mut answers).unwrap();
    assert_eq!(statuses(&answers), [200; 3]);
}

/// Bytes that resemble requests: each is answered, or not at all if it is incomplete.
#[test]
fn garbage_harms_nobody() {
    let server = start();
    let sound: &[&[u8]] = &[
        b"GET /plaintext HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
        b"GET /none?a=b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ];
    let mut random = Random::new(6);
    for _ in 0..500 {
        let bytes = random.nearly(sound, b"\r\n :,/?-0129Ax\t\0\xff");
        let answers = server.ask(&bytes);
        assert!(answers.is_empty() || answers.starts_with(b"HTTP/1.1 "));
        let known = [100, 200, 400, 404, 405, 413, 431, 501];
        assert!(
            statuses(&answers)
                .iter()
                .all(|status| known.contains(status))
        );
    }
    let request = b"GET /plaintext HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_eq!(statuses(&server.ask(request)), [200]);
}

/// Neither an endless head nor an endless body is read to its end.
#[test]
fn a_request_without_end_is_refused() {
    let server = start();
    let begins = [
        ("", 431),
        ("GET / HTTP/1.1\r\nHost: x\r\nX: ", 431),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000000\r\n\r\n",
            413,
        ),
    ];
    for (begin, status) in begins {
        let mut stream = server.connect();
        stream.write_all(begin.as_bytes()).unwrap();
        let mut n_taken = 0;
        while n_taken < 64 << 20 && stream.write_all(&[b'x'; 1 << 16]).is_ok() {
            n_taken += 1 << 16;
        }
        assert!(n_taken < 64 << 20, "{begin:?}");
        // The answer arrived while the client was sending, unless the reset came first.
        let answers = server.ask(&[begin.as_bytes(), &[b'x'; 1 << 16]].concat());
        assert_eq!(statuses(&answers), [status], "{begin:?}");
    }
}

/// The time limit is for the whole request: further bytes do not extend it.
#[test]
fn requests_that_trickle_in_are_cut_off() {
    let patience = Patience {
        request: Duration::from_millis(300),
        ..Patience::default()
    };
    let server = start_with(patience);
    let mut silent = server.connect();
    let head = format!(
        "GET /plaintext HTTP/1.1\r\nHost: {}\r\n\r\n",
        "x".repeat(500)
    );
    let body = format!(
        "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{}",
        "x".repeat(1000)
    );
    for request in [head, body] {
        for step in [patience.request / 10, 3 * patience.request] {
            let (answers, is_closed) = server.trickle(request.as_bytes(), step);
            assert!(is_closed);
            assert_eq!(statuses(&answers), [408], "{request}");
        }
    }
    // A request that has not started has a longer timeout.
    silent
        .write_all(b"GET /plaintext HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answers = Vec::new();
    silent.read_to_end(&mut answers).unwrap();
    assert_eq!(statuses(&answers), [200]);
}

#[test]
fn silent_connections_are_closed() {
    let patience = Patience {
        idle: Duration::from_secs(1),
        ..Patience::default()
    };
    let server = start_with(patience);
    let begin = Instant::now();
    let mut stream = server.connect();
    stream
        .write_all(b"GET /plaintext HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut answers = Vec::new();
    stream.read_to_end(&mut answers).unwrap();
    assert_eq!(statuses(&answers), [200]);
    assert_eq!(server.connect().read(&mut [0]).unwrap(), 0);
    assert!(begin.elapsed() >= 2 * patience.idle);
}

#[test]
fn curl_gets_pages_and_is_told_to_go_on() {
    let server = start();
    let url = |page: &str| format!("http://{}/{page}", server.addr);
    let common = ["--silent", "--show-error", "--fail"];
    let (plaintext, json) = (url("plaintext"), url("json"));
    let args = [&common[..], &[&plaintext, &json]].concat();
    let Some(printed) = foreign_prints("curl", &args) else {
        return;
    };
    assert_eq!(printed, "Hello, World!{\"message\":\"Hello, World!\"}");
    let body = "x".repeat(5000);
    let args = [
        "--silent",
        "--header",
        "Expect: 100-continue",
        "--data",
        &body,
        "--write-out",
        "%{http_code}",
        &json,
    ];
    assert_eq!(foreign_prints("curl", &args).unwrap(), "405");
}

/// As many requests as 64 connections can carry in a second.
#[test]
fn wrk_has_an_answer_to_every_request() {
    let server = start();
    for page in ["plaintext", "json"] {
        let url = format!("http://{}/{page}", server.addr);
        // The machine may be slow; the test only requires that every request is answered.
        let args = ["-t2", "-c64", "-d1s", "--timeout", "60s", &url];
        let Some(printed) = foreign_prints("wrk", &args) else {
            return;
        };
        // Lines of these kinds are printed only if their counts are not zero.
        for trouble in ["Socket errors", "Non-2xx"] {
            assert!(!printed.contains(trouble), "{printed}");
        }
        let n_requests = printed
            .lines()
            .find_map(|line| line.trim().split_once(" requests in "))
            .and_then(|(n, _)| n.parse::<u64>().ok());
        assert!(n_requests.is_some_and(|n| n >= 64), "{printed}");
    }
}

//! The HTTP that the web servers share: requests that are odd, long, or none.

use std::io::{Read, Write};

use crate::http;
use crate::server::{Server, foreign_prints};

fn start() -> Server {
    Server::start(|listener| http::serve(&listener))
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

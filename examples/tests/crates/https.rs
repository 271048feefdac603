//! The HTTPS server and client: with each other, and with curl.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use crate::server::{Server, foreign, foreign_prints};
use crate::stoppable::start_graceful;
use crate::temp::TempDir;
use crate::{client, http, tls, util};

/// A server, and the certificate that its clients must trust.
fn start() -> (Server, String) {
    let (identity, pem) = tls::Identity::self_signed(&["localhost", "127.0.0.1"]).unwrap();
    let config = identity.server_config().unwrap();
    let server = start_graceful(move |listener, server| tls::serve(listener, server, &config));
    (server, pem)
}

#[test]
fn pages_come_over_tls() {
    let (server, pem) = start();
    let url = |page: &str| format!("https://localhost:{}{page}", server.addr.port());
    let trusted = client::trusting(pem.as_bytes()).unwrap();
    util::run(2, || {
        let page = client::get(&url("/plaintext"), Arc::clone(&trusted)).unwrap();
        assert_eq!((page.status, &page.body[..]), (200, &b"Hello, World!"[..]));
        let page = client::get(&url("/none"), Arc::clone(&trusted)).unwrap();
        assert_eq!(page.status, 404);
        // Many connections at once.
        let fetches: Vec<_> = (0..40)
            .map(|_| {
                let (url, trusted) = (url("/json"), Arc::clone(&trusted));
                windlass::spawn(move || client::get(&url, trusted).unwrap().status)
            })
            .collect();
        assert!(
            fetches
                .into_iter()
                .all(|fetch| fetch.join().unwrap() == 200)
        );
    });
}

#[test]
fn a_server_that_is_not_trusted_gets_no_request() {
    let (server, _) = start();
    let (_, other) = tls::Identity::self_signed(&["localhost"]).unwrap();
    let trusted = client::trusting(other.as_bytes()).unwrap();
    let url = format!("https://localhost:{}/plaintext", server.addr.port());
    let error = util::run(1, || client::get(&url, trusted)).unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[test]
fn a_client_that_speaks_no_tls_is_sent_away() {
    let (server, pem) = start();
    let answer = server.ask(b"GET /plaintext HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(!answer.starts_with(b"HTTP"));
    // A client that starts a handshake and disconnects.
    let mut stream = server.connect();
    stream.write_all(&[22, 3, 1, 2, 0, 1, 0]).unwrap();
    drop(stream);
    // A client that answers with garbage.
    let mut stream = server.connect();
    stream
        .write_all(&[[22, 3, 1, 0, 4].as_slice(), &[0xff; 4]].concat())
        .unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
    let trusted = client::trusting(pem.as_bytes()).unwrap();
    let url = format!("https://localhost:{}/plaintext", server.addr.port());
    assert_eq!(
        util::run(1, || client::get(&url, trusted)).unwrap().status,
        200
    );
}

#[test]
fn an_answer_that_was_cut_short_is_an_error() {
    let (identity, pem) = tls::Identity::self_signed(&["localhost"]).unwrap();
    let config = identity.server_config().unwrap();
    let server = Server::start(move |listener| {
        let (tcp, _) = listener.accept().unwrap();
        let conn = rustls::ServerConnection::new(config).unwrap();
        let mut stream = rustls::StreamOwned::new(conn, tcp);
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhalf").unwrap();
        stream.flush().unwrap();
        // Closed without TLS's closing message.
        stream.sock.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = stream.sock.read_to_end(&mut Vec::new());
    });
    let trusted = client::trusting(pem.as_bytes()).unwrap();
    let url = format!("https://localhost:{}/", server.addr.port());
    let error = util::run(1, || client::get(&url, trusted)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
}

#[test]
fn addresses_that_are_none_are_refused() {
    let (_, pem) = tls::Identity::self_signed(&["localhost"]).unwrap();
    let trusted = client::trusting(pem.as_bytes()).unwrap();
    for url in [
        "",
        "http://localhost/",
        "https://",
        "https://a:x/",
        "https://a/ b",
        "https://a/\r\n",
    ] {
        assert!(client::get(url, Arc::clone(&trusted)).is_err(), "{url:?}");
    }
    assert!(client::trusting(b"nothing").is_err());
}

#[test]
fn curl_trusts_it() {
    let (server, pem) = start();
    let dir = TempDir::new();
    let ca = dir.path().join("ca.pem");
    std::fs::write(&ca, pem).unwrap();
    let ca = ca.to_str().unwrap();
    let url = format!("https://localhost:{}/plaintext", server.addr.port());
    // The connection is reused.
    let args = [
        "--silent",
        "--show-error",
        "--fail",
        "--http1.1",
        "--cacert",
        ca,
        &url,
        &url,
    ];
    let Some(printed) = foreign_prints("curl", &args) else {
        return;
    };
    assert_eq!(printed, "Hello, World!Hello, World!");
    for version in ["--tlsv1.2", "--tlsv1.3"] {
        let args = [
            "--silent",
            "--show-error",
            version,
            "--tls-max",
            &version[6..],
            "--cacert",
            ca,
            &url,
        ];
        assert_eq!(foreign_prints("curl", &args).unwrap(), "Hello, World!");
    }
    let without = foreign("curl", &["--silent", &url]).unwrap();
    assert_eq!(
        without.status.code(),
        Some(60),
        "curl trusts nobody's certificate"
    );
}

/// A handshake has a time limit as a request has; further bytes do not extend it.
#[test]
fn handshakes_that_trickle_in_are_cut_off() {
    let (identity, _) = tls::Identity::self_signed(&["localhost"]).unwrap();
    let config = identity.server_config().unwrap();
    let patience = http::Patience {
        idle: Duration::from_millis(300),
        ..http::Patience::default()
    };
    let server = start_graceful(move |listener, server| {
        tls::serve_with(listener, server, &config, patience)
    });
    // The start of a record of 512 bytes.
    let hello = [[22, 3, 1, 2, 0, 1, 0].as_slice(), &[1; 400]].concat();
    for step in [patience.idle / 10, 3 * patience.idle] {
        let (answer, is_closed) = server.trickle(&hello, step);
        assert!(is_closed && answer.is_empty(), "{answer:?}");
    }
}

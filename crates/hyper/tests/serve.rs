//! The server of plain functions: both versions of HTTP, its limits and deadlines, and its end.

#[path = "../../../tests/util/mod.rs"]
mod util;

mod server;

use std::io::{self, Read, Write};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use windlass::channel;
use windlass::future::{self, block_on};
use windlass::net::{Graceful, TcpListener, TcpStream};
use windlass_hyper::hyper::client::conn::http2;
use windlass_hyper::hyper::{Method, Request, Response, body::Bytes};
use windlass_hyper::{Executor, Http, Io};

use server::FOREVER;
use util::{hang_guard, run};

/// A limit that is reached.
const SHORT: Duration = Duration::from_millis(50);

/// Says what was asked.
fn echo(request: Request<Bytes>) -> Response<String> {
    if request.uri().path() == "/panic" {
        std::panic::resume_unwind(Box::new("on purpose"));
    }
    let body = String::from_utf8_lossy(request.body());
    Response::new(format!(
        "{} {} {body}",
        request.method(),
        request.uri().path()
    ))
}

/// Serves by `http` while `client` runs; then the server must end at once.
fn with_server(http: Http, client: impl FnOnce(std::net::SocketAddr, &Graceful)) {
    with_handler(http, echo, client);
}

fn with_handler(
    http: Http,
    handle: impl Fn(Request<Bytes>) -> Response<String> + Send + Sync + 'static,
    client: impl FnOnce(std::net::SocketAddr, &Graceful),
) {
    server::serve_while(
        move |listener, server| http.serve(listener, server, handle),
        client,
    );
}

/// What comes after `request`, until the server closes.
fn answer_to(addr: std::net::SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Reads until `end` has come.
fn until(stream: &mut TcpStream, end: &str) -> String {
    let mut answer = Vec::new();
    while !answer.ends_with(end.as_bytes()) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.extend(byte);
    }
    String::from_utf8(answer).unwrap()
}

#[test]
fn http1_is_answered_whatever_its_pieces() {
    let _guard = hang_guard();
    run(2, || {
        with_server(Http::new(), |addr, _| {
            let post = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nxyz";
            let last =
                "PUT /b HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
            let whole = answer_to(addr, &format!("{post}{last}"));
            assert_eq!(whole.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{whole}");
            assert!(whole.contains("\r\n\r\nPOST /a xyz") && whole.ends_with("\r\n\r\nPUT /b "));
            // Byte by byte, also where it begins as HTTP/2 does.
            let mut stream = TcpStream::connect(addr).unwrap();
            for byte in format!("{post}{last}").bytes() {
                stream.write_all(&[byte]).unwrap();
                windlass::yield_now();
            }
            let mut pieces = String::new();
            stream.read_to_string(&mut pieces).unwrap();
            assert!(
                pieces.contains("POST /a xyz") && pieces.ends_with("PUT /b "),
                "{pieces}"
            );
        });
    });
}

#[test]
fn http2_is_answered_on_the_same_port() {
    let _guard = hang_guard();
    run(2, || {
        let (waits, goes_on) = channel::bounded::<()>(0);
        let handle = move |request: Request<Bytes>| {
            // The second request is answered while the first waits.
            match request.uri().path() {
                "/first" => goes_on.recv().unwrap(),
                _ => waits.send(()).unwrap(),
            }
            echo(request)
        };
        with_handler(Http::new(), handle, |addr, _| {
            let io = Io::new(TcpStream::connect(addr).unwrap());
            let (sender, connection) =
                block_on(http2::handshake::<_, _, Full<Bytes>>(Executor::new(), io)).unwrap();
            let connection = future::spawn(connection);
            let ask = |path: &str| {
                let mut sender = sender.clone();
                let request = Request::builder()
                    .method(Method::POST)
                    .uri(format!("http://a{path}"));
                let request = request.body(Full::new(Bytes::from("xyz"))).unwrap();
                future::spawn(async move {
                    let answer = sender.send_request(request).await.unwrap();
                    answer.into_body().collect().await.unwrap().to_bytes()
                })
            };
            let (first, second) = (ask("/first"), ask("/second"));
            assert_eq!(first.join().unwrap(), "POST /first xyz");
            assert_eq!(second.join().unwrap(), "POST /second xyz");
            drop(sender);
            connection.join().unwrap().unwrap();
        });
    });
}

#[test]
fn bodies_have_a_limit() {
    let _guard = hang_guard();
    run(2, || {
        with_server(Http::new().max_body(8), |addr, _| {
            let known = answer_to(
                addr,
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n",
            );
            assert!(known.starts_with("HTTP/1.1 413 "), "{known}");
            let chunks = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n123456789\r\n";
            let chunked = answer_to(addr, chunks);
            assert!(chunked.starts_with("HTTP/1.1 413 "), "{chunked}");
            let most = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 8\r\n\r\n12345678";
            assert!(answer_to(addr, most).ends_with("\r\n\r\nPOST / 12345678"));
        });
    });
}

/// Each of three clients is left at its own deadline, while the others have longer ones.
#[test]
fn slow_clients_are_left() {
    let _guard = hang_guard();
    let patient = Http::new()
        .head_timeout(FOREVER)
        .body_timeout(FOREVER)
        .idle_timeout(FOREVER);
    run(2, || {
        let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        with_server(patient.idle_timeout(SHORT), |addr, _| {
            assert_eq!(answer_to(addr, ""), "");
            assert!(answer_to(addr, get).ends_with("GET / "));
        });
        with_server(patient.head_timeout(SHORT), |addr, _| {
            assert_eq!(answer_to(addr, "GET / HT"), "");
            assert_eq!(answer_to(addr, "P"), "");
            let mut stream = TcpStream::connect(addr).unwrap();
            stream.write_all(get.as_bytes()).unwrap();
            let answer = until(&mut stream, "GET / ");
            assert!(answer.contains("200 OK"));
            stream.write_all(b"G").unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        });
        with_server(patient.body_timeout(SHORT), |addr, _| {
            let half = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nxy";
            let answer = answer_to(addr, half);
            assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        });
    });
}

/// All deadlines may be off.
#[test]
fn no_deadline_ends_a_connection_that_has_none() {
    let _guard = hang_guard();
    let patient = Http::new()
        .head_timeout(Duration::MAX)
        .body_timeout(Duration::MAX)
        .idle_timeout(Duration::MAX);
    run(2, || {
        with_server(patient, |addr, _| {
            let mut stream = TcpStream::connect(addr).unwrap();
            let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nxyz";
            for _ in 0..2 {
                stream.write_all(post.as_bytes()).unwrap();
                let answer = until(&mut stream, "POST / xyz");
                assert!(answer.contains("200 OK"), "{answer}");
            }
        });
    });
}

/// No deadline concerns a handler that works.
#[test]
fn a_handler_may_take_longer_than_all_deadlines() {
    let _guard = hang_guard();
    let hasty = Http::new()
        .head_timeout(SHORT)
        .body_timeout(SHORT)
        .idle_timeout(SHORT);
    run(2, || {
        let handle = |request| {
            windlass::sleep(4 * SHORT);
            echo(request)
        };
        with_handler(hasty, handle, |addr, _| {
            assert!(answer_to(addr, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").ends_with("GET / "));
        });
    });
}

#[test]
fn a_client_that_does_not_read_is_left() {
    let _guard = hang_guard();
    run(2, || {
        let large = |_| Response::new("x".repeat(64 << 20));
        with_handler(Http::new().idle_timeout(SHORT), large, |addr, server| {
            let mut stream = TcpStream::connect(addr).unwrap();
            stream
                .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                .unwrap();
            util::wait_until(|| server.n_members() == 1);
            util::wait_until(|| server.n_members() == 0);
            // What the kernel had of it is no whole answer.
            let read = io::copy(&mut stream, &mut io::sink());
            assert!(read.is_err() || read.unwrap() < 64 << 20);
        });
    });
}

#[test]
fn a_panic_ends_its_connection_only() {
    let _guard = hang_guard();
    run(2, || {
        with_server(Http::new(), |addr, _| {
            assert_eq!(
                answer_to(addr, "GET /panic HTTP/1.1\r\nHost: a\r\n\r\n"),
                ""
            );
            let other = answer_to(
                addr,
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            );
            assert!(other.ends_with("GET / "));
        });
    });
}

/// A request that is being answered at the stop is answered, and told to be the last; so is one on a connection that
/// was idle.
#[test]
fn the_stop_loses_no_request() {
    let _guard = hang_guard();
    run(2, || {
        let (begun, begins) = channel::bounded::<()>(1);
        let (waits, goes_on) = channel::bounded::<()>(1);
        let handle = move |request: Request<Bytes>| {
            if request.uri().path() == "/slow" {
                begun.send(()).unwrap();
                goes_on.recv().unwrap();
            }
            echo(request)
        };
        with_handler(Http::new(), handle, |addr, server| {
            let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            let mut kept = TcpStream::connect(addr).unwrap();
            kept.write_all(get("/a").as_bytes()).unwrap();
            until(&mut kept, "GET /a ");
            let slow = windlass::spawn(move || answer_to(addr, &get("/slow")));
            begins.recv().unwrap();
            server.stop();
            kept.write_all(b"GET /late HTTP/1.1\r\nHost: a\r\n\r\n")
                .unwrap();
            let mut last = String::new();
            kept.read_to_string(&mut last).unwrap();
            waits.send(()).unwrap();
            for (answer, path) in [(last, "/late"), (slow.join().unwrap(), "/slow")] {
                assert!(answer.contains("connection: close\r\n"), "{answer}");
                assert!(answer.ends_with(&format!("GET {path} ")), "{answer}");
            }
        });
    });
}

/// The end of a shutdown's patience is that of a connection whose client says nothing.
#[test]
fn a_shutdown_ends_connections() {
    let _guard = hang_guard();
    run(2, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = Graceful::new();
        let serving = server.clone();
        let served = windlass::spawn(move || windlass_hyper::serve(listener, &serving, echo));
        let mut stream = TcpStream::connect(addr).unwrap();
        stream
            .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n")
            .unwrap();
        util::wait_until(|| server.n_members() == 1);
        assert_eq!(server.shutdown(SHORT).unwrap_err().n_left, 1);
        util::wait_until(|| server.n_members() == 0);
        served.join().unwrap().unwrap();
    });
}

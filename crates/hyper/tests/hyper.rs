//! hyper over windlass-hyper: server and client, both versions of HTTP, timeouts, and
//! curl.

#[path = "../../../examples/support/serve.rs"]
mod serve;
#[path = "../../../examples/support/finish.rs"]
mod finish;
#[path = "../../../examples/tests/examples/server.rs"]
mod server;
#[path = "../../../examples/hyper/mod.rs"]
mod serving;
#[path = "../../../tests/util/temp.rs"]
mod temp;
#[path = "../../../tests/util/mod.rs"]
mod util;

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures::future::{Either, select};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper::rt::{Read as _, ReadBuf, Timer as _, Write as _};
use hyper::{Method, Request, StatusCode};
use windlass::future::{self, block_on};
use windlass::net::{Graceful, TcpListener, TcpStream, UnixStream};
use windlass_hyper::{Executor, Io, Timer};

use server::{Server, foreign_prints};
use util::run;

fn start(is_http2: bool) -> Server {
    Server::start(move |listener| serving::serve(listener, &Graceful::new(), is_http2).unwrap())
}

fn request(method: Method, path: &str, body: Vec<u8>) -> Request<Full<Bytes>> {
    let uri = format!("http://localhost{path}");
    Request::builder()
        .method(method)
        .uri(uri)
        .header("host", "localhost")
        .body(Full::from(body))
        .unwrap()
}

/// A body of which each byte says where it belongs.
fn long_body() -> Vec<u8> {
    (0..3_000_000_u32).map(|n| (n % 251) as u8).collect()
}

#[test]
fn client_and_server_speak_http1() {
    let server = start(false);
    run(2, || {
        block_on(async {
            let io = Io::new(TcpStream::connect(server.addr).unwrap());
            let (mut sender, connection) = http1::handshake(io).await.unwrap();
            let driver = future::spawn(connection);
            for _ in 0..20 {
                sender.ready().await.unwrap();
                let answer = sender
                    .send_request(request(Method::GET, "/", Vec::new()))
                    .await
                    .unwrap();
                assert_eq!(answer.status(), StatusCode::OK);
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(&body[..], b"Hello, World!");
            }
            // Server and client both read and write meanwhile.
            sender.ready().await.unwrap();
            let answer = sender
                .send_request(request(Method::POST, "/echo", long_body()))
                .await
                .unwrap();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert!(body == long_body());
            drop(sender);
            driver.join().unwrap().unwrap();
        });
    });
}

#[test]
fn client_and_server_speak_http2() {
    let server = start(true);
    run(2, || {
        block_on(async {
            let io = Io::new(TcpStream::connect(server.addr).unwrap());
            let (sender, connection) = http2::handshake(Executor::new(), io).await.unwrap();
            let driver = future::spawn(connection);
            // Many at once on one connection.
            let asked: Vec<_> = (0..20)
                .map(|i| {
                    let mut sender = sender.clone();
                    future::spawn(async move {
                        let body = vec![i; 100_000];
                        sender.ready().await.unwrap();
                        let answer = sender
                            .send_request(request(Method::POST, "/echo", body.clone()))
                            .await
                            .unwrap();
                        let echoed = answer.into_body().collect().await.unwrap().to_bytes();
                        assert!(echoed == body);
                    })
                })
                .collect();
            for asked in asked {
                asked.join().unwrap();
            }
            drop(sender);
            driver.join().unwrap().unwrap();
        });
    });
}

#[test]
fn curl_speaks_to_it() {
    let server = start(false);
    let url = |path: &str| format!("http://{}{path}", server.addr);
    let common = ["--silent", "--show-error", "--fail"];
    let Some(printed) = foreign_prints("curl", &[&common[..], &[&url("/"), &url("/")]].concat())
    else {
        return;
    };
    assert_eq!(printed, "Hello, World!Hello, World!");
    let dir = temp::TempDir::new();
    let (sent, got) = (dir.path().join("sent"), dir.path().join("got"));
    std::fs::write(&sent, long_body()).unwrap();
    let at = format!("@{}", sent.to_str().unwrap());
    let echo = [
        "--data-binary",
        &at,
        "--output",
        got.to_str().unwrap(),
        &url("/echo"),
    ];
    foreign_prints("curl", &[&common[..], &echo].concat()).unwrap();
    assert!(std::fs::read(&got).unwrap() == long_body());

    let server = start(true);
    let url = |path: &str| format!("http://{}{path}", server.addr);
    let knows = foreign_prints("curl", &["--version"])
        .unwrap()
        .contains("HTTP2");
    if !knows {
        eprintln!("SKIPPED: this curl does not know HTTP/2");
        return;
    }
    let common = [&common[..], &["--http2-prior-knowledge"]].concat();
    // One a time: curl 7.88 fails when it uses such a connection again.
    let printed = foreign_prints("curl", &[&common[..], &[&url("/")]].concat()).unwrap();
    assert_eq!(printed, "Hello, World!");
    let echo = [
        "--data-binary",
        &at,
        "--output",
        got.to_str().unwrap(),
        &url("/echo"),
    ];
    foreign_prints("curl", &[&common[..], &echo].concat()).unwrap();
    assert!(std::fs::read(&got).unwrap() == long_body());
}

#[test]
fn what_is_no_http_is_sent_away() {
    for is_http2 in [false, true] {
        let server = start(is_http2);
        server.ask(b"\x00\x01\x02 nonsense\r\n\r\n");
        server.ask(&[b'x'; 1_000_000]);
        server.ask(b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n");
        server.ask(b"");
        assert!(
            server
                .ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                .starts_with(b"HTTP/1.1 200")
                != is_http2
        );
    }
}

#[test]
fn a_client_that_sends_no_head_is_cut_off() {
    run(2, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        peer.write_all(b"GET / HT").unwrap();
        let (stream, _) = listener.accept().unwrap();
        let service = hyper::service::service_fn(|_| async {
            Ok::<_, std::io::Error>(hyper::Response::new(String::new()))
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(Timer::new())
            .header_read_timeout(Duration::from_millis(20))
            .serve_connection(Io::new(stream), service);
        assert!(block_on(connection).unwrap_err().is_timeout());
        peer.read_to_end(&mut Vec::new()).unwrap();
    });
}

#[test]
fn a_sleep_ends_when_it_is_time() {
    run(2, || {
        let begin = Instant::now();
        block_on(Timer::new().sleep(Duration::from_millis(5)));
        assert!(begin.elapsed() >= Duration::from_millis(5));
        block_on(Timer::new().sleep_until(begin));
        // Of two the sooner.
        let soon = Timer::new().sleep(Duration::from_millis(5));
        let never = Timer::new().sleep(Duration::MAX);
        assert!(matches!(block_on(select(never, soon)), Either::Right(_)));
        // Polled again, also by others, it wakes the last who asked.
        let mut sleep = Timer::new().sleep(Duration::from_millis(20));
        let tick = Timer::new().sleep(Duration::from_millis(1));
        block_on(select(sleep.as_mut(), tick));
        future::spawn(sleep).join().unwrap();
    });
}

/// Reads some bytes by hand.
async fn read(io: &mut Io, n: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; n];
    let mut buf = ReadBuf::new(&mut bytes);
    std::future::poll_fn(|cx| Pin::new(&mut *io).poll_read(cx, buf.unfilled())).await?;
    Ok(buf.filled().to_vec())
}

#[test]
fn a_read_and_a_write_wait_at_the_same_time() {
    run(2, || {
        let (a, b) = UnixStream::pair().unwrap();
        let mut a = Io::new(a);
        let n_written = block_on(async {
            let chunk = [7; 10_000];
            let mut n = 0;
            // Until the socket is full; the read waits, too.
            std::future::poll_fn(|cx| {
                let mut byte = [0];
                let mut buf = ReadBuf::new(&mut byte);
                assert!(Pin::new(&mut a).poll_read(cx, buf.unfilled()).is_pending());
                while let std::task::Poll::Ready(wrote) = Pin::new(&mut a).poll_write(cx, &chunk) {
                    n += wrote.unwrap();
                }
                std::task::Poll::Ready(())
            })
            .await;
            n
        });
        let reader = windlass::spawn(move || {
            let mut b = b;
            let mut all = vec![0; n_written];
            b.read_exact(&mut all).unwrap();
            b.write_all(b"!").unwrap();
            let mut rest = Vec::new();
            b.read_to_end(&mut rest).unwrap();
            rest
        });
        block_on(async {
            assert_eq!(read(&mut a, 10).await.unwrap(), b"!");
            let bufs = [b"ab".as_slice(), b"", b"cd"].map(std::io::IoSlice::new);
            assert!(a.is_write_vectored());
            let n = std::future::poll_fn(|cx| Pin::new(&mut a).poll_write_vectored(cx, &bufs))
                .await
                .unwrap();
            assert_eq!(n, 4);
            std::future::poll_fn(|cx| Pin::new(&mut a).poll_flush(cx))
                .await
                .unwrap();
            std::future::poll_fn(|cx| Pin::new(&mut a).poll_shutdown(cx))
                .await
                .unwrap();
            assert_eq!(read(&mut a, 10).await.unwrap(), b"");
        });
        assert_eq!(reader.join().unwrap(), b"abcd");
    });
}

#[test]
fn a_dropped_socket_leaves_nobody_waiting() {
    run(2, || {
        let (a, mut b) = UnixStream::pair().unwrap();
        let mut a = Io::new(a);
        let tick = Timer::new().sleep(Duration::from_millis(1));
        block_on(select(Box::pin(read(&mut a, 10)), tick));
        drop(a);
        // The goroutine that waited has the socket no more.
        assert_eq!(b.read(&mut [0]).unwrap(), 0);
    });
}

/// With and without a goroutine that waits for it.
/// A wait that the end of a run cuts short does not keep the next run from waiting.
/// Time stamps of what was sent are in the socket's error queue, for which `poll(2)` reports an error for
/// as long as nobody takes them.
#[test]
#[allow(unsafe_code)]
fn an_entry_in_the_error_queue_does_not_make_it_spin() {
    run(2, || {
        let (mut stream, mut peer) = util::pair();
        // SOF_TIMESTAMPING_TX_SOFTWARE, _SOFTWARE, _OPT_TSONLY
        let stamps: libc::c_int = 1 << 1 | 1 << 4 | 1 << 11;
        let (level, name) = (libc::SOL_SOCKET, libc::SO_TIMESTAMPING);
        // SAFETY: the value is valid, and of the size that is stated.
        let set = unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                level,
                name,
                (&raw const stamps).cast(),
                4,
            )
        };
        assert_eq!(set, 0);
        stream.write_all(b"?").unwrap();
        peer.read_exact(&mut [0]).unwrap();
        util::wait_until(|| {
            let (fd, events, revents) = (stream.as_raw_fd(), libc::POLLIN, 0);
            let mut poll = libc::pollfd {
                fd,
                events,
                revents,
            };
            // SAFETY: one structure, which is valid.
            unsafe { libc::poll(&raw mut poll, 1, 0) };
            poll.revents == libc::POLLERR
        });
        let late = windlass::spawn(move || {
            windlass::sleep(Duration::from_millis(100));
            peer.write_all(b"!").unwrap();
            peer
        });
        let mut io = Io::new(stream);
        let (mut byte, mut n_polls) = ([0], 0);
        let mut buf = ReadBuf::new(&mut byte);
        block_on(std::future::poll_fn(|cx| {
            n_polls += 1;
            Pin::new(&mut io).poll_read(cx, buf.unfilled())
        }))
        .unwrap();
        assert_eq!(buf.filled(), b"!");
        assert!(n_polls < 50, "{n_polls}");
        late.join().unwrap();
    });
}

#[test]
fn a_socket_outlives_the_run_in_which_it_waited() {
    let (server, mut client) = UnixStream::pair().unwrap();
    let mut io = Io::new(server);
    let mut byte = [0];
    run(2, || {
        let poll_once = std::future::poll_fn(|cx| {
            let mut buf = ReadBuf::new(&mut byte);
            let read = Pin::new(&mut io).poll_read(cx, buf.unfilled());
            Poll::Ready(read.is_pending())
        });
        assert!(block_on(poll_once));
        // The goroutine waits for the socket by now, or is cancelled before it does.
        windlass::yield_now();
    });
    run(2, || {
        let client = windlass::spawn(move || {
            windlass::sleep(Duration::from_millis(20));
            client.write_all(b"x").unwrap();
        });
        let read = std::future::poll_fn(|cx| {
            let mut buf = ReadBuf::new(&mut byte);
            Pin::new(&mut io).poll_read(cx, buf.unfilled())
        });
        block_on(read).unwrap();
        client.join().unwrap();
    });
    assert_eq!(byte, *b"x");
}

#[test]
fn a_socket_comes_back() {
    run(2, || {
        for waits in [false, true] {
            let (a, mut b) = UnixStream::pair().unwrap();
            let mut a = Io::new(a);
            if waits {
                let tick = Timer::new().sleep(Duration::from_millis(1));
                block_on(select(Box::pin(read(&mut a, 10)), tick));
            }
            let mut a = UnixStream::from(a.into_fd().unwrap());
            b.write_all(b"to a").unwrap();
            a.read_exact(&mut [0; 4]).unwrap();
            a.write_all(b"to b").unwrap();
            b.read_exact(&mut [0; 4]).unwrap();
            drop(a);
            // No other descriptor is left.
            assert_eq!(b.read(&mut [0]).unwrap(), 0);
        }
    });
}

/// Reads a head of HTTP/1.
fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// The server's side and the client's side of an upgrade, with bytes right behind the request.
#[test]
fn an_upgraded_connection_is_a_socket_again() {
    run(2, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (tell, told) = windlass::channel::bounded(1);
        let server = windlass::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let service = hyper::service::service_fn(move |mut request: Request<_>| {
                let upgrade = hyper::upgrade::on(&mut request);
                tell.send(upgrade).unwrap();
                let response = hyper::Response::builder()
                    .status(StatusCode::SWITCHING_PROTOCOLS)
                    .header("connection", "upgrade")
                    .header("upgrade", "shout")
                    .body(String::new());
                std::future::ready(response)
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(Io::new(stream), service)
                .with_upgrades();
            block_on(connection).unwrap();
            let parts = block_on(told.recv().unwrap())
                .unwrap()
                .downcast::<Io>()
                .unwrap();
            let mut stream = TcpStream::from(parts.io.into_fd().unwrap());
            let mut text = parts.read_buf.to_vec();
            stream.read_to_end(&mut text).unwrap();
            text.make_ascii_uppercase();
            stream.write_all(&text).unwrap();
        });
        let mut stream = TcpStream::connect(addr).unwrap();
        let head = "GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: shout\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(b"early").unwrap();
        assert!(read_head(&mut stream).starts_with("HTTP/1.1 101 "));
        stream.write_all(b", late").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "EARLY, LATE");
        server.join().unwrap();
    });
}

/// With HTTP/2 a request that waits as goroutines do delays no other on its connection.
#[test]
fn a_service_that_waits_delays_only_itself() {
    run(2, || {
        let (a, b) = UnixStream::pair().unwrap();
        let (tell, told) = windlass::channel::bounded::<()>(0);
        let server = windlass::spawn(move || {
            let service = hyper::service::service_fn(move |request: Request<_>| {
                let (tell, told) = (tell.clone(), told.clone());
                async move {
                    drop::<Request<hyper::body::Incoming>>(request);
                    // Each waits for the other, whichever comes first.
                    windlass::channel::select! {
                        send(tell, ()) -> sent => sent.unwrap(),
                        recv(told) -> received => received.unwrap(),
                    }
                    Ok::<_, std::io::Error>(hyper::Response::new(String::new()))
                }
            });
            let connection = hyper::server::conn::http2::Builder::new(Executor::new())
                .timer(Timer::new())
                .keep_alive_interval(Duration::from_secs(60))
                .serve_connection(Io::new(a), service);
            let _ = block_on(connection);
        });
        block_on(async {
            let (mut sender, connection) =
                http2::handshake(Executor::new(), Io::new(b)).await.unwrap();
            let driver = future::spawn(connection);
            sender.ready().await.unwrap();
            let first = sender.send_request(request(Method::GET, "/1", Vec::new()));
            let second = sender.send_request(request(Method::GET, "/2", Vec::new()));
            let (first, second) = (future::spawn(first), future::spawn(second));
            for answer in [first, second] {
                assert_eq!(answer.join().unwrap().unwrap().status(), StatusCode::OK);
            }
            drop(sender);
            driver.join().unwrap().unwrap();
        });
        server.join().unwrap();
    });
}

#[test]
fn a_peer_that_is_gone_is_an_error_and_no_signal() {
    run(1, || {
        let (a, b) = UnixStream::pair().unwrap();
        drop(b);
        let mut a = Io::new(a);
        let wrote = block_on(std::future::poll_fn(|cx| {
            Pin::new(&mut a).poll_write(cx, b"x")
        }));
        assert_eq!(wrote.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
        block_on(std::future::poll_fn(|cx| {
            Pin::new(&mut a).poll_shutdown(cx)
        }))
        .unwrap();
    });
}

#[test]
fn connections_end_with_the_run() {
    let server = start(false);
    let mut idle = server.connect();
    idle.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    idle.read_exact(&mut [0; 10]).unwrap();
    drop(server);
    let _ = idle.read_to_end(&mut Vec::new());
}

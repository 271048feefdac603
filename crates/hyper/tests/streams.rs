//! Bodies that come bit by bit, both ways: clients that are slow, and clients that go away.

#[path = "../../../tests/util/mod.rs"]
mod util;

mod server;

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use windlass::channel;
use windlass::future::{self, block_on};
use windlass::net::{Graceful, TcpStream};
use windlass_hyper::hyper::client::conn::http2;
use windlass_hyper::hyper::{Request, Response, body::Bytes};
use windlass_hyper::{Body, Executor, Http, Io, RequestBody};

use server::FOREVER;
use util::{run, wait_until};

/// A limit that is reached.
const SHORT: Duration = Duration::from_millis(50);

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const CHUNKED: &str =
    "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";

const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The head of a request of HTTP/2: GET, http, and a host.
const GET_2: [u8; 6] = [0x82, 0x84, 0x86, 0x41, 1, b'a'];

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u8;
    [&[0, 0, len, kind, flags], &id.to_be_bytes()[..], payload].concat()
}

/// A client of HTTP/2 that takes nothing of an answer until it opens a window.
fn ask_2(addr: SocketAddr) -> TcpStream {
    let mut stream = ask(addr, PREFACE);
    let no_window = [0, 4, 0, 0, 0, 0];
    stream.write_all(&frame(4, 0, 0, &no_window)).unwrap();
    stream.write_all(&frame(1, 5, 1, &GET_2)).unwrap();
    stream
}

/// The next frame that a server sends: its kind, its flags, its stream and what it says.
fn next_frame(stream: &mut TcpStream) -> io::Result<(u8, u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head)?;
    let [a, b, c, kind, flags, id @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    stream.read_exact(&mut payload)?;
    Ok((kind, flags, u32::from_be_bytes(id), payload))
}

/// Serves while `client` runs; then the server must end at once.
fn with_server(
    http: Http,
    handle: impl Fn(Request<RequestBody>) -> Response<Body> + Send + Sync + 'static,
    client: impl FnOnce(SocketAddr, &Graceful),
) {
    server::serve_while(
        move |listener, server| http.serve_streams(listener, server, handle),
        client,
    );
}

/// As above, with a handler that makes the same kind of answer each time, by both functions that serve.
fn with_answers(
    http: Http,
    body: impl Fn() -> Body + Send + Sync + 'static,
    client: impl Fn(SocketAddr, &Graceful),
) {
    let body = Arc::new(body);
    let same = Arc::clone(&body);
    with_server(http, move |_| Response::new(same()), &client);
    let answer = move |_: Request<Bytes>| Response::new(body());
    server::serve_while(
        move |listener, server| http.serve(listener, server, answer),
        client,
    );
}

fn ask(addr: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn rest(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    // A connection that is cut off may be reset.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
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

/// Sets its flag when it is dropped.
struct OnDrop(Arc<AtomicBool>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The client has each chunk before the next one is made, also where that takes longer than a connection may be idle.
#[test]
fn chunks_are_sent_when_they_are_made() {
    run(2, || {
        let (make, made) = channel::bounded::<&str>(0);
        let body = move || Body::chunks(made.clone().into_iter().map(Ok::<_, io::Error>).take(3));
        with_answers(Http::new().idle_timeout(4 * SHORT), body, |addr, _| {
            let mut stream = ask(addr, GET);
            for chunk in ["one", "", "three"] {
                windlass::sleep(6 * SHORT);
                make.send(chunk).unwrap();
                if !chunk.is_empty() {
                    until(&mut stream, &format!("{}\r\n{chunk}\r\n", chunk.len()));
                }
            }
            assert_eq!(rest(stream), "0\r\n\r\n");
        });
    });
}

#[test]
fn a_reader_is_a_body() {
    run(2, || {
        let body = || Body::reader(io::repeat(b'r').take(1_000_000));
        with_answers(Http::new(), body, |addr, _| {
            // Without chunks, as HTTP/1.0 has none.
            let answer = rest(ask(addr, "GET / HTTP/1.0\r\n\r\n"));
            let (_, body) = answer.split_once("\r\n\r\n").unwrap();
            assert_eq!(body.len(), 1_000_000);
            assert!(body.bytes().all(|byte| byte == b'r'));
        });
    });
}

/// The server makes what the client takes, and some chunks more, on HTTP/1.1.
#[test]
fn a_client_that_reads_slowly_slows_the_handler_down() {
    const MIB: usize = 1 << 20;
    /// More than the sockets' buffers have room for.
    const ROOM: usize = 64;
    const N: usize = 1000;
    run(2, || {
        let n_made = Arc::new(AtomicUsize::new(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let (made, over) = (Arc::clone(&n_made), Arc::clone(&is_over));
        let chunk = Bytes::from(vec![b'.'; MIB]);
        let body = move || {
            made.store(0, Ordering::SeqCst);
            over.store(false, Ordering::SeqCst);
            let (chunk, made) = (chunk.clone(), Arc::clone(&made));
            let on_drop = OnDrop(Arc::clone(&over));
            Body::chunks((0..N).map(move |_| {
                let _ = &on_drop;
                made.fetch_add(1, Ordering::SeqCst);
                Ok(chunk.clone())
            }))
        };
        with_answers(Http::new(), body, |addr, _| {
            let mut stream = ask(addr, GET);
            let mut buf = vec![0; MIB];
            stream.read_exact(&mut buf[..1]).unwrap();
            for n_read in 0..3 {
                // Until it makes no more.
                let mut seen = usize::MAX;
                wait_until(|| {
                    windlass::sleep(SHORT);
                    let before = std::mem::replace(&mut seen, n_made.load(Ordering::SeqCst));
                    before == seen
                });
                assert!(seen <= n_read + ROOM, "{seen} chunks, {n_read} read");
                assert!(!is_over.load(Ordering::SeqCst));
                stream.read_exact(&mut buf).unwrap();
            }
            // It goes away.
            drop(stream);
            wait_until(|| is_over.load(Ordering::SeqCst));
            assert!(n_made.load(Ordering::SeqCst) < N);
        });
    });
}

/// The same with HTTP/2: a stream that nobody takes stops its handler, one that is given up ends it.
#[test]
fn a_client_of_http2_that_goes_away() {
    run(2, || {
        let n_made = Arc::new(AtomicUsize::new(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let (made, over) = (Arc::clone(&n_made), Arc::clone(&is_over));
        let handle = move |_: Request<RequestBody>| {
            let (made, on_drop) = (Arc::clone(&made), OnDrop(Arc::clone(&over)));
            Response::new(Body::chunks((0..1_000_000).map(move |_| {
                let _ = &on_drop;
                made.fetch_add(1, Ordering::SeqCst);
                Ok(vec![b'.'; 1 << 16])
            })))
        };
        with_server(Http::new(), handle, |addr, _| {
            let io = Io::new(TcpStream::connect(addr).unwrap());
            let (mut sender, connection) =
                block_on(http2::handshake::<_, _, Empty<Bytes>>(Executor::new(), io)).unwrap();
            let connection = future::spawn(connection);
            let request = Request::get("http://a/").body(Empty::new()).unwrap();
            let mut body = block_on(sender.send_request(request)).unwrap().into_body();
            let frame = block_on(body.frame()).unwrap().unwrap();
            assert!(frame.is_data());
            assert!(!is_over.load(Ordering::SeqCst));
            drop(body);
            wait_until(|| is_over.load(Ordering::SeqCst));
            assert!(n_made.load(Ordering::SeqCst) < 1_000_000);
            drop(sender);
            connection.join().unwrap().unwrap();
        });
    });
}

/// A client that takes nothing for longer than a connection may be idle is cut off.
#[test]
fn a_client_that_takes_nothing_is_cut_off() {
    run(2, || {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let body = move || {
            over.store(false, Ordering::SeqCst);
            let on_drop = OnDrop(Arc::clone(&over));
            Body::reader(io::repeat(b'.').take(u64::MAX).chain(Kept(on_drop)))
        };
        with_answers(Http::new().idle_timeout(SHORT), body, |addr, _| {
            let mut stream = ask(addr, GET);
            stream.read_exact(&mut [0]).unwrap();
            wait_until(|| is_over.load(Ordering::SeqCst));
        });
    });
}

/// An end of a reader, which keeps something.
struct Kept(#[expect(dead_code, reason = "it is dropped")] OnDrop);

impl Read for Kept {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }
}

/// The end is missing, so that the client knows.
#[test]
fn an_error_and_a_panic_cut_the_answer_off() {
    run(2, || {
        let error = || {
            let chunks = [
                Ok("first"),
                Err(io::Error::other("as planned")),
                Ok("never"),
            ];
            Body::chunks(chunks)
        };
        let panic = || {
            Body::chunks((0..2).map(|i| match i {
                0 => Ok("first"),
                _ => std::panic::resume_unwind(Box::new("as planned")),
            }))
        };
        let check = |addr, _: &Graceful| {
            let answer = rest(ask(addr, GET));
            // The first chunk may be lost as well.
            assert!(!answer.contains("\r\n0\r\n\r\n"), "{answer}");
            assert!(!answer.contains("never"), "{answer}");
        };
        with_answers(Http::new(), error, check);
        with_answers(Http::new(), panic, check);
        // A handler that panics gives no answer at all.
        let handle = |_: Request<RequestBody>| std::panic::resume_unwind(Box::new("as planned"));
        with_server(Http::new(), handle, |addr, _| {
            assert_eq!(rest(ask(addr, GET)), "");
        });
    });
}

/// What was asked before the stop is sent to its end.
#[test]
fn a_stop_waits_for_the_end_of_an_answer() {
    run(2, || {
        let (make, made) = channel::bounded::<&str>(0);
        let handle = move |_: Request<RequestBody>| {
            let made = made.clone().into_iter().take(2);
            Response::new(Body::chunks(made.map(Ok::<_, io::Error>)))
        };
        with_server(Http::new(), handle, |addr, server| {
            let mut stream = ask(addr, GET);
            make.send("one").unwrap();
            until(&mut stream, "3\r\none\r\n");
            server.stop();
            windlass::sleep(SHORT);
            make.send("two").unwrap();
            assert_eq!(rest(stream), "3\r\ntwo\r\n0\r\n\r\n");
        });
    });
}

/// A handler has each part of a body as soon as it has come.
#[test]
fn a_request_is_read_while_it_arrives() {
    run(2, || {
        let (tell, told) = channel::unbounded();
        let handle = move |request: Request<RequestBody>| {
            let (tell, mut body) = (tell.clone(), request.into_body());
            let mut n = 0;
            while let Some(chunk) = body.chunk().unwrap() {
                n += chunk.len();
                tell.send(chunk).unwrap();
            }
            Response::new(format!("{n} bytes").into())
        };
        with_server(Http::new(), handle, |addr, _| {
            let mut stream = ask(addr, CHUNKED);
            for part in ["one", "three"] {
                write!(stream, "{:x}\r\n{part}\r\n", part.len()).unwrap();
                assert_eq!(told.recv().unwrap(), part);
            }
            stream.write_all(b"0\r\n\r\n").unwrap();
            assert!(rest(stream).ends_with("\r\n\r\n8 bytes"));
        });
    });
}

/// What a handler gets from a body, and what its client does.
#[test]
fn a_request_that_does_not_end_well() {
    run(2, || {
        let (tell, told) = channel::unbounded();
        let calls = Arc::new(AtomicUsize::new(0));
        let called = Arc::clone(&calls);
        let handle = move |request: Request<RequestBody>| {
            called.fetch_add(1, Ordering::SeqCst);
            let mut whole = String::new();
            let read = request.into_body().read_to_string(&mut whole);
            tell.send(read.map_err(|e| e.kind())).unwrap();
            Response::new(Body::from(whole))
        };
        let http = Http::new().max_body(8).body_timeout(SHORT);
        with_server(http, handle, |addr, _| {
            // Its length is known: the handler is not called.
            let long = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n";
            assert!(rest(ask(addr, long)).starts_with("HTTP/1.1 413 "));
            assert_eq!(calls.load(Ordering::SeqCst), 0);
            let whole = format!("{CHUNKED}8\r\n12345678\r\n0\r\n\r\n");
            assert!(rest(ask(addr, &whole)).ends_with("12345678"));
            assert_eq!(told.recv().unwrap(), Ok(8));
            // A byte more than the limit.
            let stream = ask(
                addr,
                &format!("{CHUNKED}4\r\n1234\r\n5\r\n56789\r\n0\r\n\r\n"),
            );
            assert_eq!(told.recv().unwrap(), Err(ErrorKind::FileTooLarge));
            drop(stream);
            // Silence.
            let stream = ask(addr, &format!("{CHUNKED}4\r\n1234\r\n"));
            assert_eq!(told.recv().unwrap(), Err(ErrorKind::TimedOut));
            drop(stream);
        });
        let (tell, told) = channel::unbounded();
        let handle = move |request: Request<RequestBody>| {
            let read = request.into_body().read_to_end(&mut Vec::new());
            tell.send(read.is_err()).unwrap();
            Response::new("".into())
        };
        with_server(Http::new().body_timeout(FOREVER), handle, |addr, _| {
            // The client goes away in the middle.
            drop(ask(addr, &format!("{CHUNKED}4\r\n12")));
            assert!(told.recv().unwrap());
        });
    });
}

/// A socket that is closed with bytes of a request in it would be reset, and what the client has not got yet lost.
#[test]
fn an_answer_arrives_whole_though_its_request_was_not_read() {
    const BYTES: usize = 12 << 20;
    run(2, || {
        let handle = |_: Request<RequestBody>| Response::new(Body::from(vec![b'.'; BYTES]));
        with_server(Http::new(), handle, |addr, _| {
            for n_sent in [10, 50_000] {
                let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n";
                let mut stream = ask(addr, &format!("{head}{}", "x".repeat(n_sent)));
                until(&mut stream, "\r\n\r\n");
                let (mut n, mut bytes) = (0, vec![0; 1 << 20]);
                while let more @ 1.. = stream.read(&mut bytes).expect("it is reset") {
                    n += more;
                    // The server is ahead by what the sockets have room for.
                    windlass::sleep(SHORT / 5);
                }
                assert_eq!(n, BYTES);
            }
        });
    });
}

/// The bytes of a body are no head of a request, also while the client has to take something of the answer first.
#[test]
fn a_body_that_comes_during_its_answer_has_no_deadline_of_a_head() {
    const CHUNK_BYTES: usize = 16 << 20;
    run(2, || {
        let (took, taken) = channel::bounded::<()>(10);
        let handle = move |request: Request<RequestBody>| {
            let (mut body, took) = (request.into_body(), took.clone());
            Response::new(Body::chunks(std::iter::from_fn(move || {
                let chunk = body.chunk().transpose()?;
                took.send(()).unwrap();
                Some(chunk.map(|_| vec![b'.'; CHUNK_BYTES]))
            })))
        };
        with_server(Http::new().head_timeout(SHORT), handle, |addr, _| {
            let head =
                "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 4\r\n\r\n";
            let mut stream = ask(addr, head);
            for _ in 0..3 {
                stream.write_all(b"x").unwrap();
                taken.recv().unwrap();
            }
            // The third chunk waits: the client has not taken the first.
            windlass::sleep(SHORT);
            stream.write_all(b"x").unwrap();
            windlass::sleep(4 * SHORT);
            let answer = rest(stream);
            assert!(answer.len() > 4 * CHUNK_BYTES, "{}", answer.len());
            assert!(answer.ends_with("\r\n0\r\n\r\n"));
        });
    });
}

/// HTTP/2 bounds the requests that are open, not those that the client has taken back and whose handlers still run.
#[test]
fn requests_that_are_taken_back_keep_no_more_than_1000_handlers_busy() {
    enum Event {
        Handled,
        Closed,
    }
    run(2, || {
        let (event, events) = channel::bounded(10);
        let (release, released) = channel::bounded::<()>(1);
        let handling = event.clone();
        let handle = move |_: Request<RequestBody>| {
            handling.send(Event::Handled).unwrap();
            assert!(released.recv().is_err());
            Response::new(Body::from(""))
        };
        with_server(Http::new(), handle, |addr, _| {
            let mut stream = ask(addr, PREFACE);
            let answers = stream.try_clone().unwrap();
            windlass::spawn(move || {
                rest(answers);
                event.send(Event::Closed).unwrap();
            });
            let cancel = 8_u32.to_be_bytes();
            stream.write_all(&frame(4, 0, 0, &[])).unwrap();
            for i in 0..1000 {
                let id = 2 * i + 1;
                stream.write_all(&frame(1, 5, id, &GET_2)).unwrap();
                assert!(matches!(events.recv(), Ok(Event::Handled)), "{i}");
                stream.write_all(&frame(3, 0, id, &cancel)).unwrap();
            }
            stream.write_all(&frame(1, 5, 2001, &GET_2)).unwrap();
            assert!(matches!(events.recv(), Ok(Event::Closed)));
            drop(release);
        });
    });
}

/// Pings and the like show that a client is there, not that it takes its answer or asks for something.
#[test]
fn frames_that_say_nothing_keep_no_connection() {
    run(2, || {
        let ping = frame(6, 0, 0, &[0; 8]);
        let settings = frame(4, 0, 0, &[]);
        let window = frame(8, 0, 0, &[0, 0, 0, 1]);
        let unknown = frame(99, 0, 1, &[]);
        let http = Http::new().idle_timeout(SHORT);
        let part = || Ok::<_, io::Error>(vec![b'.'; 1 << 10]);
        for make in [
            (|_| Body::from("whole")) as fn(_) -> Body,
            |part: fn() -> io::Result<Vec<u8>>| Body::chunks((0..10).map(move |_| part())),
        ] {
            with_answers(
                http,
                move || make(part),
                |addr, _| {
                    for stays in [&ping, &settings, &window, &unknown] {
                        // One that has asked for nothing, and one that takes nothing.
                        for mut stream in [ask(addr, PREFACE), ask_2(addr)] {
                            stream.write_all(&frame(4, 0, 0, &[])).unwrap();
                            let mut answers = stream.try_clone().unwrap();
                            let reading =
                                windlass::spawn(move || while next_frame(&mut answers).is_ok() {});
                            while stream.write_all(stays).is_ok() {
                                windlass::sleep(Duration::from_millis(2));
                            }
                            reading.join().unwrap();
                        }
                    }
                },
            );
        }
    });
}

/// A client that does not say that it has understood, goes on to ask, and has no end of pings.
#[test]
fn a_client_of_http2_that_ignores_the_stop_is_left() {
    run(2, || {
        with_answers(
            Http::new(),
            || Body::from("answer"),
            |addr, server| {
                let mut stream = ask(addr, PREFACE);
                stream.write_all(&frame(4, 0, 0, &[])).unwrap();
                stream.write_all(&frame(1, 5, 1, &GET_2)).unwrap();
                while !matches!(next_frame(&mut stream).unwrap(), (0, 1, 1, _)) {}
                server.stop();
                let mut answers = stream.try_clone().unwrap();
                windlass::spawn(move || while next_frame(&mut answers).is_ok() {});
                windlass::spawn(move || {
                    for id in (3..).step_by(2) {
                        let ask = [frame(6, 0, 0, &[0; 8]), frame(1, 5, id, &GET_2)].concat();
                        if stream.write_all(&ask).is_err() {
                            break;
                        }
                        windlass::sleep(Duration::from_millis(1));
                    }
                });
            },
        );
    });
}

/// An answer that was asked for before the stop is the client's, also if it takes it late and says nothing of the stop.
#[test]
fn a_stop_waits_for_a_client_of_http2_that_is_late() {
    const BYTES: usize = 40_000;
    run(2, || {
        let body = || Body::from(vec![b'.'; BYTES]);
        with_answers(Http::new(), body, |addr, server| {
            let mut stream = ask_2(addr);
            // The head of the answer.
            while next_frame(&mut stream).unwrap().0 != 1 {}
            server.stop();
            // For longer than clients have time to say that they have understood.
            windlass::sleep(Duration::from_millis(800));
            stream
                .write_all(&frame(8, 0, 1, &(BYTES as u32).to_be_bytes()))
                .unwrap();
            let mut n = 0;
            loop {
                let (kind, flags, _, payload) = next_frame(&mut stream).unwrap();
                if kind == 0 {
                    n += payload.len();
                    if flags & 1 == 1 {
                        break;
                    }
                }
            }
            assert_eq!(n, BYTES);
        });
    });
}

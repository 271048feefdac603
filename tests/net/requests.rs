//! Servers whose connections have a stack only while they work on a request.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::util::{Census, hang_guard, is_simulated, much, run, wait_until};
use windlass::channel::bounded;
use windlass::context::{self, Context, Error};
use windlass::net::{Graceful, Next, TcpListener, TcpStream, UnixListener, UnixStream};
use windlass::task::{self, Builder, JoinHandle};
use windlass::time::Duration;
use windlass::{Handle, spawn, yield_now};

const FOREVER: Duration = Duration::from_secs(1 << 30);
const MOMENT: Duration = Duration::from_millis(2);

struct Server {
    server: Graceful,
    addr: SocketAddr,
    ended: JoinHandle<io::Result<()>>,
}

impl Server {
    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).unwrap()
    }

    fn shut_down(self) {
        self.server.stop();
        self.ended.join().unwrap().unwrap();
        assert_eq!(self.server.shutdown(FOREVER), Ok(()));
        assert_eq!(self.server.n_members(), 0);
    }
}

fn start<S, H>(server: Graceful, patience: Duration, state: S, handle: H) -> Server
where
    S: Clone + Send + 'static,
    H: Fn(&TcpStream, &mut S) -> io::Result<Next> + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let serving = server.clone();
    let ended = spawn(move || {
        let make = |_: &TcpStream| Ok(state.clone());
        serving.serve_requests(listener, patience, make, handle)
    });
    Server {
        server,
        addr,
        ended,
    }
}

/// Reads up to 64 bytes; none at the end of the stream.
fn read(mut stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = [0; 64];
    let n = stream.read(&mut bytes)?;
    Ok(bytes[..n].to_vec())
}

/// Answers bytes with themselves and the number of requests so far.
fn echo(mut stream: &TcpStream, n: &mut u8) -> io::Result<Next> {
    let bytes = read(stream)?;
    if bytes.is_empty() {
        return Ok(Next::Close);
    }
    *n += 1;
    for byte in bytes {
        stream.write_all(&[byte, *n])?;
    }
    Ok(Next::Request)
}

fn ask(client: &mut TcpStream, byte: u8) -> u8 {
    client.write_all(&[byte]).unwrap();
    let mut answer = [0; 2];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer[0], byte);
    answer[1]
}

fn is_closed(client: &mut TcpStream) -> bool {
    client.read(&mut [0]).is_ok_and(|n| n == 0)
}

/// Connections that wait for a request, and have no stack.
fn idle() -> usize {
    let dump = Handle::current().dump();
    let idle = Some("IO wait without a stack");
    dump.goroutines
        .iter()
        .filter(|g| g.wait_reason == idle)
        .count()
}

#[test]
fn a_connection_keeps_its_state_between_requests() {
    run(2, || {
        let server = start(Graceful::with_grace(MOMENT), FOREVER, 0, echo);
        let mut clients: Vec<_> = (0..10).map(|_| server.connect()).collect();
        for n in 1..=much(20, 5) as u8 {
            for (i, client) in clients.iter_mut().enumerate() {
                assert_eq!(ask(client, i as u8), n);
            }
        }
        if !is_simulated() {
            wait_until(|| idle() == 10);
        }
        clients.truncate(4);
        wait_until(|| server.server.n_members() == 4);
        server.shut_down();
        assert!(clients.iter_mut().all(is_closed));
    });
}

#[test]
fn over_unix_sockets() {
    let _guard = hang_guard();
    run(2, || {
        let path = std::env::temp_dir().join(format!("windlass-requests-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let server = Graceful::with_grace(MOMENT);
        let serving = server.clone();
        let ended = spawn(move || {
            let handle = |mut stream: &UnixStream, (): &mut ()| {
                let mut byte = [0];
                stream.read_exact(&mut byte)?;
                stream.write_all(&byte)?;
                Ok(Next::Request)
            };
            serving.serve_requests(listener, FOREVER, |_| Ok(()), handle)
        });
        let mut client = UnixStream::connect(&path).unwrap();
        for byte in 0..10 {
            client.write_all(&[byte]).unwrap();
            let mut answer = [0];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [byte]);
        }
        server.stop();
        ended.join().unwrap().unwrap();
        assert_eq!(server.shutdown(FOREVER), Ok(()));
        std::fs::remove_file(&path).unwrap();
    });
}

/// The handler may close, fail and panic: that ends its connection, and no other one.
#[test]
fn the_end_of_one_connection_concerns_no_other() {
    run(2, || {
        let census = Census::default();
        let states = census.clone();
        let handle = move |mut stream: &TcpStream, state: &mut Option<crate::util::Member>| {
            state.get_or_insert_with(|| states.member());
            match read(stream)?.first() {
                Some(b'c') => return Ok(Next::Close),
                Some(b'f') => return Err(ErrorKind::InvalidData.into()),
                Some(b'p') => panic!("of the handler"),
                _ => stream.write_all(b"ok")?,
            }
            Ok(Next::Request)
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = Graceful::with_grace(MOMENT);
        let serving = server.clone();
        let ended = spawn(move || serving.serve_requests(listener, FOREVER, |_| Ok(None), handle));
        let ok = |client: &mut TcpStream| {
            client.write_all(b"x").unwrap();
            let mut answer = [0; 2];
            client.read_exact(&mut answer).unwrap();
        };
        let mut stays = TcpStream::connect(addr).unwrap();
        ok(&mut stays);
        for end in [b"c", b"f", b"p"] {
            let mut client = TcpStream::connect(addr).unwrap();
            ok(&mut client);
            client.write_all(end).unwrap();
            assert!(is_closed(&mut client));
            ok(&mut stays);
        }
        wait_until(|| server.n_members() == 1);
        assert_eq!((census.made(), census.dropped()), (4, 3));
        server.stop();
        ended.join().unwrap().unwrap();
        assert_eq!(server.shutdown(FOREVER), Ok(()));
        census.assert_all_dropped(4);
    });
}

/// With a grace that does not end, every request that a client sends is answered.
#[test]
fn requests_on_their_way_are_answered() {
    run(2, || {
        let server = start(Graceful::with_grace(FOREVER), FOREVER, 0, echo);
        let mut served = server.connect();
        ask(&mut served, 1);
        // Connections that nobody may have accepted yet.
        let queued: Vec<_> = (0..50).map(|_| server.connect()).collect();
        server.server.stop();
        server.ended.join().unwrap().unwrap();
        assert_eq!(server.server.n_members(), 51);
        for (i, mut client) in queued.into_iter().chain([served]).enumerate() {
            ask(&mut client, i as u8);
            ask(&mut client, 7);
        }
        assert_eq!(server.server.shutdown(FOREVER), Ok(()));
    });
}

#[test]
fn a_stop_ends_idle_connections_after_the_grace() {
    run(2, || {
        let server = start(Graceful::with_grace(MOMENT), FOREVER, 0, echo);
        let mut clients: Vec<_> = (0..20).map(|_| server.connect()).collect();
        for client in &mut clients {
            ask(client, 7);
        }
        assert_eq!(server.server.n_members(), 20);
        server.shut_down();
        assert!(clients.iter_mut().all(is_closed));
    });
}

/// A connection that always has bytes of a next request does not hold the stop.
#[test]
fn a_stop_ends_busy_connections_after_the_grace() {
    run(2, || {
        let n = Arc::new(AtomicUsize::new(0));
        let calls = Arc::clone(&n);
        let leaves_them = move |_: &TcpStream, _: &mut ()| {
            calls.fetch_add(1, Ordering::Relaxed);
            Ok(Next::Request)
        };
        let server = start(Graceful::with_grace(MOMENT), FOREVER, (), leaves_them);
        let mut client = server.connect();
        client.write_all(&[7]).unwrap();
        wait_until(|| n.load(Ordering::Relaxed) > 2);
        server.shut_down();
    });
}

/// Work goes on through the stop; only the deadline of a shutdown ends it.
#[test]
fn work_in_flight_is_finished_or_cut_off_at_the_deadline() {
    run(2, || {
        let (begun, begins) = bounded(0);
        let (open, gate) = bounded::<()>(0);
        let handle = move |mut stream: &TcpStream, (): &mut ()| {
            read(stream)?;
            begun.send(()).map_err(io::Error::other)?;
            // The stop does not end this wait; the deadline does.
            let opened = gate.recv();
            context::check()?;
            opened.map_err(io::Error::other)?;
            stream.write_all(b"done")?;
            Ok(Next::Request)
        };
        let server = start(Graceful::with_grace(Duration::ZERO), FOREVER, (), handle);
        let mut clients = [server.connect(), server.connect()];
        for client in &mut clients {
            client.write_all(b"x").unwrap();
            begins.recv().unwrap();
        }
        server.server.stop();
        open.send(()).unwrap();
        // On a busy machine the deadline would come before the answer.
        wait_until(|| server.server.n_members() == 1);
        let stopped = server.server.shutdown(MOMENT).unwrap_err();
        assert_eq!(stopped.n_left, 1);
        server.ended.join().unwrap().unwrap();
        wait_until(|| server.server.n_members() == 0);
        let answers = clients.map(|mut client| {
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            answer
        });
        let mut answers: Vec<_> = answers.iter().map(String::as_str).collect();
        answers.sort_unstable();
        assert_eq!(answers, ["", "done"]);
    });
}

/// A context of the handler's own makes its waits such that a context may end them: not that of the server.
#[test]
fn a_stop_ends_no_wait_of_a_request() {
    let waits_for = |of| {
        let dump = Handle::current().dump();
        dump.goroutines.iter().any(|g| g.wait_reason == Some(of))
    };
    run(2, move || {
        let (go, is_told) = windlass::channel::bounded(0);
        let handle = move |mut stream: &TcpStream, n: &mut u8| {
            read(stream)?;
            *n += 1;
            if *n == 2 {
                let (ctx, _canceller) = Context::background().with_cancel();
                ctx.run(|| is_told.recv()).unwrap();
            }
            stream.write_all(&[*n])?;
            Ok(Next::Request)
        };
        let server = start(Graceful::with_grace(Duration::ZERO), FOREVER, 0, handle);
        let mut client = server.connect();
        let mut answer = [0];
        client.write_all(b"x").unwrap();
        client.read_exact(&mut answer).unwrap();
        wait_until(|| idle() == 1);
        client.write_all(b"x").unwrap();
        wait_until(|| waits_for("chan receive"));
        server.server.stop();
        go.send(()).unwrap();
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [2]);
        server.shut_down();
    });
}

#[test]
fn idle_connections_end_after_the_patience() {
    run(2, || {
        let server = start(Graceful::with_grace(MOMENT), MOMENT, 0, echo);
        let mut silent = server.connect();
        assert!(is_closed(&mut silent));
        wait_until(|| server.server.n_members() == 0);
        server.shut_down();
    });
}

/// The contexts of the server and of its builder end waits of the handler, and a name is its goroutine's.
#[test]
fn handlers_run_as_the_builder_says() {
    run(2, || {
        let (ctx, canceller) = Context::background().with_cancel();
        let server = Graceful::with_grace(MOMENT);
        let named = server.spawn_with(Builder::new().name("worker").context(&ctx));
        let handle = move |mut stream: &TcpStream, (): &mut ()| {
            read(stream)?;
            stream.write_all(task::current().name().unwrap_or("none").as_bytes())?;
            let ended = read(stream).unwrap_err();
            let why = ended.get_ref().and_then(|e| e.downcast_ref());
            assert_eq!(why, Some(&Error::Cancelled));
            Ok(Next::Close)
        };
        let server = start(named, FOREVER, (), handle);
        let mut client = server.connect();
        client.write_all(b"?").unwrap();
        let mut name = [0; 6];
        client.read_exact(&mut name).unwrap();
        assert_eq!(&name, b"worker");
        canceller.cancel();
        assert!(is_closed(&mut client));
        server.shut_down();
    });
}

/// Clients send while the server stops: what was sent in the grace is answered, each once.
#[test]
fn stops_race_with_requests() {
    run(4, || {
        for round in 0..much(30, 3) {
            let n_answered = Arc::new(AtomicUsize::new(0));
            let counts = Arc::clone(&n_answered);
            let handle = move |stream: &TcpStream, n: &mut u8| {
                let next = echo(stream, n)?;
                if next == Next::Request {
                    counts.fetch_add(1, Ordering::SeqCst);
                }
                Ok(next)
            };
            let server = start(Graceful::with_grace(FOREVER), FOREVER, 0, handle);
            let clients: Vec<_> = (0..8)
                .map(|_| {
                    let mut client = server.connect();
                    spawn(move || (0..4).for_each(|byte| _ = ask(&mut client, byte)))
                })
                .collect();
            (0..round % 5).for_each(|_| yield_now());
            server.server.stop();
            clients
                .into_iter()
                .for_each(|client| client.join().unwrap());
            server.shut_down();
            assert_eq!(n_answered.load(Ordering::SeqCst), 8 * 4);
        }
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    a_connection_keeps_its_state_between_requests,
    over_unix_sockets: "it uses the disk",
    the_end_of_one_connection_concerns_no_other: "a panic fails a simulation",
    requests_on_their_way_are_answered,
    a_stop_ends_idle_connections_after_the_grace,
    a_stop_ends_busy_connections_after_the_grace: "virtual time stands still while it works",
    work_in_flight_is_finished_or_cut_off_at_the_deadline,
    a_stop_ends_no_wait_of_a_request: "it looks at goroutines that wait",
    idle_connections_end_after_the_patience,
    handlers_run_as_the_builder_says,
    stops_race_with_requests,
}

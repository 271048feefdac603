//! The graceful end of the web servers: of httpd in a process of its own, and in this process.
#![allow(unsafe_code)]

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use windlass::net::{Graceful, TcpListener};

use crate::args::Args;
use crate::http;
use crate::stoppable::{LONG_GRACE, start_stoppable};
use crate::{httpd, util};

const REQUEST: &[u8] = b"GET /plaintext HTTP/1.1\r\nHost: x\r\n\r\n";

/// Reads one answer of the page `/plaintext`. Returns whether the connection is kept alive.
fn read_answer(stream: &mut TcpStream) -> io::Result<bool> {
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nHello, World!") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        answer.push(byte[0]);
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    Ok(!answer.contains("Connection: close\r\n"))
}

/// Asks until the server ends the connection in an answer. Counts the answers.
fn ask_to_the_end(mut stream: TcpStream, n_answers: &AtomicUsize) -> io::Result<()> {
    loop {
        stream.write_all(REQUEST)?;
        let is_alive = read_answer(&mut stream)?;
        n_answers.fetch_add(1, Ordering::SeqCst);
        if !is_alive {
            assert_eq!(stream.read(&mut [0])?, 0);
            return Ok(());
        }
    }
}

/// httpd as a child process: the test `httpd_of_another_test`.
struct Httpd {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Httpd {
    fn start(args: &str) -> Httpd {
        let mut command = util::child_command("graceful_server::httpd_of_another_test", args);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Httpd { child, stdout }
    }

    /// Where it listens.
    fn addr(&mut self) -> SocketAddr {
        let mut line = String::new();
        // The test program says something first, also in the same line.
        loop {
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "{line}");
            if let Some((_, rest)) = line.split_once("http://") {
                return rest.split('/').next().unwrap().parse().unwrap();
            }
        }
    }

    fn terminate(&self) {
        let pid = i32::try_from(self.child.id()).unwrap();
        // SAFETY: takes plain integers; the child has not been waited for.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    }

    fn wait(mut self) -> ExitStatus {
        // It would wait for ever if it could not write.
        let _ = io::copy(&mut self.stdout, &mut io::sink());
        self.child.wait().unwrap()
    }
}

/// Not a test by itself.
#[test]
fn httpd_of_another_test() {
    let Some(case) = util::child_case() else {
        return;
    };
    let words = case.split(' ').map(str::to_owned);
    let ended = httpd::run(Args::of_words(httpd::USAGE, words));
    // As the runtime of Rust does with the result of `main`.
    if let Err(error) = &ended {
        eprintln!("Error: {error:?}");
    }
    std::process::exit(i32::from(ended.is_err()));
}

/// No client that keeps asking loses a request, and no client that was connected only.
#[test]
fn sigterm_loses_no_request() {
    let _guard = util::hang_guard();
    let mut httpd = Httpd::start("--addr 127.0.0.1:0 --procs 2 --grace 100");
    let addr = httpd.addr();
    let n_answers = Arc::new(AtomicUsize::new(0));
    let ask = |stream| {
        let n_answers = Arc::clone(&n_answers);
        thread::spawn(move || ask_to_the_end(stream, &n_answers))
    };
    let mut clients: Vec<_> = (0..64)
        .map(|_| ask(TcpStream::connect(addr).unwrap()))
        .collect();
    while n_answers.load(Ordering::SeqCst) < 1000 {
        assert!(!clients.iter().any(thread::JoinHandle::is_finished));
        thread::yield_now();
    }
    let silent: Vec<_> = (0..16).map(|_| TcpStream::connect(addr).unwrap()).collect();
    httpd.terminate();
    // It does not listen any more, and knows all connections now.
    while TcpStream::connect(addr).is_ok() {}
    clients.extend(silent.into_iter().map(ask));
    for client in clients {
        client
            .join()
            .unwrap()
            .expect("every request has its answer");
    }
    assert_eq!(httpd.wait().code(), Some(0));
}

#[test]
fn httpd_that_cannot_listen_fails() {
    let _guard = util::hang_guard();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for addr in [&*taken.local_addr().unwrap().to_string(), "nonsense"] {
        let httpd = Httpd::start(&format!("--addr {addr}"));
        assert_eq!(httpd.wait().code(), Some(1), "{addr}");
    }
}

/// A listener that fails for ever ends its server, which otherwise would only seem to serve.
#[test]
fn a_listener_that_is_broken_ends_the_server() {
    util::run(1, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.shutdown().unwrap();
        let ended = http::serve(listener, &Graceful::new());
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

/// Requests of which only a part has arrived, and pipelined requests.
#[test]
fn requests_that_have_begun_are_finished() {
    let (server, stopped, told) = start_stoppable(LONG_GRACE, http::serve);
    let post = b"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n";
    let mut begun: Vec<_> = [&REQUEST[..9], b"G", &post[..], &[&post[..], b"b"].concat()]
        .map(|part| {
            let mut stream = server.connect();
            // The first answer shows that the server has the connection.
            stream.write_all(REQUEST).unwrap();
            assert!(read_answer(&mut stream).unwrap());
            stream.write_all(part).unwrap();
            stream
        })
        .into();
    let mut pipelined = server.connect();
    pipelined.write_all(REQUEST).unwrap();
    assert!(read_answer(&mut pipelined).unwrap());
    server.stop_accepting(&stopped);
    for (stream, rest) in begun
        .iter_mut()
        .zip([&REQUEST[9..], &REQUEST[1..], b"body", b"ody"])
    {
        stream.write_all(rest).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let is_get = answer.starts_with("HTTP/1.1 200 OK\r\n");
        assert!(is_get || answer.starts_with("HTTP/1.1 405 "), "{answer}");
        assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    }
    // Only the last answer says that there are no more.
    pipelined.write_all(&REQUEST.repeat(3)).unwrap();
    let kept: Vec<_> = (0..3)
        .map(|_| read_answer(&mut pipelined).unwrap())
        .collect();
    assert_eq!(kept, [true, true, false]);
    assert_eq!(pipelined.read(&mut [0]).unwrap(), 0);
    assert_eq!(told.recv().unwrap(), Ok(()));
}

/// A connection that stays idle does not hold up the end.
#[test]
fn idle_connections_are_closed_after_the_grace() {
    let (server, stopped, told) = start_stoppable(Duration::from_millis(10), http::serve);
    let mut idle: Vec<_> = (0..20).map(|_| server.connect()).collect();
    idle[0].write_all(REQUEST).unwrap();
    assert!(read_answer(&mut idle[0]).unwrap());
    stopped.stop();
    assert_eq!(told.recv().unwrap(), Ok(()));
    for mut stream in idle {
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
}

/// The stop does not shorten the time in which a refused peer can read why.
#[test]
fn refused_peers_are_still_read_from() {
    let (server, stopped, told) = start_stoppable(Duration::from_secs(2), http::serve);
    let begin = Instant::now();
    let mut stream = server.connect();
    stream.write_all(b"nonsense\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    stopped.stop();
    assert_eq!(told.recv().unwrap(), Ok(()));
    assert!(begin.elapsed() >= Duration::from_secs(2));
}

//! The servers of the documentation, as their pages have them: what happens to their clients when they are
//! stopped, and when descriptors are short.
#![allow(unsafe_code)]
#![allow(clippy::print_stdout, reason = "the programs of the pages print")]

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, ExitCode, Stdio, Termination};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::util;

/// A program: its page and line, its main function, and whether it speaks HTTP. Others send lines back.
type Page = (&'static str, fn() -> ExitCode, bool);

include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// How long clients go on asking after the signal.
const LATE: Duration = Duration::from_millis(250);
/// Less than any page waits for connections that do not end.
const IN_TIME: Duration = Duration::from_secs(9);

/// Not a test by itself.
#[test]
fn program_of_another_test() {
    let Some(case) = util::child_case() else {
        return;
    };
    let (_, main, _) = PROGRAMS.iter().find(|(name, ..)| *name == case).unwrap();
    // An error is reported as the runtime of Rust does it.
    std::process::exit(i32::from(main() != ExitCode::SUCCESS));
}

#[test]
fn all_pages_with_servers_are_found() {
    let pages = PROGRAMS
        .iter()
        .map(|(name, ..)| name.rsplit_once(':').unwrap().0);
    let pages: Vec<_> = pages.collect();
    for page in [
        "README.md",
        "docs/PORTING.md",
        "docs/guide/first-server.md",
        "docs/guide/http.md",
        "docs/guide/toolbox.md",
    ] {
        assert!(pages.contains(&page), "{page} has no server: {pages:?}");
    }
}

/// A program of a page, as a process.
struct Program {
    name: &'static str,
    client: Client,
    child: Child,
    addr: SocketAddr,
}

impl Program {
    /// Starts it, and returns as soon as it listens.
    fn start(page: &Page) -> Program {
        Program::start_with(page, Stdio::inherit())
    }

    fn start_with((name, _, is_http): &Page, stderr: Stdio) -> Program {
        let mut command = util::child_command("pages::program_of_another_test", name);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let addr = loop {
            if let Some(addr) = listens_at(child.id()) {
                break addr;
            }
            assert_eq!(child.try_wait().unwrap(), None, "{name} does not listen");
            thread::yield_now();
        };
        Program {
            name,
            client: Client { is_http: *is_http },
            child,
            addr,
        }
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    fn signal(&self, signal: i32) {
        // SAFETY: takes plain integers; the child has not been waited for.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).unwrap()
    }

    /// Waits for the end after a signal: a good one, although a client is connected that says nothing.
    fn ends_in_time(mut self) {
        let since = Instant::now();
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{}: {status}", self.name);
        assert!(
            since.elapsed() < IN_TIME,
            "{}: {:?}",
            self.name,
            since.elapsed()
        );
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // A test that fails leaves no process; one that has been waited for is not there any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address at which a process listens.
fn listens_at(pid: u32) -> Option<SocketAddr> {
    let sockets: Vec<_> = fs::read_dir(format!("/proc/{pid}/fd"))
        .ok()?
        .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
        .filter_map(|to| {
            let inode = to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect();
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().skip(1).find_map(|line| {
        const LISTENS: &str = "0A";
        let words: Vec<_> = line.split_whitespace().collect();
        let is_it = words[3] == LISTENS && sockets.iter().any(|inode| inode == words[9]);
        let port = u16::from_str_radix(words[1].split_once(':')?.1, 16).ok()?;
        is_it.then(|| (Ipv4Addr::LOCALHOST, port).into())
    })
}

/// A client's part of the protocol.
#[derive(Clone, Copy)]
struct Client {
    is_http: bool,
}

impl Client {
    /// Sends a request, over a new connection if there is none.
    fn send(self, kept: Option<TcpStream>, addr: SocketAddr) -> io::Result<TcpStream> {
        let mut stream = kept.map_or_else(|| TcpStream::connect(addr), Ok)?;
        let request = match self.is_http {
            true => "GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
            false => "a line\n",
        };
        stream.write_all(request.as_bytes())?;
        Ok(stream)
    }

    /// Reads the answer: the line, the same or in capitals; or that all is well. Whether there may be another request.
    fn receive(self, stream: &mut TcpStream) -> io::Result<bool> {
        if self.is_http {
            return receive_http(stream);
        }
        let mut answer = [0; 7];
        stream.read_exact(&mut answer)?;
        assert!(answer.eq_ignore_ascii_case(b"a line\n"), "{answer:?}");
        Ok(true)
    }

    fn ask(self, stream: TcpStream) -> io::Result<TcpStream> {
        let addr = stream.peer_addr()?;
        let mut stream = self.send(Some(stream), addr)?;
        self.receive(&mut stream).map(|_| stream)
    }
}

fn receive_http(stream: &mut TcpStream) -> io::Result<bool> {
    const BODY: &str = "ok\n";
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        answer.extend(byte);
    }
    let head = String::from_utf8(answer).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let mut body = [0; BODY.len()];
    stream.read_exact(&mut body)?;
    assert_eq!(body, BODY.as_bytes());
    Ok(!head.contains("connection: close\r\n"))
}

/// Clients that ask until the server has gone: each over one connection, or over one for each request.
#[test]
fn a_signal_loses_no_answer() {
    let _guard = util::hang_guard();
    for page in PROGRAMS {
        for signal in [libc::SIGTERM, libc::SIGINT] {
            signal_under_load(page, signal);
        }
    }
}

fn signal_under_load(page: &Page, signal: i32) {
    let program = Program::start(page);
    let (name, client) = (program.name, program.client);
    let (n_answers, is_over) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    // Whether requests may come too late. A client holds it while it sends one, so that the signal follows
    // all the requests that must be answered.
    let may_be_late = Arc::new(RwLock::new(false));
    let addr = program.addr;
    let clients: Vec<_> = (0..16)
        .map(|i| {
            let (n_answers, is_over) = (Arc::clone(&n_answers), Arc::clone(&is_over));
            let may_be_late = Arc::clone(&may_be_late);
            thread::spawn(move || {
                let mut kept = None;
                while !is_over.load(Ordering::SeqCst) {
                    let state = may_be_late.read().unwrap();
                    let (stream, is_late) = (client.send(kept.take(), addr), *state);
                    drop(state);
                    let received = stream.and_then(|mut stream| {
                        let goes_on = client.receive(&mut stream)?;
                        Ok((i % 2 == 0 && goes_on).then_some(stream))
                    });
                    match received {
                        Err(error) => return if is_late { Ok(()) } else { Err(error) },
                        Ok(stream) => kept = stream,
                    }
                    n_answers.fetch_add(1, Ordering::SeqCst);
                }
                Ok(())
            })
        })
        .collect();
    let _idle = client.ask(program.connect()).unwrap();
    let _silent = program.connect();
    while n_answers.load(Ordering::SeqCst) < 500 {
        thread::yield_now();
    }
    *may_be_late.write().unwrap() = true;
    program.signal(signal);
    // They ask while the server ends, too.
    thread::sleep(LATE);
    is_over.store(true, Ordering::SeqCst);
    for client in clients {
        let lost = client.join().unwrap();
        assert!(
            lost.is_ok(),
            "{name}, signal {signal}: an answer is lost: {lost:?}"
        );
    }
    program.ends_in_time();
}

/// The handlers are there before the server can be found.
#[test]
fn a_signal_at_the_start_loses_no_answer() {
    let _guard = util::hang_guard();
    for page in PROGRAMS {
        for signal in [libc::SIGTERM, libc::SIGINT] {
            let program = Program::start(page);
            let mut client = program.client.send(None, program.addr).unwrap();
            program.signal(signal);
            let read = program.client.receive(&mut client);
            assert!(read.is_ok(), "{}, signal {signal}: {read:?}", program.name);
            program.ends_in_time();
        }
    }
}

/// More clients than the server has descriptors for, and then fewer.
#[test]
fn a_server_outlives_a_shortage_of_descriptors() {
    let _guard = util::hang_guard();
    for page in PROGRAMS {
        let mut program = Program::start_with(page, Stdio::piped());
        let (name, client) = (program.name, program.client);
        let mut lines = BufReader::new(program.child.stderr.take().unwrap()).lines();
        // It has begun to serve, so its own descriptors are open, and from here on there is none for another client.
        let first = client.ask(program.connect()).unwrap();
        let fd_dir = format!("/proc/{}/fd", program.pid());
        let is_free = |fd: &u64| !fs::exists(format!("{fd_dir}/{fd}")).unwrap();
        let n_used = (0..).find(is_free).unwrap();
        let limit = libc::rlimit {
            rlim_cur: n_used,
            rlim_max: n_used,
        };
        // SAFETY: the limit is valid for reads, and no old one is asked for.
        let set = unsafe {
            libc::prlimit(
                program.pid(),
                libc::RLIMIT_NOFILE,
                &raw const limit,
                std::ptr::null_mut(),
            )
        };
        assert_eq!(set, 0);
        let clients: Vec<_> = (0..40).map(|_| program.connect()).collect();
        let says_so = |line: io::Result<String>| line.unwrap().contains("none can be accepted");
        assert!(
            lines.by_ref().any(says_so),
            "{name} has not said that descriptors are short"
        );
        drop((first, clients));
        // A program may need a second descriptor for a connection, and close it where none is free: until
        // it has closed those of the clients that have gone.
        while let Err(e) = client.ask(program.connect()) {
            let is_closed = [io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof];
            assert!(is_closed.contains(&e.kind()), "{name}: {e}");
            thread::sleep(Duration::from_millis(5));
        }
        program.signal(libc::SIGTERM);
        program.ends_in_time();
        assert!(!lines.any(says_so), "{name} has said it again");
    }
}

//! A client that says exactly what it wants to say, and a guard against hanging.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod browser;

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use windlass::{Builder, Runtime};
use windlass_console::{Address, Console, Server};

/// Longer than any test takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Ends the process if it is not dropped in time.
pub(crate) struct HangGuard(Option<(mpsc::Sender<()>, JoinHandle<()>)>);

pub(crate) fn hang_guard() -> HangGuard {
    let (done, ended) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        if ended.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("the test hangs");
            std::process::abort();
        }
    });
    HangGuard(Some((done, thread)))
}

impl Drop for HangGuard {
    fn drop(&mut self) {
        if let Some((done, thread)) = self.0.take() {
            drop(done);
            thread.join().unwrap();
        }
    }
}

#[allow(unsafe_code)]
pub(crate) fn build(builder: Builder) -> Runtime {
    // SAFETY: no test keeps a borrow of a thread-local across a call that parks.
    unsafe { builder.build() }.unwrap()
}

pub(crate) fn runtime(n: usize) -> Runtime {
    build(Builder::new().name("shown").processors(n))
}

/// A console on a port of its own.
pub(crate) fn console(rt: &Runtime) -> (Server, SocketAddr) {
    let server = Console::new().handle(rt.handle()).serve("127.0.0.1:0");
    let server = server.unwrap();
    let addr = tcp(&server);
    (server, addr)
}

pub(crate) fn tcp(server: &Server) -> SocketAddr {
    match server.local_addr() {
        Address::Tcp(addr) => *addr,
        other => panic!("{other} is no TCP address"),
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value)
    }
}

/// Reads the head of an answer.
pub(crate) fn read_head(from: &mut impl BufRead) -> io::Result<Answer> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(
        line.starts_with("HTTP/1.1 ") && line.ends_with("\r\n"),
        "{line:?}"
    );
    let mut headers = HashMap::new();
    loop {
        line.clear();
        from.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            assert_eq!(line, "\r\n");
            break;
        };
        let before = headers.insert(name.to_ascii_lowercase(), value.to_owned());
        assert_eq!(before, None, "{name} is there twice");
    }
    let body = Vec::new();
    Ok(Answer {
        status,
        headers,
        body,
    })
}

/// Reads an answer, to a request that was no HEAD.
pub(crate) fn read_answer(from: &mut impl BufRead) -> io::Result<Answer> {
    let mut answer = read_head(from)?;
    if answer.header("transfer-encoding") == "chunked" {
        loop {
            let mut line = String::new();
            from.read_line(&mut line)?;
            let n = usize::from_str_radix(line.trim_end(), 16).unwrap();
            let begin = answer.body.len();
            answer.body.resize(begin + n, 0);
            from.read_exact(&mut answer.body[begin..])?;
            let mut end = [0; 2];
            from.read_exact(&mut end)?;
            assert_eq!(&end, b"\r\n");
            if n == 0 {
                return Ok(answer);
            }
        }
    }
    let n: usize = answer.header("content-length").parse().unwrap();
    answer.body.resize(n, 0);
    from.read_exact(&mut answer.body)?;
    Ok(answer)
}

/// Sends bytes, and reads the answer to them.
pub(crate) fn send(addr: SocketAddr, request: &[u8]) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request)?;
    read_answer(&mut BufReader::new(stream))
}

/// A request with more header lines.
pub(crate) fn get_with(addr: SocketAddr, path: &str, headers: &str) -> Answer {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\n{headers}\r\n");
    send(addr, request.as_bytes()).unwrap()
}

pub(crate) fn get(addr: SocketAddr, path: &str) -> Answer {
    get_with(addr, path, "")
}

/// Waits until `done` says so.
pub(crate) fn wait_until(mut done: impl FnMut() -> bool) {
    while !done() {
        thread::sleep(Duration::from_millis(2));
    }
}

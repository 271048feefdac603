//! minreq and tiny_http.

use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;

use super::{Opener, Result, World, check};

/// Answers one request of HTTP with its path, after `gate` has returned.
///
/// # Errors
///
/// The connection broke.
pub fn answer(stream: impl Read + Write, gate: impl FnOnce()) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut line) = (String::new(), String::new());
    // An empty line ends the head.
    while reader.read_line(&mut line)? > 2 {
        head.push_str(&line);
        line.clear();
    }
    gate();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let len = path.len();
    let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n");
    reader.get_mut().write_all((response + path).as_bytes())
}

/// Fetches the path `/i` by minreq. Without a timeout, for which it would start a thread for each request.
///
/// # Errors
///
/// Errors of the crate, and wrong answers.
pub fn fetch(addr: impl Display, i: usize) -> Result {
    let response = minreq::get(format!("http://{addr}/{i}")).send()?;
    check(&response.as_str()?, &&*format!("/{i}"))
}

pub(super) fn minreq(world: &World) -> Result<Opener> {
    let addr = format!("127.0.0.1:{}", world.port);
    Ok(Box::new(move || {
        let addr = addr.clone();
        Ok(Box::new(move |i| fetch(&addr, i)))
    }))
}

/// Goroutines or threads that answer the requests to a server of tiny_http.
const WORKERS: usize = 8;

struct Workers(Arc<tiny_http::Server>);

/// The workers wait for a lock of `std`, which the end of a run does not end.
impl Drop for Workers {
    fn drop(&mut self) {
        (0..WORKERS).for_each(|_| self.0.unblock());
    }
}

/// The server is the crate. It reads requests on threads of its own; `WORKERS` goroutines answer
/// them. minreq is the client.
pub(super) fn tiny_http(world: &World) -> Result<Opener> {
    let server = Arc::new(tiny_http::Server::http("127.0.0.1:0")?);
    for _ in 0..WORKERS {
        let server = Arc::clone(&server);
        world.home.spawn(move || {
            while let Ok(request) = server.recv() {
                let response = tiny_http::Response::from_string(request.url());
                // If the client has gone, it reports why.
                let _ = request.respond(response);
            }
        });
    }
    let workers = Workers(server);
    Ok(Box::new(move || {
        let addr = workers.0.server_addr().to_string();
        Ok(Box::new(move |i| fetch(&addr, i)))
    }))
}

//! Serves a `Router` of axum with hyper: HTTP/1.1 and HTTP/2 on one port, and a graceful end.

use std::io::{self, ErrorKind};

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use tower_service::Service;
use windlass::net::{Graceful, Member, TcpListener, TcpStream};
use windlass::time::{Duration, Instant};
use windlass_hyper::{Executor, Io, Timer};

use crate::{finish, serve};

/// The time limit for the head of a request, and for the answer to a ping of HTTP/2.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the first bytes of a connection may take after the first one.
const PATIENCE: Duration = Duration::from_secs(1);
/// How a client of HTTP/2 begins. No method of HTTP/1 does.
const HTTP2: &[u8] = b"PRI ";

/// Serves until `stop`, which runs in a goroutine of its own, has returned. Then waits for the
/// requests that have arrived, but not longer than the limit: what is left ends with the runtime.
///
/// # Errors
///
/// The listener cannot accept any more.
pub(crate) fn serve_until(
    listener: TcpListener,
    router: Router,
    limit: Duration,
    stop: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let server = Graceful::new();
    serve::until(stop, &server, limit, || {
        server.serve_with(listener, serve::complain(), move |stream, member| {
            // Errors of a connection concern only its peer.
            let _ = serve_one(stream, router.clone(), member);
        })
    })
}

fn serve_one(stream: TcpStream, router: Router, member: &Member) -> Result<(), hyper::Error> {
    let Ok(Some(is_http2)) = begins_http2(&stream, member) else {
        return Ok(());
    };
    let io = Io::new(stream);
    // A router is a service of tower. Its clones share what they hold.
    let service = service_fn(move |request: Request<Incoming>| router.clone().call(request));
    if is_http2 {
        let mut builder = http2::Builder::new(Executor::new());
        builder
            .timer(Timer::new())
            .keep_alive_interval(HEAD_TIMEOUT);
        let connection = builder.serve_connection(io, service);
        finish::run_until(member.stopping(), connection, |c| c.graceful_shutdown())
    } else {
        let mut builder = http1::Builder::new();
        builder
            .timer(Timer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            // A client may close its sending side and still read.
            .half_close(true);
        let connection = builder.serve_connection(io, service).with_upgrades();
        finish::run_until(member.stopping(), connection, |c| c.graceful_shutdown())
    }
}

/// Waits for the first bytes and leaves them where they are. Returns `None` if the server stops and
/// none have come.
fn begins_http2(stream: &TcpStream, member: &Member) -> io::Result<Option<bool>> {
    stream.set_nodelay(true)?;
    stream.set_read_deadline(Some(Instant::now() + HEAD_TIMEOUT));
    let mut first = [0; HTTP2.len()];
    let mut begun: Option<Instant> = None;
    loop {
        match member.idle(|| stream.peek(&mut first))? {
            None => return Ok(None),
            Some(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Some(n) if !HTTP2.starts_with(&first[..n]) => return Ok(Some(false)),
            Some(n) if n == HTTP2.len() => return Ok(Some(true)),
            // Too few to know, and a peek does not wait for more. If no more come, HTTP/1.1 has an
            // answer.
            Some(_) if begun.is_some_and(|at| at.elapsed() >= PATIENCE) => return Ok(Some(false)),
            Some(_) => {
                begun.get_or_insert_with(Instant::now);
                windlass::sleep(Duration::from_millis(1));
            }
        }
    }
}

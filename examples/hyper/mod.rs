//! hyper's server, with a goroutine for each connection.
//!
//! The service is a future, as hyper requires; the functions that it calls may block as goroutines
//! do.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use windlass::net::{Graceful, Member, TcpListener, TcpStream};
use windlass_hyper::{Executor, Io, Timer};

use crate::finish;
use crate::serve::complain;

/// The time limit for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves until the server is asked to stop.
///
/// # Errors
///
/// The listener cannot accept any more.
pub(crate) fn serve(listener: TcpListener, server: &Graceful, is_http2: bool) -> io::Result<()> {
    server.serve_with(listener, complain(), move |stream, member| {
        // Errors of a connection concern only its peer.
        let _ = serve_one(stream, is_http2, member);
    })
}

fn serve_one(
    stream: TcpStream,
    is_http2: bool,
    member: &Member,
) -> Result<(), Box<dyn std::error::Error>> {
    stream.set_nodelay(true)?;
    let io = Io::new(stream);
    if is_http2 {
        let mut builder = http2::Builder::new(Executor::new());
        builder
            .timer(Timer::new())
            .keep_alive_interval(HEAD_TIMEOUT);
        let connection = builder.serve_connection(io, service_fn(answer));
        finish::run_until(member.stopping(), connection, |c| c.graceful_shutdown())?;
    } else {
        let mut builder = http1::Builder::new();
        builder
            .timer(Timer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            // A client may close its sending side and still read.
            .half_close(true);
        let connection = builder.serve_connection(io, service_fn(answer));
        finish::run_until(member.stopping(), connection, |c| c.graceful_shutdown())?;
    }
    Ok(())
}

type Body = Either<Full<Bytes>, Incoming>;

/// Greets, or sends back the body while it arrives.
async fn answer(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let text = |text: &'static str| Either::Left(Full::new(Bytes::from_static(text.as_bytes())));
    let (status, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/") => (StatusCode::OK, text("Hello, World!")),
        (&Method::POST, "/echo") => (StatusCode::OK, Either::Right(request.into_body())),
        (_, "/" | "/echo") => (StatusCode::METHOD_NOT_ALLOWED, text("")),
        _ => (StatusCode::NOT_FOUND, text("")),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    Ok(response)
}

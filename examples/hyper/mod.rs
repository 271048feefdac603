//! hyper's server, with a goroutine for each connection.
//!
//! The service is a future, as hyper requires; the functions that it calls may block as goroutines
//! do.

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use windlass::net::{TcpListener, TcpStream};
use windlass_hyper::{Executor, Io, Timer};

/// The time limit for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves until the runtime ends.
pub(crate) fn serve(listener: &TcpListener, is_http2: bool) -> ! {
    crate::accept::accept_each(listener, move |stream| {
        // Errors of a connection concern only its peer.
        let _ = serve_one(stream, is_http2);
    })
}

fn serve_one(stream: TcpStream, is_http2: bool) -> Result<(), Box<dyn std::error::Error>> {
    stream.set_nodelay(true)?;
    let io = Io::new(stream);
    if is_http2 {
        let mut builder = http2::Builder::new(Executor::new());
        builder
            .timer(Timer::new())
            .keep_alive_interval(HEAD_TIMEOUT);
        windlass::future::block_on(builder.serve_connection(io, service_fn(answer)))?;
    } else {
        let mut builder = http1::Builder::new();
        builder
            .timer(Timer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            // A client may close its sending side and still read.
            .half_close(true);
        windlass::future::block_on(builder.serve_connection(io, service_fn(answer)))?;
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

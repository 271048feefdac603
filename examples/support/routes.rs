//! Serves a `Router` of axum with hyper: HTTP/1.1 and HTTP/2 on one port, and a graceful end.

use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use tokio::sync::watch;
use tower_service::Service;
use windlass::future::{self, block_on};
use windlass::net::{TcpListener, TcpStream};
use windlass_hyper::{Executor, Io, Timer};

use crate::accept;

/// The time limit for the head of a request, and for the answer to a ping of HTTP/2.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a connection on which nothing has arrived asks whether the server stops.
const LOOK_UP: Duration = Duration::from_millis(250);
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
    let listener = Arc::new(listener);
    // All connections have a receiver, and are asked to end by it.
    let (is_stopping, connection) = watch::channel(false);
    let is_stopping = Arc::new(is_stopping);
    let stopper = windlass::spawn({
        let (listener, is_stopping) = (Arc::clone(&listener), Arc::clone(&is_stopping));
        move || {
            if let Err(error) = stop() {
                eprintln!("cannot wait for the signal to stop: {error}");
            }
            is_stopping.send_replace(true);
            listener.set_deadline(Some(Instant::now()));
        }
    });
    let each = |stream| {
        let (router, connection) = (router.clone(), connection.clone());
        drop(windlass::spawn(move || {
            // Errors of a connection concern only its peer.
            let _ = serve_one(stream, router, connection);
        }));
    };
    accept::accept_until(&listener, || *is_stopping.borrow(), &each)?;
    // It ends now, and then this is the only hold on the listener.
    let _ = stopper.join();
    accept::accept_queued(&listener, &each)?;
    drop((listener, connection));
    let ended = future::spawn(async move { is_stopping.closed().await });
    if ended.join_timeout(limit).is_err() {
        eprintln!("some connections had not ended and were cut off");
    }
    Ok(())
}

type Stop = watch::Receiver<bool>;

fn serve_one(stream: TcpStream, router: Router, stop: Stop) -> Result<(), hyper::Error> {
    let Ok(is_http2) = begins_http2(&stream, &stop) else {
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
        block_on(until_stopped(connection, stop, |c| c.graceful_shutdown()))
    } else {
        let mut builder = http1::Builder::new();
        builder
            .timer(Timer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            // A client may close its sending side and still read.
            .half_close(true);
        let connection = builder.serve_connection(io, service).with_upgrades();
        block_on(until_stopped(connection, stop, |c| c.graceful_shutdown()))
    }
}

/// Polls a connection to its end, and calls `finish` when the server is asked to stop.
async fn until_stopped<C: Future>(
    connection: C,
    mut stop: Stop,
    finish: impl Fn(Pin<&mut C>),
) -> C::Output {
    let mut connection = pin!(connection);
    let mut stopped = pin!(stop.wait_for(|is_stopping| *is_stopping));
    let mut is_finishing = false;
    std::future::poll_fn(|cx| {
        // First, so that it has read what arrived before the stop.
        let polled = connection.as_mut().poll(cx);
        if polled.is_ready() || is_finishing || stopped.as_mut().poll(cx).is_pending() {
            return polled;
        }
        is_finishing = true;
        finish(connection.as_mut());
        connection.as_mut().poll(cx)
    })
    .await
}

/// Waits for the first bytes and leaves them where they are.
fn begins_http2(stream: &TcpStream, stop: &Stop) -> io::Result<bool> {
    stream.set_nodelay(true)?;
    let end = Instant::now() + HEAD_TIMEOUT;
    let mut first = [0; HTTP2.len()];
    let mut begun: Option<Instant> = None;
    loop {
        // Asked before the wait: what arrived before the stop is served.
        let is_over = *stop.borrow() || Instant::now() >= end;
        stream.set_read_deadline(Some(Instant::now() + LOOK_UP));
        match stream.peek(&mut first) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) if !HTTP2.starts_with(&first[..n]) => return Ok(false),
            Ok(n) if n == HTTP2.len() => return Ok(true),
            // Too few to know, and a peek does not wait for more. If no more come, HTTP/1.1 has an
            // answer.
            Ok(_) if begun.is_some_and(|at| at.elapsed() >= PATIENCE) => return Ok(false),
            Ok(_) => {
                begun.get_or_insert_with(Instant::now);
                windlass::sleep(Duration::from_millis(1));
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        if is_over {
            return Err(ErrorKind::TimedOut.into());
        }
    }
}

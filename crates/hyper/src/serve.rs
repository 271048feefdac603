//! A server of plain functions: for each request one call, on a goroutine, which may block as goroutines do.
//!
//! hyper speaks the protocol. This module adds what a server on the open network needs: it tells HTTP/2 from HTTP/1.1 by
//! the first bytes, reads bodies up to a limit, gives connections deadlines, and ends them with their [`Graceful`] server.

use std::future::poll_fn;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::rt::{self, Read as _, Timer as _};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};

use windlass::context;
use windlass::future::block_on;
use windlass::net::{Graceful, Listener, Member};
use windlass::time;

use crate::body::{self, Answer, Body, RequestBody, Taken};
use crate::{Executor, Io, Timer};

/// The bytes with which each connection of HTTP/2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long a connection waits for a request after the stop: one that was sent before the client could know. A client of
/// HTTP/2 may say sooner that it knows.
const GRACE: Duration = Duration::from_millis(500);

/// How long a connection of HTTP/1.1 that was closed before its request had been read waits for more of it: longer than a
/// packet takes to most places and back.
const LINGER: Duration = Duration::from_millis(500);

/// How often what is thrown away is read before the connection looks at something else.
const READS: usize = 16;

/// The most handlers that a connection may keep busy. Requests that are open are bounded by HTTP/2 itself (200 of them by
/// hyper), those whose handler still runs although the client has taken them back are not.
const MAX_HANDLERS: usize = 1000;

/// Accepts connections and calls `handle` for each request, until `server` is asked to stop: [`Http::serve`] with
/// default settings.
///
/// # Blocking
///
/// As [`Graceful::serve`].
///
/// # Errors
///
/// As [`Graceful::serve`].
///
/// # Panics
///
/// If the caller is not a goroutine.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
/// use std::time::Duration;
/// use windlass::net::{Graceful, TcpListener, TcpStream};
/// use windlass_hyper::hyper::{Request, Response, body::Bytes};
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let mut client = TcpStream::connect(listener.local_addr()?)?;
///     let server = Graceful::new();
///     let stopper = server.clone();
///     windlass::spawn(move || {
///         client.write_all(b"GET /moon HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
///         let mut answer = String::new();
///         client.read_to_string(&mut answer)?;
///         assert!(answer.ends_with("\r\n\r\nhello /moon"));
///         stopper.stop(); // in a program: after a signal has arrived
///         std::io::Result::Ok(())
///     });
///     windlass_hyper::serve(listener, &server, |request: Request<Bytes>| {
///         windlass::sleep(Duration::from_millis(1)); // it may wait
///         Response::new(format!("hello {}", request.uri().path()))
///     })?;
///     server.shutdown(Duration::from_secs(10)).unwrap();
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn serve<L, F, B>(listener: L, server: &Graceful, handle: F) -> io::Result<()>
where
    L: Listener,
    L::Stream: Into<OwnedFd> + Read,
    F: Fn(Request<Bytes>) -> Response<B> + Send + Sync + 'static,
    B: Into<Body> + 'static,
{
    Http::new().serve(listener, server, handle)
}

/// The limits of a server of HTTP/1.1 and HTTP/2. [`serve()`] has an example.
#[derive(Clone, Copy, Debug)]
#[must_use = "limits do nothing until they serve"]
pub struct Http {
    head: Duration,
    body: Duration,
    idle: Duration,
    max_body: usize,
}

impl Http {
    /// Ten seconds for the head of a request, thirty for its body, of up to 2 MiB; connections without a request are
    /// closed after a minute.
    pub fn new() -> Http {
        Http {
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            max_body: 2 << 20,
        }
    }

    /// Sets how long the head of a request may take from its first byte on (HTTP/1.1). If that came before the answer
    /// to the request before, the head may take as long as a connection may be idle.
    pub fn head_timeout(mut self, time: Duration) -> Http {
        self.head = time;
        self
    }

    /// Sets how long the body of a request may take after its head; then the answer has status 408.
    pub fn body_timeout(mut self, time: Duration) -> Http {
        self.body = time;
        self
    }

    /// Sets how long a connection may wait for a request, and how long its client may take nothing of an answer. Pings
    /// and other frames of HTTP/2 that carry nothing of either do not count.
    pub fn idle_timeout(mut self, time: Duration) -> Http {
        self.idle = time;
        self
    }

    /// Sets how many bytes the body of a request may have; to a longer one the answer has status 413.
    pub fn max_body(mut self, bytes: usize) -> Http {
        self.max_body = bytes;
        self
    }

    /// Accepts connections, and calls `handle` for each request when its body has arrived, until `server` is asked to
    /// stop. After the stop, requests that have begun get their answers, which tell a client of HTTP/1.1 to close the
    /// connection. An idle connection of HTTP/1.1 is closed when no request has come for 500 ms. A client of HTTP/2 has as
    /// long to say that it knows of the stop: then its requests are refused, and the connection ends with the last answer.
    ///
    /// `handle` runs on the goroutine of the connection, with HTTP/2 on one for the request. A panic in it ends the
    /// connection or the request without an answer. An answer may be a [`Body`] that is made while it is sent; for
    /// requests that are read so there is [`Http::serve_streams`]. For upgrades use hyper's own interface with [`Io`].
    ///
    /// A handler goes on when its client takes the request back. A connection of HTTP/2 that keeps more than 1,000 handlers
    /// busy so is cut off.
    ///
    /// An answer may end a connection of HTTP/1.1 before its request has been read. Then the rest of that is read and thrown
    /// away until the client closes, sends nothing for 500 ms, or the time for a body has passed: the client would lose the end
    /// of the answer if the socket were closed at once.
    ///
    /// # Blocking
    ///
    /// As [`Graceful::serve`].
    ///
    /// # Errors
    ///
    /// As [`Graceful::serve`].
    ///
    /// # Panics
    ///
    /// If the caller is not a goroutine.
    pub fn serve<L, F, B>(self, listener: L, server: &Graceful, handle: F) -> io::Result<()>
    where
        L: Listener,
        L::Stream: Into<OwnedFd> + Read,
        F: Fn(Request<Bytes>) -> Response<B> + Send + Sync + 'static,
        B: Into<Body> + 'static,
    {
        self.serve_by(listener, server, Whole(handle))
    }

    /// As [`Http::serve`], but calls `handle` as soon as the head of a request has arrived, on a goroutine of its own, with
    /// a body that is a reader. The answer may begin before the body has been read.
    ///
    /// The limits of bodies hold: a body that is known to be too long is refused with 413 before the call, and of others
    /// the read beyond the limit fails. [`Http::body_timeout`] bounds each wait for bytes, not the whole body. What the
    /// handler leaves unread is read no more: such a connection of HTTP/1.1 is closed after the answer.
    ///
    /// # Blocking
    ///
    /// As [`Graceful::serve`].
    ///
    /// # Errors
    ///
    /// As [`Graceful::serve`].
    ///
    /// # Panics
    ///
    /// If the caller is not a goroutine.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::{BufRead, BufReader, Read, Write};
    /// use std::time::Duration;
    /// use windlass::net::{Graceful, TcpListener, TcpStream};
    /// use windlass_hyper::hyper::{Request, Response};
    /// use windlass_hyper::{Body, Http, RequestBody};
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let mut client = TcpStream::connect(listener.local_addr()?)?;
    ///     let server = Graceful::new();
    ///     let stopper = server.clone();
    ///     windlass::spawn(move || {
    ///         let head = "POST / HTTP/1.0\r\nContent-Length: 8\r\n\r\n";
    ///         write!(client, "{head}one\ntwo\n")?;
    ///         let mut answer = String::new();
    ///         client.read_to_string(&mut answer)?;
    ///         assert!(answer.ends_with("\r\n\r\n<one><two>"));
    ///         stopper.stop();
    ///         std::io::Result::Ok(())
    ///     });
    ///     // Each line is answered when it has come, however many there are.
    ///     let handle = |request: Request<RequestBody>| {
    ///         let lines = BufReader::new(request.into_body()).lines();
    ///         Response::new(Body::chunks(lines.map(|line| Ok(format!("<{}>", line?)))))
    ///     };
    ///     Http::new().serve_streams(listener, &server, handle)?;
    ///     server.shutdown(Duration::from_secs(10)).unwrap();
    ///     std::io::Result::Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn serve_streams<L, F, B>(self, listener: L, server: &Graceful, handle: F) -> io::Result<()>
    where
        L: Listener,
        L::Stream: Into<OwnedFd> + Read,
        F: Fn(Request<RequestBody>) -> Response<B> + Send + Sync + 'static,
        B: Into<Body> + 'static,
    {
        self.serve_by(listener, server, Streams(Arc::new(handle)))
    }

    fn serve_by<L, H>(self, listener: L, server: &Graceful, handler: H) -> io::Result<()>
    where
        L: Listener,
        L::Stream: Into<OwnedFd> + Read,
        H: Handler,
    {
        let handler = Arc::new(handler);
        server.serve(listener, move |stream, member| {
            // An error concerns only this client.
            let _ = self.connection(stream, member, Arc::clone(&handler));
        })
    }

    fn connection<S, H>(self, mut stream: S, member: &Member, handler: Arc<H>) -> io::Result<()>
    where
        S: Into<OwnedFd> + Read,
        H: Handler,
    {
        let Some(begin) = self.begin(&mut stream, member)? else {
            return Ok(());
        };
        let is_http2 = begin == PREFACE;
        let socket: OwnedFd = stream.into();
        let activity = Arc::new(Activity::new(!is_http2));
        let io = Watched {
            begin: Bytes::from(begin),
            io: Io::without_delay(socket),
            activity: Arc::clone(&activity),
            lingers: None,
            limit: self.body,
        };
        let stopping = member.stopping().clone();
        let of_requests = Arc::clone(&activity);
        let context = member.context().clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (handler, stopping) = (Arc::clone(&handler), stopping.clone());
            let begun = Counted::handler(&of_requests).map(|handling| {
                let around = Around {
                    http: self,
                    context: context.clone(),
                    activity: Arc::clone(&of_requests),
                    handling,
                };
                let exchange = Counted::exchange(&of_requests);
                (around, Working::new(&of_requests), exchange)
            });
            async move {
                let Some((around, working, exchange)) = begun else {
                    return Err(io::Error::other("the connection takes no more requests"));
                };
                let mut response = handler.answer(request, around).await?;
                response.body_mut().until_sent(exchange);
                if !is_http2 && stopping.is_done() {
                    say_close(&mut response);
                }
                drop(working);
                Ok::<_, io::Error>(response)
            }
        });
        if is_http2 {
            let mut builder = http2::Builder::new(Executor::new());
            let connection = builder.timer(Timer::new()).serve_connection(io, service);
            self.drive(connection, member, &activity, |c| c.graceful_shutdown());
        } else {
            // A client may close its sending side and still read.
            let connection = http1::Builder::new()
                .half_close(true)
                .serve_connection(io, service);
            self.drive(connection, member, &activity, |c| c.graceful_shutdown());
        }
        Ok(())
    }

    /// Reads until it is known whether the client speaks HTTP/2. `None` if it has nothing to say.
    fn begin(self, stream: &mut impl Read, member: &Member) -> io::Result<Option<Vec<u8>>> {
        let mut begin = [0; PREFACE.len()];
        let mut n = 0;
        let mut limit = context::Context::background().with_timeout(self.idle);
        while n < begin.len() && PREFACE.starts_with(&begin[..n]) {
            match limit.run(|| member.idle(|| stream.read(&mut begin[n..])))? {
                Some(more @ 1..) => n += more,
                _ if n == 0 => return Ok(None),
                _ => break,
            }
            limit = context::Context::background().with_timeout(self.head);
        }
        Ok(Some(begin[..n].to_vec()))
    }

    /// Whether a body is known to be too long.
    fn is_too_long(self, body: &Incoming) -> bool {
        body.size_hint().lower() > self.max_body as u64
    }

    async fn read(self, body: Incoming) -> Result<Bytes, StatusCode> {
        if self.is_too_long(&body) {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        let whole = within(self.body, Limited::new(body, self.max_body).collect()).await;
        match whole {
            None => Err(StatusCode::REQUEST_TIMEOUT),
            Some(Ok(whole)) => Ok(whole.to_bytes()),
            Some(Err(e)) if e.is::<http_body_util::LengthLimitError>() => {
                Err(StatusCode::PAYLOAD_TOO_LARGE)
            }
            Some(Err(_)) => Err(StatusCode::BAD_REQUEST),
        }
    }

    /// Runs a connection to its end, to a deadline, or to the end of its server. `finish` lets it take no more requests.
    fn drive<C: Future>(
        self,
        connection: C,
        member: &Member,
        activity: &Activity,
        finish: impl Fn(Pin<&mut C>),
    ) {
        let mut connection = pin!(connection);
        let mut alarms = None;
        block_on(poll_fn(|cx| {
            // All polls of a `block_on` have the same waker, so the alarms are set once.
            let alarms = alarms.get_or_insert_with(|| Alarms::new(cx, member));
            let is_over = connection.as_mut().poll(cx).is_ready();
            if is_over || member.context().is_done() || activity.is_flooded() {
                return Poll::Ready(());
            }
            let now = Instant::now();
            alarms.look_after(self.head.min(self.idle), now);
            if alarms.must_finish(member, activity, now) {
                finish(connection.as_mut());
                if connection.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(());
                }
            }
            if alarms.is_left(activity, now) {
                // What was put in the queue before the last exchange ended.
                let is_over = connection.as_mut().poll(cx).is_ready();
                if is_over || !activity.is_blocked() {
                    return Poll::Ready(());
                }
            }
            if activity.quiet_until(self).is_some_and(|end| end <= now) {
                // HTTP/2 says so to the client; whatever it still has to send is dropped.
                finish(connection.as_mut());
                let _ = connection.as_mut().poll(cx);
                return Poll::Ready(());
            }
            Poll::Pending
        }));
    }
}

impl Default for Http {
    fn default() -> Http {
        Http::new()
    }
}

/// What a request is answered in.
struct Around {
    http: Http,
    /// That of the server's connections.
    context: context::Context,
    activity: Arc<Activity>,
    handling: Counted,
}

/// The program's function.
trait Handler: Send + Sync + 'static {
    /// The answer to a request, whatever its body is like. It fails if there is none, which ends the connection.
    fn answer(
        &self,
        request: Request<Incoming>,
        around: Around,
    ) -> impl Future<Output = io::Result<Response<Answer>>> + Send;
}

/// A function that takes whole requests. It is called where the connection is polled.
struct Whole<F>(F);

impl<F, B> Handler for Whole<F>
where
    F: Fn(Request<Bytes>) -> Response<B> + Send + Sync + 'static,
    B: Into<Body> + 'static,
{
    async fn answer(
        &self,
        request: Request<Incoming>,
        around: Around,
    ) -> io::Result<Response<Answer>> {
        let is_http1 = request.version() < Version::HTTP_2;
        let (head, body) = request.into_parts();
        let body = match around.http.read(body).await {
            Ok(body) => body,
            Err(status) => {
                around.activity.leave_unread();
                return Ok(refusal(status, is_http1));
            }
        };
        let (head, body) = (self.0)(Request::from_parts(head, body)).into_parts();
        let (answer, work) = body.into().split();
        if work.is_some() {
            let context = around.context;
            let working = Working::new(&around.activity);
            let make = move || {
                let _handling = around.handling;
                work.run(&around.activity, working);
            };
            drop(windlass::task::spawn_in(&context, make));
        }
        Ok(Response::from_parts(head, answer))
    }
}

/// A function that reads requests while they arrive. It has a goroutine of its own for each, since the
/// connection has to be polled meanwhile.
struct Streams<F>(Arc<F>);

impl<F, B> Handler for Streams<F>
where
    F: Fn(Request<RequestBody>) -> Response<B> + Send + Sync + 'static,
    B: Into<Body> + 'static,
{
    async fn answer(
        &self,
        request: Request<Incoming>,
        around: Around,
    ) -> io::Result<Response<Answer>> {
        let is_http1 = request.version() < Version::HTTP_2;
        let http = around.http;
        if http.is_too_long(request.body()) {
            around.activity.leave_unread();
            return Ok(refusal(StatusCode::PAYLOAD_TOO_LARGE, is_http1));
        }
        let activity = Arc::clone(&around.activity);
        let request =
            request.map(|body| RequestBody::new(body, http.max_body, http.body, activity));
        let (giver, mut taker) = body::pipe();
        let handle = Arc::clone(&self.0);
        let context = around.context;
        drop(windlass::task::spawn_in(&context, move || {
            let _handling = around.handling;
            let (head, body) = handle(request).into_parts();
            let (answer, work) = body.into().split();
            let working = Working::new(&around.activity);
            if giver.give(Response::from_parts(head, answer), || ()) {
                work.run(&around.activity, working);
            }
        }));
        match poll_fn(|cx| taker.poll(cx)).await {
            Taken::Value(response) => Ok(response),
            Taken::End | Taken::Lost => Err(io::Error::other("the handler panicked")),
        }
    }
}

/// An answer without the program's part.
fn refusal(status: StatusCode, is_http1: bool) -> Response<Answer> {
    let mut response = Response::new(Answer::from(Full::default()));
    *response.status_mut() = status;
    if is_http1 {
        say_close(&mut response);
    }
    response
}

/// Tells a client of HTTP/1.1 that this answer is the last one of its connection.
fn say_close(response: &mut Response<Answer>) {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
}

/// The output of a future, unless it takes too long. It has a timer only if it has to wait.
pub(crate) async fn within<F: Future>(time: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut sleep = None;
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        let sleep = sleep.get_or_insert_with(|| rt::Timer::sleep(&Timer::new(), time));
        sleep.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// The state of a connection that its deadlines follow from.
#[derive(Debug)]
pub(crate) struct Activity {
    /// Whether a request begins with a head, and the next one after it: HTTP/1.1.
    has_heads: bool,
    /// A lock that blocks the thread: hyper moves and drops the parts of answers while it holds such locks itself, so
    /// a goroutine must not park here. None does while it holds this one.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Requests whose answer is being made.
    n_working: usize,
    /// Requests whose answer has not been sent, and parts of answers.
    n_exchanges: usize,
    /// Requests whose handler runs, also of those that the client has taken back.
    n_handling: usize,
    /// Whether the client has asked for more than that may be.
    is_flooded: bool,
    /// Whether no more requests are taken.
    is_closed: bool,
    /// Whether the socket has last taken nothing of what was to be sent.
    is_blocked: bool,
    /// Whether the last request of HTTP/1.1 was not read to its end.
    is_unread: bool,
    /// When something last went on: HTTP/1.1 moved bytes, HTTP/2 such of a body, or a request or answer ended. Other
    /// frames of HTTP/2 say only that the client is there.
    moved: Instant,
    /// When the first byte of a head of HTTP/1.1 arrived.
    head_began: Option<Instant>,
}

impl Activity {
    fn new(has_heads: bool) -> Activity {
        Activity {
            has_heads,
            state: Mutex::new(State {
                n_working: 0,
                n_exchanges: 0,
                n_handling: 0,
                is_flooded: false,
                is_closed: false,
                is_blocked: false,
                is_unread: false,
                moved: Instant::now(),
                head_began: has_heads.then(Instant::now),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was read from the socket.
    fn read(&self) {
        if !self.has_heads {
            return;
        }
        let mut state = self.lock();
        state.moved = Instant::now();
        // While an answer is being sent, what comes may be the rest of its request.
        if state.n_exchanges == 0 && state.head_began.is_none() {
            state.head_began = Some(state.moved);
        }
    }

    /// The socket has taken something, or nothing.
    fn wrote(&self, is_blocked: bool) {
        let mut state = self.lock();
        state.is_blocked = is_blocked;
        if self.has_heads && !is_blocked {
            state.moved = Instant::now();
        }
    }

    /// Part of a request has been read, or of an answer sent.
    pub(crate) fn goes_on(&self) {
        self.lock().moved = Instant::now();
    }

    /// A request is answered although it was not read to its end.
    pub(crate) fn leave_unread(&self) {
        self.lock().is_unread = true;
    }

    fn is_unread(&self) -> bool {
        self.lock().is_unread
    }

    /// Whether the client keeps more handlers busy than it may.
    fn is_flooded(&self) -> bool {
        self.lock().is_flooded
    }

    fn is_blocked(&self) -> bool {
        self.lock().is_blocked
    }

    /// When the connection has been quiet for too long; `None` while it works.
    fn quiet_until(&self, limits: Http) -> Option<Instant> {
        let state = self.lock();
        let end = match state.head_began {
            Some(begun) => begun.checked_add(limits.head),
            None => state.moved.checked_add(limits.idle),
        };
        end.filter(|_| state.n_working == 0)
    }

    /// Whether no request has begun that is not answered.
    fn is_idle(&self) -> bool {
        let state = self.lock();
        state.n_working == 0 && state.head_began.is_none()
    }

    /// Takes no more requests. Returns whether all answers have been sent.
    fn close(&self) -> bool {
        let mut state = self.lock();
        state.is_closed = true;
        state.n_working == 0 && state.n_exchanges == 0
    }
}

/// A request that is being answered.
pub(crate) struct Working(Arc<Activity>);

impl Working {
    pub(crate) fn new(activity: &Arc<Activity>) -> Working {
        let mut state = activity.lock();
        state.n_working += 1;
        state.head_began = None;
        drop(state);
        Working(Arc::clone(activity))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.n_working -= 1;
        state.moved = Instant::now();
    }
}

/// Counts as one of those in a part of a connection's state, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    activity: Arc<Activity>,
    count: fn(&mut State) -> &mut usize,
}

impl Counted {
    /// A request whose answer has not been sent.
    fn exchange(activity: &Arc<Activity>) -> Counted {
        let mut state = activity.lock();
        state.is_unread = false;
        Counted::new(activity, &mut state, |state| &mut state.n_exchanges)
    }

    /// A handler that runs, and makes the chunks of its answer. `None` if the connection has as many as it may have, or
    /// takes no more requests.
    fn handler(activity: &Arc<Activity>) -> Option<Counted> {
        let mut state = activity.lock();
        if state.is_closed {
            return None;
        }
        if state.n_handling >= MAX_HANDLERS {
            state.is_flooded = true;
            return None;
        }
        Some(Counted::new(activity, &mut state, |state| {
            &mut state.n_handling
        }))
    }

    /// One more, of the same.
    pub(crate) fn another(&self) -> Counted {
        Counted::new(&self.activity, &mut self.activity.lock(), self.count)
    }

    /// The client has taken something of it.
    pub(crate) fn goes_on(&self) {
        self.activity.goes_on();
    }

    fn new(
        activity: &Arc<Activity>,
        state: &mut State,
        count: fn(&mut State) -> &mut usize,
    ) -> Counted {
        *count(state) += 1;
        let activity = Arc::clone(activity);
        Counted { activity, count }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *(self.count)(&mut self.activity.lock()) -= 1;
    }
}

/// Wake the goroutine that drives a connection.
struct Alarms {
    on_stop: context::AfterFunc,
    on_end: context::AfterFunc,
    ticks: time::AfterFunc,
    next_tick: Instant,
    /// When a connection that is idle is ended after the stop.
    grace_ends: Option<Instant>,
    is_finishing: bool,
}

impl Alarms {
    fn new(cx: &Context<'_>, member: &Member) -> Alarms {
        let waker = || cx.waker().clone();
        let (stop, end, tick) = (waker(), waker(), waker());
        Alarms {
            on_stop: context::after_func(member.stopping(), move || stop.wake()),
            on_end: context::after_func(member.context(), move || end.wake()),
            ticks: time::after_func(Duration::ZERO, move || tick.wake_by_ref()),
            next_tick: Instant::now(),
            grace_ends: None,
            is_finishing: false,
        }
    }

    /// Sees to it that the goroutine looks again after `time` at the latest, if that is a time at all.
    fn look_after(&mut self, time: Duration, now: Instant) {
        let Some(next) = now.checked_add(time) else {
            return;
        };
        if self.next_tick <= now || next < self.next_tick {
            self.next_tick = next;
            self.ticks.reset(time);
        }
    }

    /// Whether the connection is to take no more requests, from now on.
    fn must_finish(&mut self, member: &Member, activity: &Activity, now: Instant) -> bool {
        if self.is_finishing || !member.is_stopping() {
            return false;
        }
        if self.grace_ends.is_none() {
            self.look_after(GRACE, now);
        }
        let ends = *self.grace_ends.get_or_insert(now + GRACE);
        // HTTP/2 tells the client which requests it has not taken.
        self.is_finishing = !activity.has_heads || now >= ends && activity.is_idle();
        self.is_finishing
    }

    /// Whether a connection of HTTP/2 has sent all answers, and its client has had its time to say that it knows of the
    /// end, but has not.
    fn is_left(&mut self, activity: &Activity, now: Instant) -> bool {
        if activity.has_heads || self.grace_ends.is_none_or(|end| now < end) {
            return false;
        }
        // The last answer may end on another goroutine.
        self.look_after(GRACE, now);
        activity.close()
    }
}

impl Drop for Alarms {
    fn drop(&mut self) {
        self.on_stop.stop();
        self.on_end.stop();
        self.ticks.stop();
    }
}

/// A socket that tells when bytes move, after those that were read to find out the protocol.
struct Watched {
    begin: Bytes,
    io: Io,
    activity: Arc<Activity>,
    /// Set when the sending side has been closed before the request had been read.
    lingers: Option<Lingers>,
    /// The longest time to linger.
    limit: Duration,
}

/// When the rest of a request is no longer awaited.
struct Lingers {
    /// Unless something comes before.
    quiet: Instant,
    /// `None` if that is too far away to tell.
    at_last: Option<Instant>,
    sleep: Pin<Box<dyn rt::Sleep>>,
}

impl Lingers {
    fn new(limit: Duration) -> Lingers {
        let now = Instant::now();
        let quiet = now + LINGER;
        Lingers {
            quiet,
            at_last: now.checked_add(limit),
            sleep: Timer::new().sleep_until(quiet),
        }
    }

    /// Whether it is time to close.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let end = self.at_last.map_or(self.quiet, |end| end.min(self.quiet));
        loop {
            ready!(self.sleep.as_mut().poll(cx));
            if end <= Instant::now() {
                return Poll::Ready(());
            }
            // Something has come since it was set.
            self.sleep = Timer::new().sleep_until(end);
        }
    }
}

impl Watched {
    /// Reads what the client still sends, and throws it away, until it closes or has sent nothing for a while. To close a
    /// socket with bytes in it, or before more come, resets the connection: the client loses what it has not got yet.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..READS {
            let mut bytes = [MaybeUninit::uninit(); 8 << 10];
            let mut buf = rt::ReadBuf::uninit(&mut bytes);
            let read = Pin::new(&mut self.io).poll_read(cx, buf.unfilled());
            match (read, &mut self.lingers) {
                (Poll::Ready(Ok(())), lingers) if !buf.filled().is_empty() => {
                    let lingers = lingers.get_or_insert_with(|| Lingers::new(self.limit));
                    lingers.quiet = Instant::now() + LINGER;
                    if lingers
                        .at_last
                        .is_some_and(|end| end <= lingers.quiet - LINGER)
                    {
                        return Poll::Ready(());
                    }
                }
                // It has closed, or is gone.
                (Poll::Ready(_), _) => return Poll::Ready(()),
                (Poll::Pending, None) if !self.activity.is_unread() => return Poll::Ready(()),
                (Poll::Pending, lingers) => {
                    let lingers = lingers.get_or_insert_with(|| Lingers::new(self.limit));
                    return lingers.poll(cx);
                }
            }
        }
        // The connection has a look at its other ends.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl rt::Read for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.begin.is_empty() {
            let n = self.begin.len().min(buf.remaining());
            buf.put_slice(&self.begin.split_to(n));
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        if read.is_ready() {
            self.activity.read();
        }
        read
    }
}

impl rt::Write for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.activity.wrote(written.is_pending());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.activity.wrote(written.is_pending());
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingers.is_none() {
            ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
        }
        match self.activity.has_heads {
            true => self.poll_linger(cx).map(Ok),
            false => Poll::Ready(Ok(())),
        }
    }
}

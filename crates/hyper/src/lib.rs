//! hyper on goroutines: its transport, executor and timer.
//!
//! hyper's connections are futures. A goroutine of windlass waits for one with
//! [`future::block_on`]. This crate implements the traits of hyper's runtime:
//!
//! - [`Io`] is a stream socket for hyper. It never parks the goroutine that polls it, because a
//!   connection reads and writes at the same time. If the socket is not ready, a goroutine is
//!   spawned that waits for readiness and wakes the future.
//! - [`Executor`] spawns a goroutine for each future that HTTP/2 needs to run.
//! - [`Timer`] implements hyper's timeouts.
//!
//! With the feature `server`, `serve` is a server of plain functions, for HTTP/1.1 and HTTP/2.
//!
//! # What a service may wait for
//!
//! A service may call functions of windlass that wait: locks, channels, sleeps, sockets. The wait
//! parks the goroutine that polls the service's future. With HTTP/2 and [`Executor`] that is the
//! goroutine of this request. With HTTP/1 it is the goroutine of the connection, which meanwhile
//! neither reads nor writes. So the body of the request, and whatever else the connection itself
//! brings about, must be awaited with `.await` and not with `block_on`. A peer that closes the
//! connection does not end such a wait.
//!
//! # axum, tonic and other crates over hyper
//!
//! A `Router` of axum, and tonic's `Routes`, are services for each connection:
//! `service_fn(move |request| router.clone().call(request))`. The repository has examples of both.
//! A connection that was upgraded becomes a socket of windlass again by [`Io::into_fd`].
//!
//! # Examples
//!
//! ```
//! use hyper::{Request, Response, body::Incoming, client, server, service::service_fn};
//! use windlass::net::{TcpListener, TcpStream};
//! use windlass::future;
//! use windlass_hyper::Io;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! # // SAFETY: nothing here keeps a thread-local across a call that parks.
//! # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
//! rt.run(|| {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let addr = listener.local_addr()?;
//!     windlass::spawn(move || {
//!         let (stream, _) = listener.accept()?;
//!         let hello = service_fn(|_: Request<Incoming>| async {
//!             Ok::<_, std::io::Error>(Response::new("hello".to_owned()))
//!         });
//!         let connection = server::conn::http1::Builder::new().serve_connection(Io::new(stream), hello);
//!         future::block_on(connection).map_err(std::io::Error::other)
//!     });
//!     let io = Io::new(TcpStream::connect(addr)?);
//!     future::block_on(async {
//!         let (mut sender, connection) = client::conn::http1::handshake(io).await?;
//!         future::spawn(connection);
//!         let answer = sender.send_request(Request::new(String::new())).await?;
//!         assert_eq!(answer.status(), 200);
//!         Ok(())
//!     })
//! })
//! # }
//! ```
#![allow(unsafe_code)]
#![allow(
    clippy::unnecessary_safety_comment,
    reason = "the one in the example above is for the reader"
)]
#![warn(clippy::disallowed_methods)]

#[cfg(feature = "server")]
mod body;
#[cfg(feature = "server")]
mod serve;

use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hyper::rt;
use socket2::SockRef;

use windlass::context::{self, Canceller};
use windlass::foreign::{NEVER, Waits};
use windlass::future;
use windlass::sync::{Mutex, MutexGuard};
use windlass::task::{self, Task};

#[cfg(feature = "server")]
pub use body::{Body, RequestBody};
#[cfg(feature = "server")]
pub use hyper;
#[cfg(feature = "server")]
pub use serve::{Http, serve};

/// The most buffers of a call: the kernel's `UIO_MAXIOV`.
const MAX_BUFFERS: usize = 1024;

/// The stack size of goroutines that only wait and wake a future.
const STACK_BYTES: usize = 64 << 10;

/// A stream socket that implements hyper's `Read` and `Write`.
///
/// Made from a `TcpStream` or `UnixStream` of windlass or `std`. The socket's timeouts do not
/// apply; hyper has its own.
///
/// # Blocking
///
/// Never. Goroutines spawned by it wait for readiness.
pub struct Io {
    shared: Arc<Shared>,
    /// Cancels the goroutines that wait for the socket when it is dropped.
    _waits: Canceller,
}

struct Shared {
    fd: OwnedFd,
    /// The context in which the goroutines wait.
    waits: context::Context,
    read: Side,
    write: Side,
}

/// One direction of the socket.
struct Side {
    /// The `poll(2)` events of this direction.
    events: i16,
    waiting: Mutex<Waiting>,
    /// Whether an attempt has found something since a goroutine last began to wait. Ordering: relaxed;
    /// only the task that polls the future sets and takes it.
    has_found: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    waker: Option<Waker>,
    /// Whether a goroutine waits for readiness, and will wake `waker`.
    has_goroutine: bool,
    /// The waits since an attempt last found something, while none is going on. The socket may be
    /// shown as ready when every attempt finds nothing, as while its error queue has an entry.
    waits: Option<Waits>,
}

impl Io {
    /// Wraps a socket, which may be in blocking or non-blocking mode.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UnixStream;
    /// use windlass_hyper::Io;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let (server, client) = UnixStream::pair()?;
    ///     let (_server, _client) = (Io::new(server), Io::new(client));
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn new(socket: impl Into<OwnedFd>) -> Io {
        let (waits, canceller) = context::Context::background().with_cancel();
        let shared = Shared {
            fd: socket.into(),
            waits,
            read: Side::new(libc::POLLIN),
            write: Side::new(libc::POLLOUT),
        };
        Io {
            shared: Arc::new(shared),
            _waits: canceller,
        }
    }

    /// As `new`, and sends at once what hyper writes.
    #[cfg(feature = "server")]
    fn without_delay(socket: OwnedFd) -> Io {
        // A Unix socket has no such option.
        let _ = SockRef::from(&socket).set_tcp_nodelay(true);
        Io::new(socket)
    }

    /// Gives the socket back, for a connection that no longer speaks HTTP: a WebSocket, say, after
    /// [`hyper::upgrade`]. The descriptor becomes a `TcpStream` or `UnixStream` of windlass by
    /// `From`; its mode and timeouts are as before [`Io::new`].
    ///
    /// Bytes that hyper has read ahead are in the `read_buf` of [`hyper::upgrade::Parts`].
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// If a goroutine still waits for the socket, the wait is ended and the descriptor duplicated,
    /// which fails when the process has too many open files.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use windlass::net::UnixStream;
    /// use windlass_hyper::Io;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let (server, mut client) = UnixStream::pair()?;
    ///     let io = Io::new(server);
    ///     // Here hyper would serve a request, and upgrade the connection.
    ///     let mut stream = UnixStream::from(io.into_fd()?);
    ///     stream.write_all(b"hello")?;
    ///     let mut greeting = [0; 5];
    ///     client.read_exact(&mut greeting)?;
    ///     assert_eq!(&greeting, b"hello");
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        let Io { shared, _waits } = self;
        drop(_waits);
        match Arc::try_unwrap(shared) {
            Ok(shared) => Ok(shared.fd),
            Err(shared) => shared.fd.try_clone(),
        }
    }

    /// Calls `attempt`. If it would block, arranges for the future to be woken.
    fn poll<T>(
        &self,
        cx: &Context<'_>,
        side: fn(&Shared) -> &Side,
        mut attempt: impl FnMut(SockRef<'_>) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            match attempt(SockRef::from(&self.shared.fd)) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.wake_when(cx, side)?;
                    return Poll::Pending;
                }
                r => {
                    side(&self.shared).has_found.store(true, Ordering::Relaxed);
                    return Poll::Ready(r);
                }
            }
        }
    }

    fn wake_when(&self, cx: &Context<'_>, side: fn(&Shared) -> &Side) -> io::Result<()> {
        let Some(waits) = side(&self.shared).begin_wait(cx.waker().clone()) else {
            return Ok(());
        };
        let mut wait = Wait {
            shared: Arc::clone(&self.shared),
            side,
            waits: Some(waits),
        };
        let spawned = spawn(move || {
            let Wait { shared, waits, .. } = &mut wait;
            if let Some(waits) = waits {
                // If it fails, the next attempt returns the error.
                let _ = shared.waits.run(|| waits.wait(shared.fd.as_raw_fd()));
            }
        });
        spawned.map(drop)
    }
}

/// Belongs to the goroutine that waits. It is dropped however the wait ends: also with the run, or because
/// there was no goroutine for it.
struct Wait {
    shared: Arc<Shared>,
    side: fn(&Shared) -> &Side,
    /// There until the drop.
    waits: Option<Waits>,
}

impl Drop for Wait {
    fn drop(&mut self) {
        (self.side)(&self.shared).end_wait(self.waits.take());
    }
}

impl Side {
    fn new(events: i16) -> Side {
        Side {
            events,
            waiting: Mutex::default(),
            has_found: AtomicBool::new(false),
        }
    }

    /// Stores the waker. Returns how to wait if no goroutine waits for readiness yet, so the caller has
    /// to spawn one.
    fn begin_wait(&self, waker: Waker) -> Option<Waits> {
        // Dropping a waker may run foreign code, so the old one is dropped after the unlock.
        let _old;
        let mut waiting = lock(&self.waiting);
        _old = waiting.waker.replace(waker);
        if std::mem::replace(&mut waiting.has_goroutine, true) {
            return None;
        }
        let has_found = self.has_found.swap(false, Ordering::Relaxed);
        let begun = waiting.waits.take().filter(|_| !has_found);
        Some(begun.unwrap_or_else(|| Waits::new(self.events, NEVER)))
    }

    /// Called when the wait of the goroutine is over.
    fn end_wait(&self, waits: Option<Waits>) {
        let waker = {
            let mut waiting = lock(&self.waiting);
            waiting.has_goroutine = false;
            waiting.waits = waits;
            waiting.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

fn spawn(f: impl FnOnce() + Send + 'static) -> io::Result<Task> {
    let handle = task::Builder::new().stack_size(STACK_BYTES).spawn(f)?;
    Ok(handle.task())
}

impl fmt::Debug for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Io").field("fd", &self.shared.fd).finish()
    }
}

impl AsFd for Io {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.fd.as_fd()
    }
}

impl rt::Read for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let received = self.poll(
            cx,
            |shared| &shared.read,
            |socket| {
                // SAFETY: only the kernel writes to it, and it writes initialised bytes.
                let place = unsafe { buf.as_mut() };
                match place.is_empty() {
                    true => Ok(0),
                    false => socket.recv_with_flags(place, libc::MSG_DONTWAIT),
                }
            },
        );
        received.map_ok(|n| {
            // SAFETY: the kernel wrote `n` bytes into the buffer.
            unsafe { buf.advance(n) };
        })
    }
}

impl rt::Write for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(
            cx,
            |shared| &shared.write,
            |socket| socket.send_with_flags(buf, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL),
        )
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bufs = &bufs[..bufs.len().min(MAX_BUFFERS)];
        self.poll(
            cx,
            |shared| &shared.write,
            |socket| socket.send_vectored_with_flags(bufs, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL),
        )
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match SockRef::from(&self.shared.fd).shutdown(Shutdown::Write) {
            // The peer has closed the connection first.
            Err(e) if e.kind() == ErrorKind::NotConnected => Poll::Ready(Ok(())),
            r => Poll::Ready(r),
        }
    }
}

/// Runs each future in a goroutine of its own. For connections of HTTP/2.
///
/// # Panics
///
/// `execute` panics if the caller is not a goroutine, as [`spawn`](windlass::spawn) does.
///
/// # Examples
///
/// ```
/// use hyper::{Request, Response, body::Incoming, server::conn::http2, service::service_fn};
/// use windlass::net::UnixStream;
/// use windlass_hyper::{Executor, Io, Timer};
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let (server, client) = UnixStream::pair()?;
///     let hello = service_fn(|_: Request<Incoming>| async {
///         Ok::<_, std::io::Error>(Response::new("hello".to_owned()))
///     });
///     let connection = http2::Builder::new(Executor::new())
///         .timer(Timer::new())
///         .serve_connection(Io::new(server), hello);
///     // The client hangs up without a request.
///     drop(client);
///     let _ = windlass::future::block_on(connection);
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Executor;

impl Executor {
    /// Creates an executor. It has no settings.
    #[must_use]
    pub const fn new() -> Executor {
        Executor
    }
}

impl<F> rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    #[track_caller]
    fn execute(&self, future: F) {
        drop(future::spawn(future));
    }
}

/// hyper's timer. Each sleep that is polled has a goroutine that sleeps. [`Executor`] has an
/// example.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Timer;

impl Timer {
    /// Creates a timer. It has no settings.
    #[must_use]
    pub const fn new() -> Timer {
        Timer
    }
}

impl rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        // Limit the duration, since the sum with the current instant may overflow.
        let year = Duration::from_secs(365 * 24 * 3600);
        self.sleep_until(Instant::now() + duration.min(year))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Sleep {
            deadline,
            waited: None,
        })
    }
}

/// A future that is ready at the deadline.
struct Sleep {
    deadline: Instant,
    /// Created by the first poll.
    waited: Option<Waited>,
}

/// A goroutine that sleeps until the deadline and then wakes the future.
struct Waited {
    waker: Arc<Mutex<Option<Waker>>>,
    sleeper: Task,
}

impl rt::Sleep for Sleep {}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline;
        if deadline <= Instant::now() {
            return Poll::Ready(());
        }
        if let Some(waited) = &self.waited {
            let new = cx.waker().clone();
            let _old = lock(&waited.waker).replace(new);
            // The deadline may have passed meanwhile, and the sleeper may have taken the old waker.
            return match deadline <= Instant::now() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            };
        }
        let waker = Arc::new(Mutex::new(Some(cx.waker().clone())));
        let woken = Arc::clone(&waker);
        match spawn(move || sleep_and_wake(deadline, &woken)) {
            Ok(sleeper) => {
                self.waited = Some(Waited { waker, sleeper });
                Poll::Pending
            }
            // A goroutine cannot be spawned: be ready too early rather than never.
            Err(_) => Poll::Ready(()),
        }
    }
}

/// Sleeps until the deadline, or until the `Sleep` is dropped.
fn sleep_and_wake(deadline: Instant, waker: &Arc<Mutex<Option<Waker>>>) {
    // The second reference is the `Sleep`'s.
    while Arc::strong_count(waker) > 1 {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        task::park_timeout(left);
    }
    let waker = lock(waker).take();
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Locks. Poisoning is ignored: no code panics while it holds such a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(waited) = self.waited.take() {
            drop(waited.waker);
            waited.sleeper.unpark();
        }
    }
}

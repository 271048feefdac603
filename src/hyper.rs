//! hyper on goroutines: its transports, executor and timer (feature `hyper`).
//!
//! hyper's connections are futures. A goroutine waits for one with
//! [`future::block_on`], and what it waits for comes from here:
//!
//! - [`Io`] makes a stream socket something that hyper reads and writes. It never waits
//!   itself: a connection does several things at once. Where there is nothing to read, a
//!   goroutine is spawned that waits for readiness and wakes the future;
//! - [`Executor`] spawns a goroutine for each future that HTTP/2 wants to be run;
//! - [`Timer`] is for hyper's timeouts.
//!
//! A service may answer with a future that is ready at once and call blocking code of
//! windlass before: on HTTP/1 that holds up its own connection only.
//!
//! # Examples
//!
//! ```
//! use hyper::{Request, Response, body::Incoming, client, server, service::service_fn};
//! use windlass::net::{TcpListener, TcpStream};
//! use windlass::{future, hyper::Io};
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

use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hyper::rt;
use socket2::SockRef;

use crate::context::{self, Canceller};
use crate::future;
use crate::io::{wait_readable, wait_writable};
use crate::sync::{Mutex, MutexGuard};
use crate::sys::clock;
use crate::task::{self, Task};

/// The stack of a goroutine that only waits and wakes.
const STACK_BYTES: usize = 64 << 10;

/// A stream socket as hyper wants it.
///
/// Made from windlass's or `std`'s `TcpStream` or `UnixStream`. Their timeouts do not
/// apply: hyper has its own.
pub struct Io {
    shared: Arc<Shared>,
    /// Ends the goroutines that wait for the socket. Dropping it cancels, too.
    _waits: Canceller,
}

struct Shared {
    fd: OwnedFd,
    /// In which the goroutines wait.
    waits: context::Context,
    read: Side,
    write: Side,
}

/// One direction: who is to be woken when it is ready.
#[derive(Default)]
struct Side(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    waker: Option<Waker>,
    /// A goroutine waits for readiness, and will wake.
    has_goroutine: bool,
}

impl Io {
    /// Takes the socket, in whichever mode it is.
    #[must_use]
    pub fn new(socket: impl Into<OwnedFd>) -> Io {
        let (waits, canceller) = context::Context::background().with_cancel();
        let shared = Shared {
            fd: socket.into(),
            waits,
            read: Side::default(),
            write: Side::default(),
        };
        Io {
            shared: Arc::new(shared),
            _waits: canceller,
        }
    }

    /// Calls `attempt`; if it would have to wait, sees to it that the future is woken.
    fn poll<T>(
        &self,
        cx: &Context<'_>,
        side: fn(&Shared) -> &Side,
        wait: fn(BorrowedFd<'_>) -> io::Result<()>,
        mut attempt: impl FnMut(SockRef<'_>) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            match attempt(SockRef::from(&self.shared.fd)) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.wake_when(cx, side, wait)?;
                    return Poll::Pending;
                }
                r => return Poll::Ready(r),
            }
        }
    }

    fn wake_when(
        &self,
        cx: &Context<'_>,
        side: fn(&Shared) -> &Side,
        wait: fn(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        if !side(&self.shared).wants_goroutine(cx.waker().clone()) {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let spawned = spawn(move || {
            // If it fails, the next attempt says why.
            let _ = shared.waits.run(|| wait(shared.fd.as_fd()));
            side(&shared).wake();
        });
        if spawned.is_err() {
            side(&self.shared).lock().has_goroutine = false;
        }
        spawned.map(drop)
    }
}

impl Side {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.0)
    }

    /// Notes whom to wake. `true` if no goroutine waits for readiness yet: the caller has
    /// to spawn it.
    fn wants_goroutine(&self, waker: Waker) -> bool {
        // A waker may be anybody's code, so the old one is dropped behind the lock.
        let _old;
        let mut waiting = self.lock();
        _old = waiting.waker.replace(waker);
        !std::mem::replace(&mut waiting.has_goroutine, true)
    }

    /// Called by the goroutine when its wait is over.
    fn wake(&self) {
        let waker = {
            let mut waiting = self.lock();
            waiting.has_goroutine = false;
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

fn wait_read(fd: BorrowedFd<'_>) -> io::Result<()> {
    wait_readable(fd)
}

fn wait_write(fd: BorrowedFd<'_>) -> io::Result<()> {
    wait_writable(fd)
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
            wait_read,
            |socket| {
                // SAFETY: the kernel writes initialised bytes only, and nothing else is written.
                let place = unsafe { buf.as_mut() };
                match place.is_empty() {
                    true => Ok(0),
                    false => socket.recv_with_flags(place, libc::MSG_DONTWAIT),
                }
            },
        );
        received.map_ok(|n| {
            // SAFETY: the kernel wrote so many bytes into the buffer.
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
            wait_write,
            |socket| socket.send_with_flags(buf, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL),
        )
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bufs = &bufs[..bufs.len().min(crate::io::socket::MAX_BUFFERS)];
        self.poll(
            cx,
            |shared| &shared.write,
            wait_write,
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
            // The peer was quicker.
            Err(e) if e.kind() == ErrorKind::NotConnected => Poll::Ready(Ok(())),
            r => Poll::Ready(r),
        }
    }
}

/// Runs each future in a goroutine of its own.
///
/// # Panics
///
/// `execute` panics off the runtime, as [`spawn`](crate::spawn) does.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Executor;

impl Executor {
    /// There is nothing to set.
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

/// Time for hyper: each sleep that is waited for has a goroutine.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Timer;

impl Timer {
    /// There is nothing to set.
    #[must_use]
    pub const fn new() -> Timer {
        Timer
    }
}

impl rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        // A year is as good as for ever: an instant so far off may not exist.
        let year = Duration::from_secs(365 * 24 * 3600);
        self.sleep_until(clock::now() + duration.min(year))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Sleep {
            deadline,
            waited: None,
        })
    }
}

/// Done at an instant.
struct Sleep {
    deadline: Instant,
    /// Made when it is first waited for.
    waited: Option<Waited>,
}

/// A goroutine that sleeps until the deadline, and wakes.
struct Waited {
    waker: Arc<Mutex<Option<Waker>>>,
    sleeper: Task,
}

impl rt::Sleep for Sleep {}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline;
        if deadline <= clock::now() {
            return Poll::Ready(());
        }
        if let Some(waited) = &self.waited {
            let new = cx.waker().clone();
            let _old = lock(&waited.waker).replace(new);
            // The sleeper may have taken the old one before, as it was time.
            return match deadline <= clock::now() {
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
            // As many goroutines as there may be: then it comes too early.
            Err(_) => Poll::Ready(()),
        }
    }
}

/// Sleeps until the deadline, or until nobody waits for it any more.
fn sleep_and_wake(deadline: Instant, waker: &Arc<Mutex<Option<Waker>>>) {
    // The other one is the sleep's own.
    while Arc::strong_count(waker) > 1 {
        let left = deadline.saturating_duration_since(clock::now());
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

/// Nobody panics with such a lock held.
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

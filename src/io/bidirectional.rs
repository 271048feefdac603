//! Copying in both directions between two streams.

use std::io::{self, Read, Write};
use std::net::Shutdown;

use super::copy::copy;
use crate::context::{Canceller, Context};
use crate::loom::native::{Mutex, PoisonError};
use crate::net::{TcpStream, UnixStream};
use crate::task;

/// A stream that is read and written at the same time, and whose writing side can be closed while its
/// reading side stays open: TCP, Unix sockets, and protocols over them.
///
/// # Examples
///
/// ```
/// use std::io;
/// use windlass::io::Duplex;
/// use windlass::net::{Shutdown, UnixStream};
///
/// /// A stream that belongs to something.
/// struct Connection(UnixStream);
///
/// impl Duplex for Connection {
///     type Half<'a> = &'a UnixStream;
///
///     fn half(&self) -> &UnixStream {
///         &self.0
///     }
///
///     fn close_write(&self) -> io::Result<()> {
///         self.0.shutdown(Shutdown::Write)
///     }
/// }
/// ```
pub trait Duplex: Sync {
    /// By which one direction reads and the other one writes, such as a reference.
    type Half<'a>: Read + Write
    where
        Self: 'a;

    /// Returns the reader or writer of one direction.
    fn half(&self) -> Self::Half<'_>;

    /// Tells the peer that nothing more will be written. It reads the end of the stream then.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the peer has gone.
    fn close_write(&self) -> io::Result<()>;
}

impl Duplex for TcpStream {
    type Half<'a> = &'a TcpStream;

    fn half(&self) -> &TcpStream {
        self
    }

    fn close_write(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Duplex for UnixStream {
    type Half<'a> = &'a UnixStream;

    fn half(&self) -> &UnixStream {
        self
    }

    fn close_write(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// Copies everything from `a` to `b` and from `b` to `a`, until both have ended. Returns the numbers
/// of bytes in that order.
///
/// The end of one direction is passed on ([`Duplex::close_write`]), and does not end the other: in some
/// protocols a peer sends everything, closes its writing side, and only then reads. An error of one
/// direction ends the waits of the other one. The streams are not closed then; dropping them does
/// that.
///
/// Each direction is a [`copy`], which moves the bytes inside the kernel where it can. One of them
/// has a goroutine of its own.
///
/// # Blocking
///
/// Parks the goroutine until both directions have ended. Ambient contexts
/// ([`context`](mod@crate::context)), timeouts and deadlines of the streams end it early.
///
/// # Errors
///
/// The first error of either direction. Bytes that were read and not written by then are lost.
///
/// # Panics
///
/// If the caller is not a goroutine, and if a stream of the program's own panics. That ends the other
/// direction as an error does.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::Shutdown;
/// use windlass::io;
/// use windlass::net::UnixStream;
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let (mut client, a) = UnixStream::pair()?;
///     let (b, mut server) = UnixStream::pair()?;
///     let proxy = windlass::spawn(move || io::copy_bidirectional(&a, &b));
///     client.write_all(b"ping")?;
///     client.shutdown(Shutdown::Write)?;
///     let mut request = String::new();
///     server.read_to_string(&mut request)?; // until the end, which the proxy passes on
///     server.write_all(b"pong!")?;
///     drop(server);
///     assert_eq!((request.as_str(), proxy.join().unwrap()?), ("ping", (4, 5)));
///     io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn copy_bidirectional<A, B>(a: &A, b: &B) -> io::Result<(u64, u64)>
where
    A: Duplex + ?Sized,
    B: Duplex + ?Sized,
{
    let first_error = Mutex::new(None);
    let (ctx, canceller) = Context::background().with_cancel();
    let fail = |error| {
        let mut first = first_error.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(error);
        drop(first);
        canceller.cancel();
    };
    let (there, back) = task::scope_in(&ctx, |scope| {
        let back = scope.spawn(|| or_cancel(&canceller, || one_way(b, a).map_err(&fail)));
        let there = or_cancel(&canceller, || one_way(a, b).map_err(&fail));
        (there, back.join())
    });
    let back = back.unwrap_or_else(|payload| std::panic::resume_unwind(payload));
    match (there, back) {
        (Ok(there), Ok(back)) => Ok((there, back)),
        _ => {
            let first = first_error.into_inner();
            let first = first.unwrap_or_else(PoisonError::into_inner);
            Err(first.expect("a direction that fails leaves its error"))
        }
    }
}

/// Calls `f`, and ends the waits of the other direction if it panics: one of the program's own streams
/// may.
fn or_cancel<T>(canceller: &Canceller, f: impl FnOnce() -> T) -> T {
    struct CancelOnDrop<'a>(&'a Canceller);
    impl Drop for CancelOnDrop<'_> {
        fn drop(&mut self) {
            self.0.cancel();
        }
    }
    let guard = CancelOnDrop(canceller);
    let result = f();
    std::mem::forget(guard);
    result
}

/// Copies everything, and then passes the end of the stream on.
fn one_way<R, W>(from: &R, to: &W) -> io::Result<u64>
where
    R: Duplex + ?Sized,
    W: Duplex + ?Sized,
{
    let n = copy(&mut from.half(), &mut to.half())?;
    match to.close_write() {
        // The peer has gone; the other direction notices that, too.
        Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(error),
        _ => Ok(n),
    }
}

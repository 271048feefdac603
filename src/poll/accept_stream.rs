//! Accepting all connections to a listener, with one multishot request (`netpoll::multishot`).

use std::fmt;
use std::io;
use std::iter::FusedIterator;
use std::os::fd::{AsFd, OwnedFd};

use super::connect::is_rings_own;
use super::fd::{Direction, Fd};
use super::subscription::Subscription;

/// The connections to a listener, one after the other. Made by `accept_stream` of a listener, for
/// example [`TcpListener::accept_stream`](crate::net::TcpListener::accept_stream).
///
/// One request to the kernel stays armed, instead of one request for each connection, and the
/// kernel accepts ahead of the goroutine. When 16 accepted connections wait, the kernel is made to
/// stop until they have been taken. Connections that it accepts before it stops are stored as well,
/// at most as many as the listener's queue held.
///
/// [`AcceptStream::finish`] returns the connections that were accepted ahead, so that none is lost.
/// Dropping the value closes them. Both wait until the kernel has stopped accepting, which takes
/// some microseconds.
///
/// A connection that the kernel accepts for one `AcceptStream` belongs to it. So several of them on
/// one listener do not share the work as several goroutines that call `accept` do. The connection's
/// `peer_addr` returns the address of the peer. On a plain thread and with the epoll fallback,
/// connections are accepted one by one.
///
/// As an iterator it never ends. After an error it may be called again.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
/// use windlass::net::{TcpListener, TcpStream};
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let addr = listener.local_addr()?;
///     windlass::spawn(move || {
///         for stream in listener.accept_stream() {
///             let mut stream = stream?;
///             windlass::spawn(move || stream.write_all(b"hello"));
///         }
///         Ok::<(), std::io::Error>(())
///     });
///     let mut text = String::new();
///     TcpStream::connect(addr)?.read_to_string(&mut text)?;
///     assert_eq!(text, "hello");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct AcceptStream<'a, T> {
    connections: Subscription<'a>,
    /// Makes a stream from an accepted socket.
    stream_of: fn(OwnedFd) -> T,
}

impl Fd {
    /// Accepts all connections, as streams of type `T`.
    pub(crate) fn accept_stream<T>(&self, stream_of: fn(OwnedFd) -> T) -> AcceptStream<'_, T> {
        AcceptStream {
            connections: Subscription::new(self),
            stream_of,
        }
    }
}

impl<T: From<OwnedFd>> AcceptStream<'_, T> {
    /// Returns the next connection.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until a connection arrives; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// As [`TcpListener::accept`](crate::net::TcpListener::accept). If a deadline or a context ends
    /// the wait, no connection is lost: the next call returns one that arrives later.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let client = TcpStream::connect(listener.local_addr()?)?;
    /// let mut connections = listener.accept_stream();
    /// let stream = connections.accept()?;
    /// assert_eq!(stream.peer_addr()?, client.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn accept(&mut self) -> io::Result<T> {
        let fd = self.connections.fd;
        let deadline = fd.deadline(Direction::Read)?;
        match self.connections.next(deadline)? {
            Some(Ok(connection)) => Ok((self.stream_of)(connection)),
            // If the error is a firewall's, an ordinary accept fails with it as well.
            Some(Err(errno)) if is_rings_own(errno) => {
                fd.accept().map(|(fd, _)| (self.stream_of)(fd.into()))
            }
            Some(Err(errno)) => {
                let e = io::Error::from_raw_os_error(errno);
                fd.hold_back(&e)?;
                Err(e)
            }
            None => fd
                .accept()
                .map(|(fd, _)| (self.stream_of)(OwnedFd::from(fd))),
        }
    }

    /// Ends accepting, and returns the connections that were accepted but not taken. Connections
    /// that arrive later stay in the listener's queue.
    ///
    /// An error that was not taken is dropped. Such errors lose no connection, and the next accept
    /// fails with them again.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine, or blocks the thread, until the kernel has stopped accepting, which
    /// takes some microseconds.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{TcpListener, TcpStream};
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
    /// rt.run(|| {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let addr = listener.local_addr()?;
    ///     let clients = [TcpStream::connect(addr)?, TcpStream::connect(addr)?];
    ///     let mut connections = listener.accept_stream();
    ///     let first = connections.accept()?;
    ///     for stream in connections.finish() {
    ///         // Was accepted ahead.
    ///         assert_eq!(stream.local_addr()?, first.local_addr()?);
    ///     }
    ///     # drop(clients);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use = "connections that are dropped are closed"]
    pub fn finish(self) -> Vec<T> {
        self.stop();
        std::iter::from_fn(|| self.connections.take())
            .flatten()
            .map(self.stream_of)
            .collect()
    }
}

impl<T> AcceptStream<'_, T> {
    /// Waits until the kernel has stopped accepting, if the request is armed.
    fn stop(&self) {
        if self.connections.is_armed() {
            self.connections.stop();
            self.connections.fd.hand_wake_on();
        }
    }
}

/// Waits until the kernel has stopped accepting, as [`AcceptStream::finish`] does: after the drop
/// the kernel accepts no connection for this value. A goroutine that unwinds does not wait.
impl<T> Drop for AcceptStream<'_, T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

impl<T: From<OwnedFd>> Iterator for AcceptStream<'_, T> {
    type Item = io::Result<T>;

    fn next(&mut self) -> Option<io::Result<T>> {
        Some(self.accept())
    }
}

impl<T: From<OwnedFd>> FusedIterator for AcceptStream<'_, T> {}

impl<T> fmt::Debug for AcceptStream<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceptStream")
            .field("fd", &self.connections.fd.as_fd())
            .field("is_armed", &self.connections.is_armed())
            .finish_non_exhaustive()
    }
}

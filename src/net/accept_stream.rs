//! All connections to a listener, as an iterator.

use std::io;
use std::iter::FusedIterator;
use std::os::fd::{AsFd, OwnedFd};

use windlass_ground::std_traits::debug_fields;

use crate::poll::fd::Fd;

/// The connections to a listener, one after the other. Made by `accept_stream` of a listener, for
/// example [`TcpListener::accept_stream`](crate::net::TcpListener::accept_stream).
///
/// Connections are accepted one by one, as by `accept` of the listener: what nobody asks for stays in the
/// listener's queue. Several values on one listener share the work, as several goroutines that call `accept`
/// do.
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
    fd: &'a Fd,
    /// Makes a stream from an accepted socket.
    stream_of: fn(Fd) -> T,
}

impl Fd {
    /// Accepts all connections, as streams of type `T`.
    pub(crate) fn accept_stream<T>(&self, stream_of: fn(Fd) -> T) -> AcceptStream<'_, T> {
        AcceptStream {
            fd: self,
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
        self.fd.accept().map(|(fd, _)| (self.stream_of)(fd))
    }

    /// Ends accepting, and returns the connections that were accepted and not taken. There are none: connections
    /// that nobody has asked for stay in the listener's queue.
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
    ///     assert!(connections.finish().is_empty());
    ///     // The other one is still there.
    ///     let (second, _) = listener.accept()?;
    ///     assert_eq!(second.local_addr()?, first.local_addr()?);
    ///     # drop(clients);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use = "connections that are dropped are closed"]
    pub fn finish(self) -> Vec<T> {
        Vec::new()
    }
}

impl<T: From<OwnedFd>> Iterator for AcceptStream<'_, T> {
    type Item = io::Result<T>;

    fn next(&mut self) -> Option<io::Result<T>> {
        Some(self.accept())
    }
}

impl<T: From<OwnedFd>> FusedIterator for AcceptStream<'_, T> {}

debug_fields!([T] AcceptStream<'_, T>, |this| fd: this.fd.as_fd(), ..);

//! Unix sockets: a listener and a stream.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::SocketAddr;
use std::path::Path;

use socket2::{Domain, SockAddr, Socket, Type};

use super::addr::{self, to_unix};
use super::macros::{debug_socket, descriptors, listener, settings, stream, timeouts};
use super::tcp::BACKLOG;
use crate::poll::fd::Fd;
use crate::sys::clock::NEVER;
use crate::sys::rights::MAX_FDS;

/// A Unix socket that listens for connections. See [`std::os::unix::net::UnixListener`].
///
/// Over epoll its mode is as that of a [`TcpListener`](super::TcpListener#handing-a-listener-over).
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
/// use windlass::net::{UnixListener, UnixStream};
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let path = std::env::temp_dir().join(format!("windlass-listener-{}", std::process::id()));
///     let listener = UnixListener::bind(&path)?;
///     windlass::spawn(move || {
///         let (mut stream, _) = listener.accept()?;
///         stream.write_all(b"good day")
///     });
///     let mut text = String::new();
///     UnixStream::connect(&path)?.read_to_string(&mut text)?;
///     assert_eq!(text, "good day");
///     std::fs::remove_file(&path)
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixListener(Fd);

impl UnixListener {
    /// Binds a socket to a path and listens. The path must not exist.
    ///
    /// # Errors
    ///
    /// As [`std::os::unix::net::UnixListener::bind`]: `AddrInUse` if the path exists, `NotFound`,
    /// and others; `InvalidInput` for a path that holds a zero byte or is longer than 107 bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UnixListener;
    ///
    /// let path = std::env::temp_dir().join(format!("windlass-bind-{}", std::process::id()));
    /// let listener = UnixListener::bind(&path)?;
    /// assert_eq!(listener.local_addr()?.as_pathname(), Some(path.as_path()));
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixListener> {
        UnixListener::listen(&addr::path(path.as_ref())?)
    }

    /// Binds a socket to an address and listens. The address may be abstract
    /// ([`SocketAddrExt`](std::os::linux::net::SocketAddrExt)).
    ///
    /// # Errors
    ///
    /// As [`UnixListener::bind`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::os::linux::net::SocketAddrExt;
    /// use windlass::net::{UnixListener, UnixSocketAddr, UnixStream};
    ///
    /// let name = format!("windlass-bind-addr-{}", std::process::id());
    /// let addr = UnixSocketAddr::from_abstract_name(name)?;
    /// let listener = UnixListener::bind_addr(&addr)?;
    /// let stream = UnixStream::connect_addr(&addr)?;
    /// # drop((listener, stream));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind_addr(socket_addr: &SocketAddr) -> io::Result<UnixListener> {
        UnixListener::listen(&addr::from_unix(socket_addr)?)
    }

    fn listen(addr: &SockAddr) -> io::Result<UnixListener> {
        let fd = Fd::from(OwnedFd::from(Socket::new(
            Domain::UNIX,
            Type::STREAM,
            None,
        )?));
        addr::bind(&fd, addr)?;
        addr::listen(&fd, addr, BACKLOG)?;
        Ok(UnixListener(fd))
    }

    /// Accepts a connection. Returns the stream and the peer's address, which is usually unnamed.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until a connection arrives; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// As [`TcpListener::accept`](super::TcpListener::accept).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::os::linux::net::SocketAddrExt;
    /// use windlass::net::{UnixListener, UnixSocketAddr, UnixStream};
    ///
    /// let name = format!("windlass-unix-accept-{}", std::process::id());
    /// let addr = UnixSocketAddr::from_abstract_name(name)?;
    /// let listener = UnixListener::bind_addr(&addr)?;
    /// let client = UnixStream::connect_addr(&addr)?;
    /// let (stream, peer) = listener.accept()?;
    /// assert!(peer.is_unnamed());
    /// # drop((client, stream));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (fd, addr) = self.0.accept()?;
        Ok((UnixStream(fd), to_unix(&addr)?))
    }

    /// Returns an iterator over the connections to this listener. It never ends; each item is the
    /// result of one [`accept`](UnixListener::accept).
    ///
    /// # Blocking
    ///
    /// `next` blocks as [`UnixListener::accept`] does.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::os::linux::net::SocketAddrExt;
    /// use windlass::net::{UnixListener, UnixSocketAddr, UnixStream};
    ///
    /// let name = format!("windlass-incoming-{}", std::process::id());
    /// let addr = UnixSocketAddr::from_abstract_name(name)?;
    /// let listener = UnixListener::bind_addr(&addr)?;
    /// let client = UnixStream::connect_addr(&addr)?;
    /// let stream = listener.incoming().next().expect("it never ends")?;
    /// # drop((client, stream));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn incoming(&self) -> UnixIncoming<'_> {
        UnixIncoming { listener: self }
    }

    /// Returns the address that the listener is bound to. For an example see
    /// [`UnixListener::bind`].
    ///
    /// # Errors
    ///
    /// The errors of `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        to_unix(&self.0.local_addr()?)
    }
}

/// An iterator over the connections to a listener. See [`UnixListener::incoming`].
#[derive(Debug)]
pub struct UnixIncoming<'a> {
    listener: &'a UnixListener,
}

impl Iterator for UnixIncoming<'_> {
    type Item = io::Result<UnixStream>;

    fn next(&mut self) -> Option<io::Result<UnixStream>> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

impl<'a> IntoIterator for &'a UnixListener {
    type Item = io::Result<UnixStream>;
    type IntoIter = UnixIncoming<'a>;

    fn into_iter(self) -> UnixIncoming<'a> {
        self.incoming()
    }
}

/// A connection of Unix sockets. See [`std::os::unix::net::UnixStream`].
///
/// `&UnixStream` implements [`Read`](std::io::Read) and [`Write`](std::io::Write), so one goroutine
/// may read while another writes.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
/// use windlass::net::UnixStream;
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
/// rt.run(|| {
///     let (mut a, mut b) = UnixStream::pair()?;
///     windlass::spawn(move || a.write_all(b"good day"));
///     let mut text = String::new();
///     b.read_to_string(&mut text)?;
///     assert_eq!(text, "good day");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixStream(pub(super) Fd);

impl UnixStream {
    /// Connects to a listener on a path.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until the listener's queue has room; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// As [`std::os::unix::net::UnixStream::connect`]: `NotFound`, `ConnectionRefused` and others;
    /// `InvalidInput` for a path that holds a zero byte or is longer than 107 bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{UnixListener, UnixStream};
    ///
    /// let path = std::env::temp_dir().join(format!("windlass-connect-{}", std::process::id()));
    /// let listener = UnixListener::bind(&path)?;
    /// let stream = UnixStream::connect(&path)?;
    /// assert_eq!(stream.peer_addr()?.as_pathname(), Some(path.as_path()));
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect(path: impl AsRef<Path>) -> io::Result<UnixStream> {
        UnixStream::connect_to(&addr::path(path.as_ref())?)
    }

    /// Connects to a listener on an address, which may be abstract
    /// ([`SocketAddrExt`](std::os::linux::net::SocketAddrExt)).
    ///
    /// # Blocking
    ///
    /// As [`UnixStream::connect`].
    ///
    /// # Errors
    ///
    /// As [`UnixStream::connect`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::os::linux::net::SocketAddrExt;
    /// use windlass::net::{UnixListener, UnixSocketAddr, UnixStream};
    ///
    /// let name = format!("windlass-connect-addr-{}", std::process::id());
    /// let addr = UnixSocketAddr::from_abstract_name(name)?;
    /// let listener = UnixListener::bind_addr(&addr)?;
    /// let stream = UnixStream::connect_addr(&addr)?;
    /// assert_eq!(stream.peer_addr()?.as_abstract_name(), addr.as_abstract_name());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect_addr(socket_addr: &SocketAddr) -> io::Result<UnixStream> {
        UnixStream::connect_to(&addr::from_unix(socket_addr)?)
    }

    fn connect_to(addr: &SockAddr) -> io::Result<UnixStream> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        let fd = Fd::from(OwnedFd::from(socket));
        addr::connect(&fd, addr, NEVER)?;
        Ok(UnixStream(fd))
    }

    /// Returns two connected streams without addresses.
    ///
    /// # Errors
    ///
    /// The errors of `socketpair(2)`, if no descriptor is free.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use windlass::net::UnixStream;
    ///
    /// let (mut a, mut b) = UnixStream::pair()?;
    /// a.write_all(b"!")?;
    /// b.read_exact(&mut [0])?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let (a, b) = Fd::pair(Type::STREAM)?;
        Ok((UnixStream(a), UnixStream(b)))
    }

    /// Returns the address of this end of the connection. For an example see
    /// [`UnixStream::peer_addr`].
    ///
    /// # Errors
    ///
    /// The errors of `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        to_unix(&self.0.local_addr()?)
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    ///
    /// The errors of `getpeername(2)`: `NotConnected` and others.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UnixStream;
    ///
    /// let (a, _b) = UnixStream::pair()?;
    /// assert!(a.local_addr()?.is_unnamed());
    /// assert!(a.peer_addr()?.is_unnamed());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        to_unix(&self.0.peer_addr()?)
    }

    /// Shuts down the reading half, the writing half or both. It wakes goroutines that wait in the
    /// half that is shut down: their reads return 0, their writes fail.
    ///
    /// # Errors
    ///
    /// The errors of `shutdown(2)`: `NotConnected` and others.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use windlass::net::{Shutdown, UnixStream};
    ///
    /// let (mut a, mut b) = UnixStream::pair()?;
    /// a.write_all(b"all of the request")?;
    /// a.shutdown(Shutdown::Write)?;
    /// let mut request = String::new();
    /// b.read_to_string(&mut request)?;
    /// assert_eq!(request, "all of the request");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }

    /// Sends bytes, at least one, and descriptors along with the first byte (`SCM_RIGHTS`). The
    /// receiver gets its own descriptors of the same open files.
    ///
    /// Returns the number of bytes sent. If it is 1 or more, the descriptors were sent as well.
    ///
    /// # Blocking
    ///
    /// As writing: parks the goroutine while the send buffer is full; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// As writing; `InvalidInput` for descriptors with an empty buffer, or for more than 253
    /// descriptors.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::os::fd::AsFd;
    /// use windlass::net::UnixStream;
    ///
    /// let (a, b) = UnixStream::pair()?;
    /// let (reader, _writer) = std::io::pipe()?;
    /// assert_eq!(a.send_with_fds(b"!", &[reader.as_fd()])?, 1);
    /// let (n, fds) = b.recv_with_fds(&mut [0; 8])?;
    /// assert_eq!((n, fds.len()), (1, 1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_with_fds(&self, buf: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        if buf.is_empty() && !fds.is_empty() {
            return Err(addr::invalid(
                "descriptors go with a byte at least: the buffer is empty",
            ));
        }
        check_fds(fds)?;
        match fds {
            [] => self.0.write(buf),
            fds => self.0.send_fds(buf, fds),
        }
    }

    /// Receives bytes and the descriptors that were sent with them, which are close-on-exec. 0
    /// bytes mean the end of the stream.
    ///
    /// A plain read closes the descriptors that arrive with the bytes it reads.
    ///
    /// # Blocking
    ///
    /// As reading: parks the goroutine until bytes arrive; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// As reading. `InvalidData` if descriptors were lost because this process has no room for
    /// them: those that arrived are closed, and the bytes are lost.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use std::os::fd::AsFd;
    /// use windlass::net::UnixStream;
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
    /// rt.run(|| {
    ///     let (a, b) = UnixStream::pair()?;
    ///     let (mut reader, mut writer) = windlass::io::pipe()?;
    ///     a.send_with_fds(b"!", &[writer.as_fd()])?;
    ///     drop(writer);
    ///     let mut buf = [0; 8];
    ///     let (n, mut fds) = b.recv_with_fds(&mut buf)?;
    ///     assert_eq!((n, fds.len()), (1, 1));
    ///     let mut writer = windlass::io::PipeWriter::from(fds.remove(0));
    ///     writer.write_all(b"hello")?;
    ///     drop(writer);
    ///     let mut text = String::new();
    ///     reader.read_to_string(&mut text)?;
    ///     assert_eq!(text, "hello");
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv_with_fds(&self, buf: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        if buf.is_empty() {
            return Ok((0, Vec::new()));
        }
        self.0.recv_fds(buf)
    }
}

/// Fails if there are too many descriptors for one message.
pub(super) fn check_fds(fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    if fds.len() > MAX_FDS {
        return Err(addr::invalid("a message carries at most 253 descriptors"));
    }
    Ok(())
}

debug_socket!(UnixListener, |this| fd: Ok(this.as_raw_fd()), local: this.local_addr());

debug_socket!(UnixStream, |this|
    fd: Ok(this.as_raw_fd()), local: this.local_addr(), peer: this.peer_addr());

descriptors!(UnixListener, std::os::unix::net::UnixListener);
settings!(UnixListener);
listener!(
    UnixListener,
    UnixStream,
    "use windlass::net::{UnixListener, UnixStream};

let path = std::env::temp_dir().join(format!(\"windlass-accept-{}\", std::process::id()));
let listener = UnixListener::bind(&path)?;
let here = UnixStream::connect(&path)?;
let there = listener.accept_stream().accept()?;
assert_eq!(there.peer_addr()?.as_pathname(), here.local_addr()?.as_pathname());
std::fs::remove_file(&path)?;"
);

descriptors!(UnixStream, std::os::unix::net::UnixStream);
settings!(UnixStream);
timeouts!(UnixStream);
stream!(UnixStream, fn read = Fd::read, fn write = Fd::write, fn recv_owned = Fd::recv_owned);

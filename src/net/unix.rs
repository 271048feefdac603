//! Unix sockets: a listener and a stream.

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::SocketAddr;
use std::path::Path;

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::addr::{self, to_unix};
use super::macros::{descriptors, listener, settings, stream, timeouts};
use super::tcp::BACKLOG;
use crate::io::fd::Fd;
use crate::io::socket::MAX_FDS;
use crate::sys::clock::NEVER;

/// A Unix socket that listens for connections. See [`std::os::unix::net::UnixListener`].
pub struct UnixListener(Fd);

impl UnixListener {
    /// Listens on a path, which must not exist.
    ///
    /// # Errors
    ///
    /// As `std`'s: `AddrInUse`, `NotFound`, `InvalidInput` for a path with a zero byte or
    /// of more than 107 bytes, ..
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixListener> {
        UnixListener::listen(&addr::path(path.as_ref())?)
    }

    /// Listens on an address, which may be an abstract one
    /// ([`SocketAddrExt`](std::os::linux::net::SocketAddrExt)).
    ///
    /// # Errors
    ///
    /// As [`UnixListener::bind`].
    pub fn bind_addr(socket_addr: &SocketAddr) -> io::Result<UnixListener> {
        UnixListener::listen(&addr::from_unix(socket_addr)?)
    }

    fn listen(addr: &SockAddr) -> io::Result<UnixListener> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(addr)?;
        socket.listen(BACKLOG)?;
        Ok(UnixListener(Fd::from(OwnedFd::from(socket))))
    }

    /// Accepts a connection.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until there is one; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// As [`TcpListener::accept`](super::TcpListener::accept).
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (fd, addr) = self.0.accept()?;
        Ok((UnixStream(fd), to_unix(&addr)?))
    }

    /// The connections to this listener, without end.
    #[must_use]
    pub fn incoming(&self) -> UnixIncoming<'_> {
        UnixIncoming { listener: self }
    }

    /// The address it listens on.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        to_unix(&SockRef::from(&self.0).local_addr()?)
    }
}

/// The connections to a listener. See [`UnixListener::incoming`].
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

/// A connection of a Unix socket. See [`std::os::unix::net::UnixStream`].
///
/// Reading and writing work through a shared reference, so one goroutine may read
/// while another writes.
pub struct UnixStream(Fd);

impl UnixStream {
    /// Connects to a listener on a path.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until the listener has room; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// As `std`'s: `NotFound`, `ConnectionRefused`, `InvalidInput` for a path with a zero
    /// byte or of more than 107 bytes, ..
    pub fn connect(path: impl AsRef<Path>) -> io::Result<UnixStream> {
        UnixStream::connect_to(&addr::path(path.as_ref())?)
    }

    /// Connects to a listener on an address, which may be an abstract one
    /// ([`SocketAddrExt`](std::os::linux::net::SocketAddrExt)).
    ///
    /// # Blocking
    ///
    /// As [`UnixStream::connect`].
    ///
    /// # Errors
    ///
    /// As [`UnixStream::connect`].
    pub fn connect_addr(socket_addr: &SocketAddr) -> io::Result<UnixStream> {
        UnixStream::connect_to(&addr::from_unix(socket_addr)?)
    }

    fn connect_to(addr: &SockAddr) -> io::Result<UnixStream> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        let fd = Fd::from(OwnedFd::from(socket));
        fd.connect(addr, NEVER)?;
        Ok(UnixStream(fd))
    }

    /// Two connected streams without names.
    ///
    /// # Errors
    ///
    /// The kernel's, when descriptors are short.
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let (a, b) = Socket::pair(Domain::UNIX, Type::STREAM, None)?;
        let stream = |socket| UnixStream(Fd::from(OwnedFd::from(socket)));
        Ok((stream(a), stream(b)))
    }

    /// The address of this end.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        to_unix(&SockRef::from(&self.0).local_addr()?)
    }

    /// The address of the other end.
    ///
    /// # Errors
    ///
    /// `NotConnected`, or the kernel's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        to_unix(&SockRef::from(&self.0).peer_addr()?)
    }

    /// Shuts down reading, writing or both; a goroutine that waits on the stream wakes.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        SockRef::from(&self.0).shutdown(how)
    }

    /// Sends bytes, at least one, and descriptors with the first of them. The receiver
    /// gets descriptors of its own for the same files.
    ///
    /// Gives how many bytes were sent; the descriptors are sent if one was.
    ///
    /// # Blocking
    ///
    /// As writing.
    ///
    /// # Errors
    ///
    /// As writing; `InvalidInput` for descriptors without a byte to go with, or more than
    /// 253 of them.
    pub fn send_with_fds(&self, buf: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        if buf.is_empty() && !fds.is_empty() {
            return Err(addr::invalid(
                "descriptors go with a byte at least: the buffer is empty",
            ));
        }
        match raw_fds(fds)? {
            fds if fds.is_empty() => self.0.write(buf),
            fds => self.0.send_fds(buf, &fds),
        }
    }

    /// Receives bytes and the descriptors that came with them, close-on-exec. 0 bytes: the
    /// end of the stream.
    ///
    /// A plain read closes descriptors that come with what it reads.
    ///
    /// # Blocking
    ///
    /// As reading.
    ///
    /// # Errors
    ///
    /// As reading; `InvalidData` if descriptors were lost, because this process has no
    /// room for them: those that came are closed, and the bytes are gone.
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

/// The numbers of descriptors to send.
pub(super) fn raw_fds(fds: &[BorrowedFd<'_>]) -> io::Result<Vec<i32>> {
    if fds.len() > MAX_FDS {
        return Err(addr::invalid("a message carries at most 253 descriptors"));
    }
    Ok(fds.iter().map(AsRawFd::as_raw_fd).collect())
}

impl fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut s = f.debug_struct("UnixListener");
        s.field("fd", &self.as_raw_fd());
        if let Ok(addr) = self.local_addr() {
            s.field("local", &addr);
        }
        s.finish()
    }
}

impl fmt::Debug for UnixStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut s = f.debug_struct("UnixStream");
        s.field("fd", &self.as_raw_fd());
        if let Ok(addr) = self.local_addr() {
            s.field("local", &addr);
        }
        if let Ok(addr) = self.peer_addr() {
            s.field("peer", &addr);
        }
        s.finish()
    }
}

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
stream!(UnixStream);

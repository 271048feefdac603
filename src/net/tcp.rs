//! TCP: a listener and a stream.

use std::fmt;
use std::io;
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use super::addr::{self, to_std};
use super::macros::{descriptors, listener, settings, stream, timeouts};
use crate::io::fd::Fd;
use crate::io::socket::PEEK;
use crate::sys::clock::{NEVER, deadline_ns};

/// Connections that the kernel holds for a listener until they are accepted; the
/// kernel lowers it to `net.core.somaxconn`.
pub(super) const BACKLOG: i32 = 4096;

pub(super) fn socket_for(addr: &SocketAddr) -> io::Result<Socket> {
    Socket::new(
        Domain::for_address(*addr),
        Type::STREAM,
        Some(Protocol::TCP),
    )
}

/// A TCP socket that listens for connections. See [`std::net::TcpListener`].
///
/// [`TcpOptions`](super::TcpOptions) sets what `std` has no names for.
pub struct TcpListener(pub(super) Fd);

impl TcpListener {
    /// Listens on an address (the first that works, with port 0 on a free port),
    /// with `SO_REUSEADDR` as `std` does.
    ///
    /// # Blocking
    ///
    /// Resolving a host name blocks the thread in a blocking section; an address
    /// does not block.
    ///
    /// # Errors
    ///
    /// As `std`'s: `AddrInUse`, `AddrNotAvailable`, `PermissionDenied`, ..
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::TcpListener;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// assert_ne!(listener.local_addr()?.port(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<TcpListener> {
        addr::each(addr, |addr| {
            let socket = socket_for(addr)?;
            socket.set_reuse_address(true)?;
            socket.bind(&SockAddr::from(*addr))?;
            socket.listen(BACKLOG)?;
            Ok(TcpListener(Fd::from(OwnedFd::from(socket))))
        })
    }

    /// Accepts a connection.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until there is one; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// As `std`'s. When descriptors or memory are short (`EMFILE`, `ENFILE`,
    /// `ENOBUFS`, `ENOMEM`) the error is held back for 5 ms, so that a loop that
    /// accepts again does not spin; the connection stays in the queue.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (fd, addr) = self.0.accept()?;
        Ok((TcpStream(fd), to_std(&addr)?))
    }

    /// The connections to this listener, without end.
    #[must_use]
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// The address it listens on.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        to_std(&SockRef::from(&self.0).local_addr()?)
    }

    /// Sets the time-to-live of the connections' packets.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        SockRef::from(&self.0).set_ttl_v4(ttl)
    }

    /// The time-to-live set by [`TcpListener::set_ttl`].
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn ttl(&self) -> io::Result<u32> {
        SockRef::from(&self.0).ttl_v4()
    }
}

/// The connections to a listener. See [`TcpListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

impl std::iter::FusedIterator for Incoming<'_> {}

/// A TCP connection. See [`std::net::TcpStream`].
///
/// Reading and writing work through a shared reference, so one goroutine may read
/// while another writes.
///
/// Dropping the last handle closes the connection; a call that waits borrows its handle,
/// so the descriptor stays open until it is over. [`TcpStream::shutdown`] ends such waits.
pub struct TcpStream(pub(super) Fd);

impl TcpStream {
    /// Connects to an address, trying each that a name resolves to.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. Resolving a host name blocks the
    /// thread in a blocking section.
    ///
    /// # Errors
    ///
    /// As `std`'s: `ConnectionRefused`, `TimedOut`, ..
    pub fn connect(addr: impl ToSocketAddrs) -> io::Result<TcpStream> {
        addr::each(addr, |addr| TcpStream::connect_until(addr, NEVER))
    }

    /// Connects to one address within a time.
    ///
    /// # Blocking
    ///
    /// As [`TcpStream::connect`].
    ///
    /// # Errors
    ///
    /// `TimedOut` after `timeout`; `InvalidInput` if it is zero.
    pub fn connect_timeout(addr: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        if timeout.is_zero() {
            return Err(addr::invalid("cannot connect with a timeout of zero"));
        }
        TcpStream::connect_until(addr, deadline_ns(timeout))
    }

    fn connect_until(addr: &SocketAddr, deadline: u64) -> io::Result<TcpStream> {
        let fd = Fd::from(OwnedFd::from(socket_for(addr)?));
        fd.connect(&SockAddr::from(*addr), deadline)?;
        Ok(TcpStream(fd))
    }

    /// The address of the other end.
    ///
    /// # Errors
    ///
    /// `NotConnected`, or the kernel's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        to_std(&SockRef::from(&self.0).peer_addr()?)
    }

    /// The address of this end.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        to_std(&SockRef::from(&self.0).local_addr()?)
    }

    /// Shuts down reading, writing or both; a goroutine that waits on the stream wakes.
    ///
    /// # Errors
    ///
    /// `NotConnected`, or the kernel's.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        SockRef::from(&self.0).shutdown(how)
    }

    /// Receives without taking the data out of the socket.
    ///
    /// # Blocking
    ///
    /// As reading.
    ///
    /// # Errors
    ///
    /// As reading.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.0.recv(buf, PEEK)
    }

    /// Writes as [`Write::write`](std::io::Write::write), without copying the bytes where
    /// that may pay: from 16 KiB on, on Linux 6.0 or later, with a network card that can
    /// gather. Elsewhere it is an ordinary write.
    ///
    /// The kernel reads the buffer until the peer has acknowledged it, and the call returns
    /// after that. So give it much at once, best all that there is to send.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until the peer has acknowledged the bytes; blocks a plain thread
    /// as writing.
    ///
    /// # Errors
    ///
    /// As writing. If a timeout, a deadline, a context or the end of the run comes while the
    /// peer has not acknowledged everything, the connection is reset as well: the kernel
    /// gives the buffer back in no other way.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::Read;
    /// use windlass::net::{TcpListener, TcpStream};
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
    /// rt.run(|| {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let stream = TcpStream::connect(listener.local_addr()?)?;
    ///     let (mut peer, _) = listener.accept()?;
    ///     let page = vec![b'.'; 64 * 1024];
    ///     let n = stream.send_zc(&page)?;
    ///     peer.read_exact(&mut vec![0; n])
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_zc(&self, buf: &[u8]) -> io::Result<usize> {
        self.0.send_zc(buf)
    }

    /// Turns Nagle's algorithm off (`true`) or on.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        SockRef::from(&self.0).set_tcp_nodelay(nodelay)
    }

    /// Whether Nagle's algorithm is off.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn nodelay(&self) -> io::Result<bool> {
        SockRef::from(&self.0).tcp_nodelay()
    }

    /// Sets the time-to-live of packets.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        SockRef::from(&self.0).set_ttl_v4(ttl)
    }

    /// The time-to-live of packets.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn ttl(&self) -> io::Result<u32> {
        SockRef::from(&self.0).ttl_v4()
    }

    /// Turns the quick sending of acknowledgements on or off, until the kernel decides
    /// anew. See `std::os::linux::net::TcpStreamExt`.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        SockRef::from(&self.0).set_tcp_quickack(quickack)
    }

    /// Whether acknowledgements are sent quickly.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn quickack(&self) -> io::Result<bool> {
        SockRef::from(&self.0).tcp_quickack()
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut s = f.debug_struct("TcpStream");
        if let Ok(addr) = self.local_addr() {
            s.field("addr", &addr);
        }
        if let Ok(peer) = self.peer_addr() {
            s.field("peer", &peer);
        }
        s.field("fd", &self.as_raw_fd()).finish()
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut s = f.debug_struct("TcpListener");
        if let Ok(addr) = self.local_addr() {
            s.field("addr", &addr);
        }
        s.field("fd", &self.as_raw_fd()).finish()
    }
}

descriptors!(TcpListener, std::net::TcpListener);
settings!(TcpListener);
listener!(
    TcpListener,
    TcpStream,
    "use windlass::net::{TcpListener, TcpStream};

let listener = TcpListener::bind(\"127.0.0.1:0\")?;
let here = TcpStream::connect(listener.local_addr()?)?;
let mut connections = listener.accept_stream();
let there = connections.accept()?;
assert_eq!(there.peer_addr()?, here.local_addr()?);
assert!(connections.finish().is_empty());"
);

descriptors!(TcpStream, std::net::TcpStream);
settings!(TcpStream);
timeouts!(TcpStream);
stream!(TcpStream);

//! TCP: a listener and a stream.

use std::io;
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use super::addr::{self, to_std};
use super::macros::{debug_socket, descriptors, listener, settings, stream, timeouts};
use crate::poll::fd::Fd;
use crate::poll::socket::PEEK;
use crate::sys::clock::{NEVER, deadline_ns};

/// Length of a listener's queue of connections that are not accepted yet. The kernel lowers it
/// to `net.core.somaxconn`.
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
/// Several goroutines may accept from one listener. [`TcpOptions`](super::TcpOptions) sets options
/// that `std` has no methods for.
///
/// # Handing a listener over
///
/// Where epoll stands in for io_uring, a listener from which a goroutine has accepted is in
/// non-blocking mode (`O_NONBLOCK`), because `accept` has no flag for a single attempt. The mode
/// belongs to the open socket: duplicates have it, and so have descriptors that another process
/// inherits or receives. A conversion to `std`'s type, to an `OwnedFd` or by `into_raw_fd` ends it.
/// To hand over a duplicate, stop accepting, call `set_nonblocking(false)`, and then send it or
/// start the other process.
///
/// # Examples
///
/// A server that runs one goroutine for each connection:
///
/// ```
/// use std::io::{self, Read, Write};
/// use windlass::net::{TcpListener, TcpStream};
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let addr = listener.local_addr()?;
///     windlass::spawn(move || {
///         for stream in listener.incoming() {
///             let mut stream = stream?;
///             windlass::spawn(move || io::copy(&mut stream.try_clone()?, &mut stream));
///         }
///         Ok::<(), io::Error>(())
///     });
///
///     let mut stream = TcpStream::connect(addr)?;
///     stream.write_all(b"hello")?;
///     let mut answer = [0; 5];
///     stream.read_exact(&mut answer)?;
///     assert_eq!(&answer, b"hello");
///     Ok::<(), io::Error>(())
/// })?;
/// # Ok::<(), io::Error>(())
/// ```
pub struct TcpListener(pub(super) Fd);

impl TcpListener {
    /// Binds a socket to an address and listens.
    ///
    /// Of several addresses the first that works is used. Port 0 chooses a free port.
    /// `SO_REUSEADDR` is set, as `std` sets it.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine while a host name is looked up, as in
    /// [`lookup_host`](super::lookup_host). With an address the call never waits.
    ///
    /// # Errors
    ///
    /// As [`std::net::TcpListener::bind`]: `AddrInUse`, `AddrNotAvailable`, `PermissionDenied`
    /// and others.
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
            let fd = Fd::from(OwnedFd::from(socket));
            let addr = SockAddr::from(*addr);
            addr::bind(&fd, &addr)?;
            addr::listen(&fd, &addr, BACKLOG)?;
            Ok(TcpListener(fd))
        })
    }

    /// Accepts a connection. Returns the stream and the peer's address.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until a connection arrives; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// As [`std::net::TcpListener::accept`]; `WouldBlock` at the listener's deadline;
    /// `InvalidInput` after [`TcpListener::shutdown`].
    ///
    /// If the process or the kernel is short of descriptors or memory (`EMFILE`, `ENFILE`,
    /// `ENOBUFS`, `ENOMEM`), the call returns the error after 5 ms, so that a loop that accepts
    /// again does not spin. The connection stays in the queue.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let client = TcpStream::connect(listener.local_addr()?)?;
    /// let (stream, peer) = listener.accept()?;
    /// assert_eq!(peer, client.local_addr()?);
    /// assert_eq!(stream.peer_addr()?, peer);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (fd, addr) = self.0.accept()?;
        Ok((TcpStream(fd), to_std(&addr)?))
    }

    /// Returns an iterator over the connections to this listener. It never ends; each item is the
    /// result of one [`accept`](TcpListener::accept).
    ///
    /// # Blocking
    ///
    /// `next` blocks as [`TcpListener::accept`] does.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let client = TcpStream::connect(listener.local_addr()?)?;
    /// let stream = listener.incoming().next().expect("it never ends")?;
    /// assert_eq!(stream.peer_addr()?, client.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// Returns the address that the listener is bound to.
    ///
    /// # Errors
    ///
    /// The errors of `getsockname(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::TcpListener;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// assert!(listener.local_addr()?.ip().is_loopback());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        to_std(&self.0.local_addr()?)
    }

    /// Sets the time-to-live (`IP_TTL`, in hops) of packets. Accepted connections inherit it.
    ///
    /// # Errors
    ///
    /// The errors of `setsockopt(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::TcpListener;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// listener.set_ttl(4)?;
    /// assert_eq!(listener.ttl()?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        SockRef::from(&self.0).set_ttl_v4(ttl)
    }

    /// Returns the time-to-live set by [`TcpListener::set_ttl`].
    ///
    /// # Errors
    ///
    /// The errors of `getsockopt(2)`.
    pub fn ttl(&self) -> io::Result<u32> {
        SockRef::from(&self.0).ttl_v4()
    }
}

/// An iterator over the connections to a listener. See [`TcpListener::incoming`].
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
/// `&TcpStream` implements [`Read`](std::io::Read) and [`Write`](std::io::Write), so one goroutine
/// may read while another writes.
///
/// Dropping the last handle closes the connection. A call that waits borrows its handle, so the
/// descriptor stays open until the call returns; [`TcpStream::shutdown`] ends such calls.
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
///         let (mut stream, _) = listener.accept()?;
///         stream.write_all(b"good day")
///     });
///
///     let mut text = String::new();
///     TcpStream::connect(addr)?.read_to_string(&mut text)?;
///     assert_eq!(text, "good day");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpStream(pub(super) Fd);

impl TcpStream {
    /// Connects to an address. If a name resolves to several addresses, they are tried in order.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until the connection is made; blocks a plain thread. A host name is looked
    /// up as in [`lookup_host`](super::lookup_host).
    ///
    /// # Errors
    ///
    /// As [`std::net::TcpStream::connect`]: `ConnectionRefused`, `TimedOut` and others. If all
    /// addresses fail, the error of the last one.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let addr = listener.local_addr()?;
    /// let stream = TcpStream::connect(addr)?;
    /// assert_eq!(stream.peer_addr()?, addr);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect(addr: impl ToSocketAddrs) -> io::Result<TcpStream> {
        addr::each(addr, |addr| TcpStream::connect_until(addr, NEVER))
    }

    /// Connects to one address, and gives up after `timeout`.
    ///
    /// # Blocking
    ///
    /// As [`TcpStream::connect`], at most for `timeout`.
    ///
    /// # Errors
    ///
    /// As [`TcpStream::connect`]; `TimedOut` after `timeout`; `InvalidInput` if `timeout` is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let addr = listener.local_addr()?;
    /// let stream = TcpStream::connect_timeout(&addr, Duration::from_secs(5))?;
    /// assert_eq!(stream.peer_addr()?, addr);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect_timeout(addr: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        if timeout.is_zero() {
            return Err(addr::invalid("cannot connect with a timeout of zero"));
        }
        TcpStream::connect_until(addr, deadline_ns(timeout))
    }

    fn connect_until(addr: &SocketAddr, deadline: u64) -> io::Result<TcpStream> {
        let fd = Fd::from(OwnedFd::from(socket_for(addr)?));
        addr::connect(&fd, &SockAddr::from(*addr), deadline)?;
        Ok(TcpStream(fd))
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    ///
    /// The errors of `getpeername(2)`: `NotConnected` after the peer has reset the connection, and
    /// others.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// assert_eq!(stream.peer_addr()?, listener.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        to_std(&self.0.peer_addr()?)
    }

    /// Returns the address of this end of the connection.
    ///
    /// # Errors
    ///
    /// The errors of `getsockname(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// let (_, peer) = listener.accept()?;
    /// assert_eq!(stream.local_addr()?, peer);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        to_std(&self.0.local_addr()?)
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
    /// use windlass::net::{Shutdown, TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let mut client = TcpStream::connect(listener.local_addr()?)?;
    /// let (mut server, _) = listener.accept()?;
    /// client.write_all(b"all of the request")?;
    /// client.shutdown(Shutdown::Write)?;
    /// let mut request = String::new();
    /// server.read_to_string(&mut request)?;
    /// assert_eq!(request, "all of the request");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }

    /// Receives bytes and leaves them in the socket: the next read returns them again.
    ///
    /// # Blocking
    ///
    /// As reading: parks the goroutine until bytes arrive; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// As reading; `WouldBlock` after the read timeout or at the read deadline.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use windlass::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let mut client = TcpStream::connect(listener.local_addr()?)?;
    /// let (mut server, _) = listener.accept()?;
    /// client.write_all(b"GET /")?;
    /// let mut method = [0; 3];
    /// server.peek(&mut method)?;
    /// assert_eq!(&method, b"GET");
    /// let mut all = [0; 5];
    /// server.read_exact(&mut all)?;
    /// assert_eq!(&all, b"GET /");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.0.recv(buf, PEEK)
    }

    /// Sets `TCP_NODELAY`: `true` turns Nagle's algorithm off, so that small writes are sent at
    /// once.
    ///
    /// # Errors
    ///
    /// The errors of `setsockopt(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// stream.set_nodelay(true)?;
    /// assert!(stream.nodelay()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        SockRef::from(&self.0).set_tcp_nodelay(nodelay)
    }

    /// Returns whether Nagle's algorithm is off (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// The errors of `getsockopt(2)`.
    pub fn nodelay(&self) -> io::Result<bool> {
        SockRef::from(&self.0).tcp_nodelay()
    }

    /// Sets the time-to-live (`IP_TTL`, in hops) of packets sent on this connection.
    ///
    /// # Errors
    ///
    /// The errors of `setsockopt(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// stream.set_ttl(4)?;
    /// assert_eq!(stream.ttl()?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        SockRef::from(&self.0).set_ttl_v4(ttl)
    }

    /// Returns the time-to-live set by [`TcpStream::set_ttl`].
    ///
    /// # Errors
    ///
    /// The errors of `getsockopt(2)`.
    pub fn ttl(&self) -> io::Result<u32> {
        SockRef::from(&self.0).ttl_v4()
    }

    /// Sets `TCP_QUICKACK`: `true` sends acknowledgements at once instead of delaying them.
    ///
    /// The setting is not permanent: the kernel may change it as the connection goes on. See
    /// `std::os::linux::net::TcpStreamExt`.
    ///
    /// # Errors
    ///
    /// The errors of `setsockopt(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// stream.set_quickack(true)?;
    /// assert!(stream.quickack()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        SockRef::from(&self.0).set_tcp_quickack(quickack)
    }

    /// Returns whether acknowledgements are sent at once (`TCP_QUICKACK`).
    ///
    /// # Errors
    ///
    /// The errors of `getsockopt(2)`.
    pub fn quickack(&self) -> io::Result<bool> {
        SockRef::from(&self.0).tcp_quickack()
    }
}

debug_socket!(TcpStream, |this|
    addr: this.local_addr(), peer: this.peer_addr(), fd: Ok(this.as_raw_fd()));

debug_socket!(TcpListener, |this| addr: this.local_addr(), fd: Ok(this.as_raw_fd()));

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
stream!(TcpStream, fn read = Fd::read, fn write = Fd::write, fn recv_owned = Fd::recv_owned);

/// Options of a TCP connection that only Linux has: `std::os::linux::net::TcpStreamExt`, which only
/// `std`'s streams can have.
pub trait TcpStreamExt {
    /// Sets whether the kernel acknowledges data at once (`TCP_QUICKACK`). The kernel may end this
    /// mode by itself.
    ///
    /// # Errors
    ///
    /// The errors of `setsockopt(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{TcpListener, TcpStream};
    /// use windlass::os::linux::net::TcpStreamExt;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// stream.set_quickack(false)?;
    /// assert!(!stream.quickack()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn set_quickack(&self, quickack: bool) -> io::Result<()>;

    /// Returns whether the kernel acknowledges data at once.
    ///
    /// # Errors
    ///
    /// The errors of `getsockopt(2)`.
    fn quickack(&self) -> io::Result<bool>;
}

impl TcpStreamExt for TcpStream {
    fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        SockRef::from(&self.0).set_tcp_quickack(quickack)
    }

    fn quickack(&self) -> io::Result<bool> {
        SockRef::from(&self.0).tcp_quickack()
    }
}

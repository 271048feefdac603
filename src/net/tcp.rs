//! TCP: a listener and a stream.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use crate::io::fd::{Direction, Fd};
use crate::sys::clock::{NEVER, deadline_ns};
use crate::task;

/// Connections that the kernel holds for a listener until they are accepted; the
/// kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Resolves an address, on a thread that may block if it is a name.
fn resolve(addr: impl ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
    let addrs: Vec<_> = task::blocking(|| addr.to_socket_addrs())?.collect();
    if addrs.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "could not resolve to any addresses",
        ));
    }
    Ok(addrs)
}

/// Tries `f` with each address; the last error is told.
fn each_addr<T>(
    addr: impl ToSocketAddrs,
    mut f: impl FnMut(&SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for addr in resolve(addr)? {
        match f(&addr) {
            Ok(done) => return Ok(done),
            Err(e) => last = Some(e),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::InvalidInput.into()))
}

fn socket_for(addr: &SocketAddr) -> io::Result<Socket> {
    Socket::new(
        Domain::for_address(*addr),
        Type::STREAM,
        Some(Protocol::TCP),
    )
}

fn to_std(addr: &SockAddr) -> io::Result<SocketAddr> {
    addr.as_socket().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "the socket's address is not an internet one",
        )
    })
}

/// A TCP socket that listens for connections. See [`std::net::TcpListener`].
pub struct TcpListener(Fd);

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
        each_addr(addr, |addr| {
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

    /// Another handle to the same socket.
    ///
    /// # Errors
    ///
    /// The kernel's, when no descriptor is left.
    pub fn try_clone(&self) -> io::Result<TcpListener> {
        self.0.try_clone().map(TcpListener)
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

    /// Takes the error that is pending on the socket.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        SockRef::from(&self.0).take_error()
    }

    /// Makes [`TcpListener::accept`] return `WouldBlock` instead of waiting.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.set_nonblocking(nonblocking)
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
pub struct TcpStream(Fd);

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
        each_addr(addr, |addr| TcpStream::connect_until(addr, NEVER))
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
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "cannot connect with a timeout of zero",
            ));
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

    /// Another handle to the same connection. Timeouts are shared.
    ///
    /// # Errors
    ///
    /// The kernel's, when no descriptor is left.
    pub fn try_clone(&self) -> io::Result<TcpStream> {
        self.0.try_clone().map(TcpStream)
    }

    /// Bounds each later read: after `timeout` it gives `WouldBlock`, as `std` does
    /// on Linux. Nothing that was received is lost.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a zero duration.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_timeout(Direction::Read, timeout)
    }

    /// Bounds each later write, as [`TcpStream::set_read_timeout`] does reads.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a zero duration.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_timeout(Direction::Write, timeout)
    }

    /// The bound on reads.
    ///
    /// # Errors
    ///
    /// None now; the signature is `std`'s.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.0.get_timeout(Direction::Read))
    }

    /// The bound on writes.
    ///
    /// # Errors
    ///
    /// None now; the signature is `std`'s.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.0.get_timeout(Direction::Write))
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
        self.0.recv(buf, true)
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

    /// Takes the error that is pending on the socket.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        SockRef::from(&self.0).take_error()
    }

    /// Makes reads and writes return `WouldBlock` instead of waiting.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.set_nonblocking(nonblocking)
    }
}

impl Read for &TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buf, false)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.recv_vectored(bufs)
    }
}

impl Write for &TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.send(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.send_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

impl Write for TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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

/// The conversions that every socket type has.
macro_rules! descriptors {
    ($type:ident, $std:ty) => {
        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl AsRawFd for $type {
            fn as_raw_fd(&self) -> RawFd {
                self.0.as_fd().as_raw_fd()
            }
        }

        impl From<OwnedFd> for $type {
            fn from(fd: OwnedFd) -> $type {
                $type(Fd::from(fd))
            }
        }

        impl From<$type> for OwnedFd {
            fn from(socket: $type) -> OwnedFd {
                socket.0.into()
            }
        }

        impl IntoRawFd for $type {
            fn into_raw_fd(self) -> RawFd {
                OwnedFd::from(self).into_raw_fd()
            }
        }

        impl FromRawFd for $type {
            #[allow(unsafe_code)]
            unsafe fn from_raw_fd(fd: RawFd) -> $type {
                // SAFETY: by the caller's contract the descriptor is open and its own.
                $type::from(unsafe { OwnedFd::from_raw_fd(fd) })
            }
        }

        impl From<$std> for $type {
            fn from(socket: $std) -> $type {
                $type::from(OwnedFd::from(socket))
            }
        }

        impl From<$type> for $std {
            fn from(socket: $type) -> $std {
                <$std>::from(OwnedFd::from(socket))
            }
        }
    };
}

descriptors!(TcpListener, std::net::TcpListener);
descriptors!(TcpStream, std::net::TcpStream);

//! Unix sockets for packets.

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::SocketAddr;
use std::path::Path;

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::addr::{self, to_unix};
use super::macros::{descriptors, settings, timeouts};
use super::unix::raw_fds;
use crate::io::fd::{Fd, retry};

/// A Unix socket for packets. See [`std::os::unix::net::UnixDatagram`].
pub struct UnixDatagram(Fd);

impl UnixDatagram {
    /// Makes a socket with a path, which must not exist.
    ///
    /// # Errors
    ///
    /// As [`UnixListener::bind`](super::UnixListener::bind).
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixDatagram> {
        UnixDatagram::bind_to(&addr::path(path.as_ref())?)
    }

    /// Makes a socket with an address, which may be an abstract one
    /// ([`SocketAddrExt`](std::os::linux::net::SocketAddrExt)).
    ///
    /// # Errors
    ///
    /// As [`UnixDatagram::bind`].
    pub fn bind_addr(socket_addr: &SocketAddr) -> io::Result<UnixDatagram> {
        UnixDatagram::bind_to(&addr::from_unix(socket_addr)?)
    }

    fn bind_to(addr: &SockAddr) -> io::Result<UnixDatagram> {
        let socket = UnixDatagram::unbound()?;
        SockRef::from(&socket).bind(addr)?;
        Ok(socket)
    }

    /// Makes a socket without an address.
    ///
    /// # Errors
    ///
    /// The kernel's, when descriptors are short.
    pub fn unbound() -> io::Result<UnixDatagram> {
        let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
        Ok(UnixDatagram(Fd::from(OwnedFd::from(socket))))
    }

    /// Two connected sockets without names.
    ///
    /// # Errors
    ///
    /// The kernel's, when descriptors are short.
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let (a, b) = Socket::pair(Domain::UNIX, Type::DGRAM, None)?;
        let of = |socket| UnixDatagram(Fd::from(OwnedFd::from(socket)));
        Ok((of(a), of(b)))
    }

    /// Chooses the path that [`UnixDatagram::send`] sends to. Does not block.
    ///
    /// # Errors
    ///
    /// As [`UnixStream::connect`](super::UnixStream::connect).
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.connect_to(&addr::path(path.as_ref())?)
    }

    /// Chooses the address that [`UnixDatagram::send`] sends to. Does not block.
    ///
    /// # Errors
    ///
    /// As [`UnixDatagram::connect`].
    pub fn connect_addr(&self, socket_addr: &SocketAddr) -> io::Result<()> {
        self.connect_to(&addr::from_unix(socket_addr)?)
    }

    fn connect_to(&self, addr: &SockAddr) -> io::Result<()> {
        retry(|| SockRef::from(&self.0).connect(addr))
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

    /// Receives a packet and the address of its sender. What does not fit is cut off.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until there is one; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// As `std`'s; `WouldBlock` after a timeout or deadline.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (n, addr) = self.0.recv_from(buf, 0)?;
        Ok((n, to_unix(&addr)?))
    }

    /// Receives a packet. What does not fit is cut off.
    ///
    /// # Blocking
    ///
    /// As [`UnixDatagram::recv_from`].
    ///
    /// # Errors
    ///
    /// As [`UnixDatagram::recv_from`].
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buf, 0)
    }

    /// Sends a packet to a path.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine while the receiver has no room; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// As `std`'s: `NotFound`, `ConnectionRefused`, ..; `WouldBlock` after a timeout or
    /// deadline.
    pub fn send_to(&self, buf: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        self.0.send_to(buf, &addr::path(path.as_ref())?)
    }

    /// Sends a packet to an address.
    ///
    /// # Blocking
    ///
    /// As [`UnixDatagram::send_to`].
    ///
    /// # Errors
    ///
    /// As [`UnixDatagram::send_to`].
    pub fn send_to_addr(&self, buf: &[u8], socket_addr: &SocketAddr) -> io::Result<usize> {
        self.0.send_to(buf, &addr::from_unix(socket_addr)?)
    }

    /// Sends a packet to the chosen address.
    ///
    /// # Blocking
    ///
    /// As [`UnixDatagram::send_to`].
    ///
    /// # Errors
    ///
    /// As [`UnixDatagram::send_to`], and `NotConnected`.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.0.send(buf)
    }

    /// Sends a packet, which may be empty, and descriptors with it, to the chosen address.
    ///
    /// # Blocking
    ///
    /// As [`UnixDatagram::send_to`].
    ///
    /// # Errors
    ///
    /// As [`UnixDatagram::send`]; `InvalidInput` for more than 253 descriptors.
    pub fn send_with_fds(&self, buf: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        match raw_fds(fds)? {
            fds if fds.is_empty() => self.0.send(buf),
            fds => self.0.send_fds(buf, &fds),
        }
    }

    /// Receives a packet and the descriptors that came with it, close-on-exec.
    ///
    /// # Blocking
    ///
    /// As [`UnixDatagram::recv_from`].
    ///
    /// # Errors
    ///
    /// As [`UnixDatagram::recv`]; `InvalidData` if descriptors were lost, because this
    /// process has no room for them: those that came are closed, and the packet is gone.
    pub fn recv_with_fds(&self, buf: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        self.0.recv_fds(buf)
    }

    /// Shuts down receiving, sending or both; a goroutine that waits on the socket wakes.
    ///
    /// # Errors
    ///
    /// `NotConnected`, or the kernel's.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        SockRef::from(&self.0).shutdown(how)
    }
}

impl fmt::Debug for UnixDatagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut s = f.debug_struct("UnixDatagram");
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

descriptors!(UnixDatagram, std::os::unix::net::UnixDatagram);
settings!(UnixDatagram);
timeouts!(UnixDatagram);

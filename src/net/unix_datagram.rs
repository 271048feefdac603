//! Unix datagram sockets.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::SocketAddr;
use std::path::Path;

use socket2::{Domain, SockAddr, Socket, Type};

use super::addr::{self, to_unix};
use super::macros::{debug_socket, descriptors, settings, timeouts};
use super::unix::check_fds;
use crate::poll::fd::Fd;

/// A Unix socket for packets. See [`std::os::unix::net::UnixDatagram`].
///
/// # Examples
///
/// ```
/// use windlass::net::UnixDatagram;
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
/// rt.run(|| {
///     let (a, b) = UnixDatagram::pair()?;
///     windlass::spawn(move || a.send(b"hello"));
///     let mut buf = [0; 16];
///     let n = b.recv(&mut buf)?;
///     assert_eq!(&buf[..n], b"hello");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixDatagram(Fd);

impl UnixDatagram {
    /// Makes a socket and binds it to a path, which must not exist.
    ///
    /// # Errors
    ///
    /// As [`UnixListener::bind`](super::UnixListener::bind).
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UnixDatagram;
    ///
    /// let path = std::env::temp_dir().join(format!("windlass-datagram-{}", std::process::id()));
    /// let server = UnixDatagram::bind(&path)?;
    /// assert_eq!(server.local_addr()?.as_pathname(), Some(path.as_path()));
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixDatagram> {
        UnixDatagram::bind_to(&addr::path(path.as_ref())?)
    }

    /// Makes a socket and binds it to an address, which may be abstract
    /// ([`SocketAddrExt`](std::os::linux::net::SocketAddrExt)).
    ///
    /// # Errors
    ///
    /// As [`UnixDatagram::bind`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::os::linux::net::SocketAddrExt;
    /// use windlass::net::{UnixDatagram, UnixSocketAddr};
    ///
    /// let name = format!("windlass-datagram-addr-{}", std::process::id());
    /// let addr = UnixSocketAddr::from_abstract_name(name)?;
    /// let server = UnixDatagram::bind_addr(&addr)?;
    /// assert_eq!(server.local_addr()?.as_abstract_name(), addr.as_abstract_name());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind_addr(socket_addr: &SocketAddr) -> io::Result<UnixDatagram> {
        UnixDatagram::bind_to(&addr::from_unix(socket_addr)?)
    }

    fn bind_to(addr: &SockAddr) -> io::Result<UnixDatagram> {
        let socket = UnixDatagram::unbound()?;
        addr::bind(&socket.0, addr)?;
        Ok(socket)
    }

    /// Makes a socket without an address. It can send, but no other socket can address it.
    ///
    /// # Errors
    ///
    /// The errors of `socket(2)`, if no descriptor is free.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UnixDatagram;
    ///
    /// let socket = UnixDatagram::unbound()?;
    /// assert!(socket.local_addr()?.is_unnamed());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn unbound() -> io::Result<UnixDatagram> {
        let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
        Ok(UnixDatagram(Fd::of_any_kind(OwnedFd::from(socket))))
    }

    /// Returns two connected sockets without addresses.
    ///
    /// # Errors
    ///
    /// The errors of `socketpair(2)`, if no descriptor is free.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UnixDatagram;
    ///
    /// let (a, b) = UnixDatagram::pair()?;
    /// a.send(b"!")?;
    /// assert_eq!(b.recv(&mut [0])?, 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let (a, b) = Fd::pair(Type::DGRAM)?;
        Ok((UnixDatagram(a), UnixDatagram(b)))
    }

    /// Sets the peer to the socket on a path: [`UnixDatagram::send`] sends to it.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// As [`UnixStream::connect`](super::UnixStream::connect).
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UnixDatagram;
    ///
    /// let path = std::env::temp_dir().join(format!("windlass-peer-{}", std::process::id()));
    /// let server = UnixDatagram::bind(&path)?;
    /// let client = UnixDatagram::unbound()?;
    /// client.connect(&path)?;
    /// client.send(b"hello")?;
    /// assert_eq!(server.recv(&mut [0; 16])?, 5);
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.connect_to(&addr::path(path.as_ref())?)
    }

    /// Sets the peer to the socket on an address, which may be abstract.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// As [`UnixDatagram::connect`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::os::linux::net::SocketAddrExt;
    /// use windlass::net::{UnixDatagram, UnixSocketAddr};
    ///
    /// let name = format!("windlass-peer-addr-{}", std::process::id());
    /// let addr = UnixSocketAddr::from_abstract_name(name)?;
    /// let server = UnixDatagram::bind_addr(&addr)?;
    /// let client = UnixDatagram::unbound()?;
    /// client.connect_addr(&addr)?;
    /// client.send(b"hello")?;
    /// assert_eq!(server.recv(&mut [0; 16])?, 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect_addr(&self, socket_addr: &SocketAddr) -> io::Result<()> {
        self.connect_to(&addr::from_unix(socket_addr)?)
    }

    fn connect_to(&self, addr: &SockAddr) -> io::Result<()> {
        addr::connect_now(&self.0, addr)
    }

    /// Returns the address that the socket is bound to. For an example see [`UnixDatagram::bind`].
    ///
    /// # Errors
    ///
    /// The errors of `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        to_unix(&self.0.local_addr()?)
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    ///
    /// The errors of `getpeername(2)`: `NotConnected` before [`UnixDatagram::connect`], and others.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// use windlass::net::UnixDatagram;
    ///
    /// let socket = UnixDatagram::unbound()?;
    /// assert_eq!(socket.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        to_unix(&self.0.peer_addr()?)
    }

    /// Receives a packet. Returns its length and the sender's address. Bytes of the packet that do
    /// not fit into the buffer are discarded.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until a packet arrives; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// As [`std::os::unix::net::UnixDatagram::recv_from`]; `WouldBlock` after the read timeout or
    /// at the read deadline.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UnixDatagram;
    ///
    /// let path = std::env::temp_dir().join(format!("windlass-recv-from-{}", std::process::id()));
    /// let server = UnixDatagram::bind(&path)?;
    /// let client = UnixDatagram::unbound()?;
    /// client.send_to(b"hello", &path)?;
    /// let mut buf = [0; 16];
    /// let (n, from) = server.recv_from(&mut buf)?;
    /// assert_eq!(&buf[..n], b"hello");
    /// assert!(from.is_unnamed());
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (n, addr) = self.0.recv_from(buf, 0)?;
        Ok((n, to_unix(&addr)?))
    }

    /// Receives a packet. Returns its length. Bytes of the packet that do not fit into the buffer
    /// are discarded.
    ///
    /// # Blocking
    ///
    /// As [`UnixDatagram::recv_from`].
    ///
    /// # Errors
    ///
    /// As [`UnixDatagram::recv_from`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UnixDatagram;
    ///
    /// let (a, b) = UnixDatagram::pair()?;
    /// a.send(b"hello")?;
    /// let mut buf = [0; 16];
    /// let n = b.recv(&mut buf)?;
    /// assert_eq!(&buf[..n], b"hello");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.recv_packet(buf, 0)
    }

    /// Sends a packet to the socket on a path. Returns the number of bytes sent.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine while the receiver's queue is full; blocks a plain thread. A goroutine
    /// whose socket is not connected to the receiver waits with a second descriptor; if none is
    /// free, it notices that there is room up to 10 ms late.
    ///
    /// # Errors
    ///
    /// As [`std::os::unix::net::UnixDatagram::send_to`]: `NotFound`, `ConnectionRefused` and
    /// others; `WouldBlock` after the write timeout or at the write deadline.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UnixDatagram;
    ///
    /// let path = std::env::temp_dir().join(format!("windlass-send-to-{}", std::process::id()));
    /// let server = UnixDatagram::bind(&path)?;
    /// assert_eq!(UnixDatagram::unbound()?.send_to(b"hello", &path)?, 5);
    /// assert_eq!(server.recv(&mut [0; 16])?, 5);
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_to(&self, buf: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        self.0.send_to(buf, &addr::path(path.as_ref())?)
    }

    /// Sends a packet to the socket on an address, which may be abstract. Returns the number of
    /// bytes sent.
    ///
    /// # Blocking
    ///
    /// As [`UnixDatagram::send_to`].
    ///
    /// # Errors
    ///
    /// As [`UnixDatagram::send_to`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::os::linux::net::SocketAddrExt;
    /// use windlass::net::{UnixDatagram, UnixSocketAddr};
    ///
    /// let name = format!("windlass-send-to-addr-{}", std::process::id());
    /// let addr = UnixSocketAddr::from_abstract_name(name)?;
    /// let server = UnixDatagram::bind_addr(&addr)?;
    /// assert_eq!(UnixDatagram::unbound()?.send_to_addr(b"hello", &addr)?, 5);
    /// assert_eq!(server.recv(&mut [0; 16])?, 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_to_addr(&self, buf: &[u8], socket_addr: &SocketAddr) -> io::Result<usize> {
        self.0.send_to(buf, &addr::from_unix(socket_addr)?)
    }

    /// Sends a packet to the peer set by [`UnixDatagram::connect`]. Returns the number of bytes
    /// sent. For an example see [`UnixDatagram::recv`].
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

    /// Sends a packet, which may be empty, and descriptors along with it to the peer
    /// (`SCM_RIGHTS`). Returns the number of bytes sent.
    ///
    /// # Blocking
    ///
    /// As [`UnixDatagram::send_to`].
    ///
    /// # Errors
    ///
    /// As [`UnixDatagram::send`]; `InvalidInput` for more than 253 descriptors.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::os::fd::AsFd;
    /// use windlass::net::UnixDatagram;
    ///
    /// let (a, b) = UnixDatagram::pair()?;
    /// let (reader, _writer) = std::io::pipe()?;
    /// a.send_with_fds(b"a pipe", &[reader.as_fd()])?;
    /// let (n, fds) = b.recv_with_fds(&mut [0; 16])?;
    /// assert_eq!((n, fds.len()), (6, 1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_with_fds(&self, buf: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        check_fds(fds)?;
        match fds {
            [] => self.0.send(buf),
            fds => self.0.send_fds(buf, fds),
        }
    }

    /// Receives a packet and the descriptors that were sent with it, which are close-on-exec. For
    /// an example see [`UnixDatagram::send_with_fds`].
    ///
    /// # Blocking
    ///
    /// As [`UnixDatagram::recv_from`].
    ///
    /// # Errors
    ///
    /// As [`UnixDatagram::recv`]. `InvalidData` if descriptors were lost because this process has
    /// no room for them: those that arrived are closed, and the packet is lost.
    pub fn recv_with_fds(&self, buf: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        self.0.recv_fds(buf)
    }

    /// Shuts down receiving, sending or both. It wakes goroutines that wait in the half that is
    /// shut down.
    ///
    /// # Errors
    ///
    /// The errors of `shutdown(2)`: `NotConnected` and others.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// use windlass::net::{Shutdown, UnixDatagram};
    ///
    /// let (a, _b) = UnixDatagram::pair()?;
    /// a.shutdown(Shutdown::Write)?;
    /// assert_eq!(a.send(b"late").unwrap_err().kind(), ErrorKind::BrokenPipe);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }
}

debug_socket!(UnixDatagram, |this|
    fd: Ok(this.as_raw_fd()), local: this.local_addr(), peer: this.peer_addr());

descriptors!(UnixDatagram, std::os::unix::net::UnixDatagram);
settings!(UnixDatagram);
timeouts!(UnixDatagram);

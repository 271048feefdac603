//! UDP sockets.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use super::addr::{self, to_std};
use super::macros::{debug_socket, descriptors, settings, timeouts};
use crate::poll::fd::Fd;
use crate::poll::socket::PEEK;

/// A UDP socket. See [`std::net::UdpSocket`].
///
/// # Examples
///
/// ```
/// use windlass::net::UdpSocket;
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
/// rt.run(|| {
///     let server = UdpSocket::bind("127.0.0.1:0")?;
///     let client = UdpSocket::bind("127.0.0.1:0")?;
///     client.send_to(b"ping", server.local_addr()?)?;
///     let mut buf = [0; 16];
///     let (n, from) = server.recv_from(&mut buf)?;
///     assert_eq!((&buf[..n], from), (&b"ping"[..], client.local_addr()?));
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UdpSocket(pub(super) Fd);

impl UdpSocket {
    /// Makes a socket and binds it to an address. Of several addresses the first that works is
    /// used.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine while a host name is looked up, as in
    /// [`lookup_host`](super::lookup_host). With an address the call never waits.
    ///
    /// # Errors
    ///
    /// As [`std::net::UdpSocket::bind`]: `AddrInUse`, `AddrNotAvailable` and others.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UdpSocket;
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// assert_ne!(socket.local_addr()?.port(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        addr::each(addr, |addr| {
            let domain = Domain::for_address(*addr);
            let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
            let fd = Fd::from(OwnedFd::from(socket));
            addr::bind(&fd, &SockAddr::from(*addr))?;
            Ok(UdpSocket(fd))
        })
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
    /// As [`std::net::UdpSocket::recv_from`]; `WouldBlock` after the read timeout or at the read
    /// deadline.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UdpSocket;
    ///
    /// let server = UdpSocket::bind("127.0.0.1:0")?;
    /// let client = UdpSocket::bind("127.0.0.1:0")?;
    /// client.send_to(b"ping", server.local_addr()?)?;
    /// let mut buf = [0; 1500];
    /// let (n, from) = server.recv_from(&mut buf)?;
    /// assert_eq!(&buf[..n], b"ping");
    /// assert_eq!(from, client.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (n, addr) = self.0.recv_from(buf, 0)?;
        Ok((n, to_std(&addr)?))
    }

    /// Receives a packet as [`UdpSocket::recv_from`] does, and leaves it in the socket.
    ///
    /// # Blocking
    ///
    /// As [`UdpSocket::recv_from`].
    ///
    /// # Errors
    ///
    /// As [`UdpSocket::recv_from`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UdpSocket;
    ///
    /// let server = UdpSocket::bind("127.0.0.1:0")?;
    /// let client = UdpSocket::bind("127.0.0.1:0")?;
    /// client.send_to(b"ping", server.local_addr()?)?;
    /// let mut buf = [0; 1500];
    /// assert_eq!(server.peek_from(&mut buf)?, (4, client.local_addr()?));
    /// assert_eq!(server.recv_from(&mut buf)?, (4, client.local_addr()?));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (n, addr) = self.0.recv_from(buf, PEEK)?;
        Ok((n, to_std(&addr)?))
    }

    /// Sends a packet to an address. Returns the number of bytes sent. If a name resolves to
    /// several addresses, the first is used.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine while the send buffer is full; blocks a plain thread. A host name
    /// is looked up as in [`UdpSocket::bind`]; the write timeout does not count the lookup.
    ///
    /// # Errors
    ///
    /// As [`std::net::UdpSocket::send_to`]; `WouldBlock` after the write timeout or at the write
    /// deadline.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UdpSocket;
    ///
    /// let server = UdpSocket::bind("127.0.0.1:0")?;
    /// let client = UdpSocket::bind("127.0.0.1:0")?;
    /// assert_eq!(client.send_to(b"ping", server.local_addr()?)?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_to(&self, buf: &[u8], addr: impl ToSocketAddrs) -> io::Result<usize> {
        let addr = addr::first(addr)?;
        self.0.send_to(buf, &SockAddr::from(addr))
    }

    /// Sets the peer: [`UdpSocket::send`] sends to it, and only its packets are received.
    ///
    /// # Blocking
    ///
    /// As [`UdpSocket::bind`].
    ///
    /// # Errors
    ///
    /// As [`std::net::UdpSocket::connect`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UdpSocket;
    ///
    /// let server = UdpSocket::bind("127.0.0.1:0")?;
    /// let client = UdpSocket::bind("127.0.0.1:0")?;
    /// client.connect(server.local_addr()?)?;
    /// assert_eq!(client.peer_addr()?, server.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect(&self, addr: impl ToSocketAddrs) -> io::Result<()> {
        addr::each(addr, |addr| {
            addr::connect_now(&self.0, &SockAddr::from(*addr))
        })
    }

    /// Sends a packet to the peer set by [`UdpSocket::connect`]. Returns the number of bytes sent.
    ///
    /// # Blocking
    ///
    /// As [`UdpSocket::send_to`].
    ///
    /// # Errors
    ///
    /// As [`std::net::UdpSocket::send`]: `ConnectionRefused` if no socket received an earlier
    /// packet, and others; `WouldBlock` after the write timeout or at the write deadline.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UdpSocket;
    ///
    /// let server = UdpSocket::bind("127.0.0.1:0")?;
    /// let client = UdpSocket::bind("127.0.0.1:0")?;
    /// client.connect(server.local_addr()?)?;
    /// assert_eq!(client.send(b"ping")?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.0.send(buf)
    }

    /// Receives a packet from the peer set by [`UdpSocket::connect`]. Returns its length. Bytes of
    /// the packet that do not fit into the buffer are discarded.
    ///
    /// # Blocking
    ///
    /// As [`UdpSocket::recv_from`].
    ///
    /// # Errors
    ///
    /// As [`UdpSocket::recv_from`], and `ConnectionRefused` if no socket received an earlier packet
    /// to the peer.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UdpSocket;
    ///
    /// let server = UdpSocket::bind("127.0.0.1:0")?;
    /// let client = UdpSocket::bind("127.0.0.1:0")?;
    /// client.connect(server.local_addr()?)?;
    /// server.send_to(b"pong", client.local_addr()?)?;
    /// let mut buf = [0; 1500];
    /// let n = client.recv(&mut buf)?;
    /// assert_eq!(&buf[..n], b"pong");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.recv_packet(buf, 0)
    }

    /// Receives a packet as [`UdpSocket::recv`] does, and leaves it in the socket.
    ///
    /// # Blocking
    ///
    /// As [`UdpSocket::recv_from`].
    ///
    /// # Errors
    ///
    /// As [`UdpSocket::recv`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UdpSocket;
    ///
    /// let server = UdpSocket::bind("127.0.0.1:0")?;
    /// let client = UdpSocket::bind("127.0.0.1:0")?;
    /// client.connect(server.local_addr()?)?;
    /// server.send_to(b"pong", client.local_addr()?)?;
    /// let mut buf = [0; 1500];
    /// assert_eq!(client.peek(&mut buf)?, 4);
    /// assert_eq!(client.recv(&mut buf)?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.recv_packet(buf, PEEK)
    }

    /// Returns the address that the socket is bound to.
    ///
    /// # Errors
    ///
    /// The errors of `getsockname(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UdpSocket;
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// assert!(socket.local_addr()?.ip().is_loopback());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        to_std(&self.0.local_addr()?)
    }

    /// Returns the peer's address, set by [`UdpSocket::connect`].
    ///
    /// # Errors
    ///
    /// The errors of `getpeername(2)`: `NotConnected` before [`UdpSocket::connect`], and others.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// use windlass::net::UdpSocket;
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// assert_eq!(socket.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        to_std(&self.0.peer_addr()?)
    }
}

/// A setter and a getter for one option.
macro_rules! options {
    ($($(#[$doc:meta])* $set:ident, $get:ident: $type:ty = $set2:ident, $get2:ident;)*) => {
        impl UdpSocket {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                ///
                /// The errors of `setsockopt(2)`.
                pub fn $set(&self, value: $type) -> io::Result<()> {
                    SockRef::from(&self.0).$set2(value)
                }

                #[doc = concat!("What [`UdpSocket::", stringify!($set), "`] has set.")]
                ///
                /// # Errors
                ///
                /// The errors of `getsockopt(2)`.
                pub fn $get(&self) -> io::Result<$type> {
                    SockRef::from(&self.0).$get2()
                }
            )*
        }
    };
}

options! {
    /// Allows sending to broadcast addresses (`SO_BROADCAST`).
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UdpSocket;
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// socket.set_broadcast(true)?;
    /// assert!(socket.broadcast()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    set_broadcast, broadcast: bool = set_broadcast, broadcast;
    /// Sets whether IPv4 multicast packets sent here are also delivered to this machine
    /// (`IP_MULTICAST_LOOP`).
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UdpSocket;
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// socket.set_multicast_loop_v4(false)?;
    /// assert!(!socket.multicast_loop_v4()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    set_multicast_loop_v4, multicast_loop_v4: bool = set_multicast_loop_v4, multicast_loop_v4;
    /// Sets the time-to-live of IPv4 multicast packets (`IP_MULTICAST_TTL`, in hops). The
    /// default is 1.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UdpSocket;
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// socket.set_multicast_ttl_v4(4)?;
    /// assert_eq!(socket.multicast_ttl_v4()?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    set_multicast_ttl_v4, multicast_ttl_v4: u32 = set_multicast_ttl_v4, multicast_ttl_v4;
    /// Sets whether IPv6 multicast packets sent here are also delivered to this machine
    /// (`IPV6_MULTICAST_LOOP`).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use windlass::net::UdpSocket;
    ///
    /// let socket = UdpSocket::bind("[::1]:0")?;
    /// socket.set_multicast_loop_v6(false)?;
    /// assert!(!socket.multicast_loop_v6()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    set_multicast_loop_v6, multicast_loop_v6: bool = set_multicast_loop_v6, multicast_loop_v6;
    /// Sets the time-to-live (`IP_TTL`, in hops) of packets.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UdpSocket;
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// socket.set_ttl(4)?;
    /// assert_eq!(socket.ttl()?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    set_ttl, ttl: u32 = set_ttl_v4, ttl_v4;
}

impl UdpSocket {
    /// Joins a multicast group on the interface that has the address `interface`. With
    /// `Ipv4Addr::UNSPECIFIED` the kernel chooses the interface.
    ///
    /// # Errors
    ///
    /// The errors of `setsockopt(2)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use windlass::net::{Ipv4Addr, UdpSocket};
    ///
    /// let socket = UdpSocket::bind("0.0.0.0:5353")?;
    /// let group = Ipv4Addr::new(224, 0, 0, 251);
    /// socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED)?;
    /// socket.leave_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn join_multicast_v4(&self, multiaddr: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.0.set_member_v4(multiaddr, interface, true)
    }

    /// Joins a multicast group on the interface with the index `interface`. With 0 the kernel
    /// chooses the interface.
    ///
    /// # Errors
    ///
    /// The errors of `setsockopt(2)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use windlass::net::{Ipv6Addr, UdpSocket};
    ///
    /// let socket = UdpSocket::bind("[::]:5353")?;
    /// let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
    /// socket.join_multicast_v6(&group, 0)?;
    /// socket.leave_multicast_v6(&group, 0)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn join_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.set_member_v6(multiaddr, interface, true)
    }

    /// Leaves a group joined by [`UdpSocket::join_multicast_v4`], which has an example.
    ///
    /// # Errors
    ///
    /// The errors of `setsockopt(2)`.
    pub fn leave_multicast_v4(&self, multiaddr: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.0.set_member_v4(multiaddr, interface, false)
    }

    /// Leaves a group joined by [`UdpSocket::join_multicast_v6`], which has an example.
    ///
    /// # Errors
    ///
    /// The errors of `setsockopt(2)`.
    pub fn leave_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.set_member_v6(multiaddr, interface, false)
    }
}

debug_socket!(UdpSocket, |this| addr: this.local_addr(), fd: Ok(this.as_raw_fd()));

descriptors!(UdpSocket, std::net::UdpSocket);
settings!(UdpSocket);
timeouts!(UdpSocket);

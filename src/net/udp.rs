//! UDP.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use super::addr::{self, to_std};
use super::macros::{descriptors, settings, timeouts};
use crate::io::fd::Fd;
use crate::io::socket::PEEK;

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
pub struct UdpSocket(Fd);

impl UdpSocket {
    /// Makes a socket with an address of its own, the first that works.
    ///
    /// # Blocking
    ///
    /// Resolving a host name blocks the thread in a blocking section; an address does
    /// not block.
    ///
    /// # Errors
    ///
    /// As `std`'s: `AddrInUse`, `AddrNotAvailable`, ..
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        addr::each(addr, |addr| {
            let domain = Domain::for_address(*addr);
            let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
            socket.bind(&SockAddr::from(*addr))?;
            Ok(UdpSocket(Fd::from(OwnedFd::from(socket))))
        })
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
        Ok((n, to_std(&addr)?))
    }

    /// As [`UdpSocket::recv_from`]; the packet stays in the socket.
    ///
    /// # Blocking
    ///
    /// As [`UdpSocket::recv_from`].
    ///
    /// # Errors
    ///
    /// As [`UdpSocket::recv_from`].
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (n, addr) = self.0.recv_from(buf, PEEK)?;
        Ok((n, to_std(&addr)?))
    }

    /// Sends a packet to an address: the first that a name resolves to.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine while there is no room; blocks a plain thread. Resolving as
    /// [`UdpSocket::bind`].
    ///
    /// # Errors
    ///
    /// As `std`'s; `WouldBlock` after a timeout or deadline.
    pub fn send_to(&self, buf: &[u8], addr: impl ToSocketAddrs) -> io::Result<usize> {
        let addr = addr::first(addr)?;
        self.0.send_to(buf, &SockAddr::from(addr))
    }

    /// Chooses the address that [`UdpSocket::send`] sends to and [`UdpSocket::recv`]
    /// receives from.
    ///
    /// # Blocking
    ///
    /// Only for resolving a name, as [`UdpSocket::bind`].
    ///
    /// # Errors
    ///
    /// As `std`'s.
    pub fn connect(&self, addr: impl ToSocketAddrs) -> io::Result<()> {
        addr::each(addr, |addr| {
            SockRef::from(&self.0).connect(&SockAddr::from(*addr))
        })
    }

    /// Sends a packet to the chosen address.
    ///
    /// # Blocking
    ///
    /// As [`UdpSocket::send_to`].
    ///
    /// # Errors
    ///
    /// As `std`'s: `ConnectionRefused` if an earlier packet found nobody, ..
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.0.send(buf)
    }

    /// Receives a packet from the chosen address. What does not fit is cut off.
    ///
    /// # Blocking
    ///
    /// As [`UdpSocket::recv_from`].
    ///
    /// # Errors
    ///
    /// As [`UdpSocket::recv_from`], and `ConnectionRefused` if an earlier packet found
    /// nobody.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buf, 0)
    }

    /// As [`UdpSocket::recv`]; the packet stays in the socket.
    ///
    /// # Blocking
    ///
    /// As [`UdpSocket::recv_from`].
    ///
    /// # Errors
    ///
    /// As [`UdpSocket::recv`].
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buf, PEEK)
    }

    /// The address of this end.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        to_std(&SockRef::from(&self.0).local_addr()?)
    }

    /// The address chosen by [`UdpSocket::connect`].
    ///
    /// # Errors
    ///
    /// `NotConnected`, or the kernel's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        to_std(&SockRef::from(&self.0).peer_addr()?)
    }
}

/// A pair of setter and getter for one option.
macro_rules! options {
    ($($(#[$doc:meta])* $set:ident, $get:ident: $type:ty = $set2:ident, $get2:ident;)*) => {
        impl UdpSocket {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                ///
                /// The kernel's.
                pub fn $set(&self, value: $type) -> io::Result<()> {
                    SockRef::from(&self.0).$set2(value)
                }

                #[doc = concat!("What [`UdpSocket::", stringify!($set), "`] has set.")]
                ///
                /// # Errors
                ///
                /// The kernel's.
                pub fn $get(&self) -> io::Result<$type> {
                    SockRef::from(&self.0).$get2()
                }
            )*
        }
    };
}

options! {
    /// Allows sending to broadcast addresses.
    set_broadcast, broadcast: bool = set_broadcast, broadcast;
    /// Whether multicast packets that are sent come back to this machine (IPv4).
    set_multicast_loop_v4, multicast_loop_v4: bool = set_multicast_loop_v4, multicast_loop_v4;
    /// Sets the time-to-live of multicast packets (IPv4).
    set_multicast_ttl_v4, multicast_ttl_v4: u32 = set_multicast_ttl_v4, multicast_ttl_v4;
    /// Whether multicast packets that are sent come back to this machine (IPv6).
    set_multicast_loop_v6, multicast_loop_v6: bool = set_multicast_loop_v6, multicast_loop_v6;
    /// Sets the time-to-live of packets.
    set_ttl, ttl: u32 = set_ttl_v4, ttl_v4;
}

impl UdpSocket {
    /// Joins a multicast group on the interface with an address.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn join_multicast_v4(&self, multiaddr: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        SockRef::from(&self.0).join_multicast_v4(multiaddr, interface)
    }

    /// Joins a multicast group on the interface with a number (0: any).
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn join_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        SockRef::from(&self.0).join_multicast_v6(multiaddr, interface)
    }

    /// Leaves a group joined by [`UdpSocket::join_multicast_v4`].
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn leave_multicast_v4(&self, multiaddr: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        SockRef::from(&self.0).leave_multicast_v4(multiaddr, interface)
    }

    /// Leaves a group joined by [`UdpSocket::join_multicast_v6`].
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn leave_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        SockRef::from(&self.0).leave_multicast_v6(multiaddr, interface)
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut s = f.debug_struct("UdpSocket");
        if let Ok(addr) = self.local_addr() {
            s.field("addr", &addr);
        }
        s.field("fd", &self.as_raw_fd()).finish()
    }
}

descriptors!(UdpSocket, std::net::UdpSocket);
settings!(UdpSocket);
timeouts!(UdpSocket);

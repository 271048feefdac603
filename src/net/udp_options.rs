//! Options of UDP sockets that must be set before the socket is bound.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use super::addr;
use super::shared_options::SharedOptions;
use super::udp::UdpSocket;
use crate::poll::fd::Fd;

/// Options for a UDP socket that is to be made. An option that is not set keeps the kernel's
/// default.
///
/// # Examples
///
/// ```
/// use windlass::net::UdpOptions;
///
/// let socket = UdpOptions::new()
///     .recv_buffer_size(256 * 1024)
///     .send_buffer_size(256 * 1024)
///     .broadcast(true)
///     .ttl(4)
///     .bind("127.0.0.1:0")?;
/// assert!(socket.broadcast()?);
/// assert_eq!(socket.ttl()?, 4);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Several receivers of a multicast group on one machine:
///
/// ```no_run
/// use windlass::net::{Ipv4Addr, UdpOptions};
///
/// let group = Ipv4Addr::new(224, 0, 0, 251);
/// let socket = UdpOptions::new()
///     .reuse_address(true)
///     .join_multicast_v4(group, Ipv4Addr::UNSPECIFIED)
///     .multicast_loop(false)
///     .bind((group, 5353))?;
/// # drop(socket);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing until they bind"]
pub struct UdpOptions {
    reuse_address: bool,
    reuse_port: bool,
    only_v6: Option<bool>,
    broadcast: Option<bool>,
    multicast_loop: Option<bool>,
    multicast_ttl: Option<u32>,
    groups_v4: Vec<(Ipv4Addr, Ipv4Addr)>,
    groups_v6: Vec<(Ipv6Addr, u32)>,
    shared: SharedOptions,
}

impl UdpOptions {
    /// Returns options of which none is set.
    pub fn new() -> UdpOptions {
        UdpOptions::default()
    }

    /// Lets several sockets have one address (`SO_REUSEADDR`). Each receives every packet to a
    /// multicast group; of other packets the last socket receives all.
    pub fn reuse_address(&mut self, reuse: bool) -> &mut UdpOptions {
        self.reuse_address = reuse;
        self
    }

    /// Lets several sockets of one user share a port (`SO_REUSEPORT`). The kernel distributes packets
    /// over them by a hash of the addresses.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::UdpOptions;
    ///
    /// let mut options = UdpOptions::new();
    /// options.reuse_port(true);
    /// let first = options.bind("127.0.0.1:0")?;
    /// let second = options.bind(first.local_addr()?)?;
    /// assert_eq!(first.local_addr()?, second.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn reuse_port(&mut self, reuse: bool) -> &mut UdpOptions {
        self.reuse_port = reuse;
        self
    }

    /// Sets whether an IPv6 socket refuses packets of IPv4 (`IPV6_V6ONLY`). It has no effect on an
    /// IPv4 socket.
    pub fn only_v6(&mut self, only: bool) -> &mut UdpOptions {
        self.only_v6 = Some(only);
        self
    }

    /// Sets the size of the receive buffer in bytes (`SO_RCVBUF`). The kernel limits it to
    /// `net.core.rmem_max`, and then doubles it. Packets that find it full are lost.
    pub fn recv_buffer_size(&mut self, bytes: usize) -> &mut UdpOptions {
        self.shared.recv_buffer_bytes = Some(bytes);
        self
    }

    /// Sets the size of the send buffer in bytes (`SO_SNDBUF`). The kernel limits it to
    /// `net.core.wmem_max`, and then doubles it.
    pub fn send_buffer_size(&mut self, bytes: usize) -> &mut UdpOptions {
        self.shared.send_buffer_bytes = Some(bytes);
        self
    }

    /// Allows sending to broadcast addresses (`SO_BROADCAST`).
    pub fn broadcast(&mut self, allow: bool) -> &mut UdpOptions {
        self.broadcast = Some(allow);
        self
    }

    /// Sets whether multicast packets sent here are also delivered to this machine
    /// (`IP_MULTICAST_LOOP`, `IPV6_MULTICAST_LOOP`).
    pub fn multicast_loop(&mut self, on: bool) -> &mut UdpOptions {
        self.multicast_loop = Some(on);
        self
    }

    /// Sets the time-to-live of multicast packets, in hops (`IP_MULTICAST_TTL`,
    /// `IPV6_MULTICAST_HOPS`). The default is 1.
    pub fn multicast_ttl(&mut self, hops: u32) -> &mut UdpOptions {
        self.multicast_ttl = Some(hops);
        self
    }

    /// Joins a multicast group of IPv4 before the socket is bound, on the interface that has the
    /// address `interface`. With `Ipv4Addr::UNSPECIFIED` the kernel chooses the interface. It has no
    /// effect on an IPv6 socket.
    pub fn join_multicast_v4(&mut self, group: Ipv4Addr, interface: Ipv4Addr) -> &mut UdpOptions {
        self.groups_v4.push((group, interface));
        self
    }

    /// Joins a multicast group of IPv6 before the socket is bound, on the interface of this index.
    /// With 0 the kernel chooses the interface. It has no effect on an IPv4 socket.
    pub fn join_multicast_v6(&mut self, group: Ipv6Addr, interface: u32) -> &mut UdpOptions {
        self.groups_v6.push((group, interface));
        self
    }

    /// Lets packets come and go through one network interface only, such as `eth0`
    /// (`SO_BINDTODEVICE`).
    pub fn bind_device(&mut self, interface: impl Into<String>) -> &mut UdpOptions {
        self.shared.device = Some(interface.into());
        self
    }

    /// Sets the time-to-live of packets, in hops (`IP_TTL`, `IPV6_UNICAST_HOPS`), from 1 to 255.
    pub fn ttl(&mut self, hops: u32) -> &mut UdpOptions {
        self.shared.ttl = Some(hops);
        self
    }

    /// Sets the type of service of packets, which routers may obey (`IP_TOS`, `IPV6_TCLASS`), from 0
    /// to 255.
    pub fn tos(&mut self, tos: u32) -> &mut UdpOptions {
        self.shared.tos = Some(tos);
        self
    }

    /// Makes a socket with these options, and binds it as [`UdpSocket::bind`] does.
    ///
    /// # Blocking
    ///
    /// As [`UdpSocket::bind`].
    ///
    /// # Errors
    ///
    /// As [`UdpSocket::bind`]; those of `setsockopt(2)` if the kernel refuses an option.
    ///
    /// # Examples
    ///
    /// See [`UdpOptions`].
    pub fn bind(&self, addr: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        addr::each(addr, |addr| self.bind_to(addr))
    }

    fn bind_to(&self, addr: &SocketAddr) -> io::Result<UdpSocket> {
        let domain = Domain::for_address(*addr);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        self.apply_to(&SockRef::from(&socket), addr.is_ipv6())?;
        let fd = Fd::from(OwnedFd::from(socket));
        match addr {
            SocketAddr::V4(_) => self
                .groups_v4
                .iter()
                .try_for_each(|(group, at)| fd.set_member_v4(group, at, true))?,
            SocketAddr::V6(_) => self
                .groups_v6
                .iter()
                .try_for_each(|(group, at)| fd.set_member_v6(group, *at, true))?,
        }
        addr::bind(&fd, &SockAddr::from(*addr))?;
        Ok(UdpSocket(fd))
    }

    fn apply_to(&self, socket: &SockRef<'_>, is_v6: bool) -> io::Result<()> {
        self.shared.apply_to(socket)?;
        if self.reuse_address {
            socket.set_reuse_address(true)?;
        }
        if self.reuse_port {
            socket.set_reuse_port(true)?;
        }
        if let (Some(only), true) = (self.only_v6, is_v6) {
            socket.set_only_v6(only)?;
        }
        if let Some(allow) = self.broadcast {
            socket.set_broadcast(allow)?;
        }
        match (self.multicast_loop, is_v6) {
            (Some(on), false) => socket.set_multicast_loop_v4(on)?,
            (Some(on), true) => socket.set_multicast_loop_v6(on)?,
            (None, _) => {}
        }
        match (self.multicast_ttl, is_v6) {
            (Some(hops), false) => socket.set_multicast_ttl_v4(hops)?,
            (Some(hops), true) => socket.set_multicast_hops_v6(hops)?,
            (None, _) => {}
        }
        Ok(())
    }
}

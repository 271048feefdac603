//! Ports: binding, and who gets a packet.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::SockRef;

use super::address::{Address, Id, Port, Protocol, canonical, error, shown};
use super::hosts::Host;
use super::network::Network;
use super::socket::{Kind, Socket, State};

impl Socket {
    pub(super) fn protocol(&self) -> Option<Protocol> {
        match self.kind {
            Kind::Tcp(_) => Some(Protocol::Tcp),
            Kind::Udp(_) => Some(Protocol::Udp),
            _ => None,
        }
    }

    /// Where it is bound, in the form in which addresses are compared.
    pub(super) fn local(&self) -> Option<SocketAddr> {
        match &self.kind {
            Kind::Tcp(tcp) => tcp.local,
            Kind::Udp(udp) => udp.local,
            _ => None,
        }
    }

    /// The port that it has.
    pub(super) fn port(&self) -> Option<Port> {
        Some((self.host, self.protocol()?, self.local()?.port()))
    }

    /// Reads an option at the placeholder. A connection without one would have those of its
    /// listener; they no longer matter, so it has the defaults.
    pub(super) fn option<T: Default>(&self, of: impl FnOnce(SockRef<'_>) -> io::Result<T>) -> T {
        let placeholder = self.placeholder.as_ref();
        placeholder.map_or_else(T::default, |fd| of(SockRef::from(fd)).unwrap_or_default())
    }

    pub(super) fn is_listening(&self) -> bool {
        matches!(&self.kind, Kind::Tcp(tcp) if matches!(tcp.state, State::Listening { .. }))
    }

    /// Whether it and another one may have the same port.
    fn shares_with(&self, other: &Socket) -> bool {
        let both = |option: fn(&SockRef<'_>) -> io::Result<bool>| {
            self.option(|s| option(&s))
                && (other.placeholder.is_none() || other.option(|s| option(&s)))
        };
        both(|s| s.reuse_port()) || both(|s| s.reuse_address()) && !other.is_listening()
    }

    /// Whether it gets what comes for `to`.
    pub(super) fn is_bound_for(&self, to: SocketAddr) -> bool {
        self.local().is_some_and(|local| {
            local.port() == to.port() && (local.ip() == to.ip() || self.takes_any(local, to.ip()))
        })
    }

    /// Whether it has nothing to do with IPv4: by an option, or because it is bound to an address of IPv6.
    pub(super) fn is_only_v6(&self) -> bool {
        let is_v6s = |local: SocketAddr| local.is_ipv6() && !local.ip().is_unspecified();
        self.local().is_some_and(is_v6s)
            || self.local().is_none_or(|local| local.is_ipv6()) && self.option(|s| s.only_v6())
    }

    fn takes_any(&self, local: SocketAddr, ip: IpAddr) -> bool {
        local.ip().is_unspecified()
            && (local.is_ipv4() == ip.is_ipv4() || local.is_ipv6() && !self.option(|s| s.only_v6()))
    }
}

impl Network {
    /// Binds a socket of TCP or UDP.
    pub(crate) fn bind(&mut self, id: Id, addr: SocketAddr) -> io::Result<()> {
        let mut addr = canonical(addr);
        let socket = self.get(id)?;
        let (host, protocol) = (
            socket.host,
            socket.protocol().ok_or_else(|| error(libc::EINVAL))?,
        );
        if socket.local().is_some() {
            return Err(error(libc::EINVAL));
        }
        let is_own = self.hosts[host as usize].owns(addr.ip());
        let is_group = protocol == Protocol::Udp && addr.ip().is_multicast();
        if !is_own && !is_group {
            return Err(error(libc::EADDRNOTAVAIL));
        }
        if addr.port() == 0 {
            addr.set_port(self.free_port(host, protocol)?);
        } else if self.is_taken(id, addr) {
            return Err(error(libc::EADDRINUSE));
        }
        self.set_local(id, addr);
        Ok(())
    }

    /// Gives a socket an address, which may be its second one.
    pub(super) fn set_local(&mut self, id: Id, addr: SocketAddr) {
        let Some(socket) = self.sockets.get_mut(&id) else {
            return;
        };
        let before = socket.port();
        match &mut socket.kind {
            Kind::Tcp(tcp) => tcp.local = Some(addr),
            Kind::Udp(udp) => udp.local = Some(addr),
            _ => {}
        }
        let port = socket.port();
        if let Some(port) = before {
            self.by_port.remove(&(port, id));
        }
        if let Some(port) = port {
            self.by_port.insert((port, id));
        }
    }

    /// The sockets that have a port, in the order in which they were made.
    fn on_port(&self, port: Port) -> impl Iterator<Item = (Id, &Socket)> {
        let ids = self.by_port.range((port, Id::MIN)..=(port, Id::MAX));
        ids.filter_map(|&(_, id)| Some((id, self.sockets.get(&id)?)))
    }

    /// Whether another socket of the host excludes `id` from a port.
    pub(super) fn is_taken(&self, id: Id, addr: SocketAddr) -> bool {
        let Some(socket) = self.sockets.get(&id) else {
            return false;
        };
        let Some(protocol) = socket.protocol() else {
            return false;
        };
        let on_port = self.on_port((socket.host, protocol, addr.port()));
        let mut others = on_port.filter(|&(other, _)| other != id);
        others.any(|(_, other)| {
            let meets = |local: SocketAddr| {
                local.ip() == addr.ip()
                    || other.takes_any(local, addr.ip())
                    || socket.takes_any(addr, local.ip())
            };
            other.local().is_some_and(meets) && !socket.shares_with(other)
        })
    }

    /// A port of the host that nobody has.
    pub(super) fn free_port(&mut self, host: u32, protocol: Protocol) -> io::Result<u16> {
        for _ in 0..Host::N_PORTS {
            let port = self.host_mut(host).next_port();
            if self.on_port((host, protocol, port)).next().is_none() {
                return Ok(port);
            }
        }
        Err(error(libc::EADDRINUSE))
    }

    /// The sockets of a host that a packet for `to` may be meant for: those bound to the address,
    /// or else to all.
    pub(super) fn bound_for(
        &self,
        host: u32,
        protocol: Protocol,
        to: SocketAddr,
        suits: impl Fn(&Socket) -> bool,
    ) -> Vec<Id> {
        let on_port = self.on_port((host, protocol, to.port()));
        let all = on_port.filter(|(_, socket)| socket.is_bound_for(to) && suits(socket));
        let (exact, any): (Vec<_>, Vec<_>) =
            all.partition(|(_, socket)| socket.local().is_some_and(|local| local.ip() == to.ip()));
        let chosen = if exact.is_empty() { any } else { exact };
        chosen.into_iter().map(|(id, _)| id).collect()
    }

    /// The address of a socket, as its owner sees it.
    pub fn local_addr(&self, id: Id) -> io::Result<Address> {
        let socket = self.get(id)?;
        let own = |local: Option<SocketAddr>, is_v6: bool| {
            let none = match is_v6 {
                true => SocketAddr::from(([0_u16; 8], 0)),
                false => SocketAddr::from(([0, 0, 0, 0], 0)),
            };
            Address::Ip(local.map_or(none, |local| shown(local, is_v6)))
        };
        Ok(match &socket.kind {
            Kind::Tcp(tcp) => own(tcp.local, tcp.is_v6),
            Kind::Udp(udp) => own(udp.local, udp.is_v6),
            Kind::UnixStream(unix) => Address::Unix(unix.name.clone()),
            Kind::UnixDatagram(unix) => Address::Unix(unix.name.clone()),
            Kind::Pipe(_) => return Err(error(libc::ENOTSOCK)),
        })
    }

    /// The address of its peer.
    pub fn peer_addr(&self, id: Id) -> io::Result<Address> {
        let not_connected = || error(libc::ENOTCONN);
        match &self.get(id)?.kind {
            Kind::Tcp(tcp) => match tcp.peer.filter(|_| tcp.is_connected()) {
                Some(peer) => Ok(Address::Ip(shown(peer, tcp.is_v6))),
                None => Err(not_connected()),
            },
            Kind::Udp(udp) => match udp.peer.filter(|peer| peer.port() != 0) {
                Some(peer) => Ok(Address::Ip(shown(peer, udp.is_v6))),
                None => Err(not_connected()),
            },
            Kind::UnixStream(unix) => self.unix_peer_name(unix).ok_or_else(not_connected),
            Kind::UnixDatagram(unix) => match &unix.peer {
                Some((_, name)) => Ok(Address::Unix(name.clone())),
                None => Err(not_connected()),
            },
            Kind::Pipe(_) => Err(error(libc::ENOTSOCK)),
        }
    }
}

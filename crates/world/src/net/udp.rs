//! UDP: datagrams, with the losses that the links have.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use super::address::{Id, Protocol, canonical, error, shown, would_block};
use super::dice::Dice;
use super::network::{Event, Network, is_broadcast};
use super::socket::{
    Kind, Side, Socket, UDP_EXTRA, UDP_ROOM, Udp, gather, len_of, room_of, scatter,
};

/// The most bytes of a datagram, over IPv4 and over IPv6.
const MOST_BYTES: usize = 65_507;
const MOST_BYTES_V6: usize = 65_527;

/// How much longer a datagram takes at most that others overtake, if the link has no latency.
const OVERTAKEN_NS: u64 = 1_000_000;

impl Network {
    /// Adds a UDP socket.
    pub fn add_udp(&mut self, host: u32, is_v6: bool, placeholder: OwnedFd) -> io::Result<Id> {
        let udp = Udp {
            is_v6,
            local: None,
            peer: None,
            inbox: VecDeque::new(),
            n_bytes: 0,
            groups: Vec::new(),
        };
        self.add_with(host, placeholder, Kind::Udp(udp))
    }

    fn udp_mut(&mut self, id: Id) -> io::Result<(&mut Udp, u32)> {
        let socket = self.get_mut(id)?;
        match &mut socket.kind {
            Kind::Udp(udp) => Ok((udp, socket.host)),
            _ => Err(error(libc::ENOTSOCK)),
        }
    }

    /// Sets the peer of a socket: it sends there, and receives from there only.
    pub(super) fn udp_connect(&mut self, id: Id, to: SocketAddr) -> io::Result<()> {
        let socket = self.get(id)?;
        let to = match destination(socket, to) {
            // So the kernel says of an address that is written as one of IPv4.
            Err(libc::ENETUNREACH) if to.is_ipv4() => Err(error(libc::EAFNOSUPPORT)),
            to => to.map_err(error),
        }?;
        if is_broadcast(to.ip()) && !socket.option(|s| s.broadcast()) {
            return Err(error(libc::EACCES));
        }
        let (udp, host) = self.udp_mut(id)?;
        let (local, is_v6) = (udp.local, udp.is_v6);
        let source = match local.filter(|local| !local.ip().is_unspecified()) {
            Some(local) => local.ip(),
            None => {
                let source = self.hosts[host as usize].source_for(to);
                source.ok_or_else(|| error(libc::ENETUNREACH))?
            }
        };
        let port = match local {
            Some(local) => local.port(),
            None => self.free_port(host, Protocol::Udp)?,
        };
        debug_assert!(source.is_ipv4() || is_v6);
        self.set_local(id, SocketAddr::new(source, port));
        let (udp, _) = self.udp_mut(id)?;
        udp.peer = Some(to);
        Ok(())
    }

    /// Sends a datagram, to the peer if `to` is none.
    pub(super) fn udp_send(
        &mut self,
        dice: &dyn Dice,
        id: Id,
        bufs: &[IoSlice<'_>],
        to: Option<SocketAddr>,
    ) -> io::Result<usize> {
        let socket = self.get_mut(id)?;
        let host = socket.host;
        let may_broadcast = socket.option(|s| s.broadcast());
        let Kind::Udp(udp) = &socket.kind else {
            return Err(error(libc::ENOTSOCK));
        };
        let is_for_peer = to.is_none();
        let to = match (to, udp.peer) {
            (Some(to), _) => destination(socket, to).map_err(error)?,
            (None, Some(peer)) => peer,
            (None, None) => return Err(error(libc::EDESTADDRREQ)),
        };
        // The kernel sends to a peer at port 0 what nobody gets, except from IPv6 to IPv4.
        if to.port() == 0 && !(is_for_peer && to.is_ipv6() == udp.is_v6) {
            return Err(error(libc::EINVAL));
        }
        let len = len_of(bufs);
        let most = match to {
            SocketAddr::V4(_) => MOST_BYTES,
            SocketAddr::V6(_) => MOST_BYTES_V6,
        };
        if len > most {
            return Err(error(libc::EMSGSIZE));
        }
        if is_broadcast(to.ip()) && !may_broadcast {
            return Err(error(libc::EACCES));
        }
        if let Some(errno) = socket.error.take() {
            return Err(error(errno));
        }
        let Kind::Udp(udp) = &socket.kind else {
            return Err(error(libc::ENOTSOCK));
        };
        let (local, is_v6) = (udp.local, udp.is_v6);
        let (ip, port) = match local {
            Some(local) => (local.ip(), local.port()),
            None => {
                let any = match is_v6 {
                    true => IpAddr::from(Ipv6Addr::UNSPECIFIED),
                    false => Ipv4Addr::UNSPECIFIED.into(),
                };
                let port = self.free_port(host, Protocol::Udp)?;
                self.set_local(id, SocketAddr::new(any, port));
                (any, port)
            }
        };
        let source = match ip.is_unspecified() {
            false => ip,
            true => {
                let source = self.hosts[host as usize].source_for(to);
                source.ok_or_else(|| error(libc::ENETUNREACH))?
            }
        };
        let bytes = gather(bufs, len);
        let from = SocketAddr::new(source, port);
        for (to_host, to) in self.targets(id, host, to) {
            self.send_datagram(dice, (id, host), to_host, from, to, &bytes);
        }
        Ok(len)
    }

    /// The hosts that get a datagram for `to`: several for a broadcast and for a group.
    fn targets(&self, id: Id, host: u32, to: SocketAddr) -> Vec<(u32, SocketAddr)> {
        if !is_broadcast(to.ip()) && !to.ip().is_multicast() {
            return self
                .route(host, to.ip())
                .map(|host| (host, to))
                .into_iter()
                .collect();
        }
        let loops = !to.ip().is_multicast()
            || self.get(id).is_ok_and(|socket| match to {
                SocketAddr::V4(_) => socket.option(|s| s.multicast_loop_v4()),
                SocketAddr::V6(_) => socket.option(|s| s.multicast_loop_v6()),
            });
        let all = 0..self.hosts.len() as u32;
        all.filter(|&other| other != host || loops)
            .map(|other| (other, to))
            .collect()
    }

    fn send_datagram(
        &mut self,
        dice: &dyn Dice,
        (sender, host): (Id, u32),
        to_host: u32,
        from: SocketAddr,
        to: SocketAddr,
        bytes: &[u8],
    ) {
        let quality = self.links.quality(host, to_host);
        if dice.chance(quality.loss) {
            return;
        }
        let n_copies = 1 + u32::from(dice.chance(quality.duplication));
        for _ in 0..n_copies {
            let Some(mut at_ns) = self.links.depart(dice, host, to_host, bytes.len()) else {
                return;
            };
            if dice.chance(quality.reordering) {
                let latest_ns = match quality.latency_ns {
                    (_, 0) => OVERTAKEN_NS,
                    (_, most) => most,
                };
                at_ns = at_ns.saturating_add(dice.between(1, latest_ns));
            }
            let bytes = bytes.to_vec();
            if at_ns <= dice.now_ns() {
                self.on_datagram(dice, (sender, host), to_host, from, to, bytes);
            } else {
                let datagram = Event::Datagram {
                    from_host: host,
                    to_host,
                    sender,
                    from,
                    to,
                    bytes,
                };
                self.plan(at_ns, datagram);
            }
        }
    }

    /// A datagram arrives at a host.
    pub(super) fn on_datagram(
        &mut self,
        dice: &dyn Dice,
        (sender, from_host): (Id, u32),
        host: u32,
        from: SocketAddr,
        to: SocketAddr,
        bytes: Vec<u8>,
    ) {
        if !self.hosts[host as usize].is_up {
            return;
        }
        let is_group = to.ip().is_multicast();
        let is_for_many = is_group || is_broadcast(to.ip());
        let suits = |socket: &Socket| match &socket.kind {
            Kind::Udp(udp) => {
                let is_peer = udp.peer.is_none_or(|peer| peer == from);
                is_peer && (!is_group || udp.groups.contains(&to.ip()))
            }
            _ => false,
        };
        let all = self.bound_for(host, Protocol::Udp, to, suits);
        if is_for_many {
            for id in all {
                self.receive(id, from, bytes.clone());
            }
            return;
        }
        // One that is connected to the sender comes first.
        let is_connected = |id: &Id| {
            let socket = self.sockets.get(id);
            matches!(socket.map(|s| &s.kind), Some(Kind::Udp(udp)) if udp.peer.is_some())
        };
        if let Some(&id) = all.iter().find(|id| is_connected(id)).or(all.last()) {
            self.receive(id, from, bytes);
            return;
        }
        match self.links.depart(dice, host, from_host, 0) {
            Some(at_ns) if at_ns <= dice.now_ns() => self.on_unreachable(sender, to, host),
            Some(at_ns) => self.plan(
                at_ns,
                Event::Unreachable {
                    sender,
                    to,
                    by_host: host,
                },
            ),
            None => {}
        }
    }

    fn receive(&mut self, id: Id, from: SocketAddr, bytes: Vec<u8>) {
        let Ok((udp, _)) = self.udp_mut(id) else {
            return;
        };
        let n_bytes = bytes.len() + UDP_EXTRA;
        // A full socket loses what comes.
        if udp.n_bytes + n_bytes > UDP_ROOM {
            return;
        }
        udp.n_bytes += n_bytes;
        udp.inbox.push_back((from, bytes));
        self.wake(id, Side::Read);
    }

    /// The sender of a datagram learns that nobody has the port. Only a socket that is connected to it is
    /// told.
    pub(super) fn on_unreachable(&mut self, sender: Id, to: SocketAddr, by_host: u32) {
        let Some(socket) = self.sockets.get_mut(&sender) else {
            return;
        };
        let host = socket.host;
        if let Kind::Udp(udp) = &socket.kind
            && udp.peer == Some(to)
            && !self.links.is_cut(by_host, host)
        {
            socket.error = Some(libc::ECONNREFUSED);
            self.wake(sender, Side::Read);
        }
    }

    pub(super) fn udp_receive(
        &mut self,
        id: Id,
        bufs: &mut [IoSliceMut<'_>],
        peeks: bool,
    ) -> io::Result<(usize, SocketAddr)> {
        let socket = self.get_mut(id)?;
        if let Some(errno) = socket.error.take() {
            return Err(error(errno));
        }
        let Kind::Udp(udp) = &mut socket.kind else {
            return Err(error(libc::ENOTSOCK));
        };
        let (from, bytes) = udp.inbox.front().ok_or_else(would_block)?;
        // Bytes that do not fit are lost.
        let n = bytes.len().min(room_of(bufs));
        scatter(bytes.iter().copied(), bufs);
        let from = shown(*from, udp.is_v6);
        if !peeks && let Some((_, bytes)) = udp.inbox.pop_front() {
            udp.n_bytes -= bytes.len() + UDP_EXTRA;
        }
        Ok((n, from))
    }

    /// Joins a multicast group, or leaves it.
    pub fn set_member(&mut self, id: Id, group: IpAddr, joins: bool) -> io::Result<()> {
        if !group.is_multicast() {
            return Err(error(libc::EINVAL));
        }
        let (udp, _) = self.udp_mut(id)?;
        match (udp.groups.iter().position(|&joined| joined == group), joins) {
            (None, true) => udp.groups.push(group),
            (Some(at), false) => drop(udp.groups.remove(at)),
            (Some(_), true) => return Err(error(libc::EADDRINUSE)),
            (None, false) => return Err(error(libc::EADDRNOTAVAIL)),
        }
        Ok(())
    }
}

/// Where a packet for `to` goes, or the number of the error if the socket sends nothing there.
fn destination(socket: &Socket, to: SocketAddr) -> Result<SocketAddr, i32> {
    let Kind::Udp(udp) = &socket.kind else {
        return Err(libc::ENOTSOCK);
    };
    if to.is_ipv6() && !udp.is_v6 {
        return Err(libc::EAFNOSUPPORT);
    }
    let to = to_loopback(canonical(to));
    match to.is_ipv4() && socket.is_only_v6() {
        true => Err(libc::ENETUNREACH),
        false => Ok(to),
    }
}

/// Packets to no address go to the own host.
fn to_loopback(to: SocketAddr) -> SocketAddr {
    match to.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => {
            SocketAddr::new(Ipv4Addr::LOCALHOST.into(), to.port())
        }
        IpAddr::V6(ip) if ip.is_unspecified() => {
            SocketAddr::new(Ipv6Addr::LOCALHOST.into(), to.port())
        }
        _ => to,
    }
}

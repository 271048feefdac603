//! TCP: connections, and what is sent over them.
//!
//! A connection is two sockets that know each other's number. What one writes lies in its outbox
//! until it arrives in the other's inbox. Between hosts each part of it takes the time of the link.
//! If the link is cut when it leaves or arrives, the sender tries again, as the kernel does: after
//! 200 ms, and then each time twice as long.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::address::{Address, Id, Protocol, canonical, error, shown, would_block};
use super::dice::Dice;
use super::network::{Event, Network};
use super::socket::{
    Kind, Segment, Side, Socket, State, TCP_ROOM, Tcp, fitting, gather, room_of, scatter,
};

const SECOND_NS: u64 = 1_000_000_000;

/// The first pause before a segment is sent again, and the longest.
const RETRY_NS: u64 = 200_000_000;
const RETRY_AT_MOST_NS: u64 = 120 * SECOND_NS;
/// How often a segment is sent again before the connection is given up: the kernel's
/// `tcp_retries2`.
const RETRIES: u32 = 15;
/// How often the first packet of a connect is sent again: the kernel's `tcp_syn_retries`.
const SYN_RETRIES: u32 = 6;
/// How often a server sends its answer again: the kernel's `tcp_synack_retries`.
const SYN_ACK_RETRIES: u32 = 5;
/// How long a host looks for a neighbour that does not exist.
const UNREACHABLE_NS: u64 = 3 * SECOND_NS;

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn retry_ns(n_tries: u32) -> u64 {
    (RETRY_NS << n_tries.min(20)).min(RETRY_AT_MOST_NS)
}

impl Network {
    /// Adds a TCP socket.
    pub fn add_tcp(&mut self, host: u32, is_v6: bool, placeholder: OwnedFd) -> io::Result<Id> {
        self.add_with(host, placeholder, Kind::Tcp(Tcp::new(is_v6)))
    }

    fn tcp(&self, id: Id) -> Option<(&Tcp, u32)> {
        match self.sockets.get(&id) {
            Some(Socket {
                kind: Kind::Tcp(tcp),
                host,
                ..
            }) => Some((tcp, *host)),
            _ => None,
        }
    }

    pub(super) fn tcp_mut(&mut self, id: Id) -> Option<&mut Tcp> {
        match &mut self.sockets.get_mut(&id)?.kind {
            Kind::Tcp(tcp) => Some(tcp),
            _ => None,
        }
    }

    /// Makes a bound socket a listener.
    pub(super) fn tcp_listen(&mut self, id: Id, backlog: usize) -> io::Result<()> {
        let (tcp, host) = self.tcp(id).ok_or_else(|| error(libc::EOPNOTSUPP))?;
        if !matches!(tcp.state, State::Closed | State::Listening { .. }) {
            return Err(error(libc::EINVAL));
        }
        let any = match tcp.is_v6 {
            true => IpAddr::from(Ipv6Addr::UNSPECIFIED),
            false => Ipv4Addr::UNSPECIFIED.into(),
        };
        let local = match tcp.local {
            Some(local) => local,
            None => SocketAddr::new(any, self.free_port(host, Protocol::Tcp)?),
        };
        if self.is_taken(id, local) {
            return Err(error(libc::EADDRINUSE));
        }
        self.set_local(id, local);
        let Some(tcp) = self.tcp_mut(id) else {
            return Ok(());
        };
        let new = backlog;
        match &mut tcp.state {
            State::Listening { backlog, .. } => *backlog = new,
            state => {
                *state = State::Listening {
                    backlog,
                    queue: VecDeque::new(),
                };
            }
        }
        Ok(())
    }

    // Connecting.

    /// Begins to connect. `WouldBlock` if the answer takes time: [`Network::tcp_connected`] tells
    /// it.
    pub(super) fn tcp_connect(
        &mut self,
        dice: &dyn Dice,
        id: Id,
        to: SocketAddr,
    ) -> io::Result<()> {
        let (tcp, host) = self.tcp(id).ok_or_else(|| error(libc::EOPNOTSUPP))?;
        match tcp.state {
            State::Closed => {}
            State::Connecting { .. } => return Err(error(libc::EALREADY)),
            State::Listening { .. } | State::Connected | State::Reset => {
                return Err(error(libc::EISCONN));
            }
        }
        let mut to = canonical(to);
        if to.ip().is_unspecified() {
            to.set_ip(match to {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        if to.ip().is_multicast() {
            return Err(error(libc::ENETUNREACH));
        }
        let bound = tcp.local.filter(|local| !local.ip().is_unspecified());
        let port = tcp.local.map(|local| local.port());
        let source = bound.map(|local| local.ip());
        let source = source.or_else(|| self.hosts[host as usize].source_for(to));
        let source = source.ok_or_else(|| error(libc::ENETUNREACH))?;
        let port = match port {
            Some(port) => port,
            None => self.free_port(host, Protocol::Tcp)?,
        };
        self.set_local(id, SocketAddr::new(source, port));
        if let Some(tcp) = self.tcp_mut(id) {
            tcp.peer = Some(to);
            tcp.state = State::Connecting { n_tries: 0 };
        }
        match self.route(host, to.ip()) {
            Some(_) => self.send_syn(dice, id),
            None => {
                let refused = Event::Refused {
                    client: id,
                    errno: libc::EHOSTUNREACH,
                };
                self.plan(dice.after(UNREACHABLE_NS), refused);
            }
        }
        self.tcp_connected(id)
    }

    /// The outcome of a connect. `WouldBlock` if it has not ended.
    pub(super) fn tcp_connected(&mut self, id: Id) -> io::Result<()> {
        let socket = self.get_mut(id)?;
        if let Some(errno) = socket.error.take() {
            return Err(error(errno));
        }
        match &socket.kind {
            Kind::Tcp(tcp) => match tcp.state {
                State::Connected => Ok(()),
                State::Connecting { .. } => Err(would_block()),
                _ => Err(error(libc::ECONNABORTED)),
            },
            _ => Ok(()),
        }
    }

    fn send_syn(&mut self, dice: &dyn Dice, client: Id) {
        let Some((tcp, from)) = self.tcp(client) else {
            return;
        };
        let (State::Connecting { n_tries }, Some(peer)) = (&tcp.state, tcp.peer) else {
            return;
        };
        let n_tries = *n_tries;
        let Some(to) = self.route(from, peer.ip()) else {
            return;
        };
        match self.links.depart(dice, from, to, 0) {
            Some(at_ns) if at_ns <= dice.now_ns() => self.on_syn(dice, client, n_tries),
            Some(at_ns) => self.plan(at_ns, Event::Syn { client, n_tries }),
            None => {}
        }
        if let Some((tcp, _)) = self.tcp(client)
            && matches!(tcp.state, State::Connecting { .. })
        {
            let pause_ns = SECOND_NS << n_tries;
            self.plan(dice.after(pause_ns), Event::SynTimer { client, n_tries });
        }
    }

    pub(super) fn on_syn_timer(&mut self, dice: &dyn Dice, client: Id, sent: u32) {
        let Some(tcp) = self.tcp_mut(client) else {
            return;
        };
        match &mut tcp.state {
            State::Connecting { n_tries } if *n_tries == sent && sent < SYN_RETRIES => {
                *n_tries += 1;
                self.send_syn(dice, client);
            }
            State::Connecting { n_tries } if *n_tries == sent => {
                self.on_refused(client, libc::ETIMEDOUT);
            }
            _ => {}
        }
    }

    pub(super) fn on_refused(&mut self, client: Id, errno: i32) {
        if let Some(socket) = self.sockets.get_mut(&client)
            && let Kind::Tcp(tcp) = &mut socket.kind
            && matches!(tcp.state, State::Connecting { .. })
        {
            tcp.state = State::Closed;
            tcp.peer = None;
            socket.error = Some(errno);
            self.wake_all(client);
        }
    }

    /// The first packet of a connect arrives.
    pub(super) fn on_syn(&mut self, dice: &dyn Dice, client: Id, n_tries: u32) {
        let Some((tcp, from)) = self.tcp(client) else {
            return;
        };
        let (State::Connecting { n_tries: now }, Some(to), Some(source)) =
            (&tcp.state, tcp.peer, tcp.local)
        else {
            return;
        };
        if *now != n_tries {
            return;
        }
        let Some(host) = self.route(from, to.ip()) else {
            return;
        };
        if self.links.is_cut(from, host) || !self.hosts[host as usize].is_up {
            return;
        }
        let group = self.bound_for(host, Protocol::Tcp, to, Socket::is_listening);
        let listener = match group[..] {
            [] => {
                let errno = libc::ECONNREFUSED;
                match self.links.depart(dice, host, from, 0) {
                    Some(at_ns) if at_ns <= dice.now_ns() => self.on_refused(client, errno),
                    Some(at_ns) => self.plan(at_ns, Event::Refused { client, errno }),
                    None => {}
                }
                return;
            }
            [one] => one,
            _ => group[dice.below(group.len() as u32) as usize],
        };
        let Some((of, _)) = self.tcp(listener) else {
            return;
        };
        if let State::Listening { backlog, queue } = &of.state
            && queue.len() > *backlog
        {
            // The kernel drops the packet as well, and the client sends it again.
            return;
        }
        let mut tcp = Tcp::new(of.is_v6);
        tcp.peer = Some(source);
        tcp.state = State::Connected;
        tcp.heard_ns = dice.now_ns();
        tcp.remote = client;
        tcp.remote_host = from;
        tcp.listener = listener;
        let server = self.add(Socket::new(host, Kind::Tcp(tcp)));
        self.set_local(server, to);
        match self.links.depart(dice, host, from, 0) {
            Some(at_ns) if at_ns <= dice.now_ns() => self.on_syn_ack(dice, client, server),
            Some(at_ns) => self.plan(at_ns, Event::SynAck { client, server }),
            None => drop(self.take(server)),
        }
    }

    /// The client learns that there is a listener.
    pub(super) fn on_syn_ack(&mut self, dice: &dyn Dice, client: Id, server: Id) {
        let Some((_, host)) = self.tcp(server) else {
            return;
        };
        let from = self.tcp(client).map(|(_, from)| from);
        if from.is_none_or(|from| self.links.is_cut(host, from)) {
            self.take(server);
            return;
        }
        let Some(tcp) = self.tcp_mut(client) else {
            return;
        };
        if !matches!(tcp.state, State::Connecting { .. }) {
            self.take(server);
            return;
        }
        tcp.state = State::Connected;
        tcp.heard_ns = dice.now_ns();
        tcp.remote = server;
        tcp.remote_host = host;
        self.wake_all(client);
        self.acknowledge(dice, client, server, 0);
    }

    /// The client's host confirms the connection.
    fn acknowledge(&mut self, dice: &dyn Dice, client: Id, server: Id, n_tries: u32) {
        let (Some((_, from)), Some((_, host))) = (self.tcp(client), self.tcp(server)) else {
            // The client has crashed.
            if n_tries >= SYN_ACK_RETRIES {
                self.take(server);
            } else if self.tcp(server).is_some() {
                let again = Event::Established {
                    server,
                    n_tries: n_tries + 1,
                };
                self.plan(dice.after(SECOND_NS << n_tries), again);
            }
            return;
        };
        match self.links.depart(dice, from, host, 0) {
            Some(at_ns) => {
                if let Some(tcp) = self.tcp_mut(client) {
                    tcp.last_arrival_ns = tcp.last_arrival_ns.max(at_ns);
                }
                match at_ns <= dice.now_ns() {
                    true => self.on_established(dice, server, n_tries),
                    false => self.plan(at_ns, Event::Established { server, n_tries }),
                }
            }
            None => {
                let again = Event::Established {
                    server,
                    n_tries: n_tries + 1,
                };
                self.plan(dice.after(SECOND_NS << n_tries), again);
            }
        }
    }

    pub(super) fn on_established(&mut self, dice: &dyn Dice, server: Id, n_tries: u32) {
        let Some((tcp, host)) = self.tcp(server) else {
            return;
        };
        let (listener, from) = (tcp.listener, tcp.remote_host);
        if listener == 0 {
            return;
        }
        let client = tcp.remote;
        if self.links.is_cut(from, host) {
            match n_tries < SYN_ACK_RETRIES {
                true => self.acknowledge(dice, client, server, n_tries + 1),
                false => drop(self.take(server)),
            }
            return;
        }
        if let Some(tcp) = self.tcp_mut(server) {
            tcp.listener = 0;
        }
        match self.tcp_mut(listener).map(|of| &mut of.state) {
            Some(State::Listening { queue, .. }) => {
                queue.push_back(server);
                self.wake(listener, Side::Read);
            }
            _ => {
                self.push(dice, server, Segment::Reset);
            }
        }
    }

    /// Takes a connection from a listener's queue. The caller gives it its descriptor.
    pub(super) fn tcp_accept(&mut self, id: Id) -> io::Result<(Id, Address)> {
        let tcp = self.tcp_mut(id).ok_or_else(|| error(libc::EOPNOTSUPP))?;
        let State::Listening { queue, .. } = &mut tcp.state else {
            return Err(error(libc::EINVAL));
        };
        let server = queue.pop_front().ok_or_else(would_block)?;
        match self.tcp(server) {
            Some((
                Tcp {
                    peer: Some(peer),
                    is_v6,
                    ..
                },
                _,
            )) => Ok((server, Address::Ip(shown(*peer, *is_v6)))),
            _ => Err(error(libc::ECONNABORTED)),
        }
    }

    // Streams.

    pub(super) fn tcp_write(
        &mut self,
        dice: &dyn Dice,
        id: Id,
        bufs: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        let socket = self.get_mut(id)?;
        if let Some(errno) = socket.error.take() {
            return Err(error(errno));
        }
        let Kind::Tcp(tcp) = &mut socket.kind else {
            return Err(error(libc::ENOTSOCK));
        };
        if matches!(tcp.state, State::Connecting { .. }) {
            return Err(would_block());
        }
        if tcp.shut_write || !matches!(tcp.state, State::Connected) {
            return Err(error(libc::EPIPE));
        }
        let n = dice.short(fitting(bufs, tcp.room)?);
        if n == 0 {
            return Ok(0);
        }
        tcp.room -= n;
        self.push(dice, id, Segment::Data(gather(bufs, n)));
        Ok(n)
    }

    pub(super) fn tcp_read(
        &mut self,
        dice: &dyn Dice,
        id: Id,
        bufs: &mut [IoSliceMut<'_>],
        peeks: bool,
    ) -> io::Result<usize> {
        let socket = self.get_mut(id)?;
        let Kind::Tcp(tcp) = &mut socket.kind else {
            return Err(error(libc::ENOTSOCK));
        };
        if tcp.inbox.is_empty() {
            if tcp.got_fin {
                return Ok(0);
            }
            if let Some(errno) = socket.error.take() {
                return Err(error(errno));
            }
            return match tcp.state {
                _ if tcp.shut_read => Ok(0),
                State::Reset => Ok(0),
                State::Closed | State::Listening { .. } => Err(error(libc::ENOTCONN)),
                State::Connecting { .. } | State::Connected => Err(would_block()),
            };
        }
        let n = dice.short(room_of(bufs).min(tcp.inbox.len()));
        scatter(tcp.inbox.iter().take(n).copied(), bufs);
        if !peeks {
            tcp.inbox.drain(..n);
            let (sender, host, to) = (tcp.remote, socket.host, tcp.remote_host);
            self.tell_read(dice, sender, (host, to), n, 0);
        }
        Ok(n)
    }

    /// The host `from` tells the sender, on the host `to`, that there is room again.
    fn tell_read(
        &mut self,
        dice: &dyn Dice,
        sender: Id,
        (from, to): (u32, u32),
        n: usize,
        n_tries: u32,
    ) {
        let read = |n_tries| Event::Read {
            sender,
            by_host: from,
            n,
            n_tries,
        };
        match self.links.depart(dice, from, to, 0) {
            Some(at_ns) if at_ns <= dice.now_ns() => self.on_read(dice, sender, from, n, n_tries),
            Some(at_ns) => self.plan(at_ns, read(n_tries)),
            None if n_tries < RETRIES => {
                self.plan(dice.after(retry_ns(n_tries)), read(n_tries + 1))
            }
            None => {}
        }
    }

    pub(super) fn on_read(
        &mut self,
        dice: &dyn Dice,
        sender: Id,
        from: u32,
        n: usize,
        n_tries: u32,
    ) {
        let Some((_, to)) = self.tcp(sender) else {
            return;
        };
        if self.links.is_cut(from, to) {
            if n_tries < RETRIES {
                let again = Event::Read {
                    sender,
                    by_host: from,
                    n,
                    n_tries: n_tries + 1,
                };
                self.plan(dice.after(retry_ns(n_tries)), again);
            }
            return;
        }
        if let Some(tcp) = self.tcp_mut(sender) {
            tcp.room = (tcp.room + n).min(TCP_ROOM);
            tcp.heard_ns = dice.now_ns();
            self.wake(sender, Side::Write);
        }
    }

    /// Adds a segment to the outbox, and sends it unless earlier ones are stuck.
    fn push(&mut self, dice: &dyn Dice, id: Id, segment: Segment) {
        let Some(tcp) = self.tcp_mut(id) else {
            return;
        };
        tcp.outbox.push_back(segment);
        if !tcp.is_stalled {
            let at = tcp.outbox.len() - 1;
            self.send_segment(dice, id, at);
        }
    }

    /// Sends the segment at a place of the outbox, which is the first, or comes after those that
    /// are on their way. `false` if it is lost, or the connection is.
    fn send_segment(&mut self, dice: &dyn Dice, id: Id, at: usize) -> bool {
        let Some((tcp, from)) = self.tcp(id) else {
            return false;
        };
        let (to, epoch, last_ns) = (tcp.remote_host, tcp.epoch, tcp.last_arrival_ns);
        let len = match tcp.outbox.get(at) {
            Some(Segment::Data(bytes)) => bytes.len(),
            Some(_) => 0,
            None => return false,
        };
        if len > 0 && dice.chance(self.links.quality(from, to).resets) {
            self.break_off(id);
            return false;
        }
        let Some(at_ns) = self.links.depart(dice, from, to, len) else {
            self.stall(dice, id);
            return false;
        };
        let at_ns = at_ns.max(last_ns);
        if let Some(tcp) = self.tcp_mut(id) {
            tcp.last_arrival_ns = at_ns;
        }
        if at == 0 && at_ns <= dice.now_ns() {
            self.on_arrive(dice, id, epoch);
        } else {
            self.plan(at_ns, Event::Arrive { sender: id, epoch });
        }
        true
    }

    /// Something was lost: what is on its way after it is void, and is sent again later.
    fn stall(&mut self, dice: &dyn Dice, id: Id) {
        let now_ns = dice.now_ns();
        let Some(tcp) = self.tcp_mut(id) else {
            return;
        };
        if matches!(tcp.outbox.front(), Some(Segment::Reset)) {
            // It is sent once.
            self.take(id);
            return;
        }
        tcp.epoch += 1;
        tcp.is_stalled = true;
        tcp.stalled_ns.get_or_insert(now_ns);
        let event = Event::Retransmit {
            sender: id,
            epoch: tcp.epoch,
        };
        let pause_ns = retry_ns(tcp.n_tries);
        self.plan(dice.after(pause_ns), event);
    }

    pub(super) fn on_retransmit(&mut self, dice: &dyn Dice, id: Id, epoch: u32) {
        let Some(socket) = self.sockets.get(&id) else {
            return;
        };
        let Kind::Tcp(tcp) = &socket.kind else {
            return;
        };
        if tcp.epoch != epoch {
            return;
        }
        let stalled_ns = dice.now_ns() - tcp.stalled_ns.unwrap_or(dice.now_ns());
        let patience: Option<Duration> = socket.option(|s| s.tcp_user_timeout());
        let is_over = patience.is_some_and(|most| u128::from(stalled_ns) >= most.as_nanos());
        if tcp.n_tries >= RETRIES || is_over {
            self.reset(id, libc::ETIMEDOUT);
            return;
        }
        let Some(tcp) = self.tcp_mut(id) else {
            return;
        };
        tcp.n_tries += 1;
        tcp.is_stalled = false;
        let n = tcp.outbox.len();
        let mut at = 0;
        for _ in 0..n {
            let before = self.tcp(id).map_or(0, |(tcp, _)| tcp.outbox.len());
            if !self.send_segment(dice, id, at) {
                return;
            }
            // It may have arrived at once.
            let after = self.tcp(id).map_or(0, |(tcp, _)| tcp.outbox.len());
            if self.tcp(id).is_none_or(|(tcp, _)| tcp.epoch != epoch) {
                return;
            }
            at += usize::from(after == before);
        }
    }

    /// The first segment of the outbox arrives.
    pub(super) fn on_arrive(&mut self, dice: &dyn Dice, id: Id, epoch: u32) {
        let Some((tcp, from)) = self.tcp(id) else {
            return;
        };
        if tcp.epoch != epoch {
            return;
        }
        let (to, peer) = (tcp.remote_host, tcp.remote);
        // A host that is down takes nothing, and says nothing.
        if self.links.is_cut(from, to) || !self.hosts[to as usize].is_up {
            self.stall(dice, id);
            return;
        }
        // Whatever the client sends confirms the connection.
        self.on_established(dice, peer, 0);
        let Some(tcp) = self.tcp_mut(id) else {
            return;
        };
        let Some(segment) = tcp.outbox.pop_front() else {
            return;
        };
        tcp.stalled_ns = None;
        tcp.n_tries = 0;
        let Some(target) = self.sockets.get_mut(&peer) else {
            self.answer_reset(dice, id, (to, from), &segment);
            return;
        };
        let Kind::Tcp(target) = &mut target.kind else {
            return;
        };
        let takes = matches!(target.state, State::Connected);
        match segment {
            Segment::Reset => {
                self.take(id);
                self.reset(peer, libc::ECONNRESET);
            }
            _ if !takes => self.answer_reset(dice, id, (to, from), &segment),
            Segment::Data(_) if target.is_orphan => {
                self.take(peer);
                self.answer_reset(dice, id, (to, from), &segment);
            }
            // A socket that has ended both directions receives nothing more.
            Segment::Data(_) if target.shut_read && target.shut_write => {
                self.reset(peer, libc::ECONNRESET);
                self.answer_reset(dice, id, (to, from), &segment);
            }
            Segment::Data(bytes) => {
                target.heard_ns = dice.now_ns();
                target.inbox.extend(bytes);
                self.wake(peer, Side::Read);
            }
            Segment::Fin => {
                target.got_fin = true;
                self.wake(peer, Side::Read);
                let Some(tcp) = self.tcp_mut(id) else {
                    return;
                };
                tcp.fin_arrived = true;
                if tcp.is_orphan {
                    self.take(id);
                }
            }
        }
    }

    /// A host answers a segment to a connection that it does not know.
    fn answer_reset(&mut self, dice: &dyn Dice, id: Id, (from, to): (u32, u32), segment: &Segment) {
        if matches!(segment, Segment::Reset) {
            self.take(id);
            return;
        }
        match self.links.depart(dice, from, to, 0) {
            Some(at_ns) if at_ns <= dice.now_ns() => self.reset(id, libc::ECONNRESET),
            Some(at_ns) => self.plan(at_ns, Event::Reset { target: id }),
            None => {}
        }
    }

    /// The connection of a socket ends with an error, which the next call reports.
    pub(super) fn reset(&mut self, id: Id, errno: i32) {
        let Some(socket) = self.sockets.get_mut(&id) else {
            return;
        };
        let Kind::Tcp(tcp) = &mut socket.kind else {
            return;
        };
        if !matches!(tcp.state, State::Connected) {
            return;
        }
        tcp.state = State::Reset;
        tcp.outbox.clear();
        tcp.epoch += 1;
        let is_orphan = tcp.is_orphan;
        // The kernel calls it a broken pipe if the peer had ended its direction.
        socket.error = Some(if tcp.got_fin && errno == libc::ECONNRESET {
            libc::EPIPE
        } else {
            errno
        });
        match is_orphan {
            true => drop(self.take(id)),
            false => self.wake_all(id),
        }
    }

    /// Something on the way resets a connection: both ends learn it at once.
    pub(super) fn break_off(&mut self, id: Id) {
        let peer = self.tcp(id).map(|(tcp, _)| tcp.remote);
        self.reset(id, libc::ECONNRESET);
        if let Some(peer) = peer {
            self.reset(peer, libc::ECONNRESET);
        }
    }

    /// Resets all connections between two hosts.
    pub fn reset_between(&mut self, a: u32, b: u32) {
        let between = |(&id, socket): (&Id, &Socket)| match &socket.kind {
            Kind::Tcp(tcp) if matches!(tcp.state, State::Connected) => {
                let ends = (socket.host, tcp.remote_host);
                (ends == (a, b) || ends == (b, a)).then_some(id)
            }
            _ => None,
        };
        let ids: Vec<Id> = self.sockets.iter().filter_map(between).collect();
        ids.into_iter().for_each(|id| self.break_off(id));
    }

    pub(super) fn tcp_shutdown(
        &mut self,
        dice: &dyn Dice,
        id: Id,
        how: Shutdown,
    ) -> io::Result<()> {
        let (reads, writes) = (how != Shutdown::Write, how != Shutdown::Read);
        let tcp = self.tcp_mut(id).ok_or_else(|| error(libc::ENOTSOCK))?;
        if let State::Listening { queue, .. } = &mut tcp.state {
            if reads {
                let queue = std::mem::take(queue);
                tcp.state = State::Closed;
                self.refuse_queued(dice, queue);
                self.wake_all(id);
            }
            return Ok(());
        }
        if !tcp.is_connected() {
            return Err(error(libc::ENOTCONN));
        }
        tcp.shut_read |= reads;
        let ends = writes && !tcp.shut_write;
        tcp.shut_write |= writes;
        if ends {
            self.push(dice, id, Segment::Fin);
        }
        self.wake_all(id);
        Ok(())
    }

    /// Resets connections that nobody will accept.
    fn refuse_queued(&mut self, dice: &dyn Dice, queue: VecDeque<Id>) {
        for server in queue {
            if let Some(tcp) = self.tcp_mut(server) {
                tcp.is_orphan = true;
            }
            self.push(dice, server, Segment::Reset);
        }
    }

    // Connections on which nothing is sent.

    /// Plans to ask for the peers of connections whose owners want that (`SO_KEEPALIVE`), where an
    /// answer may be missing: `between` tells the hosts. While everything is well nobody asks, or a
    /// run in which all wait for one another would not end.
    pub(super) fn plan_probes(&mut self, dice: &dyn Dice, between: impl Fn(u32, u32) -> bool) {
        let mut probes = Vec::new();
        for (&id, socket) in &self.sockets {
            if let Kind::Tcp(tcp) = &socket.kind
                && tcp.is_connected()
                && between(socket.host, tcp.remote_host)
                && socket.option(|s| s.keepalive())
            {
                let idle = socket.option(|s| s.tcp_keepalive_time());
                let at_ns = tcp.heard_ns.saturating_add(nanoseconds(idle));
                probes.push((at_ns.max(dice.now_ns()), id));
            }
        }
        for (at_ns, id) in probes {
            self.plan(at_ns, Event::Probe { id, n_tries: 0 });
        }
    }

    pub(super) fn on_probe(&mut self, dice: &dyn Dice, id: Id, n_tries: u32) {
        let Some(socket) = self.sockets.get(&id) else {
            return;
        };
        let Kind::Tcp(tcp) = &socket.kind else {
            return;
        };
        // Segments that are sent in vain have a limit of their own.
        if !tcp.is_connected() || !tcp.outbox.is_empty() || !socket.option(|s| s.keepalive()) {
            return;
        }
        let due_ns = tcp
            .heard_ns
            .saturating_add(nanoseconds(socket.option(|s| s.tcp_keepalive_time())));
        if n_tries == 0 && due_ns > dice.now_ns() {
            self.plan(due_ns, Event::Probe { id, n_tries });
            return;
        }
        let (here, there) = (socket.host, tcp.remote_host);
        let is_there = self.hosts[there as usize].is_up;
        let hears = is_there && !self.links.is_cut(here, there) && !self.links.is_cut(there, here);
        if !hears {
            let most = socket.option(|s| s.tcp_keepalive_retries());
            let pause_ns = nanoseconds(socket.option(|s| s.tcp_keepalive_interval()));
            match n_tries < most {
                true => {
                    let n_tries = n_tries + 1;
                    self.plan(dice.after(pause_ns), Event::Probe { id, n_tries });
                }
                false => self.reset(id, libc::ETIMEDOUT),
            }
            return;
        }
        let is_known = self.tcp(tcp.remote).is_some();
        let there_ns = self.links.depart(dice, here, there, 0);
        let back_ns = self.links.depart(dice, there, here, 0);
        let at_ns = there_ns
            .zip(back_ns)
            .map_or(dice.now_ns(), |(there_ns, back_ns)| {
                there_ns + (back_ns - dice.now_ns())
            });
        if !is_known {
            self.plan(at_ns, Event::Reset { target: id });
        } else if let Some(tcp) = self.tcp_mut(id) {
            tcp.heard_ns = at_ns;
        }
    }

    /// The program has closed the socket.
    pub(super) fn tcp_close(&mut self, dice: &dyn Dice, id: Id) {
        let Some(socket) = self.sockets.get_mut(&id) else {
            return;
        };
        let drops: Option<Duration> = socket.option(|s| s.linger());
        let Kind::Tcp(tcp) = &mut socket.kind else {
            return;
        };
        match &mut tcp.state {
            State::Listening { queue, .. } => {
                let queue = std::mem::take(queue);
                self.take(id);
                self.refuse_queued(dice, queue);
            }
            State::Connected => {
                // Bytes that were not read are lost, and the peer must learn that.
                let aborts = !tcp.inbox.is_empty() || drops.is_some_and(|time| time.is_zero());
                if aborts && tcp.is_stalled || tcp.fin_arrived && !aborts {
                    self.take(id);
                    return;
                }
                tcp.is_orphan = true;
                let ended = std::mem::replace(&mut tcp.shut_write, true);
                self.forget_descriptor(id);
                self.wake_all(id);
                if aborts {
                    self.push(dice, id, Segment::Reset);
                } else if !ended {
                    self.push(dice, id, Segment::Fin);
                }
            }
            _ => drop(self.take(id)),
        }
    }
}

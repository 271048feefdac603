//! Unix sockets and pipes. They connect goroutines of one host, so nothing takes time here.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::OwnedFd;

use super::address::{Address, Id, Name, error, would_block};
use super::dice::Dice;
use super::network::Network;
use super::socket::{
    Chunk, Kind, PIPE_ATOMIC, PIPE_ROOM, Packet, Pipe, Side, UNIX_PACKETS, UNIX_ROOM, UnixDatagram,
    UnixState, UnixStream, fitting, gather, len_of, room_of, scatter,
};

/// The result of a receive of bytes and descriptors.
pub(crate) type Received = (usize, Vec<OwnedFd>);

fn new_stream(state: UnixState) -> UnixStream {
    UnixStream {
        name: Name::new(),
        peer_name: Name::new(),
        state,
        inbox: VecDeque::new(),
        n_bytes: 0,
        shut_read: false,
        shut_write: false,
    }
}

/// The key of a name: streams and sockets for packets have abstract names of their own.
fn key(name: &Name, is_stream: bool) -> Name {
    let mut key = name.clone();
    if key.first() == Some(&0) {
        key.push(u8::from(is_stream));
    }
    key
}

impl UnixDatagram {
    pub(super) fn has_room(&self) -> bool {
        self.inbox.len() <= UNIX_PACKETS
    }
}

impl Network {
    /// Adds a Unix stream socket, or one for packets.
    pub fn add_unix(&mut self, host: u32, is_stream: bool, placeholder: OwnedFd) -> io::Result<Id> {
        let kind = match is_stream {
            true => Kind::UnixStream(new_stream(UnixState::Closed)),
            false => Kind::UnixDatagram(UnixDatagram::default()),
        };
        self.add_with(host, placeholder, kind)
    }

    /// Connects two new Unix sockets of the same type.
    pub fn pair(&mut self, a: Id, b: Id) -> io::Result<()> {
        for (one, other) in [(a, b), (b, a)] {
            match &mut self.get_mut(one)?.kind {
                Kind::UnixStream(unix) => unix.state = UnixState::Connected(other),
                Kind::UnixDatagram(unix) => unix.peer = Some((other, Name::new())),
                _ => return Err(error(libc::EOPNOTSUPP)),
            }
        }
        Ok(())
    }

    /// Adds a pipe; returns its reader and its writer.
    pub fn add_pipe(
        &mut self,
        host: u32,
        reader: OwnedFd,
        writer: OwnedFd,
    ) -> io::Result<(Id, Id)> {
        let bytes = VecDeque::new();
        let reader = self.add_with(host, reader, Kind::Pipe(Pipe::Reader { writer: 0, bytes }))?;
        let writer = self.add_with(host, writer, Kind::Pipe(Pipe::Writer { reader }))?;
        if let Kind::Pipe(Pipe::Reader { writer: of, .. }) = &mut self.get_mut(reader)?.kind {
            *of = writer;
        }
        Ok((reader, writer))
    }

    fn stream(&self, id: Id) -> Option<&UnixStream> {
        match &self.sockets.get(&id)?.kind {
            Kind::UnixStream(unix) => Some(unix),
            _ => None,
        }
    }

    fn stream_mut(&mut self, id: Id) -> Option<&mut UnixStream> {
        match &mut self.sockets.get_mut(&id)?.kind {
            Kind::UnixStream(unix) => Some(unix),
            _ => None,
        }
    }

    fn datagram_mut(&mut self, id: Id) -> Option<&mut UnixDatagram> {
        match &mut self.sockets.get_mut(&id)?.kind {
            Kind::UnixDatagram(unix) => Some(unix),
            _ => None,
        }
    }

    pub(super) fn unix_bind(&mut self, id: Id, name: Name) -> io::Result<()> {
        let socket = self.get_mut(id)?;
        let host = socket.host;
        let own = match &mut socket.kind {
            Kind::UnixStream(unix) => &mut unix.name,
            Kind::UnixDatagram(unix) => &mut unix.name,
            _ => return Err(error(libc::EINVAL)),
        };
        if !own.is_empty() || name.is_empty() {
            return Err(error(libc::EINVAL));
        }
        own.clone_from(&name);
        let key = key(&name, self.stream(id).is_some());
        if self.hosts[host as usize].names.contains_key(&key) {
            // It keeps no name that it did not get.
            match &mut self.get_mut(id)?.kind {
                Kind::UnixStream(unix) => unix.name.clear(),
                Kind::UnixDatagram(unix) => unix.name.clear(),
                _ => {}
            }
            return Err(error(libc::EADDRINUSE));
        }
        self.host_mut(host).names.insert(key, id);
        Ok(())
    }

    /// Removes the file of a socket's path. `false` if the host has no such socket.
    pub fn unlink(&mut self, host: u32, path: &[u8]) -> bool {
        path.first().is_some_and(|&byte| byte != 0)
            && self.host_mut(host).names.remove(path).is_some()
    }

    /// The socket that has a name on a host, for a stream or for packets.
    fn named(&self, host: u32, name: &Name, is_stream: bool) -> io::Result<Id> {
        match self.hosts[host as usize].names.get(&key(name, is_stream)) {
            Some(id) if self.sockets.contains_key(id) => Ok(*id),
            Some(_) => Err(error(libc::ECONNREFUSED)),
            None if name.is_empty() => Err(error(libc::EINVAL)),
            None if name.first() == Some(&0) => Err(error(libc::ECONNREFUSED)),
            None => Err(error(libc::ENOENT)),
        }
    }

    pub(super) fn unix_listen(&mut self, id: Id, backlog: usize) -> io::Result<()> {
        let unix = self.stream_mut(id).ok_or_else(|| error(libc::EOPNOTSUPP))?;
        if unix.name.is_empty() || matches!(unix.state, UnixState::Connected(_)) {
            return Err(error(libc::EINVAL));
        }
        let queue = VecDeque::new();
        unix.state = UnixState::Listening { backlog, queue };
        Ok(())
    }

    /// Connects a stream. `WouldBlock` if the listener's queue is full.
    pub(super) fn unix_connect(&mut self, id: Id, to: &Name) -> io::Result<()> {
        let host = self.get(id)?.host;
        let own = self.stream(id).ok_or_else(|| error(libc::EPROTOTYPE))?;
        match own.state {
            UnixState::Closed => {}
            UnixState::Listening { .. } => return Err(error(libc::EINVAL)),
            UnixState::Connected(_) => return Err(error(libc::EISCONN)),
        }
        let own_name = own.name.clone();
        let listener = self.named(host, to, true)?;
        let of = self
            .stream(listener)
            .ok_or_else(|| error(libc::EPROTOTYPE))?;
        match &of.state {
            UnixState::Listening { .. } if of.shut_read => return Err(error(libc::ECONNREFUSED)),
            UnixState::Listening { backlog, queue } if queue.len() > *backlog => {
                return Err(would_block());
            }
            UnixState::Listening { .. } => {}
            _ => return Err(error(libc::ECONNREFUSED)),
        }
        let mut server = new_stream(UnixState::Connected(id));
        server.name.clone_from(to);
        server.peer_name = own_name;
        let server = self.add(super::socket::Socket::new(host, Kind::UnixStream(server)));
        if let Some(own) = self.stream_mut(id) {
            own.state = UnixState::Connected(server);
            own.peer_name.clone_from(to);
        }
        if let Some(UnixStream {
            state: UnixState::Listening { queue, .. },
            ..
        }) = self.stream_mut(listener)
        {
            queue.push_back(server);
        }
        self.wake(listener, Side::Read);
        Ok(())
    }

    /// The listener whose queue a connect waits for, or the socket for packets that a send waits
    /// for.
    pub(super) fn unix_target(&self, id: Id, to: Option<&Name>) -> Id {
        let Some(socket) = self.sockets.get(&id) else {
            return id;
        };
        let peer = match &socket.kind {
            Kind::UnixDatagram(unix) => unix.peer.as_ref().map(|(peer, _)| *peer),
            _ => None,
        };
        let is_stream = matches!(socket.kind, Kind::UnixStream(_));
        let named = to.and_then(|name| self.named(socket.host, name, is_stream).ok());
        named.or(peer).unwrap_or(id)
    }

    pub(super) fn unix_accept(&mut self, id: Id) -> io::Result<(Id, Address)> {
        let unix = self.stream_mut(id).ok_or_else(|| error(libc::EOPNOTSUPP))?;
        let is_shut = unix.shut_read;
        let UnixState::Listening { queue, .. } = &mut unix.state else {
            return Err(error(libc::EINVAL));
        };
        let Some(server) = queue.pop_front() else {
            return Err(if is_shut {
                error(libc::EINVAL)
            } else {
                would_block()
            });
        };
        self.wake(id, Side::Inbox);
        let name = self.stream(server).map(|unix| unix.peer_name.clone());
        Ok((server, Address::Unix(name.unwrap_or_default())))
    }

    pub(super) fn unix_peer_name(&self, unix: &UnixStream) -> Option<Address> {
        match unix.state {
            UnixState::Connected(_) => Some(Address::Unix(unix.peer_name.clone())),
            _ => None,
        }
    }

    /// Whether more may come from the stream `id`.
    pub(super) fn unix_sends(&self, id: Id) -> bool {
        self.stream(id).is_some_and(|unix| !unix.shut_write)
    }

    /// How many bytes the stream `id` takes; `None` if it takes none any more.
    pub(super) fn unix_room(&self, id: Id) -> Option<usize> {
        let unix = self.stream(id).filter(|unix| !unix.shut_read)?;
        Some(UNIX_ROOM.saturating_sub(unix.n_bytes))
    }

    pub(super) fn unix_write(
        &mut self,
        dice: &dyn Dice,
        id: Id,
        bufs: &[IoSlice<'_>],
        fds: Vec<OwnedFd>,
    ) -> io::Result<usize> {
        let own = self.stream(id).ok_or_else(|| error(libc::EBADF))?;
        let UnixState::Connected(peer) = own.state else {
            return Err(error(libc::ENOTCONN));
        };
        if own.shut_write {
            return Err(error(libc::EPIPE));
        }
        let room = self.unix_room(peer).ok_or_else(|| error(libc::EPIPE))?;
        let n = dice.short(fitting(bufs, room)?);
        if n == 0 {
            return Ok(0);
        }
        if let Some(peer) = self.stream_mut(peer) {
            peer.n_bytes += n;
            let bytes = gather(bufs, n).into();
            peer.inbox.push_back(Chunk { bytes, fds });
        }
        self.wake(peer, Side::Read);
        Ok(n)
    }

    /// Reads bytes, up to the next ones that come with descriptors. A peek leaves those.
    pub(super) fn unix_read(
        &mut self,
        dice: &dyn Dice,
        id: Id,
        bufs: &mut [IoSliceMut<'_>],
        peeks: bool,
    ) -> io::Result<Received> {
        let socket = self.get_mut(id)?;
        let Kind::UnixStream(unix) = &mut socket.kind else {
            return Err(error(libc::ENOTSOCK));
        };
        let UnixState::Connected(peer) = unix.state else {
            return Err(error(libc::EINVAL));
        };
        if unix.inbox.is_empty() {
            if let Some(errno) = socket.error.take() {
                return Err(error(errno));
            }
            let ends = unix.shut_read || !self.unix_sends(peer);
            return if ends {
                Ok((0, Vec::new()))
            } else {
                Err(would_block())
            };
        }
        let n_chunks = 1 + unix
            .inbox
            .iter()
            .skip(1)
            .take_while(|chunk| chunk.fds.is_empty())
            .count();
        let chunks = unix.inbox.iter().take(n_chunks);
        let there = chunks.map(|chunk| chunk.bytes.len()).sum::<usize>();
        let n = dice.short(room_of(bufs).min(there));
        let bytes = unix
            .inbox
            .iter()
            .flat_map(|chunk| chunk.bytes.iter().copied());
        scatter(bytes.take(n), bufs);
        if peeks {
            return Ok((n, Vec::new()));
        }
        let fds = unix
            .inbox
            .front_mut()
            .map(|chunk| std::mem::take(&mut chunk.fds));
        let mut left = n;
        while let Some(chunk) = unix.inbox.front_mut().filter(|_| left > 0) {
            let taken = left.min(chunk.bytes.len());
            chunk.bytes.drain(..taken);
            left -= taken;
            if chunk.bytes.is_empty() {
                unix.inbox.pop_front();
            }
        }
        unix.n_bytes -= n;
        self.wake(peer, Side::Write);
        Ok((n, fds.unwrap_or_default()))
    }

    pub(super) fn unix_shutdown(&mut self, id: Id, how: Shutdown) -> io::Result<()> {
        let (reads, writes) = (how != Shutdown::Write, how != Shutdown::Read);
        match &mut self.get_mut(id)?.kind {
            Kind::UnixStream(unix) => {
                unix.shut_read |= reads;
                unix.shut_write |= writes;
                if let UnixState::Connected(peer) = unix.state {
                    self.wake_all(peer);
                }
            }
            Kind::UnixDatagram(unix) => {
                unix.shut_read |= reads;
                unix.shut_write |= writes;
            }
            _ => return Err(error(libc::ENOTSOCK)),
        }
        self.wake_all(id);
        Ok(())
    }

    // Packets.

    /// Sets the peer of a socket for packets.
    pub(super) fn unix_datagram_connect(&mut self, id: Id, to: &Name) -> io::Result<()> {
        let host = self.get(id)?.host;
        let target = self.named(host, to, false)?;
        self.check_packets_to(id, target)?;
        if let Some(unix) = self.datagram_mut(id) {
            unix.peer = Some((target, to.clone()));
        }
        Ok(())
    }

    /// A socket that is connected takes packets from its peer only.
    fn check_packets_to(&mut self, id: Id, target: Id) -> io::Result<()> {
        let unix = self
            .datagram_mut(target)
            .ok_or_else(|| error(libc::EPROTOTYPE))?;
        match &unix.peer {
            Some((peer, _)) if *peer != id => Err(error(libc::EPERM)),
            _ => Ok(()),
        }
    }

    pub(super) fn unix_send(
        &mut self,
        id: Id,
        bufs: &[IoSlice<'_>],
        to: Option<&Name>,
        fds: Vec<OwnedFd>,
    ) -> io::Result<usize> {
        let host = self.get(id)?.host;
        let own = self.datagram_mut(id).ok_or_else(|| error(libc::ENOTSOCK))?;
        let (from, shut, peer) = (own.name.clone(), own.shut_write, own.peer.clone());
        let len = len_of(bufs);
        if len > UNIX_ROOM {
            return Err(error(libc::EMSGSIZE));
        }
        if shut {
            return Err(error(libc::EPIPE));
        }
        let target = match (to, peer) {
            (Some(name), _) => self.named(host, name, false)?,
            (None, Some((peer, _))) if self.sockets.contains_key(&peer) => peer,
            (None, Some(_)) => {
                // The peer is gone; the socket has none from now on.
                if let Some(own) = self.datagram_mut(id) {
                    own.peer = None;
                }
                return Err(error(libc::ECONNREFUSED));
            }
            (None, None) => return Err(error(libc::ENOTCONN)),
        };
        self.check_packets_to(id, target)?;
        let unix = self
            .datagram_mut(target)
            .ok_or_else(|| error(libc::EPROTOTYPE))?;
        if unix.shut_read {
            return Err(error(libc::EPIPE));
        }
        if !unix.has_room() {
            return Err(would_block());
        }
        let bytes = gather(bufs, len);
        unix.inbox.push_back(Packet { from, bytes, fds });
        self.wake(target, Side::Read);
        Ok(len)
    }

    pub(super) fn unix_receive(
        &mut self,
        id: Id,
        bufs: &mut [IoSliceMut<'_>],
        peeks: bool,
    ) -> io::Result<(Received, Name)> {
        let unix = self.datagram_mut(id).ok_or_else(|| error(libc::ENOTSOCK))?;
        if unix.inbox.is_empty() && unix.shut_read {
            return Ok(((0, Vec::new()), Name::new()));
        }
        let packet = unix.inbox.front_mut().ok_or_else(would_block)?;
        let n = packet.bytes.len().min(room_of(bufs));
        scatter(packet.bytes.iter().copied(), bufs);
        let from = packet.from.clone();
        if peeks {
            return Ok(((n, Vec::new()), from));
        }
        let fds = std::mem::take(&mut packet.fds);
        unix.inbox.pop_front();
        self.wake(id, Side::Inbox);
        // Peers that are connected wait for room as writers.
        let is_peer = |(&other, socket): (&Id, &super::socket::Socket)| match &socket.kind {
            Kind::UnixDatagram(unix) => {
                let peer = unix.peer.as_ref();
                peer.is_some_and(|(peer, _)| *peer == id).then_some(other)
            }
            _ => None,
        };
        let peers: Vec<Id> = self.sockets.iter().filter_map(is_peer).collect();
        peers
            .into_iter()
            .for_each(|peer| self.wake(peer, Side::Write));
        Ok(((n, fds), from))
    }

    // Pipes.

    /// How many bytes fit into the pipe; `None` if its reader is gone.
    pub(super) fn pipe_room(&self, reader: Id) -> Option<usize> {
        match &self.sockets.get(&reader)?.kind {
            Kind::Pipe(Pipe::Reader { bytes, .. }) => Some(PIPE_ROOM - bytes.len()),
            _ => None,
        }
    }

    pub(super) fn pipe_write(
        &mut self,
        dice: &dyn Dice,
        id: Id,
        bufs: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        let Kind::Pipe(Pipe::Writer { reader }) = self.get(id)?.kind else {
            return Err(error(libc::EBADF));
        };
        let room = self.pipe_room(reader).ok_or_else(|| error(libc::EPIPE))?;
        let len = len_of(bufs);
        let n = match len {
            _ if len <= PIPE_ATOMIC && room < len => return Err(would_block()),
            _ if len <= PIPE_ATOMIC => len,
            _ if room < PIPE_ATOMIC => return Err(would_block()),
            _ => dice.short(len.min(room)),
        };
        if let Some(socket) = self.sockets.get_mut(&reader)
            && let Kind::Pipe(Pipe::Reader { bytes, .. }) = &mut socket.kind
        {
            bytes.extend(gather(bufs, n));
        }
        self.wake(reader, Side::Read);
        Ok(n)
    }

    pub(super) fn pipe_read(
        &mut self,
        dice: &dyn Dice,
        id: Id,
        bufs: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        let socket = self
            .sockets
            .get_mut(&id)
            .ok_or_else(|| error(libc::EBADF))?;
        let Kind::Pipe(Pipe::Reader { writer, bytes }) = &mut socket.kind else {
            return Err(error(libc::EBADF));
        };
        let writer = *writer;
        if bytes.is_empty() {
            let ends = !self.sockets.contains_key(&writer);
            return if ends { Ok(0) } else { Err(would_block()) };
        }
        let n = dice.short(room_of(bufs).min(bytes.len()));
        scatter(bytes.iter().take(n).copied(), bufs);
        bytes.drain(..n);
        self.wake(writer, Side::Write);
        Ok(n)
    }

    /// The program has closed the socket or the end of a pipe.
    pub(super) fn unix_close(&mut self, id: Id) {
        let Some(socket) = self.take(id) else {
            return;
        };
        let name = match &socket.kind {
            Kind::UnixStream(unix) => key(&unix.name, true),
            Kind::UnixDatagram(unix) => key(&unix.name, false),
            _ => Name::new(),
        };
        // An abstract name is free again; a path stays, as its file does.
        let names = &mut self.host_mut(socket.host).names;
        if name.first() == Some(&0) && names.get(&name) == Some(&id) {
            names.remove(&name);
        }
        match socket.kind {
            Kind::UnixStream(unix) => {
                let had_bytes = !unix.inbox.is_empty();
                match unix.state {
                    UnixState::Connected(peer) => self.unix_peer_closed(peer, had_bytes),
                    UnixState::Listening { queue, .. } => {
                        for server in queue {
                            let of = self.stream(server).map(|unix| match unix.state {
                                UnixState::Connected(client) => client,
                                _ => 0,
                            });
                            self.take(server);
                            self.unix_peer_closed(of.unwrap_or(0), true);
                        }
                    }
                    UnixState::Closed => {}
                }
            }
            Kind::Pipe(Pipe::Reader { writer, .. }) => self.wake_all(writer),
            Kind::Pipe(Pipe::Writer { reader }) => self.wake_all(reader),
            _ => {}
        }
    }

    /// The other end of `peer` is gone, and has lost bytes or not.
    fn unix_peer_closed(&mut self, peer: Id, lost_bytes: bool) {
        if let Some(socket) = self.sockets.get_mut(&peer)
            && lost_bytes
        {
            socket.error = Some(libc::ECONNRESET);
        }
        self.wake_all(peer);
    }
}

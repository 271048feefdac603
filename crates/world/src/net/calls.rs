//! The calls on a socket, whatever its kind.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::OwnedFd;

use super::address::{Address, Id, error};
use super::dice::Dice;
use super::network::Network;
use super::socket::{Kind, Side};
use super::unix::Received;

impl Network {
    /// Gives the socket an address, or a name.
    pub fn bind_to(&mut self, id: Id, addr: &Address) -> io::Result<()> {
        match addr {
            Address::Ip(addr) => self.bind(id, *addr),
            Address::Unix(name) => self.unix_bind(id, name.clone()),
        }
    }

    /// Makes the socket a listener. A negative number of connections in its queue means very many.
    pub fn listen(&mut self, id: Id, backlog: i32) -> io::Result<()> {
        let backlog = usize::try_from(backlog).unwrap_or(usize::MAX);
        match self.get(id)?.kind {
            Kind::Tcp(_) => self.tcp_listen(id, backlog),
            _ => self.unix_listen(id, backlog),
        }
    }

    /// Begins to connect.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if it takes time: then [`Network::connected`] says how it ended, after a wait
    /// for [`Network::connect_waits_for`].
    pub fn connect(&mut self, dice: &dyn Dice, id: Id, to: &Address) -> io::Result<()> {
        match (&self.get(id)?.kind, to) {
            (Kind::Tcp(_), Address::Ip(to)) => self.tcp_connect(dice, id, *to),
            (Kind::Udp(_), Address::Ip(to)) => self.udp_connect(id, *to),
            (Kind::UnixStream(_), Address::Unix(to)) => self.unix_connect(id, to),
            (Kind::UnixDatagram(_), Address::Unix(to)) => self.unix_datagram_connect(id, to),
            _ => Err(error(libc::EAFNOSUPPORT)),
        }
    }

    /// The outcome of a connect that took time, or another attempt of it.
    pub fn connected(&mut self, dice: &dyn Dice, id: Id, to: &Address) -> io::Result<()> {
        match self.get(id)?.kind {
            Kind::Tcp(_) => self.tcp_connected(id),
            _ => self.connect(dice, id, to),
        }
    }

    /// The wait of a connect.
    pub fn connect_waits_for(&self, id: Id, to: &Address) -> (Id, Side) {
        match to {
            Address::Ip(_) => (id, Side::Write),
            Address::Unix(name) => (self.unix_target(id, Some(name)), Side::Inbox),
        }
    }

    /// Takes a connection from the queue of a listener, and gives it its descriptor.
    pub fn accept(&mut self, id: Id, placeholder: OwnedFd) -> io::Result<(Id, Address)> {
        let (server, peer) = match self.get(id)?.kind {
            Kind::Tcp(_) => self.tcp_accept(id)?,
            _ => self.unix_accept(id)?,
        };
        self.attach(server, placeholder)?;
        Ok((server, peer))
    }

    /// Reads from a stream, or receives a packet.
    pub fn read(
        &mut self,
        dice: &dyn Dice,
        id: Id,
        bufs: &mut [IoSliceMut<'_>],
        peeks: bool,
    ) -> io::Result<usize> {
        match self.get(id)?.kind {
            Kind::Tcp(_) => self.tcp_read(dice, id, bufs, peeks),
            Kind::Udp(_) => self.udp_receive(id, bufs, peeks).map(|(n, _)| n),
            Kind::UnixStream(_) => self.unix_read(dice, id, bufs, peeks).map(|(n, _)| n),
            Kind::UnixDatagram(_) => self.unix_receive(id, bufs, peeks).map(|((n, _), _)| n),
            Kind::Pipe(_) => self.pipe_read(dice, id, bufs),
        }
    }

    /// Receives a packet and the address of its sender.
    pub fn receive_from(
        &mut self,
        dice: &dyn Dice,
        id: Id,
        bufs: &mut [IoSliceMut<'_>],
        peeks: bool,
    ) -> io::Result<(usize, Address)> {
        match self.get(id)?.kind {
            Kind::Udp(_) => {
                let (n, from) = self.udp_receive(id, bufs, peeks)?;
                Ok((n, Address::Ip(from)))
            }
            Kind::UnixDatagram(_) => {
                let ((n, _), from) = self.unix_receive(id, bufs, peeks)?;
                Ok((n, Address::Unix(from)))
            }
            _ => self
                .read(dice, id, bufs, peeks)
                .map(|n| (n, Address::Unix(Vec::new()))),
        }
    }

    /// Receives bytes and the descriptors that come with them.
    pub fn receive_fds(
        &mut self,
        dice: &dyn Dice,
        id: Id,
        bufs: &mut [IoSliceMut<'_>],
    ) -> io::Result<Received> {
        match self.get(id)?.kind {
            Kind::UnixStream(_) => self.unix_read(dice, id, bufs, false),
            Kind::UnixDatagram(_) => self
                .unix_receive(id, bufs, false)
                .map(|(received, _)| received),
            _ => self.read(dice, id, bufs, false).map(|n| (n, Vec::new())),
        }
    }

    /// Writes to a stream, or sends a packet: to its peer, unless `to` is another address.
    pub fn write(
        &mut self,
        dice: &dyn Dice,
        id: Id,
        bufs: &[IoSlice<'_>],
        to: Option<&Address>,
    ) -> io::Result<usize> {
        match (&self.get(id)?.kind, to) {
            (Kind::Tcp(_), _) => self.tcp_write(dice, id, bufs),
            (Kind::Udp(_), Some(Address::Ip(to))) => self.udp_send(dice, id, bufs, Some(*to)),
            (Kind::Udp(_), None) => self.udp_send(dice, id, bufs, None),
            (Kind::UnixDatagram(_), Some(Address::Unix(to))) => {
                self.unix_send(id, bufs, Some(to), Vec::new())
            }
            (Kind::UnixDatagram(_), None) => self.unix_send(id, bufs, None, Vec::new()),
            (Kind::UnixStream(_), _) => self.unix_write(dice, id, bufs, Vec::new()),
            (Kind::Pipe(_), _) => self.pipe_write(dice, id, bufs),
            (Kind::Udp(_) | Kind::UnixDatagram(_), Some(_)) => Err(error(libc::EAFNOSUPPORT)),
        }
    }

    /// Writes bytes together with descriptors. They are made by `fds` once there is room.
    pub fn write_fds(
        &mut self,
        dice: &dyn Dice,
        id: Id,
        buf: &[u8],
        fds: impl FnOnce() -> io::Result<Vec<OwnedFd>>,
    ) -> io::Result<usize> {
        let bufs = [IoSlice::new(buf)];
        if !self.is_ready(id, Side::Write) {
            return Err(super::address::would_block());
        }
        let is_stream = matches!(self.get(id)?.kind, Kind::UnixStream(_));
        let fds = fds()?;
        for fd in &fds {
            // A simulated socket stays open while it is on its way.
            let cookie = socket2::SockRef::from(fd).cookie();
            if let Some(sent) = cookie.ok().and_then(|cookie| self.find(cookie)) {
                self.give_away(sent, std::os::fd::AsRawFd::as_raw_fd(fd));
            }
        }
        match is_stream {
            true => self.unix_write(dice, id, &bufs, fds),
            false => self.unix_send(id, &bufs, None, fds),
        }
    }

    /// The wait of a write or a send.
    pub fn write_waits_for(&self, id: Id, to: Option<&Address>) -> (Id, Side) {
        match (self.sockets.get(&id).map(|socket| &socket.kind), to) {
            (Some(Kind::UnixDatagram(_)), Some(Address::Unix(to))) => {
                (self.unix_target(id, Some(to)), Side::Inbox)
            }
            (Some(Kind::UnixDatagram(_)), _) => (self.unix_target(id, None), Side::Inbox),
            _ => (id, Side::Write),
        }
    }

    /// Ends one direction of a connection, or both.
    pub fn shut_down(&mut self, dice: &dyn Dice, id: Id, how: Shutdown) -> io::Result<()> {
        match self.get(id)?.kind {
            Kind::Tcp(_) => self.tcp_shutdown(dice, id, how),
            _ => self.unix_shutdown(id, how),
        }
    }

    /// The program has closed the last descriptor of the socket.
    pub(super) fn close(&mut self, dice: &dyn Dice, id: Id) {
        match self.sockets.get(&id).map(|socket| &socket.kind) {
            Some(Kind::Tcp(_)) => self.tcp_close(dice, id),
            Some(Kind::Udp(_)) => drop(self.take(id)),
            Some(_) => self.unix_close(id),
            None => {}
        }
    }
}

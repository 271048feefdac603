//! Several packets of UDP in one system call, for protocols over UDP that are a program's own: QUIC, media, logs.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::slice::Chunks;

use super::addr::{not_internet, to_std};
use super::udp::UdpSocket;
use crate::sys::packets::{self, Outgoing};

/// A packet for [`UdpSocket::send_many`], or several packets of one length to one receiver.
///
/// # Examples
///
/// See [`UdpSocket::send_many`].
#[derive(Clone, Copy, Debug)]
pub struct UdpSend<'a>(Outgoing<'a>);

impl<'a> UdpSend<'a> {
    /// A packet to an address.
    pub fn new(packet: &'a [u8], to: SocketAddr) -> UdpSend<'a> {
        UdpSend(Outgoing {
            bytes: packet,
            to: Some(to),
            segment_len: 0,
        })
    }

    /// A packet to the peer set by [`UdpSocket::connect`].
    pub fn to_peer(packet: &'a [u8]) -> UdpSend<'a> {
        UdpSend(Outgoing {
            bytes: packet,
            to: None,
            segment_len: 0,
        })
    }

    /// Makes packets of `len` bytes each of the bytes; the last one may be shorter. The kernel cuts them
    /// (`UDP_SEGMENT`), which costs much less than as many packets. 0 stands for one packet.
    ///
    /// The kernel takes 64 packets and 65,507 bytes in all, and no packet that is longer than the route's MTU.
    #[must_use]
    pub fn segments(mut self, len: u16) -> UdpSend<'a> {
        self.0.segment_len = len;
        self
    }

    /// The packets, one by one.
    fn packets(&self) -> impl Iterator<Item = &'a [u8]> {
        let Outgoing {
            bytes, segment_len, ..
        } = self.0;
        packets_of(bytes, usize::from(segment_len)).chain(bytes.is_empty().then_some(bytes))
    }
}

/// A buffer for [`UdpSocket::recv_many`], and the packet that it has received, or several packets of one sender.
///
/// # Examples
///
/// See [`UdpSocket::recv_many`].
#[derive(Debug)]
pub struct UdpRecv<'a> {
    buf: &'a mut [u8],
    len: usize,
    from: Option<SocketAddr>,
    segment_len: Option<usize>,
}

impl<'a> UdpRecv<'a> {
    /// A buffer without a packet. Bytes of a packet that do not fit into it are discarded.
    pub fn new(buf: &'a mut [u8]) -> UdpRecv<'a> {
        UdpRecv {
            buf,
            len: 0,
            from: None,
            segment_len: None,
        }
    }

    /// The bytes received last: of one packet, or of several, one after another.
    pub fn bytes(&self) -> &[u8] {
        &self.buf[..self.len]
    }

    /// The sender. `None` if nothing has been received into the buffer.
    pub fn from(&self) -> Option<SocketAddr> {
        self.from
    }

    /// The length of each packet but the last one, which may be shorter. `None` if the bytes are one packet, as
    /// always without [`UdpSocket::set_gro`].
    pub fn segment_len(&self) -> Option<usize> {
        self.segment_len
    }

    /// The packets, one by one; no empty ones.
    pub fn packets(&self) -> Chunks<'_, u8> {
        packets_of(self.bytes(), self.segment_len.unwrap_or(0))
    }
}

/// Packets of `segment_len` bytes each, or one if that is 0.
fn packets_of(bytes: &[u8], segment_len: usize) -> Chunks<'_, u8> {
    match segment_len {
        0 => bytes.chunks(bytes.len().max(1)),
        len => bytes.chunks(len),
    }
}

impl UdpSocket {
    /// Receives the packets that are there, into the first of these buffers; waits for the first packet only.
    /// Returns the number of buffers used, at least 1 and at most 32 (`recvmmsg(2)`). Without a buffer it returns 0
    /// at once.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until a packet arrives; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// As [`UdpSocket::recv_from`]. An error that came after a packet is reported by the next call.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{UdpRecv, UdpSend, UdpSocket};
    ///
    /// let (server, client) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// let to = server.local_addr()?;
    /// let n = client.send_many(&[UdpSend::new(b"one", to), UdpSend::new(b"two", to)])?;
    /// assert_eq!(n, 2);
    ///
    /// let mut room = [[0; 1500]; 8];
    /// let mut bufs: Vec<_> = room.iter_mut().map(|buf| UdpRecv::new(buf)).collect();
    /// let n = server.recv_many(&mut bufs)?;
    /// assert_eq!(bufs[0].bytes(), b"one");
    /// assert_eq!(bufs[n - 1].from(), Some(client.local_addr()?));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv_many(&self, bufs: &mut [UdpRecv<'_>]) -> io::Result<usize> {
        if bufs.is_empty() {
            return Ok(0);
        }
        if self.0.sim_socket().is_some() {
            return self.recv_one_by_one(bufs);
        }
        let room = bufs.len().min(packets::MAX_MESSAGES);
        let mut got = [None; packets::MAX_MESSAGES];
        let n = self.0.recv_many(room, || {
            let each = bufs.iter_mut().map(|one| &mut *one.buf);
            packets::recv_now(self.0.as_fd(), each, |i, one| got[i] = Some(one))
        })?;
        for (one, got) in bufs.iter_mut().zip(got.into_iter().flatten()) {
            (one.len, one.from, one.segment_len) = (got.len, got.from, got.segment_len);
        }
        match bufs[..n].iter().any(|one| one.from.is_none()) {
            true => Err(not_internet()),
            false => Ok(n),
        }
    }

    /// Receives packets in a simulation, whose network hands out one at a time.
    fn recv_one_by_one(&self, bufs: &mut [UdpRecv<'_>]) -> io::Result<usize> {
        for (n, one) in bufs.iter_mut().enumerate() {
            let got = match n {
                0 => self.0.recv_from(one.buf, 0),
                _ => self.0.recv_from_now(one.buf),
            };
            match got.and_then(|(len, from)| Ok((len, to_std(&from)?))) {
                Ok((len, from)) => (one.len, one.from) = (len, Some(from)),
                Err(e) if n == 0 => return Err(e),
                Err(_) => return Ok(n),
            }
        }
        Ok(bufs.len())
    }

    /// Sends these packets in order, as many as fit into the send buffer, at most 32 (`sendmmsg(2)`). Waits only if
    /// there is no room for the first. Returns the number that were sent, at least 1; of an empty slice, 0 at once.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine while the send buffer is full; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// Those of the first packet, as [`UdpSocket::send_to`]. An error of a later one ends the call, which returns
    /// the number sent before; the call for the rest reports it. With [`UdpSend::segments`] also `EINVAL`,
    /// `EMSGSIZE`, and `EIO` if the device cannot: then send the packets one by one.
    ///
    /// # Examples
    ///
    /// Sending all, in packets of 1200 bytes that the kernel cuts:
    ///
    /// ```
    /// use windlass::net::{UdpRecv, UdpSend, UdpSocket};
    ///
    /// let (server, client) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// client.connect(server.local_addr()?)?;
    /// let data = [7; 3000];
    /// let packets = [UdpSend::to_peer(&data).segments(1200), UdpSend::to_peer(b"end")];
    /// let mut rest = &packets[..];
    /// while !rest.is_empty() {
    ///     rest = &rest[client.send_many(rest)?..];
    /// }
    /// let mut buf = [0; 1500];
    /// for len in [1200, 1200, 600, 3] {
    ///     assert_eq!(server.recv_from(&mut buf)?.0, len);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_many(&self, packets: &[UdpSend<'_>]) -> io::Result<usize> {
        if packets.is_empty() {
            return Ok(0);
        }
        if self.0.sim_socket().is_some() {
            return self.send_one_by_one(packets);
        }
        let each = || packets.iter().map(|packet| packet.0);
        self.0
            .send_many(|| packets::send_now(self.0.as_fd(), each()))
    }

    /// Sends packets in a simulation, whose network takes one at a time.
    fn send_one_by_one(&self, packets: &[UdpSend<'_>]) -> io::Result<usize> {
        for (n, packet) in packets.iter().enumerate() {
            let sent = packet.packets().try_for_each(|bytes| match packet.0.to {
                Some(to) => self.send_to(bytes, to).map(drop),
                None => self.send(bytes).map(drop),
            });
            match sent {
                Ok(()) => {}
                Err(e) if n == 0 => return Err(e),
                Err(_) => return Ok(n),
            }
        }
        Ok(packets.len())
    }

    /// Sets whether the kernel may join packets of one sender that are of one length (`UDP_GRO`). Then
    /// [`UdpSocket::recv_many`] receives several packets into one buffer, which must have room for 65,535 bytes, and
    /// [`UdpRecv::packets`] parts them. Other receives do not say where packets end, so do not mix them.
    ///
    /// In a simulation the kernel joins none.
    ///
    /// # Errors
    ///
    /// The errors of `setsockopt(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{UdpRecv, UdpSend, UdpSocket};
    ///
    /// let (server, client) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// server.set_gro(true)?;
    /// let to = server.local_addr()?;
    /// client.send_many(&[UdpSend::new(&[7; 3000], to).segments(1200)])?;
    /// let mut buf = vec![0; 65_535];
    /// let mut lens = Vec::new();
    /// while lens.len() < 3 {
    ///     let mut bufs = [UdpRecv::new(&mut buf)];
    ///     server.recv_many(&mut bufs)?;
    ///     lens.extend(bufs[0].packets().map(<[u8]>::len));
    /// }
    /// assert_eq!(lens, [1200, 1200, 600]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_gro(&self, on: bool) -> io::Result<()> {
        packets::set_gro(self.0.as_fd(), on)
    }
}

//! The state of simulated sockets and pipe ends.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{OwnedFd, RawFd};

use super::address::{Id, Name, would_block};

/// The number of a goroutine's wait for a socket.
pub type Ticket = u64;

/// The wait of a goroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A read, a receive or an accept need not wait.
    Read,
    /// A write or a send need not wait, or the connect has ended.
    Write,
    /// The Unix datagram socket has room for another packet.
    Inbox,
}

/// A socket, or an end of a pipe.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) host: u32,
    /// A duplicate of the program's descriptor, which has the options. A connection that was not
    /// yet accepted has none.
    pub(super) placeholder: Option<OwnedFd>,
    /// The kernel's name for the descriptor's file.
    pub(super) cookie: u64,
    /// The goroutine that got the descriptor, and at which step.
    pub(super) opened: (u64, u64),
    /// The number of values of windlass that stand for it.
    pub(super) n_handles: u32,
    /// Descriptors of the program that windlass does not watch: given to `std`, or sent.
    pub(super) given_away: Vec<RawFd>,
    /// Goroutines that wait, by [`Side`].
    pub(super) readers: Vec<Ticket>,
    pub(super) writers: Vec<Ticket>,
    pub(super) senders: Vec<Ticket>,
    /// An error that the next call reports.
    pub(super) error: Option<i32>,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Tcp(Tcp),
    Udp(Udp),
    UnixStream(UnixStream),
    UnixDatagram(UnixDatagram),
    Pipe(Pipe),
}

impl Socket {
    pub(super) fn new(host: u32, kind: Kind) -> Socket {
        Socket {
            host,
            placeholder: None,
            cookie: 0,
            opened: (0, 0),
            n_handles: 0,
            given_away: Vec::new(),
            readers: Vec::new(),
            writers: Vec::new(),
            senders: Vec::new(),
            error: None,
            kind,
        }
    }

    pub(super) fn waiters(&mut self, side: Side) -> &mut Vec<Ticket> {
        match side {
            Side::Read => &mut self.readers,
            Side::Write => &mut self.writers,
            Side::Inbox => &mut self.senders,
        }
    }
}

/// How many bytes a TCP connection holds in one direction: those in the network, and those that
/// were not read.
pub(super) const TCP_ROOM: usize = 128 * 1024;
/// As above, of a Unix stream, and of a pipe.
pub(super) const UNIX_ROOM: usize = 160 * 1024;
pub(super) const PIPE_ROOM: usize = 64 * 1024;
/// A write of so many bytes or fewer to a pipe is not split.
pub(super) const PIPE_ATOMIC: usize = 4096;
/// The number of bytes of datagrams that a UDP socket holds, each with what the kernel adds to it.
pub(super) const UDP_ROOM: usize = 208 * 1024;
pub(super) const UDP_EXTRA: usize = 512;
/// The number of packets in a Unix datagram socket from which on senders wait.
pub(super) const UNIX_PACKETS: usize = 10;

/// The state of a TCP socket.
#[derive(Debug)]
pub(super) enum State {
    /// New, bound, or a listener that was shut down.
    Closed,
    Listening {
        backlog: usize,
        /// Connections that wait to be accepted.
        queue: VecDeque<Id>,
    },
    /// A first packet was sent so many times.
    Connecting {
        n_tries: u32,
    },
    Connected,
    /// It was connected, and was reset or given up.
    Reset,
}

/// A part of a stream on its way to the peer.
#[derive(Debug)]
pub(super) enum Segment {
    Data(Vec<u8>),
    Fin,
    Reset,
}

#[derive(Debug)]
pub(super) struct Tcp {
    pub(super) is_v6: bool,
    /// Addresses of IPv4 stand here as such, also on a socket of IPv6.
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) state: State,
    /// The other end of the connection, and its host. The end may be gone; 0 before there is one.
    pub(super) remote: Id,
    pub(super) remote_host: u32,
    /// Received, and not read.
    pub(super) inbox: VecDeque<u8>,
    pub(super) got_fin: bool,
    pub(super) shut_read: bool,
    pub(super) shut_write: bool,
    /// The peer has got the end of this direction.
    pub(super) fin_arrived: bool,
    /// The program has closed it, and it still sends.
    pub(super) is_orphan: bool,
    /// Sent, and not yet arrived.
    pub(super) outbox: VecDeque<Segment>,
    /// How many bytes a write may still add.
    pub(super) room: usize,
    /// Arrivals of an earlier epoch are void: something was lost before them.
    pub(super) epoch: u32,
    /// Something was lost, and is not sent again yet.
    pub(super) is_stalled: bool,
    /// Since when something is sent in vain, and how often.
    pub(super) stalled_ns: Option<u64>,
    pub(super) n_tries: u32,
    /// When something last came from the peer.
    pub(super) heard_ns: u64,
    /// When the last segment arrives. Later ones do not overtake it.
    pub(super) last_arrival_ns: u64,
    /// The listener whose queue it is to enter, once the client has confirmed the connection.
    pub(super) listener: Id,
}

impl Tcp {
    pub(super) fn new(is_v6: bool) -> Tcp {
        Tcp {
            is_v6,
            local: None,
            peer: None,
            state: State::Closed,
            remote: 0,
            remote_host: 0,
            inbox: VecDeque::new(),
            got_fin: false,
            shut_read: false,
            shut_write: false,
            fin_arrived: false,
            is_orphan: false,
            outbox: VecDeque::new(),
            room: TCP_ROOM,
            epoch: 0,
            is_stalled: false,
            stalled_ns: None,
            n_tries: 0,
            heard_ns: 0,
            last_arrival_ns: 0,
            listener: 0,
        }
    }

    /// Whether both directions are connected, or at least one still is.
    pub(super) fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected) && !(self.got_fin && self.fin_arrived)
    }
}

#[derive(Debug)]
pub(super) struct Udp {
    pub(super) is_v6: bool,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) inbox: VecDeque<(SocketAddr, Vec<u8>)>,
    pub(super) n_bytes: usize,
    /// The multicast groups that it has joined.
    pub(super) groups: Vec<IpAddr>,
}

/// Bytes of one write to a Unix stream, and the descriptors that go with the first of them.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) bytes: VecDeque<u8>,
    pub(super) fds: Vec<OwnedFd>,
}

#[derive(Debug)]
pub(super) struct UnixStream {
    pub(super) name: Name,
    pub(super) peer_name: Name,
    pub(super) state: UnixState,
    pub(super) inbox: VecDeque<Chunk>,
    pub(super) n_bytes: usize,
    pub(super) shut_read: bool,
    pub(super) shut_write: bool,
}

#[derive(Debug)]
pub(super) enum UnixState {
    Closed,
    Listening {
        backlog: usize,
        queue: VecDeque<Id>,
    },
    /// The other end may be gone.
    Connected(Id),
}

/// A packet of a Unix datagram socket, and the name of its sender.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) from: Name,
    pub(super) bytes: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
}

#[derive(Debug, Default)]
pub(super) struct UnixDatagram {
    pub(super) name: Name,
    pub(super) peer: Option<(Id, Name)>,
    pub(super) inbox: VecDeque<Packet>,
    pub(super) shut_read: bool,
    pub(super) shut_write: bool,
}

#[derive(Debug)]
pub(super) enum Pipe {
    /// Has the bytes.
    Reader {
        writer: Id,
        bytes: VecDeque<u8>,
    },
    Writer {
        reader: Id,
    },
}

/// Copies the bytes of several buffers, at most `most`.
pub(super) fn gather(bufs: &[IoSlice<'_>], most: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(most);
    for buf in bufs {
        let n = buf.len().min(most - bytes.len());
        bytes.extend_from_slice(&buf[..n]);
    }
    bytes
}

/// How many buffers the kernel looks at.
const MOST_BUFS: usize = 1024;

/// The bytes of several buffers. There may be none, though a buffer behind those that the kernel looks at has some.
pub(super) fn len_of(bufs: &[IoSlice<'_>]) -> usize {
    bufs.iter()
        .take(MOST_BUFS)
        .fold(0, |len, buf| len.saturating_add(buf.len()))
}

/// How many of their bytes a stream takes that has room for so many. An error if it has none: a write of nothing needs none.
pub(super) fn fitting(bufs: &[IoSlice<'_>], room: usize) -> io::Result<usize> {
    match len_of(bufs) {
        1.. if room == 0 => Err(would_block()),
        len => Ok(len.min(room)),
    }
}

pub(super) fn room_of(bufs: &[IoSliceMut<'_>]) -> usize {
    bufs.iter()
        .take(MOST_BUFS)
        .fold(0, |len, buf| len.saturating_add(buf.len()))
}

/// Copies bytes into several buffers, as far as they go. Returns how many.
pub(super) fn scatter(bytes: impl Iterator<Item = u8>, bufs: &mut [IoSliceMut<'_>]) -> usize {
    let places = bufs.iter_mut().flat_map(|buf| buf.iter_mut());
    places.zip(bytes).map(|(place, byte)| *place = byte).count()
}

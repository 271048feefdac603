//! The endpoint, its connections, and the goroutine that receives for them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use quinn_proto as proto;
use quinn_proto::crypto::rustls::HandshakeData;
use quinn_proto::{
    ClientConfig, ConnectionError, ConnectionHandle, DatagramEvent, Dir, EndpointConfig, Event,
    ServerConfig, StreamId, Transmit, VarInt,
};
use windlass::net::{UdpRecv, UdpSend, UdpSocket};
use windlass::sync::{Condvar, Mutex, MutexGuard};
use windlass::time::Instant;

use super::streams::{RecvStream, SendStream};

/// The most messages of one receive, and the length of each: packets that the kernel has joined.
const MESSAGES: usize = 8;
const MESSAGE_BYTES: usize = 65_535;

/// The most packets that a message sends: the kernel cuts them.
const SEGMENTS: usize = 10;

/// The most messages of one send.
const SENDS: usize = 32;

/// A UDP socket with QUIC on it. The last handle closes all connections.
#[derive(Debug)]
pub(crate) struct Endpoint(Arc<Shared>);

/// A connection. The last handle to it or to its streams closes it.
#[derive(Clone, Debug)]
pub(crate) struct Connection(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    shared: Arc<Shared>,
    id: Id,
    /// Something has happened to the connection.
    changed: Arc<Condvar>,
}

#[derive(Debug)]
struct Shared {
    socket: UdpSocket,
    state: Mutex<State>,
    /// A connection was established, or the endpoint was closed.
    accepted: Condvar,
}

/// The number of a connection. The protocol's own number is used again once a connection is drained.
type Id = u64;

struct State {
    proto: proto::Endpoint,
    connections: BTreeMap<Id, Slot>,
    next_id: Id,
    /// Those that are not drained.
    ids: BTreeMap<ConnectionHandle, Id>,
    /// When each wants to be looked at.
    timers: BTreeSet<(std::time::Instant, Id)>,
    /// Connections of clients that nobody has taken.
    accepted: VecDeque<Id>,
    is_closed: bool,
    /// The most packets of a message: one where the device does not cut them.
    segments: usize,
}

/// What an endpoint has of a connection, until the peer and all handles have forgotten it.
struct Slot {
    proto: proto::Connection,
    handle: ConnectionHandle,
    changed: Arc<Condvar>,
    /// Futures that wait for a change.
    wakers: Vec<Waker>,
    is_connected: bool,
    lost: Option<ConnectionError>,
    timer: Option<std::time::Instant>,
    /// Nobody has a handle to it.
    is_orphan: bool,
    /// The protocol has forgotten it.
    is_drained: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl Endpoint {
    /// An endpoint on this socket; a server if it has a `config`. The numbers of connections and packets are drawn
    /// from the seed, if there is one.
    ///
    /// # Errors
    ///
    /// The socket's.
    pub(crate) fn new(
        socket: UdpSocket,
        config: Option<ServerConfig>,
        seed: Option<[u8; 32]>,
    ) -> io::Result<Endpoint> {
        // Where the kernel joins no packets they come one by one.
        let _ = socket.set_gro(true);
        let mut settings = EndpointConfig::default();
        settings.rng_seed(seed);
        let proto = proto::Endpoint::new(Arc::new(settings), config.map(Arc::new), false, None);
        let shared = Arc::new(Shared {
            socket,
            state: Mutex::new(State {
                proto,
                connections: BTreeMap::new(),
                next_id: 0,
                ids: BTreeMap::new(),
                timers: BTreeSet::new(),
                accepted: VecDeque::new(),
                is_closed: false,
                segments: SEGMENTS,
            }),
            accepted: Condvar::new(),
        });
        let driven = Arc::clone(&shared);
        drop(windlass::spawn(move || driven.drive()));
        Ok(Endpoint(shared))
    }

    /// The address of the socket.
    ///
    /// # Errors
    ///
    /// The socket's.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.socket.local_addr()
    }

    /// Waits for the next connection of a client. `None` once the endpoint is closed.
    pub(crate) fn accept(&self) -> Option<Connection> {
        let mut state = self.0.lock();
        loop {
            while let Some(id) = state.accepted.pop_front() {
                // It may have ended meanwhile.
                if let Some(slot) = state.connections.get_mut(&id) {
                    slot.is_orphan = false;
                    let changed = Arc::clone(&slot.changed);
                    return Some(self.0.connection(id, changed));
                }
            }
            if state.is_closed {
                return None;
            }
            let waited = self.0.accepted.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Connects to a server, and waits for the end of the handshake.
    ///
    /// # Errors
    ///
    /// The handshake's: the server is not trusted, does not answer, or speaks another protocol.
    pub(crate) fn connect(
        &self,
        to: SocketAddr,
        name: &str,
        config: ClientConfig,
    ) -> io::Result<Connection> {
        let mut state = self.0.lock();
        let (handle, proto) = state
            .proto
            .connect(now(), config, to, name)
            .map_err(io::Error::other)?;
        let id = state.add(handle, proto, false);
        let changed = Arc::clone(&state.slot(id).changed);
        self.0.advance(&mut state, [id]);
        drop(state);
        let connection = self.0.connection(id, changed);
        connection
            .0
            .wait_for(|_, is_connected| is_connected.then_some(()))?;
        Ok(connection)
    }

    /// Closes all connections, and ends the calls that wait.
    pub(crate) fn close(&self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        for slot in state.connections.values_mut() {
            slot.close(VarInt::from_u32(0), Bytes::new());
        }
        let all: Vec<_> = state.connections.keys().copied().collect();
        self.0.advance(&mut state, all);
        self.0.accepted.notify_all();
        // Ends the wait of the goroutine that receives.
        self.0.socket.set_read_deadline(Some(Instant::now()));
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.close();
    }
}

impl Connection {
    /// Opens a stream; waits while the peer allows no further one.
    ///
    /// # Errors
    ///
    /// The connection is over.
    pub(crate) fn open(&self) -> io::Result<(SendStream, RecvStream)> {
        let id = self.0.wait_for(|proto, _| proto.streams().open(Dir::Bi))?;
        Ok(self.0.halves(id))
    }

    /// Waits for a stream that the peer opens.
    ///
    /// # Errors
    ///
    /// The connection is over.
    pub(crate) fn accept(&self) -> io::Result<(SendStream, RecvStream)> {
        let id = self
            .0
            .wait_for(|proto, _| proto.streams().accept(Dir::Bi))?;
        Ok(self.0.halves(id))
    }

    /// The protocol that both sides speak.
    pub(crate) fn protocol(&self) -> Option<Vec<u8>> {
        let data = self
            .0
            .with(|proto, _| proto.crypto_session().handshake_data());
        data?.downcast::<HandshakeData>().ok()?.protocol
    }

    /// The number of packets that were lost, as far as the sender knows.
    #[allow(dead_code, reason = "only the tests look")]
    pub(crate) fn lost_packets(&self) -> u64 {
        self.0.with(|proto, _| proto.stats().path.lost_packets)
    }
}

/// The time, in the type of the protocol.
fn now() -> std::time::Instant {
    Instant::now().into()
}

impl Inner {
    /// Calls `f` with the connection, and sends what there is to send then.
    pub(super) fn with<T>(&self, f: impl FnOnce(&mut proto::Connection, bool) -> T) -> T {
        let mut state = self.shared.lock();
        let slot = state.slot(self.id);
        let done = f(&mut slot.proto, slot.is_connected);
        self.shared.advance(&mut state, [self.id]);
        done
    }

    /// Calls `f` until it finds what it waits for.
    ///
    /// # Errors
    ///
    /// The connection is over.
    pub(super) fn wait_for<T>(
        &self,
        mut f: impl FnMut(&mut proto::Connection, bool) -> Option<T>,
    ) -> io::Result<T> {
        let mut state = self.shared.lock();
        loop {
            if let Some(found) = self.look(&mut state, &mut f) {
                return found;
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As [`Inner::wait_for`], for a future.
    pub(super) fn poll_for<T>(
        &self,
        cx: &mut Context<'_>,
        f: impl FnMut(&mut proto::Connection, bool) -> Option<T>,
    ) -> Poll<io::Result<T>> {
        let mut state = self.shared.lock();
        if let Some(found) = self.look(&mut state, f) {
            return Poll::Ready(found);
        }
        let wakers = &mut state.slot(self.id).wakers;
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Calls `f` with the connection. `None` if there is something to wait for.
    fn look<T>(
        &self,
        state: &mut State,
        mut f: impl FnMut(&mut proto::Connection, bool) -> Option<T>,
    ) -> Option<io::Result<T>> {
        let slot = state.slot(self.id);
        // Bytes that came before the end are there still.
        let found = f(&mut slot.proto, slot.is_connected);
        let lost = slot.lost.clone();
        if found.is_some() {
            self.shared.advance(state, [self.id]);
        }
        found.map(Ok).or(lost.map(|lost| Err(lost.into())))
    }

    /// Closes the connection, and ends the calls that wait.
    pub(super) fn close(&self, code: VarInt, reason: Bytes) {
        let mut state = self.shared.lock();
        state.slot(self.id).close(code, reason);
        self.shared.advance(&mut state, [self.id]);
    }

    /// The halves of a stream.
    pub(super) fn halves(self: &Arc<Inner>, id: StreamId) -> (SendStream, RecvStream) {
        let send = SendStream::new(Arc::clone(self), id);
        (send, RecvStream::new(Arc::clone(self), id))
    }
}

impl Slot {
    fn close(&mut self, code: VarInt, reason: Bytes) {
        self.proto.close(now(), code, reason);
        self.lost.get_or_insert(ConnectionError::LocallyClosed);
        self.notify();
    }

    /// Something has happened.
    fn notify(&mut self) {
        self.changed.notify_all();
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let slot = state.slot(self.id);
        slot.is_orphan = true;
        slot.proto.close(now(), VarInt::from_u32(0), Bytes::new());
        self.shared.advance(&mut state, [self.id]);
    }
}

impl State {
    fn slot(&mut self, id: Id) -> &mut Slot {
        let slot = self.connections.get_mut(&id);
        slot.expect("it lives as long as a handle")
    }

    fn add(&mut self, handle: ConnectionHandle, proto: proto::Connection, is_orphan: bool) -> Id {
        let id = self.next_id;
        self.next_id += 1;
        let slot = Slot {
            proto,
            handle,
            changed: Arc::new(Condvar::new()),
            wakers: Vec::new(),
            is_connected: false,
            lost: None,
            timer: None,
            is_orphan,
            is_drained: false,
        };
        self.connections.insert(id, slot);
        self.ids.insert(handle, id);
        id
    }

    /// The connections that want to be looked at by now.
    fn due(&self) -> Vec<Id> {
        let due = self.timers.range(..=(now(), Id::MAX));
        due.map(|(_, id)| *id).collect()
    }

    fn notify_all(&mut self) {
        self.connections.values_mut().for_each(Slot::notify);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connection(self: &Arc<Shared>, id: Id, changed: Arc<Condvar>) -> Connection {
        Connection(Arc::new(Inner {
            shared: Arc::clone(self),
            id,
            changed,
        }))
    }

    /// Receives until the endpoint is closed and all connections are forgotten.
    fn drive(&self) {
        let mut room = vec![0; MESSAGES * MESSAGE_BYTES];
        loop {
            let mut bufs: Vec<_> = room.chunks_mut(MESSAGE_BYTES).map(UdpRecv::new).collect();
            let received = self.socket.recv_many(&mut bufs);
            let mut state = self.lock();
            let mut touched = BTreeSet::new();
            match received {
                Ok(n) => {
                    for message in &bufs[..n] {
                        self.take(&mut state, message, &mut touched);
                    }
                }
                // The time of a timer has come; or an earlier packet reached nobody.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(_) => {
                    state.is_closed = true;
                    self.accepted.notify_all();
                    return state.notify_all();
                }
            }
            touched.extend(state.due());
            self.advance(&mut state, touched);
            if state.is_closed && state.ids.is_empty() {
                return;
            }
        }
    }

    /// Hands the packets of a message to their connections, and notes which.
    fn take(&self, state: &mut State, message: &UdpRecv<'_>, touched: &mut BTreeSet<Id>) {
        let Some(from) = message.from() else { return };
        let mut buf = Vec::new();
        for packet in message.packets() {
            buf.clear();
            let packet = BytesMut::from(packet);
            let event = state
                .proto
                .handle(now(), from, None, None, packet, &mut buf);
            let response = match event {
                Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                    if let Some(&id) = state.ids.get(&handle) {
                        state.slot(id).proto.handle_event(event);
                        touched.insert(id);
                    }
                    None
                }
                Some(DatagramEvent::NewConnection(incoming)) if state.is_closed => {
                    Some(state.proto.refuse(incoming, &mut buf))
                }
                Some(DatagramEvent::NewConnection(incoming)) => {
                    match state.proto.accept(incoming, now(), &mut buf, None) {
                        Ok((handle, proto)) => {
                            touched.insert(state.add(handle, proto, true));
                            None
                        }
                        Err(error) => error.response,
                    }
                }
                Some(DatagramEvent::Response(response)) => Some(response),
                None => None,
            };
            if let Some(response) = response {
                self.send(state, &[(response, 0)], &buf);
            }
        }
    }

    /// Expires timers of these connections, sends what they have to send, wakes those for whom something has
    /// changed, and moves the deadline of the goroutine that receives.
    fn advance(&self, state: &mut State, ids: impl IntoIterator<Item = Id>) {
        let (mut messages, mut buf) = (Vec::new(), Vec::new());
        for id in ids {
            self.advance_one(state, id, &mut messages, &mut buf);
        }
        for some in messages.chunks(SENDS) {
            self.send(state, some, &buf);
        }
        let next = state.timers.first().map(|(at, _)| Instant::from(*at));
        self.socket.set_read_deadline(next);
    }

    /// As [`Shared::advance`], and collects what there is to send.
    fn advance_one(
        &self,
        state: &mut State,
        id: Id,
        messages: &mut Vec<(Transmit, usize)>,
        buf: &mut Vec<u8>,
    ) {
        let now = now();
        let Some(slot) = state.connections.get_mut(&id) else {
            return;
        };
        if slot.proto.poll_timeout().is_some_and(|at| at <= now) {
            slot.proto.handle_timeout(now);
        }
        while let Some(event) = slot.proto.poll_endpoint_events() {
            slot.is_drained |= event.is_drained();
            if let Some(event) = state.proto.handle_event(slot.handle, event) {
                slot.proto.handle_event(event);
            }
        }
        while let Some(event) = slot.proto.poll() {
            match event {
                Event::Connected => {
                    slot.is_connected = true;
                    if slot.proto.side().is_server() {
                        state.accepted.push_back(id);
                        self.accepted.notify_one();
                    }
                }
                Event::ConnectionLost { reason } => slot.lost = Some(reason),
                _ => {}
            }
            slot.notify();
        }
        let mut own = Vec::new();
        while let Some(message) = slot.proto.poll_transmit(now, state.segments, &mut own) {
            messages.push((message, buf.len()));
            buf.append(&mut own);
        }
        if let Some(was) = slot.timer.take() {
            state.timers.remove(&(was, id));
        }
        if slot.is_drained {
            state.ids.remove(&slot.handle);
            if slot.is_orphan {
                state.connections.remove(&id);
            }
        } else {
            slot.timer = slot.proto.poll_timeout();
            state.timers.extend(slot.timer.map(|at| (at, id)));
        }
    }

    /// Sends messages, each of which begins at its place in the buffer. One that cannot be sent is lost, as a packet
    /// may be.
    fn send(&self, state: &mut State, messages: &[(Transmit, usize)], buf: &[u8]) {
        let packets: Vec<_> = messages
            .iter()
            .map(|(message, at)| {
                let bytes = &buf[*at..*at + message.size];
                let segment = message.segment_size.unwrap_or(0);
                UdpSend::new(bytes, message.destination).segments(segment as u16)
            })
            .collect();
        let mut rest = &packets[..];
        while !rest.is_empty() {
            match self.socket.send_many(rest) {
                Ok(n) => rest = &rest[n..],
                Err(e) => {
                    if e.raw_os_error() == Some(libc::EIO) {
                        // The device does not cut packets.
                        state.segments = 1;
                    }
                    rest = &rest[1..];
                }
            }
        }
    }
}

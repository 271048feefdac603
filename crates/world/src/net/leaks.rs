//! Descriptors that are left at the end of a run, in words.

use std::net::SocketAddr;

use super::address::Name;
use super::network::Network;
use super::socket::{Kind, Pipe, Socket, State, UnixState};

impl Network {
    /// A line for each descriptor of a socket or a pipe that is open, in the order in which they were
    /// opened. The list has none of a host that is down.
    pub fn leaks(&self) -> Vec<String> {
        let open = self.sockets.values().filter(|socket| {
            let is_held = socket.n_handles > 0 || !socket.given_away.is_empty();
            socket.placeholder.is_some() && is_held
        });
        open.map(|socket| {
            let (id, step) = socket.opened;
            let host = self.name_of(socket.host);
            let name = describe(socket);
            format!("{name} on host {host}, opened by goroutine {id} at step {step}")
        })
        .collect()
    }
}

fn describe(socket: &Socket) -> String {
    match &socket.kind {
        Kind::Tcp(tcp) => match (&tcp.state, tcp.peer) {
            (State::Listening { .. }, _) => format!("TCP listener at {}", ip(tcp.local)),
            (State::Connected | State::Reset, Some(peer)) => {
                format!("TCP connection from {} to {peer}", ip(tcp.local))
            }
            _ => format!("TCP socket at {}", ip(tcp.local)),
        },
        Kind::Udp(udp) => match udp.peer {
            Some(peer) => format!("UDP socket at {}, connected to {peer}", ip(udp.local)),
            None => format!("UDP socket at {}", ip(udp.local)),
        },
        Kind::UnixStream(unix) => match unix.state {
            UnixState::Listening { .. } => format!("Unix listener {}", name(&unix.name)),
            UnixState::Connected(_) => format!(
                "Unix connection from {} to {}",
                name(&unix.name),
                name(&unix.peer_name)
            ),
            UnixState::Closed => format!("Unix socket {}", name(&unix.name)),
        },
        Kind::UnixDatagram(unix) => format!("Unix datagram socket {}", name(&unix.name)),
        Kind::Pipe(Pipe::Reader { .. }) => "reading end of a pipe".to_owned(),
        Kind::Pipe(Pipe::Writer { .. }) => "writing end of a pipe".to_owned(),
    }
}

fn ip(addr: Option<SocketAddr>) -> String {
    addr.map_or_else(|| "no address".to_owned(), |addr| addr.to_string())
}

fn name(name: &Name) -> String {
    match name.as_slice() {
        [] => "without a name".to_owned(),
        [0, rest @ ..] => format!("@{}", String::from_utf8_lossy(rest)),
        path => String::from_utf8_lossy(path).into_owned(),
    }
}

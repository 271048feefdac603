//! Networking with the names of `std::net` and `std::os::unix::net`: what blocks a
//! thread there parks a goroutine here.
//!
//! On a plain thread the same calls block the thread, and after the runtime has
//! ended they go on to work that way. Calls never give EINTR and never raise
//! SIGPIPE. A read from a stream with an empty buffer returns 0 at once; a receive of
//! a packet with one takes a packet.
//!
//! Options that have no method here can be set through the descriptor, with socket2's
//! `SockRef` for example.

mod addr;
mod macros;
mod tcp;
mod tcp_options;
mod tcp_nodes;
mod udp;
mod unix;
mod unix_datagram;

pub use std::net::{
    AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6,
    ToSocketAddrs,
};
pub use std::os::unix::net::SocketAddr as UnixSocketAddr;

pub use crate::io::accept_stream::AcceptStream;

pub use tcp::{Incoming, TcpListener, TcpStream};
pub use tcp_nodes::NodeListeners;
pub use tcp_options::TcpOptions;
pub use udp::UdpSocket;
pub use unix::{UnixIncoming, UnixListener, UnixStream};
pub use unix_datagram::UnixDatagram;

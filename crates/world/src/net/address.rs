//! Addresses of simulated sockets, and errors by their numbers.

use std::io;
use std::net::{IpAddr, SocketAddr};

/// The number of a socket in its run. No number is given twice, and none is 0.
pub type Id = u64;

/// The kind of a port: TCP and UDP have their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

/// A port of a host.
pub(super) type Port = (u32, Protocol, u16);

/// The name of a Unix socket: a path; or a zero byte and an abstract name; or nothing, if it has
/// none.
pub(crate) type Name = Vec<u8>;

/// The address of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An IP address and a port.
    Ip(SocketAddr),
    /// The name of a Unix socket.
    Unix(Name),
}

/// An error of the kernel's.
pub(super) fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// The call would have to wait.
pub(super) fn would_block() -> io::Error {
    error(libc::EAGAIN)
}

/// The address with an IPv4 address that is mapped into IPv6 turned into itself.
pub(super) fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

/// The address as a socket of its family shows it: one of IPv6 maps addresses of IPv4.
pub(super) fn shown(addr: SocketAddr, is_v6: bool) -> SocketAddr {
    match addr.ip() {
        IpAddr::V4(ip) if is_v6 => SocketAddr::new(ip.to_ipv6_mapped().into(), addr.port()),
        _ => addr,
    }
}

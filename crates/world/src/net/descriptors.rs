//! Addresses and descriptors of the kernel that stand for simulated ones.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};

use super::address::Address;

/// The address that a simulated socket has for one of the kernel.
pub fn to_address(addr: &SockAddr) -> Address {
    if let Some(addr) = addr.as_socket() {
        return Address::Ip(addr);
    }
    if let Some(name) = addr.as_abstract_namespace() {
        return Address::Unix([&[0], name].concat());
    }
    let path = addr.as_pathname();
    Address::Unix(path.map_or(Vec::new(), |path| path.as_os_str().as_bytes().to_vec()))
}

/// The address of the kernel for that of a simulated socket.
pub fn to_sock_addr(addr: &Address) -> io::Result<SockAddr> {
    match addr {
        Address::Ip(addr) => Ok(SockAddr::from(*addr)),
        Address::Unix(name) => SockAddr::unix(Path::new(OsStr::from_bytes(name))),
    }
}

/// A new descriptor for a connection that a listener with the descriptor `of` accepts, with the
/// options that it inherits.
pub fn placeholder_like(of: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let listener = SockRef::from(&of);
    let domain = listener.domain()?;
    let socket = Socket::new(domain, Type::STREAM, None)?;
    if domain != Domain::UNIX {
        socket.set_reuse_address(listener.reuse_address()?)?;
        socket.set_tcp_nodelay(listener.tcp_nodelay()?)?;
        socket.set_tcp_user_timeout(listener.tcp_user_timeout()?)?;
        socket.set_linger(listener.linger()?)?;
        let probes = TcpKeepalive::new()
            .with_time(listener.tcp_keepalive_time()?)
            .with_interval(listener.tcp_keepalive_interval()?)
            .with_retries(listener.tcp_keepalive_retries()?);
        if listener.keepalive()? {
            socket.set_tcp_keepalive(&probes)?;
        }
        // The kernel doubles what is set.
        socket.set_recv_buffer_size(listener.recv_buffer_size()? / 2)?;
        socket.set_send_buffer_size(listener.send_buffer_size()? / 2)?;
        match domain {
            Domain::IPV4 => {
                socket.set_ttl_v4(listener.ttl_v4()?)?;
                socket.set_tos_v4(listener.tos_v4()?)?;
            }
            _ => socket.set_unicast_hops_v6(listener.unicast_hops_v6()?)?,
        }
    }
    Ok(socket.into())
}

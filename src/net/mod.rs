//! Networking with the names of `std::net` and `std::os::unix::net`. A call that blocks the thread
//! there parks the goroutine here.
//!
//! # Blocking
//!
//! Calls that wait (`accept`, `connect`, reading, writing, sending, receiving) park the goroutine.
//! On a thread outside the runtime (a plain thread) they block the thread, also after the runtime
//! has ended. All other calls return an address, or read or set an option: they never wait.
//! A host name is looked up as in [`lookup_host`], on a spare thread.
//!
//! # Errors
//!
//! Errors have the kinds of `std`. A wait that exceeds a timeout or a deadline fails with
//! `WouldBlock`; a wait inside [`Context::run`](crate::context::Context::run) also fails when the
//! context is done. Calls never fail with `EINTR` and never raise `SIGPIPE`.
//!
//! The kernel's errors of bind, listen and connect name the address: `bind 127.0.0.1:80: Permission denied (os error 13)`. Their
//! [`source`](std::error::Error::source) is the error of `std`, which has the `raw_os_error`; they have none themselves.
//!
//! A read from a stream into an empty buffer returns 0 at once. A receive of a packet into an empty
//! buffer takes a packet.
//!
//! # Simulations
//!
//! In a simulation (feature `sim`) all of this works in memory, between simulated hosts:
//! docs/guide/simulation.md. Descriptors are then placeholders, which `std` and libc can convert,
//! duplicate and close, but neither read nor write.
//!
//! # Options without a method
//!
//! Options that have no method here are set through the descriptor, for example with `SockRef` of
//! the crate socket2:
//!
//! ```
//! use socket2::SockRef;
//! use windlass::net::UdpSocket;
//!
//! let socket = UdpSocket::bind("127.0.0.1:0")?;
//! SockRef::from(&socket).set_recv_buffer_size(64 * 1024)?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod addr;
mod connect;
mod accept_stream;
mod shared_options;
mod macros;
mod tcp;
mod tcp_options;
mod tcp_nodes;
mod udp;
mod udp_many;
mod unix;
mod unix_datagram;
mod udp_options;
mod graceful;

pub use std::net::{
    AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6,
    ToSocketAddrs,
};
pub use std::os::unix::net::SocketAddr as UnixSocketAddr;

pub use accept_stream::AcceptStream;
pub use addr::lookup_host;
pub use graceful::{Graceful, Listener, Member, Next, Unfinished};
pub use tcp::{Incoming, TcpListener, TcpStream, TcpStreamExt};
pub use tcp_nodes::NodeListeners;
pub use tcp_options::TcpOptions;
pub use udp::UdpSocket;
pub use udp_many::{UdpRecv, UdpSend};
pub use udp_options::UdpOptions;
pub use unix::{UnixIncoming, UnixListener, UnixStream};
pub use unix_datagram::UnixDatagram;

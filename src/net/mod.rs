//! Networking with the names of `std::net`: what blocks a thread there parks a
//! goroutine here.
//!
//! On a plain thread the same calls block the thread, and after the runtime has
//! ended they go on to work that way. Calls never give EINTR and never raise
//! SIGPIPE. A read with an empty buffer returns 0 at once.

mod tcp;

pub use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs,
};
pub use tcp::{Incoming, TcpListener, TcpStream};

//! The options of TCP sockets that `std` has no names for.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use socket2::{SockAddr, SockRef, TcpKeepalive};

use super::addr;
use super::tcp::{BACKLOG, TcpListener, TcpStream, socket_for};
use crate::io::fd::Fd;
use crate::sys::clock::{NEVER, deadline_ns};
use crate::sys::socket::{fast_open_listener, fast_open_stream};

/// How to make a TCP listener or stream: what is not set stays as the kernel has it.
///
/// Accepted connections inherit the options of their listener, but for the backlog and
/// those that concern the port.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use windlass::net::TcpOptions;
///
/// let listener = TcpOptions::new()
///     .backlog(64)
///     .nodelay(true)
///     .keepalive(Duration::from_secs(60))
///     .listen("127.0.0.1:0")?;
/// # drop(listener);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing until they listen or connect"]
pub struct TcpOptions {
    backlog: Option<u32>,
    reuse_port: bool,
    only_v6: Option<bool>,
    fast_open: Option<u32>,
    nodelay: Option<bool>,
    keepalive: Option<TcpKeepalive>,
    recv_buffer_bytes: Option<usize>,
    send_buffer_bytes: Option<usize>,
    linger: Option<Duration>,
    user_timeout: Option<Duration>,
}

impl TcpOptions {
    /// Nothing set.
    pub fn new() -> TcpOptions {
        TcpOptions::default()
    }

    /// How many connections the kernel holds for a listener until they are accepted; it
    /// lowers this to `net.core.somaxconn`. 4096 if not set.
    pub fn backlog(&mut self, n: u32) -> &mut TcpOptions {
        self.backlog = Some(n);
        self
    }

    /// Lets several listeners share a port: the kernel spreads connections over them
    /// (`SO_REUSEPORT`).
    pub fn reuse_port(&mut self, reuse: bool) -> &mut TcpOptions {
        self.reuse_port = reuse;
        self
    }

    /// Whether an IPv6 listener leaves IPv4 alone (`IPV6_V6ONLY`).
    pub fn only_v6(&mut self, only: bool) -> &mut TcpOptions {
        self.only_v6 = Some(only);
        self
    }

    /// Allows data in the first packet (`TCP_FASTOPEN`): a listener holds so many
    /// connections that have begun with it; a stream sends its first write along, if the
    /// server gave a cookie before, and reports a refused connection only then.
    pub fn fast_open(&mut self, n: u32) -> &mut TcpOptions {
        self.fast_open = Some(n);
        self
    }

    /// Turns Nagle's algorithm off (`true`) or on.
    pub fn nodelay(&mut self, nodelay: bool) -> &mut TcpOptions {
        self.nodelay = Some(nodelay);
        self
    }

    fn keep(&mut self, f: impl FnOnce(TcpKeepalive) -> TcpKeepalive) -> &mut TcpOptions {
        self.keepalive = Some(f(self.keepalive.take().unwrap_or_else(TcpKeepalive::new)));
        self
    }

    /// Asks a silent peer whether it is there, for the first time after `idle`.
    pub fn keepalive(&mut self, idle: Duration) -> &mut TcpOptions {
        self.keep(|k| k.with_time(idle))
    }

    /// The time between two such questions.
    pub fn keepalive_interval(&mut self, interval: Duration) -> &mut TcpOptions {
        self.keep(|k| k.with_interval(interval))
    }

    /// After how many unanswered questions the connection is lost.
    pub fn keepalive_retries(&mut self, n: u32) -> &mut TcpOptions {
        self.keep(|k| k.with_retries(n))
    }

    /// The size of the receive buffer; the kernel doubles it and bounds it by
    /// `net.core.rmem_max`.
    pub fn recv_buffer_size(&mut self, bytes: usize) -> &mut TcpOptions {
        self.recv_buffer_bytes = Some(bytes);
        self
    }

    /// The size of the send buffer; the kernel doubles it and bounds it by
    /// `net.core.wmem_max`.
    pub fn send_buffer_size(&mut self, bytes: usize) -> &mut TcpOptions {
        self.send_buffer_bytes = Some(bytes);
        self
    }

    /// How long the kernel goes on sending after the last handle is dropped
    /// (`SO_LINGER`): dropping blocks the thread so long, and what is left is thrown
    /// away. Zero resets the connection at once.
    pub fn linger(&mut self, time: Duration) -> &mut TcpOptions {
        self.linger = Some(time);
        self
    }

    /// After what time without an acknowledgement of sent data the connection is lost.
    pub fn user_timeout(&mut self, time: Duration) -> &mut TcpOptions {
        self.user_timeout = Some(time);
        self
    }

    /// Listens on an address, as [`TcpListener::bind`].
    ///
    /// # Blocking
    ///
    /// As [`TcpListener::bind`].
    ///
    /// # Errors
    ///
    /// As [`TcpListener::bind`]; the kernel's, for an option it does not take.
    pub fn listen(&self, addr: impl ToSocketAddrs) -> io::Result<TcpListener> {
        addr::each(addr, |addr| self.listen_on(addr, self.reuse_port))
    }

    /// Makes `n` listeners that share a port (`SO_REUSEPORT`): with a goroutine to accept
    /// from each the kernel spreads connections over them, and they do not contend for one
    /// queue. A connection stays with its listener's queue: one that is not accepted from
    /// keeps those it was given.
    ///
    /// # Blocking
    ///
    /// As [`TcpListener::bind`].
    ///
    /// # Errors
    ///
    /// As [`TcpOptions::listen`]; `InvalidInput` for none.
    pub fn listen_group(&self, addr: impl ToSocketAddrs, n: usize) -> io::Result<Vec<TcpListener>> {
        if n == 0 {
            return Err(addr::invalid("a group of no listeners"));
        }
        addr::each(addr, |addr| {
            let first = self.listen_on(addr, true)?;
            // Port 0 has become a number.
            let addr = first.local_addr()?;
            let mut all = vec![first];
            for _ in 1..n {
                all.push(self.listen_on(&addr, true)?);
            }
            Ok(all)
        })
    }

    fn listen_on(&self, addr: &SocketAddr, reuse_port: bool) -> io::Result<TcpListener> {
        let socket = socket_for(addr)?;
        socket.set_reuse_address(true)?;
        if reuse_port {
            socket.set_reuse_port(true)?;
        }
        if let (Some(only), SocketAddr::V6(_)) = (self.only_v6, addr) {
            socket.set_only_v6(only)?;
        }
        // Before the connection, so that the window can be scaled.
        self.apply_to(&SockRef::from(&socket))?;
        socket.bind(&SockAddr::from(*addr))?;
        if let Some(n) = self.fast_open {
            fast_open_listener(socket.as_fd(), n)?;
        }
        let backlog = self
            .backlog
            .map_or(BACKLOG, |n| i32::try_from(n).unwrap_or(i32::MAX));
        socket.listen(backlog)?;
        Ok(TcpListener(Fd::from(OwnedFd::from(socket))))
    }

    /// Connects to an address, as [`TcpStream::connect`].
    ///
    /// # Blocking
    ///
    /// As [`TcpStream::connect`].
    ///
    /// # Errors
    ///
    /// As [`TcpStream::connect`]; the kernel's, for an option it does not take.
    pub fn connect(&self, addr: impl ToSocketAddrs) -> io::Result<TcpStream> {
        addr::each(addr, |addr| self.connect_until(addr, NEVER))
    }

    /// Connects to one address within a time, as [`TcpStream::connect_timeout`].
    ///
    /// # Blocking
    ///
    /// As [`TcpStream::connect`].
    ///
    /// # Errors
    ///
    /// As [`TcpStream::connect_timeout`]; the kernel's, for an option it does not take.
    pub fn connect_timeout(&self, addr: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        if timeout.is_zero() {
            return Err(addr::invalid("cannot connect with a timeout of zero"));
        }
        self.connect_until(addr, deadline_ns(timeout))
    }

    fn connect_until(&self, addr: &SocketAddr, deadline: u64) -> io::Result<TcpStream> {
        let socket = socket_for(addr)?;
        self.apply_to(&SockRef::from(&socket))?;
        if self.fast_open.is_some_and(|n| n > 0) {
            fast_open_stream(socket.as_fd())?;
        }
        let fd = Fd::from(OwnedFd::from(socket));
        fd.connect(&SockAddr::from(*addr), deadline)?;
        Ok(TcpStream(fd))
    }

    /// Sets what was chosen on a stream that is there already; what concerns listening
    /// and connecting is left out.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn apply(&self, stream: &TcpStream) -> io::Result<()> {
        self.apply_to(&SockRef::from(stream))
    }

    fn apply_to(&self, socket: &SockRef<'_>) -> io::Result<()> {
        if let Some(nodelay) = self.nodelay {
            socket.set_tcp_nodelay(nodelay)?;
        }
        if let Some(keepalive) = &self.keepalive {
            socket.set_tcp_keepalive(keepalive)?;
        }
        if let Some(bytes) = self.recv_buffer_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(bytes) = self.send_buffer_bytes {
            socket.set_send_buffer_size(bytes)?;
        }
        if let Some(time) = self.linger {
            socket.set_linger(Some(time))?;
        }
        if let Some(time) = self.user_timeout {
            socket.set_tcp_user_timeout(Some(time))?;
        }
        Ok(())
    }
}

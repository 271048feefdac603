//! Options of TCP sockets that `std` has no methods for.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use socket2::{SockAddr, SockRef, TcpKeepalive};

use super::addr;
use super::shared_options::SharedOptions;
use super::tcp::{BACKLOG, TcpListener, TcpStream, socket_for};
use crate::poll::fd::Fd;
use crate::sys::clock::{NEVER, deadline_ns};
use crate::sys::socket::{fast_open_listener, fast_open_stream};

/// Options for a TCP listener or stream that is to be made. An option that is not set keeps the
/// kernel's default.
///
/// Accepted connections inherit the options of their listener, except the backlog and the options
/// that concern the port.
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
///
/// All options of a stream:
///
/// ```
/// use std::time::Duration;
/// use windlass::net::{TcpListener, TcpOptions};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let stream = TcpOptions::new()
///     .nodelay(true)
///     .keepalive(Duration::from_secs(60))
///     .keepalive_interval(Duration::from_secs(10))
///     .keepalive_retries(3)
///     .recv_buffer_size(256 * 1024)
///     .send_buffer_size(256 * 1024)
///     .linger(Duration::from_secs(1))
///     .user_timeout(Duration::from_secs(30))
///     .connect(listener.local_addr()?)?;
/// assert!(stream.nodelay()?);
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
    linger: Option<Duration>,
    user_timeout: Option<Duration>,
    local: Option<SocketAddr>,
    shared: SharedOptions,
}

impl TcpOptions {
    /// Returns options of which none is set.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::TcpOptions;
    ///
    /// let listener = TcpOptions::new().listen("127.0.0.1:0")?;
    /// # drop(listener);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> TcpOptions {
        TcpOptions::default()
    }

    /// Sets the length of the listener's queue of connections that are not accepted yet.
    ///
    /// The kernel lowers it to `net.core.somaxconn`. The default is 4096.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::TcpOptions;
    ///
    /// let listener = TcpOptions::new().backlog(64).listen("127.0.0.1:0")?;
    /// # drop(listener);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn backlog(&mut self, n: u32) -> &mut TcpOptions {
        self.backlog = Some(n);
        self
    }

    /// Lets several listeners share a port (`SO_REUSEPORT`). The kernel distributes connections
    /// over them.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::TcpOptions;
    ///
    /// let mut options = TcpOptions::new();
    /// options.reuse_port(true);
    /// let first = options.listen("127.0.0.1:0")?;
    /// let second = options.listen(first.local_addr()?)?;
    /// assert_eq!(first.local_addr()?, second.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn reuse_port(&mut self, reuse: bool) -> &mut TcpOptions {
        self.reuse_port = reuse;
        self
    }

    /// Sets whether an IPv6 listener refuses IPv4 connections (`IPV6_V6ONLY`). It has no effect on
    /// an IPv4 listener.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use windlass::net::TcpOptions;
    ///
    /// // Accepts connections over IPv6 and over IPv4.
    /// let listener = TcpOptions::new().only_v6(false).listen("[::]:8080")?;
    /// # drop(listener);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn only_v6(&mut self, only: bool) -> &mut TcpOptions {
        self.only_v6 = Some(only);
        self
    }

    /// Allows data in the first packet of a connection (`TCP_FASTOPEN`).
    ///
    /// For a listener, `n` is the greatest number of connections that began with data and are not
    /// established yet. For a stream, any `n` above 0 turns it on: `connect` returns at once, and
    /// the first write is sent with the first packet if the server gave a cookie before. That write
    /// reports a refused connection.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use windlass::net::TcpOptions;
    ///
    /// let listener = TcpOptions::new().fast_open(128).listen("127.0.0.1:0")?;
    /// let mut client = TcpOptions::new().fast_open(1).connect(listener.local_addr()?)?;
    /// client.write_all(b"first")?;
    /// let (mut server, _) = listener.accept()?;
    /// let mut buf = [0; 5];
    /// server.read_exact(&mut buf)?;
    /// assert_eq!(&buf, b"first");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fast_open(&mut self, n: u32) -> &mut TcpOptions {
        self.fast_open = Some(n);
        self
    }

    /// Sets `TCP_NODELAY`: `true` turns Nagle's algorithm off.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{TcpListener, TcpOptions};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpOptions::new().nodelay(true).connect(listener.local_addr()?)?;
    /// assert!(stream.nodelay()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn nodelay(&mut self, nodelay: bool) -> &mut TcpOptions {
        self.nodelay = Some(nodelay);
        self
    }

    fn keep(&mut self, f: impl FnOnce(TcpKeepalive) -> TcpKeepalive) -> &mut TcpOptions {
        self.keepalive = Some(f(self.keepalive.take().unwrap_or_else(TcpKeepalive::new)));
        self
    }

    /// Turns keepalive probes on, and sends the first one after the connection has been idle for
    /// `idle` (`TCP_KEEPIDLE`, in whole seconds).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::net::TcpOptions;
    ///
    /// // A dead peer is noticed after 60 s + 3 * 10 s.
    /// let listener = TcpOptions::new()
    ///     .keepalive(Duration::from_secs(60))
    ///     .keepalive_interval(Duration::from_secs(10))
    ///     .keepalive_retries(3)
    ///     .listen("127.0.0.1:0")?;
    /// # drop(listener);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn keepalive(&mut self, idle: Duration) -> &mut TcpOptions {
        self.keep(|k| k.with_time(idle))
    }

    /// Turns keepalive probes on, and sets the time between two of them (`TCP_KEEPINTVL`, in whole
    /// seconds). For an example see [`TcpOptions::keepalive`].
    pub fn keepalive_interval(&mut self, interval: Duration) -> &mut TcpOptions {
        self.keep(|k| k.with_interval(interval))
    }

    /// Turns keepalive probes on, and closes the connection after `n` of them without an answer
    /// (`TCP_KEEPCNT`). For an example see [`TcpOptions::keepalive`].
    pub fn keepalive_retries(&mut self, n: u32) -> &mut TcpOptions {
        self.keep(|k| k.with_retries(n))
    }

    /// Sets the size of the receive buffer in bytes (`SO_RCVBUF`). The kernel limits it to
    /// `net.core.rmem_max`, and then doubles it.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::TcpOptions;
    ///
    /// let listener = TcpOptions::new()
    ///     .recv_buffer_size(256 * 1024)
    ///     .send_buffer_size(256 * 1024)
    ///     .listen("127.0.0.1:0")?;
    /// # drop(listener);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv_buffer_size(&mut self, bytes: usize) -> &mut TcpOptions {
        self.shared.recv_buffer_bytes = Some(bytes);
        self
    }

    /// Sets the size of the send buffer in bytes (`SO_SNDBUF`). The kernel limits it to
    /// `net.core.wmem_max`, and then doubles it. For an example see
    /// [`TcpOptions::recv_buffer_size`].
    pub fn send_buffer_size(&mut self, bytes: usize) -> &mut TcpOptions {
        self.shared.send_buffer_bytes = Some(bytes);
        self
    }

    /// Sets how long closing the socket waits until all data has been sent (`SO_LINGER`, in whole
    /// seconds, rounded up).
    ///
    /// Dropping the last handle blocks the thread for up to that time, and the kernel then discards
    /// the rest. Zero resets the connection at once.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::net::{TcpListener, TcpOptions};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpOptions::new().linger(Duration::ZERO).connect(listener.local_addr()?)?;
    /// drop(stream); // resets the connection
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn linger(&mut self, time: Duration) -> &mut TcpOptions {
        self.linger = Some(time);
        self
    }

    /// Sets how long sent data may remain without an acknowledgement before the connection is
    /// closed (`TCP_USER_TIMEOUT`, in whole milliseconds).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::net::TcpOptions;
    ///
    /// let listener = TcpOptions::new()
    ///     .user_timeout(Duration::from_secs(30))
    ///     .listen("127.0.0.1:0")?;
    /// # drop(listener);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn user_timeout(&mut self, time: Duration) -> &mut TcpOptions {
        self.user_timeout = Some(time);
        self
    }

    /// Sets the local address of a stream that connects: it is bound before. With port 0 the kernel
    /// chooses the port. It has no effect on a listener.
    ///
    /// With a port that other sockets use, too, [`reuse_port`](TcpOptions::reuse_port) is needed.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{TcpListener, TcpOptions};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpOptions::new()
    ///     .bind("127.0.0.2:0".parse().unwrap())
    ///     .connect(listener.local_addr()?)?;
    /// assert_eq!(stream.local_addr()?.ip().to_string(), "127.0.0.2");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind(&mut self, local: SocketAddr) -> &mut TcpOptions {
        self.local = Some(local);
        self
    }

    /// Lets packets come and go through one network interface only, such as `eth0`
    /// (`SO_BINDTODEVICE`).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use windlass::net::TcpOptions;
    ///
    /// let listener = TcpOptions::new().bind_device("eth0").listen("[::]:8080")?;
    /// # drop(listener);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind_device(&mut self, interface: impl Into<String>) -> &mut TcpOptions {
        self.shared.device = Some(interface.into());
        self
    }

    /// Sets the time-to-live of packets, in hops (`IP_TTL`, `IPV6_UNICAST_HOPS`), from 1 to 255.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{TcpListener, TcpOptions};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpOptions::new().ttl(4).tos(0x10).connect(listener.local_addr()?)?;
    /// assert_eq!(stream.ttl()?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn ttl(&mut self, hops: u32) -> &mut TcpOptions {
        self.shared.ttl = Some(hops);
        self
    }

    /// Sets the type of service of packets, which routers may obey (`IP_TOS`, `IPV6_TCLASS`), from 0
    /// to 255. For an example see [`TcpOptions::ttl`].
    pub fn tos(&mut self, tos: u32) -> &mut TcpOptions {
        self.shared.tos = Some(tos);
        self
    }

    /// Binds a socket to an address and listens, as [`TcpListener::bind`] does, with these options.
    ///
    /// # Blocking
    ///
    /// As [`TcpListener::bind`].
    ///
    /// # Errors
    ///
    /// As [`TcpListener::bind`]; those of `setsockopt(2)` if the kernel refuses an option.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::TcpOptions;
    ///
    /// let listener = TcpOptions::new().backlog(64).listen("127.0.0.1:0")?;
    /// assert_ne!(listener.local_addr()?.port(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn listen(&self, addr: impl ToSocketAddrs) -> io::Result<TcpListener> {
        addr::each(addr, |addr| self.listen_on(addr, self.reuse_port))
    }

    /// Makes `n` listeners that share a port (`SO_REUSEPORT`).
    ///
    /// The kernel distributes connections over them by a hash of the addresses. With a goroutine
    /// that accepts from each, the goroutines do not contend for one queue. A connection stays in
    /// the queue of its listener: if no goroutine accepts from that listener, its connections wait.
    ///
    /// # Blocking
    ///
    /// As [`TcpListener::bind`].
    ///
    /// # Errors
    ///
    /// As [`TcpOptions::listen`]; `InvalidInput` if `n` is 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::TcpOptions;
    ///
    /// let group = TcpOptions::new().listen_group("127.0.0.1:0", 4)?;
    /// let addr = group[0].local_addr()?;
    /// for listener in &group {
    ///     assert_eq!(listener.local_addr()?, addr);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn listen_group(&self, addr: impl ToSocketAddrs, n: usize) -> io::Result<Vec<TcpListener>> {
        if n == 0 {
            return Err(addr::invalid("a group of no listeners"));
        }
        addr::each(addr, |addr| {
            let first = self.listen_on(addr, true)?;
            // The others need the port that the kernel chose for port 0.
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
        // Buffer sizes count only before the connection: they decide the window scale.
        self.apply_to(&SockRef::from(&socket))?;
        let fd = Fd::from(OwnedFd::from(socket));
        let addr = SockAddr::from(*addr);
        addr::bind(&fd, &addr)?;
        if let Some(n) = self.fast_open {
            fast_open_listener(fd.as_fd(), n)?;
        }
        let backlog = self
            .backlog
            .map_or(BACKLOG, |n| i32::try_from(n).unwrap_or(i32::MAX));
        addr::listen(&fd, &addr, backlog)?;
        Ok(TcpListener(fd))
    }

    /// Connects to an address, as [`TcpStream::connect`] does, with these options.
    ///
    /// # Blocking
    ///
    /// As [`TcpStream::connect`].
    ///
    /// # Errors
    ///
    /// As [`TcpStream::connect`]; those of `setsockopt(2)` if the kernel refuses an option; those of
    /// [`TcpListener::bind`] if it refuses the local address.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{TcpListener, TcpOptions};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpOptions::new().nodelay(true).connect(listener.local_addr()?)?;
    /// assert!(stream.nodelay()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect(&self, addr: impl ToSocketAddrs) -> io::Result<TcpStream> {
        addr::each(addr, |addr| self.connect_until(addr, NEVER))
    }

    /// Connects to one address with these options, and gives up after `timeout`, as
    /// [`TcpStream::connect_timeout`] does.
    ///
    /// # Blocking
    ///
    /// As [`TcpStream::connect`], at most for `timeout`.
    ///
    /// # Errors
    ///
    /// As [`TcpStream::connect_timeout`]; those of `setsockopt(2)` if the kernel refuses an option.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::net::{TcpListener, TcpOptions};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpOptions::new()
    ///     .nodelay(true)
    ///     .connect_timeout(&listener.local_addr()?, Duration::from_secs(5))?;
    /// assert!(stream.nodelay()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
        if self.local.is_some() && self.reuse_port {
            socket.set_reuse_port(true)?;
        }
        let fd = Fd::from(OwnedFd::from(socket));
        if let Some(local) = &self.local {
            if local.is_ipv4() != addr.is_ipv4() {
                return Err(addr::invalid(
                    "the local address is not of the same family as the peer's",
                ));
            }
            addr::bind(&fd, &SockAddr::from(*local))?;
        }
        addr::connect(&fd, &SockAddr::from(*addr), deadline)?;
        Ok(TcpStream(fd))
    }

    /// Sets these options on an existing stream. Options that concern listening and connecting
    /// ([`backlog`](TcpOptions::backlog), [`reuse_port`](TcpOptions::reuse_port),
    /// [`only_v6`](TcpOptions::only_v6), [`fast_open`](TcpOptions::fast_open),
    /// [`bind`](TcpOptions::bind)) have no effect.
    ///
    /// # Errors
    ///
    /// The errors of `setsockopt(2)`. Options set before the failure stay set.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{TcpListener, TcpOptions, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// TcpOptions::new().nodelay(true).apply(&stream)?;
    /// assert!(stream.nodelay()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn apply(&self, stream: &TcpStream) -> io::Result<()> {
        self.apply_to(&SockRef::from(stream))
    }

    fn apply_to(&self, socket: &SockRef<'_>) -> io::Result<()> {
        self.shared.apply_to(socket)?;
        if let Some(nodelay) = self.nodelay {
            socket.set_tcp_nodelay(nodelay)?;
        }
        if let Some(keepalive) = &self.keepalive {
            socket.set_tcp_keepalive(keepalive)?;
        }
        if let Some(time) = self.linger {
            socket.set_linger(Some(round_up(time, Duration::from_secs(1))))?;
        }
        if let Some(time) = self.user_timeout {
            let time = round_up(time, Duration::from_millis(1));
            socket.set_tcp_user_timeout(Some(time))?;
        }
        Ok(())
    }
}

/// The time in whole units, which the kernel counts as an `int`. Zero has a meaning of its own, so
/// nothing else becomes zero.
fn round_up(time: Duration, unit: Duration) -> Duration {
    let n = time.as_nanos().div_ceil(unit.as_nanos());
    unit * n.min(i32::MAX as u128) as u32
}

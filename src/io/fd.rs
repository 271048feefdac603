//! `Fd`: the one field of every net type, with the read and write paths.
//!
//! Sockets stay in blocking mode, so that descriptors can be exchanged with `std`
//! and the kernel's own polling in io_uring works. A goroutine never blocks on one:
//! single attempts carry MSG_DONTWAIT, everything else goes through the ring. A
//! plain thread waits with `ppoll(2)`.
//!
//! **Receiving.** The last completion says whether more was in the socket
//! (`SOCK_NONEMPTY`). If so, try inline first; else queue a receive that polls
//! first: an attempt that finds nothing costs a quarter more than it could save.
//!
//! **Sending.** Inline first while the P has few operations in flight: a socket buffer
//! has room nearly always, and the peer hears at once. A P with many is a busy server:
//! there the ring makes one batch of what its goroutines have to send, which saves
//! system calls and wakes (docs/BENCHMARKS.md).
#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::op;
use crate::g::header::GRef;
use crate::netpoll::sqe::Request;
use crate::sched::ambient;
use crate::sched::park::{self, Caller};
use crate::sys::clock::{self, NEVER};
use crate::sys::socket;

/// The most that one receive or send moves: the kernel's own limit.
const MAX_LEN: usize = 0x7fff_f000;

/// Timeouts are the socket's, so clones share them.
#[derive(Debug)]
struct Shared {
    /// Nanoseconds, `NEVER` for none. Ordering: relaxed, a setting.
    read_timeout_ns: AtomicU64,
    write_timeout_ns: AtomicU64,
    /// The socket had more when it was last read. Ordering: relaxed, a hint.
    maybe_readable: AtomicBool,
    /// `O_NONBLOCK` was asked for: calls make one attempt. Ordering: relaxed, a setting.
    nonblocking: AtomicBool,
}

/// A socket.
#[derive(Debug)]
pub(crate) struct Fd {
    fd: OwnedFd,
    shared: Arc<Shared>,
}

/// Which of the two timeouts is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl From<OwnedFd> for Fd {
    fn from(fd: OwnedFd) -> Fd {
        Fd {
            fd,
            shared: Arc::new(Shared {
                read_timeout_ns: AtomicU64::new(NEVER),
                write_timeout_ns: AtomicU64::new(NEVER),
                maybe_readable: AtomicBool::new(false),
                nonblocking: AtomicBool::new(false),
            }),
        }
    }
}

impl From<Fd> for OwnedFd {
    fn from(fd: Fd) -> OwnedFd {
        fd.fd
    }
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Repeats a system call that a signal interrupted.
pub(crate) fn retry<T>(mut f: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match f() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            r => return r,
        }
    }
}

fn is_would_block<T>(r: &io::Result<T>) -> bool {
    r.as_ref()
        .is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
}

impl Fd {
    pub(crate) fn try_clone(&self) -> io::Result<Fd> {
        Ok(Fd {
            fd: self.fd.try_clone()?,
            shared: Arc::clone(&self.shared),
        })
    }

    fn timeout(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::Read => &self.shared.read_timeout_ns,
            Direction::Write => &self.shared.write_timeout_ns,
        }
    }

    /// Sets a timeout; `InvalidInput` for zero, as `std`.
    pub(crate) fn set_timeout(&self, direction: Direction, d: Option<Duration>) -> io::Result<()> {
        if d.is_some_and(|d| d.is_zero()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "cannot set a timeout of zero: pass None to wait without limit",
            ));
        }
        let ns = d.map_or(NEVER, |d| u64::try_from(d.as_nanos()).unwrap_or(NEVER));
        self.timeout(direction).store(ns, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn get_timeout(&self, direction: Direction) -> Option<Duration> {
        let ns = self.timeout(direction).load(Ordering::Relaxed);
        (ns != NEVER).then(|| Duration::from_nanos(ns))
    }

    fn deadline_ns(&self, direction: Direction) -> u64 {
        match self.timeout(direction).load(Ordering::Relaxed) {
            NEVER => NEVER,
            ns => clock::now_ns().saturating_add(ns),
        }
    }

    /// Makes calls on this socket and its clones return `WouldBlock` instead of waiting.
    pub(crate) fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        socket2::SockRef::from(self).set_nonblocking(on)?;
        self.shared.nonblocking.store(on, Ordering::Relaxed);
        Ok(())
    }

    fn is_nonblocking(&self) -> bool {
        self.shared.nonblocking.load(Ordering::Relaxed)
    }

    /// Receives; with `peek` what is received stays in the socket.
    pub(crate) fn recv(&self, buf: &mut [u8], peek: bool) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let len = buf.len().min(MAX_LEN);
        let (ptr, flags) = (buf.as_mut_ptr(), if peek { libc::MSG_PEEK } else { 0 });
        let now = || retry(|| socket::recv_now(self.as_fd(), ptr, len, flags));
        match park::caller() {
            _ if self.is_nonblocking() => now(),
            Caller::Thread => self.on_thread(Direction::Read, libc::POLLIN, now),
            Caller::Goroutine(g) => self.recv_parked(g, ptr, len, flags, now),
        }
    }

    fn recv_parked(
        &self,
        g: GRef,
        ptr: *mut u8,
        len: usize,
        flags: i32,
        now: impl Fn() -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.shared.maybe_readable.load(Ordering::Relaxed) {
            op::check(g)?;
            let r = now();
            // A short read empties the socket; a full one leaves the hint.
            if r.as_ref().map_or(true, |&n| n < len) {
                self.shared.maybe_readable.store(false, Ordering::Relaxed);
            }
            if !is_would_block(&r) {
                return r;
            }
        }
        let request = Request::Recv {
            fd: self.fd.as_raw_fd(),
            buf: ptr,
            len: len as u32,
            flags,
        };
        // SAFETY: the buffer is borrowed by the caller until this returns.
        let done = unsafe { op::run(g, request, self.deadline_ns(Direction::Read)) }?;
        if io_uring::cqueue::sock_nonempty(done.flags) {
            self.shared.maybe_readable.store(true, Ordering::Relaxed);
        }
        Ok(done.n)
    }

    /// Receives into several buffers.
    pub(crate) fn recv_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match bufs.iter_mut().filter(|b| !b.is_empty()).count() {
            0 => return Ok(0),
            1 => {
                let one = bufs.iter_mut().find(|b| !b.is_empty());
                return one.map_or(Ok(0), |b| self.recv(b, false));
            }
            _ => {}
        }
        let mut msg = header(bufs.as_mut_ptr().cast(), bufs.len());
        let msg = &raw mut msg;
        let now = || retry(|| socket::recvmsg_now(self.as_fd(), msg));
        match park::caller() {
            _ if self.is_nonblocking() => now(),
            Caller::Thread => self.on_thread(Direction::Read, libc::POLLIN, now),
            Caller::Goroutine(g) => {
                let request = Request::RecvMsg {
                    fd: self.fd.as_raw_fd(),
                    msg,
                };
                // SAFETY: the header is on this frame, the buffers are borrowed by the caller.
                unsafe { op::run(g, request, self.deadline_ns(Direction::Read)) }.map(|done| done.n)
            }
        }
    }

    /// Sends as much as fits, at least a byte.
    pub(crate) fn send(&self, buf: &[u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let buf = &buf[..buf.len().min(MAX_LEN)];
        let now = || retry(|| socket::send_now(self.as_fd(), buf));
        let first = self.send_inline(now);
        match park::caller() {
            _ if !is_would_block(&first) || self.is_nonblocking() => first,
            Caller::Thread => self.on_thread(Direction::Write, libc::POLLOUT, now),
            Caller::Goroutine(g) => {
                let request = Request::Send {
                    fd: self.fd.as_raw_fd(),
                    buf: buf.as_ptr(),
                    len: buf.len() as u32,
                };
                // SAFETY: the buffer is borrowed by the caller until this returns.
                unsafe { op::run(g, request, self.deadline_ns(Direction::Write)) }
                    .map(|done| done.n)
            }
        }
    }

    /// Sends from several buffers.
    pub(crate) fn send_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if bufs.iter().all(|b| b.is_empty()) {
            return Ok(0);
        }
        let msg = header(bufs.as_ptr().cast_mut().cast(), bufs.len());
        let msg = &raw const msg;
        let now = || retry(|| socket::sendmsg_now(self.as_fd(), msg));
        let first = self.send_inline(now);
        match park::caller() {
            _ if !is_would_block(&first) || self.is_nonblocking() => first,
            Caller::Thread => self.on_thread(Direction::Write, libc::POLLOUT, now),
            Caller::Goroutine(g) => {
                let request = Request::SendMsg {
                    fd: self.fd.as_raw_fd(),
                    msg,
                };
                // SAFETY: the header is on this frame, the buffers are borrowed by the caller.
                unsafe { op::run(g, request, self.deadline_ns(Direction::Write)) }
                    .map(|done| done.n)
            }
        }
    }

    /// The attempt before the ring, or `WouldBlock` without one where a batch is better.
    fn send_inline(&self, now: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
        if op::inflight_here()? >= BATCHES_FROM && !self.is_nonblocking() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        now()
    }

    /// Accepts a connection.
    pub(crate) fn accept(&self) -> io::Result<(Fd, socket2::SockAddr)> {
        loop {
            let accepted = self.accept_once();
            match &accepted {
                Err(e) if is_short_of_descriptors(e) && !self.is_nonblocking() => {
                    // A loop that accepts again at once would spin until a descriptor is closed.
                    // The connection stays in the queue.
                    park::sleep_until(clock::now_ns() + ACCEPT_PAUSE_NS)?;
                    return accepted;
                }
                // The peer was gone before it was accepted: nothing for the caller to do.
                Err(e) if e.raw_os_error() == Some(libc::ECONNABORTED) => {}
                _ => return accepted,
            }
        }
    }

    fn accept_once(&self) -> io::Result<(Fd, socket2::SockAddr)> {
        // SAFETY: all-zero is a valid sockaddr_storage.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let mut len = size_of_val(&storage) as libc::socklen_t;
        let (addr, addr_len) = (&raw mut storage, &raw mut len);
        let now = || retry(|| socket::accept(self.as_fd(), addr, addr_len));
        let fd = match park::caller() {
            _ if self.is_nonblocking() => now(),
            Caller::Thread => self.on_thread(Direction::Read, libc::POLLIN, now),
            Caller::Goroutine(g) => {
                let request = Request::Accept {
                    fd: self.fd.as_raw_fd(),
                    addr: addr.cast(),
                    len: addr_len,
                };
                // SAFETY: the place for the address is on this frame.
                unsafe { op::run(g, request, self.deadline_ns(Direction::Read)) }
                    .map(|done| done.n as i32)
            }
        }?;
        // SAFETY: the kernel gave this descriptor to this call alone.
        let fd = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) };
        // SAFETY: the kernel wrote an address of `len` bytes into the storage; both types are the
        // C structure.
        let addr = unsafe {
            socket2::SockAddr::new(
                std::mem::transmute::<libc::sockaddr_storage, socket2::SockAddrStorage>(storage),
                len,
            )
        };
        Ok((Fd::from(fd), addr))
    }

    /// Connects, until the deadline (then `TimedOut`, as `std::net::TcpStream::connect_timeout`).
    pub(crate) fn connect(&self, addr: &socket2::SockAddr, deadline_ns: u64) -> io::Result<()> {
        match park::caller() {
            Caller::Thread => {
                park::cancel_point()?;
                connect_on_thread(&socket2::SockRef::from(self), addr, deadline_ns)
            }
            Caller::Goroutine(g) => {
                let request = Request::Connect {
                    fd: self.fd.as_raw_fd(),
                    addr: addr.as_ptr().cast(),
                    len: addr.len(),
                };
                // SAFETY: the address is borrowed by the caller until this returns.
                let r = unsafe { op::run(g, request, deadline_ns) };
                match r {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(connect_timed_out()),
                    // A resubmitted connect finds the first one done.
                    Err(e) if e.raw_os_error() == Some(libc::EISCONN) => Ok(()),
                    r => r.map(drop),
                }
            }
        }
    }

    /// The same call on a plain thread: attempts and polls until the timeout.
    fn on_thread<T>(
        &self,
        direction: Direction,
        events: i16,
        now: impl Fn() -> io::Result<T>,
    ) -> io::Result<T> {
        let deadline_ns = self.deadline_ns(direction);
        loop {
            park::cancel_point()?;
            if !poll(self.as_fd(), events, deadline_ns)? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let r = now();
            if !is_would_block(&r) {
                return r;
            }
        }
    }
}

/// Operations in flight from which a P's sends are batched.
const BATCHES_FROM: u32 = 16;

/// How long accept holds back an error that repeating at once cannot cure.
const ACCEPT_PAUSE_NS: u64 = 5_000_000;

fn is_short_of_descriptors(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    )
}

/// Waits on a plain thread until the socket shows one of `events`, or the deadline
/// (`false`), or until the ambient context is done: its cancellation wakes no thread, so
/// that is looked for.
fn poll(fd: BorrowedFd<'_>, events: i16, deadline_ns: u64) -> io::Result<bool> {
    loop {
        ambient::check()?;
        let chain = park::current_chain();
        if !chain.is_some() {
            return socket::poll(fd, events, deadline_ns);
        }
        let look_up_ns = (clock::now_ns() + park::LOOK_UP_NS).min(chain.deadline_ns());
        if socket::poll(fd, events, deadline_ns.min(look_up_ns))? {
            return Ok(true);
        }
        if deadline_ns <= clock::now_ns() {
            return Ok(false);
        }
    }
}

/// Connects on a plain thread. A signal does not cut it short.
fn connect_on_thread(
    sock: &socket2::SockRef<'_>,
    addr: &socket2::SockAddr,
    deadline_ns: u64,
) -> io::Result<()> {
    sock.set_nonblocking(true)?;
    let begun = sock.connect(addr);
    let connected = match begun {
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {
            match poll(sock.as_fd(), libc::POLLOUT, deadline_ns) {
                Ok(true) => sock.take_error().and_then(|e| e.map_or(Ok(()), Err)),
                Ok(false) => Err(connect_timed_out()),
                Err(e) => Err(e),
            }
        }
        r => r,
    };
    sock.set_nonblocking(false)?;
    connected
}

fn connect_timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "connection timed out")
}

fn header(iov: *mut libc::iovec, len: usize) -> libc::msghdr {
    // SAFETY: all-zero is a valid msghdr.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = iov;
    // The kernel takes at most IOV_MAX buffers; the rest is left for the next call.
    msg.msg_iovlen = len.min(1024);
    msg
}

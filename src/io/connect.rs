//! Accepting and connecting.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use socket2::{SockAddr, SockAddrStorage, SockRef};

use super::fd::{Direction, Fd, retry};
use super::op;
use super::ready;
use crate::netpoll::sqe::Request;
use crate::sched::park::{self, Caller};
use crate::sys::clock;
use crate::sys::socket;

/// How long accept holds back an error that repeating at once cannot cure.
const ACCEPT_PAUSE_NS: u64 = 5_000_000;

impl Fd {
    /// Accepts a connection.
    pub(crate) fn accept(&self) -> io::Result<(Fd, SockAddr)> {
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

    fn accept_once(&self) -> io::Result<(Fd, SockAddr)> {
        let mut storage = SockAddrStorage::zeroed();
        let mut len = storage.size_of();
        let (addr, addr_len) = (
            (&raw mut storage).cast::<libc::sockaddr_storage>(),
            &raw mut len,
        );
        let now = || retry(|| socket::accept(self.as_fd(), addr, addr_len));
        let fd = if self.is_nonblocking() {
            now()
        } else {
            let deadline = self.deadline(Direction::Read)?;
            match park::caller() {
                Caller::Thread => self.on_thread(libc::POLLIN, deadline, now),
                Caller::Goroutine(g) => {
                    if op::is_epoll_here() {
                        self.note_made_nonblocking();
                    }
                    let request = Request::Accept {
                        fd: self.as_fd().as_raw_fd(),
                        addr: addr.cast(),
                        len: addr_len,
                    };
                    // SAFETY: the place for the address is on this frame.
                    unsafe { op::run_until(g, request, deadline) }.map(|done| done.n as i32)
                }
            }
        }?;
        // SAFETY: the kernel gave this descriptor to this call alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the kernel wrote an address of `len` bytes into the storage.
        let addr = unsafe { SockAddr::new(storage, len) };
        Ok((Fd::from(fd), addr))
    }

    /// Connects, until the deadline (then `TimedOut`, as `std::net::TcpStream::connect_timeout`).
    pub(crate) fn connect(&self, addr: &SockAddr, deadline_ns: u64) -> io::Result<()> {
        match park::caller() {
            Caller::Thread => {
                park::cancel_point()?;
                let sock = SockRef::from(self);
                if addr.is_unix() {
                    // Only a blocking attempt waits for room in the listener's queue.
                    return retry(|| sock.connect(addr));
                }
                connect_on_thread(&sock, addr, deadline_ns)
            }
            Caller::Goroutine(g) => {
                let request = Request::Connect {
                    fd: self.as_fd().as_raw_fd(),
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
}

fn is_short_of_descriptors(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    )
}

/// Connects on a plain thread. A signal does not cut it short.
fn connect_on_thread(sock: &SockRef<'_>, addr: &SockAddr, deadline_ns: u64) -> io::Result<()> {
    sock.set_nonblocking(true)?;
    let begun = sock.connect(addr);
    let connected = match begun {
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {
            match ready::poll(sock.as_fd(), libc::POLLOUT, deadline_ns) {
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

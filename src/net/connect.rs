//! Connecting a stream socket.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use socket2::{SockAddr, SockRef};

use crate::g::header::GRef;
use crate::poll::fd::Fd;
use crate::poll::op::{self, Deadline};
use crate::poll::ready;
use crate::sched::wait::current_context;
use crate::sched::wait::park::{self, Caller};
use crate::sched::wait::points;
use crate::sched::wait::sleep;
use crate::sys::errno::retry;
use crate::sys::request::Request;
use crate::sys::socket;

impl Fd {
    /// Connects, until the deadline (then `TimedOut`, as `std::net::TcpStream::connect_timeout`).
    pub(crate) fn connect(&self, addr: &SockAddr, deadline_ns: u64) -> io::Result<()> {
        if let Some(sim) = self.sim_socket() {
            let connected = sim.connect(addr, Deadline::at(deadline_ns));
            return connected.map_err(|e| match e.kind() {
                io::ErrorKind::WouldBlock => connect_timed_out(),
                _ => e,
            });
        }
        if addr.is_unix() {
            return self.connect_unix(addr);
        }
        match park::caller() {
            Caller::Thread => {
                points::cancel_point()?;
                connect_on_thread(&SockRef::from(self), addr, deadline_ns)
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
                    // A resubmitted connect finds that the first one has succeeded.
                    Err(e) if e.raw_os_error() == Some(libc::EISCONN) => Ok(()),
                    // Or that it is still in progress.
                    Err(e) if e.raw_os_error() == Some(libc::EALREADY) => {
                        self.finish_connect(g, deadline_ns)
                    }
                    r => r.map(drop),
                }
            }
        }
    }

    /// Connects a Unix socket. No event reports room in the listener's queue, and a ring would keep a
    /// kernel thread for each connect that waits for it. So attempts are repeated, except on a plain thread
    /// whose wait nothing may end.
    fn connect_unix(&self, addr: &SockAddr) -> io::Result<()> {
        points::cancel_point()?;
        if matches!(park::caller(), Caller::Thread) && !sleep::may_be_cancelled() {
            return retry(|| SockRef::from(self).connect(addr));
        }
        current_context::check()?;
        let attempt = || {
            // SAFETY: an address is as long as it says.
            unsafe { socket::connect_now(self.as_fd(), addr.as_ptr().cast(), addr.len()) }
        };
        ready::look_for(|| match retry(attempt) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            connected => connected.map(Some),
        })
    }

    /// Waits for the end of a connect that is in progress.
    fn finish_connect(&self, g: GRef, deadline_ns: u64) -> io::Result<()> {
        let request = Request::PollAdd {
            fd: self.as_fd().as_raw_fd(),
            events: libc::POLLOUT as u32,
        };
        // SAFETY: a poll points at nothing.
        match unsafe { op::run(g, request, deadline_ns) } {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(connect_timed_out()),
            Err(e) => Err(e),
            Ok(_) => SockRef::from(self).take_error()?.map_or(Ok(()), Err),
        }
    }
}

/// Connects on a plain thread. A signal does not interrupt it.
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

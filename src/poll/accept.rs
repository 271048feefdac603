//! Accepting.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use socket2::{SockAddr, SockAddrStorage};

use super::fd::{Direction, Fd};
use super::op;
use super::op::Deadline;
use crate::g::header::GRef;
use crate::sched::wait::current_context;
use crate::sched::wait::park::{self, Caller};
use crate::sched::wait::points;
use crate::sched::wait::sleep;
use crate::sys::clock::{self, NEVER};
use crate::sys::errno::retry;
use crate::sys::request::Request;
use crate::sys::socket;
use crate::util::ladder;

/// How long accept delays an error that an immediate retry cannot cure.
const ACCEPT_PAUSE_NS: u64 = ladder::HOG_NS / 2;

impl Fd {
    /// Accepts a connection.
    pub(crate) fn accept(&self) -> io::Result<(Fd, SockAddr)> {
        loop {
            let accepted = self.accept_once();
            match &accepted {
                // The peer had gone before it was accepted: the caller need not know.
                Err(e) if e.raw_os_error() == Some(libc::ECONNABORTED) => {}
                Err(e) => {
                    self.hold_back(e)?;
                    return accepted;
                }
                Ok(_) => return accepted,
            }
        }
    }

    /// Delays the error of an accept if an immediate retry cannot cure it: a loop that accepts
    /// again at once would spin until a descriptor is closed. The connection stays in the queue.
    fn hold_back(&self, e: &io::Error) -> io::Result<()> {
        if is_short_of_descriptors(e) && !self.is_nonblocking() {
            sleep::sleep_until(clock::now_ns() + ACCEPT_PAUSE_NS)?;
        }
        Ok(())
    }

    fn accept_once(&self) -> io::Result<(Fd, SockAddr)> {
        if let Some(sim) = self.sim_socket() {
            let accepted = sim.accept(self.sim_deadline(Direction::Read)?, self.as_fd());
            return accepted.map(|(fd, sim, peer)| (Fd::with_sim_socket(fd, sim), peer));
        }
        let mut storage = SockAddrStorage::zeroed();
        let mut len = storage.size_of();
        let (addr, addr_len) = (
            (&raw mut storage).cast::<libc::sockaddr_storage>(),
            &raw mut len,
        );
        // SAFETY: the storage and its length are this function's own.
        let now = || retry(|| unsafe { socket::accept_now(self.as_fd(), addr, addr_len) });
        let fd = if let Some(accepted) = self.attempt(now) {
            accepted
        } else {
            let deadline = self.deadline(Direction::Read)?;
            match park::caller() {
                Caller::Thread => {
                    // Another accept may take the connection that a poll has reported.
                    let may_end = deadline.ns() != NEVER || sleep::may_be_cancelled();
                    let _in_mode = may_end.then(|| self.accepting());
                    let accept: unsafe fn(BorrowedFd<'_>, _, _) -> _ = match may_end {
                        true => socket::accept_now,
                        false => socket::accept,
                    };
                    let now = || {
                        // SAFETY: as above.
                        retry(|| unsafe { accept(self.as_fd(), addr, addr_len) })
                            .map_err(|e| why_not_accepted(self.as_fd(), e))
                    };
                    self.on_thread(libc::POLLIN, deadline, now)
                }
                Caller::Goroutine(g) => {
                    let request = Request::Accept {
                        fd: self.as_fd().as_raw_fd(),
                        addr: addr.cast(),
                        len: addr_len,
                    };
                    let chain = park::chain_of(g);
                    let late = chain.late();
                    // SAFETY: the storage for the address is on this frame.
                    let mut accepted = unsafe { self.accept_until(g, request, deadline) };
                    // The kernel's own errors come from an accept that has checked the queue.
                    if accepted.as_ref().is_err_and(|e| e.raw_os_error().is_none()) {
                        // SAFETY: as above.
                        accepted = unsafe { self.take_what_came(g, request) }.unwrap_or(accepted);
                        if accepted.is_ok() {
                            // A timeout around this must not drop the connection.
                            chain.forgive(late);
                        }
                    }
                    accepted.map(|done| done.n as i32)
                }
            }
        }?;
        // SAFETY: the kernel returned this descriptor to this call only.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the kernel wrote an address of `len` bytes into the storage.
        let addr = unsafe { SockAddr::new(storage, len) };
        Ok((Fd::from(fd), addr))
    }

    /// Makes an accept by the poller; by attempts where a ring may not.
    ///
    /// # Safety
    ///
    /// As [`op::run`].
    unsafe fn accept_until(
        &self,
        g: GRef,
        request: Request,
        deadline: Deadline<'_>,
    ) -> io::Result<op::Completed> {
        let in_mode = op::is_epoll_here().then(|| self.accepting());
        // SAFETY: by this function's contract.
        let accepted = unsafe { op::run_until(g, request, deadline) };
        let errno = accepted.as_ref().err().and_then(io::Error::raw_os_error);
        if in_mode.is_some() || !errno.is_some_and(is_rings_own) {
            return accepted;
        }
        let _in_mode = self.accepting();
        // SAFETY: by this function's contract.
        unsafe { op::run_by_attempts(g, request, deadline) }
    }

    /// Makes an accept again that a deadline or a context has just ended, if there is a connection now.
    ///
    /// The kernel wakes one of the accepts that wait at a listener in rings, of all processes that have it. If that
    /// one is just being cancelled, the others sleep although there is a connection.
    ///
    /// # Safety
    ///
    /// As [`op::run`].
    unsafe fn take_what_came(
        &self,
        g: GRef,
        request: Request,
    ) -> Option<io::Result<op::Completed>> {
        while matches!(socket::poll_now(self.as_fd(), libc::POLLIN), Ok(shown) if shown != 0) {
            // Another accept may take the connection first.
            let soon = clock::now_ns() + ACCEPT_PAUSE_NS;
            // SAFETY: by this function's contract.
            let accept = || unsafe { self.accept_until(g, request, Deadline::at(soon)) };
            let accepted = current_context::shield(accept);
            let is_cut = |e: &io::Error| e.raw_os_error().is_none();
            if points::is_cancelled() || !accepted.as_ref().is_err_and(is_cut) {
                return Some(accepted);
            }
        }
        None
    }
}

/// The error of an accept that would have blocked. A Unix listener that was shut down stays ready
/// for ever. But in non-blocking mode, in which the epoll poller leaves it, an accept reports only
/// that there is no connection.
fn why_not_accepted(listener: BorrowedFd<'_>, e: io::Error) -> io::Error {
    let is_shut = || {
        let shown = socket::poll_now(listener, libc::POLLRDHUP);
        shown.is_ok_and(|shown| shown & (libc::POLLRDHUP | libc::POLLHUP) != 0)
    };
    match e.kind() {
        io::ErrorKind::WouldBlock if is_shut() => io::Error::from_raw_os_error(libc::EINVAL),
        _ => e,
    }
}

/// Whether a ring may have returned this error of an accept because of itself: it may not accept, or
/// does not wait at a listener in non-blocking mode.
fn is_rings_own(errno: i32) -> bool {
    op::is_denial(errno) || errno == libc::EAGAIN
}

fn is_short_of_descriptors(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    )
}

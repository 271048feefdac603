//! Sending without copying (`IORING_OP_SEND_ZC`, Linux 6.0).
//!
//! The kernel reads the caller's buffer until the peer has acknowledged it, and the
//! caller waits that long: it has the buffer back when the call returns, as with every
//! other send. If a deadline (also one that is set or moved meanwhile), a context or the end
//! of the run cuts that wait, the connection is reset: nothing else makes the kernel let go. The
//! call then waits for the notice of that, which does not depend on the peer, and returns.
//!
//! Where a notice says that the bytes were copied after all (loopback, devices that
//! cannot gather), or the kernel refuses, later sends on the socket are ordinary ones.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::fd::{Direction, Fd};
use super::op::{self, Deadline};
use super::socket::MAX_LEN;
use crate::g::header::GRef;
use crate::g::list::GList;
use crate::g::status::{Reason, Why};
use crate::netpoll::op::{ERESTARTSYS, Op};
use crate::netpoll::sqe::Request;
use crate::netpoll::twice::Twice;
use crate::sched::park::{self, Caller};
use crate::sched::{ambient, wake};
use crate::sys::clock::NEVER;
use crate::sys::socket;

/// Below this an ordinary send is cheaper: pinning pages and a second completion cost
/// more than copying. The figure that others have measured on network cards is 8 to
/// 16 KiB.
const FROM_BYTES: usize = 16 << 10;

impl Fd {
    /// Sends without copying where that may pay; as [`Fd::write`] elsewhere.
    pub(crate) fn send_zc(&self, buf: &[u8]) -> io::Result<usize> {
        let may_pay = buf.len() >= FROM_BYTES && !self.is_nonblocking() && !self.copies_anyway();
        match park::caller() {
            Caller::Goroutine(g) if may_pay && op::has_send_zc_here() => {
                let buf = &buf[..buf.len().min(MAX_LEN)];
                match self.send_noticed(g, buf) {
                    Err(e) if is_refusal(&e) => {
                        self.note_copies_anyway();
                        self.write(buf)
                    }
                    r => r,
                }
            }
            _ => self.write(buf),
        }
    }

    fn send_noticed(&self, g: GRef, buf: &[u8]) -> io::Result<usize> {
        let deadline = self.deadline(Direction::Write)?;
        let _waiting = deadline.enter(g);
        loop {
            park::cancel_point()?;
            ambient::check()?;
            if deadline.has_passed() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let twice = Twice::new(g);
            let frame = LastsUntilOver(g, &twice);
            let result = self.send_once(&twice, buf, deadline);
            if let Ok(n) = usize::try_from(result) {
                return self.get_back(g, &twice, deadline).map(|()| n);
            }
            // Nothing was sent, so nothing holds the notice up.
            drop(frame);
            match -result {
                // Asked for by a deadline, a context or the end of the run: the loop's first lines
                // know; or by nobody.
                libc::ECANCELED | libc::EINTR | ERESTARTSYS => {}
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }

    /// Queues the send and waits for its result.
    fn send_once(&self, twice: &Twice, buf: &[u8], deadline: Deadline<'_>) -> i32 {
        let request = Request::SendZc {
            fd: self.as_fd().as_raw_fd(),
            buf: buf.as_ptr(),
            len: buf.len() as u32,
        };
        let chain = park::current_chain();
        twice.op.publish();
        let timer_on = park::timer_home();
        let why = Why::may_cut(Reason::Io, chain.is_some());
        park::park(why, move |g, wait, m| {
            let p = m.p();
            let mut ready = GList::new();
            let deadline_ns = deadline.ns().min(chain.deadline_ns());
            if chain.is_set() {
                twice.op.bind(wait);
                // Nothing is queued, so it is the only completion.
                twice.complete(-libc::ECANCELED, 0, &mut ready);
            } else {
                // SAFETY:
                // - the M in a commit holds the P.
                // - the caller leaves its frame, and gives the buffer back, when the operation has
                //   completed for the second time (`LastsUntilOver`).
                unsafe {
                    let now_ns = p.local.now_ns.get();
                    p.poller
                        .queue_twice(&request, twice, wait, now_ns, &mut ready);
                };
                if deadline_ns != NEVER {
                    p.timers.add(deadline_ns, g, wait);
                }
            }
            wake::ready_all(m, ready);
            true
        });
        if !twice.op.timed_out() && deadline.ns().min(chain.deadline_ns()) != NEVER {
            park::note_stale_timer(timer_on);
        }
        twice.op.result()
    }

    /// Waits until the kernel has let go of what was sent; resets the connection if that
    /// takes too long.
    fn get_back(&self, g: GRef, twice: &Twice, deadline: Deadline<'_>) -> io::Result<()> {
        let chain = park::chain_of(g);
        while !twice.is_over() {
            if park::is_cancelled() || chain.over().is_some() || deadline.has_passed() {
                socket::disconnect(self.as_fd());
                wait_out(g, twice);
                park::cancel_point()?;
                ambient::check()?;
                return Err(io::ErrorKind::WouldBlock.into());
            }
            op::park_for(g, deadline, |op, _, _| match twice.expect(op) {
                true => None,
                false => Some(0),
            });
        }
        if twice.was_copied() {
            self.note_copies_anyway();
        }
        Ok(())
    }
}

/// Keeps an operation in place until it has completed for the second time.
struct LastsUntilOver<'a>(GRef, &'a Twice);

impl Drop for LastsUntilOver<'_> {
    fn drop(&mut self) {
        wait_out(self.0, self.1);
    }
}

/// Waits for the notice, whatever happens: nobody cuts an `Offload`. Either nothing was sent, or
/// the connection was reset, so the notice comes at once.
fn wait_out(g: GRef, twice: &Twice) {
    while !twice.is_over() {
        let op = Op::new(g);
        let op = &op;
        park::park(Reason::Offload, move |_, wait, _| {
            op.bind(wait);
            twice.expect(op)
        });
    }
}

/// Whether the error says that this kernel or this socket does not send without copying,
/// that the ring is not allowed to, or that pages cannot be pinned. Nothing was sent, and an
/// ordinary send meets the error again if it is the socket's.
fn is_refusal(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(
            libc::EACCES
                | libc::EPERM
                | libc::EOPNOTSUPP
                | libc::EINVAL
                | libc::ENOMEM
                | libc::ENOBUFS
                | libc::EFAULT
        )
    )
}

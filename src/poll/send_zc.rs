//! Zero-copy sends (`IORING_OP_SEND_ZC`, Linux 6.0).
//!
//! The kernel reads the caller's buffer until the peer has acknowledged the bytes. The caller waits
//! for that, so the buffer is free when the call returns, as with every other send.
//!
//! A deadline (also one that is set or moved meanwhile), a context or the end of the run may cut
//! the wait short. The connection is then reset, because nothing else makes the kernel release the
//! buffer. The call waits for the notice that follows the reset, which does not depend on the peer,
//! and returns.
//!
//! If a notice says that the kernel copied the bytes after all (loopback, devices that cannot
//! gather), or if the kernel refuses, later sends on the socket are ordinary ones.
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
use crate::netpoll::zero_copy_send::ZeroCopySend;
use crate::sched::wait::park::{self, Caller};
use crate::sched::wait::{current_context, wake};
use crate::sys::clock::NEVER;
use crate::sys::socket;

/// A smaller send is an ordinary one: pinning pages and a second completion cost more than copying.
/// Published measurements on network cards put the limit at 8 to 16 KiB.
const FROM_BYTES: usize = 16 << 10;

impl Fd {
    /// Sends without copying if that may pay; otherwise as [`Fd::write`].
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
            current_context::check()?;
            if deadline.has_passed() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let send = ZeroCopySend::new(g);
            let frame = LastsUntilOver(g, &send);
            let result = self.send_once(&send, buf, deadline);
            if let Ok(n) = usize::try_from(result) {
                return self.get_back(g, &send, deadline).map(|()| n);
            }
            // Nothing was sent, so the notice comes at once.
            drop(frame);
            match -result {
                // If a deadline, a context or the end of the run cancelled the send, the first
                // lines of the loop return. Otherwise the send is repeated.
                libc::ECANCELED | libc::EINTR | ERESTARTSYS => {}
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }

    /// Queues the send and waits for its result.
    fn send_once(&self, send: &ZeroCopySend, buf: &[u8], deadline: Deadline<'_>) -> i32 {
        let request = Request::SendZc {
            fd: self.as_fd().as_raw_fd(),
            buf: buf.as_ptr(),
            len: buf.len() as u32,
        };
        let chain = park::current_chain();
        send.op.publish();
        let timer_on = park::timer_home();
        let why = Why::may_cut(Reason::Io, chain.is_some());
        park::park(why, move |g, wait, m| {
            let p = m.p();
            let mut ready = GList::new();
            let deadline_ns = deadline.ns().min(chain.deadline_ns());
            if chain.is_set() {
                send.op.bind(wait);
                // No operation is queued, so this is the only completion.
                send.complete(-libc::ECANCELED, 0, &mut ready);
            } else {
                // SAFETY:
                // - an M in a commit holds its P.
                // - the caller leaves its frame, and releases the buffer, only after the second
                //   completion of the operation (`LastsUntilOver`).
                unsafe {
                    let now_ns = p.local.now_ns.get();
                    p.poller
                        .queue_zero_copy_send(&request, send, wait, now_ns, &mut ready);
                };
                if deadline_ns != NEVER {
                    p.timers.add(deadline_ns, g, wait);
                }
            }
            wake::ready_all(m, ready);
            true
        });
        if !send.op.timed_out() && deadline.ns().min(chain.deadline_ns()) != NEVER {
            park::note_stale_timer(timer_on);
        }
        send.op.result()
    }

    /// Waits until the kernel has released the buffer. Resets the connection if a deadline, a
    /// context or the end of the run ends the wait.
    fn get_back(&self, g: GRef, send: &ZeroCopySend, deadline: Deadline<'_>) -> io::Result<()> {
        let chain = park::chain_of(g);
        while !send.is_over() {
            if park::is_cancelled() || chain.over().is_some() || deadline.has_passed() {
                socket::disconnect(self.as_fd());
                wait_out(g, send);
                park::cancel_point()?;
                current_context::check()?;
                return Err(io::ErrorKind::WouldBlock.into());
            }
            op::park_for(g, deadline, |op, _, _| match send.expect(op) {
                true => None,
                false => Some(0),
            });
        }
        if send.was_copied() {
            self.note_copies_anyway();
        }
        Ok(())
    }
}

/// Keeps an operation in place until its second completion.
struct LastsUntilOver<'a>(GRef, &'a ZeroCopySend);

impl Drop for LastsUntilOver<'_> {
    fn drop(&mut self) {
        wait_out(self.0, self.1);
    }
}

/// Waits for the notice. Nothing cuts a wait with `Reason::Offload` short. Either nothing was sent,
/// or the connection was reset, so the notice comes at once.
fn wait_out(g: GRef, send: &ZeroCopySend) {
    while !send.is_over() {
        let op = Op::new(g);
        let op = &op;
        park::park(Reason::Offload, move |_, wait, _| {
            op.bind(wait);
            send.expect(op)
        });
    }
}

/// Whether the error means that the kernel or the socket does not support zero-copy sends, that the
/// ring may not do them, or that the pages cannot be pinned. In these cases nothing was sent. If
/// the error is the socket's own, an ordinary send fails with it as well.
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

//! Taking the connections of a multishot accept (`netpoll::multishot`): the goroutine's side of
//! `accept_stream`.
//!
//! A one-shot accept is queued, and its poll armed, for each connection. A multishot accept is served
//! by the kernel as connections come: several in one reap. This has a price. It takes connections for
//! a goroutine that may be busy elsewhere, so their number is limited (`MAX_AHEAD`). And it belongs
//! to the thread that armed it, so it must be armed again when its P has moved to another thread.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::Arc;

use super::fd::Fd;
use super::op::{self, Deadline};
use crate::g::header::GRef;
use crate::g::list::GList;
use crate::netpoll::multishot::{By, Came, Expect, Multishot};
use crate::netpoll::op::Op;
use crate::sched::types::m::M;
use crate::sched::wait::park::{self, Caller};
use crate::sched::wait::{current_context, wake};
use crate::sys::clock;
use crate::util::ladder;

/// How often a plain thread checks whether the kernel has stopped.
const LOOK_EVERY_NS: u64 = 5 * ladder::TICK_NS;

/// Every connection that arrives at a listener from now on.
#[derive(Debug)]
pub(super) struct Subscription<'a> {
    pub(super) fd: &'a Fd,
    /// Made when a goroutine first asks for a result.
    multishot: Option<Arc<Multishot>>,
}

impl<'a> Subscription<'a> {
    pub(super) fn new(fd: &'a Fd) -> Subscription<'a> {
        Subscription {
            fd,
            multishot: None,
        }
    }

    /// Takes a result that has come.
    pub(super) fn take(&self) -> Option<Came> {
        self.multishot.as_ref()?.take()
    }

    /// Waits for the next result. `None` if no request is armed and none can be armed here: the
    /// caller must make an attempt of its own.
    ///
    /// # Errors
    ///
    /// `WouldBlock` at the deadline, or if the socket is non-blocking; the current context's.
    pub(super) fn next(&mut self, deadline: Deadline<'_>) -> io::Result<Option<Came>> {
        // A simulated listener has no such requests.
        if self.fd.seat().is_some() {
            return Ok(None);
        }
        loop {
            if let Some(came) = self.take() {
                return Ok(Some(came));
            }
            match park::caller() {
                // The caller makes an attempt only if the kernel makes none.
                _ if self.fd.is_nonblocking() => {
                    return match self.is_armed() {
                        true => Err(io::ErrorKind::WouldBlock.into()),
                        false => Ok(None),
                    };
                }
                Caller::Goroutine(g) if !op::is_epoll_here() => self.wait(g, deadline)?,
                _ if self.is_armed() => self.stop(),
                _ => return Ok(None),
            }
        }
    }

    pub(super) fn is_armed(&self) -> bool {
        self.multishot
            .as_ref()
            .is_some_and(|multishot| multishot.is_armed())
    }

    /// Stops the request, and waits until it has ended. Results that have come can still be taken.
    pub(super) fn stop(&self) {
        let Some(multishot) = &self.multishot else {
            return;
        };
        while multishot.is_armed() {
            multishot.stop();
            // The P that armed it reaps its ring meanwhile: another P, or this one when this
            // goroutine yields.
            let yields = matches!(park::caller(), Caller::Goroutine(_));
            if !yields || park::yield_now().is_err() {
                clock::nap(LOOK_EVERY_NS);
            }
        }
    }

    /// Waits for a result; arms the request if it is not armed.
    fn wait(&mut self, g: GRef, deadline: Deadline<'_>) -> io::Result<()> {
        let fd = self.fd;
        let multishot = self.multishot.get_or_insert_with(|| {
            let multishot = Arc::new(Multishot::new());
            fd.note_multishot(&multishot);
            multishot
        });
        let _waiting = deadline.enter(g);
        park::cancel_point()?;
        op::check(g)?;
        if deadline.has_passed() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let fd = fd.as_fd().as_raw_fd();
        let ended = op::park_for(g, deadline, |op, _, m| expect(m, op, multishot, fd));
        match park::chain_of(g).over() {
            // Only if no result came before the wait was cut short.
            Some(over) if ended.result < 0 => Err(current_context::Error::from(over).into()),
            _ => Ok(()),
        }
    }
}

/// In a commit: lets `op` wait for `multi`, unless there is a result.
fn expect(m: &M, op: &Op, multishot: &Arc<Multishot>, fd: i32) -> Option<i32> {
    const GO_ON: Option<i32> = Some(0);

    let p = m.p();
    let by = By {
        m: ptr::from_ref(m).cast(),
        runtime: m.sched.cast(),
    };
    let Some(ring_fd) = p.poller.ring_fd() else {
        return GO_ON;
    };
    loop {
        match multishot.expect(op, ring_fd, by) {
            Expect::Nothing => return GO_ON,
            Expect::Waiting => return None,
            Expect::ToArm => {
                let mut ready = GList::new();
                // SAFETY: the M in a commit holds the P.
                unsafe {
                    let now_ns = p.local.now_ns.get();
                    p.poller.arm_multi(fd, multishot, (by, now_ns), &mut ready);
                }
                wake::ready_completed(m, ready);
            }
        }
    }
}

impl Drop for Subscription<'_> {
    fn drop(&mut self) {
        if let Some(multishot) = &self.multishot {
            multishot.close();
        }
    }
}

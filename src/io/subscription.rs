//! Asking for what a request that stays armed gives (`netpoll::multishot`): the goroutine's side of
//! `recv_stream` and `accept_stream`.
//!
//! A one-shot request is queued, and its poll armed, for each thing that comes. One that stays
//! armed is served by the kernel as things come: several with one look at the ring. The price: it
//! takes for a goroutine that may be busy elsewhere, so there is an end of it (`MAX_AHEAD`); and
//! it belongs to the thread that armed it, so it is armed anew when its P has gone to another one.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::Arc;

use super::fd::Fd;
use super::op::{self, Deadline};
use crate::g::header::GRef;
use crate::g::list::GList;
use crate::netpoll::multishot::{By, Came, Expect, Multishot, Source};
use crate::netpoll::op::Op;
use crate::sched::types::m::M;
use crate::sched::wait::park::{self, Caller};
use crate::sched::wait::{current_context, wake};
use crate::sys::clock;

/// How often a plain thread looks whether the kernel has stopped.
const LOOK_EVERY_NS: u64 = 50_000;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// What comes on a stream.
    Bytes,
    /// Connections to a listener.
    Connections,
}

/// All that comes to a socket from now on.
#[derive(Debug)]
pub(super) struct Subscription<'a> {
    pub(super) fd: &'a Fd,
    kind: RequestKind,
    /// Made when a goroutine asks for the first time.
    multi: Option<Arc<Multishot>>,
}

impl<'a> Subscription<'a> {
    pub(super) fn new(fd: &'a Fd, kind: RequestKind) -> Subscription<'a> {
        Subscription {
            fd,
            kind,
            multi: None,
        }
    }

    /// What has come and was not taken.
    pub(super) fn take(&self) -> Option<Came> {
        self.multi.as_ref()?.take()
    }

    /// What comes next. `None` if nothing is armed and nothing can be, here: the caller is to make
    /// an attempt of its own.
    ///
    /// # Errors
    ///
    /// `WouldBlock` at the deadline, or if the socket is not to wait; the ambient context's.
    pub(super) fn next(&mut self, deadline: Deadline<'_>) -> io::Result<Option<Came>> {
        loop {
            if let Some(came) = self.take() {
                return Ok(Some(came));
            }
            match park::caller() {
                // An attempt of its own only if the kernel makes none.
                _ if self.fd.is_nonblocking() => {
                    return match self.is_armed() {
                        true => Err(io::ErrorKind::WouldBlock.into()),
                        false => Ok(None),
                    };
                }
                Caller::Goroutine(g) if self.can_arm_here() => self.wait(g, deadline)?,
                _ if self.is_armed() => self.stop(),
                _ => return Ok(None),
            }
        }
    }

    pub(super) fn is_armed(&self) -> bool {
        self.multi.as_ref().is_some_and(|multi| multi.is_armed())
    }

    /// Whether the P of the calling goroutine has what it takes.
    fn can_arm_here(&self) -> bool {
        match self.kind {
            RequestKind::Bytes => op::pool_here().is_some(),
            RequestKind::Connections => !op::is_epoll_here(),
        }
    }

    /// Tells the kernel to stop, and waits until it has. What has come stays to be taken.
    pub(super) fn stop(&self) {
        let Some(multi) = &self.multi else {
            return;
        };
        while multi.is_armed() {
            multi.stop();
            // The P that has it looks at its ring meanwhile: another, or this one when it may.
            let yields = matches!(park::caller(), Caller::Goroutine(_));
            if !yields || park::yield_now().is_err() {
                clock::nap(LOOK_EVERY_NS);
            }
        }
    }

    /// Waits until something has come; arms the request if that is to be done.
    fn wait(&mut self, g: GRef, deadline: Deadline<'_>) -> io::Result<()> {
        let kind = self.kind;
        let fd = self.fd;
        let multi = self.multi.get_or_insert_with(|| {
            let multi = Arc::new(Multishot::new());
            fd.note_multi(&multi);
            multi
        });
        let _waiting = deadline.enter(g);
        park::cancel_point()?;
        op::check(g)?;
        if deadline.has_passed() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let fd = fd.as_fd().as_raw_fd();
        let ended = op::park_for(g, deadline, |op, _, m| expect(m, op, multi, (fd, kind)));
        match park::chain_of(g).over() {
            // Only if nothing came before it was cut.
            Some(over) if ended.result < 0 => Err(current_context::Error::from(over).into()),
            _ => Ok(()),
        }
    }
}

/// In a commit: lets `op` wait for `multi`, unless something is there.
fn expect(m: &M, op: &Op, multi: &Arc<Multishot>, (fd, kind): (i32, RequestKind)) -> Option<i32> {
    const GO_ON: Option<i32> = Some(0);

    let p = m.p();
    let by = By {
        m: ptr::from_ref(m).cast(),
        runtime: m.sched.cast(),
    };
    let source = match kind {
        RequestKind::Bytes => op::pool_of(m).map(Source::Bytes),
        RequestKind::Connections => Some(Source::Connections),
    };
    let (Some(source), Some(ring_fd)) = (source, p.poller.ring_fd()) else {
        // On another P than before, whose kernel has refused it.
        return GO_ON;
    };
    loop {
        match multi.expect(op, ring_fd, by) {
            Expect::Nothing => return GO_ON,
            Expect::Waiting => return None,
            Expect::ToArm => {
                let mut ready = GList::new();
                // SAFETY: the M in a commit holds the P.
                unsafe {
                    let now_ns = p.local.now_ns.get();
                    p.poller
                        .arm_multi((fd, source), multi, (by, now_ns), &mut ready);
                }
                wake::ready_all(m, ready);
            }
        }
    }
}

impl Drop for Subscription<'_> {
    fn drop(&mut self) {
        if let Some(multi) = &self.multi {
            multi.close();
        }
    }
}

//! Receiving all that comes on a stream, with one request that stays armed
//! (`netpoll::multi`).
//!
//! A one-shot receive is queued, and its poll armed, for each piece. One that stays armed is
//! served by the kernel as data comes: several pieces with one look at the ring. The price:
//! it takes slots of its P's pool for a goroutine that may be busy elsewhere, so there is an
//! end of it (`MAX_AHEAD`); and it belongs to the thread that armed it, so it is armed anew
//! when its P has gone to another one.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::fd::{Direction, Fd};
use super::op::{self, Deadline};
use super::recv_buf::RecvBuf;
use crate::g::header::GRef;
use crate::g::list::GList;
use crate::g::status::{Reason, WaitId, Why};
use crate::netpoll::multi::{Came, Expect, Multi};
use crate::netpoll::op::Op;
use crate::sched::m::M;
use crate::sched::park::{self, Caller};
use crate::sched::{ambient, wake};
use crate::sys::clock::{self, NEVER};

/// How often a plain thread looks whether the kernel has stopped.
const LOOK_EVERY_NS: u64 = 50_000;

/// What comes on a stream, piece by piece: what `recv_stream` of a stream gives.
///
/// The kernel receives ahead of the goroutine that asks, into buffers of the P on which it
/// waits. With 16 of them filled it is told to stop until they have been taken; what it has
/// filled by then, at most the 2 MiB of the P, is kept. So nothing else should read from the
/// stream meanwhile. [`RecvStream::finish`] ends receiving without
/// losing a byte; dropping the value throws away what has come and was not asked for.
///
/// As an iterator it gives pieces that are not empty, to the end of the stream; after an
/// error it may be asked again.
pub struct RecvStream<'a> {
    fd: &'a Fd,
    /// Made when a goroutine asks for the first time.
    multi: Option<Arc<Multi>>,
    is_over: bool,
}

impl Fd {
    /// Receives all that comes.
    pub(crate) fn recv_stream(&self) -> RecvStream<'_> {
        RecvStream {
            fd: self,
            multi: None,
            is_over: false,
        }
    }
}

impl RecvStream<'_> {
    /// Receives what has come, at most 16 KiB; an empty buffer is the end of the stream.
    ///
    /// # Blocking
    ///
    /// As reading.
    ///
    /// # Errors
    ///
    /// As reading. A timeout, a deadline or a context that ends the wait takes nothing: what
    /// comes later is given by the next call.
    pub fn recv(&mut self) -> io::Result<RecvBuf> {
        if self.is_over {
            return Ok(RecvBuf::empty());
        }
        let deadline = self.fd.deadline(Direction::Read)?;
        loop {
            if let Some(came) = self.multi.as_ref().and_then(|multi| multi.take()) {
                return self.give(came, deadline);
            }
            match park::caller() {
                _ if self.fd.is_nonblocking() => return self.recv_now(),
                Caller::Goroutine(g) if op::pool_here().is_some() => self.wait(g, deadline)?,
                _ if self.is_armed() => self.stop_blocking(),
                _ => return self.fd.recv_owned(),
            }
        }
    }

    /// Ends receiving: gives what has come and was not asked for. What comes later stays in
    /// the socket.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine, or blocks the thread, until the kernel has stopped, which takes
    /// some microseconds.
    ///
    /// # Errors
    ///
    /// What would have been the error of a later receive.
    pub fn finish(mut self) -> io::Result<Vec<RecvBuf>> {
        self.stop_blocking();
        let mut all = Vec::new();
        let multi = self.multi.take();
        while let Some(came) = multi.as_ref().and_then(|multi| multi.take()) {
            match came {
                Came::Bytes { pool, slot, len } => all.push(RecvBuf::in_slot(pool, slot, len)),
                Came::End | Came::Starved => {}
                Came::Failed(errno) => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
        Ok(all)
    }

    fn is_armed(&self) -> bool {
        self.multi.as_ref().is_some_and(|multi| multi.is_armed())
    }

    fn give(&mut self, came: Came, deadline: Deadline<'_>) -> io::Result<RecvBuf> {
        match came {
            Came::Bytes { pool, slot, len } => Ok(RecvBuf::in_slot(pool, slot, len)),
            Came::End => {
                self.is_over = true;
                Ok(RecvBuf::empty())
            }
            // Nothing was taken out of the socket.
            Came::Starved => self.fd.recv_when_ready(deadline),
            Came::Failed(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// What is there; an attempt of its own only if the kernel makes none.
    fn recv_now(&self) -> io::Result<RecvBuf> {
        match self.is_armed() {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => self.fd.recv_owned(),
        }
    }

    /// Tells the kernel to stop, and waits until it has.
    fn stop_blocking(&self) {
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

    /// Waits until something has come; arms the receive if that is to be done.
    fn wait(&mut self, g: GRef, deadline: Deadline<'_>) -> io::Result<()> {
        let multi = self.multi.get_or_insert_with(|| Arc::new(Multi::new()));
        let _waiting = deadline.limit.map(|limit| {
            // SAFETY: the G is the caller, who leaves when this returns or unwinds.
            unsafe { limit.enter(NonNull::from(&*g)) }
        });
        park::cancel_point()?;
        op::check(g)?;
        if deadline.has_passed() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let chain = park::chain_of(g);
        let op = Op::new(g);
        op.publish();
        let (op_ref, fd) = (&op, self.fd.as_fd().as_raw_fd());
        let timer_on = park::timer_home();
        let why = Why::may_cut(Reason::Io, chain.is_some());
        park::park(why, move |g, wait, m| {
            // Here, where the status says Waiting: see `limit`.
            let deadline_ns = deadline.ns().min(chain.deadline_ns());
            let waits = !chain.is_set() && expect(m, op_ref, wait, multi, fd);
            if !waits {
                op_ref.bind(wait);
                // Nothing is queued. A canceller that holds the wait finds the mark.
                if let Some(g) = op_ref.complete(0, 0) {
                    wake::ready(m, g);
                }
                return true;
            }
            if deadline_ns != NEVER {
                m.p().timers.add(deadline_ns, g, wait);
            }
            true
        });
        if !op.timed_out() && deadline.ns().min(chain.deadline_ns()) != NEVER {
            park::note_stale_timer(timer_on);
        }
        match chain.over() {
            // Only if nothing came before it was cut.
            Some(over) if op.result() < 0 => Err(ambient::Error::from(over).into()),
            _ => Ok(()),
        }
    }
}

/// In a commit: lets `op` wait for `multi`. `false` if something is there.
fn expect(m: &M, op: &Op, wait: WaitId, multi: &Arc<Multi>, fd: i32) -> bool {
    let (p, by) = (m.p(), ptr::from_ref(m).cast());
    let (Some(pool), Some(ring_fd)) = (op::pool_of(m), p.poller.ring_fd()) else {
        // On another P than before, whose kernel has refused it.
        return false;
    };
    op.bind(wait);
    match multi.expect(op, ring_fd, by) {
        Expect::Nothing => return false,
        Expect::Waiting => {}
        Expect::ToArm => {
            let mut ready = GList::new();
            // SAFETY: the M in a commit holds the P.
            unsafe {
                let now_ns = p.local.now_ns.get();
                p.poller
                    .arm_multi((fd, pool), multi, (by, now_ns), &mut ready);
            }
            wake::ready_all(m, ready);
        }
    }
    true
}

impl Iterator for RecvStream<'_> {
    type Item = io::Result<RecvBuf>;

    fn next(&mut self) -> Option<io::Result<RecvBuf>> {
        match self.recv() {
            Ok(bytes) if bytes.is_empty() => None,
            received => Some(received),
        }
    }
}

impl Drop for RecvStream<'_> {
    fn drop(&mut self) {
        if let Some(multi) = &self.multi {
            multi.close();
        }
    }
}

impl fmt::Debug for RecvStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvStream")
            .field("fd", &self.fd.as_fd())
            .field("is_armed", &self.is_armed())
            .finish_non_exhaustive()
    }
}

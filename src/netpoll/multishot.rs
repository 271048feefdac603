//! A request that completes many times, until it is cancelled or fails: a receive, which takes a
//! slot of a pool whenever data has come, or an accept.
//!
//! It belongs to no frame. What has come waits here until it is asked for, and the ring has
//! a reference of its own until the last completion. Who asks while there is nothing waits
//! with an [`Op`] that the kernel does not know: its poller is this.
//!
//! | goroutine, in its commit         | reaper                   | canceller of the wait   |
//! |----------------------------------|--------------------------|-------------------------|
//! | 1. Waiting(n)                    | 1. add what has come     | 1. Waiting → Cancelling |
//! | 2. anything there? go on         | 2. take the waiter out   | 2. take the waiter out  |
//! | 3. not armed? arm, and begin     | 3. complete its Op       | 3. if it was there,     |
//! |    again with 2                  |                          |    complete its Op      |
//! | 4. name itself as the waiter     |                          |                         |
//!
//! 2 to 4 of the goroutine are one step under the lock, but for the arming, and so are 1 and 2
//! of the reaper: whoever takes the waiter out is the one that ends the wait.
//!
//! The kernel gives what it has as fast as it comes. When [`MAX_AHEAD`] pieces wait it is
//! told to stop, and armed again when they have been taken; what it had under way still
//! comes, at most what a pool has, or what had queued up at the listener.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use super::op::{ERESTARTSYS, Op};
use super::pool::{self, BufferRing};
use crate::g::list::GList;
use crate::lock::{Lock, Rank};
use crate::loom::oracle;
use crate::sys::uring::sync_cancel;

/// Pieces that may wait before the kernel is told to stop.
pub(crate) const MAX_AHEAD: usize = 16;

/// `IORING_CQE_F_MORE`: it stays armed.
const MORE: u32 = 1 << 1;

/// What is to be armed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// Receives into slots of a pool.
    Bytes(&'a Arc<BufferRing>),
    /// Accepts.
    Connections,
}

/// Something that has come.
#[derive(Debug)]
pub(crate) enum Came {
    /// So many bytes in a slot, which is the receiver's.
    Bytes {
        pool: Arc<BufferRing>,
        slot: u16,
        len: usize,
    },
    /// The end of the stream.
    End,
    /// The pool had no slot left.
    Starved,
    /// A connection.
    Accepted(OwnedFd),
    Failed(i32),
}

/// The thread that uses a ring, and its runtime: each by its address, which is only compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct By {
    pub(crate) m: *const (),
    pub(crate) runtime: *const (),
}

/// Where it is armed.
#[derive(Debug)]
pub(crate) struct ArmedRequest {
    pub(super) ring_fd: i32,
    /// Its name in that ring.
    pub(super) name: u64,
    pub(crate) by: By,
    /// Where a receive has its slots from; an accept has none.
    pub(super) pool: Option<Arc<BufferRing>>,
}

/// What a goroutine that wants to wait is told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Not to wait: something is there.
    Nothing,
    /// To arm the request, and to ask again.
    ToArm,
    /// It waits.
    Waiting,
}

#[derive(Debug)]
struct MultishotState {
    /// `None` before it is queued, and from the last completion on.
    armed: Option<ArmedRequest>,
    /// It was told to stop.
    is_stopping: bool,
    /// Nobody will ask again.
    is_closed: bool,
    came: VecDeque<Came>,
    /// Null if nobody waits.
    waiter: *const Op,
}

/// The request of one stream or listener.
#[derive(Debug)]
pub(crate) struct Multishot {
    state: Lock<MultishotState>,
}

// SAFETY: the waiter is used by whoever takes it out under the lock, while its frame waits for
// that; the addresses of the thread and the runtime are only compared.
unsafe impl Send for Multishot {}
// SAFETY: as for Send.
unsafe impl Sync for Multishot {}

impl Multishot {
    pub(crate) fn new() -> Multishot {
        Multishot {
            state: Lock::new(
                Rank::Multi,
                MultishotState {
                    armed: None,
                    is_stopping: false,
                    is_closed: false,
                    came: VecDeque::new(),
                    waiter: ptr::null(),
                },
            ),
        }
    }

    /// What has come first of all that was not taken.
    pub(crate) fn take(&self) -> Option<Came> {
        self.state.lock().came.pop_front()
    }

    /// Whether more may come without arming it.
    pub(crate) fn is_armed(&self) -> bool {
        self.state.lock().armed.is_some()
    }

    /// Names `op` as what to complete when something has come, or the last completion; not
    /// before the request is armed, as from then on a canceller may let the frame go that holds this.
    /// `by` is the calling thread, and its runtime. A request that another thread has armed in
    /// ring `ring_fd` is told to stop, as each of its completions would disturb that thread. So
    /// is one that another runtime has armed: `op` then waits for what comes first, a piece or the
    /// last completion, and whoever reaps that sends the goroutine home (`wake::send_out`).
    pub(crate) fn expect(&self, op: &Op, ring_fd: i32, by: By) -> Expect {
        let mut state = self.state.lock();
        if !state.came.is_empty() {
            return Expect::Nothing;
        }
        let Some(armed) = &state.armed else {
            return Expect::ToArm;
        };
        let is_foreign = armed.by.runtime != by.runtime;
        if is_foreign || armed.ring_fd == ring_fd && armed.by.m != by.m {
            state.stop();
        }
        state.waiter = op;
        op.set_multi(ptr::from_ref(self).cast());
        Expect::Waiting
    }

    /// It is about to be queued.
    pub(super) fn begin(&self, armed: ArmedRequest) {
        oracle::lives(self);
        let mut state = self.state.lock();
        state.armed = Some(armed);
        state.is_stopping = false;
    }

    /// The reaper's side of a completion; the G that waits for it goes to `ready`. `true` if
    /// it was the last: the ring's reference is to be dropped.
    pub(super) fn complete(&self, result: i32, flags: u32, ready: &mut GList) -> bool {
        oracle::touches(self);
        let is_last = flags & MORE == 0;
        let mut state = self.state.lock();
        let unwanted = state.add(result, flags);
        if is_last {
            state.armed = None;
        } else if state.is_closed || state.came.len() >= MAX_AHEAD {
            state.stop();
        }
        let ends_wait = is_last || !state.came.is_empty();
        let waiter = match ends_wait {
            true => std::mem::replace(&mut state.waiter, ptr::null()),
            false => ptr::null(),
        };
        drop(state);
        unwanted.into_iter().for_each(Came::discard);
        // SAFETY: it was taken out under the lock, so this alone ends its wait, and its frame stays
        // until then.
        if let Some(op) = unsafe { waiter.as_ref() } {
            ready.extend_one(op.complete(0, 0));
        }
        is_last
    }

    /// Ends the wait of `op`, if nobody else is about to. The caller holds the wait
    /// (`Status::begin_cancel`), and looks at its mark afterwards.
    pub(crate) fn withdraw(&self, op: &Op) {
        let mut state = self.state.lock();
        if !ptr::eq(state.waiter, op) {
            return;
        }
        state.waiter = ptr::null();
        drop(state);
        let g = op.complete(-libc::ECANCELED, 0);
        debug_assert!(g.is_none(), "the wait is held by the caller");
    }

    /// Asks for the last completion. What has come stays to be taken.
    pub(crate) fn stop(&self) {
        self.state.lock().stop();
    }

    /// Nobody will ask again: gives back what has come and what will come.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let came = std::mem::take(&mut state.came);
        state.stop();
        drop(state);
        came.into_iter().for_each(Came::discard);
    }
}

impl Came {
    /// What a completion of a receive into `pool` says has come.
    fn received(pool: &Arc<BufferRing>, result: i32, flags: u32) -> Option<Came> {
        let slot = pool::slot_of(flags);
        let result = usize::try_from(result).map_err(|_| -result);
        if let (Some(slot), Ok(len @ 1..)) = (slot, result) {
            let pool = Arc::clone(pool);
            return Some(Came::Bytes { pool, slot, len });
        }
        if let Some(slot) = slot {
            pool.give(slot);
        }
        match result {
            Ok(_) => Some(Came::End),
            Err(libc::ENOBUFS) => Some(Came::Starved),
            Err(errno) => Came::failed(errno),
        }
    }

    /// What a completion of an accept says has come.
    fn accepted(result: i32) -> Option<Came> {
        match result {
            // SAFETY: the kernel gave this descriptor to this completion alone.
            0.. => Some(Came::Accepted(unsafe { OwnedFd::from_raw_fd(result) })),
            // The peer was gone before it was accepted: nothing for anybody to do.
            _ if -result == libc::ECONNABORTED => None,
            _ => Came::failed(-result),
        }
    }

    fn failed(errno: i32) -> Option<Came> {
        match errno {
            // Asked for, or by nobody: the thread that submitted it has gone.
            libc::ECANCELED | libc::EINTR | ERESTARTSYS => None,
            errno => Some(Came::Failed(errno)),
        }
    }

    /// Gives back what nobody will ask for. A connection is closed: not under the lock.
    fn discard(self) {
        if let Came::Bytes { pool, slot, .. } = self {
            pool.give(slot);
        }
    }
}

impl MultishotState {
    /// Asks the kernel for the last completion. Under the lock, so that the ring stays.
    fn stop(&mut self) {
        if let Some(armed) = &self.armed
            && !self.is_stopping
        {
            // It was submitted when it was armed. So a failure means that the last completion is
            // there already, or that it is at work this very moment: then its next completion
            // comes here again.
            self.is_stopping = sync_cancel(armed.ring_fd, armed.name).is_ok();
        }
    }

    /// Keeps what a completion gives. What nobody will ask for is given back.
    fn add(&mut self, result: i32, flags: u32) -> Option<Came> {
        let came = match &self.armed.as_ref()?.pool {
            Some(pool) => Came::received(pool, result, flags),
            None => Came::accepted(result),
        }?;
        if self.is_closed {
            return Some(came);
        }
        self.came.push_back(came);
        None
    }
}

impl Drop for Multishot {
    fn drop(&mut self) {
        self.close();
        #[cfg(explore)]
        oracle::dies(self);
    }
}
